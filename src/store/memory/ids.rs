//! Ranges of ids.

use std::ops::RangeInclusive;

use ghost_domain::{ApprovalId, AskId, ConversationId, DeadLetterId, GrantId, MessageId, ScheduleId, TaskId, TurnId};
use uuid::Uuid;

use super::session::{LIST_MAX, Session};
use super::table::Table;
use crate::tables::{IdKind, IdReads, Result};

/// The ids in a range of a table's keys, at most `limit`.
fn keys<K: Ord + Copy, V>(table: &Table<K, V>, range: RangeInclusive<K>, id: fn(K) -> Uuid, limit: usize) -> Vec<Uuid> {
    table.range(range).take(limit).map(|(key, _)| id(*key)).collect()
}

impl IdReads for Session<'_> {
    fn ids_between(&mut self, kind: IdKind, first: Uuid, last: Uuid, limit: u32) -> Result<Vec<Uuid>> {
        let limit = (limit as usize).min(LIST_MAX);
        if first > last {
            return Ok(Vec::new());
        }
        let tables = &self.tables;
        Ok(match kind {
            IdKind::Approval => keys(&tables.approvals, ApprovalId(first)..=ApprovalId(last), |id| id.0, limit),
            IdKind::Ask => keys(&tables.asks, AskId(first)..=AskId(last), |id| id.0, limit),
            IdKind::Conversation => {
                keys(&tables.conversations, ConversationId(first)..=ConversationId(last), |id| id.0, limit)
            }
            IdKind::DeadLetter => {
                keys(&tables.dead_letters, DeadLetterId(first)..=DeadLetterId(last), |id| id.0, limit)
            }
            IdKind::Grant => keys(&tables.grants, GrantId(first)..=GrantId(last), |id| id.0, limit),
            IdKind::Message => keys(&tables.messages_by_id, MessageId(first)..=MessageId(last), |id| id.0, limit),
            IdKind::Schedule => keys(&tables.schedules, ScheduleId(first)..=ScheduleId(last), |id| id.0, limit),
            IdKind::Task => keys(&tables.tasks, TaskId(first)..=TaskId(last), |id| id.0, limit),
            IdKind::Turn => keys(&tables.turns, TurnId(first)..=TurnId(last), |id| id.0, limit),
        })
    }
}
