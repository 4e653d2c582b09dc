//! What is known of a run while it goes on. Every part of the run adds to it.
//!
//! It must never hold a lock while it waits or calls the host.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::v1::schema::ToolCallUpdate;
use tokio::time::Instant;

use crate::bounds::NOTE_CHARS;
use crate::calls::{Call, Calls};
use crate::host::{Update, UpdateKind};
use crate::outcome::Work;
use crate::pace::Pace;
use crate::talk::Talk;
use crate::task::SessionId;
use crate::usage::Usage;
use ghost_coding::text::one_line;
use ghost_coding::{Collector, Doubts, Effect};

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
