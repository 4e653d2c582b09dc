//! What the words of an answer come to: what people may read of them, whether they reason first, whether they hold a call.
//!
//! Must never: hold the daemon's threads for as long as reading long words takes.

use ghost_domain::transcript::{Block, visible_text};
use ghost_domain::{Code, Refusal};
use ghost_provider::{ModelAnswer, Stop, Visible, malformed_tool_call};

/// Longest words that are read where the turn runs, in bytes; what is longer is read aside.
const HERE_MAX: usize = 64 * 1_024;

/// The words of an answer.
pub(super) struct ParsedAnswer {
    /// What people may read of them.
    pub(super) words: String,
    /// Whether the model begins within reasoning. `None` if this answer does not tell: it says nothing, or may have been cut
    /// before its close.
    pub(super) reasons_first: Option<bool>,
    /// The call that they try to make, as an excerpt, in an answer without any real call (TOOL-13).
    pub(super) malformed: Option<String>,
}

impl ParsedAnswer {
    /// Reads the words of an answer whose model `reasoned` first when it was last known.
    ///
    /// # Errors
    /// Unavailable when the daemon stops meanwhile.
    pub(super) async fn read(answer: &ModelAnswer, reasoned: bool) -> Result<Self, Refusal> {
        let text = visible_text(&answer.blocks);
        let calls = answer.blocks.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        let stop = answer.stop.clone();
        let here = text.len() <= HERE_MAX;
        let read = move || Self::of(&text, calls, &stop, reasoned);
        if here {
            return Ok(read());
        }
        let error = match tokio::task::spawn_blocking(read).await {
            Ok(said) => return Ok(said),
            Err(error) => error,
        };
        match error.try_into_panic() {
            // As if it had been read here: the agent's supervisor deals with it.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Refusal::new(Code::Unavailable, "the daemon stopped before the answer was read")),
        }
    }

    fn of(text: &str, calls: bool, stop: &Stop, reasoned: bool) -> Self {
        // Cut before its reasoning was closed, such a model has said nothing yet.
        let cut = stop.is_cut();
        let visible = if cut && reasoned { Visible::from_reasoning(text) } else { Visible::of(text) };
        let tells = !cut && !text.trim().is_empty();
        let in_words = !calls && !matches!(stop, Stop::Refused(_));
        Self {
            words: visible.words,
            reasons_first: tells.then_some(visible.closes_unopened),
            malformed: if in_words { malformed_tool_call(text) } else { None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: String) -> ModelAnswer {
        ModelAnswer {
            model: "m".into(),
            blocks: vec![Block::Text { text }],
            usage: None,
            estimated: false,
            stop: Stop::EndTurn,
        }
    }

    #[test]
    fn long_words_are_read_aside_and_come_to_the_same() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let short = ParsedAnswer::read(&answer("a</think>b <tool_call>".into()), false).await.unwrap();
            assert_eq!((short.words.as_str(), short.reasons_first), ("b", Some(true)));
            assert_eq!(short.malformed.as_deref(), Some("<tool_call>"));
            // The one thread that may be held is held: what is to be read there waits, and this one goes on.
            let (go, gone) = std::sync::mpsc::sync_channel::<()>(1);
            let holding = tokio::task::spawn_blocking(move || gone.recv());
            let long = answer(format!("{}</think>b <tool_call>", "< ".repeat(HERE_MAX)));
            let mut reading = std::pin::pin!(ParsedAnswer::read(&long, false));
            assert!(futures_util::poll!(reading.as_mut()).is_pending());
            go.send(()).unwrap();
            holding.await.unwrap().unwrap();
            let long = reading.await.unwrap();
            assert_eq!(
                (long.words, long.reasons_first, long.malformed),
                (short.words, short.reasons_first, short.malformed)
            );
        });
    }
}
