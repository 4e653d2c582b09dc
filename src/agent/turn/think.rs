//! Thinking: one answer of a model, with its attempts, fall-backs and budget (DESIGN.md section 2, 5; LOOP-09).

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::poll_immediate;
use ghost_domain::admission::is_unpriced;
use ghost_domain::model_facts::{ModelFacts, Thinking, ThinkingControl};
use ghost_domain::transcript::{Block, Message};
use ghost_domain::{Activity, Code, Limits, Refusal, ReservationId, Scope, budget};
use ghost_provider::{Charge, ErrorKind, ModelRequest, Next, ProviderError, Rest, decide, estimate_with};
use ghost_rules::budgets::{Demand, Reserved, Settlement, Taken};
use ghost_rules::turns;

use super::gate::{Gate, armed};
use super::open::wanted;
use super::parsed_answer::ParsedAnswer;
use super::round::{Choice, Round, unanswered};
use super::runner::Runner;
use super::stream::Streamer;
use super::wait::within;
use crate::budget_queue::Ticket;
use crate::transcript::drop_state;
use crate::truncate::{bytes_of, truncate};

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
    /// No model takes a conversation of this length, and it cannot be made shorter.
    TooLong(Refusal),
    /// Its model fails this turn again and again while it answers others.
    Poisoned(Refusal),
    /// The budget of its root is spent: the turn is parked, and its agent goes on without it.
    Aside,
    /// It waited, and other files are in force: it is opened again.
    Anew,
}

