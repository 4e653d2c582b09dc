//! Chains of work: what one thing that came from outside set going, and how far it has got.
//!
//! Must never: count or refuse; the bounds of a chain are the business of those who lengthen it.

use ghost_domain::RootId;
use serde::{Deserialize, Serialize};

use crate::RuleContext;

/// Where a message stands in a chain of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// What started it.
    pub root_id: RootId,
    /// Turns between the root and this message.
    pub hop: u32,
}

impl Chain {
    /// The beginning of a chain: something came from outside.
    #[must_use]
    pub fn root(ctx: &RuleContext) -> Self {
        Self { root_id: RootId(ctx.id()), hop: 0 }
    }
}
