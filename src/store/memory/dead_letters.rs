//! Dead letters.

use ghost_domain::{AgentId, DeadLetter, DeadLetterId, DeadLetterStatus, Timestamp};

use super::session::{Session, count, page};
use crate::tables::{DeadLetterReads, DeadLetterWrites, Result};

impl DeadLetterReads for Session<'_> {
    fn dead_letter_get(&mut self, dead_letter_id: DeadLetterId) -> Result<Option<DeadLetter>> {
        Ok(self.tables.dead_letters.get(&dead_letter_id).cloned())
    }

    fn dead_letter_list(
        &mut self,
        agent_id: Option<&AgentId>,
        status: Option<DeadLetterStatus>,
        after: Option<(Timestamp, DeadLetterId)>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>> {
        let key = |letter: &DeadLetter| (letter.created_at, letter.dead_letter_id);
        let wanted = |letter: &&DeadLetter| {
            agent_id.is_none_or(|agent_id| letter.agent_id == *agent_id)
                && status.is_none_or(|status| letter.status == status)
                && after.is_none_or(|after| key(letter) < after)
        };
        let mut found: Vec<&DeadLetter> = self.tables.dead_letters.values().filter(wanted).collect();
        found.sort_by_key(|letter| std::cmp::Reverse(key(letter)));
        Ok(page(found, limit))
    }

    fn dead_letter_count_held(&mut self, agent_id: Option<&AgentId>) -> Result<u32> {
        let held = self.tables.dead_letters.values().filter(|letter| {
            letter.status == DeadLetterStatus::Held && agent_id.is_none_or(|agent_id| letter.agent_id == *agent_id)
        });
        Ok(count(held.count()))
    }
}

impl DeadLetterWrites for Session<'_> {
    fn dead_letter_put(&mut self, dead_letter: &DeadLetter) -> Result<()> {
        self.tables.dead_letters.put(dead_letter.dead_letter_id, dead_letter.clone());
        Ok(())
    }
}
