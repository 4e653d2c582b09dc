//! Retention: the only deletes of rows that nobody names.

use async_trait::async_trait;
use ghost_domain::Timestamp;

use crate::error::Result;

/// What can be pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The feed. Its sequence goes on.
    Events,
    /// Ended turns with their journals, and prompt parts that no journal names.
    Turns,
    /// Ended turns that cron jobs had to themselves ([`Turn::source`](ghost_domain::Turn::source) is `cron`), with their journals
    /// and the mail of the jobs that opened them. A turn counts as one row, whatever hangs on it.
    CronTurns,
    /// Mail whose turn has ended. Mail of held dead letters is kept.
    Messages,
    /// Closed asks.
    Asks,
    /// Ledger rows of calls that have ended.
    Ledger,
    /// Usage rows. Budgets keep their sums.
    Usage,
    /// Stored answers.
    Requests,
    /// Dead letters that were dealt with, and those of agents of which there is not even a tombstone: nobody can retry them.
    DeadLetters,
    /// Ended tasks and their history, unless a task that has not ended depends on them.
    Tasks,
    /// Accounts of roots that are over: nothing is held in them, and of their root there is no open turn, no mail that
    /// waits or that an open turn has, no task, no schedule, no unfinished job and no held dead letter.
    RootBudgets,
    /// Tombstones of agents, unless a living agent leads back to one by its creator and its creator's creators, who all pay
    /// for it. The floor of incarnations ([`agent_incarnation_floor`](super::AgentReads::agent_incarnation_floor)) rises to
    /// theirs.
    Agents,
    /// Accounts of agents, for a day and in all, in which nothing is held: those without a limit of deleted agents, and
    /// whatever is left of agents of which there is not even a tombstone. The accounts of the living, of teams and of the
    /// world stay, with all that they paid.
    AgentBudgets,
    /// Chat posts, channel by channel, each from its start up to its first young post, so that what is left of it has no
    /// gap. Channels keep their sequence.
    ChatPosts,
    /// Conversations in which nothing was said lately, with their entries, unless one of these must stay, as a delivery, an
    /// open turn, waiting mail or a dead letter needs it. A conversation counts as one row, whatever it holds. Those that go on are pruned entry by entry:
    /// [`PruneWrites::prune_conversation_entries`].
    Conversations,
    /// Deleted entries of knowledge, unless the world's files brought them: those must not come back at the next boot.
    Knowledge,
    /// Runs of schedules, by when they went off.
    ScheduleRuns,
    /// Tallies of roots, by when they last counted something.
    Roots,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 18] = [
        Self::Events,
        Self::Turns,
        Self::CronTurns,
        Self::Messages,
        Self::Asks,
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
    ];
}

/// Pruning.
#[async_trait]
pub trait PruneWrites {
    /// Deletes rows of a family that ended before `before`, at most `limit`, oldest first unless the family says
    /// otherwise. Gives how many.
    async fn prune(&mut self, family: Family, before: Timestamp, limit: u32) -> Result<u64>;

    /// Deletes entries of conversations, at most `limit`, conversation by conversation in order of id: each from its start
    /// up to the first that must stay, so that what is left of it has no gap. One must stay that is young and among the
    /// newest `keep` of its conversation; that is a draft or waits to be delivered; that an open turn wrote; or whose mail
    /// waits, is in a turn's hands or is held as a dead letter. Conversations keep their sequence. Gives how many went.
    async fn prune_conversation_entries(&mut self, before: Timestamp, keep: u32, limit: u32) -> Result<u64>;

    /// Deletes the oldest changes of tasks that have more than `keep` (at least 1) of them, at most `limit`, task by task in
    /// order of id. Gives how many went.
    async fn prune_task_events(&mut self, keep: u32, limit: u32) -> Result<u64>;
}
