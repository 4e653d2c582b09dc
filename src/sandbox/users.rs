//! The users of the operating system that commands run as.
//!
//! A command must never run as root.

use ghost_domain::{AgentId, Refusal};

/// The number of the user and of the group "nobody".
pub(crate) const NOBODY: u32 = 65_534;

/// A user and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number, not 0.
    pub uid: u32,
    /// The number of its group, which the users of one workspace share; not 0.
    pub gid: u32,
}

impl User {
    /// The user of all commands, if root runs them and agents have none of their own.
    pub(crate) const NOBODY: Self = Self { uid: NOBODY, gid: NOBODY };
}

/// Gives each agent of one workspace a user of its own (TBX-08).
pub trait Users: Send + Sync {
    /// The user of an agent, always the same one. No other agent has it.
    ///
    /// # Errors
    /// If there is none left, or it cannot be written down.
    fn user_of(&self, agent_id: &AgentId) -> Result<User, Refusal>;
}
