//! The conversation of a turn: the briefing, the log of the session, the mail, and what followed. A model gets it in the
//! form that it takes.
//!
//! What the journal does not have must never come into it, except as a remedy for a failed call.

use std::sync::Arc;

use ghost_config::plan::ProviderKind;
use ghost_domain::model_facts::ModelFacts;
use ghost_domain::transcript::{Block, Message, Role};
use ghost_provider::SharedMessage;

use super::attempts::Remedy;
use crate::images::{REFUSED, has_images, leave_out, select};
use crate::transcript::{Written, calls_of, drop_state};
use crate::truncate::{bytes_of, is_short, shorten_seen, truncate};

/// The conversation of a turn.
pub(super) struct Conversation {
    messages: Arc<Vec<SharedMessage>>,
    /// Number of messages before the mail: the briefing and the log.
    past: usize,
    /// Whether the messages after the mail are those of the journal, so that they may become part of the log in
    /// memory.
    is_journaled: bool,
    /// Limit in bytes; smaller than the agent's setting once a model has refused the conversation as too long.
    limit: usize,
}

/// For whom a conversation is made ready.
pub(super) struct Reader<'a> {
    pub(super) kind: ProviderKind,
    pub(super) facts: &'a ModelFacts,
    /// Bytes of a result after the model has seen it once.
    pub(super) once: usize,
}

impl Conversation {
    pub(super) fn new(messages: Vec<SharedMessage>, past: usize, is_journaled: bool, limit: usize) -> Self {
        Self { messages: Arc::new(messages), past, is_journaled, limit }
    }

    /// The messages, to be changed. They are copied if a request still shares them.
    fn messages_mut(&mut self) -> &mut Vec<SharedMessage> {
        Arc::make_mut(&mut self.messages)
    }

    pub(super) fn push(&mut self, message: Message) {
        self.messages_mut().push(message.into());
    }

    /// Adds a message to the model: guidance, a note or a correction.
    pub(super) fn tell(&mut self, text: String) {
        self.push(Message::text(Role::User, text));
    }

    /// The messages of the turn itself, after its mail.
    pub(super) fn own(&self) -> &[SharedMessage] {
        self.messages.get(self.past + 1..).unwrap_or_default()
    }

    /// The mail and the messages after it, for the log in memory; `None` if the log may not take them.
    pub(super) fn into_own(mut self) -> Option<Vec<SharedMessage>> {
        let past = self.past;
        self.is_journaled.then(|| self.messages_mut().split_off(past))
    }

    /// The calls of the model's last answer.
    pub(super) fn last_calls(&self) -> Vec<Written> {
        let last = self.messages.iter().rev().find(|message| message.role == Role::Assistant);
        last.map(|answer| calls_of(answer)).unwrap_or_default()
    }

    /// Whether an answer of this turn carries opaque state of a provider.
    pub(super) fn has_state(&self) -> bool {
        self.messages.iter().any(|message| message.blocks.iter().any(|block| matches!(block, Block::Opaque(_))))
    }

    /// Applies a remedy.
    pub(super) fn apply(&mut self, remedy: Remedy) {
        match remedy {
            Remedy::Shorten(limit) => self.limit = limit,
            Remedy::DropState => {
                drop_state(self.messages_mut());
                // The journal's order decides what the log keeps.
                self.is_journaled = false;
            }
            Remedy::DropImages => leave_out(self.messages_mut(), Some(REFUSED)),
        }
    }

    /// The conversation as a model gets it, and the number of messages before the mail. The bytes of its images are not
    /// loaded.
    pub(super) fn for_model(&self, reader: &Reader<'_>) -> (Arc<Vec<SharedMessage>>, usize) {
        self.within(reader, self.limit)
    }

    /// The same in at most `limit` bytes, as far as possible.
    fn within(&self, reader: &Reader<'_>, limit: usize) -> (Arc<Vec<SharedMessage>>, usize) {
        if !has_images(&self.messages) && is_short(&self.messages, self.past, reader.once, limit) {
            // A copy of a long log costs as much as a request.
            return (Arc::clone(&self.messages), self.past);
        }
        let mut messages = Vec::clone(&self.messages);
        select(&mut messages, reader.kind, reader.facts);
        shorten_seen(&mut messages, self.past, reader.once);
        let past = truncate(&mut messages, self.past, limit);
        (Arc::new(messages), past)
    }

    /// Half of the size of `sent`, if the conversation can be shortened towards that.
    pub(super) fn shorter(&self, reader: &Reader<'_>, sent: &[SharedMessage]) -> Option<usize> {
        let (whole, half) = (bytes_of(sent), bytes_of(sent) / 2);
        let (messages, _) = self.within(reader, half);
        (whole > 0 && bytes_of(&messages) <= whole - whole / 10).then_some(half)
    }
}
