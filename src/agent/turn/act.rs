//! Runs the tool calls of one answer. Effects in the store are applied one after another, in the model's order
//! ([`store_calls`](super::store_calls)). Neighbouring reads, outside calls and asks run in parallel.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use ghost_domain::journal::{CallOutcome, Effect, Step};
use ghost_domain::tool_catalogue::DESCRIBE;
use ghost_domain::transcript::{Message, Role};
use ghost_domain::{Activity, CallId, Code, Limits, Refusal};
use ghost_operations::budgets;
use ghost_operations::turns::{self, CallStart, Ending};
use ghost_tools::approval::Need;
use ghost_tools::loop_guard::{Call, Verdict, is_own};
use ghost_tools::tool::{AfterCrash, ErasedOutside, ErasedRead};
use ghost_tools::{CallContext, Output, Run, saved};
use tokio::sync::Semaphore;

use super::call::{CallResult, Checked, Checking};
use super::ended::Ended;
use super::pending_result::PendingResult;
use super::record::outcome_unknown;
use super::runner::Runner;
use super::wait::within;
use crate::transcript::{Begun, OpenCall, result_blocks};

/// The tool that may add mail to the turn.
pub(super) const INBOX_READ: &str = "syscall.inbox.read";

impl Runner {
    /// Runs the open calls and adds their results to the conversation.
    pub(super) async fn act(&mut self) -> Result<Option<Ending>, Refusal> {
        let order = self.last_calls();
        let outcomes = self.run_open().await?;
        self.close_round(&order, outcomes).await
    }

    /// Runs the single call of an operator's turn.
    pub(super) async fn act_once(&mut self) -> Result<CallOutcome, Refusal> {
        let outcomes = self.run_open().await?;
        self.flush().await?;
        let outcome = outcomes.into_iter().next().map(|(_, outcome)| outcome);
        outcome.ok_or_else(|| Refusal::new(Code::Internal, "the call has no outcome"))
    }

    async fn run_open(&mut self) -> Result<Vec<(String, CallOutcome)>, Refusal> {
        self.show(Activity::Acting);
        let calls = std::mem::take(&mut self.open);
        let (limit, is_sole) = (self.limits().calls_per_answer as usize, calls.len() == 1);
        let mut prepared = self.prepared.take();
        let (mut group, mut in_store) = (Vec::new(), Vec::new());
        let mut outcomes = Vec::new();
        for (index, call) in calls.into_iter().enumerate() {
            if index >= limit {
                outcomes.append(&mut self.run_in_store(std::mem::take(&mut in_store)).await?);
                let refusal =
                    Refusal::new(Code::TooLarge, format!("one answer may make {limit} calls; this one is beyond that"))
                        .hint("make it in your next answer");
                outcomes.push(self.refuse(&call, refusal).await?);
                continue;
            }
            let (checked, begun) = match prepared.take() {
                Some(prepared) => prepared,
                None => (self.check_whole(call).await?, None),
            };
            match checked {
                Ok(checked) if self.may_share_a_commit(&checked) => {
                    outcomes.append(&mut self.run_group(std::mem::take(&mut group)).await?);
                    in_store.push(checked);
                    continue;
                }
                _ => outcomes.append(&mut self.run_in_store(std::mem::take(&mut in_store)).await?),
            }
            match checked {
                Err(refused) => outcomes.push(self.refuse(&refused.0, refused.1.clone()).await?),
                Ok(checked) => match checked.run.effect() {
                    Effect::World | Effect::File => {
                        outcomes.append(&mut self.run_group(std::mem::take(&mut group)).await?);
                        outcomes.push(self.run_one(checked).await?);
                    }
                    Effect::Read | Effect::Outside if is_sole && checked.call.begun.is_none() => {
                        outcomes.push(self.run_sole(checked, begun).await?);
                    }
                    Effect::Read | Effect::Outside | Effect::Wait => group.push(checked),
                },
            }
        }
        outcomes.append(&mut self.run_in_store(in_store).await?);
        outcomes.append(&mut self.run_group(group).await?);
        Ok(outcomes)
    }

