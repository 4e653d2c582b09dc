//! Which calls wait for an operator, and who may answer.

use std::collections::BTreeSet;
use std::time::Duration;

/// The `approvals` of a world file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalsPlan {
    /// Canonical names of the tools whose every call waits for an operator.
    pub tools: BTreeSet<String>,
    /// Principals that may answer. If there are none, every operator may, but not with `/approve` in a conversation.
    pub approvers: BTreeSet<String>,
    /// How long a call waits.
    pub expires: Duration,
}

impl Default for ApprovalsPlan {
    fn default() -> Self {
        Self { tools: BTreeSet::new(), approvers: BTreeSet::new(), expires: Duration::from_secs(30 * 60) }
    }
}
