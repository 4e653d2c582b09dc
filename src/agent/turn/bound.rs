//! What is left of a turn that ends at a bound: the last text that its model wrote for a reader (LOOP-03).
//!
//! The text comes from the journaled answers, so a resumed turn ends with the same text. An answer that the turn's
//! time interrupted is not in the journal; what arrived of it is kept while the call runs.
//!
//! This module must never take reasoning, or a tool call written as text, for a text for the reader.

use ghost_domain::Refusal;
use ghost_domain::reply_tokens::{Reply, read_reply};
use ghost_domain::transcript::{Message, Role};
use ghost_operations::turns::Ending;
use ghost_provider::{Cleaner, Deltas, Visible, malformed_tool_call};

use super::runner::Runner;
use super::stream::Streamer;

impl Runner {
    /// The end of the turn at a bound. `partial` is what arrived of an interrupted answer; `timed_out` says whether the
    /// bound is the turn's own, of time or of model calls.
    pub(super) fn at_bound(&self, refusal: Refusal, timed_out: bool, partial: Option<String>) -> Ending {
        let own = self.messages.get(self.past + 1..).unwrap_or_default();
        let text = partial.filter(|text| is_for_reader(text)).or_else(|| last_text(own)).unwrap_or_default();
        Ending::AtBound { refusal, timed_out, text }
    }
}

/// The last text for a reader in the answers of a turn. An answer without calls that did not end the turn was faulty;
/// its text does not count.
fn last_text(messages: &[Message]) -> Option<String> {
    let answers = messages.iter().rev().filter(|message| message.role == Role::Assistant);
    let mut texts = answers.filter(|answer| answer.calls().next().is_some()).map(Message::visible_text);
    texts.find_map(|text| Some(Visible::of(&text).text).filter(|text| is_for_reader(text)))
}

fn is_for_reader(text: &str) -> bool {
    matches!(read_reply(text), Reply::Message { .. })
}

/// Passes an answer on to subscribers, and keeps its visible text in case the turn's time ends first.
pub(super) struct Partial {
    streamer: Streamer,
    /// `None` if the text is not needed.
    kept: Option<Kept>,
}

struct Kept {
    cleaner: Cleaner,
    text: String,
}

impl Partial {
    /// `within_reasoning` says whether the model's answers begin with reasoning.
    pub(super) fn new(streamer: Streamer, keep: bool, within_reasoning: bool) -> Self {
        let cleaner = if within_reasoning { Cleaner::within_reasoning() } else { Cleaner::default() };
        Self { streamer, kept: keep.then(|| Kept { cleaner, text: String::new() }) }
    }

    /// Ends the stream. Returns the visible text that was kept.
    pub(super) fn end(mut self) -> Option<String> {
        self.streamer.end();
        let mut kept = self.kept?;
        kept.cleaner.end(&mut kept.text);
        (malformed_tool_call(&kept.text).is_none() && !kept.text.trim().is_empty()).then_some(kept.text)
    }
}

impl Deltas for Partial {
    fn text(&mut self, text: &str) {
        self.streamer.text(text);
        if let Some(kept) = &mut self.kept {
            kept.cleaner.push(text, &mut kept.text);
        }
    }

    fn thinking(&mut self, text: &str) {
        self.streamer.thinking(text);
    }
}
