//! Runs one call by the kind of its effect. A read or an outside call runs with a time limit. The effect of a call in the
//! store and its record share one transaction. A file write is journaled with the files' hashes before and after; after a
//! crash, the hashes tell which of the writes have happened.
//!
//! This module must never apply a call in the store before one that comes earlier in the model's answer. It must never
//! repeat an outside effect.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use futures_util::future::join_all;
use ghost_domain::journal::{CallOutcome, FilePlan};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{CallId, Code, Limits, Refusal, Turn};
use ghost_operations::mail::with_nearest;
use ghost_operations::turns::{self, CallStart};
use ghost_operations::{Tx, budgets, grants};
use ghost_store::{StoreError, is_away};
use ghost_tools::tool::{AfterCrash, FileTool, OutsideTool, ReadTool, WorldTool};
use ghost_tools::workspace::is_out_of_room;
use ghost_tools::{CallContext, FileWork, Output, Run, view};
use serde_json::{Value, json};

use super::call::{CallResult, Checked, InTransaction, outcome_unknown};
use super::runner::{Runner, within};
use crate::transcript::Begun;

/// The tool that may add mail to the turn.
const INBOX_READ: &str = "syscall.inbox.read";

/// Keeps a call from being applied before the result of one that comes earlier is stored. Only the store's writer, which
/// runs commands one by one, changes it.
#[derive(Default)]
struct Order {
    /// Calls of the turn that the store must know: the store may fail to commit a batch, and take the next command a moment
    /// later.
    calls: AtomicU32,
    /// The place of the call that may begin; `NONE` while one runs and after one that was not applied: it was refused, or
    /// its transaction failed or panicked.
    next: AtomicUsize,
}

const NONE: usize = usize::MAX;

impl Order {
    /// Begins the call at `place`. Until it is [`applied`](Self::applied), no other may begin.
    fn begin(&self, place: usize) -> Result<(), NotApplied> {
        let began = self.next.compare_exchange(place, NONE, Ordering::Relaxed, Ordering::Relaxed);
        began.map(drop).map_err(|_| NotApplied::HeldBack)
    }

    /// Checks that the effects of all earlier calls were stored.
    fn check(&self, turn: &Turn) -> Result<(), InTransaction> {
        if turn.calls >= self.calls.load(Ordering::Relaxed) {
            return Ok(());
        }
        let why = "the effect of an earlier call of this answer was not stored";
        let refusal = Refusal::new(Code::Unavailable, why).hint("the calls are tried again in their order");
        Err(InTransaction::Turn(refusal))
    }

    /// A part of the call at `place` was applied, and it goes on.
    fn sliced(&self, place: usize) {
        self.next.store(place, Ordering::Relaxed);
    }

    fn applied(&self, turn: &Turn, place: usize) {
        self.calls.store(turn.calls.saturating_add(1), Ordering::Relaxed);
        self.next.store(place + 1, Ordering::Relaxed);
    }
}

/// Why a call was not applied.
enum NotApplied {
    /// The result of an earlier call is not stored yet.
    HeldBack,
    Refused(InTransaction),
}

impl From<InTransaction> for NotApplied {
    fn from(refused: InTransaction) -> Self {
        Self::Refused(refused)
    }
}

impl From<StoreError> for NotApplied {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

/// A call whose tool has read what it needs outside the store.
struct Ready {
    tool: Arc<dyn WorldTool>,
    start: CallStart,
    context: CallContext,
    arguments: Value,
}

/// What the files of a plan are after a crash.
enum Left {
    /// All are as planned.
    Written,
    /// None is: nothing has happened.
    Unwritten,
    /// The plans of those that are as they were before; the others are as planned.
    Part(Vec<FilePlan>),
    /// Something else has happened to one.
    Unknown,
}

impl Runner {
    /// Runs a call without effects, then records its start and its result together.
    pub(super) async fn read(&self, checked: &Checked, tool: &Arc<dyn ReadTool>) -> Result<CallResult, Refusal> {
        let call_id = self.call_id();
        let context = self.call_context(call_id, checked);
        let began = self.clock().steady();
        let work = tool.run(&context, checked.call.arguments.clone());
        let result = self.unless_away(self.in_time_saved(checked, &context, work).await)?;
        let start = CallStart { begun_at: Some(began), ..self.call_start(checked, call_id, Vec::new()) };
        self.record_result(Some(start), self.ended(checked, call_id), result).await.map(CallResult::Recorded)
    }