    /// The calls of the model's last answer.
    fn last_calls(&self) -> Vec<(String, String, serde_json::Value)> {
        let last = self.messages.iter().rev().find(|message| message.role == Role::Assistant);
        last.map(|message| {
            message.calls().map(|(id, name, arguments)| (id.to_owned(), name.to_owned(), arguments.clone())).collect()
        })
        .unwrap_or_default()
    }

    /// Checks a call, also by what the files that it uses hold now.
    ///
    /// # Errors
    /// `Unavailable` if the daemon is stopping.
    pub(super) async fn check_whole(&mut self, call: OpenCall) -> Result<Checking, Refusal> {
        let mut checking = self.check(call);
        if let Ok(checked) = &checking
            && let Some(refusal) = self.lost(checked).await?
        {
            return Ok(checking.and_then(|checked| Err(Box::new((checked.call, refusal)))));
        }
        if let Ok(checked) = &mut checking
            && let Some(begun) = &checked.call.begun
        {
            checked.awaits_person = self.awaits_person(begun, Some(&checked.run)).await?;
        }
        if let Ok(checked) = &mut checking
            && checked.call.begun.is_none()
            && checked.needs_approval.is_none()
        {
            let (services, arguments) = (&self.engine.services, &checked.call.arguments);
            checked.needs_approval = checked.tool.closer_need(services, self.registry.caller(), arguments).await?;
        }
        Ok(checking)
    }

    /// Finds a call's tool, checks the size and the schema of the arguments, and asks the loop
    /// guard. A call runs only if all checks succeed.
    fn check(&mut self, call: OpenCall) -> Checking {
        let (tool, alias) = match self.registry.find(&call.name) {
            Ok(found) => found,
            Err(refusal) => {
                // The refusal uses the same name for the tool as the records do.
                let refusal = self.registry.find(&self.recorded_name(&call.name)).err().unwrap_or(refusal);
                return Err(Box::new((call, refusal)));
            }
        };
        let limit = self.limits().arguments_bytes as usize;
        let size = call.arguments.to_string().len();
        if size > limit {
            let refusal =
                Refusal::new(Code::TooLarge, format!("the arguments have {size} bytes; at most {limit} are taken"))
                    .hint("write in several calls");
            return Err(Box::new((call, refusal)));
        }
        // Presets of an alias and nulls are resolved before the schema check. The journal keeps the
        // arguments as the model wrote them, the ledger the arguments that ran.
        let arguments = tool.normalise(alias.as_deref(), call.arguments.clone());
        if let Err(refusal) = tool.validate(&arguments) {
            let refusal = match self.registry.is_deferred(&tool.spec.name) {
                true => refusal.hint(format!("nothing was run; {DESCRIBE} shows the parameters of {}", tool.spec.name)),
                false => refusal,
            };
            return Err(Box::new((call, refusal)));
        }
        let raw = call.arguments.clone();
        let call = OpenCall { arguments, ..call };
        if call.begun.is_none() {
            let nature = tool.nature(&call.arguments);
            match self.guard.before(Call { tool: &tool.spec.name, arguments: &raw, nature }) {
                Verdict::Fine | Verdict::Warn(_) => {}
                Verdict::Block(refusal) => return Err(Box::new((call, refusal))),
                Verdict::Stop(refusal) => {
                    self.loop_stop = Some(refusal.clone());
                    return Err(Box::new((call, refusal)));
                }
            }
        }
        let run = tool.run.resolve(&call.arguments);
        // A call that has begun was approved before.
        let need = if call.begun.is_none() {
            tool.need(&self.engine.services.plan(), self.registry.caller(), &call.arguments)
        } else {
            Need::Nothing
        };
        let needs_approval = match need {
            Need::Approval(reason) => Some(reason),
            // An operator was asked before a crash. The answer holds also if nobody would be asked any more.
            Need::Nothing if call.begun.is_none() && call.approval_id.is_some() => {
                Some("an operator was asked".to_owned())
            }
            Need::Nothing | Need::Refused => None,
        };
        Ok(Checked { call, tool, alias, run, needs_approval, awaits_person: false })
    }

