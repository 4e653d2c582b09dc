//! Reads an answer and decides what follows from it: the turn ends, its calls run, or the model gets a
//! correction. The answer is journaled together with that decision, and the write is retried while
//! the store is unavailable.
//!
//! A failure of the store must never lose an answer that was paid for or cause a second request for
//! it. Reading a long text must never block the runtime's threads.

use std::time::Duration;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::Effect;
use ghost_domain::reply_tokens::{Reply, read_reply};
use ghost_domain::transcript::{Block, Message, Role, visible_text};
use ghost_domain::{Code, Refusal, ReservationId, Turn};
use ghost_operations::Tx;
use ghost_operations::turns::{self, Ending, ModelResult};
use ghost_provider::{ModelAnswer, SharedMessage, Stop, Visible, malformed_tool_call};
use serde_json::json;

use super::call::Calls;
use super::gate::Choice;
use super::runner::{End, Runner};
use crate::retry_write::{self, Pauses, WriteError};
use crate::transcript::{OpenCall, with_unique_ids};

/// Corrections of malformed answers before the turn ends.
const CORRECTIONS_MAX: u32 = 3;
/// Longest text, in bytes, that is read on the turn's own task; longer text is read on a blocking
/// thread.
const INLINE_MAX: usize = 64 * 1_024;

/// What follows from asking for an answer.
pub(super) enum Thought {
    /// The model calls tools.
    Calls(Calls),
    /// The answer was malformed, and the model got a correction.
    Corrected,
    /// Guidance has come for the droid, and no model was asked. The flag says whether it joined the turn; if not, the next
    /// call does not look for it.
    Guided(bool),
    /// The turn runs no further.
    End(End),
}

