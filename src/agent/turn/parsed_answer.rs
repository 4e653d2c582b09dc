//! Reads the text of an answer: its visible part, whether the model reasons first, and a tool call
//! written as text.
//!
//! Reading a long text must never block the runtime's threads.

use ghost_domain::transcript::{Block, visible_text};
use ghost_domain::{Code, Refusal};
use ghost_provider::{ModelAnswer, Stop, Visible, malformed_tool_call};

/// Longest text, in bytes, that is read on the turn's own task; longer text is read on a blocking
/// thread.
const INLINE_MAX: usize = 64 * 1_024;

/// The parsed content of an answer's text.
pub(super) struct ParsedAnswer {
    /// The part that people may read.
    pub(super) text: String,
    /// Whether the text closes a reasoning block that it never opened. `None` if the answer does
    /// not show it: it is empty, or may have been truncated before the closing tag.
    pub(super) reasons_first: Option<bool>,
    /// An excerpt of a tool call written as text, in an answer without real calls (TOOL-13).
    pub(super) malformed: Option<String>,
}

impl ParsedAnswer {
    /// Reads the text of an answer. `reasoned` says whether the model's last answer began within
    /// reasoning.
    ///
    /// # Errors
    /// Unavailable when the daemon stops meanwhile.
    pub(super) async fn read(answer: &ModelAnswer, reasoned: bool) -> Result<Self, Refusal> {
        let text = visible_text(&answer.blocks);
        let calls = answer.blocks.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        let stop = answer.stop.clone();
        let inline = text.len() <= INLINE_MAX;
        let read = move || Self::parse(&text, calls, &stop, reasoned);
        if inline {
            return Ok(read());
        }
        let error = match tokio::task::spawn_blocking(read).await {
            Ok(parsed) => return Ok(parsed),
            Err(error) => error,
        };
        match error.try_into_panic() {
            // Continue the panic as if the text had been read here: the agent's supervisor handles
            // it.
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Refusal::new(Code::Unavailable, "the daemon stopped before the answer was read")),
        }
    }

    fn parse(text: &str, calls: bool, stop: &Stop, reasoned: bool) -> Self {
        // If the answer of such a model was truncated before it closed its reasoning, none of its
        // text is visible.
        let cut = stop.is_cut();
        let visible = if cut && reasoned { Visible::from_reasoning(text) } else { Visible::of(text) };
        let is_conclusive = !cut && !text.trim().is_empty();
        let text_may_hold_call = !calls && !matches!(stop, Stop::Refused(_));
        Self {
            text: visible.text,
            reasons_first: is_conclusive.then_some(visible.closes_unopened),
            malformed: if text_may_hold_call { malformed_tool_call(text) } else { None },
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
    fn long_text_is_read_on_a_blocking_thread_with_the_same_result() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let short = ParsedAnswer::read(&answer("a</think>b <tool_call>".into()), false).await.unwrap();
            assert_eq!((short.text.as_str(), short.reasons_first), ("b", Some(true)));
            assert_eq!(short.malformed.as_deref(), Some("<tool_call>"));
            // The only blocking thread is occupied. The long read waits for it, while this thread
            // continues.
            let (go, released) = std::sync::mpsc::sync_channel::<()>(1);
            let occupied = tokio::task::spawn_blocking(move || released.recv());
            let long = answer(format!("{}</think>b <tool_call>", "< ".repeat(INLINE_MAX)));
            let mut reading = std::pin::pin!(ParsedAnswer::read(&long, false));
            assert!(futures_util::poll!(reading.as_mut()).is_pending());
            go.send(()).unwrap();
            occupied.await.unwrap().unwrap();
            let long = reading.await.unwrap();
            assert_eq!(
                (long.text, long.reasons_first, long.malformed),
                (short.text, short.reasons_first, short.malformed)
            );
        });
    }
}
