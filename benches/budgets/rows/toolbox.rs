//! A call of a toolbox tool, without its records, beside the same command through the sandbox alone.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::{SandboxKind, SandboxPlan};
use ghost_domain::{Refusal, TurnId};
use ghost_sandbox::{Closed, Command, End, Owner, Sandbox, ToolboxDir};
use ghost_tools::tool::OutsideTool;
use ghost_tools::{CallContext, Output, Run, Tool};
use ghost_world::{OperatorCall, World};
use serde_json::{Value, json};

use crate::fixture;
use crate::measure::{Outcome, median, now, runtime};
use crate::table::{Line, Sense};

/// Calls of one round.
const EACH: u32 = 20;
const ROUNDS: usize = 15;
const CATCH: &str = "bench.catch";
const AGENT: &str = "worker-0";
const BOX: &str = "name: bench\ntools: [{ name: noop, description: Does nothing, command: [\"true\"] }]\n";

/// Measures the row of this module.
pub fn measure() -> Outcome<Vec<Line>> {
    runtime()?.block_on(async {
        // Commands may be another user's, who must get there.
        let dir = tempfile::tempdir_in("/var/tmp")?;
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let (world_dir, data) = (dir.path().join("bench"), dir.path().join("data"));
        std::fs::create_dir_all(data.join("workspace"))?;
        fixture::write_world(&world_dir, 1, "http://127.0.0.1:9/v1")?;
        std::fs::create_dir_all(world_dir.join("toolbox/bench"))?;
        std::fs::write(world_dir.join("toolbox/bench/toolbox.yaml"), BOX)?;
        let file = world_dir.join("world-config.yaml");
        let text = std::fs::read_to_string(&file)?;
        let more = "toolboxes: [{ source: toolbox/bench/toolbox.yaml }]\nsandbox: { kind: local }\n";
        std::fs::write(&file, text + more)?;
        let sandbox = sandbox(&data).await?;
        let caught: Caught = Arc::default();
        let catch =
            Tool::with_schema(CATCH, "Catches.", json!({ "type": "object" }), Run::outside(Catch(Arc::clone(&caught))));
        let ports = ghost_daemon::system_ports();
        let world = fixture::boot_with(&world_dir, &data, ports, vec![catch], Ok(Arc::clone(&sandbox))).await?;
        let call = context(&world, &caught).await?;
        let toolbox = call.services.plan().toolboxes.get("bench").cloned().ok_or("no toolbox")?;
        let tools = ghost_tools::builtins::tools_of(&toolbox, Ok(&sandbox), &|_| None).tools;
        let Some(Run::Outside(noop)) = tools.first().map(|tool| tool.run.resolve(&Value::Null)) else {
            return Err("the toolbox has no tool".into());
        };
        let own = ToolboxDir { name: toolbox.name.clone(), dir: toolbox.dir.clone() };
        let (mut floors, mut ours) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let began = now();
            for _ in 0..EACH {
                alone(&*sandbox, &own).await?;
            }
            let floor = began.elapsed();
            let began = now();
            for _ in 0..EACH {
                noop.run(&call, json!({})).await.map_err(|refusal| refusal.to_string())?;
            }
            // The first round warms up both.
            if round > 0 {
                floors.push(floor.as_secs_f64() * 1_000.0 / f64::from(EACH));
                ours.push(began.elapsed().as_secs_f64() * 1_000.0 / f64::from(EACH));
            }
        }
        world.shutdown("measured").await;
        world.store().close().await;
        sandbox.close().await;
        let (floor, ours) = (median(floors), median(ours));
        Ok(vec![Line {
            what: "a call of a toolbox, beside its command alone",
            floor: format!("{floor:.2} ms"),
            ours: format!("{ours:.2} ms"),
            ratio: ours / floor,
            bar: 1.2,
            aim: 1.05,
            sense: Sense::AtMost,
        }])
    })
}

async fn sandbox(data: &Path) -> Outcome<Arc<dyn Sandbox>> {
    let plan = SandboxPlan { kind: SandboxKind::Local, ..SandboxPlan::default() };
    let owner = Owner { world_id: "bench", data_dir: data };
    let clock = Arc::new(ghost_daemon::ports::SystemClock);
    Ok(ghost_sandbox::open(&plan, owner, &data.join("workspace"), Arc::new(Closed), clock).await?)
}

/// The command of the tool, without the tool.
async fn alone(sandbox: &dyn Sandbox, toolbox: &ToolboxDir) -> Outcome<()> {
    let command = Command {
        agent_id: AGENT.parse()?,
        conversation_id: None,
        argv: vec!["true".to_owned()],
        dir: format!("agents/{AGENT}"),
        env: Vec::new(),
        stdin: Vec::new(),
        feed: None,
        drain: None,
        toolbox: Some(toolbox.clone()),
        timeout: Duration::from_secs(120),
        writable: vec![format!("agents/{AGENT}/")],
        stdout_limit: 50 * 1_024,
        stderr_limit: 10 * 1_024,
    };
    let done = sandbox.run(command, &|_| {}).await.map_err(|refusal| refusal.to_string())?;
    if done.end == End::Exited(0) { Ok(()) } else { Err(format!("it ended with {:?}", done.end).into()) }
}

type Caught = Arc<Mutex<Option<CallContext>>>;

/// A tool that gives its context away.
struct Catch(Caught);

#[async_trait]
impl OutsideTool for Catch {
    async fn run(&self, call: &CallContext, _: Value) -> Result<Output, Refusal> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(call.clone());
        Ok(Value::Null.into())
    }
}

/// The context of a call of the agent.
async fn context(world: &World, caught: &Caught) -> Outcome<CallContext> {
    let turn_id = TurnId(world.ctx().id());
    let (tool, arguments) = (CATCH.to_owned(), json!({}));
    let call = OperatorCall { turn_id, again: false, agent_id: AGENT.parse()?, tool, arguments };
    world.call_tool(call).await.map_err(|refusal| refusal.to_string())?;
    let caught = caught.lock().unwrap_or_else(PoisonError::into_inner).take();
    caught.ok_or_else(|| "the tool was not called".into())
}
