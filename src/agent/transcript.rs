//! The transcript that a journal unfolds into: what the model is shown next, and which of its calls are still open. A
//! pure function, so that a resumed turn is shown exactly what the first one was (DESIGN.md section 2, "Journal").

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::journal::{CallOutcome, Effect, FilePlan, JournalRow, Step};
use ghost_domain::transcript::{Block, Message, Role};
use ghost_domain::{AskId, CallId};
use serde_json::Value;

/// A call that was begun and not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// Our id.
    pub call_id: CallId,
    /// What it does.
    pub effect: Effect,
    /// For a file write: what it should leave.
    pub file: Option<FilePlan>,
    /// For an ask: which.
    pub ask_id: Option<AskId>,
}

/// A call of the model's last answer that has no result yet.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    /// The provider's id, unique within the answer.
    pub id: String,
    /// The name that the model used.
    pub name: String,
    /// The arguments.
    pub arguments: Value,
    /// If it was begun before a crash: how.
    pub begun: Option<Begun>,
}

/// How far a turn is.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    /// Hashes of the system part and the briefing, if the prompt was journaled.
    pub prompt: Option<(String, String)>,
    /// What was recalled and the mail, if the prompt was journaled.
    pub opening: Option<(String, String)>,
    /// What follows the opening: answers, results, notes.
    pub messages: Vec<Message>,
    /// Calls of the last answer without a result, in the model's order.
    pub open: Vec<OpenCall>,
    /// Results of the last answer's calls, by the provider's id.
    pub results: BTreeMap<String, (String, CallOutcome)>,
    /// Answers so far.
    pub rounds: u32,
    /// Failures of model calls since the last answer, by model.
    pub failures: Vec<String>,
    /// Corrections of malformed calls so far.
    pub corrections: u32,
}

/// The text that an outcome is shown as: `(tool name, outcome) -> (text, is_error)`.
pub type View<'a> = &'a dyn Fn(&str, &CallOutcome) -> (String, bool);

impl Transcript {
    /// Unfolds a journal.
    #[must_use]
    pub fn unfold(rows: &[JournalRow], view: View<'_>) -> Self {
        let mut transcript = Self::default();
        let mut begun: BTreeMap<String, Begun> = BTreeMap::new();
        let mut last_calls: Vec<(String, String, Value)> = Vec::new();
        for row in rows {
            match &row.step {
                Step::Briefed { system, briefing, recent, mail } => {
                    transcript.prompt = Some((system.clone(), briefing.clone()));
                    transcript.opening = Some((recent.clone(), mail.clone()));
                }
                Step::ModelAnswered { blocks, .. } => {
                    transcript.close_round(&last_calls, view);
                    begun.clear();
                    let message = Message { role: Role::Assistant, blocks: blocks.clone() };
                    last_calls = message
                        .calls()
                        .map(|(id, name, args)| (id.to_owned(), name.to_owned(), args.clone()))
                        .collect();
                    transcript.messages.push(message);
                    transcript.rounds += 1;
                    transcript.failures.clear();
                }
                Step::ModelFailed { model, .. } => transcript.failures.push(model.clone()),
                Step::CallStarted { call_id, id, effect, file, ask_id, .. } => {
                    begun.insert(
                        id.clone(),
                        Begun { call_id: *call_id, effect: *effect, file: file.clone(), ask_id: *ask_id },
                    );
                }
                Step::CallFinished { id, tool, outcome, .. } => {
                    transcript.results.insert(id.clone(), (tool.clone(), outcome.clone()));
                }
                Step::Note { text } => {
                    let after_answer = transcript.messages.last().is_some_and(|last| last.role == Role::Assistant);
                    if after_answer && last_calls.is_empty() {
                        transcript.corrections += 1;
                    }
                    transcript.close_round(&last_calls, view);
                    last_calls.clear();
                    transcript.messages.push(Message::text(Role::User, text.clone()));
                }
                Step::ModelStarted { .. } | Step::MailJoined { .. } => {}
            }
        }
        let open: Vec<OpenCall> = last_calls
            .iter()
            .filter(|(id, ..)| !transcript.results.contains_key(id))
            .map(|(id, name, arguments)| OpenCall {
                id: id.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
                begun: begun.remove(id),
            })
            .collect();
        if open.is_empty() {
            transcript.close_round(&last_calls, view);
        } else {
            transcript.open = open;
        }
        transcript
    }

