//! Tools that exist for tests only, and the book outside the world in which their effects are counted: it outlives every
//! crash, as the real outside would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::{AgentId, Code, Refusal, TurnId};
use ghost_store::Writes;
use ghost_tools::{CallContext, Output, OutsideTool, Run, Tool, WorldTool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The outside tool.
pub const OUTSIDE: &str = "sim.outside";
/// The in-world tool that counts its own effects in the store.
pub const MARK: &str = "sim.mark";
/// The in-world tool that panics.
pub const POISON: &str = "sim.poison";

/// Every panic of these tools begins so.
const PANIC: &str = "simulated:";

/// The store's key under which the effects of a mark are counted.
pub(crate) fn mark_key(token: &str) -> String {
    format!("sim.mark.{token}")
}

/// What happened outside the world.
#[derive(Clone, Default)]
pub(crate) struct Pages {
    /// Executions of the outside tool, by token.
    pub(crate) executions: BTreeMap<String, u32>,
    /// Whose tools panicked.
    pub(crate) panicked: BTreeSet<AgentId>,
    /// In which turns the outside tool panicked: at most once each, so that no innocent mail becomes a dead letter.
    panic_turns: BTreeSet<TurnId>,
    /// What was seen that must not be.
    pub(crate) wrongs: Vec<String>,
}

/// The book. Clones are the same book.
#[derive(Clone, Default)]
pub(crate) struct Book(Arc<Mutex<Pages>>);

impl Book {
    pub(crate) fn open(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wrong(&self, what: String) {
        self.open().wrongs.push(what);
    }
}

/// All of them.
pub(crate) fn all(book: &Book) -> Vec<Tool> {
    vec![
        Tool::new::<OutsideParams>(
            OUTSIDE,
            "Do something outside the world, which is counted there.",
            Run::outside(Outside(book.clone())),
        ),
        Tool::new::<MarkParams>(MARK, "Leave a mark in the world.", Run::world(Mark)),
        Tool::new::<PoisonParams>(POISON, "Panic.", Run::world(Poison(book.clone()))),
    ]
}

/// How the outside tool behaves after it has had its effect.
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
    /// What comes after it.
    manner: Manner,
}

struct Outside(Book);

#[async_trait]
impl OutsideTool for Outside {
    type Params = OutsideParams;

    async fn run(&self, call: &CallContext, params: OutsideParams) -> Result<Output, Refusal> {
        let panics = {
            let mut pages = self.0.open();
            *pages.executions.entry(params.token.clone()).or_default() += 1;
            let panics = matches!(params.manner, Manner::Panic) && pages.panic_turns.insert(call.turn_id);
            if panics {
                pages.panicked.insert(call.caller.agent_id.clone());
            }
            panics
        };
        // The effect is there, and nobody knows yet: this is where a crash hurts most.
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
    type Params = MarkParams;

    async fn apply(&self, _: &CallContext, params: MarkParams, w: &mut dyn Writes) -> Result<Output, Refusal> {
        let key = mark_key(&params.token);
        let before = w.meta_get(&key).await?.and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        w.meta_put(&key, &(before + 1).to_string()).await?;
        Ok(json!({ "marks": before + 1 }).into())
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PoisonParams {}

struct Poison(Book);

#[async_trait]
impl WorldTool for Poison {
    type Params = PoisonParams;

    async fn apply(&self, call: &CallContext, _: PoisonParams, w: &mut dyn Writes) -> Result<Output, Refusal> {
        self.0.open().panicked.insert(call.caller.agent_id.clone());
        // Half an effect, which must not be seen.
        w.meta_put(&mark_key("poison"), "1").await?;
        panic!("{PANIC} a poisoned message");
    }
}

/// Keeps the panics that a simulation plans out of the test's output; all others are told as ever.
pub(crate) fn hush_planned_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload_as_str().is_some_and(|words| words.starts_with(PANIC)) {
                told(info);
            }
        }));
    });
}
