//! Acts on an answer: runs its tool calls, and adds their results to the conversation. Effects in the store are applied one
//! after another, in the model's order. Neighbouring reads, outside calls and asks run in parallel.
//!
//! No call may run before it was checked, and none may be left without a result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use ghost_domain::journal::{CallOutcome, Effect, Step};
use ghost_domain::transcript::{Message, Role};
use ghost_domain::{Activity, CallId, Code, Refusal};
use ghost_operations::turns::{self, CallStart};
use ghost_tools::Run;
use ghost_tools::loop_guard::{Call, Verdict, is_own};
use tokio::sync::Semaphore;

use super::call::{CallResult, Calls, Checked, Checking, Ended, PendingResult, Unfit, outcome_unknown, start_of};
use super::runner::{End, Runner};
use crate::transcript::{OpenCall, Written, result_blocks};

/// The outcome of a call, with the provider's id of the call.
type Outcome = (String, CallOutcome);

/// What the calls of an answer have come to so far.
#[derive(Default)]
struct Acted {
    outcomes: Vec<Outcome>,
    /// The refusal of the loop guard that ends the turn.
    stop: Option<Refusal>,
    /// Neighbouring calls that share a commit, not run yet.
    in_store: Vec<Checked>,
    /// Neighbouring calls that may overlap, not run yet.
    beside: Vec<Checked>,
}

impl Runner {
    /// Runs the calls of an answer and adds their results to the conversation.
    pub(super) async fn act(&mut self, calls: Calls) -> Result<(), End> {
        let order = self.conversation.last_calls();
        let Acted { outcomes, stop, .. } = self.run_calls(calls).await?;
        self.close_round(&order, outcomes, stop).await
    }

    /// Runs the single call of an operator's turn.
    pub(super) async fn act_once(&mut self, call: OpenCall) -> Result<CallOutcome, Refusal> {
        let acted = self.run_calls(Calls::Unchecked(vec![call])).await?;
        self.flush().await?;
        let outcome = acted.outcomes.into_iter().next().map(|(_, outcome)| outcome);
        outcome.ok_or_else(|| Refusal::new(Code::Internal, "the call has no outcome"))
    }

    async fn run_calls(&mut self, calls: Calls) -> Result<Acted, Refusal> {
        self.show(Activity::Acting);
        let mut acted = Acted::default();
        match calls {
            Calls::Sole(checking, begun) => self.run_checked(&mut acted, checking, (true, begun)).await?,
            Calls::Unchecked(calls) => {
                let (limit, is_sole) = (self.limits().calls_per_answer as usize, calls.len() == 1);
                for (index, call) in calls.into_iter().enumerate() {
                    let checking = match index < limit {
                        true => self.check_whole(call).await?,
                        false => Err(Unfit::new(call, beyond(limit))),
                    };
                    self.run_checked(&mut acted, checking, (is_sole, None)).await?;
                }
            }
        }
        self.run_in_store(&mut acted).await?;
        self.run_group(&mut acted).await?;
        Ok(acted)
    }

    /// Runs a call, or lets it wait for its neighbours. `begun` is its id if its start was journaled with the answer.
    async fn run_checked(
        &mut self,
        acted: &mut Acted,
        checking: Checking,
        (is_sole, begun): (bool, Option<CallId>),
    ) -> Result<(), Refusal> {
        if checking.as_ref().is_ok_and(|checked| self.may_share_a_commit(checked)) {
            self.run_group(acted).await?;
            acted.in_store.extend(checking);
            return Ok(());
        }
        self.run_in_store(acted).await?;
        let outcome = match checking {
            Err(unfit) => {
                let outcome = self.refuse(&unfit).await?;
                if unfit.ends_turn {
                    acted.stop = Some(unfit.refusal);
                }
                outcome
            }
            Ok(checked) => match checked.run.effect() {
                Effect::World | Effect::File => {
                    self.run_group(acted).await?;
                    self.run_one(checked).await?
                }
                Effect::Read | Effect::Outside if is_sole && checked.call.begun.is_none() => {
                    self.run_sole(checked, begun).await?
                }
                Effect::Read | Effect::Outside | Effect::Wait => {
                    acted.beside.push(checked);
                    return Ok(());
                }
            },
        };
        acted.outcomes.push(outcome);
        Ok(())
    }

