//! Answers of an earlier run, served again. The caller reads them from that run's journal; this module knows no store.
//!
//! Must never: invent an answer. A recording that is at its end says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use ghost_domain::AgentId;
use ghost_domain::transcript::{Block, Message, TokenUsage};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::error::{Charge, ErrorKind, ProviderError};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider, Stop};

/// One journaled answer.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedAnswer {
    /// The digest of the conversation that it answered (see [`digest`]), if the caller could still tell it.
    pub digest: Option<String>,
    /// The model that answered.
    pub model: String,
    /// What it said.
    pub blocks: Vec<Block>,
    /// What it took.
    pub usage: TokenUsage,
    /// Why it stopped, as the journal has it.
    pub stop: Option<String>,
}

/// The answers of one turn, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedTurn {
    /// Its answers.
    pub answers: Vec<RecordedAnswer>,
}

/// An earlier run: the turns of each agent, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// By agent.
    pub turns: BTreeMap<AgentId, Vec<RecordedTurn>>,
}

/// A digest of what a conversation says, as lower-case hexadecimal SHA-256: the words of the messages and the names,
/// arguments and results of calls. Thinking and the ids of calls are left out, because they differ between runs that
/// say the same. Neither the system part nor the model counts.
#[must_use]
pub fn digest(messages: &[Message]) -> String {
    let mut hash = Sha256::new();
    // Every part is preceded by its length, so that no two conversations run into one another.
    let mut part = |tag: u8, text: &[u8]| {
        hash.update([tag]);
        hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(text);
    };
    for message in messages {
        part(b'm', format!("{:?}", message.role).as_bytes());
        for block in &message.blocks {
            match block {
                Block::Text { text } => part(b't', text.as_bytes()),
                Block::Thinking { .. } => {}
                Block::ToolCall { name, arguments, .. } => {
                    part(b'c', name.as_bytes());
                    part(b'a', canonical(arguments).to_string().as_bytes());
                }
                Block::ToolResult { name, content, is_error, .. } => {
                    part(if *is_error { b'e' } else { b'r' }, name.as_bytes());
                    part(b'v', content.as_bytes());
                }
            }
        }
    }
    hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `value` with the keys of its objects in order, whichever map the JSON library was built with.
fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, Value> = map.iter().map(|(key, item)| (key, canonical(item))).collect();
            Value::Object(sorted.into_iter().map(|(key, item)| (key.clone(), item)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        other => other.clone(),
    }
}

/// A provider that serves a [`Recording`].
pub struct Recorded {
    agents: BTreeMap<AgentId, Agent>,
}

struct Agent {
    answers: Vec<RecordedAnswer>,
    by_digest: BTreeMap<String, Vec<usize>>,
    used: Mutex<BTreeSet<usize>>,
}

impl Recorded {
    /// Serves `recording`.
    #[must_use]
    pub fn new(recording: Recording) -> Self {
        let agents = recording
            .turns
            .into_iter()
            .map(|(agent_id, turns)| {
                let answers: Vec<RecordedAnswer> = turns.into_iter().flat_map(|turn| turn.answers).collect();
                let mut by_digest: BTreeMap<String, Vec<usize>> = BTreeMap::new();
                for (at, answer) in answers.iter().enumerate() {
                    if let Some(digest) = &answer.digest {
                        by_digest.entry(digest.clone()).or_default().push(at);
                    }
                }
                (agent_id, Agent { answers, by_digest, used: Mutex::default() })
            })
            .collect();
        Self { agents }
    }

    /// The first answer to this very conversation that has not been given yet; once all have been, the last of them
    /// again (a turn that a crash cut off asks twice); for a conversation that was never had, the agent's next answer.
    fn pick(&self, request: &ModelRequest) -> Option<&RecordedAnswer> {
        let agent = self.agents.get(&request.agent_id)?;
        let mut used = agent.used.lock().unwrap_or_else(PoisonError::into_inner);
        let known = if agent.by_digest.is_empty() { None } else { agent.by_digest.get(&digest(&request.messages)) };
        let at = match known {
            Some(places) => places.iter().find(|at| !used.contains(at)).or_else(|| places.last()).copied(),
            None => (0..agent.answers.len()).find(|at| !used.contains(at)),
        }?;
        used.insert(at);
        agent.answers.get(at)
    }
}

#[async_trait]
impl Provider for Recorded {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let answer = self.pick(request).ok_or_else(|| {
            ProviderError::new(
                ErrorKind::BadAnswer,
                format!("the recording has no further answer for {}", request.agent_id),
            )
            .charge(Charge::Nothing)
        })?;
        for block in &answer.blocks {
            match block {
                Block::Text { text } => deltas.text(text),
                Block::Thinking { text, .. } => deltas.thinking(text),
                Block::ToolCall { .. } | Block::ToolResult { .. } => {}
            }
        }
        let calls = answer.blocks.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        Ok(ModelAnswer {
            model: answer.model.clone(),
            blocks: answer.blocks.clone(),
            usage: Some(answer.usage),
            stop: match answer.stop.as_deref() {
                Some("max_tokens") => Stop::MaxTokens,
                Some("refused") => Stop::Refused,
                Some(other) => Stop::Other(other.to_owned()),
                None if calls => Stop::ToolUse,
                None => Stop::EndTurn,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NoDeltas;
    use crate::testing::request;

    fn answer(text: &str, to: Option<&ModelRequest>) -> RecordedAnswer {
        RecordedAnswer {
            digest: to.map(|request| digest(&request.messages)),
            model: "m".to_owned(),
            blocks: vec![Block::Text { text: text.to_owned() }],
            usage: TokenUsage::default(),
            stop: None,
        }
    }

    fn recording(answers: Vec<RecordedAnswer>) -> Recorded {
        let (first, rest) = answers.split_at(1);
        let turns = vec![RecordedTurn { answers: first.to_vec() }, RecordedTurn { answers: rest.to_vec() }];
        Recorded::new(Recording { turns: BTreeMap::from([("tester".parse().unwrap(), turns)]) })
    }

    async fn ask(provider: &Recorded, request: &ModelRequest) -> Result<String, ProviderError> {
        let answer = provider.complete(request, &mut NoDeltas).await?;
        Ok(Message { role: ghost_domain::transcript::Role::Assistant, blocks: answer.blocks }.visible_text())
    }

    #[tokio::test]
    async fn the_conversation_decides_and_then_the_order() {
        let (a, b) = (request("m", "a"), request("m", "b"));
        let provider = recording(vec![answer("to a", Some(&a)), answer("to b", Some(&b)), answer("any", None)]);
        assert_eq!(ask(&provider, &b).await.unwrap(), "to b");
        assert_eq!(ask(&provider, &b).await.unwrap(), "to b", "asked again after a crash");
        assert_eq!(ask(&provider, &request("m", "new")).await.unwrap(), "to a", "the first in order");
        assert_eq!(ask(&provider, &request("m", "newer")).await.unwrap(), "any");
        let end = ask(&provider, &request("m", "newest")).await.unwrap_err();
        assert_eq!((end.kind, end.charge), (ErrorKind::BadAnswer, Charge::Nothing));
        assert_eq!(end.message, "the recording has no further answer for tester");
    }

    #[test]
    fn a_digest_ignores_ids_and_thinking_only() {
        let with = |blocks: Vec<Block>| digest(&[Message { role: ghost_domain::transcript::Role::Assistant, blocks }]);
        let call = |id: &str, path: &str| Block::ToolCall {
            id: id.to_owned(),
            name: "workspace.read".to_owned(),
            arguments: serde_json::json!({ "path": path }),
        };
        let thinking = Block::Thinking { text: "hm".to_owned(), signature: None };
        assert_eq!(with(vec![call("1", "a")]), with(vec![thinking, call("2", "a")]));
        assert_ne!(with(vec![call("1", "a")]), with(vec![call("1", "b")]));
        let ordered = |text: &str| Block::ToolCall {
            id: "1".to_owned(),
            name: "x".to_owned(),
            arguments: serde_json::from_str(text).unwrap(),
        };
        assert_eq!(
            with(vec![ordered(r#"{"a":1,"b":[{"c":2,"d":3}]}"#)]),
            with(vec![ordered(r#"{"b":[{"d":3,"c":2}],"a":1}"#)])
        );
    }
}
