//! Rebuilds a turn's transcript from its journal: the messages that the model gets next, and the
//! calls that are still open. This is a pure function, so a resumed turn shows the model exactly
//! what it showed before the crash.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::journal::{CallOutcome, Effect, FilePlan, JournalRow, Step};
use ghost_domain::transcript::{Block, Message, Role};
use ghost_domain::{ApprovalId, AskId, CallId, LogRange};
use ghost_provider::{ErrorKind, SharedMessage};
use ghost_tools::offer::unwrapped;
use serde_json::Value;

use crate::images::{REFUSED, leave_out};

/// A call that was started and has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// Ghost's id of the call; the provider's id is in [`OpenCall`].
    pub call_id: CallId,
    /// The kind of effect that the call has.
    pub effect: Effect,
    /// For file writes: the planned paths and hashes.
    pub files: Vec<FilePlan>,
    /// For an ask: the id of the ask.
    pub ask_id: Option<AskId>,
    /// The session that the call worked in, if it can be continued.
    pub session: Option<String>,
    /// What a call with an effect in the store has done so far, if it is not the whole.
    pub progress: Option<Box<Value>>,
}

impl Begun {
    /// The call that a step of a journal begins or has done a part of, with the provider's id.
    pub(crate) fn of(step: &Step) -> Option<(&str, Self)> {
        let new =
            |call_id, effect| Self { call_id, effect, files: Vec::new(), ask_id: None, session: None, progress: None };
        match step {
            Step::CallStarted { call_id, id, effect, files, ask_id, .. } => {
                Some((id, Self { files: files.clone(), ask_id: *ask_id, ..new(*call_id, *effect) }))
            }
            Step::CallSliced { call_id, id, progress } => {
                Some((id, Self { progress: Some(Box::new(progress.clone())), ..new(*call_id, Effect::World) }))
            }
            _ => None,
        }
    }
}

/// A call as the model wrote it: its id, name and arguments.
pub type Written = (String, String, Value);

/// The calls of an answer.
pub fn calls_of(answer: &Message) -> Vec<Written> {
    answer.calls().map(|(id, name, arguments)| (id.to_owned(), name.to_owned(), arguments.clone())).collect()
}

/// A call of the model's last answer that has no result yet.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    /// The provider's id, unique within the answer.
    pub id: String,
    /// The name of the tool, as the model wrote it. For a call of `syscall.tool.call`, the tool that it names.
    pub name: String,
    /// The arguments for that tool.
    pub arguments: Value,
    /// The start of the call, if it was started before a crash.
    pub begun: Option<Begun>,
    /// The approval that it waited for, if it was requested before a crash.
    pub approval_id: Option<ApprovalId>,
}

impl OpenCall {
    /// A call of an answer. A call of a deferred tool is that tool's from here on: it is judged, journaled and recorded
    /// under the tool's own name.
    pub fn new(id: &str, name: &str, arguments: &Value, begun: Option<Begun>) -> Self {
        let (name, arguments) = unwrapped(name, arguments).unwrap_or_else(|| (name.to_owned(), arguments.clone()));
        Self { id: id.to_owned(), name, arguments, begun, approval_id: None }
    }
}

/// A failed model call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Name of the model that was asked.
    pub model: String,
    /// Whether the cause is transient.
    pub transient: bool,
}

impl Failure {
    /// Reads a journaled error, whose text begins with the kind of the error.
    fn read(model: &str, error: &str) -> Self {
        let kind = error.split_once(':').and_then(|(kind, _)| ErrorKind::named(kind));
        Self { model: model.to_owned(), transient: kind.is_some_and(ErrorKind::is_transient) }
    }
}

