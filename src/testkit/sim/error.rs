//! The error of a simulation that cannot run.

use ghost_domain::Refusal;

/// Why a simulation cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A system resource is missing.
    #[error("the simulation cannot run on this system: {0}")]
    Ground(#[from] std::io::Error),
    /// The simulated world cannot be created.
    #[error("the simulated world cannot be created: {0}")]
    World(#[from] Refusal),
}