    /// Runs a call with an outside effect. Its start is recorded before it runs. After a crash it
    /// is not run again; it continues if it recorded a session, and is settled if its tool can do that.
    pub(super) async fn outside(&self, checked: &Checked, tool: &Arc<dyn OutsideTool>) -> Result<CallResult, Refusal> {
        let begun = checked.call.begun.as_ref();
        let call_id = begun.map_or_else(|| self.call_id(), |begun| begun.call_id);
        if begun.is_none() {
            self.record_start(self.call_start(checked, call_id, Vec::new())).await?;
        }
        let (context, arguments) = (self.call_context(call_id, checked), checked.call.arguments.clone());
        let work = match begun.map(|begun| &begun.session) {
            None => tool.run(&context, arguments),
            Some(Some(session)) => tool.resume(&context, arguments, session),
            Some(None) if tool.after_crash() == AfterCrash::Settled => tool.settle(&context, arguments),
            Some(None) => return Ok(CallResult::Refused(outcome_unknown(&checked.tool.spec.name))),
        };
        let result = self.in_time_saved(checked, &context, work).await;
        self.record_result(None, self.ended(checked, call_id), result).await.map(CallResult::Recorded)
    }

    /// Whether a tool's refusal says that the store is away. That is not the model's affair: the turn goes on here, from its
    /// journal, when the store answers again.
    pub(super) fn must_wait(&self, refusal: &Refusal) -> bool {
        !self.terms.for_operator && is_away(refusal)
    }

    /// The result of a call, for the model; an error if the store was away, which ends the work on the turn for now.
    pub(super) fn unless_away<T>(&self, result: Result<T, Refusal>) -> Result<Result<T, Refusal>, Refusal> {
        match result {
            Err(refusal) if self.must_wait(&refusal) => Err(refusal),
            result => Ok(result),
        }
    }

