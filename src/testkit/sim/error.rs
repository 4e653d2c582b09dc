//! Why a simulation could not be run.

use ghost_domain::Refusal;

/// Why a simulation could not be run at all.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The machine had no room for it.
    #[error("the simulation has no ground to stand on: {0}")]
    Ground(#[from] std::io::Error),
    /// The simulated world could not be made.
    #[error("the simulated world cannot be made: {0}")]
    World(#[from] Refusal),
}
