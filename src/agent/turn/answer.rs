//! What an answer comes to: the turn's last word, calls to be made, or a correction; and its record, which is not let go of
//! while the store cannot take it.
//!
//! Must never: lose an answer that was paid for, or ask for it again, because of the store.

use std::time::Duration;

use ghost_domain::journal::Effect;
use ghost_domain::time::BoxFuture;
use ghost_domain::transcript::{Message, Role};
use ghost_domain::{CallId, Code, Refusal, ReservationId, Turn};
use ghost_provider::{ModelAnswer, Stop};
use ghost_rules::turns::{self, Ending, ModelResult};
use ghost_store::Writes;

use super::keep::{self, Pauses, Unkept};
use super::parsed_answer::ParsedAnswer;
use super::round::Choice;
use super::runner::Runner;
use super::think::Thought;
use crate::transcript::{OpenCall, with_unique_ids};

/// Corrections of malformed calls before a turn is ended.
const CORRECTIONS_MAX: u32 = 3;

impl Runner {
    /// Journals an answer with what follows from it.
    pub(super) async fn answered(
        &mut self,
        choice: &Choice,
        reservation_id: ReservationId,
        answer: ModelAnswer,
        said: ParsedAnswer,
        took: Duration,
    ) -> Result<Thought, Refusal> {
        self.guard.answered();
        let blocks = with_unique_ids(answer.blocks);
        let message = Message { role: Role::Assistant, blocks: blocks.clone() };
        let calls: Vec<OpenCall> = message
            .calls()
            .map(|(id, name, arguments)| OpenCall {
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: arguments.clone(),
                begun: None,
            })
            .collect();
        let ParsedAnswer { words: said, malformed, .. } = said;
        let refused = matches!(answer.stop, Stop::Refused(_));
        let flaw = if calls.is_empty() && !refused { flaw(malformed, &said, &answer.stop) } else { None };
        let hopeless = flaw.is_some() && self.corrections >= CORRECTIONS_MAX;
        let ending = match (&flaw, calls.is_empty()) {
            (Some(_), _) if hopeless => Some(Ending::Failed(
                Refusal::new(
                    Code::InvalidArguments,
                    format!("{} was corrected {CORRECTIONS_MAX} times and still gave no whole answer", choice.model),
                )
                .hint("see its last answers with `ghostctl turn show`; another model may do better"),
            )),
            // What came before is no answer, and who broke off meant none of the calls to be made.
            _ if refused => Some(Ending::Failed(refusal(&choice.model, &answer.stop, calls.len(), &said))),
            (None, true) if answer.stop.is_cut() => Some(Ending::Cut(said)),
            (None, true) => Some(Ending::Finished(said)),
            _ => None,
        };
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
        // One call alone is begun by the transaction that journals the answer.
        let mut start = None;
        if ending.is_none()
            && flaw.is_none()
            && let [call] = calls.as_slice()
        {
            let checked = self.check(call.clone());
            start = match &checked {
                Ok(checked) if checked.run.effect() == Effect::Outside => {
                    Some(self.call_start(checked, CallId(self.engine.services.ctx.id()), None))
                }
                _ => None,
            };
            self.prepared = Some((checked, start.as_ref().map(|start| start.call_id)));
        }
        let (ctx, turn_id, note, ended) =
            (self.engine.services.ctx.clone(), self.turn.turn_id, flaw.clone(), ending.is_some());
        let held = self.held.clone();
        let journaled = self.keep_answer(&choice.model, move |w| {
            Box::pin(async move {
                let turn = turns::model_answered(w, &ctx, turn_id, result).await?;
                if let Some((malformed, note)) = note {
                    if let Some(fragment) = malformed {
                        turns::malformed(w, &ctx, &turn, &fragment).await?;
                    }
                    turns::note(w, &ctx, turn_id, &note).await?;
                }
                if let Some(start) = start {
                    turns::record_call_start(w, &ctx, &turn, &start).await?;
                }
                match ending {
                    Some(ending) => turns::finish_held(w, &ctx, turn_id, ending, held).await,
                    None => Ok(turn),
                }
            })
        });
        self.turn = journaled.await?;
        if ended {
            return Ok(Thought::Ended);
        }
        self.rounds += 1;
        self.failures.clear();
        self.messages.push(message);
        if let Some((_, note)) = flaw {
            self.corrections += 1;
            self.messages.push(Message::text(Role::User, note));
            return Ok(Thought::Corrected);
        }
        self.open = calls;
        Ok(Thought::Calls)
    }

    /// Journals an answer, and does not let go of it while the store cannot take it: asking again would cost as much again.
    /// That an answer waits is journaled as soon as that much can be, so that a daemon that dies before the store has taken
    /// it counts the attempt.
    async fn keep_answer<F>(&self, model: &str, journal: F) -> Result<Turn, Refusal>
    where
        F: for<'t> FnOnce(&'t mut dyn Writes) -> BoxFuture<'t, Result<Turn, Refusal>> + Clone + Send + 'static,
    {
        let (mut pauses, mut told) = (Pauses::default(), false);
        let turn_id = self.turn.turn_id;
        loop {
            let refusal = match keep::attempt(&self.engine, journal.clone()).await {
                Ok(turn) => return Ok(turn),
                Err(Unkept::Refused(refusal)) => return Err(refusal),
                Err(Unkept::Passing(refusal)) => refusal,
            };
            if !told {
                let (ctx, model, why) = (self.engine.services.ctx.clone(), model.to_owned(), refusal.message.clone());
                let waits = keep::attempt(&self.engine, move |w| {
                    Box::pin(async move { turns::answer_waits(w, &ctx, turn_id, &model, &why).await })
                });
                match waits.await {
                    Ok(()) => told = true,
                    Err(Unkept::Passing(_)) => {}
                    Err(Unkept::Refused(refusal)) => return Err(refusal),
                }
            }
            keep::wait(&self.engine, turn_id, &mut pauses, &refusal).await;
        }
    }
}

/// Why a turn ends whose model, or its provider, would not go on.
fn refusal(model: &str, stop: &Stop, calls: usize, said: &str) -> Refusal {
    let what = match (calls, said.trim()) {
        (0, "") => format!("{model} refused to answer"),
        (0, _) => format!("{model} refused to go on with its answer"),
        _ => format!("{model} refused to go on with its answer, and its tool calls were not run"),
    };
    let look = if calls == 0 && said.trim().is_empty() { "" } else { "; `ghostctl turn show` has what it said" };
    let why = match stop {
        Stop::Refused(Some(why)) => format!(" ({})", ghost_domain::text::clip(why, 100)),
        _ => String::new(),
    };
    Refusal::new(Code::PolicyDenied, format!("{what}{why}"))
        .hint(format!("put the request differently, or give it to another model{look}"))
}

/// What is wrong with an answer without calls that is no last word: a call that was written as text (TOOL-13), with its
/// fragment for the ledger, or nothing `said` because the answer was cut. Beside it, what the model is told.
fn flaw(malformed: Option<String>, said: &str, stop: &Stop) -> Option<(Option<String>, String)> {
    if let Some(fragment) = malformed {
        let note = "Your last answer held a tool call written as text. Nothing was run. Make the call through the tool \
                    interface, or answer in plain words.";
        return Some((Some(fragment), note.to_owned()));
    }
    if stop.is_cut() && said.trim().is_empty() {
        let note = "Your last answer was cut before it said anything. Answer again, and more briefly.";
        return Some((None, note.to_owned()));
    }
    None
}
