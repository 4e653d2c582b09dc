//! How many rows a limit counts, the ids of one kind within a range, and stored answers to requests.
//!
//! Each count is a row of `counters`, which changes in the command that adds, changes or deletes a counted row. So a limit
//! costs one read, however many rows there are, and commands of several writers that must agree on a limit meet at one row.
//! A command must never count rows.

use ghost_domain::{AgentId, Party, RequestId, StoredAnswer};
use uuid::Uuid;

use super::prelude::*;

/// The name of a count of one agent.
pub(super) fn of(name: &str, agent_id: &AgentId) -> String {
    format!("{name}/{agent_id}")
}

impl Tx {
    /// Writes a row of which some are counted. `stored` finds the name of the count that the row with this key belongs to
    /// before, if it is counted; `count` is the name after.
    pub(super) fn put_counted<R: Row + Keyed>(
        &mut self,
        row: &R,
        key: &R::Key,
        stored: Sql,
        count: Option<&str>,
    ) -> Result<()> {
        let mut args = args![];
        R::bind_key(key, &mut args);
        let before = self.row(stored, args, |row| get::<String>(R::TABLE, row, 0))?;
        self.put(row)?;
        if before.as_deref() == count {
            return Ok(());
        }
        if let Some(name) = &before {
            self.change_count(name, -1)?;
        }
        count.map_or(Ok(()), |name| self.change_count(name, 1))
    }

    /// Adds to a count, and to that of the world if it is an agent's. A count of 0 leaves no row.
    pub(super) fn change_count(&mut self, name: &str, change: i64) -> Result<()> {
        if change == 0 {
            return Ok(());
        }
        let world = name.split_once('/').map(|(world, _)| world);
        for name in [Some(name), world].into_iter().flatten() {
            if change > 0 {
                let sql = sql!(
                    "INSERT INTO counters (name, value) VALUES ($1, $2) \
                    ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value"
                );
                self.execute(sql, args![name, change.abs()])?;
                continue;
            }
            // A count that is wrong must not refuse commands.
            let sql =
                sql!("UPDATE counters SET value = CASE WHEN value > $2 THEN value - $2 ELSE 0 END WHERE name = $1");
            self.execute(sql, args![name, change.abs()])?;
            self.execute(sql!("DELETE FROM counters WHERE name = $1 AND value = 0"), args![name])?;
        }
        Ok(())
    }

    /// The value of a count.
    pub(super) fn counted(&mut self, name: &str) -> Result<u32> {
        self.count("counters", sql!("SELECT value FROM counters WHERE name = $1"), args![name])
    }
}

/// The kinds of ids, each with its table and column.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident: $table:literal, $column:literal;)+) => {
        /// The kinds of ids that people type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum IdKind { $($(#[$doc])* $kind),+ }

        impl IdKind {
            /// All kinds.
            pub const ALL: [Self; [$(Self::$kind),+].len()] = [$(Self::$kind),+];
        }

        /// For a kind: its table, and the query.
        fn query(kind: IdKind) -> (&'static str, Sql) {
            match kind {
                $(IdKind::$kind => ($table, sql!(
                    "SELECT ", $column, " FROM ", $table, " WHERE ", $column, " BETWEEN $1 AND $2 ORDER BY ", $column,
                    " {limit $3}"
                ))),+
            }
        }
    };
}

kinds! {
    /// Id of an approval.
    Approval: "approvals", "approval_id";
    /// Id of an ask.
    Ask: "asks", "ask_id";
    /// Id of a conversation.
    Conversation: "conversations", "conversation_id";
    /// Id of a dead letter.
    DeadLetter: "dead_letters", "dead_letter_id";
    /// Id of a write grant.
    Grant: "acl_grants", "grant_id";
    /// Id of a message.
    Message: "messages", "message_id";
    /// Id of a schedule: a timer, cron job, watch or heartbeat.
    Schedule: "schedules", "schedule_id";
    /// Id of a task.
    Task: "tasks", "task_id";
    /// Id of a turn.
    Turn: "turns", "turn_id";
}

impl Tx {
    /// The ids of this kind from `first` to `last`, both included, in ascending order, at most
    /// `limit` and never more than 1,000. It reads a range of the primary key, so the cost depends
    /// only on the number of ids returned.
    pub fn ids_between(&mut self, kind: IdKind, first: Uuid, last: Uuid, limit: u32) -> Result<Vec<Uuid>> {
        let (table, sql) = query(kind);
        self.rows(sql, args![first, last, limit.min(PAGE_MAX)], |row| get(table, row, 0))
    }
}

record! {
    answer: StoredAnswer, "requests";
    key principal: Party = &answer.key.principal, request_id: RequestId = &answer.key.request_id;
    at
}

functions! {
    /// The stored answer to a request of this principal, for any method.
    get request_get(principal: &Party, request_id: &RequestId) -> Option<StoredAnswer>:
        &(principal.clone(), request_id.clone());
    /// Stores the answer to a request.
    put request_put(answer: &StoredAnswer) -> (): answer;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::tests::plans::plan;

    #[tokio::test]
    async fn a_range_of_an_index_is_read_and_nothing_is_sorted() {
        for kind in IdKind::ALL {
            let plan = plan((query(kind).1, args![Uuid::nil(), Uuid::max(), 6])).await;
            assert!(plan.len() == 1 && plan[0].starts_with("SEARCH "), "{kind:?}: {plan:?}");
        }
    }
}
