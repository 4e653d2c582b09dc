//! Streaming an answer while it is made, to whoever watches: without reasoning and markup, and redacted before it leaves,
//! though it comes in pieces.
//!
//! What was shown and turns out to be reasoning, because a close comes that nothing opened, cannot be taken back: whoever
//! watches is told to discard it, and of that model nothing is shown before such a close from then on.
//!
//! Must never: show a part of a secret, or of a model's reasoning, because the rest of it had not come yet, or keep anything:
//! what counts is the whole answer in the journal.

use std::sync::Arc;

use ghost_domain::event::{Event, EventKind};
use ghost_domain::redact::Redactor;
use ghost_domain::text::prefix_bytes;
use ghost_domain::{AgentId, EventId, TurnId};
use ghost_provider::{Cleaner, Deltas};
use serde_json::{Value, json};

use super::runner::Runner;
use crate::engine::Engine;

/// Bytes of text that are streamed at once: single tokens would cost more than they show.
const DELTA_BYTES: usize = 48;
/// Bytes that are held back until more has come: a secret that is streamed in two pieces is recognised in neither.
const DELTA_HELD: usize = 256;

/// Where raw text may be cut so that redacting the two pieces hides what redacting the whole would: far enough from the
/// end, between two words, and not inside anything that is known. 0 if there is no such place yet.
fn safe_cut(text: &str, redactor: &Redactor) -> usize {
    let whole = redactor.redact(text);
    let held = DELTA_HELD.max(redactor.longest());
    let mut before = prefix_bytes(text, text.len().saturating_sub(held));
    while let Some(space) = before.rfind(char::is_whitespace) {
        // Behind the space; a token's own prefix may end in one, as `Bearer ` does, so the pieces are compared, too.
        let cut = space + text[space..].chars().next().map_or(1, char::len_utf8);
        let (head, tail) = text.split_at(cut);
        if !head.trim_end().ends_with("Bearer") && redactor.redact(head) + &redactor.redact(tail) == whole {
            return cut;
        }
        before = &text[..space];
    }
    0
}

/// Text on its way out that is held back for as long as a secret may be a part of it.
#[derive(Default)]
struct Holding {
    waiting: String,
    /// Bytes that must wait before it is looked at again: text without a place to cut must not be searched at every
    /// token.
    look_at: usize,
}

impl Holding {
    /// Takes more; gives what may be shown, redacted.
    fn push(&mut self, text: &str, redactor: &Redactor) -> Option<String> {
        self.waiting.push_str(text);
        let least = DELTA_BYTES + DELTA_HELD.max(redactor.longest());
        if self.waiting.len() < self.look_at.max(least) {
            return None;
        }
        let cut = safe_cut(&self.waiting, redactor);
        self.look_at = if cut == 0 { self.waiting.len() * 3 / 2 } else { 0 };
        let rest = self.waiting.split_off(cut);
        let shown = std::mem::replace(&mut self.waiting, rest);
        (cut > 0).then(|| redactor.redact(&shown))
    }

    /// Lets go of what was not shown yet.
    fn forget(&mut self) {
        *self = Self::default();
    }

    /// Gives the rest, redacted.
    fn end(&mut self, redactor: &Redactor) -> String {
        redactor.redact(&std::mem::take(&mut self.waiting))
    }
}

/// Streams an answer while it is made, to whoever watches.
pub(super) struct Streamer {
    engine: Arc<Engine>,
    agent_id: AgentId,
    turn_id: TurnId,
    model: String,
    cleaner: Cleaner,
    /// Whether anything was shown that still stands.
    shown: bool,
    holding: Holding,
    watched: bool,
}

impl Streamer {
    pub(super) fn new(runner: &Runner, model: &str) -> Self {
        let engine = Arc::clone(&runner.engine);
        let cleaner = if engine.reasons_first(model) { Cleaner::within_reasoning() } else { Cleaner::default() };
        Self {
            watched: engine.services.store.has_listeners(),
            engine,
            agent_id: runner.agent_id.clone(),
            turn_id: runner.turn.turn_id,
            model: model.to_owned(),
            cleaner,
            shown: false,
            holding: Holding::default(),
        }
    }

    /// Streams what was held back: the answer is whole, or it broke off.
    pub(super) fn end(&mut self) {
        let mut read = String::new();
        self.cleaner.end(&mut read);
        self.show(&read);
        let text = self.holding.end(&self.engine.services.ctx.redactor);
        self.publish(&text);
    }

    /// Streams of what may be read as much as holds no part of a secret.
    fn show(&mut self, read: &str) {
        if self.cleaner.closed_unopened() {
            self.engine.set_reasons_first(&self.model, true);
            self.holding.forget();
            if std::mem::take(&mut self.shown) {
                self.emit(json!({ "turn_id": self.turn_id, "text": "", "discard": true }));
            }
        }
        if !read.is_empty()
            && let Some(shown) = self.holding.push(read, &self.engine.services.ctx.redactor)
        {
            self.publish(&shown);
        }
    }

    fn publish(&mut self, text: &str) {
        if !text.is_empty() {
            self.shown = true;
            self.emit(json!({ "turn_id": self.turn_id, "text": text }));
        }
    }

    fn emit(&self, payload: Value) {
        let (ctx, store) = (&self.engine.services.ctx, &self.engine.services.store);
        store.publish_ephemeral(Event {
            seq: store.last_seq(),
            event_id: EventId(ctx.id()),
            ts: ctx.now(),
            kind: EventKind::ModelDelta,
            agent_id: Some(self.agent_id.clone()),
            channel: None,
            correlation_id: Some(self.turn_id.to_string()),
            payload: payload.into(),
        });
    }
}

impl Deltas for Streamer {
    fn text(&mut self, text: &str) {
        if self.watched {
            let mut read = String::new();
            self.cleaner.push(text, &mut read);
            self.show(&read);
        }
    }

    fn thinking(&mut self, _: &str) {}
}

#[cfg(test)]
mod tests {
    use ghost_domain::redact::Redactor;

    use super::Holding;

    /// What a watcher sees of `text` when it comes in small pieces.
    fn watched(text: &str, redactor: &Redactor) -> String {
        let (mut seen, mut holding) = (String::new(), Holding::default());
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(5) {
            seen.extend(holding.push(&piece.iter().collect::<String>(), redactor));
        }
        seen + &holding.end(redactor)
    }

    #[test]
    fn a_secret_that_comes_in_pieces_is_seen_in_none() {
        let known = format!("-----BEGIN KEY----- {} -----END KEY-----", "line of the key\n".repeat(20));
        let redactor = Redactor::new([known.clone()]);
        let shaped = format!("sk-ant-{}", "a1B2c3D4".repeat(13));
        let bearer = format!("Bearer {}", "e5F6".repeat(20));
        for secret in [&known, &shaped, &bearer] {
            for before in 0..24 {
                let text = format!("{} {secret} and {}", "words ".repeat(before * 3), "more words ".repeat(40));
                let seen = watched(&text, &redactor);
                assert_eq!(seen, redactor.redact(&text), "{before}");
                assert!(!seen.contains(&secret[secret.len() - 20..]), "{before}");
            }
        }
    }

    #[test]
    fn text_without_a_place_to_cut_comes_at_the_end() {
        let text = "x".repeat(20_000);
        assert_eq!(watched(&text, &Redactor::default()), text);
    }
}
