//! Streams an answer to subscribers while the model writes it: without reasoning and markup, and
//! redacted even though it comes in pieces.
//!
//! If a closing tag shows that text already sent was reasoning, an event tells subscribers to
//! discard that text. From then on, no text of that model is sent before such a closing tag.
//!
//! No part of a secret or of reasoning is sent because the rest has not arrived yet. The durable record is the whole answer in
//! the journal.

use std::sync::Arc;

use ghost_domain::event::{Event, EventKind};
use ghost_domain::redact::Redactor;
use ghost_domain::text::prefix_bytes;
use ghost_domain::{AgentId, EventId, Turn, TurnId};
use ghost_provider::{Cleaner, Deltas, malformed_tool_call};
use serde_json::{Value, json};

use crate::engine::Engine;

/// Text is sent in pieces of at least this many bytes, because an event for each token would cost
/// too much.
const DELTA_BYTES: usize = 48;
/// Bytes held back until more text arrives: a secret that is split into two pieces would be
/// recognised in neither.
const DELTA_HELD: usize = 256;

/// Finds a position at which raw text can be split so that the redacted halves equal the redacted
/// whole: far enough from the end, between two words, and not inside a secret. 0 if there is no
/// such position yet.
fn safe_cut(text: &str, redactor: &Redactor) -> usize {
    let whole = redactor.redact(text);
    let held = DELTA_HELD.max(redactor.longest());
    let mut before = prefix_bytes(text, text.len().saturating_sub(held));
    while let Some(space) = before.rfind(char::is_whitespace) {
        // The split is after the space. A token's prefix may end with a space, as `Bearer ` does,
        // so the redacted halves are compared too.
        let cut = space + text[space..].chars().next().map_or(1, char::len_utf8);
        let (head, tail) = text.split_at(cut);
        if !head.trim_end().ends_with("Bearer") && redactor.redact(head) + &redactor.redact(tail) == whole {
            return cut;
        }
        before = &text[..space];
    }
    0
}

/// Text held back while it may contain part of a secret.
#[derive(Default)]
struct HeldText {
    waiting: String,
    /// Length at which the text is searched again: text that cannot be split must not be searched
    /// at every token.
    search_at: usize,
}

impl HeldText {
    /// Adds text. Returns the part that may be sent, redacted.
    fn push(&mut self, text: &str, redactor: &Redactor) -> Option<String> {
        self.waiting.push_str(text);
        let minimum = DELTA_BYTES + DELTA_HELD.max(redactor.longest());
        if self.waiting.len() < self.search_at.max(minimum) {
            return None;
        }
        let cut = safe_cut(&self.waiting, redactor);
        self.search_at = if cut == 0 { self.waiting.len() * 3 / 2 } else { 0 };
        let rest = self.waiting.split_off(cut);
        let shown = std::mem::replace(&mut self.waiting, rest);
        (cut > 0).then(|| redactor.redact(&shown))
    }

    /// Drops the held text.
    fn discard(&mut self) {
        *self = Self::default();
    }

    /// Returns the rest, redacted.
    fn end(&mut self, redactor: &Redactor) -> String {
        redactor.redact(&std::mem::take(&mut self.waiting))
    }
}

/// Sends an answer to subscribers while it arrives, and keeps its visible text.
pub(crate) struct Streamer {
    engine: Arc<Engine>,
    agent_id: AgentId,
    turn_id: TurnId,
    model: String,
    cleaner: Cleaner,
    /// Whether text was sent and not discarded.
    shown: bool,
    held_text: HeldText,
    watched: bool,
    /// The visible text so far, in case the turn's time ends first; `None` if it is not needed.
    kept: Option<String>,
}

impl Streamer {
    /// `keep` says whether the visible text is needed at the end.
    pub(crate) fn new(engine: &Arc<Engine>, turn: &Turn, model: &str, keep: bool) -> Self {
        let engine = Arc::clone(engine);
        let cleaner = if engine.reasons_first(model) { Cleaner::within_reasoning() } else { Cleaner::default() };
        Self {
            watched: engine.services.store.has_listeners(),
            engine,
            agent_id: turn.agent_id.clone(),
            turn_id: turn.turn_id,
            model: model.to_owned(),
            cleaner,
            shown: false,
            held_text: HeldText::default(),
            kept: keep.then(String::new),
        }
    }

    /// Sends the held text, because the answer is complete or was interrupted. Returns the visible text that was kept.
    pub(crate) fn end(mut self) -> Option<String> {
        let mut visible = String::new();
        self.cleaner.end(&mut visible);
        self.show(&visible);
        let text = self.held_text.end(&self.engine.services.ctx.redactor);
        self.publish(&text);
        self.kept.filter(|kept| malformed_tool_call(kept).is_none() && !kept.trim().is_empty())
    }

    /// Keeps the visible text, and sends as much of it as contains no part of a secret.
    fn show(&mut self, visible: &str) {
        let was_reasoning = self.cleaner.closed_unopened();
        if let Some(kept) = &mut self.kept {
            if was_reasoning {
                kept.clear();
            }
            kept.push_str(visible);
        }
        if !self.watched {
            return;
        }
        if was_reasoning {
            self.engine.set_reasons_first(&self.model, true);
            self.held_text.discard();
            if std::mem::take(&mut self.shown) {
                self.emit(json!({ "turn_id": self.turn_id, "text": "", "discard": true }));
            }
        }
        if !visible.is_empty()
            && let Some(shown) = self.held_text.push(visible, &self.engine.services.ctx.redactor)
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
        if self.watched || self.kept.is_some() {
            let mut visible = String::new();
            self.cleaner.push(text, &mut visible);
            self.show(&visible);
        }
    }

    fn thinking(&mut self, _: &str) {}
}

#[cfg(test)]
mod tests {
    use ghost_domain::redact::Redactor;

    use super::HeldText;

    /// What a subscriber sees of `text` when it arrives in small pieces.
    fn watched(text: &str, redactor: &Redactor) -> String {
        let (mut seen, mut held_text) = (String::new(), HeldText::default());
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(5) {
            seen.extend(held_text.push(&piece.iter().collect::<String>(), redactor));
        }
        seen + &held_text.end(redactor)
    }

    #[test]
    fn a_secret_in_pieces_is_redacted() {
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
    fn text_without_a_place_to_cut_is_sent_at_the_end() {
        let text = "x".repeat(20_000);
        assert_eq!(watched(&text, &Redactor::default()), text);
    }
}
