//! Calls that wait for another agent. An ask opens in the transaction that records the call's
//! start. The transaction that ends the other agent's turn completes it.

use std::sync::Arc;

use ghost_domain::journal::{CallOutcome, Step};
use ghost_domain::{AskId, AskStatus, CallId, Code, Refusal};
use ghost_operations::asks;
use ghost_operations::mail::with_nearest;
use ghost_operations::turns::{self, CallStart};
use ghost_tools::tool::ErasedAsk;

use super::call::{CallResult, Checked};
use super::ended::Ended;
use super::record::InTransaction;
use super::runner::Runner;
use crate::transcript::Begun;

impl Runner {
    /// Runs an ask: opens it, unless it was open before a crash, and waits for its end.
    pub(super) async fn ask(&self, checked: &Checked, tool: &Arc<dyn ErasedAsk>) -> Result<CallResult, Refusal> {
        let (call_id, ask_id) = match &checked.call.begun {
            // Resumes the wait for the same ask.
            Some(Begun { call_id, ask_id: Some(ask_id), .. }) => (*call_id, *ask_id),
            _ => {
                let start = self.call_start(checked, CallId(self.engine.services.ctx.id()), Vec::new());
                let call_context = self.call_context(start.call_id, checked);
                let (ctx, tool, turn_id) = (self.engine.services.ctx.clone(), Arc::clone(tool), self.turn.turn_id);
                let opened = self
                    .engine
                    .services
                    .store
                    .write(move |w| {
                        let turn = turns::working_turn(w, &ctx, turn_id).map_err(InTransaction::Turn)?;
                        let ask = tool.open(&call_context, start.arguments.clone(), w).map_err(InTransaction::Tool)?;
                        let start = CallStart { ask_id: Some(ask.ask_id), ..start };
                        turns::record_call_start(w, &ctx, &turn, &start).map_err(InTransaction::Turn)?;
                        Ok((start.call_id, ask.ask_id))
                    })
                    .await;
                match opened {
                    Ok(opened) => opened,
                    Err(InTransaction::Tool(refusal)) => {
                        return Ok(CallResult::Refused(with_nearest(&self.engine.services.store, refusal).await));
                    }
                    Err(InTransaction::Turn(refusal)) => return Err(refusal),
                }
            }
        };
        self.wait_for(call_id, ask_id, &checked.call.id, &checked.tool.spec.name).await.map(CallResult::Recorded)
    }

    pub(super) async fn wait_for(
        &self,
        call_id: CallId,
        ask_id: AskId,
        id: &str,
        tool: &str,
    ) -> Result<CallOutcome, Refusal> {
        let (clock, turn_id) = (self.clock(), self.turn.turn_id);
        loop {
            // Registered before the read, so that a notification between registration and read is
            // not missed.
            let closed = self.session.bell.notified();
            tokio::pin!(closed);
            closed.as_mut().enable();
            let (deadline, ended) = self
                .engine
                .services
                .store
                .read(move |r| {
                    let deadline = r.ask_get(ask_id)?.map(|ask| (ask.deadline_at, ask.status));
                    let ended = r.journal_of(turn_id)?.into_iter().find_map(|row| match row.step {
                        Step::CallFinished { call_id: id, outcome, .. } if id == call_id => Some(outcome),
                        _ => None,
                    });
                    Ok::<_, Refusal>((deadline, ended))
                })
                .await?;
            if let Some(outcome) = ended {
                return Ok(outcome);
            }
            let Some((deadline, AskStatus::Open)) = deadline else {
                // The ask is closed without an outcome for this call. Either the turn itself was
                // ended, and this write is refused, or the turn was interrupted and runs again.
                let refusal = Refusal::new(Code::Unavailable, "this ask ended when the turn was interrupted")
                    .hint("ask again if you still need the answer");
                let ended = Ended { call_id, id: id.to_owned(), tool: tool.to_owned(), view_bytes: None };
                return self.record_result(ended, Err(refusal)).await;
            };
            tokio::select! {
                biased;
                () = closed => {}
                () = clock.sleep_until(deadline) => {
                    let ctx = self.engine.services.ctx.clone();
                    self.engine
                        .services
                        .store
                        .write(move |w| { asks::expire(w, &ctx, ask_id) })
                        .await?;
                }
            }
        }
    }
}
