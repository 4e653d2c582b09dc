//! Calls that wait for someone. An ask waits for another agent: it opens in the transaction that records the call's start,
//! and the transaction that ends the other agent's turn completes it. A call that needs an approval waits for an operator;
//! the request is journaled before the wait, so a resumed turn waits for the same one. A call that the
//! daemon's death cut off may wait until a person says what became of it (promise 2).
//!
//! A call must never run under an approval of another plan: the plan is read again after the wait.

use std::sync::Arc;

use ghost_domain::journal::{CallOutcome, Effect, Step};
use ghost_domain::{Activity, Approval, ApprovalPlan, ApprovalStatus, AskId, AskStatus, CallStatus, Code, Refusal};
use ghost_operations::approvals::{self, NewApproval};
use ghost_operations::mail::with_nearest;
use ghost_operations::turns::{self, CallStart};
use ghost_operations::{Wait, asks};
use ghost_tools::tool::{AfterCrash, AskTool};
use ghost_tools::{Output, Run};
use serde_json::json;

use super::call::{CallResult, Checked, Ended, InTransaction};
use super::gate::{Waiting, registered};
use super::runner::Runner;
use crate::transcript::Begun;

impl Runner {
    /// Runs an ask: opens it, unless it was open before a crash, and waits for its end.
    pub(super) async fn ask(&self, checked: &Checked, tool: &Arc<dyn AskTool>) -> Result<CallResult, Refusal> {
        let (call_id, ask_id) = match &checked.call.begun {
            // Resumes the wait for the same ask.
            Some(Begun { call_id, ask_id: Some(ask_id), .. }) => (*call_id, *ask_id),
            _ => {
                let start = self.call_start(checked, self.call_id(), Vec::new());
                let call_context = self.call_context(start.call_id, checked);
                let (tool, turn_id) = (Arc::clone(tool), self.turn.turn_id);
                let opened = self.engine.services.write(move |w| {
                    let turn = turns::working_turn(w, turn_id).map_err(InTransaction::Turn)?;
                    let ask = tool.open(&call_context, start.arguments.clone(), w).map_err(InTransaction::Tool)?;
                    let start = CallStart { ask_id: Some(ask.ask_id), ..start };
                    turns::record_call_start(w, &turn, &start).map_err(InTransaction::Turn)?;
                    Ok((start.call_id, ask.ask_id))
                });
                match opened.await {
                    Ok(opened) => opened,
                    Err(InTransaction::Tool(refusal)) if self.must_wait(&refusal) => return Err(refusal),
                    Err(InTransaction::Tool(refusal)) => {
                        return Ok(CallResult::Refused(with_nearest(&self.engine.services.store, refusal).await));
                    }
                    Err(InTransaction::Turn(refusal)) => return Err(refusal),
                }
            }
        };
        self.wait_for(self.ended(checked, call_id), ask_id).await.map(CallResult::Recorded)
    }

    /// Waits until an ask is closed. The transaction that closes it records the end of its call.
    pub(super) async fn wait_for(&self, ended: Ended, ask_id: AskId) -> Result<CallOutcome, Refusal> {
        let (call_id, turn_id) = (ended.call_id, self.turn.turn_id);
        loop {
            // Registered before the read, so that a notification between registration and read is
            // not missed.
            let closed = registered(self.session.bell.notified());
            let read = self.engine.services.store.read(move |r| {
                let deadline = r.ask_get(ask_id)?.map(|ask| (ask.deadline_at, ask.status));
                let recorded = r.journal_of(turn_id)?.into_iter().find_map(|row| match row.step {
                    Step::CallFinished { call_id: id, outcome, .. } if id == call_id => Some(outcome),
                    _ => None,
                });
                Ok::<_, Refusal>((deadline, recorded))
            });
            let (deadline, recorded) = read.await?;
            if let Some(outcome) = recorded {
                return Ok(outcome);
            }
            let Some((deadline, AskStatus::Open)) = deadline else {
                // The ask is closed without an outcome for this call. Either the turn itself was
                // ended, and this write is refused, or the turn was interrupted and runs again.
                let refusal = Refusal::new(Code::Unavailable, "this ask ended when the turn was interrupted")
                    .hint("ask again if you still need the answer");
                return self.record_result(None, ended, Err(refusal)).await;
            };
            tokio::select! {
                biased;
                () = closed => {}
                () = self.clock().sleep_until(deadline) => {
                    self.engine.services.write(move |w| asks::expire(w, ask_id)).await?;
                }
            }
        }
    }

    /// Waits until a call that runs alone may run. Meanwhile the agent only waits.
    pub(super) async fn wait_for_sole_approval(&self, checked: &Checked) -> Result<Option<Refusal>, Refusal> {
        if checked.needs_approval.is_none() {
            return Ok(None);
        }
        self.show(Activity::Asking);
        let refusal = self.wait_for_approval(checked).await;
        self.show(Activity::Acting);
        refusal
    }