/// The parsed content of an answer's text.
pub(super) struct ParsedAnswer {
    /// The part that people may read.
    pub(super) text: String,
    /// Whether the text closes a reasoning block that it never opened. `None` if the answer does
    /// not show it: it is empty, or may have been truncated before the closing tag.
    pub(super) reasons_first: Option<bool>,
    /// An excerpt of a tool call written as text, in an answer without real calls.
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

/// The flaw of an answer that cannot end the turn.
#[derive(Clone)]
struct Flaw {
    /// An excerpt of a call written as text, for the ledger.
    malformed: Option<String>,
    /// The correction for the model.
    note: String,
}

impl Runner {
    /// Journals an answer together with the decision that follows from it.
    pub(super) async fn answered(
        &mut self,
        choice: &Choice,
        reservation_id: ReservationId,
        answer: ModelAnswer,
        parsed: ParsedAnswer,
        took: Duration,
    ) -> Result<Thought, Refusal> {
        self.guard.answered();
        let warning = self.unknown_stop(choice, &answer.stop);
        let blocks = with_unique_ids(answer.blocks);
        let message = Message { role: Role::Assistant, blocks: blocks.clone() };
        let mut calls: Vec<OpenCall> =
            message.calls().map(|(id, name, arguments)| OpenCall::new(id, name, arguments, None)).collect();
        let is_refused = matches!(answer.stop, Stop::Refused(_));
        let flaw = if calls.is_empty() && !is_refused { flaw(&parsed, &answer.stop) } else { None };
        let ending = self.ending(&choice.model, &answer.stop, parsed.text, calls.len(), flaw.is_some());
        let result = ModelResult {
            reservation_id,
            provider: choice.entry.name.clone(),
            model: self.engine.services.ctx.label(&answer.model),
            blocks,
            stop: answer.stop.word(),
            usage: answer.usage,
            estimated: answer.estimated,
            price: choice.price,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        // The start of a sole outside call is recorded in the transaction that journals the answer.
        let (mut sole, mut start) = (None, None);
        if ending.is_none()
            && calls.len() == 1
            && let Some(call) = calls.pop()
        {
            let checking = self.check_whole(call).await?;
            if let Ok(checked) = &checking
                && checked.run.effect() == Effect::Outside
                && checked.needs_approval.is_none()
            {
                start = Some(self.call_start(checked, self.call_id(), Vec::new()));
            }
            sole = Some(Calls::Sole(checking, start.as_ref().map(|start| start.call_id)));
        }
        let (turn_id, noted) = (self.turn.turn_id, flaw.clone());
        let is_end = ending.is_some();
        let journaled = self.store_answer(&choice.model, move |w| {
            let turn = turns::model_answered(w, turn_id, result)?;
            if let Some(warning) = warning {
                w.emit(warning)?;
            }
            if let Some(Flaw { malformed, note }) = noted {
                if let Some(fragment) = malformed {
                    turns::malformed(w, &turn, &fragment)?;
                }
                turns::note(w, turn_id, &note)?;
            }
            if let Some(start) = start {
                turns::record_call_start(w, &turn, &start)?;
            }
            match ending {
                Some(Ending::Failed(refusal)) => turns::fail(w, turn_id, refusal),
                Some(ending) => turns::finish(w, turn_id, ending),
                None => Ok(turn),
            }
        });
        self.turn = journaled.await?;
        self.conversation.push(message);
        if is_end {
            return Ok(Thought::End(End::Written));
        }
        self.progress.rounds += 1;
        self.progress.failures.clear();
        let Some(flaw) = flaw else { return Ok(Thought::Calls(sole.unwrap_or(Calls::Unchecked(calls)))) };
        self.progress.corrections += 1;
        self.conversation.tell(flaw.note);
        Ok(Thought::Corrected)
    }

    /// How the turn ends with an answer that makes so many calls; `None` if it goes on.
    fn ending(&self, model: &str, stop: &Stop, text: String, calls: usize, is_flawed: bool) -> Option<Ending> {
        if is_flawed {
            let is_hopeless = self.progress.corrections >= CORRECTIONS_MAX;
            return is_hopeless.then(|| {
                let what = format!("{model} was corrected {CORRECTIONS_MAX} times and still gave no complete answer");
                let hint = "see its last answers with `ghostctl turn show`, or use another model";
                Ending::Failed(Refusal::new(Code::InvalidArguments, what).hint(hint))
            });
        }
        match stop {
            // The model or its provider refused, so the text is not an answer and the calls do not
            // run.
            Stop::Refused(_) => Some(Ending::Failed(refusal(model, stop, calls, &text))),
            _ if calls > 0 => None,
            _ if stop.is_cut() => Some(Ending::Cut(text)),
            _ => Some(Ending::Finished(text)),
        }
    }

    /// The warning that Ghost does not know why the model stopped, if it is due.
    fn unknown_stop(&self, choice: &Choice, stop: &Stop) -> Option<NewEvent> {
        let (model, provider) = (&choice.model, &choice.entry.name);
        let word = stop.word().filter(|word| stop.is_unknown() && self.engine.warns_of_stop(model, word))?;
        let warning =
            format!("{model} ({provider}) stopped with `{word}`, which Ghost does not know; its answer is used");
        let payload = json!({ "warning": warning, "model": model, "provider": provider, "reason": word });
        Some(NewEvent::new(EventKind::WorldWarning, payload).agent(&self.turn.agent_id))
    }

    /// Journals an answer and retries while the store is unavailable, because asking again would
    /// cost as much again. As soon as a smaller write succeeds, the journal notes that an answer
    /// waits. If the daemon dies before the answer is stored, the attempt is still counted.
    async fn store_answer<F>(&self, model: &str, journal: F) -> Result<Turn, Refusal>
    where
        F: FnOnce(&mut Tx) -> Result<Turn, Refusal> + Clone + Send + 'static,
    {
        let (mut pauses, mut noted) = (Pauses::default(), false);
        let turn_id = self.turn.turn_id;
        loop {
            let refusal = match retry_write::attempt(&self.engine, journal.clone()).await {
                Ok(turn) => return Ok(turn),
                Err(WriteError::Refused(refusal)) => return Err(refusal),
                Err(WriteError::Transient(refusal)) => refusal,
            };
            if !noted {
                let (model, why) = (model.to_owned(), refusal.message.clone());
                let note = retry_write::attempt(&self.engine, move |w| turns::answer_waits(w, turn_id, &model, &why));
                match note.await {
                    Ok(()) => noted = true,
                    Err(WriteError::Transient(_)) => {}
                    Err(WriteError::Refused(refusal)) => return Err(refusal),
                }
            }
            retry_write::wait(&self.engine, turn_id, &mut pauses, &refusal).await;
        }
    }

    /// The end of the turn at a bound, with the last text that its model wrote for a reader. It comes from the
    /// journaled answers, so a resumed turn ends with the same text; `partial` is what arrived of an answer that the turn's
    /// time interrupted. `timed_out` says whether the bound is the turn's own, of time or of model calls.
    pub(super) fn at_bound(&self, refusal: Refusal, timed_out: bool, partial: Option<String>) -> Ending {
        let partial = partial.filter(|text| is_for_reader(text));
        let text = partial.or_else(|| last_text(self.conversation.own())).unwrap_or_default();
        Ending::AtBound { refusal, timed_out, text }
    }
}

/// The last text for a reader in the answers of a turn. An answer without calls that did not end the turn was faulty;
/// its text does not count.
fn last_text(messages: &[SharedMessage]) -> Option<String> {
    let answers = messages.iter().rev().filter(|message| message.role == Role::Assistant);
    let mut texts = answers.filter(|answer| answer.calls().next().is_some()).map(|answer| answer.visible_text());
    texts.find_map(|text| Some(Visible::of(&text).text).filter(|text| is_for_reader(text)))
}

fn is_for_reader(text: &str) -> bool {
    matches!(read_reply(text), Reply::Message { .. })
}

/// The refusal with which a turn ends if the model or its provider refused to continue.
fn refusal(model: &str, stop: &Stop, calls: usize, text: &str) -> Refusal {
    let what = match (calls, text.trim()) {
        (0, "") => format!("{model} refused to answer"),
        (0, _) => format!("{model} refused to continue its answer"),
        _ => format!("{model} refused to continue its answer, and its tool calls were not run"),
    };
    let hint = if calls == 0 && text.trim().is_empty() { "" } else { "; see its text with `ghostctl turn show`" };
    let why = match stop {
        Stop::Refused(Some(why)) => format!(" ({})", ghost_domain::text::clip(why, 100)),
        _ => String::new(),
    };
    Refusal::new(Code::PolicyDenied, format!("{what}{why}"))
        .hint(format!("rephrase the request, or use another model{hint}"))
}

/// The flaw of an answer without calls that cannot end the turn: the answer contains a call written
/// as text, or it was truncated before any text.
fn flaw(parsed: &ParsedAnswer, stop: &Stop) -> Option<Flaw> {
    let flaw = |note: &str| Some(Flaw { malformed: parsed.malformed.clone(), note: note.to_owned() });
    if parsed.malformed.is_some() {
        return flaw(
            "Your last answer held a tool call written as text. Nothing was run. Make the call through the tool \
             interface, or answer in plain words.",
        );
    }
    if stop.is_cut() && parsed.text.trim().is_empty() {
        return flaw("Your last answer was cut before it had any text. Answer again, and more briefly.");
    }
    None
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
