//! A tool that joins the tools of a running world, beside building the table of all its tools: what joins must not cost a
//! rebuild of the others.

use std::hint::black_box;

use async_trait::async_trait;
use ghost_domain::Refusal;
use ghost_tools::tool::ReadTool;
use ghost_tools::{CallContext, LiveTools, Output, Run, SourceTools, Tool, ToolTable};
use serde_json::{Value, json};

use crate::measure::{Outcome, median, now};
use crate::table::{Line, Sense};

/// Tools of the world.
const TOOLS: usize = 1_000;
const EACH: u32 = 20;
const ROUNDS: usize = 15;

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    let live = LiveTools::new(ToolTable::new(tools())?);
    let (mut floors, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let began = now();
        for _ in 0..EACH {
            black_box(ToolTable::new(tools())?);
        }
        let floor = began.elapsed();
        let began = now();
        for n in 0..EACH {
            let joins = SourceTools { tools: vec![tool(&format!("late.tool_{n}"))], ..SourceTools::default() };
            live.set("late", joins);
            black_box(live.current());
        }
        if round > 0 {
            floors.push(floor.as_secs_f64() * 1e6 / f64::from(EACH));
            ours.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(EACH));
        }
    }
    let (floor, ours) = (median(floors), median(ours));
    Ok(vec![Line {
        what: "one tool joins 1,000, beside building them",
        floor: format!("{floor:.0} us"),
        ours: format!("{ours:.0} us"),
        ratio: ours / floor,
        bar: 0.2,
        aim: 0.05,
        sense: Sense::AtMost,
    }])
}

fn tools() -> Vec<Tool> {
    (0..TOOLS).map(|n| tool(&format!("bench.tool_{n}"))).collect()
}

fn tool(name: &str) -> Tool {
    let properties =
        json!({ "path": { "type": "string", "description": "Where it is." }, "count": { "type": "integer" } });
    let parameters =
        json!({ "type": "object", "properties": properties, "required": ["path"], "additionalProperties": false });
    Tool::with_schema(name, "Looks something up and returns what it has found.", parameters, Run::read(Nothing))
}

struct Nothing;

#[async_trait]
impl ReadTool for Nothing {
    async fn run(&self, _: &CallContext, _: Value) -> Result<Output, Refusal> {
        Ok(Value::Null.into())
    }
}