    /// Runs a call with its time limit.
    pub(super) async fn in_time<T>(
        &self,
        checked: &Checked,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let seconds = checked.tool.seconds.unwrap_or(self.limits().call_seconds);
        let limit = Limits::seconds(seconds);
        let limit = if self.terms.timed { limit.min(self.time_left()) } else { limit };
        match within(&**self.clock(), limit, work).await {
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
    pub(super) async fn in_time_saved(
        &self,
        checked: &Checked,
        call_context: &CallContext,
        work: impl Future<Output = Result<Output, Refusal>>,
    ) -> Result<Output, Refusal> {
        if let Some(refusal) = self.over_budget(checked).await? {
            return Err(refusal);
        }
        let output = self.in_time(checked, work).await?;
        Ok(view::save(call_context, self.view_bytes(checked) as usize, output).await)
    }

    /// Why a call that costs money may not run: a budget is spent. A model call would wait or end its turn; here the model
    /// is told, so that it can do without.
    async fn over_budget(&self, checked: &Checked) -> Result<Option<Refusal>, Refusal> {
        if !checked.tool.charges {
            return Ok(None);
        }
        let turn_id = self.turn.turn_id;
        let read = self.engine.services.read(move |r| {
            let Some(turn) = r.turn_get(turn_id)? else { return Ok(()) };
            let Some(agent) = r.agent_get(&turn.agent_id)? else { return Ok(()) };
            budgets::may_charge(r, &agent, &turn)
        });
        match read.await {
            Ok(()) => Ok(None),
            Err(refusal) if refusal.code == Code::BudgetExhausted => Ok(Some(refusal)),
            Err(refusal) => Err(refusal),
        }
    }

    /// Whether the call need not wait until the effect of the call before it is on the disk.
    pub(super) fn may_share_a_commit(&self, checked: &Checked) -> bool {
        matches!(checked.run, Run::World(_)) && checked.needs_approval.is_none() && checked.tool.spec.name != INBOX_READ
    }

    /// Runs neighbouring calls. Each has a transaction of its own, so that one that is refused undoes no other, and sees
    /// what those before it did; but all are handed to the store at once, which commits them together. So an answer with
    /// ten calls waits for the disk once. Returns the results of the first of them, at least one: up to one that was refused.
    pub(super) async fn run_together(&self, calls: &[Checked]) -> Result<Vec<CallResult>, Refusal> {
        let (mut ready, mut refused) = (Vec::with_capacity(calls.len()), None);
        for checked in calls {
            let prepared = match &checked.run {
                Run::World(tool) => self.ready(checked, tool).await,
                _ => Err(Refusal::new(Code::Internal, "this call has no effect in the store")),
            };
            match self.unless_away(prepared)? {
                Ok(prepared) => ready.push(prepared),
                Err(refusal) => {
                    refused = Some(CallResult::Refused(refusal));
                    break;
                }
            }
        }
        let order = Arc::new(Order::default());
        // `join_all` first polls in order, and the store usually keeps that order. A call that overtakes another is held back.
        let places = calls.iter().zip(ready).enumerate();
        let applied = places.map(|(place, (checked, ready))| self.apply(checked, ready, (place, Arc::clone(&order))));
        let mut results = Vec::with_capacity(calls.len());
        for done in join_all(applied).await {
            match done? {
                Some(result) => results.push(result),
                None => return Ok(results),
            }
        }
        results.extend(refused);
        Ok(results)
    }

    /// Runs one call.
    pub(super) async fn in_store(&self, checked: &Checked, tool: &Arc<dyn WorldTool>) -> Result<CallResult, Refusal> {
        let ready = match self.unless_away(self.ready(checked, tool).await)? {
            Ok(ready) => ready,
            Err(refusal) => return Ok(CallResult::Refused(refusal)),
        };
        let nothing = || Refusal::new(Code::Internal, "the call waited for itself");
        self.apply(checked, ready, (0, Arc::default())).await?.ok_or_else(nothing)
    }

    async fn ready(&self, checked: &Checked, tool: &Arc<dyn WorldTool>) -> Result<Ready, Refusal> {
        if let Some(refusal) = self.lost(checked).await? {
            return Err(refusal);
        }
        let begun = checked.call.begun.as_ref();
        let call_id = begun.map_or_else(|| self.call_id(), |begun| begun.call_id);
        let start = self.call_start(checked, call_id, Vec::new());
        let context = self.call_context(start.call_id, checked);
        let arguments = self.in_time(checked, tool.prepare(&context, start.arguments.clone())).await?;
        Ok(Ready { tool: Arc::clone(tool), start, context, arguments })
    }

    /// Applies one call, in as many transactions as its tool needs. `None` if it was held back. If the tool refuses, only
    /// the refusal is recorded, by the caller unless a part was applied before.
    async fn apply(
        &self,
        checked: &Checked,
        mut ready: Ready,
        (place, order): (usize, Arc<Order>),
    ) -> Result<Option<CallResult>, Refusal> {
        let call_id = ready.start.call_id;
        loop {
            let has_begun = ready.context.progress.is_some();
            match self.apply_part(checked, ready, (place, Arc::clone(&order))).await {
                Ok(ControlFlow::Break(outcome)) => return Ok(Some(CallResult::Recorded(outcome))),
                Ok(ControlFlow::Continue(rest)) => ready = *rest,
                Err(NotApplied::HeldBack) => return Ok(None),
                Err(NotApplied::Refused(InTransaction::Turn(refusal))) => return Err(refusal),
                Err(NotApplied::Refused(InTransaction::Tool(refusal))) if self.must_wait(&refusal) => {
                    return Err(refusal);
                }
                Err(NotApplied::Refused(InTransaction::Tool(refusal))) => {
                    let refusal = with_nearest(&self.engine.services.store, refusal).await;
                    if !has_begun {
                        return Ok(Some(CallResult::Refused(refusal)));
                    }
                    let recorded = self.record_result(None, self.ended(checked, call_id), Err(refusal)).await?;
                    return Ok(Some(CallResult::Recorded(recorded)));
                }
            }
        }
    }

    /// Applies what one transaction takes of a call. Continues with the rest, if there is any.
    async fn apply_part(
        &self,
        checked: &Checked,
        mut ready: Ready,
        (place, order): (usize, Arc<Order>),
    ) -> Result<ControlFlow<CallOutcome, Box<Ready>>, NotApplied> {
        let turn_id = self.turn.turn_id;
        let ended = self.ended(checked, ready.start.call_id);
        let part = move |w: &mut Tx| {
            order.begin(place)?;
            let turn = turns::working_turn(w, turn_id).map_err(InTransaction::Turn)?;
            order.check(&turn)?;
            let Ready { tool, start, context, arguments } = &mut ready;
            if context.progress.is_none() {
                turns::record_call_start(w, &turn, start).map_err(InTransaction::Turn)?;
            }
            let mut output = tool.apply(context, arguments.clone(), w).map_err(InTransaction::Tool)?;
            if let Some(progress) = output.progress.take() {
                let call = (start.call_id, start.id.as_str());
                let journaled = turns::record_call_slice(w, &turn, call, progress.clone());
                journaled.map_err(InTransaction::Turn)?;
                context.progress = Some(progress);
                order.sliced(place);
                return Ok(ControlFlow::Continue(Box::new(ready)));
            }
            let outcome = ended.record(w, &turn, Ok(output)).map_err(InTransaction::Turn)?;
            order.applied(&turn, place);
            Ok(ControlFlow::Break(outcome))
        };
        self.engine.services.write(part).await
    }

    /// Writes files. What a crash has left of the writes decides what is still to be done.
    pub(super) async fn file(&self, checked: &Checked, tool: &Arc<dyn FileTool>) -> Result<CallResult, Refusal> {
        let begun = checked.call.begun.as_ref();
        let call_id = begun.map_or_else(|| self.call_id(), |begun| begun.call_id);
        let call = FileCall { runner: self, checked, tool, call_id };
        let Some(Begun { files: plans, .. }) = begun else { return call.write().await };
        // If a file cannot be read, it is unknown whether the write has happened.
        let left = match plans.is_empty() {
            true => Left::Unknown,
            false => self.in_time(checked, self.left(plans)).await.unwrap_or(Left::Unknown),
        };
        match left {
            Left::Written => call.record(plans.clone()).await,
            Left::Unwritten => call.write().await,
            Left::Part(rest) => call.write_rest(plans.clone(), &rest).await,
            Left::Unknown => Ok(CallResult::Refused(outcome_unknown(&checked.tool.spec.name))),
        }
    }

    /// Compares the files with their plans.
    async fn left(&self, plans: &[FilePlan]) -> Result<Left, Refusal> {
        let (mut rest, mut written) = (Vec::new(), 0_usize);
        for plan in plans {
            let path = WorkspacePath::parse(&plan.path, false)?;
            let found = self.engine.services.workspace.hash(&path).await?;
            if found == plan.after {
                written += 1;
            } else if found == plan.before {
                rest.push(plan.clone());
            } else {
                return Ok(Left::Unknown);
            }
        }
        Ok(match (written, rest.is_empty()) {
            (_, true) => Left::Written,
            (0, false) => Left::Unwritten,
            (_, false) => Left::Part(rest),
        })
    }
}

/// A call that writes files.
struct FileCall<'a> {
    runner: &'a Runner,
    checked: &'a Checked,
    tool: &'a Arc<dyn FileTool>,
    call_id: CallId,
}

impl FileCall<'_> {
    fn context(&self) -> CallContext {
        self.runner.call_context(self.call_id, self.checked)
    }

