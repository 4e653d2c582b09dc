//! Retention: deletes old rows by age. All other deletes name their row.

use ghost_domain::Timestamp;

use crate::error::Result;

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
    /// [`PruneWrites::prune_conversation_entries`].
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

/// Deletes old rows.
pub trait PruneWrites {
    /// Deletes rows of a family that ended before `before`, at most `limit`, oldest first unless
    /// the comment of the family says otherwise. Returns the number of deleted rows.
    fn prune(&mut self, family: Family, before: Timestamp, limit: u32) -> Result<u64>;

    /// Number of rows of the family's table, of those that may ever be pruned.
    fn prune_rows(&mut self, family: Family) -> Result<u64>;

    /// Deletes entries of conversations, at most `limit`, by conversation in order of id. In each
    /// conversation it deletes from the start up to the first entry that must stay, so that the
    /// rest has no gap. The sequence of the conversation continues. Returns how many entries were
    /// deleted.
    ///
    /// These entries must stay:
    ///
    /// - entries not older than `before`, if they are among the newest `keep` of their
    ///   conversation;
    /// - drafts and entries that wait for delivery;
    /// - entries of an open turn;
    /// - entries whose mail is not consumed: it waits, a turn has taken it, or it is dead.
    fn prune_conversation_entries(&mut self, before: Timestamp, keep: u32, limit: u32) -> Result<u64>;

    /// Deletes the oldest history rows of tasks that have more than `keep` (at least 1), at most
    /// `limit`, by task in order of id. Returns how many rows were deleted.
    fn prune_task_events(&mut self, keep: u32, limit: u32) -> Result<u64>;
}
