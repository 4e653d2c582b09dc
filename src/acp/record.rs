//! What is known of a run while it goes on. Every part of the run adds to it; no lock is held while it waits or calls the
//! host.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::v1::schema::ToolCallUpdate;
use ghost_coding::text::{cut_middle, one_line, prefix_bytes};
use ghost_coding::{Collector, Doubts, Effect};
use ghost_domain::json_text::joined;
use tokio::time::Instant;

use crate::calls::{Call, Calls};
use crate::host::{NOTE_CHARS, NOTES_PER_SECOND, SessionId, TEXT_MAX, Update, UpdateKind, Usage};
use crate::outcome::Work;

#[derive(Debug)]
pub(crate) struct Record(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    session: Option<SessionId>,
    /// Whether the prompt is on its way. Before that, updates are about the past.
    live: bool,
    acted: bool,
    talk: Talk,
    calls: Calls,
    collector: Collector,
    usage: Usage,
    pace: Pace,
    doubts: Doubts,
}

impl Record {
    /// An empty record. Paths below `folder` are shown relative to it.
    pub(crate) fn new(folder: &str) -> Self {
        Self(Mutex::new(Inner {
            session: None,
            live: false,
            acted: false,
            talk: Talk::default(),
            calls: Calls::default(),
            collector: Collector::new(folder),
            usage: Usage::default(),
            pace: Pace::new(Instant::now()),
            doubts: Doubts::default(),
        }))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change leaves something valid, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of the run.
    pub(crate) fn set_session(&self, id: SessionId) {
        self.inner().session = Some(id);
    }

    /// Whether `id` is the session of the run.
    pub(crate) fn is_session(&self, id: &str) -> bool {
        self.inner().session.as_ref().is_some_and(|session| session.0 == id)
    }

    /// The prompt follows: from now on, updates count.
    pub(crate) fn set_live(&self) {
        self.inner().live = true;
    }

    /// Whether updates count.
    pub(crate) fn is_live(&self) -> bool {
        self.inner().live
    }

    /// The agent may have done something.
    pub(crate) fn acted(&self) {
        self.inner().acted = true;
    }

    /// A piece of the agent's message. Returns notes.
    pub(crate) fn said(&self, message: Option<&str>, text: &str) -> Vec<Update> {
        let mut inner = self.inner();
        let lines = inner.talk.piece(message, text);
        inner.paced(UpdateKind::Message, lines)
    }

    /// Ends the agent's message, if one is open. Returns notes.
    pub(crate) fn said_all(&self) -> Vec<Update> {
        let mut inner = self.inner();
        let lines = inner.talk.end();
        inner.paced(UpdateKind::Message, lines)
    }

    /// A part of a call; `question` tells that it comes with a question. Returns the whole call and notes.
    pub(crate) fn call(&self, update: ToolCallUpdate, question: bool) -> (Call, Vec<Update>) {
        let mut inner = self.inner();
        let Inner { calls, collector, .. } = &mut *inner;
        let (call, note) = calls.part(collector, update, question);
        inner.acted = true;
        let lines = inner.talk.end();
        let mut notes = inner.paced(UpdateKind::Message, lines);
        notes.extend(inner.paced(UpdateKind::Tool, note));
        (call, notes)
    }

    /// The call `id` was not allowed.
    pub(crate) fn not_allowed(&self, id: &str) {
        let mut inner = self.inner();
        let title = inner.calls.not_allowed(id);
        inner.doubts.denied(&title);
        inner.collector.taken_back(id);
    }

    /// Something that was done through the host.
    pub(crate) fn done(&self, effect: Effect, what: &str) {
        self.inner().collector.add(effect, None, what);
    }

    /// The plan changed. Returns notes.
    pub(crate) fn plan(&self, text: String) -> Vec<Update> {
        self.inner().paced(UpdateKind::Plan, Some(text))
    }

    /// Changes the usage. Returns all of it.
    pub(crate) fn usage(&self, change: impl FnOnce(&mut Usage)) -> Usage {
        let mut inner = self.inner();
        change(&mut inner.usage);
        inner.usage.clone()
    }

    /// The number of notes that were left out and not told, as a note.
    pub(crate) fn left_out(&self) -> Option<Update> {
        left_out(self.inner().pace.rest())
    }

    /// Everything, at the end of the run. `whole` tells that the agent came to its end.
    pub(crate) fn work(&self, prompt_given: bool, whole: bool, duration: Duration) -> Work {
        let mut inner = self.inner();
        let Inner { calls, collector, .. } = &mut *inner;
        calls.count_open(collector);
        if !whole {
            collector.cut();
        }
        Work {
            text: inner.talk.text(),
            manifest: inner.collector.manifest(),
            doubts: inner.doubts.clone(),
            usage: (!inner.usage.is_empty()).then(|| inner.usage.clone()),
            session_id: inner.session.clone(),
            may_have_acted: inner.acted || prompt_given,
            duration,
        }
    }
}

impl Inner {
    fn paced(&mut self, kind: UpdateKind, lines: impl IntoIterator<Item = String>) -> Vec<Update> {
        let now = Instant::now();
        let mut notes = Vec::new();
        for line in lines {
            if let Some(more) = self.pace.note(now) {
                notes.extend(left_out(more));
                notes.push(Update { kind, text: one_line(&line, NOTE_CHARS) });
            }
        }
        notes
    }
}

fn left_out(more: u64) -> Option<Update> {
    (more > 0).then(|| Update { kind: UpdateKind::Skipped, text: format!("… and {more} more") })
}

/// Bytes of a line after which a note is given without the line's end.
const LINE_BYTES: usize = 4 * NOTE_CHARS;

#[derive(Debug, Default)]
pub(crate) struct Talk {
    /// The last message.
    message: String,
    /// Whether the next piece continues it.
    open: bool,
    /// The agent's own id of the message, if it gives one.
    id: Option<String>,
    /// The line that is not yet complete.
    line: String,
}

impl Talk {
    /// Adds a piece of the message `id`. Returns lines for people.
    pub(crate) fn piece(&mut self, id: Option<&str>, text: &str) -> Vec<String> {
        // An id is only compared, so the beginning of a long one is enough.
        let id = id.map(|id| prefix_bytes(id, 256));
        let other = id.is_some() && self.open && self.id.as_deref() != id;
        let mut notes = if other { self.end() } else { Vec::new() };
        if !self.open {
            // The white space after a call is not yet the next message.
            if text.trim().is_empty() {
                return notes;
            }
            self.message.clear();
            self.open = true;
            self.id = id.map(str::to_owned);
        }
        self.message.push_str(&cut_middle(text, 2 * TEXT_MAX));
        if self.message.len() > 2 * TEXT_MAX {
            self.message = cut_middle(&self.message, TEXT_MAX);
        }
        // A piece with more lines than notes are given per second is only kept.
        for part in text.split_inclusive('\n').take(64) {
            self.line.push_str(prefix_bytes(part, LINE_BYTES));
            if part.ends_with('\n') || self.line.len() >= LINE_BYTES {
                notes.extend(self.line());
            }
        }
        notes
    }

