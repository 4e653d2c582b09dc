//! Gets one answer from a model, with attempts, fall-backs and budget (LOOP-09).

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_immediate;
use ghost_domain::admission::is_unpriced;
use ghost_domain::model_facts::{ModelFacts, Thinking, ThinkingControl};
use ghost_domain::transcript::{Block, Message};
use ghost_domain::{Activity, Code, Limits, Refusal, ReservationId, Scope, budget};
use ghost_operations::budgets::{Demand, Reserved, Settlement, Taken};
use ghost_operations::{droids, turns};
use ghost_provider::{
    Charge, ErrorKind, ModelRequest, Next, ProviderError, Rest, decide, estimate_with, is_long, may_be_too_long,
};

use super::bound::Partial;
use super::gate::{Gate, registered};
use super::images;
use super::open::model_order;
use super::parsed_answer::ParsedAnswer;
use super::round::{Choice, Round, unanswered};
use super::runner::Runner;
use super::stream::Streamer;
use super::wait::within;
use crate::budget_queue::Ticket;
use crate::images::{REFUSED, has_images, leave_out, select};
use crate::transcript::drop_state;
use crate::truncate::{bytes_of, is_short, shorten_seen, truncate};

/// The result of asking models for an answer.
pub(super) enum Thought {
    /// The model calls tools; the calls are in `open`.
    Calls,
    /// The answer was malformed, and the model got a correction.
    Corrected,
    /// The answer ends the turn, and the end is committed.
    Ended,
    /// No model can answer this turn, and waiting would not help.
    Failed(Refusal),
    /// The turn's time is used up; with the text of the answer that this interrupted.
    OutOfTime(Refusal, Option<String>),
    /// The budget refuses the call, and waiting would not help.
    Unaffordable(Refusal),
    /// The root's budget is spent: the turn is parked, and the agent continues with other work.
    SetAside,
    /// While the turn waited, another plan became current: the turn must be opened again.
    Reopen,
    /// Guidance has come for the droid. No model was asked.
    Guided,
}

/// Whether a model call may begin.
enum Started {
    Reserved(Reserved),
    /// The budget refuses it.
    Refused(Refusal),
    /// Guidance has come for the droid.
    Guided,
}