/// The state of a turn, as its journal shows it.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    /// Hashes of the system part and the briefing, if the prompt was journaled.
    pub prompt: Option<(String, String)>,
    /// The part of the session's log in the prompt, and the mail, if the prompt was journaled.
    pub opening: Option<(Option<LogRange>, String)>,
    /// The messages after the opening: answers, results and notes.
    pub messages: Vec<SharedMessage>,
    /// Calls of the last answer without a result, in the model's order.
    pub open: Vec<OpenCall>,
    /// Results of the last answer's calls, by the provider's id.
    pub results: BTreeMap<String, (String, CallOutcome)>,
    /// Number of answers so far.
    pub rounds: u32,
    /// Failed model calls since the last answer for which no remedy was applied, in order.
    pub failures: Vec<Failure>,
    /// The limit of the conversation in bytes, if a model has refused it as too long.
    pub context: Option<usize>,
    /// Whether a provider has refused opaque state of earlier answers.
    pub state_dropped: bool,
    /// Number of corrections of malformed answers so far.
    pub corrections: u32,
}

/// Drops the opaque state that providers attached to their answers.
pub fn drop_state(messages: &mut [SharedMessage]) {
    let is_state = |block: &Block| matches!(block, Block::Opaque(_));
    for message in messages {
        if message.blocks.iter().any(is_state) {
            message.blocks.retain(|block| !is_state(block));
        }
    }
}

/// Gives the text for an outcome: `(tool name, outcome) -> (text, is_error)`.
pub type View<'a> = &'a dyn Fn(&str, &CallOutcome) -> (String, bool);

impl Transcript {
    /// Rebuilds the transcript from the rows of a journal.
    pub fn unfold(rows: &[JournalRow], view: View<'_>) -> Self {
        let mut transcript = Self::default();
        let mut begun: BTreeMap<String, Begun> = BTreeMap::new();
        let mut approvals: BTreeMap<String, ApprovalId> = BTreeMap::new();
        let mut last_calls: Vec<Written> = Vec::new();
        for row in rows {
            match &row.step {
                Step::Briefed { system, briefing, log, mail, .. } => {
                    transcript.prompt = Some((system.clone(), briefing.clone()));
                    transcript.opening = Some((*log, mail.clone()));
                }
                Step::ModelAnswered { blocks, .. } => {
                    transcript.close_round(&last_calls, view);
                    begun.clear();
                    approvals.clear();
                    let message = Message { role: Role::Assistant, blocks: blocks.clone() };
                    last_calls = calls_of(&message);
                    transcript.messages.push(message.into());
                    transcript.rounds += 1;
                    transcript.failures.clear();
                }
                Step::ModelFailed { model, error } => transcript.failures.push(Failure::read(model, error)),
                Step::Parked { .. } => transcript.failures.clear(),
                Step::Shortened { model, context } => {
                    transcript.failures.retain(|failed| failed.model != *model);
                    transcript.context = Some(usize::try_from(*context).unwrap_or(usize::MAX));
                }
                Step::StateDropped { model } => {
                    transcript.failures.retain(|failed| failed.model != *model);
                    drop_state(&mut transcript.messages);
                    transcript.state_dropped = true;
                }
                Step::ImagesDropped { model } => {
                    transcript.failures.retain(|failed| failed.model != *model);
                    leave_out(&mut transcript.messages, Some(REFUSED));
                }
                Step::CallStarted { .. } | Step::CallSliced { .. } => {
                    begun.extend(Begun::of(&row.step).map(|(id, begin)| (id.to_owned(), begin)));
                }
                Step::CallSession { id, session, .. } => {
                    if let Some(begun) = begun.get_mut(id) {
                        begun.session = Some(session.clone());
                    }
                }
                Step::ApprovalRequested { approval_id, id } => {
                    approvals.insert(id.clone(), *approval_id);
                }
                Step::CallFinished { id, tool, outcome, .. } => {
                    transcript.results.insert(id.clone(), (tool.clone(), outcome.clone()));
                }
                Step::ToolsChanged { text, .. } | Step::Note { text } => {
                    let after_answer = transcript.messages.last().is_some_and(|last| last.role == Role::Assistant);
                    if matches!(row.step, Step::Note { .. }) && after_answer && last_calls.is_empty() {
                        transcript.corrections += 1;
                    }
                    transcript.close_round(&last_calls, view);
                    last_calls.clear();
                    transcript.messages.push(Message::text(Role::User, text.clone()).into());
                }
                Step::ModelStarted { .. } | Step::MailJoined { .. } | Step::PassedOver { .. } => {}
            }
        }
        let open: Vec<OpenCall> = last_calls
            .iter()
            .filter(|(id, ..)| !transcript.results.contains_key(id))
            .map(|(id, name, arguments)| OpenCall {
                approval_id: approvals.remove(id),
                ..OpenCall::new(id, name, arguments, begun.remove(id))
            })
            .collect();
        if open.is_empty() {
            transcript.close_round(&last_calls, view);
        } else {
            transcript.open = open;
        }
        transcript
    }

