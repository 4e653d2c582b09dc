//! Decides what follows from an answer: the turn ends, its calls run, or the model gets a
//! correction. The answer is journaled together with that decision, and the write is retried while
//! the store is unavailable.
//!
//! A failure of the store must never lose an answer that was paid for or cause a second request for
//! it.

use std::time::Duration;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::Effect;
use ghost_domain::transcript::{Message, Role};
use ghost_domain::{CallId, Code, Refusal, ReservationId, Turn};
use ghost_operations::turns::{self, Ending, ModelResult};
use ghost_provider::{ModelAnswer, Stop};
use ghost_store::Tx;
use serde_json::json;

use super::parsed_answer::ParsedAnswer;
use super::retry_write::{self, Pauses, WriteError};
use super::round::Choice;
use super::runner::Runner;
use super::think::Thought;
use crate::transcript::{OpenCall, with_unique_ids};

/// Corrections of malformed answers before the turn ends.
const CORRECTIONS_MAX: u32 = 3;

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
        let blocks = with_unique_ids(answer.blocks);
        let message = Message { role: Role::Assistant, blocks: blocks.clone() };
        let calls: Vec<OpenCall> =
            message.calls().map(|(id, name, arguments)| OpenCall::new(id, name, arguments, None)).collect();
        let ParsedAnswer { text, malformed, .. } = parsed;
        let refused = matches!(answer.stop, Stop::Refused(_));
        let flaw = if calls.is_empty() && !refused { flaw(malformed, &text, &answer.stop) } else { None };
        let hopeless = flaw.is_some() && self.corrections >= CORRECTIONS_MAX;
        let ending = match (&flaw, calls.is_empty()) {
            (Some(_), _) if hopeless => Some(Ending::Failed(
                Refusal::new(
                    Code::InvalidArguments,
                    format!("{} was corrected {CORRECTIONS_MAX} times and still gave no complete answer", choice.model),
                )
                .hint("see its last answers with `ghostctl turn show`, or use another model"),
            )),
            // The model or its provider refused, so the text is not an answer and the calls do not
            // run.
            _ if refused => Some(Ending::Failed(refusal(&choice.model, &answer.stop, calls.len(), &text))),
            (None, true) if answer.stop.is_cut() => Some(Ending::Cut(text)),
            (None, true) => Some(Ending::Finished(text)),
            _ => None,
        };
        let unknown = answer
            .stop
            .word()
            .filter(|word| answer.stop.is_unknown() && self.engine.warns_of_stop(&choice.model, word));
        let warning = unknown.map(|word| {
            let (model, provider) = (&choice.model, &choice.entry.name);
            let warning =
                format!("{model} ({provider}) stopped with `{word}`, which Ghost does not know; its answer is used");
            let payload = json!({ "warning": warning, "model": model, "provider": provider, "reason": word });
            NewEvent::new(EventKind::WorldWarning, payload).agent(&self.agent_id)
        });
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
        let mut start = None;
        if ending.is_none()
            && flaw.is_none()
            && let [call] = calls.as_slice()
        {
            let checked = self.check_whole(call.clone()).await?;
            start = match &checked {
                Ok(checked) if checked.run.effect() == Effect::Outside && checked.needs_approval.is_none() => {
                    Some(self.call_start(checked, CallId(self.engine.services.ctx.id()), Vec::new()))
                }
                _ => None,
            };
            self.prepared = Some((checked, start.as_ref().map(|start| start.call_id)));
        }
        let (ctx, turn_id, note, ended) =
            (self.engine.services.ctx.clone(), self.turn.turn_id, flaw.clone(), ending.is_some());
        let journaled = self.store_answer(&choice.model, move |w| {
            let turn = turns::model_answered(w, &ctx, turn_id, result)?;
            if let Some(warning) = warning {
                ctx.emit(w, warning)?;
            }
            if let Some((malformed, note)) = note {
                if let Some(fragment) = malformed {
                    turns::malformed(w, &ctx, &turn, &fragment)?;
                }
                turns::note(w, &ctx, turn_id, &note)?;
            }
            if let Some(start) = start {
                turns::record_call_start(w, &ctx, &turn, &start)?;
            }
            match ending {
                Some(Ending::Failed(refusal)) => turns::fail(w, &ctx, turn_id, refusal),
                Some(ending) => turns::finish(w, &ctx, turn_id, ending),
                None => Ok(turn),
            }
        });
        self.turn = journaled.await?;
        self.messages_mut().push(message);
        if ended {
            return Ok(Thought::Ended);
        }
        self.rounds += 1;
        self.failures.clear();
        if let Some((_, note)) = flaw {
            self.corrections += 1;
            self.messages_mut().push(Message::text(Role::User, note));
            return Ok(Thought::Corrected);
        }
        self.open = calls;
        Ok(Thought::Calls)
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
                let (ctx, model, why) = (self.engine.services.ctx.clone(), model.to_owned(), refusal.message.clone());
                let note =
                    retry_write::attempt(&self.engine, move |w| turns::answer_waits(w, &ctx, turn_id, &model, &why));
                match note.await {
                    Ok(()) => noted = true,
                    Err(WriteError::Transient(_)) => {}
                    Err(WriteError::Refused(refusal)) => return Err(refusal),
                }
            }
            retry_write::wait(&self.engine, turn_id, &mut pauses, &refusal).await;
        }
    }
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
/// as text (TOOL-13), or it was truncated before any text. Returns the fragment of the call, for
/// the ledger, and the correction for the model.
fn flaw(malformed: Option<String>, text: &str, stop: &Stop) -> Option<(Option<String>, String)> {
    if let Some(fragment) = malformed {
        let note = "Your last answer held a tool call written as text. Nothing was run. Make the call through the tool \
                    interface, or answer in plain words.";
        return Some((Some(fragment), note.to_owned()));
    }
    if stop.is_cut() && text.trim().is_empty() {
        let note = "Your last answer was cut before it had any text. Answer again, and more briefly.";
        return Some((None, note.to_owned()));
    }
    None
}