    /// Puts the results of an answer's calls behind it, in the model's order. A call that never got one gets an error,
    /// because a provider refuses a transcript with a hole in it (TOOL-25).
    pub fn close_round(&mut self, calls: &[(String, String, Value)], view: View<'_>) {
        if calls.is_empty() {
            return;
        }
        let blocks = calls
            .iter()
            .map(|(id, name, _)| match self.results.get(id) {
                Some((tool, outcome)) => {
                    let (content, is_error) = view(tool, outcome);
                    Block::ToolResult { id: id.clone(), name: name.clone(), content, is_error }
                }
                None => Block::ToolResult {
                    id: id.clone(),
                    name: name.clone(),
                    content: "{\"error\":\"this call was interrupted and has no result\",\"code\":\"outcome_unknown\"}"
                        .into(),
                    is_error: true,
                },
            })
            .collect();
        self.messages.push(Message { role: Role::Tool, blocks });
        self.results.clear();
    }
}

/// Makes the ids of an answer's calls unique within it and drops what is not a call: some providers give none, some
/// give the same twice (TOOL-10).
#[must_use]
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

/// Bytes of a result of the last round that are left in any case, and those of the mark behind what was cut.
const RESULT_LEAST: usize = 400;
const MARK_BYTES: usize = 64;

/// Bytes of a conversation.
#[must_use]
pub fn bytes_of(messages: &[Message]) -> usize {
    messages.iter().map(message_bytes).sum()
}

/// Fits a conversation into `most` bytes: from the oldest round on, results are emptied and long words and arguments are
/// cut. If that is not enough, the results of the last round are cut, each by its share, and then its arguments. The
/// opening stays whole, and no call loses its result.
pub fn fit(messages: &mut [Message], keep_first: usize, most: usize) {
    let mut total = bytes_of(messages);
    let last = messages.len().saturating_sub(2);
    for message in messages.iter_mut().take(last).skip(keep_first) {
        if total <= most {
            return;
        }
        for block in &mut message.blocks {
            let before = block_bytes(block);
            match block {
                Block::ToolResult { content, .. } if content.len() > 120 => {
                    *content = format!("[an older result of {} bytes, dropped to save room]", content.len());
                }
                Block::ToolCall { arguments, .. } => shorten(arguments),
                Block::Text { text } if text.len() > 400 => {
                    *text = format!("{}\n[cut to save room]", ghost_domain::text::prefix_bytes(text, 300));
                }
                _ => {}
            }
            total = total.saturating_sub(before.saturating_sub(block_bytes(block)));
        }
    }
    if let Some(over) = total.checked_sub(most).filter(|over| *over > 0) {
        let round = messages.get_mut(last.max(keep_first)..).unwrap_or_default();
        fit_round(round, over);
    }
}

/// Takes `over` bytes out of a round, as far as that can be done.
fn fit_round(round: &mut [Message], over: usize) {
    let blocks = || round.iter().flat_map(|message| &message.blocks);
    let whole: usize = blocks().filter(|block| matches!(block, Block::ToolResult { .. })).map(block_bytes).sum();
    let all: usize = blocks().map(block_bytes).sum();
    let left = whole.saturating_sub(over);
    for block in round.iter_mut().flat_map(|message| &mut message.blocks) {
        if let Block::ToolResult { content, .. } = block {
            // In 128 bits, because two sizes are multiplied.
            let share = content.len() as u128 * left as u128 / whole.max(1) as u128;
            let share = usize::try_from(share).unwrap_or(usize::MAX).saturating_sub(MARK_BYTES).max(RESULT_LEAST);
            if content.len() > share {
                *content = ghost_domain::text::cut_marked(content, share).0;
            }
        }
    }
    if all.saturating_sub(bytes_of(round)) < over {
        for block in round.iter_mut().flat_map(|message| &mut message.blocks) {
            if let Block::ToolCall { arguments, .. } = block {
                shorten(arguments);
            }
        }
    }
}

/// Cuts the long strings of arguments that were carried out long ago, such as a file's content.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > 400 => {
            *text = format!("{}[cut to save room]", ghost_domain::text::prefix_bytes(text, 300));
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(map) => map.values_mut().for_each(shorten),
        _ => {}
    }
}

fn block_bytes(block: &Block) -> usize {
    match block {
        Block::Text { text } | Block::Thinking { text, .. } => text.len(),
        Block::ToolCall { name, arguments, .. } => name.len() + json_bytes(arguments),
        Block::ToolResult { content, .. } => content.len(),
    }
}

fn message_bytes(message: &Message) -> usize {
    message.blocks.iter().map(block_bytes).sum()
}

