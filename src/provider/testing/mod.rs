//! Helpers for tests and benches of all crates: a fake model in this process, and fake model servers
//! on this machine.
//!
//! These helpers must never be part of a release build of the daemon.

mod fake_model;
mod fake_openai;
mod plan;
mod server;
mod strict;
mod wrong_replies;

use std::sync::Arc;

use ghost_domain::transcript::{Message, Role};
use ghost_domain::{AgentId, TurnId};

use crate::model::ModelRequest;

pub use fake_model::{FakeModel, Reply, block, call, calls, fail, results, say};
pub use fake_openai::{FakeAnswer, FakeCall, FakeOpenAi};
pub use plan::provider_plan;
pub use server::{FakeEnd, FakeReply, FakeRequest, FakeServer};
pub use strict::{Asked, StrictServer, Wire};
pub use wrong_replies::{OWN, wrong_replies};

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
        messages: Arc::new(vec![Message::text(Role::User, text).into()]),
        past: 0,
        tools: Arc::from([]),
        deferred: Arc::from([]),
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
