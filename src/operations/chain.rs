//! Chains of work: the root that a message belongs to and its distance from it.
//!
//! A root is the event that started a chain of work, for example a message from outside or a cron
//! slot. A hop is one turn between the root and a message.
//!
//! This module must never count or refuse. [`crate::root_limits`] applies the limits of a chain.

use ghost_domain::task::Task;
use ghost_domain::{ConversationId, RootId, Turn};
use serde::{Deserialize, Serialize};

use crate::context::Context;

/// The position of a message in a chain of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Chain {
    /// Id of the event that started the chain.
    pub root_id: RootId,
    /// Turns between the root and this message.
    pub hop: u32,
    /// The conversation that started the chain, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
}

impl Chain {
    /// The chain of a turn.
    #[must_use]
    pub fn of(turn: &Turn) -> Self {
        Self { root_id: turn.root_id, hop: turn.hop, conversation_id: turn.conversation_id }
    }

    /// The chain of what a turn sends.
    #[must_use]
    pub fn after(turn: &Turn) -> Self {
        Self { hop: turn.hop.saturating_add(1), ..Self::of(turn) }
    }

    /// The chain of notices about a task.
    #[must_use]
    pub fn of_task(task: &Task) -> Self {
        Self { root_id: task.root_id, hop: 0, conversation_id: task.conversation_id }
    }

    /// Starts a new chain, for an event from outside the world.
    #[must_use]
    pub fn root(ctx: &Context) -> Self {
        Self { root_id: RootId(ctx.id()), hop: 0, conversation_id: None }
    }
}