    /// Prepares the writes, journals them, carries them out and records their result. Nothing was written before.
    async fn write(&self) -> Result<CallResult, Refusal> {
        let (runner, context) = (self.runner, self.context());
        let prepared = self.tool.prepare(&context, &self.checked.call.arguments);
        let work = match runner.unless_away(runner.in_time(self.checked, prepared).await)? {
            Ok(work) => work,
            Err(refusal) => return Ok(CallResult::Refused(refusal)),
        };
        let plans = work.plans();
        // A resumed write is journaled again, because the files may have changed since.
        runner.record_start(runner.call_start(self.checked, self.call_id, plans.clone())).await?;
        self.carry_out(work, plans).await
    }

    /// Completes a call of which a crash left a part. What it may not do any more stays undone, and the model gets to
    /// know which files were changed.
    async fn write_rest(&self, plans: Vec<FilePlan>, rest: &[FilePlan]) -> Result<CallResult, Refusal> {
        let context = self.context();
        let prepared = self.tool.prepare_rest(&context, &self.checked.call.arguments, rest);
        let why = match self.runner.in_time(self.checked, prepared).await {
            Ok(work) if is_same(&work.plans(), rest) => return self.carry_out(work, plans).await,
            Ok(_) => "the rest would not be what was planned".to_owned(),
            Err(refusal) => refusal.message,
        };
        let named = |done: bool| -> Vec<&str> {
            let is_done = |plan: &&FilePlan| rest.iter().any(|left| left.path == plan.path) != done;
            plans.iter().filter(is_done).map(|plan| plan.path.as_str()).collect()
        };
        let (changed, unchanged) = (named(true), named(false));
        let tool = &self.checked.tool.spec.name;
        let what = format!("the daemon stopped in the middle of {tool}, and it cannot be completed: {why}");
        let refusal = Refusal::new(Code::OutcomeUnknown, what)
            .hint(format!("changed: {}; unchanged: {}", changed.join(", "), unchanged.join(", ")))
            .details(json!({ "changed": changed, "unchanged": unchanged }));
        Ok(CallResult::Refused(refusal))
    }

