//! Calls that the daemon's death cut off, of tools that leave it to a person what became of them (promise 2): the turn waits
//! until `ghostctl turn settle` says it.
//!
//! Nothing here may make a call.

use ghost_domain::journal::{CallOutcome, Effect};
use ghost_domain::{CallId, CallStatus, Code, LedgerRow, Refusal};
use ghost_operations::{Wait, turns};
use ghost_tools::tool::AfterCrash;
use ghost_tools::{Output, Run};
use serde_json::json;

use super::call::{CallResult, Checked};
use super::ended::Ended;
use super::gate::Waiting;
use super::runner::Runner;
use crate::transcript::Begun;

impl Runner {
    /// Whether a person must say what became of this call. An operator who calls a tool waits for no other one. A call that
    /// waits already goes on waiting, also if its tool changes or is gone.
    pub(super) async fn awaits_person(&self, begun: &Begun, run: Option<&Run>) -> Result<bool, Refusal> {
        if !self.reports_activity || begun.session.is_some() || begun.effect != Effect::Outside {
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
        let row = self.settled_by_person(ended.call_id, &ended.tool).await?;
        let said = row.result.unwrap_or_default();
        let result = match row.status {
            CallStatus::Ok => Ok(Output::from(json!(said))),
            _ => Err(Refusal::new(Code::Cancelled, said).hint("make the call again if it is still needed")),
        };
        self.record_result(ended, result).await
    }

    async fn settled_by_person(&self, call_id: CallId, tool: &str) -> Result<LedgerRow, Refusal> {
        let turn_id = self.turn.turn_id;
        loop {
            // Registered before the read, so that an answer in between is not missed.
            let settled = self.session.bell.notified();
            tokio::pin!(settled);
            settled.as_mut().enable();
            let ctx = self.engine.services.ctx.clone();
            let row = self.write_with_retry(move |w| turns::await_person(w, &ctx, turn_id, call_id)).await?;
            if row.status != CallStatus::Unknown {
                return Ok(row);
            }
            let why = format!(
                "a person must say what became of a call of {tool} that the daemon's death cut off: \
                 `ghostctl turn settle {call_id} happened` or `did-not`"
            );
            let _waiting = Waiting::begin(&self.engine, &self.agent_id, &self.session, Wait::for_reason(why));
            settled.await;
        }
    }
}
