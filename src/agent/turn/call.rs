//! A tool call: the states in which it can be, and its records. Each record is part of a transaction that is refused unless
//! the turn is running.

use std::sync::Arc;

use ghost_domain::journal::{CallOutcome, Effect};
use ghost_domain::{CallId, Code, Refusal, Turn, TurnId};
use ghost_operations::Tx;
use ghost_operations::artifacts::{self, Origin};
use ghost_operations::turns::{self, CallStart};
use ghost_store::StoreError;
use ghost_tools::view::refused;
use ghost_tools::{Output, Run, Tool};

use crate::transcript::OpenCall;

/// The calls of an answer that are to run.
#[allow(clippy::large_enum_variant, reason = "a turn has one, and a box would be an allocation for most answers")]
pub(super) enum Calls {
    /// They are not checked yet.
    Unchecked(Vec<OpenCall>),
    /// The only call of the answer, checked before the answer was journaled; with its id if its start was journaled with
    /// the answer.
    Sole(Checking, Option<CallId>),
}

/// A call that passed all checks and may run.
pub(super) struct Checked {
    pub(super) call: OpenCall,
    pub(super) tool: Arc<Tool>,
    pub(super) alias: Option<String>,
    pub(super) run: Run,
    /// Why it waits for an operator before it runs.
    pub(super) needs_approval: Option<String>,
    /// Whether a person must say what became of it before the crash.
    pub(super) awaits_person: bool,
}

/// A call that may not run.
pub(super) struct Unfit {
    pub(super) call: OpenCall,
    pub(super) refusal: Refusal,
    /// Whether the refusal also ends the turn: it is the loop guard's.
    pub(super) ends_turn: bool,
}

impl Unfit {
    pub(super) fn new(call: OpenCall, refusal: Refusal) -> Box<Self> {
        Box::new(Self { call, refusal, ends_turn: false })
    }
}

/// The start of a call as it is recorded.
pub(super) fn start_of(
    call_id: CallId,
    call: &OpenCall,
    tool: &str,
    alias: Option<String>,
    effect: Effect,
) -> CallStart {
    let (id, tool, arguments) = (call.id.clone(), tool.to_owned(), call.arguments.clone());
    CallStart { call_id, id, tool, alias, arguments, effect, files: Vec::new(), ask_id: None, begun_at: None }
}

/// The result of checking a call.
pub(super) type Checking = Result<Checked, Box<Unfit>>;

/// The result of running a call.
pub(super) enum CallResult {
    /// The outcome is in the journal already.
    Recorded(CallOutcome),
    /// The call is refused without having run; the refusal is not recorded yet.
    Refused(Refusal),
}

/// A refusal within a store transaction. The model reads the tool's refusals; a refusal of the
/// turn's own writes ends the work.
pub(super) enum InTransaction {
    Tool(Refusal),
    Turn(Refusal),
}

impl From<StoreError> for InTransaction {
    fn from(error: StoreError) -> Self {
        Self::Turn(error.into())
    }
}

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
    fn outcome(&self, output: Output) -> CallOutcome {
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

    /// Records the end of this call: what its tool returned, or a refusal.
    pub(super) fn record(
        &self,
        w: &mut Tx,
        turn: &Turn,
        result: Result<Output, Refusal>,
    ) -> Result<CallOutcome, Refusal> {
        let outcome = match result {
            Ok(mut output) => {
                record_beside(w, turn, &mut output)?;
                self.outcome(output)
            }
            Err(refusal) => refused(refusal),
        };
        turns::record_call_end(w, turn, self.call_id, &self.id, &self.tool, &outcome)?;
        Ok(outcome)
    }
}

/// Records what an output has beside its content.
fn record_beside(w: &mut Tx, turn: &Turn, output: &mut Output) -> Result<(), Refusal> {
    for event in std::mem::take(&mut output.events) {
        w.emit(event)?;
    }
    for found in std::mem::take(&mut output.artifacts) {
        artifacts::index(w, Some(&Origin::of(turn)), found, false)?;
    }
    Ok(())
}

/// A result that is not in the journal yet. It is journaled with the next write of its turn.
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
    pub(super) fn record(&self, w: &mut Tx, turn_id: TurnId) -> Result<(), Refusal> {
        let turn = turns::working_turn(w, turn_id)?;
        if let Some(start) = &self.start {
            turns::record_call_start(w, &turn, start)?;
        }
        record_beside(w, &turn, &mut self.beside.clone())?;
        let Ended { call_id, id, tool, .. } = &self.ended;
        turns::record_call_end(w, &turn, *call_id, id, tool, &self.outcome)
    }
}

/// The refusal that the model gets for an outside call which a crash interrupted.
pub(super) fn outcome_unknown(tool: &str) -> Refusal {
    Refusal::new(
        Code::OutcomeUnknown,
        format!("{tool} was running when the daemon stopped: it may or may not have happened"),
    )
    .hint("check which effects it had before you do it again")
}
