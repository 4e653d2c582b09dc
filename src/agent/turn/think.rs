//! Thinking: one answer of a model, with its attempts, fall-backs and budget (DESIGN.md section 2, 5; LOOP-09).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_immediate;
use ghost_commons::budgets::Demand;
use ghost_commons::turns::{self, Ending, ModelResult};
use ghost_domain::budget::{Allowance, Price};
use ghost_domain::journal::Effect;
use ghost_domain::transcript::{Message, Role};
use ghost_domain::{Activity, CallId, Code, Limits, Refusal, ReservationId};
use ghost_provider::{
    Charge, Entry, ErrorKind, ModelAnswer, ModelRequest, Next, ProviderError, Stop, clean_visible, decide,
    estimate_with, malformed_tool_call,
};

use super::stream::Streamer;
use super::wait::within;
use super::{CORRECTIONS_MAX, Runner};
use crate::transcript::{OpenCall, fit, with_unique_ids};

/// What came of thinking.
pub(super) enum Thought {
    /// The model wants tools; they are in `open`.
    Calls,
    /// It was told to correct itself.
    Corrected,
    /// It had its last word, and the turn's end is committed.
    Ended,
    /// No answer can be had.
    Failed(Refusal),
}

/// A model at a provider.
struct Choice {
    entry: Arc<Entry>,
    model: String,
    price: Option<Price>,
}

impl Runner {
    pub(super) async fn think(&mut self) -> Result<Thought, Refusal> {
        let choices = match self.choices() {
            Ok(choices) => choices,
            Err(refusal) => return Ok(Thought::Failed(refusal)),
        };
        // A resumed turn does not begin its attempts anew, or a daemon that keeps dying would ask for ever.
        let mut at = 0;
        let mut failed = 0;
        for model in &self.failures {
            if let Some(position) = choices.iter().position(|choice| choice.model == *model)
                && position >= at
            {
                failed = if position == at { failed + 1 } else { 1 };
                at = position;
            }
        }
        if failed > 0 && failed >= choices[at].entry.plan.attempts && at + 1 < choices.len() {
            at += 1;
            failed = 0;
        }
        loop {
            let choice = &choices[at];
            self.show(Activity::Queued);
            let slot = {
                let mut admission = pin!(choice.entry.pool.admit());
                match poll_immediate(&mut admission).await {
                    Some(slot) => slot,
                    None => {
                        // Nobody knows how long that takes: what is known is recorded first.
                        self.flush().await?;
                        admission.await
                    }
                }
            };
            self.show(Activity::Thinking);
            let mut request = self.request(&choice.model);
            let (reservation_id, allowance) = match self.start(choice, &request).await? {
                Ok(started) => started,
                Err(refusal) => return Ok(Thought::Failed(refusal)),
            };
            request.max_tokens = allowance.max_tokens;
            let clock = self.clock();
            let began = clock.now();
            let mut deltas = Streamer::new(self);
            let most = self.at_most(Limits::seconds(self.limits().model_seconds));
            let answered = within(&*clock, most, choice.entry.provider.complete(&request, &mut deltas)).await;
            deltas.end();
            drop(slot);
            let took = clock.now().since(began);
            self.worked += took;
            let error = match answered {
                Some(Ok(answer)) => return self.answered(choice, reservation_id, answer, took).await,
                Some(Err(error)) => error,
                None => {
                    let setting = if self.timed { "the job's own time" } else { "limits.model_seconds" };
                    let text = format!("no answer within {} s ({setting})", most.as_secs());
                    ProviderError::new(ErrorKind::Timeout, text)
                }
            };
            failed += 1;
            let over = if self.timed { self.out_of_time() } else { None };
            self.failed(choice, reservation_id, &error).await?;
            if let Some(refusal) = over {
                return Ok(Thought::Failed(refusal));
            }
            if let Some(wait) = error.retry_after.filter(|wait| *wait <= choice.entry.plan.retry_cap) {
                choice.entry.pool.cool_down(clock.now().plus(wait));
            }
            let jitter = self.engine.office.cx.ports.rng.below(1_000);
            match decide(failed, &error, &choice.entry.plan, choices.len() - at - 1, jitter) {
                Next::Retry(wait) => {
                    self.show(Activity::Queued);
                    clock.sleep(wait).await;
                }
                Next::Fallback => {
                    at += 1;
                    failed = 0;
                }
                Next::GiveUp => {
                    let refusal = Refusal::new(
                        Code::Unavailable,
                        format!("no model answered: {} ({}): {}", choice.model, choice.entry.name, error.message),
                    )
                    .hint(
                        "see `ghostctl events --kind model.failed`; the mail of this turn is not tried again by itself",
                    );
                    return Ok(Thought::Failed(refusal));
                }
            }
        }
    }