impl Runner {
    /// Asks models until one has answered. With `may_guide`, guidance that has come for a droid goes before the call.
    pub(super) async fn think(&mut self, may_guide: bool) -> Result<Thought, Refusal> {
        let choices = match self.choices() {
            Ok(choices) => choices,
            Err(refusal) => return Ok(Thought::Failed(refusal)),
        };
        let (mut index, mut failed) = match self.attempts_made(&choices) {
            Ok(made) => made,
            Err(refusal) => return Ok(Thought::Failed(refusal)),
        };
        let mut round = Round::new(self.worked, &choices);
        // Whether the conversation was shortened for an error that does not name a cause.
        let mut guessed = false;
        let mut ticket = Ticket::new(&self.engine.queue);
        let (engine, session) = (Arc::clone(&self.engine), Arc::clone(&self.session));
        loop {
            let (open, pass, slot) = match self.gate(&choices, index, &mut round, &mut ticket).await? {
                Gate::Open(open, pass, slot) => (open, pass, slot),
                Gate::RoundOver => {
                    if let Some(refusal) = self.next_round(&choices, &mut round).await? {
                        return Ok(Thought::Failed(refusal));
                    }
                    (index, failed) = (0, 0);
                    continue;
                }
                Gate::Refused => return Ok(Thought::Failed(refused(&choices, round))),
                Gate::Reopen => return Ok(Thought::Reopen),
            };
            if open != index {
                // The models before this one are down; they may answer in the next round.
                round.transient |= (index..open).any(|before| round.may_ask(before));
                (index, failed) = (open, 0);
            }
            let choice = &choices[index];
            self.show(Activity::Queued);
            let slot = if let Some(slot) = slot.filter(|slot| slot.is_of(&choice.entry.pool)) {
                slot
            } else {
                let mut admission = pin!(choice.entry.pool.admit(self.class));
                match poll_immediate(&mut admission).await {
                    Some(slot) => slot,
                    None => {
                        // This wait may be long. So the pending result is recorded first, and calls
                        // that wait only for budget continue.
                        ticket.pass_on();
                        self.flush().await?;
                        admission.await
                    }
                }
            };
            if pass.is_stale() {
                // The model went down while this call waited in the queue.
                continue;
            }
            let mut request = self.request(choice).await;
            let behind = ticket.check();
            let notifications = (
                registered(engine.queue.limits_changed.notified()),
                registered(session.retry_now.notified()),
                registered(engine.plan_changed.notified()),
            );
            let limit_changes = engine.queue.limit_changes();
            // If a fall-back does not fit the budget, the turn does not wait for budget while
            // another model may answer again.
            let another = index > 0 && round.has_another(&choices, index);
            // Computed before the budget is read, because the day may end before the turn waits.
            let next_day = budget::next_day(self.engine.services.ctx.now());
            let started = self.start(choice, &request, behind, another, may_guide).await?;
            let (reservation_id, allowance) = match started {
                Started::Guided => return Ok(Thought::Guided),
                Started::Reserved(Reserved::Granted(reservation_id, allowance)) => (reservation_id, allowance),
                Started::Reserved(Reserved::Waits(scope)) => {
                    // During the wait, other calls may use the slot; other accounts may pay for
                    // them.
                    drop((slot, pass));
                    ticket.wait(scope).await;
                    continue;
                }
                Started::Reserved(Reserved::Spent(_)) if another => {
                    drop((slot, pass));
                    ticket.leave();
                    round.cannot_afford(index, limit_changes);
                    (index, failed) = (0, 0);
                    continue;
                }
                Started::Reserved(Reserved::Spent(Scope::Root(_))) => return Ok(Thought::SetAside),
                Started::Reserved(Reserved::Spent(scope)) => {
                    drop((slot, pass));
                    ticket.leave();
                    if self.wait_for_budget(&scope, next_day, notifications).await {
                        return Ok(Thought::Reopen);
                    }
                    (index, failed) = (0, 0);
                    continue;
                }
                // A fall-back without a price is skipped; the next one may have one.
                Started::Refused(refusal) if index > 0 && is_unpriced(&refusal) => {
                    // The writes and the wait below may take long.
                    drop((slot, pass));
                    // If the skipped fall-back was the last one, the conversation is shortened for
                    // the model that refused it as too long.
                    let shortened = match &round.outage {
                        Some((of, error)) if index + 1 == choices.len() && error.kind == ErrorKind::ContextTooLong => {
                            self.shortened(choice, &request.messages).map(|context| (*of, context))
                        }
                        _ => None,
                    };
                    let shortened_for = shortened.map(|(of, context)| (choices[of].model.clone(), context));
                    self.pass_over(choice, &refusal, shortened_for).await?;
                    round.refused.insert(index);
                    (index, failed) = (index + 1, 0);
                    if let Some((of, context)) = shortened {
                        round.refused.remove(&of);
                        (index, self.context) = (of, context);
                    }
                    if index < choices.len() {
                        continue;
                    }
                    if round.transient {
                        if let Some(refusal) = self.next_round(&choices, &mut round).await? {
                            return Ok(Thought::Failed(refusal));
                        }
                        (index, failed) = (0, 0);
                        continue;
                    }
                    return Ok(Thought::Failed(refused(&choices, round)));
                }
                Started::Refused(refusal) => return Ok(Thought::Unaffordable(refusal)),
            };
            ticket.leave();
            self.show(Activity::Thinking);
            request.max_tokens = allowance.max_tokens;
            let clock = self.clock();
            let began = clock.steady();
            let whole = Limits::seconds(self.limits().model_seconds);
            let limit = whole.min(self.time_left());
            let streamer = Streamer::new(self, &choice.model);
            let mut deltas = Partial::new(streamer, limit < whole, self.engine.reasons_first(&choice.model));
            let answered = within(&*clock, limit, choice.entry.provider.complete(&request, &mut deltas)).await;
            // If the turn had little time left for the call, a timeout says nothing about the
            // model.
            let fair_limit = whole.min(Limits::seconds(self.limits().turn_seconds)) / 2;
            let out_of_own_time = answered.is_none() && limit < fair_limit;
            let partial = deltas.end();
            drop(slot);
            let took = clock.steady().since(began);
            self.worked += took;
            let error = match answered {
                Some(Ok(answer)) => {
                    self.is_up(choice, pass.answered()).await?;
                    let parsed = ParsedAnswer::read(&answer, self.engine.reasons_first(&choice.model)).await?;
                    // Remembered whether or not anyone subscribes to the stream.
                    if let Some(first) = parsed.reasons_first {
                        self.engine.set_reasons_first(&choice.model, first);
                    }
                    // The answer joins the messages, which this request would share.
                    drop(request);
                    return self.answered(choice, reservation_id, answer, parsed, took).await;
                }
                Some(Err(error)) => error,
                None => {
                    let setting = if limit < whole { "the turn's own time" } else { "limits.model_seconds" };
                    let text = format!("no answer within {} s ({setting})", limit.as_secs());
                    ProviderError::new(ErrorKind::Timeout, text)
                }
            };
            failed += 1;
            // A turn that spent most of its time on its own work has reached its limit. A turn that
            // lost its time to failed attempts has not.
            let used_own_time = self.timed || round.worked >= Limits::seconds(self.spec.limits.turn_seconds) / 2;
            let timeout_refusal = self.out_of_time();
            let mut transient = error.kind.is_transient();
            let jitter = self.engine.services.ctx.ports.rng.below(1_000);
            let remaining: Vec<usize> = (index + 1..choices.len())
                .filter(|next| if transient { round.may_ask(*next) } else { !round.refused.contains(next) })
                .collect();
            let rest = Rest::after(&choice.entry.name, remaining.iter().map(|next| choices[*next].entry.name.as_str()));
            let mut next = decide(failed, &error, &choice.entry.plan, rest, jitter);
            if timeout_refusal.is_some() && transient {
                next = Next::GiveUp;
            }
            let too_long = next == Next::GiveUp && error.kind == ErrorKind::ContextTooLong;
            let remedy = if too_long && timeout_refusal.is_none() {
                self.shortened(choice, &request.messages).map(Remedy::Shorten)
            } else {
                let stale = error.kind == ErrorKind::StaleState && timeout_refusal.is_none() && self.has_state();
                // An image that looks whole can still be damaged, and must not cost the turn.
                let shown =
                    error.kind == ErrorKind::BadRequest && timeout_refusal.is_none() && shows(&request.messages);
                // Some servers refuse a conversation that is too long without a word.
                let guess = may_be_too_long(&error) && !guessed && timeout_refusal.is_none();
                let guess = guess && self.is_long(choice, &request);
                guessed |= guess && !stale && !shown;
                let short = guess.then(|| self.shortened(choice, &request.messages)).flatten();
                let other = stale.then_some(Remedy::DropState).or(shown.then_some(Remedy::DropImages));
                other.or(short.map(Remedy::Shorten))
            };
            self.failed(choice, reservation_id, &error, took, remedy).await?;
            // What looks permanent is the model's fault if other agents get it too.
            let is_final = !transient && remedy.is_none() && !matches!(next, Next::Retry(_));
            transient |= is_final && !choice.answers_here() && pass.refused(&self.agent_id, &error);
            let bounds = (choice.entry.plan.attempts, choice.entry.plan.retry_cap);
            if out_of_own_time {
                drop(pass);
            } else if transient {
                round.record_failure(&choices, index, error.kind);
                let began = pass.failed(&error, bounds);
                self.is_down(choice, began).await?;
            } else {
                drop(pass);
            }
            if let Some(refusal) = timeout_refusal.filter(|_| used_own_time || !transient) {
                return Ok(Thought::OutOfTime(refusal, partial));
            }
            if let Some(remedy) = remedy {
                match remedy {
                    Remedy::Shorten(context) => self.context = context,
                    Remedy::DropState => {
                        drop_state(self.messages_mut());
                        // The journal's order decides what the log keeps.
                        self.whole = false;
                    }
                    Remedy::DropImages => leave_out(self.messages_mut(), Some(REFUSED)),
                }
                // The remedy covers all failures so far.
                failed = 0;
                continue;
            }
            if let Some(wait) = error.retry_after.filter(|wait| *wait <= choice.entry.plan.retry_cap) {
                choice.entry.pool.cool_down(clock.steady().plus(wait));
            }
            round.transient |= transient;
            if next != Next::GiveUp && transient && choice.entry.breaker.outage(&choice.model).is_some() {
                // The model is down now: another model is asked, or the turn waits for the probe.
                round.outage = Some((index, error));
                continue;
            }
            match next {
                Next::Retry(wait) => {
                    self.show(Activity::Queued);
                    clock.sleep(wait).await;
                }
                Next::Fallback(skip) => {
                    if transient {
                        self.exhausted(choice, &error, &round).await?;
                    } else {
                        round.mark_refused(index);
                    }
                    round.outage = Some((index, error));
                    (index, failed) = (remaining.get(skip - 1).copied().unwrap_or(choices.len()), 0);
                }
                Next::GiveUp if round.transient => {
                    if !transient {
                        round.mark_refused(index);
                    } else if !out_of_own_time {
                        self.exhausted(choice, &error, &round).await?;
                    }
                    round.outage = Some((index, error));
                    if let Some(refusal) = self.next_round(&choices, &mut round).await? {
                        return Ok(Thought::Failed(refusal));
                    }
                    (index, failed) = (0, 0);
                }
                Next::GiveUp => return Ok(Thought::Failed(no_answer(choice, &error))),
            }
        }
    }

