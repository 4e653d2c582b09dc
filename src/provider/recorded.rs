//! A provider that replays the answers of an earlier run, to each agent in their order. The caller
//! reads the answers from that run's journal and says how many this run has used already. When the recording ends, the
//! call fails.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use ghost_domain::AgentId;
use ghost_domain::transcript::{Block, TokenUsage};

use crate::error::{Charge, ErrorKind, ProviderError};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider, Stop};

/// One journaled answer.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedAnswer {
    /// The model that answered.
    pub model: String,
    /// The content of the answer.
    pub blocks: Vec<Block>,
    /// The tokens that the answer used.
    pub usage: TokenUsage,
    /// Why it stopped, as the journal has it; see [`Stop::word`].
    pub stop: Option<String>,
}

/// The answers of an earlier run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The answers of each agent, in order.
    pub answers: BTreeMap<AgentId, Vec<RecordedAnswer>>,
}

/// A provider that serves a [`Recording`].
pub struct Recorded {
    agents: BTreeMap<AgentId, Agent>,
}

struct Agent {
    answers: Vec<RecordedAnswer>,
    /// Number of answers served so far.
    given: Mutex<usize>,
}

impl Recorded {
    /// Creates a provider that serves `recording` from its beginning.
    #[must_use]
    pub fn new(recording: Recording) -> Self {
        let agent = |(agent_id, answers)| (agent_id, Agent { answers, given: Mutex::default() });
        Self { agents: recording.answers.into_iter().map(agent).collect() }
    }

    /// Skips the first `given` answers of an agent, which it got before this provider was created.
    /// Never goes back.
    pub fn go_on(&self, agent_id: &AgentId, given: usize) {
        if let Some(agent) = self.agents.get(agent_id) {
            let mut before = agent.given.lock().unwrap_or_else(PoisonError::into_inner);
            *before = given.max(*before);
        }
    }

    fn next(&self, agent_id: &AgentId) -> Option<&RecordedAnswer> {
        let agent = self.agents.get(agent_id)?;
        let mut given = agent.given.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = agent.answers.get(*given)?;
        *given += 1;
        Some(answer)
    }
}

#[async_trait]
impl Provider for Recorded {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let answer = self.next(&request.agent_id).ok_or_else(|| {
            ProviderError::new(
                ErrorKind::BadAnswer,
                format!("the recording has no further answer for {}", request.agent_id),
            )
            .charge(Charge::Nothing)
        })?;
        for block in &answer.blocks {
            match block {
                Block::Text { text } => deltas.text(text),
                Block::Thinking { text } => deltas.thinking(text),
                Block::ToolCall { .. }
                | Block::ToolResult { .. }
                | Block::Opaque(_)
                | Block::Image { .. }
                | Block::ImageFile(_) => {}
            }
        }
        let calls = answer.blocks.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        Ok(ModelAnswer {
            model: answer.model.clone(),
            blocks: answer.blocks.clone(),
            usage: Some(answer.usage),
            estimated: false,
            stop: Stop::of_word(answer.stop.as_deref(), calls),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NoDeltas;
    use crate::testing::request;

    fn recorded(answers: &[&str]) -> Recorded {
        let answer = |text: &&str| RecordedAnswer {
            model: "m".to_owned(),
            blocks: vec![Block::Text { text: (*text).to_owned() }],
            usage: TokenUsage::default(),
            stop: None,
        };
        let answers = answers.iter().map(answer).collect();
        Recorded::new(Recording { answers: BTreeMap::from([("tester".parse().unwrap(), answers)]) })
    }

    async fn ask(provider: &Recorded) -> Result<String, ProviderError> {
        let answer = provider.complete(&request("m", "whatever"), &mut NoDeltas).await?;
        Ok(ghost_domain::transcript::visible_text(&answer.blocks))
    }

    #[tokio::test]
    async fn answers_come_in_order_and_then_the_call_fails() {
        let provider = recorded(&["one", "two"]);
        assert_eq!((ask(&provider).await.unwrap(), ask(&provider).await.unwrap()), ("one".into(), "two".into()));
        let end = ask(&provider).await.unwrap_err();
        assert_eq!((end.kind, end.charge), (ErrorKind::BadAnswer, Charge::Nothing));
        assert!(end.message.contains("tester"), "{end}");
    }

    #[tokio::test]
    async fn a_run_continues_after_its_answers_and_never_goes_back() {
        let (provider, tester) = (recorded(&["one", "two", "three", "four"]), "tester".parse().unwrap());
        provider.go_on(&tester, 2);
        assert_eq!(ask(&provider).await.unwrap(), "three");
        provider.go_on(&tester, 1);
        assert_eq!(ask(&provider).await.unwrap(), "four");
        provider.go_on(&tester, 9);
        assert!(ask(&provider).await.is_err());
        provider.go_on(&"nobody".parse().unwrap(), 1);
    }
}