    /// Ends the message: what comes next is another one. Returns the last line for people.
    pub(crate) fn end(&mut self) -> Vec<String> {
        self.open = false;
        self.line().into_iter().collect()
    }

    fn line(&mut self) -> Option<String> {
        let line = one_line(&std::mem::take(&mut self.line), NOTE_CHARS);
        (!line.is_empty()).then_some(line)
    }

    /// The last message.
    pub(crate) fn text(&self) -> String {
        cut_middle(&joined(self.message.trim()), TEXT_MAX)
    }
}

#[derive(Debug)]
pub(crate) struct Pace {
    since: Instant,
    given: u32,
    left_out: u64,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, given: 0, left_out: 0 }
    }

    /// Whether a note may be given now, and how many were left out before it.
    pub(crate) fn note(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.given) = (now, 0);
        }
        if self.given >= NOTES_PER_SECOND {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.given += 1;
        Some(std::mem::take(&mut self.left_out))
    }

    /// How many were left out and not told.
    pub(crate) fn rest(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod talk_tests {
    use super::*;

    #[test]
    fn pieces_become_lines_and_the_last_message_counts() {
        let mut talk = Talk::default();
        assert!(talk.piece(None, "\n ").is_empty() && talk.piece(None, "I will").is_empty());
        assert_eq!(talk.piece(None, " look.\n\nThen"), ["I will look."]);
        assert_eq!(talk.end(), ["Then"]);
        assert_eq!(talk.text(), "I will look.\n\nThen");
        assert!(talk.piece(None, "  \n").is_empty());
        assert_eq!(talk.text(), "I will look.\n\nThen", "white space is no message");
        talk.piece(Some("1"), "one");
        assert_eq!(talk.piece(Some("2"), "two"), ["one"], "another id is another message");
        assert_eq!(talk.text(), "two");
    }

    #[test]
    fn a_message_without_end_keeps_its_bound_and_its_end() {
        let mut talk = Talk::default();
        for _ in 0..100 {
            let notes = talk.piece(None, &"words and more ".repeat(1000));
            assert!(notes.iter().all(|note| note.chars().count() <= NOTE_CHARS));
            assert!(talk.message.len() <= 2 * TEXT_MAX && talk.line.len() <= 2 * LINE_BYTES);
        }
        talk.piece(None, "the end");
        assert!(talk.text().len() <= TEXT_MAX && talk.text().ends_with("the end"));
        assert!(talk.piece(None, &"x".repeat(8_000_000)).len() <= 64);
        assert!(talk.message.len() <= 4 * TEXT_MAX);
    }
}

#[cfg(test)]
mod pace_tests {
    use super::*;

    #[test]
    fn a_flood_becomes_a_few_notes_and_a_number() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let given = (0..1000).filter(|_| pace.note(start).is_some()).count();
        assert_eq!(given, NOTES_PER_SECOND as usize);
        assert_eq!(pace.note(start + Duration::from_secs(1)), Some(968));
        assert_eq!(pace.note(start + Duration::from_secs(1)), Some(0));
        assert_eq!(pace.rest(), 0);
    }
}
