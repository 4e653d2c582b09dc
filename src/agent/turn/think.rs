//! Gets one answer from a model, with attempts, fall-backs and budget. Each attempt passes the gate, waits for a
//! slot, reserves budget, and calls. [`Attempts`] decides what follows from a failure; this module does it.
//!
//! No call may begin before its start and its reservation are in the journal.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_immediate;
use ghost_domain::admission::is_unpriced;
use ghost_domain::model_facts::{ModelFacts, Thinking, ThinkingControl};
use ghost_domain::transcript::Block;
use ghost_domain::{Activity, Code, Limits, Refusal, ReservationId, Scope, budget};
use ghost_operations::budgets::{Demand, Reserved, Settlement, Taken};
use ghost_operations::{droids, turns};
use ghost_provider::{Charge, ErrorKind, ModelAnswer, ModelRequest, Pass, ProviderError, Slot, estimate_with, is_long};

use super::answer::{ParsedAnswer, Thought};
use super::attempts::{Attempts, Facts, Remedy, Sent, Step};
use super::conversation::Reader;
use super::gate::{Admission, Changes, Choice, ModelCall, Unanswered, answers_of, registered, unanswered};
use super::runner::{End, Prompt, Runner, limit_reached, within};
use crate::budget_queue::Ticket;
use crate::images;
use crate::prompt;
use crate::stream::Streamer;

/// A call that failed.
struct Failed {
    error: ProviderError,
    reservation_id: ReservationId,
    took: Duration,
    /// Whether it had so little time that its time-out says nothing about the model.
    cut_short: bool,
    /// The visible text that had arrived.
    partial: Option<String>,
}

/// A request that failed, as the attempts ask about it.
struct Request<'a> {
    runner: &'a Runner,
    choice: &'a Choice,
    request: &'a ModelRequest,
}

impl Sent for Request<'_> {
    fn has_state(&self) -> bool {
        self.runner.conversation.has_state()
    }

    fn shows_images(&self) -> bool {
        let mut blocks = self.request.messages.iter().flat_map(|message| &message.blocks);
        blocks.any(|block| matches!(block, Block::Image { .. }))
    }

    fn is_long(&self) -> bool {
        let window = self.request.window_tokens.map(u64::from).or(self.choice.facts.context_tokens);
        is_long(self.runner.input_of(self.request), window)
    }

    fn shorter(&self) -> Option<usize> {
        self.runner.conversation.shorter(&self.runner.reader(self.choice), &self.request.messages)
    }
}

impl Runner {
    /// Gets the next answer, if the turn may ask for one. With `may_guide`, guidance that has come for a droid goes before
    /// the call.
    pub(super) async fn call(&mut self, admission: Option<Admission>, may_guide: bool) -> Thought {
        match self.may_call().await {
            Ok(()) => self.think(admission, may_guide).await,
            Err(end) => Thought::End(end),
        }
    }

    /// Whether the turn may ask for another answer. It takes the tools that there are now.
    async fn may_call(&mut self) -> Result<(), End> {
        // All steps before are journaled, so a resumed turn repeats and pays for none of them.
        if self.session.must_yield() {
            return Err(End::Yielded);
        }
        let rounds = self.progress.rounds;
        if rounds >= self.terms.spec.limits.turn_rounds_max {
            let what = format!("the turn made {rounds} model calls, which is its limit");
            return Err(End::With(self.at_bound(limit_reached(what, "turn_rounds_max"), true, None)));
        }
        if let Some(refusal) = self.out_of_time() {
            return Err(End::With(self.at_bound(refusal, true, None)));
        }
        Ok(self.take_tools().await?)
    }

    /// Asks models until one has answered.
    async fn think(&mut self, admission: Option<Admission>, may_guide: bool) -> Thought {
        let mut call = match self.model_call(admission, may_guide) {
            Ok(call) => call,
            Err(refusal) => return Thought::End(End::Failed(refusal)),
        };
        loop {
            let end = match self.attempt(&mut call).await {
                Ok(thought) => return thought,
                Err(Unanswered::Again) => continue,
                Err(Unanswered::RoundOver) => match self.next_round(&mut call).await {
                    Ok(()) => continue,
                    Err(end) => end,
                },
                Err(Unanswered::Guided) => {
                    drop(call);
                    match self.take_guidance().await {
                        // Mail that does not join this turn waits for the next.
                        Ok(joined) => return Thought::Guided(joined),
                        Err(refusal) => refusal.into(),
                    }
                }
                Err(Unanswered::End(end)) => end,
            };
            return Thought::End(end);
        }
    }