    /// Records the refusal of a call that may not run. A call that was started before a crash
    /// cannot be refused: an ask goes on waiting, and the outcome of any other call is unknown.
    async fn refuse(&self, unfit: &Unfit) -> Result<Outcome, Refusal> {
        let (call, name) = (&unfit.call, self.recorded_name(&unfit.call.name));
        let Some(begun) = &call.begun else {
            let outcome = self.record_refusal(call, &name, None, unfit.refusal.clone()).await?;
            return Ok((call.id.clone(), outcome));
        };
        let awaits_person = self.awaits_person(begun, None).await?;
        if !awaits_person && begun.ask_id.is_none() {
            let outcome = self.record_refusal(call, &name, None, outcome_unknown(&name)).await?;
            return Ok((call.id.clone(), outcome));
        }
        self.show(Activity::Asking);
        let ended = Ended { call_id: begun.call_id, id: call.id.clone(), tool: name, view_bytes: None };
        let outcome = match begun.ask_id {
            Some(ask_id) if !awaits_person => self.wait_for(ended, ask_id).await?,
            _ => self.wait_for_word(ended).await?,
        };
        self.show(Activity::Acting);
        Ok((call.id.clone(), outcome))
    }

    /// Records the refusal of a call that has not run, or that was recorded as started before a crash.
    async fn record_refusal(
        &self,
        call: &OpenCall,
        tool: &str,
        alias: Option<String>,
        refusal: Refusal,
    ) -> Result<CallOutcome, Refusal> {
        let call_id = call.begun.as_ref().map_or_else(|| self.call_id(), |begun| begun.call_id);
        // The journal gets no start of a call that is refused at once: it has no effect.
        let start = call.begun.is_none().then(|| start_of(call_id, call, tool, alias, Effect::Read));
        let ended = Ended { call_id, id: call.id.clone(), tool: tool.to_owned(), view_bytes: None };
        self.record_result(start, ended, Err(refusal)).await
    }

    /// Runs the calls that share a commit. The first ones are handed to the store together, up to one that is refused, whose
    /// refusal is stored by itself; then the rest is handed over anew.
    async fn run_in_store(&mut self, acted: &mut Acted) -> Result<(), Refusal> {
        let calls = std::mem::take(&mut acted.in_store);
        let (began, mut rest) = (self.begin(), &calls[..]);
        while !rest.is_empty() {
            for done in self.run_together(rest).await? {
                let Some((checked, others)) = rest.split_first() else { break };
                acted.outcomes.push(self.recorded(checked, done).await?);
                rest = others;
            }
        }
        self.progress.worked += self.since(&began);
        Ok(())
    }

    /// Runs the calls that may overlap. A running call takes a permit; a call that waits for an answer
    /// takes none.
    async fn run_group(&mut self, acted: &mut Acted) -> Result<(), Refusal> {
        let group = std::mem::take(&mut acted.beside);
        if group.is_empty() {
            return Ok(());
        }
        let this: &Self = self;
        let waits_itself = |checked: &Checked| checked.run.effect() == Effect::Wait || checked.awaits_person;
        let waits = |checked: &Checked| waits_itself(checked) || checked.needs_approval.is_some();
        let (asking, has_waits) = (group.iter().all(waits), group.iter().any(waits));
        self.show(if asking { Activity::Asking } else { Activity::Acting });
        let permits = Semaphore::new(self.limits().calls_parallel as usize);
        // When the last call that works has ended, the agent only waits for answers.
        let working = AtomicUsize::new(group.iter().filter(|checked| !waits(checked)).count());
        let runs = group.iter().map(|checked| async {
            let refusal = this.wait_for_approval(checked).await?;
            let waited = waits_itself(checked);
            if checked.needs_approval.is_some() && !waited {
                working.fetch_add(1, Ordering::Relaxed);
                this.show(Activity::Acting);
            }
            let began = this.begin();
            let done = match refusal {
                Some(refusal) => CallResult::Refused(refusal),
                None => this.run_beside(checked, &permits).await?,
            };
            // The turn's work time excludes waiting for an answer or for an unavailable store.
            if !waited && working.fetch_sub(1, Ordering::Relaxed) == 1 && has_waits {
                this.show(Activity::Asking);
            }
            let worked = if waited { Duration::ZERO } else { this.since(&began) };
            this.recorded(checked, done).await.map(|outcome| (outcome, worked))
        });
        let mut longest = Duration::ZERO;
        for done in join_all(runs).await {
            let (outcome, worked) = done?;
            acted.outcomes.push(outcome);
            longest = longest.max(worked);
        }
        self.progress.worked += longest;
        self.show(Activity::Acting);
        Ok(())
    }

