//! Helpers for tests and benches of all crates: a fake model in this process, and fake model servers
//! on this machine.
//!
//! These helpers must never be part of a release build of the daemon.

mod fake_model;
mod fake_openai;
mod server;
mod strict;

use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::{ProviderKind, ProviderPlan};
use ghost_domain::transcript::{Message, Role};
use ghost_domain::{AgentId, TurnId};

use crate::model::ModelRequest;

pub use fake_model::{FakeModel, Reply, block, call, calls, fail, results, say};
pub use fake_openai::{FakeAnswer, FakeCall, FakeOpenAi};
pub use server::{FakeEnd, FakeReply, FakeRequest, FakeServer};
pub use strict::{Asked, StrictServer, Wire};

/// A plan of `kind` with short pauses, four parallel calls and three attempts.
#[must_use]
pub fn provider_plan(kind: ProviderKind, base_url: Option<String>) -> ProviderPlan {
    ProviderPlan {
        kind,
        base_url,
        api_key_env: None,
        concurrency: 4,
        attempts: 3,
        retry_base: Duration::from_millis(10),
        retry_cap: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(60),
        dir: None,
        headers: Default::default(),
        query: Default::default(),
        extra_body: Default::default(),
        api: None,
    }
}

/// A request of one user message by the agent `tester`.
#[must_use]
pub fn request(model: &str, text: &str) -> ModelRequest {
    ModelRequest {
        agent_id: tester(),
        turn_id: TurnId(Default::default()),
        provider: "p".to_owned(),
        model: model.to_owned(),
        facts: Arc::default(),
        system: String::new(),
        messages: vec![Message::text(Role::User, text)],
        tools: Arc::from([]),
        max_tokens: 1_024,
        calls_bytes: 1 << 20,
        temperature: None,
        thinking: None,
        window_tokens: None,
    }
}

fn tester() -> AgentId {
    // The literal is a valid id; every test that uses this proves it.
    #[allow(clippy::expect_used)]
    "tester".parse().expect("a valid agent id")
}