    fn model_call(&self, admission: Option<Admission>, may_guide: bool) -> Result<ModelCall, Refusal> {
        let choices = self.choices()?;
        let attempts = Attempts::resume(&choices, &self.progress.failures, answers_of(&choices));
        let attempts = attempts.map_err(|(at, failed)| {
            unanswered(&format!("{} has failed {failed} times in this turn", choices[at].model))
        })?;
        let (ticket, worked) = (Ticket::new(&self.engine.queue), self.progress.worked);
        Ok(ModelCall { choices, attempts, ticket, admission, may_guide, worked })
    }

    /// Makes one attempt.
    async fn attempt(&mut self, call: &mut ModelCall) -> Result<Thought, Unanswered> {
        let admission = self.slot(call).await?;
        let mut request = self.request(call.choice()).await;
        let (reservation_id, Admission { pass, slot }) = self.reserve(call, &mut request, admission).await?;
        let choice = call.choice();
        match self.ask_model(choice, &request, reservation_id, slot).await {
            Ok((answer, took)) => {
                self.is_up(choice, pass.answered()).await?;
                let parsed = ParsedAnswer::read(&answer, self.engine.reasons_first(&choice.model)).await?;
                // Remembered whether or not anyone subscribes to the stream.
                if let Some(first) = parsed.reasons_first {
                    self.engine.set_reasons_first(&choice.model, first);
                }
                // The answer joins the messages, which this request would share.
                drop(request);
                Ok(self.answered(choice, reservation_id, answer, parsed, took).await?)
            }
            Err(failed) => Err(self.failed(call, request, failed, pass).await?),
        }
    }

    /// Passes the gate and waits for a slot.
    async fn slot(&mut self, call: &mut ModelCall) -> Result<Admission, Unanswered> {
        let (pass, slot) = self.gate(call).await?;
        let pool = &call.choices[call.attempts.at()].entry.pool;
        self.show(Activity::Queued);
        let slot = if let Some(slot) = slot.filter(|slot| slot.is_of(pool)) {
            slot
        } else {
            let mut admission = pin!(pool.admit(self.terms.class));
            match poll_immediate(&mut admission).await {
                Some(slot) => slot,
                None => {
                    // This wait may be long. So the pending result is recorded first, and calls
                    // that wait only for budget continue.
                    call.ticket.pass_on();
                    self.flush().await?;
                    admission.await
                }
            }
        };
        // The model may have gone down while this call waited in the queue.
        if pass.is_stale() { Err(Unanswered::Again) } else { Ok(Admission { pass, slot }) }
    }

    /// Reserves budget for a call and journals its start. While it waits for budget, it holds neither its slot nor its pass:
    /// other calls may use them, and other accounts may pay for those.
    async fn reserve(
        &mut self,
        call: &mut ModelCall,
        request: &mut ModelRequest,
        admission: Admission,
    ) -> Result<(ReservationId, Admission), Unanswered> {
        let (engine, session) = (Arc::clone(&self.engine), Arc::clone(&self.session));
        let behind = call.ticket.check();
        let changes = Changes::begin(&engine, &session, vec![registered(engine.queue.limits_changed.notified())]);
        // The day may end before the turn waits.
        let next_day = budget::next_day(engine.services.ctx.now());
        let limit_changes = engine.queue.limit_changes();
        // If a fall-back does not fit the budget, the turn does not wait for budget while
        // another model may answer again.
        let another = call.attempts.has_another();
        let demand = self.demand(call.choice(), request, behind, another);
        match self.start(demand, call.may_guide).await? {
            Ok(Reserved::Granted(reservation_id, allowance)) => {
                call.ticket.leave();
                request.max_tokens = allowance.max_tokens;
                return Ok((reservation_id, admission));
            }
            Ok(Reserved::Waits(scope)) => {
                drop(admission);
                call.ticket.wait(scope).await;
            }
            Ok(Reserved::Spent(_)) if another => {
                drop(admission);
                call.ticket.leave();
                call.attempts.cannot_afford(limit_changes);
            }
            Ok(Reserved::Spent(Scope::Root(_))) => return Err(Unanswered::End(End::SetAside)),
            Ok(Reserved::Spent(scope)) => {
                drop(admission);
                call.ticket.leave();
                if self.wait_for_budget(&scope, next_day, changes).await {
                    return Err(Unanswered::End(End::Reopened));
                }
                call.attempts.restart();
            }
            // A fall-back without a price is skipped; the next one may have one.
            Err(refusal) if call.attempts.at() > 0 && is_unpriced(&refusal) => {
                // The writes and the waits that follow may take long.
                drop(admission);
                return Err(self.pass_over(call, request, &refusal).await?);
            }
            Err(refusal) => {
                let ending = self.at_bound(refusal.clone(), false, None);
                let has_text = ending.text().is_some();
                return Err(Unanswered::End(if has_text { End::With(ending) } else { End::Failed(refusal) }));
            }
        }
        Err(Unanswered::Again)
    }