    /// The models to try, in order.
    fn choices(&self) -> Result<Vec<Choice>, Refusal> {
        let providers = self.engine.providers();
        let plan = self.engine.services.plan();
        let model_order = model_order(&plan, &self.spec);
        model_order
            .into_iter()
            .map(|(provider, model)| {
                let entry = providers.get(&provider).ok_or_else(|| {
                    Refusal::new(Code::Unavailable, format!("there is no provider `{provider}`"))
                        .hint("name it under llm.providers in world-config.yaml")
                })?;
                let price = ghost_provider::price(&plan.llm, &provider, entry.plan.kind, &model);
                let facts = Arc::new(plan.llm.facts(entry.plan.kind, &provider, &model));
                Ok(Choice { entry, model, price, facts })
            })
            .collect()
    }

    /// Whether an answer of this turn carries opaque state of a provider.
    fn has_state(&self) -> bool {
        self.messages.iter().any(|message| message.blocks.iter().any(|block| matches!(block, Block::Opaque(_))))
    }

    /// Maximum tokens of an answer, including reasoning. A model that is asked to reason gets
    /// additional tokens.
    fn answer_room(&self, facts: &ModelFacts) -> u64 {
        // These models reason even if not asked.
        let unasked = matches!(facts.thinking, ThinkingControl::Effort | ThinkingControl::AlwaysAdaptive);
        let thinking = self.spec.model.thinking.or(unasked.then_some(Thinking::Medium));
        let thinking = thinking.filter(|_| facts.thinking != ThinkingControl::Never);
        let thoughts = thinking.map_or(0, |thinking| facts.thinking_budget(thinking));
        let room = u64::from(self.spec.limits.answer_tokens).saturating_add(thoughts);
        facts.output_tokens.map_or(room, |limit| room.min(limit))
    }

