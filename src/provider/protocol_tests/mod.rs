//! Tests of the adapters against servers that speak the documented protocols byte for byte.
//!
//! These tests must never connect to an address other than 127.0.0.1.

mod anthropic;
mod deferred;
mod failures;
mod fuzz;
mod gemini;
mod hosts;
mod idle;
mod images;
mod kinds;
mod ollama;
mod openai;
mod openai_state;
mod responses;
mod responses_answers;
mod responses_server;
mod rounds;

use std::collections::BTreeMap;
use std::sync::Arc;

use ghost_config::plan::{LlmPlan, ProviderKind, ProviderPlan};
use ghost_domain::Clock;
use ghost_domain::model_facts::{Api, ModelFacts, Thinking, ThinkingControl};
use ghost_domain::transcript::{Block, Message, Opaque, Role, ToolSpec};
use serde_json::{Value, json};

use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider};
use crate::providers::Providers;
use crate::testing::{FakeReply, FakeRequest, FakeServer, provider_plan, request};
use ghost_domain::testing::ManualClock;

/// The key of every adapter in these tests.
const KEY: &str = "test-key-0123456789";

/// The text and reasoning that were shown, to compare with the answer.
#[derive(Default)]
struct Shown {
    text: String,
    thinking: String,
}

impl Deltas for Shown {
    fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }
    fn thinking(&mut self, text: &str) {
        self.thinking.push_str(text);
    }
}

/// An adapter of `kind` for a server at `url`, with [`KEY`].
fn adapter(kind: ProviderKind, url: String) -> Arc<dyn Provider> {
    let plan = ProviderPlan { api_key_env: Some("THE_KEY".to_owned()), ..provider_plan(kind, Some(url)) };
    build(plan, &|name| (name == "THE_KEY").then(|| KEY.to_owned())).unwrap().get("p").unwrap().provider.clone()
}

fn build(plan: ProviderPlan, env: &dyn Fn(&str) -> Option<String>) -> Result<Providers, ghost_domain::Refusal> {
    let plan = LlmPlan { providers: BTreeMap::from([("p".to_owned(), plan)]), ..LlmPlan::default() };
    let clock: Arc<dyn Clock> = ManualClock::at(1_700_000_000_000);
    Providers::build(&plan, env, clock)
}

async fn serve(answer: impl Fn(&FakeRequest) -> FakeReply + Send + Sync + 'static) -> FakeServer {
    FakeServer::start(true, answer).await.unwrap()
}

/// A request with two tools, a briefing, mail, and a round of two calls, one of them refused.
fn conversation(model: &str) -> ModelRequest {
    let spec = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("Does {name}."),
        parameters: json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] }),
    };
    let call = |id: &str, name: &str, path: &str| Block::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: json!({ "path": path }),
    };
    let result = |id: &str, name: &str, content: &str, is_error| Block::ToolResult {
        id: id.to_owned(),
        name: name.to_owned(),
        content: content.to_owned(),
        is_error,
    };
    ModelRequest {
        system: "You are careful.".to_owned(),
        messages: Arc::new(Vec::from(
            [
                Message::text(Role::User, "The briefing."),
                Message::text(Role::User, "The mail."),
                Message {
                    role: Role::Assistant,
                    blocks: vec![
                        Block::Text { text: "Reading.".to_owned() },
                        call("c1", "workspace.read", "a.md"),
                        call("c2", "workspace.list", "b"),
                    ],
                },
                Message {
                    role: Role::Tool,
                    blocks: vec![
                        result("c1", "workspace.read", "content of a", false),
                        result("c2", "workspace.list", "{\"error\":\"no\"}", true),
                    ],
                },
            ]
            .map(Into::into),
        )),
        tools: Arc::from([spec("workspace.list"), spec("workspace.read")]),
        max_tokens: 777,
        temperature: Some(0.5),
        ..request(model, "")
    }
}

/// Opaque state of the provider `p` for an answer of `model`.
fn opaque(model: &str, json: &str, attached: bool) -> Block {
    Block::Opaque(Opaque { author: format!("p/{model}"), json: json.to_owned(), attached })
}

fn thought(text: &str) -> Block {
    Block::Thinking { text: text.to_owned() }
}

fn text(text: &str) -> Block {
    Block::Text { text: text.to_owned() }
}

fn call(id: &str, name: &str, arguments: Value) -> Block {
    Block::ToolCall { id: id.to_owned(), name: name.to_owned(), arguments }
}

/// Makes a call and checks that the shown text equals the answer.
async fn ask(adapter: &Arc<dyn Provider>, request: &ModelRequest) -> ModelAnswer {
    let mut shown = Shown::default();
    let answer = adapter.complete(request, &mut shown).await.unwrap();
    let message = Message { role: Role::Assistant, blocks: answer.blocks.clone() };
    assert_eq!(shown.text, message.visible_text());
    let thinking: String = answer
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::Thinking { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(shown.thinking, thinking);
    answer
}

/// Events as lines of `data:`.
fn sse(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

#[test]
fn a_missing_key_is_named_when_the_provider_is_built() {
    for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic, ProviderKind::Gemini] {
        let named = ProviderPlan { api_key_env: Some("THE_KEY".to_owned()), ..provider_plan(kind, None) };
        for value in [None, Some("  ")] {
            let refusal = build(named.clone(), &|_| value.map(str::to_owned)).map(|_| ()).unwrap_err();
            assert!(refusal.message.contains("THE_KEY"), "{refusal}");
        }
        assert!(build(named, &|_| Some(KEY.to_owned())).is_ok());
        assert!(build(provider_plan(kind, None), &|_| None).is_err(), "the default address without a key");
        assert!(build(provider_plan(kind, Some("http://127.0.0.1:1/v1".to_owned())), &|_| None).is_ok());
        assert!(build(provider_plan(kind, Some("nonsense".to_owned())), &|_| None).is_err());
        let broken = ProviderPlan {
            api_key_env: Some("THE_KEY".to_owned()),
            ..provider_plan(kind, Some("http://127.0.0.1:1/v1".to_owned()))
        };
        let refusal = build(broken, &|_| Some("a-key\nwith-a-break".to_owned())).map(|_| ()).unwrap_err();
        assert!(!refusal.to_string().contains("with-a-break"), "{refusal}");
    }
    assert!(build(provider_plan(ProviderKind::Ollama, None), &|_| None).is_ok());
    assert!(build(provider_plan(ProviderKind::Scripted, None), &|_| None).is_err());
    assert!(build(provider_plan(ProviderKind::Recorded, None), &|_| None).is_err());
}