impl Runner {
    pub(super) async fn think(&mut self) -> Result<Thought, Refusal> {
        let choices = match self.choices() {
            Ok(choices) => choices,
            Err(refusal) => return Ok(Thought::Failed(refusal)),
        };
        let (mut at, mut failed) = match self.attempts_made(&choices) {
            Ok(made) => made,
            Err(refusal) => return Ok(Thought::Failed(refusal)),
        };
        let mut round = Round::new(self.worked, &choices);
        let mut ticket = Ticket::new(&self.engine.queue);
        let (engine, session) = (Arc::clone(&self.engine), Arc::clone(&self.session));
        loop {
            let (open, pass) = match self.gate(&choices, at, &mut round, &mut ticket).await? {
                Gate::Open(open, pass) => (open, pass),
                Gate::RoundOver => {
                    if let Some(refusal) = self.next_round(&choices, &mut round).await? {
                        return Ok(Thought::Poisoned(refusal));
                    }
                    (at, failed) = (0, 0);
                    continue;
                }
                Gate::Refused => return Ok(refused(&choices, round)),
                Gate::Anew => return Ok(Thought::Anew),
            };
            if open != at {
                // Those before it are down: they may answer in the next round.
                round.transient |= (at..open).any(|before| round.may_ask(before));
                (at, failed) = (open, 0);
            }
            let choice = &choices[at];
            self.show(Activity::Queued);
            let slot = {
                let mut admission = pin!(choice.entry.pool.admit(self.class));
                match poll_immediate(&mut admission).await {
                    Some(slot) => slot,
                    None => {
                        // Nobody knows how long that takes: what is known is recorded first, and who waits for budget alone goes on.
                        ticket.pass_on();
                        self.flush().await?;
                        admission.await
                    }
                }
            };
            if pass.is_stale() {
                // It went down while this call stood in the queue.
                continue;
            }
            let mut request = self.request(choice);
            let behind = ticket.check();
            let bells = (
                armed(engine.queue.raised.notified()),
                armed(session.again.notified()),
                armed(engine.in_force.notified()),
            );
            let raises = engine.queue.raises();
            // A fall-back that there is no money for is no reason to wait for money while another model may come back.
            let another = at > 0 && round.has_another(&choices, at);
            // The day of the budget that may be spent, which may be over before the turn waits.
            let next_day = budget::next_day(self.engine.services.ctx.now());
            let (reservation_id, allowance) = match self.start(choice, &request, behind, another).await? {
                Ok(Reserved::Granted(reservation_id, allowance)) => (reservation_id, allowance),
                Ok(Reserved::Waits(scope)) => {
                    // Others may use the slot meanwhile, of whom some may be paid for by someone else.
                    drop((slot, pass));
                    ticket.wait(scope).await;
                    continue;
                }
                Ok(Reserved::Spent(_)) if another => {
                    drop((slot, pass));
                    ticket.leave();
                    round.cannot_afford(at, raises);
                    (at, failed) = (0, 0);
                    continue;
                }
                Ok(Reserved::Spent(Scope::Root(_))) => return Ok(Thought::Aside),
                Ok(Reserved::Spent(scope)) => {
                    drop((slot, pass));
                    ticket.leave();
                    if self.wait_for_budget(&scope, next_day, bells).await {
                        return Ok(Thought::Anew);
                    }
                    (at, failed) = (0, 0);
                    continue;
                }
                // A fall-back that cannot be paid for is none, and nothing is wrong with those behind it.
                Err(refusal) if at > 0 && is_unpriced(&refusal) => {
                    // If it was the last, nobody is left who could take more than the last that was asked.
                    let shortened = match &round.outage {
                        Some((of, error)) if at + 1 == choices.len() && error.kind == ErrorKind::ContextTooLong => {
                            self.shortened(&request.messages).map(|context| (*of, context))
                        }
                        _ => None,
                    };
                    let told = shortened.map(|(of, context)| (choices[of].model.clone(), context));
                    self.pass_over(choice, &refusal, told).await?;
                    round.refused.insert(at);
                    (at, failed) = (at + 1, 0);
                    if let Some((of, context)) = shortened {
                        round.refused.remove(&of);
                        (at, self.context) = (of, context);
                    }
                    if at < choices.len() {
                        continue;
                    }
                    if round.transient {
                        if let Some(refusal) = self.next_round(&choices, &mut round).await? {
                            return Ok(Thought::Poisoned(refusal));
                        }
                        (at, failed) = (0, 0);
                        continue;
                    }
                    return Ok(refused(&choices, round));
                }
                Err(refusal) => return Ok(Thought::Failed(refusal)),
            };
            ticket.leave();
            self.show(Activity::Thinking);
            request.max_tokens = allowance.max_tokens;
            let clock = self.clock();
            let began = clock.now();
            let mut deltas = Streamer::new(self, &choice.model);
            let whole = Limits::seconds(self.limits().model_seconds);
            let most = whole.min(self.left());
            let answered = within(&*clock, most, choice.entry.provider.complete(&request, &mut deltas)).await;
            // A call that its turn left little time says nothing of the model.
            let fair = whole.min(Limits::seconds(self.limits().turn_seconds)) / 2;
            let cut = answered.is_none() && most < fair;
            deltas.end();
            drop(slot);
            let took = clock.now().since(began);
            self.worked += took;
            let error = match answered {
                Some(Ok(answer)) => {
                    self.is_up(choice, pass.answered()).await?;
                    let said = ParsedAnswer::read(&answer, self.engine.reasons_first(&choice.model)).await?;
                    // Whether anyone watched makes no difference.
                    if let Some(first) = said.reasons_first {
                        self.engine.set_reasons_first(&choice.model, first);
                    }
                    return self.answered(choice, reservation_id, answer, said, took).await;
                }
                Some(Err(error)) => error,
                None => {
                    let setting = if most < whole { "the turn's own time" } else { "limits.model_seconds" };
                    let text = format!("no answer within {} s ({setting})", most.as_secs());
                    ProviderError::new(ErrorKind::Timeout, text)
                }
            };
            failed += 1;
            // A turn that has used most of its time on its own work has come to its bound. One that lost it to attempts has not.
            let own = self.timed || round.worked >= Limits::seconds(self.spec.limits.turn_seconds) / 2;
            let over = self.out_of_time();
            let transient = error.kind.is_transient();
            let jitter = self.engine.services.ctx.ports.rng.below(1_000);
            let behind: Vec<usize> = (at + 1..choices.len())
                .filter(|next| if transient { round.may_ask(*next) } else { !round.refused.contains(next) })
                .collect();
            let rest = Rest::after(&choice.entry.name, behind.iter().map(|next| choices[*next].entry.name.as_str()));
            let mut next = decide(failed, &error, &choice.entry.plan, rest, jitter);
            if over.is_some() && transient {
                next = Next::GiveUp;
            }
            let too_long = next == Next::GiveUp && error.kind == ErrorKind::ContextTooLong;
            let remedy = if too_long && over.is_none() {
                self.shortened(&request.messages).map(Remedy::Shorten)
            } else {
                let stale = error.kind == ErrorKind::StaleState && over.is_none() && self.has_state();
                stale.then_some(Remedy::DropState)
            };
            self.failed(choice, reservation_id, &error, took, remedy).await?;
            let bounds = (choice.entry.plan.attempts, choice.entry.plan.retry_cap);
            if cut {
                drop(pass);
            } else if transient {
                round.fails(&choices, at, error.kind);
                let began = pass.failed(&error, bounds);
                self.is_down(choice, began).await?;
            } else {
                // What says that we asked wrongly is there.
                self.is_up(choice, pass.answered()).await?;
            }
            if let Some(refusal) = over.filter(|_| own || !transient) {
                return Ok(Thought::Failed(refusal));
            }
            if let Some(remedy) = remedy {
                match remedy {
                    Remedy::Shorten(context) => self.context = context,
                    Remedy::DropState => drop_state(&mut self.messages),
                }
                // What the conversation met as it was is overcome.
                failed = 0;
                continue;
            }
            if let Some(wait) = error.retry_after.filter(|wait| *wait <= choice.entry.plan.retry_cap) {
                choice.entry.pool.cool_down(clock.now().plus(wait));
            }
            round.transient |= transient;
            if next != Next::GiveUp && transient && choice.entry.breaker.outage(&choice.model).is_some() {
                // Nobody asks it now: another model does, or the turn waits for the probe.
                round.outage = Some((at, error));
                continue;
            }
            match next {
                Next::Retry(wait) => {
                    self.show(Activity::Queued);
                    clock.sleep(wait).await;
                }
                Next::Fallback(places) => {
                    if transient {
                        self.exhausted(choice, &error, &round).await?;
                    } else {
                        round.refuses(at);
                    }
                    round.outage = Some((at, error));
                    (at, failed) = (behind.get(places - 1).copied().unwrap_or(choices.len()), 0);
                }
                Next::GiveUp if round.transient => {
                    if !transient {
                        round.refuses(at);
                    } else if !cut {
                        self.exhausted(choice, &error, &round).await?;
                    }
                    round.outage = Some((at, error));
                    if let Some(refusal) = self.next_round(&choices, &mut round).await? {
                        return Ok(Thought::Poisoned(refusal));
                    }
                    (at, failed) = (0, 0);
                }
                Next::GiveUp => return Ok(no_answer(choice, &error)),
            }
        }
    }

