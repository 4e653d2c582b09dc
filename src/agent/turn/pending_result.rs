//! The result of a call that is journaled with the next write of its turn.

use ghost_domain::journal::CallOutcome;
use ghost_domain::{Refusal, TurnId};
use ghost_operations::OperationContext;
use ghost_operations::turns::{self, CallStart};
use ghost_store::Tx;
use ghost_tools::Output;
use ghost_tools::view::refused;

use super::ended::{Ended, record_beside};

/// A result that is not in the journal yet.
pub(super) struct PendingResult {
    /// The call's start, if it is not in the journal either.
    start: Option<CallStart>,
    ended: Ended,
    /// The events and artifacts of the result; its content is in the outcome.
    beside: Output,
    pub(super) outcome: CallOutcome,
}

impl PendingResult {
    pub(super) fn new(start: Option<CallStart>, ended: Ended, result: Result<Output, Refusal>) -> Self {
        let (beside, outcome) = match result {
            Ok(mut output) => {
                let (events, artifacts) = (std::mem::take(&mut output.events), std::mem::take(&mut output.artifacts));
                (Output { events, artifacts, ..Output::default() }, ended.outcome(output))
            }
            Err(refusal) => (Output::default(), refused(refusal)),
        };
        Self { start, ended, beside, outcome }
    }

    /// Records the result, within a transaction of its turn.
    pub(super) fn record(&self, w: &mut Tx, ctx: &OperationContext, turn_id: TurnId) -> Result<(), Refusal> {
        let turn = turns::working_turn(w, ctx, turn_id)?;
        if let Some(start) = &self.start {
            turns::record_call_start(w, ctx, &turn, start)?;
        }
        record_beside(w, ctx, &turn, &mut self.beside.clone())?;
        let Ended { call_id, id, tool, .. } = &self.ended;
        turns::record_call_end(w, ctx, &turn, *call_id, id, tool, &self.outcome)
    }
}