    /// Runs a call that may overlap with others.
    async fn run_beside(&self, checked: &Checked, permits: &Semaphore) -> Result<CallResult, Refusal> {
        match &checked.run {
            Run::Ask(tool) => return self.ask(checked, tool).await,
            Run::Outside(_) if checked.awaits_person => return self.wait_for_person(checked).await,
            _ => {}
        }
        // A call that costs money runs with nothing beside it, so that its budget has what those before it cost.
        let is_alone = checked.tool.charges && matches!(checked.run, Run::Outside(_));
        let places = if is_alone { self.limits().calls_parallel } else { 1 };
        // The semaphore is never closed, so this cannot fail. Without a permit the call would just start sooner.
        let _permits = permits.acquire_many(places).await.ok();
        // The calls before it may have run for long.
        if let Some(refusal) = self.lost(checked).await? {
            return Ok(CallResult::Refused(refusal));
        }
        match &checked.run {
            Run::Read(tool) => self.read(checked, tool).await,
            Run::Outside(tool) => self.outside(checked, tool).await,
            Run::World(_) | Run::File(_) | Run::Ask(_) | Run::Choose(_) => Ok(misplaced(checked, "beside other calls")),
        }
    }

    /// Runs a call that must not overlap with others.
    async fn run_one(&mut self, checked: Checked) -> Result<Outcome, Refusal> {
        let refusal = match self.wait_for_sole_approval(&checked).await? {
            Some(refusal) => Some(refusal),
            // The calls before it may have run for long.
            None => self.lost(&checked).await?,
        };
        if let Some(refusal) = refusal {
            return self.recorded(&checked, CallResult::Refused(refusal)).await;
        }
        let began = self.begin();
        let done = match &checked.run {
            Run::World(tool) => self.in_store(&checked, tool).await?,
            Run::File(tool) => self.file(&checked, tool).await?,
            Run::Read(_) | Run::Outside(_) | Run::Ask(_) | Run::Choose(_) => misplaced(&checked, "alone"),
        };
        self.progress.worked += self.since(&began);
        self.recorded(&checked, done).await
    }

    async fn recorded(&self, checked: &Checked, done: CallResult) -> Result<Outcome, Refusal> {
        let (call, name) = (&checked.call, &checked.tool.spec.name);
        let outcome = match done {
            CallResult::Recorded(outcome) => outcome,
            CallResult::Refused(refusal) => self.record_refusal(call, name, checked.alias.clone(), refusal).await?,
        };
        Ok((call.id.clone(), outcome))
    }

    /// Runs a call that is alone in its answer. Its result is recorded with the next write of the
    /// turn, which follows at once: the next model call or the end. `begun` is the call's id if its
    /// start is already in the journal.
    async fn run_sole(&mut self, checked: Checked, begun: Option<CallId>) -> Result<Outcome, Refusal> {
        if let Some(refusal) = self.wait_for_sole_approval(&checked).await? {
            return self.recorded(&checked, CallResult::Refused(refusal)).await;
        }
        let began = self.begin();
        let call_id = begun.unwrap_or_else(|| self.call_id());
        let context = self.call_context(call_id, &checked);
        let arguments = checked.call.arguments.clone();
        let start = || self.call_start(&checked, call_id, Vec::new());
        let (start, result) = match &checked.run {
            Run::Outside(tool) => {
                if begun.is_none() {
                    self.record_start(start()).await?;
                }
                (None, self.in_time_saved(&checked, &context, tool.run(&context, arguments)).await)
            }
            Run::Read(tool) => {
                let start = CallStart { begun_at: Some(began.at), ..start() };
                let result = self.in_time_saved(&checked, &context, tool.run(&context, arguments)).await;
                (Some(start), self.unless_away(result)?)
            }
            Run::World(_) | Run::File(_) | Run::Ask(_) | Run::Choose(_) => {
                let name = &checked.tool.spec.name;
                return Err(Refusal::new(Code::Internal, format!("{name} records its own result")));
            }
        };
        self.progress.worked += self.since(&began);
        let pending_result = PendingResult::new(start, self.ended(&checked, call_id), result);
        let outcome = pending_result.outcome.clone();
        self.pending_result = Some(pending_result.into());
        Ok((checked.call.id, outcome))
    }

