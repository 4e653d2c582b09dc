//! Rows and queries of dead letters.

use ghost_domain::{AgentId, DeadLetter, DeadLetterId, DeadLetterStatus, Timestamp};

use super::counts::of;
use super::prelude::*;

/// The count of held dead letters, of the world and of an agent.
pub(super) const HELD: &str = "dead_letters_held";

record! {
    letter: DeadLetter, "dead_letters"; key dead_letter_id: DeadLetterId;
    agent_id, turn_id, status, created_at,
    resolved_at = (letter.status != DeadLetterStatus::Held).then(|| letter.resolved_at.unwrap_or(letter.created_at))
}

/// One page of the list, newest first.
pub(super) fn list(
    agent_id: Option<&AgentId>,
    status: Option<DeadLetterStatus>,
    after: Option<(Timestamp, DeadLetterId)>,
    limit: u32,
) -> (Statement, Args) {
    Conditions::new("SELECT record FROM dead_letters")
        .when(agent_id, "agent_id = $1")
        .when(status, "status = $1")
        .when(after, "(created_at, dead_letter_id) < ($1, $2)")
        .order("created_at DESC, dead_letter_id DESC", list_limit(limit))
}

functions! {
    /// Dead letters, newest first (then by id, highest first); only those of this agent and this
    /// status, if given.
    page dead_letter_list(
        agent_id: Option<&AgentId>, status: Option<DeadLetterStatus>, after: Option<(Timestamp, DeadLetterId)>,
        limit: u32
    ) -> Vec<DeadLetter>: list(agent_id, status, after, limit);
    /// The dead letter with this id.
    get dead_letter_get(dead_letter_id: DeadLetterId) -> Option<DeadLetter>: &dead_letter_id;
}

impl Tx {
    /// Number of held dead letters; only those of this agent, if given.
    pub fn dead_letter_count_held(&mut self, agent_id: Option<&AgentId>) -> Result<u32> {
        self.counted(&agent_id.map_or(HELD.to_owned(), |agent_id| of(HELD, agent_id)))
    }

    /// Inserts or replaces a dead letter.
    pub fn dead_letter_put(&mut self, dead_letter: &DeadLetter) -> Result<()> {
        let stored = sql!(
            "SELECT 'dead_letters_held/' || agent_id FROM dead_letters WHERE dead_letter_id = $1 AND status = 'held'"
        );
        let count = (dead_letter.status == DeadLetterStatus::Held).then(|| of(HELD, &dead_letter.agent_id));
        self.put_counted(dead_letter, &dead_letter.dead_letter_id, stored, count.as_deref())?;
        let dead_letter_id = dead_letter.dead_letter_id.0;
        self.execute(sql!("DELETE FROM dead_letter_mail WHERE dead_letter_id = $1"), args![dead_letter_id])?;
        for message_id in &dead_letter.messages {
            let sql = sql!(
                "INSERT INTO dead_letter_mail (dead_letter_id, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING"
            );
            self.execute(sql, args![dead_letter_id, message_id])?;
        }
        Ok(())
    }
}
