//! The families of rows that retention deletes, and how many rows each has.
//!
//! This module must never delete a row: `prune.rs` does.

use super::prelude::*;

/// The families, each with the query for the number of its rows.
macro_rules! families {
    ($($(#[$doc:meta])* $family:ident: $rows:literal;)+) => {
        /// The families of rows that can be pruned.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Family { $($(#[$doc])* $family),+ }

        impl Family {
            /// All families.
            pub const ALL: [Self; [$(Self::$family),+].len()] = [$(Self::$family),+];
        }

        /// The query for the number of a family's rows.
        fn rows_of(family: Family) -> Sql {
            match family { $(Family::$family => sql!($rows)),+ }
        }
    };
}

families! {
    /// The event feed. Its sequence continues.
    Events: "SELECT count(*) FROM events";
    /// Ended turns with their journals, prompt parts that no journal names, and starts of sessions at such turns. Turns
    /// that the prompt of an open turn quotes stay ([`Turn::log_from`](ghost_domain::Turn::log_from)).
    Turns: "SELECT count(*) FROM turns";
    /// Ended turns of cron jobs that have a turn of their own
    /// ([`Turn::source`](ghost_domain::Turn::source) is `cron`), with their journals and the mail
    /// that opened them. A turn with all rows that are deleted with it is counted as one row.
    CronTurns: "SELECT count(*) FROM turns WHERE source = 'cron' AND status <> 'open'";
    /// Mail whose turn has ended, except mail of held dead letters.
    Messages: "SELECT count(*) FROM messages";
    /// Closed asks.
    Asks: "SELECT count(*) FROM asks";
    /// Approvals that are not pending, except those that hold for later calls.
    Approvals: "SELECT count(*) FROM approvals";
    /// Ledger rows of calls that have ended.
    Ledger: "SELECT count(*) FROM ledger";
    /// Usage rows. The sums in budgets stay.
    Usage: "SELECT count(*) FROM usage";
    /// Stored answers to requests.
    Requests: "SELECT count(*) FROM requests";
    /// Dead letters that are no longer held, and those of agents without even a tombstone, because
    /// nobody can retry them.
    DeadLetters: "SELECT count(*) FROM dead_letters";
    /// Ended tasks and their history, unless a task that has not ended depends on them.
    Tasks: "SELECT count(*) FROM tasks";
    /// Accounts of finished roots. Such an account holds no reservation. Its root has no open turn,
    /// no mail that waits or belongs to an open turn, no task, no schedule, no unfinished job and
    /// no held dead letter.
    RootBudgets: "SELECT count(*) FROM budgets WHERE scope > 'root:' AND scope < 'root;'";
    /// Tombstones of agents. A tombstone stays if the agent is a direct or indirect creator of a
    /// living agent, because creators pay for the agents they created. The incarnation floor
    /// ([`agent_incarnation_floor`](Tx::agent_incarnation_floor)) rises to the
    /// deleted incarnations.
    Agents: "SELECT count(*) FROM agents WHERE deleted_at IS NOT NULL";
    /// Accounts of agents, daily and total, that hold no reservation: those of deleted agents if
    /// they have no limit, and all those of agents without even a tombstone. Accounts of living
    /// agents, teams and the world stay.
    AgentBudgets: "SELECT count(*) FROM budgets WHERE scope > 'agent:' AND scope < 'agent;'";
    /// Chat messages. In each channel they are deleted from the start up to the first message that
    /// is too young, so that the rest has no gap. The sequence of the channel continues.
    ChatPosts: "SELECT count(*) FROM chat_posts";
    /// Conversations without recent activity, with their entries. A conversation stays if one of
    /// its entries is still needed by a delivery, an open turn, waiting mail or a dead letter. A
    /// conversation is counted as one row. Entries of active conversations are deleted by
    /// [`Tx::prune_conversation_entries`].
    Conversations: "SELECT count(*) FROM conversations";
    /// Deleted knowledge entries, except entries from the world's files: they would be created
    /// again at the next boot.
    Knowledge: "SELECT count(*) FROM knowledge WHERE deleted = 1";
    /// Runs of schedules, by the time they fired.
    ScheduleRuns: "SELECT count(*) FROM schedule_runs";
    /// Tallies of roots, by the time of their last change.
    Roots: "SELECT count(*) FROM roots";
    /// Write grants, by their end.
    Grants: "SELECT count(*) FROM acl_grants";
    /// Droids that have ended, by their end.
    Droids: "SELECT count(*) FROM droids";
}

impl Tx {
    /// Number of rows of the family's table, of those that may ever be pruned.
    pub fn prune_rows(&mut self, family: Family) -> Result<u64> {
        self.count("prune", rows_of(family), args![])
    }
}