    /// The models to try, in order.
    fn choices(&self) -> Result<Vec<Choice>, Refusal> {
        let providers = self.engine.providers();
        let plan = self.engine.services.plan();
        let wanted = wanted(&plan, &self.spec);
        wanted
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

    /// Whether a provider has attached something to an answer of this turn.
    fn has_state(&self) -> bool {
        self.messages.iter().any(|message| message.blocks.iter().any(|block| matches!(block, Block::Opaque(_))))
    }

    /// Most tokens of an answer of this model, its thoughts included: who is told to think gets room for that.
    fn answer_room(&self, facts: &ModelFacts) -> u64 {
        // Those think though nobody says so.
        let unasked = matches!(facts.thinking, ThinkingControl::Effort | ThinkingControl::AlwaysAdaptive);
        let thinking = self.spec.model.thinking.or(unasked.then_some(Thinking::Medium));
        let thinking = thinking.filter(|_| facts.thinking != ThinkingControl::Never);
        let thoughts = thinking.map_or(0, |thinking| facts.thinking_budget(thinking));
        let room = u64::from(self.spec.limits.answer_tokens).saturating_add(thoughts);
        facts.output_tokens.map_or(room, |most| room.min(most))
    }

    fn request(&self, choice: &Choice) -> ModelRequest {
        let mut messages = self.messages.clone();
        truncate(&mut messages, self.opening_messages, self.context);
        ModelRequest {
            agent_id: self.agent_id.clone(),
            turn_id: self.turn.turn_id,
            provider: choice.entry.author(),
            model: choice.model.clone(),
            facts: Arc::clone(&choice.facts),
            system: self.system.text.clone(),
            messages,
            tools: self.registry.specs(),
            max_tokens: self.answer_room(&choice.facts),
            calls_bytes: self.limits().calls_bytes(),
            temperature: self.spec.model.temperature,
            thinking: self.spec.model.thinking,
            window_tokens: self.spec.limits.window_tokens,
        }
    }

    /// Half of what `sent` takes, if the conversation can be cut down towards that.
    fn shortened(&self, sent: &[Message]) -> Option<usize> {
        let (whole, half) = (bytes_of(sent), bytes_of(sent) / 2);
        let mut messages = self.messages.clone();
        truncate(&mut messages, self.opening_messages, half);
        (whole > 0 && bytes_of(&messages) <= whole - whole / 10).then_some(half)
    }

    /// Journals the prompt, if it is not there yet, and the start of the call, with its budget, unless the call must wait for
    /// that, as it must `behind` those who wait for an account that it is charged to. The inner refusal is the budget's.
    async fn start(
        &mut self,
        choice: &Choice,
        request: &ModelRequest,
        behind: BTreeSet<Scope>,
        another: bool,
    ) -> Result<Result<Reserved, Refusal>, Refusal> {
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
        let prompt =
            (!self.briefed).then(|| (Arc::clone(&self.system), Arc::clone(&self.briefing), self.opening.clone()));
        let started = self
            .engine
            .services
            .store
            .write(move |w| {
                Box::pin(async move {
                    if let Some(pending_result) = pending_result {
                        pending_result.record(w, &ctx, turn_id).await?;
                    }
                    if let Some((system, briefing, (recent, mail))) = prompt {
                        let (system, briefing) = ((&*system.hash, &*system.text), (&*briefing.hash, &*briefing.text));
                        turns::brief(w, &ctx, turn_id, system, briefing, recent, mail).await?;
                    }
                    turns::model_started(w, &ctx, turn_id, &demand).await
                })
            })
            .await;
        match started {
            Ok(started) => {
                self.briefed = true;
                self.pending_result = None;
                Ok(Ok(started))
            }
            Err(refusal) if refusal.code == Code::BudgetExhausted => Ok(Err(refusal)),
            Err(refusal) => Err(refusal),
        }
    }

    /// Journals that a fall-back was not asked, and that the conversation was cut down for the model that was asked before it.
    async fn pass_over(
        &self,
        choice: &Choice,
        refusal: &Refusal,
        shortened: Option<(String, usize)>,
    ) -> Result<(), Refusal> {
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let (model, why) = (choice.model.clone(), refusal.message.clone());
        self.keep(move |w| {
            Box::pin(async move {
                turns::passed_over(w, &ctx, turn_id, &model, &why).await?;
                match shortened {
                    Some((of, context)) => turns::shortened(w, &ctx, turn_id, &of, context as u64).await,
                    None => Ok(()),
                }
            })
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
        self.keep(move |w| {
            Box::pin(async move {
                turns::model_failed(w, &ctx, turn_id, reservation_id, &model, &text, settlement).await?;
                match remedy {
                    Some(Remedy::Shorten(context)) => turns::shortened(w, &ctx, turn_id, &model, context as u64).await,
                    Some(Remedy::DropState) => turns::state_dropped(w, &ctx, turn_id, &model).await,
                    None => Ok(()),
                }
            })
        })
        .await
    }
}

/// What is done about a failure before the same model is asked again.
#[derive(Clone, Copy)]
enum Remedy {
    /// The conversation gets so many bytes.
    Shorten(usize),
    /// What providers attached to earlier answers is left out.
    DropState,
}

/// What a turn ends with when every model has refused it, the last one as `round` says.
fn refused(choices: &[Choice], round: Round) -> Thought {
    // After a restart, only the events say more.
    let before = || Thought::Failed(unanswered(&format!("{} has failed in this turn", choices[0].model)));
    round.outage.map_or_else(before, |(of, error)| no_answer(&choices[of], &error))
}

/// What a turn ends with when the last model that may be asked has failed.
fn no_answer(choice: &Choice, error: &ProviderError) -> Thought {
    let who = format!("{} ({}): {}", choice.model, choice.entry.name, error.message);
    if error.kind != ErrorKind::ContextTooLong {
        return Thought::Failed(unanswered(&who));
    }
    Thought::TooLong(Refusal::new(Code::TooLarge, format!("no model takes this conversation: {who}")).hint(
        "give the agent a model that takes more, or smaller messages; `context_window_tokens` of its archetype is what its \
         model takes",
    ))
}