    /// The conversation as a model gets it, in at most `limit` bytes as far as possible, and the number of messages before
    /// the mail. The bytes of its images are not loaded.
    fn conversation(&self, choice: &Choice, limit: usize) -> (Arc<Vec<Message>>, usize) {
        let once = self.spec.limits.result_once_bytes as usize;
        if !has_images(&self.messages) && is_short(&self.messages, self.past, once, limit) {
            // A copy of a long log costs as much as a request.
            return (Arc::clone(&self.messages), self.past);
        }
        let mut messages = Vec::clone(&self.messages);
        select(&mut messages, choice.entry.plan.kind, &choice.facts);
        shorten_seen(&mut messages, self.past, once);
        let past = truncate(&mut messages, self.past, limit);
        (Arc::new(messages), past)
    }

    async fn request(&self, choice: &Choice) -> ModelRequest {
        let (mut messages, past) = self.conversation(choice, self.context);
        if has_images(&messages) {
            images::load(&self.engine.services.workspace, Arc::<Vec<_>>::make_mut(&mut messages)).await;
        }
        ModelRequest {
            agent_id: self.agent_id.clone(),
            turn_id: self.turn.turn_id,
            provider: choice.entry.author(),
            model: choice.model.clone(),
            facts: Arc::clone(&choice.facts),
            system: self.system.text.clone(),
            messages,
            past,
            tools: Arc::clone(&self.registry.offer().sent),
            deferred: Arc::clone(&self.registry.offer().deferred),
            max_tokens: self.answer_room(&choice.facts),
            calls_bytes: self.limits().calls_bytes(),
            temperature: self.spec.model.temperature,
            thinking: self.spec.model.thinking,
            window_tokens: self.spec.limits.window_tokens,
        }
    }