    /// Waits until the call may run. Returns the refusal if it may not.
    pub(super) async fn wait_for_approval(&self, checked: &Checked) -> Result<Option<Refusal>, Refusal> {
        let Some(reason) = &checked.needs_approval else { return Ok(None) };
        if self.terms.for_operator {
            return Ok(self.refusal_for_operator(reason));
        }
        let approval = match checked.call.approval_id {
            Some(approval_id) => {
                let store = &self.engine.services.store;
                store.read(move |r| r.approval_get(approval_id)).await?
            }
            None => None,
        };
        let approval = match approval {
            Some(approval) => approval,
            None => match self.request_approval(checked, reason).await? {
                Ok(approval) => approval,
                Err(refusal) => return Ok(Some(refusal)),
            },
        };
        let digest = approval.digest.clone();
        if let Some(refusal) = approvals::refusal(&self.wait_for_decision(approval).await?) {
            return Ok(Some(refusal));
        }
        if let Err(refusal) | Ok(Some(refusal)) = self.lost_access(checked).await? {
            return Ok(Some(refusal));
        }
        let plan = match self.approval_plan(checked).await {
            Ok(plan) => plan,
            Err(refusal) => return Ok(Some(refusal)),
        };
        if plan.digest(&self.turn.agent_id) != digest {
            let what = format!("what this call of {} would run has changed since an operator approved it", plan.tool);
            return Ok(Some(
                Refusal::new(Code::Conflict, what).hint("nothing was run; make the call again to ask anew"),
            ));
        }
        Ok(None)
    }

    /// Why an operator may not make the call: it would answer for itself although the world lists who may.
    fn refusal_for_operator(&self, reason: &str) -> Option<Refusal> {
        let listed = !self.engine.services.plan().approvals.approvers.is_empty();
        listed.then(|| {
            Refusal::new(Code::PolicyDenied, format!("this call needs an approver: {reason}"))
                .hint("let the agent make the call; then `ghostctl approval list` shows it to the approvers")
        })
    }

    /// What the call would do now.
    async fn approval_plan(&self, checked: &Checked) -> Result<ApprovalPlan, Refusal> {
        let context = self.call_context(self.call_id(), checked);
        self.in_time(checked, checked.tool.approval_plan(&context, &checked.call.arguments)).await
    }

    /// Requests an approval. The inner refusal is the model's.
    async fn request_approval(&self, checked: &Checked, reason: &str) -> Result<Result<Approval, Refusal>, Refusal> {
        let plan = match self.approval_plan(checked).await {
            Ok(plan) => plan,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let new = NewApproval {
            provider_call_id: checked.call.id.clone(),
            plan,
            reason: reason.to_owned(),
            expires: self.engine.services.plan().approvals.expires,
        };
        let requested = self.write_with_retry(move |w, turn_id| {
            let turn = turns::working_turn(w, turn_id)?;
            approvals::request(w, &turn, new)
        });
        match requested.await {
            Err(refusal) if refusal.code == Code::RateLimited => Ok(Err(refusal)),
            requested => requested.map(Ok),
        }
    }

    /// Waits until the approval is closed, and returns it.
    async fn wait_for_decision(&self, mut approval: Approval) -> Result<Approval, Refusal> {
        let (clock, approval_id) = (self.clock(), approval.approval_id);
        while approval.status == ApprovalStatus::Pending {
            // Registered before the read, so that an answer in between is not missed.
            let closed = registered(self.session.bell.notified());
            let store = &self.engine.services.store;
            let found = store.read(move |r| r.approval_get(approval_id)).await?;
            approval = found.ok_or_else(|| {
                Refusal::new(Code::Internal, format!("the approval {approval_id} of a waiting call is gone"))
            })?;
            if approval.status != ApprovalStatus::Pending {
                break;
            }
            tokio::select! {
                biased;
                () = closed => {}
                () = clock.sleep_until(approval.expires_at) => {
                    self.write_with_retry(move |w, _| approvals::expire(w, approval_id)).await?;
                }
            }
        }
        Ok(approval)
    }

    /// Whether a person must say what became of this call. An operator who calls a tool waits for no other one. A call that
    /// waits already goes on waiting, also if its tool changes or is gone.
    pub(super) async fn awaits_person(&self, begun: &Begun, run: Option<&Run>) -> Result<bool, Refusal> {
        if self.terms.for_operator || begun.session.is_some() || begun.effect != Effect::Outside {
            return Ok(false);
        }
        if matches!(run, Some(Run::Outside(tool)) if tool.after_crash() == AfterCrash::WaitsForPerson) {
            return Ok(true);
        }
        let (store, call_id) = (&self.engine.services.store, begun.call_id);
        let row = store.read(move |r| r.call_get(call_id)).await?;
        Ok(row.is_some_and(|row| turns::was_unsettled(&row)))
    }

    /// Waits until a person says what became of a call, for as long as it takes or until the turn is cancelled.
    pub(super) async fn wait_for_person(&self, checked: &Checked) -> Result<CallResult, Refusal> {
        let Some(Begun { call_id, .. }) = checked.call.begun else {
            return Err(Refusal::new(Code::Internal, "a call that has not begun waits for nobody"));
        };
        self.wait_for_word(self.ended(checked, call_id)).await.map(CallResult::Recorded)
    }

    /// Waits as [`Self::wait_for_person`] does, and records the end of the call.
    pub(super) async fn wait_for_word(&self, ended: Ended) -> Result<CallOutcome, Refusal> {
        let (call_id, tool) = (ended.call_id, &ended.tool);
        let row = loop {
            // Registered before the read, so that an answer in between is not missed.
            let settled = registered(self.session.bell.notified());
            let read = self.write_with_retry(move |w, turn_id| turns::await_person(w, turn_id, call_id));
            let row = read.await?;
            if row.status != CallStatus::Unknown {
                break row;
            }
            let why = format!(
                "a person must say what became of a call of {tool} that the daemon's death cut off: \
                 `ghostctl turn settle {call_id} happened` or `did-not`"
            );
            let _waiting = Waiting::begin(self.worker(), Wait::for_reason(why));
            settled.await;
        };
        let said = row.result.unwrap_or_default();
        let result = match row.status {
            CallStatus::Ok => Ok(Output::from(json!(said))),
            _ => Err(Refusal::new(Code::Cancelled, said).hint("make the call again if it is still needed")),
        };
        self.record_result(None, ended, result).await
    }
}
