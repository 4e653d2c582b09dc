//! The families of rows that retention deletes, and how many rows each has.
//!
//! This module must never delete a row: `prune.rs` does.

use crate::error::Result;
use crate::row::Args;
use crate::sql::{Sql, sql};
use crate::tx::Tx;

/// The families of rows that can be pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The event feed. Its sequence continues.
    Events,
    /// Ended turns with their journals, prompt parts that no journal names, and starts of sessions at such turns. Turns
    /// that the prompt of an open turn quotes stay ([`Turn::log_from`](ghost_domain::Turn::log_from)).
    Turns,
    /// Ended turns of cron jobs that have a turn of their own
    /// ([`Turn::source`](ghost_domain::Turn::source) is `cron`), with their journals and the mail
    /// that opened them. A turn with all rows that are deleted with it is counted as one row.
    CronTurns,
    /// Mail whose turn has ended, except mail of held dead letters.
    Messages,
    /// Closed asks.
    Asks,
    /// Approvals that are not pending, except those that hold for later calls.
    Approvals,
    /// Ledger rows of calls that have ended.
    Ledger,
    /// Usage rows. The sums in budgets stay.
    Usage,
    /// Stored answers to requests.
    Requests,
    /// Dead letters that are no longer held, and those of agents without even a tombstone, because
    /// nobody can retry them.
    DeadLetters,
    /// Ended tasks and their history, unless a task that has not ended depends on them.
    Tasks,
    /// Accounts of finished roots. Such an account holds no reservation. Its root has no open turn,
    /// no mail that waits or belongs to an open turn, no task, no schedule, no unfinished job and
    /// no held dead letter.
    RootBudgets,
    /// Tombstones of agents. A tombstone stays if the agent is a direct or indirect creator of a
    /// living agent, because creators pay for the agents they created. The incarnation floor
    /// ([`agent_incarnation_floor`](super::AgentReads::agent_incarnation_floor)) rises to the
    /// deleted incarnations.
    Agents,
    /// Accounts of agents, daily and total, that hold no reservation: those of deleted agents if
    /// they have no limit, and all those of agents without even a tombstone. Accounts of living
    /// agents, teams and the world stay.
    AgentBudgets,
    /// Chat messages. In each channel they are deleted from the start up to the first message that
    /// is too young, so that the rest has no gap. The sequence of the channel continues.
    ChatPosts,
    /// Conversations without recent activity, with their entries. A conversation stays if one of
    /// its entries is still needed by a delivery, an open turn, waiting mail or a dead letter. A
    /// conversation is counted as one row. Entries of active conversations are deleted by
    /// [`Tx::prune_conversation_entries`].
    Conversations,
    /// Deleted knowledge entries, except entries from the world's files: they would be created
    /// again at the next boot.
    Knowledge,
    /// Runs of schedules, by the time they fired.
    ScheduleRuns,
    /// Tallies of roots, by the time of their last change.
    Roots,
    /// Write grants, by their end.
    Grants,
    /// Droids that have ended, by their end.
    Droids,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 21] = [
        Self::Events,
        Self::Turns,
        Self::CronTurns,
        Self::Messages,
        Self::Asks,
        Self::Approvals,
        Self::Ledger,
        Self::Usage,
        Self::Requests,
        Self::DeadLetters,
        Self::Tasks,
        Self::RootBudgets,
        Self::Agents,
        Self::AgentBudgets,
        Self::ChatPosts,
        Self::Conversations,
        Self::Knowledge,
        Self::ScheduleRuns,
        Self::Roots,
        Self::Grants,
        Self::Droids,
    ];
}

/// The query for the number of a family's rows.
fn rows_of(family: Family) -> Sql {
    match family {
        Family::Events => sql!("SELECT count(*) FROM events"),
        Family::Turns => sql!("SELECT count(*) FROM turns"),
        Family::CronTurns => sql!("SELECT count(*) FROM turns WHERE source = 'cron' AND status <> 'open'"),
        Family::Messages => sql!("SELECT count(*) FROM messages"),
        Family::Asks => sql!("SELECT count(*) FROM asks"),
        Family::Approvals => sql!("SELECT count(*) FROM approvals"),
        Family::Ledger => sql!("SELECT count(*) FROM ledger"),
        Family::Usage => sql!("SELECT count(*) FROM usage"),
        Family::Requests => sql!("SELECT count(*) FROM requests"),
        Family::DeadLetters => sql!("SELECT count(*) FROM dead_letters"),
        Family::Tasks => sql!("SELECT count(*) FROM tasks"),
        Family::RootBudgets => sql!("SELECT count(*) FROM budgets WHERE scope > 'root:' AND scope < 'root;'"),
        Family::AgentBudgets => sql!("SELECT count(*) FROM budgets WHERE scope > 'agent:' AND scope < 'agent;'"),
        Family::Agents => sql!("SELECT count(*) FROM agents WHERE deleted_at IS NOT NULL"),
        Family::ChatPosts => sql!("SELECT count(*) FROM chat_posts"),
        Family::Conversations => sql!("SELECT count(*) FROM conversations"),
        Family::Knowledge => sql!("SELECT count(*) FROM knowledge WHERE deleted = 1"),
        Family::ScheduleRuns => sql!("SELECT count(*) FROM schedule_runs"),
        Family::Roots => sql!("SELECT count(*) FROM roots"),
        Family::Grants => sql!("SELECT count(*) FROM acl_grants"),
        Family::Droids => sql!("SELECT count(*) FROM droids"),
    }
}

impl Tx {
    /// Number of rows of the family's table, of those that may ever be pruned.
    pub fn prune_rows(&mut self, family: Family) -> Result<u64> {
        self.count("prune", rows_of(family), Args::default())
    }
}