    /// The models to try, in order.
    fn choices(&self) -> Result<Vec<Choice>, Refusal> {
        let providers = self.engine.providers();
        let plan = self.engine.office.plan();
        let first = self.spec.model.provider.clone().unwrap_or_else(|| plan.llm.default_provider.clone());
        let model = self.spec.model.model.clone().unwrap_or_else(|| plan.llm.default_model.clone());
        let mut wanted = vec![(first.clone(), model)];
        for fallback in &self.spec.model.fallback_models {
            match fallback.split_once('/') {
                Some((provider, model)) if providers.get(provider).is_some() => {
                    wanted.push((provider.to_owned(), model.to_owned()));
                }
                _ => wanted.push((first.clone(), fallback.clone())),
            }
        }
        wanted
            .into_iter()
            .map(|(provider, model)| {
                let entry = providers.get(&provider).ok_or_else(|| {
                    Refusal::new(Code::Unavailable, format!("there is no provider `{provider}`"))
                        .hint("name it under llm.providers in world-config.yaml")
                })?;
                let price = ghost_provider::price(&plan.llm, &provider, entry.plan.kind, &model);
                Ok(Choice { entry, model, price })
            })
            .collect()
    }

    fn request(&self, model: &str) -> ModelRequest {
        let mut messages = self.messages.clone();
        fit(&mut messages, self.opening_messages, self.spec.limits.context_bytes as usize);
        ModelRequest {
            agent_id: self.agent_id.clone(),
            turn_id: self.turn.turn_id,
            model: model.to_owned(),
            system: self.system.text.clone(),
            messages,
            tools: self.registry.specs(),
            max_tokens: u64::from(self.spec.limits.answer_tokens),
            temperature: self.spec.model.temperature,
            thinking: self.spec.model.thinking.clone(),
        }
    }

    /// Journals the prompt, if it is not there yet, and the start of the call, with its budget. The inner refusal is the
    /// budget's.
    async fn start(
        &mut self,
        choice: &Choice,
        request: &ModelRequest,
    ) -> Result<Result<(ReservationId, Allowance), Refusal>, Refusal> {
        let demand = Demand {
            model: choice.model.clone(),
            input: estimate_with(request, self.engine.tool_bytes(&request.tools)),
            max_tokens: request.max_tokens,
            price: choice.price,
        };
        let (cx, turn_id) = (self.engine.office.cx.clone(), self.turn.turn_id);
        let unrecorded = self.unrecorded.clone();
        let prompt =
            (!self.briefed).then(|| (Arc::clone(&self.system), Arc::clone(&self.briefing), self.opening.clone()));
        let started = self
            .engine
            .office
            .store
            .write(move |w| {
                Box::pin(async move {
                    if let Some(unrecorded) = unrecorded {
                        unrecorded.record(w, &cx, turn_id).await?;
                    }
                    if let Some((system, briefing, (recent, mail))) = prompt {
                        let (system, briefing) = ((&*system.hash, &*system.text), (&*briefing.hash, &*briefing.text));
                        turns::brief(w, &cx, turn_id, system, briefing, recent, mail).await?;
                    }
                    turns::model_started(w, &cx, turn_id, &demand).await
                })
            })
            .await;
        match started {
            Ok(started) => {
                self.briefed = true;
                self.unrecorded = None;
                Ok(Ok(started))
            }
            Err(refusal) if refusal.code == Code::BudgetExhausted => Ok(Err(refusal)),
            Err(refusal) => Err(refusal),
        }
    }

