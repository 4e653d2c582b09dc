//! A call on its way: looked at, and what it came to.

use std::sync::Arc;

use ghost_domain::Refusal;
use ghost_domain::journal::CallOutcome;
use ghost_tools::{Run, Tool};

use crate::transcript::OpenCall;

/// A call that was checked and may run.
pub(super) struct Checked {
    pub(super) call: OpenCall,
    pub(super) tool: Arc<Tool>,
    pub(super) alias: Option<String>,
    pub(super) run: Run,
}

/// A call that was looked at: it may run, or why not.
pub(super) type Checking = Result<Checked, Box<(OpenCall, Refusal)>>;

/// What a call came to, and how it is to be recorded.
pub(super) enum Done {
    /// The outcome is in the journal.
    Recorded(CallOutcome),
    /// The call is refused without having run.
    Refused(Refusal),
}
