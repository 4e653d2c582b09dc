//! Tools for simulations, and the record of their effects outside the world. The record survives every crash, as
//! the real outside would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::{AgentId, Code, Refusal, TurnId};
use ghost_operations::Tx;
use ghost_tools::tool::parse;
use ghost_tools::{CallContext, Output, OutsideTool, Run, Tool, WorldTool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Name of the tool with an effect outside the world.
pub const OUTSIDE: &str = "sim.outside";
/// Name of the tool in the world that counts its effects in the store.
pub const MARK: &str = "sim.mark";
/// Name of the tool in the world that panics.
pub const POISON: &str = "sim.poison";

/// The prefix of all panics of these tools.
const PANIC: &str = "simulated:";

/// The store's key of the count of a mark.
pub(crate) fn mark_key(token: &str) -> String {
    format!("sim.mark.{token}")
}

/// The effects and panics outside the world.
#[derive(Clone, Default)]
pub(crate) struct OutsideEvents {
    /// Executions of the outside tool, by token.
    pub(crate) executions: BTreeMap<String, u32>,
    /// Agents whose tools panicked.
    pub(crate) panicked: BTreeSet<AgentId>,
    /// Turns in which the outside tool panicked. At most once in each, so that innocent mail never becomes a dead
    /// letter.
    panic_turns: BTreeSet<TurnId>,
    /// Violations that were observed.
    pub(crate) wrongs: Vec<String>,
}

/// The record of effects outside the world. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct OutsideLog(Arc<Mutex<OutsideEvents>>);

impl OutsideLog {
    pub(crate) fn open(&self) -> MutexGuard<'_, OutsideEvents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wrong(&self, what: String) {
        self.open().wrongs.push(what);
    }
}

/// All tools of a simulation.
pub(crate) fn all(outside_log: &OutsideLog) -> Vec<Tool> {
    vec![
        Tool::new::<OutsideParams>(
            OUTSIDE,
            "Do something outside the world, which is counted there.",
            Run::outside(Outside(outside_log.clone())),
        ),
        Tool::new::<MarkParams>(MARK, "Leave a mark in the world.", Run::world(Mark)),
        Tool::new::<PoisonParams>(POISON, "Panic.", Run::world(Poison(outside_log.clone()))),
    ]
}

/// How the outside tool behaves after its effect.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Manner {
    Plain,
    Slow,
    Refuse,
    Panic,
    Hang,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OutsideParams {
    /// Names the effect.
    token: String,
    /// The behaviour after the effect.
    manner: Manner,
}

struct Outside(OutsideLog);

#[async_trait]
impl OutsideTool for Outside {
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output, Refusal> {
        let params: OutsideParams = parse(arguments)?;
        let panics = {
            let mut outside = self.0.open();
            *outside.executions.entry(params.token.clone()).or_default() += 1;
            let panics = matches!(params.manner, Manner::Panic) && outside.panic_turns.insert(call.turn_id);
            if panics {
                outside.panicked.insert(call.caller.agent_id.clone());
            }
            panics
        };
        // The effect has happened, but is not recorded yet. A crash here is the hardest case.
        call.services.ctx.ports.clock.sleep(Duration::from_millis(40)).await;
        match params.manner {
            Manner::Plain => {}
            Manner::Slow => call.services.ctx.ports.clock.sleep(Duration::from_secs(4)).await,
            Manner::Refuse => {
                return Err(Refusal::new(Code::Unavailable, "the outside did not like it").hint("never mind"));
            }
            Manner::Panic if panics => panic!("{PANIC} the outside tool fell over"),
            Manner::Panic => {}
            Manner::Hang => std::future::pending().await,
        }
        Ok(json!({ "done": params.token }).into())
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MarkParams {
    /// Names the mark.
    token: String,
}

struct Mark;

#[async_trait]
impl WorldTool for Mark {
    fn apply(&self, _: &CallContext, arguments: Value, w: &mut Tx) -> Result<Output, Refusal> {
        let params: MarkParams = parse(arguments)?;
        let key = mark_key(&params.token);
        let before = w.meta_get(&key)?.and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        w.meta_put(&key, &(before + 1).to_string())?;
        Ok(json!({ "marks": before + 1 }).into())
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PoisonParams {}

struct Poison(OutsideLog);

#[async_trait]
impl WorldTool for Poison {
    fn apply(&self, call: &CallContext, _: Value, w: &mut Tx) -> Result<Output, Refusal> {
        self.0.open().panicked.insert(call.caller.agent_id.clone());
        // This write must be rolled back.
        w.meta_put(&mark_key("poison"), "1")?;
        panic!("{PANIC} a poisoned message");
    }
}

/// Suppresses the messages of panics that a simulation plans. Other panics are printed.
pub(crate) fn hush_planned_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let default_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload_as_str().is_some_and(|words| words.starts_with(PANIC)) {
                default_hook(info);
            }
        }));
    });
}
