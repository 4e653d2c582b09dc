//! The `dead_letters` table.

use ghost_domain::{AgentId, DeadLetter, DeadLetterId, DeadLetterStatus, Timestamp};

use crate::error::Result;

/// Reads of dead letters.
pub trait DeadLetterReads {
    /// The dead letter with this id.
    fn dead_letter_get(&mut self, dead_letter_id: DeadLetterId) -> Result<Option<DeadLetter>>;

    /// Dead letters, newest first (then by id, highest first); only those of this agent and this
    /// status, if given.
    fn dead_letter_list(
        &mut self,
        agent_id: Option<&AgentId>,
        status: Option<DeadLetterStatus>,
        after: Option<(Timestamp, DeadLetterId)>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>>;

    /// Number of held dead letters; only those of this agent, if given.
    fn dead_letter_count_held(&mut self, agent_id: Option<&AgentId>) -> Result<u32>;
}

/// Writes of dead letters.
pub trait DeadLetterWrites {
    /// Inserts or replaces a dead letter.
    fn dead_letter_put(&mut self, dead_letter: &DeadLetter) -> Result<()>;
}
