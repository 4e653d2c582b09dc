//! The end of a call: which call it is, and what its tool returned beside the content.

use ghost_domain::journal::CallOutcome;
use ghost_domain::{CallId, Refusal, Turn};
use ghost_operations::OperationContext;
use ghost_operations::artifacts::{self, Origin};
use ghost_store::Tx;
use ghost_tools::Output;

/// The call whose end is recorded.
#[derive(Clone)]
pub(super) struct Ended {
    pub(super) call_id: CallId,
    /// The provider's id.
    pub(super) id: String,
    /// The canonical name of the tool.
    pub(super) tool: String,
    /// The largest part of a result that the model sees, in bytes; `None` means the world's limit.
    pub(super) view_bytes: Option<u32>,
}

impl Ended {
    /// The outcome of this call for what its tool returned.
    pub(super) fn outcome(&self, output: Output) -> CallOutcome {
        CallOutcome {
            content: output.content,
            refusal: None,
            truncated: output.truncated,
            failed: output.failed,
            cost: output.cost,
            images: output.images.into(),
            saved: output.saved.map(Into::into),
            view_bytes: self.view_bytes,
        }
    }
}

/// Records what an output has beside its content.
pub(super) fn record_beside(
    w: &mut Tx,
    ctx: &OperationContext,
    turn: &Turn,
    output: &mut Output,
) -> Result<(), Refusal> {
    for event in std::mem::take(&mut output.events) {
        ctx.emit(w, event)?;
    }
    for found in std::mem::take(&mut output.artifacts) {
        artifacts::index(w, ctx, Some(&Origin::of(turn)), found, false)?;
    }
    Ok(())
}