    async fn failed(
        &self,
        choice: &Choice,
        reservation_id: ReservationId,
        error: &ProviderError,
    ) -> Result<(), Refusal> {
        let (cx, turn_id, model) = (self.engine.office.cx.clone(), self.turn.turn_id, choice.model.clone());
        let (text, billed) = (format!("{}: {}", error.kind.as_str(), error.message), error.charge == Charge::Unknown);
        self.engine
            .office
            .store
            .write(move |w| {
                Box::pin(
                    async move { turns::model_failed(w, &cx, turn_id, reservation_id, &model, &text, billed).await },
                )
            })
            .await
    }

    async fn answered(
        &mut self,
        choice: &Choice,
        reservation_id: ReservationId,
        answer: ModelAnswer,
        took: Duration,
    ) -> Result<Thought, Refusal> {
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
        let visible = message.visible_text();
        let flaw = if calls.is_empty() { flaw(&visible, &answer.stop) } else { None };
        let hopeless = flaw.is_some() && self.corrections >= CORRECTIONS_MAX;
        let ending = match (&flaw, calls.is_empty()) {
            (Some(_), _) if hopeless => Some(Ending::Failed(
                Refusal::new(
                    Code::InvalidArguments,
                    format!("{} was corrected {CORRECTIONS_MAX} times and still gave no whole answer", choice.model),
                )
                .hint("see its last answers with `ghostctl turn show`; another model may do better"),
            )),
            (None, true) if answer.stop == Stop::Refused && visible.trim().is_empty() => Some(Ending::Failed(
                Refusal::new(Code::PolicyDenied, format!("{} refused to answer", choice.model))
                    .hint("put the request differently, or give it to another model"),
            )),
            (None, true) => Some(Ending::Finished(clean_visible(&visible))),
            _ => None,
        };
        let result = ModelResult {
            reservation_id,
            provider: choice.entry.name.clone(),
            model: answer.model,
            blocks,
            usage: answer.usage,
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
                    Some(self.call_start(checked, CallId(self.engine.office.cx.id()), None))
                }
                _ => None,
            };
            self.prepared = Some((checked, start.as_ref().map(|start| start.call_id)));
        }
        let (cx, turn_id, note, ended) =
            (self.engine.office.cx.clone(), self.turn.turn_id, flaw.clone(), ending.is_some());
        let held = self.held.clone();
        self.turn = self
            .engine
            .office
            .store
            .write(move |w| {
                Box::pin(async move {
                    let turn = turns::model_answered(w, &cx, turn_id, result).await?;
                    if let Some((malformed, note)) = note {
                        if let Some(fragment) = malformed {
                            turns::malformed(w, &cx, &turn, &fragment).await?;
                        }
                        turns::note(w, &cx, turn_id, &note).await?;
                    }
                    if let Some(start) = start {
                        turns::record_call_start(w, &cx, &turn, &start).await?;
                    }
                    match ending {
                        Some(ending) => turns::finish_held(w, &cx, turn_id, ending, held).await,
                        None => Ok(turn),
                    }
                })
            })
            .await?;
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
}

/// What is wrong with an answer without calls that is no last word: a call that was written as text (TOOL-13), with its
/// fragment for the ledger, or nothing at all because the answer was cut. Beside it, what the model is told.
fn flaw(visible: &str, stop: &Stop) -> Option<(Option<String>, String)> {
    if let Some(fragment) = malformed_tool_call(visible) {
        let note = "Your last answer held a tool call written as text. Nothing was run. Make the call through the tool \
                    interface, or answer in plain words.";
        return Some((Some(fragment), note.to_owned()));
    }
    if *stop == Stop::MaxTokens && visible.trim().is_empty() {
        let note = "Your last answer was cut before it said anything. Answer again, and more briefly.";
        return Some((None, note.to_owned()));
    }
    None
}
