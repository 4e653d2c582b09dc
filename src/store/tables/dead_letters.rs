//! The `dead_letters` table.

use async_trait::async_trait;
use ghost_domain::{AgentId, DeadLetter, DeadLetterId, DeadLetterStatus};

use crate::error::Result;

/// Reading dead letters.
#[async_trait]
pub trait DeadLetterReads {
    /// One dead letter.
    async fn dead_letter_get(&mut self, dead_letter_id: DeadLetterId) -> Result<Option<DeadLetter>>;

    /// Dead letters, newest first, at most 1,000; of this agent and status if given.
    async fn dead_letter_list(
        &mut self,
        agent_id: Option<&AgentId>,
        status: Option<DeadLetterStatus>,
    ) -> Result<Vec<DeadLetter>>;

    /// How many are held; those of this agent if one is given.
    async fn dead_letter_count_held(&mut self, agent_id: Option<&AgentId>) -> Result<u32>;
}

/// Writing dead letters.
#[async_trait]
pub trait DeadLetterWrites {
    /// Inserts or replaces a dead letter.
    async fn dead_letter_put(&mut self, dead_letter: &DeadLetter) -> Result<()>;
}
