//! Short helpers for tests of whole worlds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::Plan;
pub(super) use ghost_config::testing::TWO_AGENTS as TWO;
use ghost_domain::{Ask, Code, EventKind, Refusal};
use ghost_operations::testing;
pub(super) use ghost_operations::testing::{id, operator, read, write};
use ghost_provider::testing::Reply;
pub(super) use ghost_provider::testing::{FakeModel, call, results, say};
use ghost_provider::{ModelRequest, Providers};
use ghost_store::Store;
use ghost_tools::{CallContext, Output, OutsideTool, Run, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub(super) use crate::testing::TestWorld;
use crate::world::Reloader;
use crate::{Boot, World, boot};

/// A model with these replies.
pub(super) fn fake_model(mut replies: impl FnMut(&ModelRequest) -> Reply + Send + 'static) -> Arc<FakeModel> {
    FakeModel::new(move |request, _| replies(request))
}

/// A reloader that returns these plans, one for each reload.
pub(super) fn reloader(test_world: &TestWorld, plans: Vec<Plan>, model: &Arc<FakeModel>) -> Reloader {
    let providers = |plan| (plan, model.providers(2, test_world.clock.clone()));
    let plans: Mutex<Vec<(Plan, Providers)>> = Mutex::new(plans.into_iter().rev().map(providers).collect());
    Box::new(move || {
        let next = plans.lock().unwrap().pop();
        next.ok_or_else(|| Refusal::new(Code::Unavailable, "no more reloads"))
    })
}

impl TestWorld {
    pub(super) async fn boot(
        &self,
        replies: impl FnMut(&ModelRequest) -> Reply + Send + 'static,
    ) -> (Arc<World>, Arc<FakeModel>) {
        self.boot_with(replies, |boot| boot).await
    }

    /// Boots with a store of the test.
    pub(super) async fn boot_over(
        &self,
        store: Store,
        replies: impl FnMut(&ModelRequest) -> Reply + Send + 'static,
    ) -> (Arc<World>, Arc<FakeModel>) {
        self.boot_with(replies, |boot| Boot { store, ..boot }).await
    }

    pub(super) async fn boot_to_reload(
        &self,
        replies: impl FnMut(&ModelRequest) -> Reply + Send + 'static,
        reloader: Reloader,
    ) -> (Arc<World>, Arc<FakeModel>) {
        self.boot_with(replies, |boot| Boot { reloader, ..boot }).await
    }

    async fn boot_with(
        &self,
        replies: impl FnMut(&ModelRequest) -> Reply + Send + 'static,
        change: impl FnOnce(Boot) -> Boot,
    ) -> (Arc<World>, Arc<FakeModel>) {
        let model = fake_model(replies);
        let panics = Tool::new::<Nothing>("test.panic", "Panics.", Run::outside(Panics));
        let tools = ghost_tools::builtins::with(vec![panics]);
        let world = boot(change(Boot { tools, ..self.to_boot(model.providers(2, self.clock.clone())) })).await.unwrap();
        (world, model)
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

struct Panics;

#[async_trait]
impl OutsideTool for Panics {
    async fn run(&self, _: &CallContext, _: Value) -> Result<Output, Refusal> {
        panic!("the tool fell over")
    }
}

pub(super) fn mail_of(request: &ModelRequest) -> String {
    request.messages[request.past].visible_text()
}

pub(super) async fn ask(world: &World, target: &str, text: &str) -> Ask {
    let ask = testing::ask(world.ctx(), world.store(), target, text, Duration::from_secs(600)).await.unwrap();
    world.wait_for_ask(ask.ask_id).await.unwrap()
}

pub(super) async fn send(world: &World, to: &str, text: &str) {
    testing::send(world.ctx(), world.store(), to, text).await;
}

/// Waits for an event of this kind about this agent.
pub(super) async fn until(world: &World, kind: EventKind, agent: &str) {
    testing::until(world.store(), kind, agent).await;
}

/// Advances time until `done` completes.
pub(super) async fn while_time_passes<T>(test_world: &TestWorld, done: impl Future<Output = T>) -> T {
    test_world.clock.advance_until(Duration::from_millis(500), done).await
}

/// Lets all tasks run that can run without time passing.
pub(super) async fn settle() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

/// Waits until `done` returns true, without time passing.
pub(super) async fn soon(what: &str, done: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if done() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("nothing came of it: {what}");
}
