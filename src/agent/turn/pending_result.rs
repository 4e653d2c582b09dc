//! The result of a call that is journaled with the next write of its turn.

use ghost_domain::event::NewEvent;
use ghost_domain::journal::CallOutcome;
use ghost_domain::{CallId, Refusal, TurnId};
use ghost_operations::OperationContext;
use ghost_operations::turns::{self, CallStart};
use ghost_store::Writes;
use ghost_tools::Output;
use ghost_tools::view::refused;

use super::call::Checked;

/// A result that is not in the journal yet.
pub(super) struct PendingResult {
    /// The call's start, if it is not in the journal either.
    start: Option<CallStart>,
    call_id: CallId,
    id: String,
    tool: String,
    events: Vec<NewEvent>,
    pub(super) outcome: CallOutcome,
}

impl PendingResult {
    pub(super) fn new(
        start: Option<CallStart>,
        call_id: CallId,
        checked: &Checked,
        result: Result<Output, Refusal>,
    ) -> Self {
        let (events, outcome) = match result {
            Ok(Output { content, events, truncated }) => (events, CallOutcome { content, refusal: None, truncated }),
            Err(refusal) => (Vec::new(), refused(refusal)),
        };
        let (id, tool) = (checked.call.id.clone(), checked.tool.spec.name.clone());
        Self { start, call_id, id, tool, events, outcome }
    }

    /// Records the result, within a transaction of its turn.
    pub(super) async fn record(
        &self,
        w: &mut dyn Writes,
        ctx: &OperationContext,
        turn_id: TurnId,
    ) -> Result<(), Refusal> {
        let turn = turns::working_turn(w, ctx, turn_id).await?;
        if let Some(start) = &self.start {
            turns::record_call_start(w, ctx, &turn, start).await?;
        }
        for event in &self.events {
            ctx.emit(w, event.clone()).await?;
        }
        turns::record_call_end(w, ctx, &turn, self.call_id, &self.id, &self.tool, &self.outcome).await
    }
}
