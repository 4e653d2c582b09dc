//! Helpers for tests and benches of all crates: a fake model in this process, and fake model servers
//! on this machine.
//!
//! These helpers must never be part of a release build of the daemon.

mod fake_model;
mod fake_openai;
mod server;
mod strict;

use std::sync::Arc;

use ghost_domain::transcript::{Message, Role};
use ghost_domain::{AgentId, TurnId};

use crate::model::ModelRequest;

pub use fake_model::{FakeModel, Reply, block, call, calls, fail, provider_plan, results, say};
pub use fake_openai::{FakeAnswer, FakeCall, FakeOpenAi};
pub use server::{FakeEnd, FakeReply, FakeRequest, FakeServer};
pub use strict::{Asked, StrictServer, Wire};

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

const PAGE: &str = "<html><body><h1>We will be back soon</h1></body></html>";

const LOGIN: &str =
    "<!doctype html><form action=/login>Your session has expired. Sign in to continue to the model.</form>";

const CHAT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n\
                    data: [DONE]\n\n";

const ANTHROPIC: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":\
                         {\"input_tokens\":9}}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

/// The name of the one reply that is the provider's own: a refusal in its shape.
pub const OWN: &str = "its own refusal";

/// Replies with `status` that are no answer in the protocol `wire`, by name: what a gateway, a login page or a wrong address
/// answers, and how a provider itself refuses.
#[must_use]
pub fn wrong_replies(status: u16, wire: Wire) -> Vec<(&'static str, FakeReply)> {
    let other = if wire == Wire::Anthropic { CHAT } else { ANTHROPIC };
    let own = "{\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}";
    let reply = |kind, body: &'static str| FakeReply::new(status, kind, body);
    vec![
        ("a page", reply("text/html", PAGE)),
        ("a page as a stream", reply("text/event-stream", PAGE)),
        ("a page as JSON", reply("application/json", PAGE)),
        ("nothing", reply("text/event-stream", "")),
        ("a cut body", reply("application/json", "{\"err").ending(FakeEnd::Cut)),
        ("another protocol", reply("text/event-stream", other)),
        ("a login page", reply("text/html; charset=utf-8", LOGIN)),
        ("JSON without the fields", reply("application/json", "{\"status\":\"ok\"}")),
        (OWN, reply("application/json", own)),
    ]
}