    /// Appends the results of an answer's calls, in the model's order. A call without a result gets
    /// an error, because a provider refuses a transcript in which a result is missing.
    pub fn close_round(&mut self, calls: &[Written], view: View<'_>) {
        if calls.is_empty() {
            return;
        }
        let blocks = calls
            .iter()
            .flat_map(|(id, name, _)| match self.results.get(id) {
                Some((tool, outcome)) => result_blocks(id, name, view(tool, outcome), outcome),
                None => {
                    let content =
                        "{\"error\":\"this call was interrupted and has no result\",\"code\":\"outcome_unknown\"}";
                    let (id, name, content) = (id.clone(), name.clone(), content.to_owned());
                    vec![Block::ToolResult { id, name, content, is_error: true }]
                }
            })
            .collect();
        self.messages.push(Message { role: Role::Tool, blocks }.into());
        self.results.clear();
    }
}

/// The blocks of a result: its text and its images. `view` is its text and whether it is a refusal.
pub fn result_blocks(id: &str, name: &str, view: (String, bool), outcome: &CallOutcome) -> Vec<Block> {
    let (content, is_error) = view;
    let result = Block::ToolResult { id: id.to_owned(), name: name.to_owned(), content, is_error };
    std::iter::once(result).chain(outcome.images.iter().cloned().map(Block::ImageFile)).collect()
}