    /// Makes the writes and records the result. `plans` are those of the whole call.
    async fn carry_out(&self, work: FileWork, plans: Vec<FilePlan>) -> Result<CallResult, Refusal> {
        let written = self.runner.engine.services.workspace.carry_out(work.writes);
        let refusal = match self.runner.in_time(self.checked, written).await {
            Ok(_) => return self.record(plans).await,
            // Not the model's affair: the turn goes on here, from its journal, when there is room again.
            Err(refusal) if !self.runner.terms.for_operator && is_out_of_room(&refusal) => return Err(refusal),
            // The disk may still complete a write that has timed out.
            Err(refusal) if refusal.code == Code::Timeout => Refusal::new(Code::OutcomeUnknown, refusal.message)
                .hint("it may or may not be written yet: read the file before you write it again"),
            Err(refusal) => refusal,
        };
        self.record_refusal(refusal).await
    }

    /// Records the result of the writes. If the tool refuses them, they are reverted: a refused call must have no effect.
    async fn record(&self, plans: Vec<FilePlan>) -> Result<CallResult, Refusal> {
        let (context, services, call_id) = (self.context(), &self.runner.engine.services, self.call_id);
        let (recorder, turn_id) = (Arc::clone(self.tool), context.turn_id);
        let ended = self.runner.ended(self.checked, call_id);
        let (arguments, written) = (self.checked.call.arguments.clone(), plans.clone());
        let recorded = services.write(move |w| {
            let turn = turns::working_turn(w, turn_id).map_err(InTransaction::Turn)?;
            let mut output = recorder.record(&context, arguments, &plans, w).map_err(InTransaction::Tool)?;
            for plan in &plans {
                let Some(grant_id) = plan.grant_id else { continue };
                output.events.push(grants::used(&turn.agent_id, turn_id, call_id, grant_id, Some(&plan.path)));
            }
            ended.record(w, &turn, Ok(output)).map_err(InTransaction::Turn)
        });
        let refusal = match recorded.await {
            Ok(outcome) => return Ok(CallResult::Recorded(outcome)),
            Err(InTransaction::Turn(refusal)) => return Err(refusal),
            Err(InTransaction::Tool(refusal)) if self.runner.must_wait(&refusal) => return Err(refusal),
            Err(InTransaction::Tool(refusal)) => refusal,
        };
        let refusal = match self.runner.in_time(self.checked, services.workspace.take_back(&written)).await {
            Ok(true) => refusal,
            Ok(false) | Err(_) => {
                let hint = refusal.hint.clone().unwrap_or_else(|| "nothing else was done".into());
                let paths: Vec<String> = written.iter().map(|plan| format!("`{}`", plan.path)).collect();
                refusal.hint(format!("{hint}; {} was written and is still there", paths.join(", ")))
            }
        };
        self.record_refusal(refusal).await
    }

    async fn record_refusal(&self, refusal: Refusal) -> Result<CallResult, Refusal> {
        let ended = self.runner.ended(self.checked, self.call_id);
        self.runner.record_result(None, ended, Err(refusal)).await.map(CallResult::Recorded)
    }
}

/// Whether two lists plan the same writes, in any order and whatever grants allow them.
fn is_same(some: &[FilePlan], others: &[FilePlan]) -> bool {
    let same = |one: &FilePlan, other: &FilePlan| {
        (&one.path, &one.before, &one.after) == (&other.path, &other.before, &other.after)
    };
    some.len() == others.len() && some.iter().all(|one| others.iter().any(|other| same(one, other)))
}
