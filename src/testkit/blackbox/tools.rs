//! Tools for tests: one with an effect outside that tests can count, and one for each way in which a tool can fail.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::{Code, Money, Refusal};
use ghost_operations::Tx;
use ghost_tools::CallContext;
use ghost_tools::tool::{Output, OutsideTool, Run, Tool, WorldTool, parse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// The environment variable with the path of the file that `test.effect` writes to.
pub const EFFECTS: &str = "GHOST_TEST_EFFECTS";
/// The environment variable with the path of a file. While that file exists, `test.panic` and `test.poison` do nothing.
pub const CALM: &str = "GHOST_TEST_CALM";

/// The tools for tests, configured by environment variables.
#[must_use]
pub fn test_tools(env: &dyn Fn(&str) -> Option<String>) -> Vec<Tool> {
    let effects = env(EFFECTS).map(PathBuf::from);
    let calm = env(CALM).map(PathBuf::from);
    let (panic, poison) = (Panic { calm: calm.clone() }, Poison { calm });
    let mut hang = Tool::new::<HangParams>("test.hang", "Never returns.", Run::outside(Hang));
    hang.seconds = Some(2);
    vec![
        Tool::new::<EffectParams>("test.effect", "Appends a line to a file.", Run::outside(Effect { effects })),
        Tool::new::<PanicParams>("test.panic", "Panics.", Run::outside(panic)),
        Tool::new::<PoisonParams>("test.poison", "Panics in the store's transaction.", Run::world(poison)),
        hang,
        Tool::new::<ChargeParams>("test.charge", "Charges money, and may end as failed.", Run::outside(Charge))
            .charging(),
        Tool::new::<HangParams>("test.break_store", "Has the store's writer panic.", Run::outside(BreakStore)),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EffectParams {
    /// The text of the line.
    arg: String,
    /// Milliseconds to wait before the effect.
    #[serde(default)]
    delay_ms: u64,
}

struct Effect {
    effects: Option<PathBuf>,
}

#[async_trait]
impl OutsideTool for Effect {
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output, Refusal> {
        let params: EffectParams = parse(arguments)?;
        let Some(file) = self.effects.clone() else {
            return Err(Refusal::new(Code::Unavailable, format!("{EFFECTS} is not set")));
        };
        if params.delay_ms > 0 {
            call.services.ctx.ports.clock.sleep(Duration::from_millis(params.delay_ms)).await;
        }
        let line = format!("{} {} {}\n", call.call_id, call.caller.agent_id, params.arg);
        let failed = |error: std::io::Error| Refusal::new(Code::ExecFailed, format!("the effect failed: {error}"));
        let mut file = OpenOptions::new().append(true).create(true).open(file).map_err(failed)?;
        // A single write with O_APPEND, so that lines of several calls do not mix.
        file.write_all(line.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        Ok(json!({ "done": params.arg }).into())
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PanicParams {
    /// The message of the panic.
    #[serde(default)]
    words: String,
}

struct Panic {
    calm: Option<PathBuf>,
}

#[async_trait]
impl OutsideTool for Panic {
    async fn run(&self, _: &CallContext, arguments: Value) -> Result<Output, Refusal> {
        let params: PanicParams = parse(arguments)?;
        assert!(is_calm(self.calm.as_ref()), "test.panic: {}", params.words);
        Ok(json!({ "calm": true }).into())
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PoisonParams {
    /// It panics if this holds the word `poison`.
    text: String,
}

struct Poison {
    calm: Option<PathBuf>,
}

#[async_trait]
impl WorldTool for Poison {
    fn apply(&self, _: &CallContext, arguments: Value, _: &mut Tx) -> Result<Output, Refusal> {
        let params: PoisonParams = parse(arguments)?;
        let poisoned = params.text.contains("poison") && !is_calm(self.calm.as_ref());
        assert!(!poisoned, "test.poison: {}", params.text);
        Ok(json!({ "swallowed": params.text }).into())
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ChargeParams {
    /// Millionths of a dollar.
    micros: u64,
    /// Whether the call counts as failed.
    #[serde(default)]
    fails: bool,
}

struct Charge;

#[async_trait]
impl OutsideTool for Charge {
    async fn run(&self, _: &CallContext, arguments: Value) -> Result<Output, Refusal> {
        let params: ChargeParams = parse(arguments)?;
        let failed = params.fails.then_some(Code::ExecFailed);
        Ok(Output { cost: Some(Money(params.micros)), failed, ..json!({ "charged": params.micros }).into() })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HangParams {}

struct Hang;

#[async_trait]
impl OutsideTool for Hang {
    async fn run(&self, _: &CallContext, _: Value) -> Result<Output, Refusal> {
        std::future::pending().await
    }
}

/// A waker that panics.
struct Brittle;

impl Wake for Brittle {
    fn wake(self: Arc<Self>) {
        panic!("test.break_store");
    }
}

struct BreakStore;

#[async_trait]
impl OutsideTool for BreakStore {
    async fn run(&self, call: &CallContext, _: Value) -> Result<Output, Refusal> {
        let mut feed = call.services.store.feed();
        let waker = Waker::from(Arc::new(Brittle));
        let mut next = Box::pin(feed.recv());
        // The next published commit wakes it on the store's writer, which then panics.
        while next.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            drop(next);
            next = Box::pin(feed.recv());
        }
        std::future::pending().await
    }
}

fn is_calm(file: Option<&PathBuf>) -> bool {
    file.is_some_and(|file| file.exists())
}
