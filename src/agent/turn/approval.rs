//! Calls that wait for an operator (EXEC-01, EXEC-10). The request is journaled before the wait, so a resumed turn waits
//! for the same approval.
//!
//! A call must never run under an approval of another plan: the plan is read again after the wait.

use ghost_domain::{Activity, Approval, ApprovalPlan, ApprovalStatus, CallId, Code, Refusal};
use ghost_operations::approvals::{self, NewApproval};
use ghost_operations::turns;

use super::call::Checked;
use super::runner::Runner;

impl Runner {
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
        if !self.reports_activity {
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
        if plan.digest(&self.agent_id) != digest {
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
        let context = self.call_context(CallId(self.engine.services.ctx.id()), checked);
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
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let requested = self
            .write_with_retry(move |w| {
                let turn = turns::working_turn(w, &ctx, turn_id)?;
                approvals::request(w, &ctx, &turn, new)
            })
            .await;
        match requested {
            Err(refusal) if refusal.code == Code::RateLimited => Ok(Err(refusal)),
            requested => requested.map(Ok),
        }
    }

    /// Waits until the approval is closed, and returns it.
    async fn wait_for_decision(&self, mut approval: Approval) -> Result<Approval, Refusal> {
        let (clock, approval_id) = (self.clock(), approval.approval_id);
        while approval.status == ApprovalStatus::Pending {
            // Registered before the read, so that an answer in between is not missed.
            let closed = self.session.bell.notified();
            tokio::pin!(closed);
            closed.as_mut().enable();
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
                    let ctx = self.engine.services.ctx.clone();
                    self.write_with_retry(move |w| { approvals::expire(w, &ctx, approval_id) })
                    .await?;
                }
            }
        }
        Ok(approval)
    }
}
