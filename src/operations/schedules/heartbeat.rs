//! The mail that waits for an agent's heartbeat (HB-04).

use crate::prelude::*;
use ghost_domain::mail::waits_for_heartbeat;

/// Whether an agent has a heartbeat that is switched on.
pub(super) fn has_heartbeat(w: &mut StoreTx, agent_id: &AgentId) -> Result<bool> {
    let heartbeats = w.schedule_list(Some(agent_id), Some(ScheduleKind::Heartbeat), None)?;
    Ok(heartbeats.iter().any(|heartbeat| heartbeat.enabled))
}

/// Wakes an agent for mail that waits for its heartbeat, if it has no heartbeat any more. Otherwise
/// this mail would wait for ever.
pub(super) fn release_waiting_mail(w: &mut Tx, agent_id: &AgentId) -> Result<()> {
    if has_heartbeat(w, agent_id)? {
        return Ok(());
    }
    // Mail from the system may exceed the limit of an inbox.
    let window = w.ctx.limits().inbox_max.saturating_mul(2);
    let mut waiting = w.inbox_pending(agent_id, window)?;
    waiting.retain(waits_for_heartbeat);
    if !waiting.is_empty() {
        let ids: Vec<MessageId> = waiting.iter().map(|envelope| envelope.message_id).collect();
        w.message_rouse(&ids)?;
        w.wake(agent_id);
    }
    Ok(())
}
