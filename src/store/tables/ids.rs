//! Queries for the ids of one kind within a range.

use uuid::Uuid;

use super::prelude::*;

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
