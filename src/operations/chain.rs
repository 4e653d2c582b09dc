//! Chains of work: the root that a message belongs to and its distance from it.
//!
//! A root is the event that started a chain of work, for example a message from outside or a cron
//! slot. A hop is one turn between the root and a message.
//!
//! This module must never count or refuse. [`crate::root_limits`] applies the limits of a chain.

use ghost_domain::RootId;
use serde::{Deserialize, Serialize};

use crate::OperationContext;

/// The position of a message in a chain of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Id of the event that started the chain.
    pub root_id: RootId,
    /// Turns between the root and this message.
    pub hop: u32,
}

impl Chain {
    /// Starts a new chain, for an event from outside the world.
    #[must_use]
    pub fn root(ctx: &OperationContext) -> Self {
        Self { root_id: RootId(ctx.id()), hop: 0 }
    }
}