    /// Whether the conversation of a request is long for its model.
    fn is_long(&self, choice: &Choice, request: &ModelRequest) -> bool {
        let input = estimate_with(request, self.engine.tool_bytes(&request.tools));
        is_long(input, request.window_tokens.map(u64::from).or(choice.facts.context_tokens))
    }

    /// Half of the size of `sent`, if the conversation can be shortened towards that.
    fn shortened(&self, choice: &Choice, sent: &[Message]) -> Option<usize> {
        let (whole, half) = (bytes_of(sent), bytes_of(sent) / 2);
        let (messages, _) = self.conversation(choice, half);
        (whole > 0 && bytes_of(&messages) <= whole - whole / 10).then_some(half)
    }

    /// Journals the start of the call with its budget reservation, and the prompt if it is not
    /// journaled yet. Writes nothing if the call must wait for budget. It must also wait if one of
    /// its accounts is in `behind`, the accounts for which earlier calls wait. With `may_guide`, it does not begin if
    /// guidance has come for the droid: only this transaction knows that at no cost.
    async fn start(
        &mut self,
        choice: &Choice,
        request: &ModelRequest,
        behind: BTreeSet<Scope>,
        another: bool,
        may_guide: bool,
    ) -> Result<Started, Refusal> {
        let demand = Demand {
            provider: choice.entry.name.clone(),
            model: choice.model.clone(),
            input: estimate_with(request, self.engine.tool_bytes(&request.tools)),
            max_tokens: request.max_tokens,
            price: choice.price,
            free: ghost_provider::is_free(choice.entry.plan.kind, choice.price.as_ref()),
            behind,
            another,
        };
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let pending_result = self.pending_result.clone();
        let prompt = (!self.briefed).then(|| (Arc::clone(&self.system), Arc::clone(&self.briefing), self.mail.clone()));
        let log = self.briefed_log;
        let tools = self.live.as_ref().map(|live| live.seen.clone());
        let droid_id = (may_guide && self.briefed && self.agent_id.is_droid()).then(|| self.agent_id.clone());
        let started = self
            .engine
            .services
            .store
            .write(move |w| {
                if let Some(pending_result) = pending_result {
                    pending_result.record(w, &ctx, turn_id)?;
                }
                if let Some((system, briefing, mail)) = prompt {
                    let (system, briefing) = ((&*system.hash, &*system.text), (&*briefing.hash, &*briefing.text));
                    turns::brief(w, &ctx, turn_id, system, briefing, log, (mail, tools))?;
                }
                if let Some(droid_id) = droid_id
                    && droids::has_guidance(w, &droid_id)?
                {
                    return Ok(Started::Guided);
                }
                turns::model_started(w, &ctx, turn_id, &demand).map(Started::Reserved)
            })
            .await;
        match started {
            Ok(started) => {
                self.briefed = true;
                self.pending_result = None;
                Ok(started)
            }
            Err(refusal) if refusal.code == Code::BudgetExhausted => Ok(Started::Refused(refusal)),
            Err(refusal) => Err(refusal),
        }
    }

