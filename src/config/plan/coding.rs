//! What runs of coding agents may cost.

use ghost_domain::Money;

/// The `coding` of a world file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodingPlan {
    /// What one run may cost at most. It is reserved before the run; a run that tells no cost is charged all of it. Without
    /// it, nothing is reserved, and no run starts where a budget counts money.
    pub run_budget: Option<Money>,
}