/// A cheap size of a JSON value: near enough for a bound.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(json_bytes).sum::<usize>() + items.len(),
        Value::Object(map) => map.iter().map(|(key, item)| key.len() + 4 + json_bytes(item)).sum(),
        _ => 6,
    }
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
            outcome: CallOutcome { content: json!(id), refusal: None, truncated: false },
        })
    }

    fn view(_: &str, outcome: &CallOutcome) -> (String, bool) {
        (outcome.content.to_string(), outcome.refusal.is_some())
    }

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
        assert_eq!(id, "a", "results stand in the model's order, not in that of their ends");
    }

    #[test]
    fn the_same_id_in_two_rounds_is_two_calls() {
        let rows = [answered(vec![call("x")]), finished("x"), answered(vec![call("x")])];
        let transcript = Transcript::unfold(&rows, &view);
        assert_eq!(transcript.open.len(), 1);
        assert_eq!(transcript.rounds, 2);
    }

    #[test]
    fn ids_become_unique_and_calls_without_one_go() {
        let blocks = with_unique_ids(vec![call("x"), call("x"), call("")]);
        let ids: Vec<String> = blocks
            .iter()
            .filter_map(|b| if let Block::ToolCall { id, .. } = b { Some(id.clone()) } else { None })
            .collect();
        assert_eq!(ids, ["x", "x-2"]);
    }

    #[test]
    fn a_call_without_a_result_gets_one_and_a_result_without_a_call_is_dropped() {
        let note = row(Step::Note { text: "go on".into() });
        let rows = [answered(vec![call("a"), call("b")]), finished("a"), finished("stray"), note];
        let transcript = Transcript::unfold(&rows, &view);
        assert!(transcript.open.is_empty());
        let Message { role: Role::Tool, blocks } = &transcript.messages[1] else { panic!("results") };
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
    fn words_of_ours_after_an_answer_without_calls_are_corrections() {
        let said = || answered(vec![Block::Text { text: "<tool_call>".into() }]);
        let note = || row(Step::Note { text: "not so".into() });
        let rows = [said(), note(), answered(vec![call("a")]), finished("a"), note(), said(), note()];
        assert_eq!(Transcript::unfold(&rows, &view).corrections, 2);
    }

    #[test]
    fn fitting_shortens_old_arguments_too() {
        let arguments = json!({ "path": "a.md", "content": "y".repeat(5_000) });
        let big = Block::ToolCall { id: "x".into(), name: "t".into(), arguments };
        let mut messages = vec![Message { role: Role::Assistant, blocks: vec![big] }; 4];
        fit(&mut messages, 1, 15_500);
        let sizes: Vec<usize> = messages.iter().map(message_bytes).collect();
        assert!(sizes[0] > 5_000 && sizes[1] < 400 && sizes[3] > 5_000, "{sizes:?}");
        assert_eq!(messages[1].calls().next().unwrap().2["path"], "a.md");
    }

    #[test]
    fn the_last_round_is_cut_when_nothing_else_is_left() {
        let result = |bytes: usize| Block::ToolResult {
            id: "1".into(),
            name: "t".into(),
            content: "z".repeat(bytes),
            is_error: false,
        };
        let big = json!({ "path": "a.md", "content": "y".repeat(5_000) });
        let call = Block::ToolCall { id: "1".into(), name: "t".into(), arguments: big };
        let messages = || {
            vec![
                Message::text(Role::User, "x".repeat(2_000)),
                Message { role: Role::Assistant, blocks: vec![call.clone()] },
                Message { role: Role::Tool, blocks: vec![result(8_000), result(2_000)] },
            ]
        };
        let sizes = |most| {
            let mut messages = messages();
            fit(&mut messages, 1, most);
            messages.iter().map(message_bytes).collect::<Vec<_>>()
        };
        let results = sizes(12_100);
        assert!(results[0] == 2_000 && results[1] > 5_000 && (5_000..5_300).contains(&results[2]), "{results:?}");
        let arguments = sizes(4_000);
        assert!(arguments[0] == 2_000 && arguments[1] < 400 && arguments[2] < 1_000, "{arguments:?}");
    }

    #[test]
    fn fitting_empties_old_results_and_keeps_the_ends() {
        let long = "y".repeat(1_000);
        let result = |id: &str| Message {
            role: Role::Tool,
            blocks: vec![Block::ToolResult { id: id.into(), name: "t".into(), content: long.clone(), is_error: false }],
        };
        let mut messages = vec![Message::text(Role::User, long.clone()), result("1"), result("2"), result("3")];
        fit(&mut messages, 1, 3_100);
        assert_eq!(messages[0].visible_text().len(), 1_000);
        let sizes: Vec<usize> = messages.iter().map(message_bytes).collect();
        assert!(sizes[1] < 100 && sizes[3] == 1_000, "{sizes:?}");
    }
}
