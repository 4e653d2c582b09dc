//! Applies the heartbeats of the world file (HB-01, HB-04): one schedule for each agent that has
//! one.

use ghost_domain::mail::waits_for_heartbeat;
use ghost_domain::schedule::slots::first_slot;

use super::rows::{remove, save};
use crate::prelude::*;

/// The name that every heartbeat has.
const NAME: &str = "heartbeat";

/// A heartbeat in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The interval in milliseconds.
    pub every_ms: u64,
    /// Where an alert goes: `none`, `last` or a channel.
    pub target: String,
}

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

/// Applies the configured heartbeat of an agent that is not deleted, or that it has none. An unchanged heartbeat is left
/// alone, even if it is switched off.
pub fn follow_heartbeat(w: &mut Tx, agent_id: &AgentId, wanted: Option<&Wanted>) -> Result<()> {
    if let Some(wanted) = wanted {
        return set_heartbeat(w, agent_id, wanted);
    }
    let Some(schedule) = w.schedule_find(agent_id, ScheduleKind::Heartbeat, NAME)? else { return Ok(()) };
    remove(w, &Party::System, &schedule, Some("the world file no longer wants it"))?;
    release_waiting_mail(w, agent_id)
}

/// Gives an agent a heartbeat, unless it has the same one already.
pub(crate) fn set_heartbeat(w: &mut Tx, agent_id: &AgentId, heartbeat: &Wanted) -> Result<()> {
    let before = w.schedule_find(agent_id, ScheduleKind::Heartbeat, NAME)?;
    let same = before.as_ref().is_some_and(|before| {
        let every = matches!(before.when, When::Every { every_ms, .. } if every_ms == heartbeat.every_ms);
        every && before.message == heartbeat.target
    });
    if same {
        return Ok(());
    }
    let now = w.ctx.now();
    let when = When::Every { every_ms: heartbeat.every_ms, anchor: now };
    // The anchor is not a slot: the first heartbeat is one interval from now.
    let next_at = Some(first_slot(&when, now, 0)?);
    let schedule = Schedule {
        schedule_id: before.as_ref().map_or_else(|| ScheduleId(w.ctx.id()), |before| before.schedule_id),
        kind: ScheduleKind::Heartbeat,
        agent_id: agent_id.clone(),
        name: NAME.to_owned(),
        when,
        message: heartbeat.target.clone(),
        missed: Missed::Skip,
        mode: JobMode::default(),
        enabled: true,
        // Each slot starts a root of its own.
        root_id: RootId(uuid::Uuid::nil()),
        conversation_id: None,
        hop: 0,
        next_at,
        last_at: before.as_ref().and_then(|before| before.last_at),
        last_status: before.as_ref().and_then(|before| before.last_status),
        runs: before.as_ref().map_or(0, |before| before.runs),
        creator: Party::System,
        created_at: now,
    };
    save(w, &Party::System, &schedule)
}