/// Makes the ids of an answer's calls unique within the answer and drops calls without an id. Some
/// providers give no id, some the same id twice.
pub fn with_unique_ids(blocks: Vec<Block>) -> Vec<Block> {
    let mut seen = BTreeSet::new();
    blocks
        .into_iter()
        .filter_map(|block| match block {
            Block::ToolCall { id, .. } if id.is_empty() => None,
            Block::ToolCall { id, name, arguments } => {
                let mut unique = id.clone();
                let mut n = 2;
                while !seen.insert(unique.clone()) {
                    unique = format!("{id}-{n}");
                    n += 1;
                }
                Some(Block::ToolCall { id: unique, name, arguments })
            }
            other => Some(other),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ghost_domain::transcript::TokenUsage;
    use ghost_domain::{Timestamp, TurnId};
    use serde_json::json;
    use uuid::Uuid;

    fn row(step: Step) -> JournalRow {
        JournalRow { turn_id: TurnId(Uuid::nil()), seq: 0, step, at: Timestamp(0) }
    }

    fn call(id: &str) -> Block {
        Block::ToolCall { id: id.into(), name: "t".into(), arguments: json!({}) }
    }

    fn answered(blocks: Vec<Block>) -> JournalRow {
        row(Step::ModelAnswered { model: "m".into(), blocks, usage: TokenUsage::default(), stop: None })
    }

    fn finished(id: &str) -> JournalRow {
        row(Step::CallFinished {
            call_id: CallId(Uuid::nil()),
            id: id.into(),
            tool: "t".into(),
            outcome: CallOutcome { content: json!(id), refusal: None, truncated: false, ..CallOutcome::default() },
        })
    }

    fn view(_: &str, outcome: &CallOutcome) -> (String, bool) {
        (outcome.content.to_string(), outcome.refusal.is_some())
    }

    // covers: TOOL-11
    #[test]
    fn an_unfinished_round_is_open_and_a_finished_one_is_closed() {
        let rows = [answered(vec![call("a"), call("b")]), finished("b")];
        let half = Transcript::unfold(&rows, &view);
        assert_eq!(half.open.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(half.messages.len(), 1);
        let mut rows = rows.to_vec();
        rows.push(finished("a"));
        let whole = Transcript::unfold(&rows, &view);
        assert!(whole.open.is_empty());
        let Block::ToolResult { id, .. } = &whole.messages[1].blocks[0] else { panic!("a result") };
        assert_eq!(id, "a", "results are in the model's order, not in the order in which they ended");
    }

    #[test]
    fn the_same_id_in_two_rounds_is_two_calls() {
        let rows = [answered(vec![call("x")]), finished("x"), answered(vec![call("x")])];
        let transcript = Transcript::unfold(&rows, &view);
        assert_eq!(transcript.open.len(), 1);
        assert_eq!(transcript.rounds, 2);
    }

    // covers: TOOL-10
    #[test]
    fn ids_become_unique_and_calls_without_an_id_are_dropped() {
        let blocks = with_unique_ids(vec![call("x"), call("x"), call("")]);
        let ids: Vec<String> = blocks
            .iter()
            .filter_map(|b| if let Block::ToolCall { id, .. } = b { Some(id.clone()) } else { None })
            .collect();
        assert_eq!(ids, ["x", "x-2"]);
    }

    // covers: TOOL-25
    #[test]
    fn a_call_without_a_result_gets_one_and_a_result_without_a_call_is_dropped() {
        let note = row(Step::Note { text: "go on".into() });
        let rows = [answered(vec![call("a"), call("b")]), finished("a"), finished("stray"), note];
        let transcript = Transcript::unfold(&rows, &view);
        assert!(transcript.open.is_empty());
        let Message { role: Role::Tool, blocks } = &*transcript.messages[1] else { panic!("results") };
        let results: Vec<(&str, bool)> = blocks
            .iter()
            .map(|block| match block {
                Block::ToolResult { id, is_error, .. } => (id.as_str(), *is_error),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(results, [("a", false), ("b", true)]);
        assert_eq!(transcript.corrections, 0);
    }

    #[test]
    fn a_note_after_an_answer_without_calls_is_a_correction() {
        let answer = || answered(vec![Block::Text { text: "<tool_call>".into() }]);
        let note = || row(Step::Note { text: "not so".into() });
        let rows = [answer(), note(), answered(vec![call("a")]), finished("a"), note(), answer(), note()];
        assert_eq!(Transcript::unfold(&rows, &view).corrections, 2);
    }

    #[test]
    fn an_answer_or_a_shortening_for_the_model_clears_earlier_failures() {
        let failed = |model: &str| row(Step::ModelFailed { model: model.into(), error: "e".into() });
        let shortened = |context| row(Step::Shortened { model: "b".into(), context });
        let passed = row(Step::PassedOver { model: "c".into(), why: "no price".into() });
        let mut rows = vec![failed("a"), failed("b"), passed, failed("b"), shortened(900), failed("b"), shortened(450)];
        let overcome = Transcript::unfold(&rows, &view);
        assert_eq!(
            (overcome.failures, overcome.context),
            (vec![Failure { model: "a".into(), transient: false }], Some(450))
        );
        rows.push(failed("b"));
        let failed: Vec<String> = Transcript::unfold(&rows, &view).failures.into_iter().map(|f| f.model).collect();
        assert_eq!(failed, ["a", "b"]);
        rows.push(answered(vec![]));
        let after = Transcript::unfold(&rows, &view);
        assert_eq!((after.failures.len(), after.context), (0, Some(450)), "the model's limit stays as it was");
    }
}