    /// Records the refusal of a call that may not run. A call that was started before a crash
    /// cannot be refused: an ask goes on waiting, and the outcome of any other call is unknown.
    async fn refuse(&self, call: &OpenCall, refusal: Refusal) -> Result<(String, CallOutcome), Refusal> {
        let name = self.recorded_name(&call.name);
        if let Some(begun) = &call.begun
            && self.awaits_person(begun, None).await?
        {
            self.show(Activity::Asking);
            let ended = Ended { call_id: begun.call_id, id: call.id.clone(), tool: name, view_bytes: None };
            let outcome = self.wait_for_word(ended).await?;
            self.show(Activity::Acting);
            return Ok((call.id.clone(), outcome));
        }
        let refusal = match &call.begun {
            Some(Begun { call_id, ask_id: Some(ask_id), .. }) => {
                self.show(Activity::Asking);
                let outcome = self.wait_for(*call_id, *ask_id, &call.id, &name).await?;
                self.show(Activity::Acting);
                return Ok((call.id.clone(), outcome));
            }
            Some(_) => outcome_unknown(&name),
            None => refusal,
        };
        let call_id = call.begun.as_ref().map(|begun| begun.call_id);
        let outcome = self.record_refusal(call, &name, None, Effect::Read, call_id, refusal).await?;
        Ok((call.id.clone(), outcome))
    }

