//! The error with which a daemon ends.

use ghost_config::Problems;
use ghost_domain::Refusal;

/// Why a daemon did not start, or failed later.
#[derive(Debug)]
pub enum Failure {
    /// The configuration has problems.
    Problems(Problems),
    /// Any other error.
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