    /// Calls a model. The slot is held as long as the call runs.
    async fn ask_model(
        &mut self,
        choice: &Choice,
        request: &ModelRequest,
        reservation_id: ReservationId,
        slot: Slot,
    ) -> Result<(ModelAnswer, Duration), Failed> {
        self.show(Activity::Thinking);
        let (clock, limits) = (Arc::clone(self.clock()), self.limits());
        let began = clock.steady();
        let whole = Limits::seconds(limits.model_seconds);
        let limit = whole.min(self.time_left());
        let mut deltas = Streamer::new(&self.engine, &self.turn, &choice.model, limit < whole);
        let answered = within(&*clock, limit, choice.entry.provider.complete(request, &mut deltas)).await;
        let partial = deltas.end();
        drop(slot);
        let took = clock.steady().since(began);
        self.progress.worked += took;
        let cut_short = answered.is_none() && limit < whole.min(Limits::seconds(limits.turn_seconds)) / 2;
        let error = match answered {
            Some(Ok(answer)) => return Ok((answer, took)),
            Some(Err(error)) => error,
            None => {
                let setting = if limit < whole { "the turn's own time" } else { "limits.model_seconds" };
                let text = format!("no answer within {} s ({setting})", limit.as_secs());
                ProviderError::new(ErrorKind::Timeout, text)
            }
        };
        Err(Failed { error, reservation_id, took, cut_short, partial })
    }

    /// Journals a failure, reports it to its model, and does what follows from it.
    async fn failed(
        &mut self,
        call: &mut ModelCall,
        request: ModelRequest,
        failed: Failed,
        pass: Pass,
    ) -> Result<Unanswered, Refusal> {
        let choice = &call.choices[call.attempts.at()];
        let half = Limits::seconds(self.terms.spec.limits.turn_seconds) / 2;
        let facts = Facts {
            out_of_time: self.out_of_time(),
            own_work: self.terms.timed || call.worked >= half,
            cut_short: failed.cut_short,
            jitter: self.engine.services.ctx.ports.rng.below(1_000),
        };
        let sent = Request { runner: self, choice, request: &request };
        let mut verdict = call.attempts.judge(&call.choices, &failed.error, facts, &sent);
        // A remedy changes the messages, which this request would share.
        drop(request);
        self.journal_failure(choice, &failed, verdict.remedy).await?;
        let Failed { error, partial, .. } = failed;
        // What looks permanent is the model's fault if other agents get it too.
        if verdict.is_final() && !choice.answers_here() && pass.refused(&self.turn.agent_id, &error) {
            verdict.blame_model();
        }
        let plan = &choice.entry.plan;
        if verdict.is_of_model() {
            call.attempts.reported(error.kind, choice.answers());
            let began = pass.failed(&error, (plan.attempts, plan.retry_cap));
            self.is_down(choice, began).await?;
        } else {
            drop(pass);
        }
        let is_down = choice.entry.breaker.outage(&choice.model).is_some();
        let asked = error.retry_after.filter(|wait| *wait <= plan.retry_cap);
        let step = call.attempts.conclude(verdict, error, is_down);
        if let Some(wait) = asked.filter(|_| !matches!(step, Step::OutOfTime(_) | Step::Remedy(_))) {
            choice.entry.pool.cool_down(self.clock().steady().plus(wait));
        }
        self.follow(call, step, partial).await
    }