    /// Runs calls that may overlap. A running call takes a permit; a call that waits for an answer
    /// takes none.
    async fn run_group(&mut self, group: Vec<Checked>) -> Result<Vec<(String, CallOutcome)>, Refusal> {
        if group.is_empty() {
            return Ok(Vec::new());
        }
        let this: &Self = self;
        let waits_itself = |checked: &Checked| checked.run.effect() == Effect::Wait || checked.awaits_person;
        let waits = |checked: &Checked| waits_itself(checked) || checked.needs_approval.is_some();
        let (asking, has_waits) = (group.iter().all(waits), group.iter().any(waits));
        self.show(if asking { Activity::Asking } else { Activity::Acting });
        let clock = self.clock();
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
            let (began, paused) = (clock.steady(), this.paused());
            let outcome = match refusal {
                Some(refusal) => CallResult::Refused(refusal),
                None => this.run_beside(checked, &permits).await?,
            };
            // The turn's work time excludes waiting for an answer or for an unavailable store.
            if !waited && working.fetch_sub(1, Ordering::Relaxed) == 1 && has_waits {
                this.show(Activity::Asking);
            }
            let worked = clock.steady().since(began).saturating_sub(this.paused().saturating_sub(paused));
            let worked = if waited { Duration::ZERO } else { worked };
            this.recorded(checked, outcome).await.map(|outcome| (outcome, worked))
        });
        let outcomes: Vec<Result<_, Refusal>> = join_all(runs).await;
        let (outcomes, worked): (Vec<_>, Vec<Duration>) =
            outcomes.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        self.worked += worked.into_iter().max().unwrap_or_default();
        self.show(Activity::Acting);
        Ok(outcomes)
    }

    /// Runs a call that may overlap with others.
    async fn run_beside(&self, checked: &Checked, permits: &Semaphore) -> Result<CallResult, Refusal> {
        match &checked.run {
            Run::Ask(tool) => self.ask(checked, tool).await,
            Run::Outside(_) if checked.awaits_person => self.wait_for_person(checked).await,
            Run::Read(tool) => {
                // The semaphore is never closed, so this cannot fail. Without a permit the call
                // would just start sooner.
                let _permit = permits.acquire().await.ok();
                if let Some(refusal) = self.lost(checked).await? {
                    return Ok(CallResult::Refused(refusal));
                }
                self.read(checked, tool).await
            }
            Run::Outside(tool) => {
                // A call that costs money runs with nothing beside it, so that its budget has what those before it cost.
                let places = if checked.tool.charges { self.limits().calls_parallel } else { 1 };
                let _permits = permits.acquire_many(places).await.ok();
                // The calls before it may have run for long.
                if let Some(refusal) = self.lost(checked).await? {
                    return Ok(CallResult::Refused(refusal));
                }
                self.outside(checked, tool).await
            }
            Run::World(_) | Run::File(_) | Run::Choose(_) => Ok(CallResult::Refused(Refusal::new(
                Code::Internal,
                format!("{} cannot run beside other calls", checked.tool.spec.name),
            ))),
        }
    }

    /// Runs a call that must not overlap with others.
    async fn run_one(&mut self, checked: Checked) -> Result<(String, CallOutcome), Refusal> {
        if let Some(refusal) = self.wait_for_sole_approval(&checked).await? {
            return self.recorded(&checked, CallResult::Refused(refusal)).await;
        }
        // The calls before it may have run for long.
        if let Some(refusal) = self.lost(&checked).await? {
            return self.recorded(&checked, CallResult::Refused(refusal)).await;
        }
        let clock = self.clock();
        let (began, paused) = (clock.steady(), self.paused());
        let done = match &checked.run {
            Run::World(tool) => self.in_store(&checked, tool).await?,
            Run::File(tool) => self.file(&checked, tool).await?,
            Run::Read(_) | Run::Outside(_) | Run::Ask(_) | Run::Choose(_) => CallResult::Refused(Refusal::new(
                Code::Internal,
                format!("{} cannot run alone", checked.tool.spec.name),
            )),
        };
        self.worked += clock.steady().since(began).saturating_sub(self.paused().saturating_sub(paused));
        self.recorded(&checked, done).await
    }

    pub(super) async fn recorded(&self, checked: &Checked, done: CallResult) -> Result<(String, CallOutcome), Refusal> {
        let outcome = match done {
            CallResult::Recorded(outcome) => outcome,
            CallResult::Refused(refusal) => {
                let name = &checked.tool.spec.name;
                let begun = checked.call.begun.as_ref().map(|begun| begun.call_id);
                let alias = checked.alias.clone();
                self.record_refusal(&checked.call, name, alias, checked.run.effect(), begun, refusal).await?
            }
        };
        Ok((checked.call.id.clone(), outcome))
    }

    /// Runs a call that is alone in its answer. Its result is recorded with the next write of the
    /// turn, which follows at once: the next model call or the end. `begun` is the call's id if its
    /// start is already in the journal.
    async fn run_sole(&mut self, checked: Checked, begun: Option<CallId>) -> Result<(String, CallOutcome), Refusal> {
        if let Some(refusal) = self.wait_for_sole_approval(&checked).await? {
            return self.recorded(&checked, CallResult::Refused(refusal)).await;
        }
        let clock = self.clock();
        let began = clock.steady();
        let call_id = begun.unwrap_or_else(|| CallId(self.engine.services.ctx.id()));
        let call_context = self.call_context(call_id, &checked);
        let arguments = checked.call.arguments.clone();
        let (start, result) = match &checked.run {
            Run::Outside(tool) => {
                if begun.is_none() {
                    self.record_start(self.call_start(&checked, call_id, Vec::new())).await?;
                }
                (None, self.in_time_saved(&checked, &call_context, tool.run(&call_context, arguments)).await)
            }
            Run::Read(tool) => {
                let start = CallStart { begun_at: Some(began), ..self.call_start(&checked, call_id, Vec::new()) };
                (Some(start), self.in_time_saved(&checked, &call_context, tool.run(&call_context, arguments)).await)
            }
            Run::World(_) | Run::File(_) | Run::Ask(_) | Run::Choose(_) => {
                let name = &checked.tool.spec.name;
                return Err(Refusal::new(Code::Internal, format!("{name} records its own result")));
            }
        };
        self.worked += clock.steady().since(began);
        let pending_result = PendingResult::new(start, self.ended(&checked, call_id), result);
        let outcome = pending_result.outcome.clone();
        self.pending_result = Some(Arc::new(pending_result));
        Ok((checked.call.id, outcome))
    }

    /// Runs a call without effects, then records its start and its result together.
    async fn read(&self, checked: &Checked, tool: &Arc<dyn ErasedRead>) -> Result<CallResult, Refusal> {
        let call_id = CallId(self.engine.services.ctx.id());
        let call_context = self.call_context(call_id, checked);
        let began = self.clock().steady();
        let work = tool.run(&call_context, checked.call.arguments.clone());
        let result = self.in_time_saved(checked, &call_context, work).await;
        let start = CallStart { begun_at: Some(began), ..self.call_start(checked, call_id, Vec::new()) };
        let view_bytes = self.ended(checked, call_id).view_bytes;
        self.record_whole(start, view_bytes, result).await.map(CallResult::Recorded)
    }

    /// Runs a call with an outside effect. Its start is recorded before it runs. After a crash it
    /// is not run again; it continues if it recorded a session, and is settled if its tool can do that.
    async fn outside(&self, checked: &Checked, tool: &Arc<dyn ErasedOutside>) -> Result<CallResult, Refusal> {
        if let Some(begun) = &checked.call.begun {
            let call_context = self.call_context(begun.call_id, checked);
            let arguments = checked.call.arguments.clone();
            let result = match &begun.session {
                Some(session) => {
                    let work = tool.resume(&call_context, arguments, session);
                    self.in_time_saved(checked, &call_context, work).await
                }
                None if tool.after_crash() == AfterCrash::Settled => {
                    let work = tool.settle(&call_context, arguments);
                    self.in_time_saved(checked, &call_context, work).await
                }
                None => return Ok(CallResult::Refused(outcome_unknown(&checked.tool.spec.name))),
            };
            return self.record_result(self.ended(checked, begun.call_id), result).await.map(CallResult::Recorded);
        }
        let start = self.call_start(checked, CallId(self.engine.services.ctx.id()), Vec::new());
        let call_id = start.call_id;
        self.record_start(start).await?;
        let call_context = self.call_context(call_id, checked);
        let work = tool.run(&call_context, checked.call.arguments.clone());
        let result = self.in_time_saved(checked, &call_context, work).await;
        self.record_result(self.ended(checked, call_id), result).await.map(CallResult::Recorded)
    }

    /// Runs a call with its time limit.
    pub(super) async fn in_time<T>(
        &self,
        checked: &Checked,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let seconds = checked.tool.seconds.unwrap_or(self.limits().call_seconds);
        let limit = self.capped(Limits::seconds(seconds));
        match within(&*self.clock(), limit, work).await {
            Some(result) => result,
            None => Err(Refusal::new(
                Code::Timeout,
                format!("{} did not end within {} s", checked.tool.spec.name, limit.as_secs()),
            )
            .hint("it was cancelled; try something smaller, or check which effects it had")),
        }
    }

    /// Runs a tool with its time limit, and saves a result that is too large for the model. Results that are recorded in
    /// the transaction of their effect are not saved; their tools bound them.
    async fn in_time_saved(
        &self,
        checked: &Checked,
        call_context: &CallContext,
        work: impl Future<Output = Result<Output, Refusal>>,
    ) -> Result<Output, Refusal> {
        if let Some(refusal) = self.over_budget(checked).await? {
            return Err(refusal);
        }
        let output = self.in_time(checked, work).await?;
        let view_bytes = checked.tool.view_bytes.unwrap_or(self.spec.limits.result_view_bytes);
        Ok(saved::save(call_context, view_bytes as usize, output).await)
    }

    /// Why a call that costs money may not run: a budget is spent. A model call would wait or end its turn; here the model
    /// is told, so that it can do without.
    async fn over_budget(&self, checked: &Checked) -> Result<Option<Refusal>, Refusal> {
        if !checked.tool.charges {
            return Ok(None);
        }
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let read = self.engine.services.store.read(move |r| {
            let Some(turn) = r.turn_get(turn_id)? else { return Ok(()) };
            let Some(agent) = r.agent_get(&turn.agent_id)? else { return Ok(()) };
            budgets::may_charge(r, &ctx, &agent, &turn)
        });
        match read.await {
            Ok(()) => Ok(None),
            Err(refusal) if refusal.code == Code::BudgetExhausted => Ok(Some(refusal)),
            Err(refusal) => Err(refusal),
        }
    }

    /// Adds the results to the conversation, in the model's order, and reports them to the loop
    /// guard.
    async fn close_round(
        &mut self,
        order: &[(String, String, serde_json::Value)],
        outcomes: Vec<(String, CallOutcome)>,
    ) -> Result<Option<Ending>, Refusal> {
        let mut known: std::collections::BTreeMap<String, CallOutcome> = outcomes.into_iter().collect();
        // The guard was rebuilt from the journal, so it knows results from before a crash. Only new
        // results are reported.
        let fresh: std::collections::BTreeSet<String> = known.keys().cloned().collect();
        if order.iter().any(|(id, ..)| !known.contains_key(id)) {
            // Some results were recorded before a crash.
            let turn_id = self.turn.turn_id;
            let rows = self.engine.services.store.read(move |r| r.journal_of(turn_id)).await.map_err(Refusal::from)?;
            let mut recorded = std::collections::BTreeMap::new();
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
            known = recorded;
        }
        if let Some(live) = &mut self.live {
            // The tool that is meant, which may be called through another one.
            let meant = |(id, name, arguments): &(String, String, _)| OpenCall::new(id, name, arguments, None).name;
            live.skills_changed |= order.iter().any(|call| meant(call).contains("skill"));
        }
        let mut blocks = Vec::with_capacity(order.len());
        let mut stop = self.loop_stop.take();
        let mut warnings = Vec::new();
        for (id, name, arguments) in order {
            let Some(outcome) = known.remove(id) else {
                // A provider refuses a conversation in which a call has no result (TOOL-25).
                return Err(Refusal::new(Code::Internal, format!("the call {id} of {name} has no result")));
            };
            let tool = self.recorded_name(name);
            // The guard has already counted its own refusals.
            let guarded = outcome.refusal.as_ref().is_some_and(is_own);
            if !guarded && fresh.contains(id) {
                let nature = self.registry.nature(name, arguments);
                match self.guard.observe(Call { tool: &tool, arguments, nature }, &outcome) {
                    Verdict::Fine | Verdict::Block(_) => {}
                    Verdict::Warn(text) => warnings.push(text),
                    Verdict::Stop(refusal) => stop = Some(refusal),
                }
            }
            blocks.extend(result_blocks(id, name, self.view(&tool, &outcome), &outcome));
        }
        self.messages_mut().push(Message { role: Role::Tool, blocks });
        if let Some(refusal) = stop {
            return Ok(Some(self.at_bound(refusal, false, None)));
        }
        if !warnings.is_empty() {
            let text = warnings.join("\n");
            self.flush().await?;
            let (ctx, turn_id, note) = (self.engine.services.ctx.clone(), self.turn.turn_id, text.clone());
            self.engine.services.store.write(move |w| turns::note(w, &ctx, turn_id, &note)).await?;
            self.messages_mut().push(Message::text(Role::User, text));
        }
        Ok(None)
    }
}
