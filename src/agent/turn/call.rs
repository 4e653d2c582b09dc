//! The states of a tool call: checked or refused, then done.

use std::sync::Arc;

use ghost_domain::Refusal;
use ghost_domain::journal::CallOutcome;
use ghost_tools::{Run, Tool};

use crate::transcript::OpenCall;

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

/// The result of checking a call: it may run, or the refusal.
pub(super) type Checking = Result<Checked, Box<(OpenCall, Refusal)>>;

/// The result of running a call.
pub(super) enum CallResult {
    /// The outcome is in the journal already.
    Recorded(CallOutcome),
    /// The call is refused without having run; the refusal is not recorded yet.
    Refused(Refusal),
}