    /// Journals that a fall-back was skipped. If the conversation was shortened for the model asked
    /// before it, that is journaled too.
    async fn pass_over(
        &self,
        choice: &Choice,
        refusal: &Refusal,
        shortened: Option<(String, usize)>,
    ) -> Result<(), Refusal> {
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let (model, why) = (choice.model.clone(), refusal.message.clone());
        self.write_with_retry(move |w| {
            turns::passed_over(w, &ctx, turn_id, &model, &why)?;
            match shortened {
                Some((of, context)) => turns::shortened(w, &ctx, turn_id, &of, context as u64),
                None => Ok(()),
            }
        })
        .await
    }

    async fn failed(
        &self,
        choice: &Choice,
        reservation_id: ReservationId,
        error: &ProviderError,
        took: Duration,
        remedy: Option<Remedy>,
    ) -> Result<(), Refusal> {
        let (ctx, turn_id, model) = (self.engine.services.ctx.clone(), self.turn.turn_id, choice.model.clone());
        let text = format!("{}: {}", error.kind.as_str(), error.message);
        let settlement = match (error.usage, error.charge) {
            (Some(tokens), _) => {
                let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                Settlement::Used(Taken { model: model.clone(), tokens, price: choice.price, duration_ms })
            }
            (None, Charge::Nothing) => Settlement::Released,
            (None, Charge::Unknown) => Settlement::Forfeited,
        };
        self.write_with_retry(move |w| {
            turns::model_failed(w, &ctx, turn_id, reservation_id, &model, &text, settlement)?;
            match remedy {
                Some(Remedy::Shorten(context)) => turns::shortened(w, &ctx, turn_id, &model, context as u64),
                Some(Remedy::DropState) => turns::state_dropped(w, &ctx, turn_id, &model),
                Some(Remedy::DropImages) => turns::images_dropped(w, &ctx, turn_id, &model),
                None => Ok(()),
            }
        })
        .await
    }
}

/// A change after a failure, before the same model is asked again.
#[derive(Clone, Copy)]
enum Remedy {
    /// The conversation is shortened to this many bytes.
    Shorten(usize),
    /// The opaque state of earlier answers is dropped.
    DropState,
    /// The images so far are left out.
    DropImages,
}

/// Whether a request shows images.
fn shows(messages: &[Message]) -> bool {
    messages.iter().flat_map(|message| &message.blocks).any(|block| matches!(block, Block::Image { .. }))
}

/// Why a turn ends when every model has refused it; `round` has the last error.
fn refused(choices: &[Choice], round: Round) -> Refusal {
    // After a restart, only the events have details.
    let before = || unanswered(&format!("{} has failed in this turn", choices[0].model));
    round.outage.map_or_else(before, |(of, error)| no_answer(&choices[of], &error))
}

/// Why a turn ends when the last model that may be asked has failed.
fn no_answer(choice: &Choice, error: &ProviderError) -> Refusal {
    let details = format!("{} ({}): {}", choice.model, choice.entry.name, error.message);
    if error.kind != ErrorKind::ContextTooLong {
        return unanswered(&details);
    }
    Refusal::new(Code::TooLarge, format!("no model takes this conversation: {details}")).hint(
        "give the agent a model with a larger context window, or send smaller messages; `context_window_tokens` of its \
         archetype is the size of its model's window",
    )
}
