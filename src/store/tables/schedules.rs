//! The `schedules`, `schedule_runs` and `watch_snapshots` tables.

use ghost_domain::{AgentId, MessageId, Schedule, ScheduleId, ScheduleKind, ScheduleRun, Timestamp, WatchSnapshot};

use crate::error::Result;

/// A position in the list of schedules: agent, kind and name. The schedule itself need not exist
/// any more.
pub type SchedulePlace = (AgentId, ScheduleKind, String);

/// Reads of schedules.
pub trait ScheduleReads {
    /// The schedule with this id.
    fn schedule_get(&mut self, schedule_id: ScheduleId) -> Result<Option<Schedule>>;

    /// The schedule with this owner, kind and name.
    fn schedule_find(&mut self, agent_id: &AgentId, kind: ScheduleKind, name: &str) -> Result<Option<Schedule>>;

    /// Schedules in order of agent, kind (as text) and name, at most 1,000; only those of this
    /// agent and kind, if given. `after` is the position of the last row of the previous page.
    fn schedule_list(
        &mut self,
        agent_id: Option<&AgentId>,
        kind: Option<ScheduleKind>,
        after: Option<&SchedulePlace>,
    ) -> Result<Vec<Schedule>>;

    /// Number of schedules of a kind that an agent has.
    fn schedule_count(&mut self, agent_id: &AgentId, kind: ScheduleKind) -> Result<u32>;

    /// Schedules that are due at `now`, in order of due time (then id), at most `limit`.
    fn schedules_due(&mut self, now: Timestamp, limit: u32) -> Result<Vec<Schedule>>;

    /// When the next schedule is due; `None` if no schedule has a due time.
    fn schedule_next_at(&mut self) -> Result<Option<Timestamp>>;

    /// Runs of a schedule, newest first, at most `limit`.
    fn schedule_runs(&mut self, schedule_id: ScheduleId, limit: u32) -> Result<Vec<ScheduleRun>>;

    /// The run that sent this mail.
    fn schedule_run_of(&mut self, message_id: MessageId) -> Result<Option<ScheduleRun>>;

    /// The last snapshot of a watch.
    fn watch_snapshot_get(&mut self, schedule_id: ScheduleId) -> Result<Option<WatchSnapshot>>;
}

/// Writes of schedules.
pub trait ScheduleWrites {
    /// Inserts or replaces a schedule.
    fn schedule_put(&mut self, schedule: &Schedule) -> Result<()>;

    /// Finds damaged schedules, whose records cannot be decoded, among the first `limit` due ones.
    /// Clears their due time so that they are not due again; the records stay unchanged. Returns
    /// the id and the problem of each.
    fn schedules_suspend_unreadable(&mut self, now: Timestamp, limit: u32) -> Result<Vec<(ScheduleId, String)>>;

    /// Removes a schedule and its snapshot. Its runs stay until they are pruned.
    fn schedule_delete(&mut self, schedule_id: ScheduleId) -> Result<()>;

    /// Inserts or replaces a run.
    fn schedule_run_put(&mut self, run: &ScheduleRun) -> Result<()>;

    /// Deletes the oldest runs of a schedule until at most `lines` runs and at most `bytes` bytes
    /// of records are left. Returns how many were deleted.
    fn schedule_runs_trim(&mut self, schedule_id: ScheduleId, lines: u32, bytes: u64) -> Result<u64>;

    /// Inserts or replaces the last snapshot of a watch.
    fn watch_snapshot_put(&mut self, schedule_id: ScheduleId, snapshot: &WatchSnapshot) -> Result<()>;
}
