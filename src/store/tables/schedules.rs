//! The `schedules`, `schedule_runs` and `watch_snapshots` tables.

use async_trait::async_trait;
use ghost_domain::{AgentId, MessageId, Schedule, ScheduleId, ScheduleKind, ScheduleRun, Timestamp, WatchSnapshot};

use crate::error::Result;

/// A place in the list of schedules, whether or not a schedule is still there: its agent, its kind and its name.
pub type SchedulePlace = (AgentId, ScheduleKind, String);

/// Reading schedules.
#[async_trait]
pub trait ScheduleReads {
    /// One schedule.
    async fn schedule_get(&mut self, schedule_id: ScheduleId) -> Result<Option<Schedule>>;

    /// The schedule that its owner calls so.
    async fn schedule_find(&mut self, agent_id: &AgentId, kind: ScheduleKind, name: &str) -> Result<Option<Schedule>>;

    /// Schedules in order of agent, kind (as text) and name, from behind `after`, at most 1,000; of this agent and kind if
    /// given. What comes behind the last of a full list is read with its place.
    async fn schedule_list(
        &mut self,
        agent_id: Option<&AgentId>,
        kind: Option<ScheduleKind>,
        after: Option<&SchedulePlace>,
    ) -> Result<Vec<Schedule>>;

    /// Schedules of a kind in order of id, from after `after`, at most 1,000. What comes after the last of a full list is
    /// read with its id.
    async fn schedules_of(&mut self, kind: ScheduleKind, after: Option<ScheduleId>) -> Result<Vec<Schedule>>;

    /// How many schedules of a kind an agent has.
    async fn schedule_count(&mut self, agent_id: &AgentId, kind: ScheduleKind) -> Result<u32>;

    /// Schedules whose next instant is `now` or earlier, the longest due first (then by id), at most `limit`.
    async fn schedules_due(&mut self, now: Timestamp, limit: u32) -> Result<Vec<Schedule>>;

    /// When the next schedule falls due, if any will.
    async fn schedule_next_at(&mut self) -> Result<Option<Timestamp>>;

    /// Runs of a schedule, newest first, at most `limit`.
    async fn schedule_runs(&mut self, schedule_id: ScheduleId, limit: u32) -> Result<Vec<ScheduleRun>>;

    /// The run whose mail this is.
    async fn schedule_run_of(&mut self, message_id: MessageId) -> Result<Option<ScheduleRun>>;

    /// What a watch last saw.
    async fn watch_snapshot_get(&mut self, schedule_id: ScheduleId) -> Result<Option<WatchSnapshot>>;
}

/// Writing schedules.
#[async_trait]
pub trait ScheduleWrites {
    /// Inserts or replaces a schedule.
    async fn schedule_put(&mut self, schedule: &Schedule) -> Result<()>;

    /// Takes schedules that are due and whose records do not read back out of what falls due, among the first `limit` that are
    /// due; the records stay as they are. Gives which, and what is wrong with each.
    async fn schedules_set_aside(&mut self, now: Timestamp, limit: u32) -> Result<Vec<(ScheduleId, String)>>;

    /// Removes a schedule with its snapshot. Its runs stay until they are pruned.
    async fn schedule_delete(&mut self, schedule_id: ScheduleId) -> Result<()>;

    /// Inserts or replaces a run.
    async fn schedule_run_put(&mut self, run: &ScheduleRun) -> Result<()>;

    /// Deletes the oldest runs of a schedule until what is left is at most `lines` runs and at most `bytes` bytes of records.
    /// Gives how many went.
    async fn schedule_runs_trim(&mut self, schedule_id: ScheduleId, lines: u32, bytes: u64) -> Result<u64>;

    /// Inserts or replaces what a watch last saw.
    async fn watch_snapshot_put(&mut self, schedule_id: ScheduleId, snapshot: &WatchSnapshot) -> Result<()>;
}
