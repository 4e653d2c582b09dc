//! Why a daemon ends before its time.

use ghost_config::Problems;
use ghost_domain::Refusal;

/// Why a daemon did not start, or did not end well.
#[derive(Debug)]
pub enum Failure {
    /// The configuration.
    Problems(Problems),
    /// Anything else.
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
