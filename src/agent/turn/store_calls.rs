//! Runs calls whose effects are in the store. The effect and the record of a call share one transaction.
//!
//! This module must never apply a call before one that comes earlier in the model's answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use futures_util::future::join_all;
use ghost_domain::journal::CallOutcome;
use ghost_domain::{CallId, Code, Refusal, Turn};
use ghost_operations::mail::with_nearest;
use ghost_operations::turns::{self, CallStart};
use ghost_store::{StoreError, Tx};
use ghost_tools::tool::ErasedWorld;
use ghost_tools::{CallContext, Run};
use serde_json::Value;

use super::act::INBOX_READ;
use super::call::{CallResult, Checked};
use super::record::{InTransaction, record_end};
use super::runner::Runner;

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

/// What a transaction has done of a call.
enum Part {
    Whole(CallOutcome),
    /// The call goes on.
    More(Box<Ready>),
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
    tool: Arc<dyn ErasedWorld>,
    start: CallStart,
    context: CallContext,
    arguments: Value,
}

impl Runner {
    /// Whether the call need not wait until the effect of the call before it is on the disk.
    pub(super) fn may_share_a_commit(&self, checked: &Checked) -> bool {
        matches!(checked.run, Run::World(_)) && checked.needs_approval.is_none() && checked.tool.spec.name != INBOX_READ
    }

    /// Runs neighbouring calls. Each has a transaction of its own, so that one that is refused undoes no other, and sees
    /// what those before it did; but all are handed to the store at once, which commits them together. So an answer with
    /// ten calls waits for the disk once. After a refusal, which is stored by itself, the rest is handed over anew.
    pub(super) async fn run_in_store(&mut self, calls: Vec<Checked>) -> Result<Vec<(String, CallOutcome)>, Refusal> {
        let clock = self.clock();
        let (began, paused) = (clock.steady(), self.paused());
        let mut outcomes = Vec::with_capacity(calls.len());
        while outcomes.len() < calls.len() {
            let rest = &calls[outcomes.len()..];
            for done in self.run_together(rest).await? {
                let checked = &calls[outcomes.len()];
                outcomes.push(self.recorded(checked, done).await?);
            }
        }
        self.worked += clock.steady().since(began).saturating_sub(self.paused().saturating_sub(paused));
        Ok(outcomes)
    }

    /// Hands calls to the store at once. Returns the results of the first of them, at least one: up to one that was refused.
    async fn run_together(&self, calls: &[Checked]) -> Result<Vec<CallResult>, Refusal> {
        let (mut ready, mut refused) = (Vec::with_capacity(calls.len()), None);
        for checked in calls {
            let prepared = match &checked.run {
                Run::World(tool) => self.ready(checked, tool).await,
                _ => Err(Refusal::new(Code::Internal, "this call has no effect in the store")),
            };
            match prepared {
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
    pub(super) async fn in_store(&self, checked: &Checked, tool: &Arc<dyn ErasedWorld>) -> Result<CallResult, Refusal> {
        match self.ready(checked, tool).await {
            Ok(ready) => {
                let nothing = || Refusal::new(Code::Internal, "the call waited for itself");
                self.apply(checked, ready, (0, Arc::default())).await?.ok_or_else(nothing)
            }
            Err(refusal) => Ok(CallResult::Refused(refusal)),
        }
    }

    async fn ready(&self, checked: &Checked, tool: &Arc<dyn ErasedWorld>) -> Result<Ready, Refusal> {
        if let Some(refusal) = self.lost(checked).await? {
            return Err(refusal);
        }
        let begun = checked.call.begun.as_ref().map(|begun| begun.call_id);
        let call_id = begun.unwrap_or_else(|| CallId(self.engine.services.ctx.id()));
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
                Ok(Part::Whole(outcome)) => return Ok(Some(CallResult::Recorded(outcome))),
                Ok(Part::More(rest)) => ready = *rest,
                Err(NotApplied::HeldBack) => return Ok(None),
                Err(NotApplied::Refused(InTransaction::Turn(refusal))) => return Err(refusal),
                Err(NotApplied::Refused(InTransaction::Tool(refusal))) => {
                    let refusal = with_nearest(&self.engine.services.store, refusal).await;
                    if !has_begun {
                        return Ok(Some(CallResult::Refused(refusal)));
                    }
                    let recorded = self.record_result(self.ended(checked, call_id), Err(refusal)).await?;
                    return Ok(Some(CallResult::Recorded(recorded)));
                }
            }
        }
    }

    /// Applies what one transaction takes of a call.
    async fn apply_part(
        &self,
        checked: &Checked,
        mut ready: Ready,
        (place, order): (usize, Arc<Order>),
    ) -> Result<Part, NotApplied> {
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let ended = self.ended(checked, ready.start.call_id);
        let part = move |w: &mut Tx| {
            order.begin(place)?;
            let turn = turns::working_turn(w, &ctx, turn_id).map_err(InTransaction::Turn)?;
            order.check(&turn)?;
            let Ready { tool, start, context, arguments } = &mut ready;
            if context.progress.is_none() {
                turns::record_call_start(w, &ctx, &turn, start).map_err(InTransaction::Turn)?;
            }
            let arguments = arguments.clone();
            let mut output = tool.apply(context, arguments, w).map_err(InTransaction::Tool)?;
            if let Some(progress) = output.progress.take() {
                let call = (start.call_id, start.id.as_str());
                let journaled = turns::record_call_slice(w, &ctx, &turn, call, progress.clone());
                journaled.map_err(InTransaction::Turn)?;
                context.progress = Some(progress);
                order.sliced(place);
                return Ok(Part::More(Box::new(ready)));
            }
            let outcome = record_end(w, &ctx, &turn, &ended, output).map_err(InTransaction::Turn)?;
            order.applied(&turn, place);
            Ok(Part::Whole(outcome))
        };
        self.engine.services.store.write(part).await
    }
}
