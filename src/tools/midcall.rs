//! What a call writes to the store while it runs: the money that it may cost, the session that it works in, and the
//! questions that its program puts to an operator.
//!
//! A question must never hold for more than the one thing that was asked.

use std::time::Duration;

use ghost_domain::event::EventKind;
use ghost_domain::{Approval, ApprovalPlan, ApprovalStatus, Money, Refusal};
use ghost_operations::approvals::{self, NewApproval};
use ghost_operations::{budgets, turns};
use tokio::sync::broadcast::error::RecvError;

use crate::context::CallContext;

impl CallContext {
    /// Reserves what this call of `tool` may cost at most, until the call ends. `None` if that is not known.
    ///
    /// # Errors
    /// Those of [`budgets::hold`].
    pub(crate) async fn hold_money(&self, tool: &str, most: Option<Money>) -> Result<(), Refusal> {
        let (turn_id, call_id) = (self.turn_id, self.call_id);
        let tool = tool.to_owned();
        let write = self.services.write(move |w| {
            let mut turn = turns::working_turn(w, turn_id)?;
            budgets::hold(w, &mut turn, call_id, &tool, most)
        });
        write.await
    }

    /// Releases what this call has reserved, because it did nothing.
    pub(crate) async fn release_money(&self) -> Result<(), Refusal> {
        let (turn_id, call_id) = (self.turn_id, self.call_id);
        let write = self.services.write(move |w| {
            let mut turn = turns::working_turn(w, turn_id)?;
            budgets::release(w, &mut turn, call_id)
        });
        write.await
    }

    /// Journals the session that this call works in, so that the call can be continued after a crash.
    ///
    /// # Errors
    /// Those of [`turns::record_call_session`].
    pub(crate) async fn record_session(&self, session: &str) -> Result<(), Refusal> {
        let (turn_id, call_id) = (self.turn_id, self.call_id);
        let (id, session) = (self.provider_call_id.clone(), session.to_owned());
        let write = self.services.write(move |w| turns::record_call_session(w, turn_id, (call_id, &id), &session));
        write.await
    }

    /// Asks an operator, and waits for the answer at most `within`, and at most as long as approvals of this world wait. The
    /// end of the call takes the question back.
    ///
    /// # Errors
    /// Those of [`approvals::ask`].
    pub(crate) async fn ask_operator(
        &self,
        plan: ApprovalPlan,
        reason: String,
        within: Duration,
    ) -> Result<Approval, Refusal> {
        let turn_id = self.turn_id;
        let expires = self.services.plan().approvals.expires.min(within);
        let new = NewApproval { provider_call_id: self.provider_call_id.clone(), plan, reason, expires };
        // Subscribed before the question is there, so that no answer is missed.
        let mut feed = self.services.store.feed();
        let write = self.services.write(move |w| {
            let mut turn = turns::working_turn(w, turn_id)?;
            approvals::ask(w, &mut turn, new)
        });
        let mut approval: Approval = write.await?;
        let (clock, approval_id) = (&self.services.ctx.ports.clock, approval.approval_id);
        while approval.status == ApprovalStatus::Pending {
            tokio::select! {
                biased;
                news = feed.recv() => match news {
                    Ok(events) if !events.iter().any(|event| event.kind == EventKind::ApprovalClosed) => continue,
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => clock.sleep_until(approval.expires_at).await,
                },
                () = clock.sleep_until(approval.expires_at) => {
                    let expire = self.services.write(move |w| { approvals::expire(w, approval_id) });
                    let expired: Result<(), Refusal> = expire.await;
                    expired?;
                }
            }
            let read = self.services.store.read(move |r| r.approval_get(approval_id));
            approval = read
                .await
                .map_err(Refusal::from)?
                .ok_or_else(|| Refusal::not_found("approval", &approval_id.to_string(), None))?;
        }
        Ok(approval)
    }
}