    /// Adds the results to the conversation, in the model's order, and reports them to the loop
    /// guard. `stop` is its refusal if it ends the turn already.
    async fn close_round(
        &mut self,
        order: &[Written],
        outcomes: Vec<Outcome>,
        mut stop: Option<Refusal>,
    ) -> Result<(), End> {
        // The guard was rebuilt from the journal, so it knows results from before a crash. Only new
        // results are reported.
        let fresh: BTreeSet<String> = outcomes.iter().map(|(id, _)| id.clone()).collect();
        let mut known = self.known_results(order, outcomes).await?;
        if let Some(live) = &mut self.tools.live {
            // The tool that is meant, which may be called through another one.
            let meant = |(id, name, arguments): &Written| OpenCall::new(id, name, arguments, None).name;
            live.skills_changed |= order.iter().any(|call| meant(call).contains("skill"));
        }
        let mut blocks = Vec::with_capacity(order.len());
        let mut warnings = Vec::new();
        for (id, name, arguments) in order {
            let Some(outcome) = known.remove(id) else {
                // A provider refuses a conversation in which a call has no result.
                return Err(Refusal::new(Code::Internal, format!("the call {id} of {name} has no result")).into());
            };
            let tool = self.recorded_name(name);
            // The guard has already counted its own refusals.
            let guarded = outcome.refusal.as_ref().is_some_and(is_own);
            if !guarded && fresh.contains(id) {
                let nature = self.tools.registry.nature(name, arguments);
                match self.guard.observe(Call { tool: &tool, arguments, nature }, &outcome) {
                    Verdict::Fine | Verdict::Block(_) => {}
                    Verdict::Warn(text) => warnings.push(text),
                    Verdict::Stop(refusal) => stop = Some(refusal),
                }
            }
            blocks.extend(result_blocks(id, name, self.view(&tool, &outcome), &outcome));
        }
        self.conversation.push(Message { role: Role::Tool, blocks });
        if let Some(refusal) = stop {
            return Err(End::With(self.at_bound(refusal, false, None)));
        }
        if !warnings.is_empty() {
            let text = warnings.join("\n");
            self.flush().await?;
            let (turn_id, note) = (self.turn.turn_id, text.clone());
            self.engine.services.write(move |w| turns::note(w, turn_id, &note)).await?;
            self.conversation.tell(text);
        }
        Ok(())
    }

    /// The results of an answer's calls, by the provider's id: also those that were recorded before a crash.
    async fn known_results(
        &self,
        order: &[Written],
        outcomes: Vec<Outcome>,
    ) -> Result<BTreeMap<String, CallOutcome>, Refusal> {
        let mut known: BTreeMap<String, CallOutcome> = outcomes.into_iter().collect();
        if order.iter().all(|(id, ..)| known.contains_key(id)) {
            return Ok(known);
        }
        let turn_id = self.turn.turn_id;
        let rows = self.engine.services.store.read(move |r| r.journal_of(turn_id)).await.map_err(Refusal::from)?;
        let mut recorded = BTreeMap::new();
        for row in rows {
            match row.step {
                // Rows of earlier answers come first and are discarded; only the rows after the
                // last answer are used.
                Step::ModelAnswered { .. } => recorded.clear(),
                Step::CallFinished { id, outcome, .. } => {
                    recorded.insert(id, outcome);
                }
                _ => {}
            }
        }
        // A sole call's result is not journaled yet.
        recorded.append(&mut known);
        Ok(recorded)
    }
}

/// The refusal of a call that an answer makes beyond its limit.
fn beyond(limit: usize) -> Refusal {
    Refusal::new(Code::TooLarge, format!("one answer may make {limit} calls; this one is beyond that"))
        .hint("make it in your next answer")
}

/// The refusal of a call that was to run in a way in which its tool cannot.
fn misplaced(checked: &Checked, how: &str) -> CallResult {
    CallResult::Refused(Refusal::new(Code::Internal, format!("{} cannot run {how}", checked.tool.spec.name)))
}