    /// Does what the attempts have decided. `partial` is what arrived of the last answer.
    async fn follow(&mut self, call: &ModelCall, step: Step, partial: Option<String>) -> Result<Unanswered, Refusal> {
        let end = match step {
            Step::Ask => return Ok(Unanswered::Again),
            Step::Retry(pause) => {
                self.show(Activity::Queued);
                self.clock().sleep(pause).await;
                return Ok(Unanswered::Again);
            }
            Step::Remedy(remedy) => {
                self.conversation.apply(remedy);
                return Ok(Unanswered::Again);
            }
            Step::FallBack { down } | Step::NextRound { down } => {
                if down {
                    self.exhausted(call).await?;
                }
                let is_over = matches!(step, Step::NextRound { .. });
                return Ok(if is_over { Unanswered::RoundOver } else { Unanswered::Again });
            }
            Step::OutOfTime(refusal) => End::With(self.at_bound(refusal, true, partial)),
            Step::GiveUp => End::Failed(call.refused()),
        };
        Ok(Unanswered::End(end))
    }

    /// Passes over a fall-back without a price. If it was the last one, the conversation is shortened for the model that
    /// refused it as too long.
    async fn pass_over(
        &mut self,
        call: &mut ModelCall,
        request: &ModelRequest,
        refusal: &Refusal,
    ) -> Result<Unanswered, Refusal> {
        let choice = call.choice();
        let refused_by = call.attempts.too_long_for();
        let shorter = refused_by.and_then(|_| self.conversation.shorter(&self.reader(choice), &request.messages));
        let shortened = refused_by.zip(shorter);
        let shortened_of = shortened.map(|(of, limit)| (call.choices[of].model.clone(), limit));
        let (model, why) = (choice.model.clone(), refusal.message.clone());
        self.write_with_retry(move |w, turn_id| {
            turns::passed_over(w, turn_id, &model, &why)?;
            match shortened_of {
                Some((of, limit)) => turns::shortened(w, turn_id, &of, limit as u64),
                None => Ok(()),
            }
        })
        .await?;
        if let Some((_, limit)) = shortened {
            self.conversation.apply(Remedy::Shorten(limit));
        }
        let step = call.attempts.pass_over(shortened.map(|(of, _)| of));
        self.follow(call, step, None).await
    }

    /// Maximum tokens of an answer, including reasoning. A model that is asked to reason gets
    /// additional tokens.
    fn answer_room(&self, facts: &ModelFacts) -> u64 {
        // These models reason even if not asked.
        let unasked = matches!(facts.thinking, ThinkingControl::Effort | ThinkingControl::AlwaysAdaptive);
        let thinking = self.terms.spec.model.thinking.or(unasked.then_some(Thinking::Medium));
        let thinking = thinking.filter(|_| facts.thinking != ThinkingControl::Never);
        let thoughts = thinking.map_or(0, |thinking| facts.thinking_budget(thinking));
        let room = u64::from(self.terms.spec.limits.answer_tokens).saturating_add(thoughts);
        facts.output_tokens.map_or(room, |limit| room.min(limit))
    }

