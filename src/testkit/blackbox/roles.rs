//! The scripted models of a world, behind the protocol of a real provider. So a scripted world can run over HTTP
//! and tests the whole path of a real provider.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::time::BoxFuture;
use ghost_domain::tool_catalogue::from_wire;
use ghost_domain::transcript::{Block, Message, Role};
use ghost_domain::{Clock, Timestamp, TurnId};
use ghost_provider::scripted::Scripted;
use ghost_provider::testing::{Asked, FakeAnswer, FakeCall, FakeRequest};
use ghost_provider::{ModelRequest, NoDeltas, Provider};
use serde_json::Value;

use super::model_server::{agent_in, agent_of};

/// The rule files of a directory. An agent's file has the agent's id as its name.
pub struct ScriptedRoles(Scripted);

/// A clock whose sleeps end at once.
struct InstantClock;

impl Clock for InstantClock {
    fn now(&self) -> Timestamp {
        Timestamp(0)
    }

    fn steady(&self) -> Timestamp {
        Timestamp(0)
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl ScriptedRoles {
    /// Reads the rule files of `dir`.
    ///
    /// # Panics
    /// If they have problems.
    #[must_use]
    pub fn load(dir: &Path) -> Self {
        Self(Scripted::load(dir, Arc::new(InstantClock)).expect("rule files without problems"))
    }

    /// The answer of the script of the agent that asks.
    ///
    /// # Panics
    /// If no thread can be started.
    #[must_use]
    pub fn answer(&self, request: &FakeRequest) -> FakeAnswer {
        let agent = agent_of(request);
        let mut system = String::new();
        let mut messages: Vec<Message> = Vec::new();
        let mut names: Vec<(String, String)> = Vec::new();
        for wire in request.messages() {
            let text = wire["content"].as_str().unwrap_or_default().to_owned();
            match wire["role"].as_str().unwrap_or_default() {
                "system" => system.push_str(&text),
                "assistant" => {
                    let mut blocks = Vec::new();
                    if !text.is_empty() {
                        blocks.push(Block::Text { text });
                    }
                    for call in wire["tool_calls"].as_array().into_iter().flatten() {
                        let id = call["id"].as_str().unwrap_or_default().to_owned();
                        let name = from_wire(call["function"]["name"].as_str().unwrap_or_default());
                        let arguments = call["function"]["arguments"].as_str().unwrap_or("{}");
                        let arguments: Value = serde_json::from_str(arguments).unwrap_or(Value::Null);
                        names.push((id.clone(), name.clone()));
                        blocks.push(Block::ToolCall { id, name, arguments });
                    }
                    messages.push(Message { role: Role::Assistant, blocks });
                }
                "tool" => {
                    let id = wire["tool_call_id"].as_str().unwrap_or_default().to_owned();
                    let name = names.iter().rev().find(|(known, _)| *known == id).map(|(_, name)| name.clone());
                    // In this protocol only the form of the content shows that a result is a refusal.
                    let is_error = serde_json::from_str::<Value>(&text)
                        .is_ok_and(|value| value.get("error").is_some() && value.get("code").is_some());
                    let result = Block::ToolResult { id, name: name.unwrap_or_default(), content: text, is_error };
                    match messages.last_mut() {
                        Some(last) if matches!(last.blocks.first(), Some(Block::ToolResult { .. })) => {
                            last.blocks.push(result);
                        }
                        _ => messages.push(Message { role: Role::User, blocks: vec![result] }),
                    }
                }
                _ => messages.push(Message::text(Role::User, text)),
            }
        }
        match self.complete(&agent, system, messages) {
            Ok(blocks) => {
                let mut text = String::new();
                let mut calls = Vec::new();
                for block in blocks {
                    match block {
                        Block::Text { text: part } => text.push_str(&part),
                        Block::ToolCall { id, name, arguments } => {
                            calls.push(FakeCall { id, tool: name, arguments });
                        }
                        Block::Thinking { .. }
                        | Block::ToolResult { .. }
                        | Block::Opaque(_)
                        | Block::Image { .. }
                        | Block::ImageFile(_) => {}
                    }
                }
                FakeAnswer::Model { text, calls }
            }
            Err(error) => FakeAnswer::status(400, &error),
        }
    }

    /// The same for a request in any protocol.
    ///
    /// # Panics
    /// If no thread can be started, or the script has no answer.
    #[must_use]
    pub fn answer_to(&self, asked: &Asked) -> Vec<Block> {
        let agent = agent_in(&asked.system);
        self.complete(&agent, asked.system.clone(), asked.messages.clone()).expect("a script that answers")
    }

    fn complete(&self, agent: &str, system: String, messages: Vec<Message>) -> Result<Vec<Block>, String> {
        // The wire does not say where the turn begins: at its mail.
        let is_mail = |message: &Message| message.role == Role::User && message.visible_text().contains("<inbox>");
        let past = messages.iter().rposition(is_mail).unwrap_or(0);
        let request = ModelRequest {
            provider: "scripted".to_owned(),
            model: agent.to_owned(),
            facts: Arc::default(),
            agent_id: agent.parse().expect("the request names its agent"),
            turn_id: TurnId(Default::default()),
            system,
            messages: Arc::new(messages.into_iter().map(Into::into).collect()),
            past,
            tools: Arc::from([]),
            deferred: Arc::default(),
            max_tokens: 100_000,
            calls_bytes: 1 << 20,
            temperature: None,
            thinking: None,
            window_tokens: None,
        };
        // The caller may be on a runtime, so a runtime of its own needs a thread of its own.
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                runtime.block_on(self.0.complete(&request, &mut NoDeltas))
            });
            asked.join().expect("a script that answers")
        });
        answer.map(|answer| answer.blocks).map_err(|error| error.to_string())
    }
}
