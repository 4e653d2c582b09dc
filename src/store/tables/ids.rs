//! Queries for the ids of one kind within a range.

use uuid::Uuid;

use crate::error::Result;
use crate::query::PAGE_MAX;
use crate::row::{Args, get_id};
use crate::sql::{Sql, sql};
use crate::tx::Tx;

/// The kinds of ids that people type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdKind {
    /// Id of an approval.
    Approval,
    /// Id of an ask.
    Ask,
    /// Id of a conversation.
    Conversation,
    /// Id of a dead letter.
    DeadLetter,
    /// Id of a write grant.
    Grant,
    /// Id of a message.
    Message,
    /// Id of a schedule: a timer, cron job, watch or heartbeat.
    Schedule,
    /// Id of a task.
    Task,
    /// Id of a turn.
    Turn,
}

impl IdKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Approval,
        Self::Ask,
        Self::Conversation,
        Self::DeadLetter,
        Self::Grant,
        Self::Message,
        Self::Schedule,
        Self::Task,
        Self::Turn,
    ];
}

/// For a kind: its table, and the query.
fn query(kind: IdKind) -> (&'static str, Sql) {
    match kind {
        IdKind::Approval => (
            "approvals",
            sql!(
                "SELECT approval_id FROM approvals WHERE approval_id BETWEEN $1 AND $2 ORDER BY approval_id {limit $3}"
            ),
        ),
        IdKind::Ask => {
            ("asks", sql!("SELECT ask_id FROM asks WHERE ask_id BETWEEN $1 AND $2 ORDER BY ask_id {limit $3}"))
        }
        IdKind::Conversation => (
            "conversations",
            sql!(
                "SELECT conversation_id FROM conversations WHERE conversation_id BETWEEN $1 AND $2 \
             ORDER BY conversation_id {limit $3}"
            ),
        ),
        IdKind::DeadLetter => (
            "dead_letters",
            sql!(
                "SELECT dead_letter_id FROM dead_letters WHERE dead_letter_id BETWEEN $1 AND $2 \
             ORDER BY dead_letter_id {limit $3}"
            ),
        ),
        IdKind::Grant => (
            "acl_grants",
            sql!("SELECT grant_id FROM acl_grants WHERE grant_id BETWEEN $1 AND $2 ORDER BY grant_id {limit $3}"),
        ),
        IdKind::Message => (
            "messages",
            sql!("SELECT message_id FROM messages WHERE message_id BETWEEN $1 AND $2 ORDER BY message_id {limit $3}"),
        ),
        IdKind::Schedule => (
            "schedules",
            sql!(
                "SELECT schedule_id FROM schedules WHERE schedule_id BETWEEN $1 AND $2 ORDER BY schedule_id {limit $3}"
            ),
        ),
        IdKind::Task => {
            ("tasks", sql!("SELECT task_id FROM tasks WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id {limit $3}"))
        }
        IdKind::Turn => {
            ("turns", sql!("SELECT turn_id FROM turns WHERE turn_id BETWEEN $1 AND $2 ORDER BY turn_id {limit $3}"))
        }
    }
}

impl Tx {
    /// The ids of this kind from `first` to `last`, both included, in ascending order, at most
    /// `limit` and never more than 1,000. It reads a range of the primary key, so the cost depends
    /// only on the number of ids returned.
    pub fn ids_between(&mut self, kind: IdKind, first: Uuid, last: Uuid, limit: u32) -> Result<Vec<Uuid>> {
        let (table, sql) = query(kind);
        let mut args = Args::default();
        args.id(first).id(last).int(i64::from(limit.min(PAGE_MAX)));
        self.rows(sql, args, |row| get_id(table, row, 0))
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::{Connection, params_from_iter};

    use super::*;
    use crate::sqlite::schema;

    #[test]
    fn a_range_of_an_index_is_read_and_nothing_is_sorted() {
        let mut conn = Connection::open_in_memory().unwrap();
        schema::migrate(&mut conn, 0).unwrap();
        for kind in IdKind::ALL {
            let (_, sql) = query(kind);
            let mut args = Args::default();
            args.id(Uuid::nil()).id(Uuid::max()).int(6);
            let mut explained = conn.prepare(&format!("EXPLAIN QUERY PLAN {}", sql.sqlite())).unwrap();
            let steps = explained.query_map(params_from_iter(args.values()), |row| row.get("detail")).unwrap();
            let plan: Vec<String> = steps.collect::<rusqlite::Result<_>>().unwrap();
            assert!(plan.len() == 1 && plan[0].starts_with("SEARCH "), "{kind:?}: {plan:?}");
        }
    }
}