    /// For whom the conversation is made ready in a request to this model.
    fn reader<'a>(&self, choice: &'a Choice) -> Reader<'a> {
        let once = self.terms.spec.limits.result_once_bytes as usize;
        Reader { kind: choice.entry.plan.kind, facts: &choice.facts, once }
    }

    async fn request(&self, choice: &Choice) -> ModelRequest {
        let (mut messages, past) = self.conversation.for_model(&self.reader(choice));
        if images::has_images(&messages) {
            images::load(&self.engine.services.workspace, Arc::<Vec<_>>::make_mut(&mut messages)).await;
        }
        let (spec, offer) = (&self.terms.spec, self.tools.registry.offer());
        ModelRequest {
            agent_id: self.turn.agent_id.clone(),
            turn_id: self.turn.turn_id,
            provider: choice.entry.author(),
            model: choice.model.clone(),
            facts: Arc::clone(&choice.facts),
            system: self.prompt.system.text.clone(),
            messages,
            past,
            tools: Arc::clone(&offer.sent),
            deferred: Arc::clone(&offer.deferred),
            max_tokens: self.answer_room(&choice.facts),
            calls_bytes: self.limits().calls_bytes(),
            temperature: spec.model.temperature,
            thinking: spec.model.thinking,
            window_tokens: spec.limits.window_tokens,
        }
    }

    /// An estimate of the tokens of a request.
    fn input_of(&self, request: &ModelRequest) -> u64 {
        estimate_with(request, self.engine.tool_bytes(&request.tools))
    }

    /// What a call may cost. It must wait if one of its accounts is in `behind`, the accounts for which earlier calls wait.
    fn demand(&self, choice: &Choice, request: &ModelRequest, behind: BTreeSet<Scope>, another: bool) -> Demand {
        Demand {
            provider: choice.entry.name.clone(),
            model: choice.model.clone(),
            input: self.input_of(request),
            max_tokens: request.max_tokens,
            price: choice.price,
            free: ghost_provider::is_free(choice.entry.plan.kind, choice.price.as_ref()),
            behind,
            another,
        }
    }

    /// Journals the start of the call with its budget reservation, and the prompt if it is not
    /// journaled yet. Writes nothing if the call must wait for budget. The inner error is the budget's refusal. With `may_guide`, it does not begin if
    /// guidance has come for the droid: only this transaction knows that at no cost.
    async fn start(&mut self, demand: Demand, may_guide: bool) -> Result<Result<Reserved, Refusal>, Unanswered> {
        let turn_id = self.turn.turn_id;
        let pending_result = self.pending_result.clone();
        let Prompt { system, mail, unwritten, .. } = &self.prompt;
        let prompt = unwritten.as_ref().map(|unwritten| {
            let tools = self.tools.live.as_ref().map(|live| live.seen.clone());
            (Arc::clone(system), Arc::clone(&unwritten.briefing), unwritten.log, (mail.clone(), tools))
        });
        let guides = may_guide && prompt.is_none() && self.turn.agent_id.is_droid();
        let droid_id = guides.then(|| self.turn.agent_id.clone());
        let written = self.engine.services.write(move |w| {
            if let Some(pending_result) = pending_result {
                pending_result.record(w, turn_id)?;
            }
            if let Some((system, briefing, log, mail_and_tools)) = prompt {
                let (system, briefing) = ((&*system.hash, &*system.text), (&*briefing.hash, &*briefing.text));
                turns::brief(w, turn_id, system, briefing, log, mail_and_tools)?;
            }
            if let Some(droid_id) = droid_id
                && droids::has_guidance(w, &droid_id)?
            {
                return Ok(None);
            }
            turns::model_started(w, turn_id, &demand).map(Some)
        });
        let started = match written.await {
            Ok(started) => started,
            Err(refusal) if refusal.code == Code::BudgetExhausted => return Ok(Err(refusal)),
            Err(refusal) => return Err(refusal.into()),
        };
        self.prompt.unwritten = None;
        self.pending_result = None;
        started.map(Ok).ok_or(Unanswered::Guided)
    }

    /// Journals that a call failed, with what it cost and the remedy.
    async fn journal_failure(&self, choice: &Choice, failed: &Failed, remedy: Option<Remedy>) -> Result<(), Refusal> {
        let (error, model, reservation_id) = (&failed.error, choice.model.clone(), failed.reservation_id);
        let text = format!("{}: {}", error.kind.as_str(), error.message);
        let settlement = match (error.usage, error.charge) {
            (Some(tokens), _) => {
                let duration_ms = u64::try_from(failed.took.as_millis()).unwrap_or(u64::MAX);
                Settlement::Used(Taken { model: model.clone(), tokens, price: choice.price, duration_ms })
            }
            (None, Charge::Nothing) => Settlement::Released,
            (None, Charge::Unknown) => Settlement::Forfeited,
        };
        self.write_with_retry(move |w, turn_id| {
            turns::model_failed(w, turn_id, reservation_id, &model, &text, settlement)?;
            match remedy {
                Some(Remedy::Shorten(limit)) => turns::shortened(w, turn_id, &model, limit as u64),
                Some(Remedy::DropState) => turns::state_dropped(w, turn_id, &model),
                Some(Remedy::DropImages) => turns::images_dropped(w, turn_id, &model),
                None => Ok(()),
            }
        })
        .await
    }

    /// Takes guidance that has come for a droid since its last model call. Returns whether any joined the turn.
    async fn take_guidance(&mut self) -> Result<bool, Refusal> {
        let taken = self.write_with_retry(|w, turn_id| droids::take_guidance(w, turn_id, &prompt::inbox));
        let Some(text) = taken.await? else { return Ok(false) };
        self.conversation.tell(text);
        Ok(true)
    }
}
