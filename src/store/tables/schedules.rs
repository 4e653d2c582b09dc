//! Rows and queries of schedules, their runs, and the snapshots of watches.

use ghost_domain::{AgentId, MessageId, Schedule, ScheduleId, ScheduleKind, ScheduleRun, Timestamp, WatchSnapshot};

use super::prelude::*;

/// A position in the list of schedules: agent, kind and name. The schedule itself need not exist
/// any more.
pub type SchedulePlace = (AgentId, ScheduleKind, String);

/// The table of snapshots, for error messages.
const SNAPSHOTS: &str = "watch_snapshots";

/// The count of an agent's schedules of a kind.
fn count_of(agent_id: &AgentId, kind: ScheduleKind) -> String {
    format!("schedules/{agent_id}/{}", kind.as_str())
}

record! {
    schedule: Schedule, "schedules"; key schedule_id: ScheduleId;
    agent_id, kind, name, next_at, root_id
}

record! { run: ScheduleRun, "schedule_runs"; key schedule_id: ScheduleId, run: i64; message_id, fired_at }

/// Keeps the newest runs, up to a number of runs and a number of bytes.
const TRIM: Sql = sql!(
    "DELETE FROM schedule_runs WHERE schedule_id = $1 AND run <= (SELECT max(run) FROM (SELECT run, \
    row_number() OVER newest AS line, CAST(sum(octet_length(record)) OVER newest AS BIGINT) AS bytes FROM schedule_runs \
    WHERE schedule_id = $1 WINDOW newest AS (ORDER BY run DESC)) AS runs WHERE line > $2 OR bytes > $3)"
);

functions! {
    /// Schedules in order of agent, kind (as text) and name, at most 1,000; only those of this
    /// agent and kind, if given. `after` is the position of the last row of the previous page.
    page schedule_list(agent_id: Option<&AgentId>, kind: Option<ScheduleKind>, after: Option<&SchedulePlace>)
        -> Vec<Schedule>: Conditions::new("SELECT record FROM schedules")
            .when(agent_id, "agent_id = $1")
            .when(kind, "kind = $1")
            .when(after.map(|(agent_id, kind, name)| (agent_id, kind, name)), "(agent_id, kind, name) > ($1, $2, $3)")
            .order("agent_id, kind, name", i64::from(PAGE_MAX));
    /// The schedule with this id.
    get schedule_get(schedule_id: ScheduleId) -> Option<Schedule>: &schedule_id;
    /// The schedule with this owner, kind and name.
    first schedule_find(agent_id: &AgentId, kind: ScheduleKind, name: &str) -> Option<Schedule>:
        "SELECT record FROM schedules WHERE agent_id = $1 AND kind = $2 AND name = $3";
    /// Number of schedules of a kind that an agent has.
    counted schedule_count(agent_id: &AgentId, kind: ScheduleKind) -> u32: &count_of(agent_id, kind);
    /// Schedules that are due at `now`, in order of due time (then id), at most `limit`.
    list schedules_due(now: Timestamp, limit: u32) -> Vec<Schedule>:
        "SELECT record FROM schedules WHERE next_at IS NOT NULL AND next_at <= $1 \
        ORDER BY next_at, schedule_id {limit $2}";
    /// Runs of a schedule, newest first, at most `limit`.
    list schedule_runs(schedule_id: ScheduleId, limit: u32) -> Vec<ScheduleRun>:
        "SELECT record FROM schedule_runs WHERE schedule_id = $1 ORDER BY run DESC {limit $2}";
    /// The run that sent this mail.
    first schedule_run_of(message_id: MessageId) -> Option<ScheduleRun>:
        "SELECT record FROM schedule_runs WHERE message_id = $1 ORDER BY schedule_id, run";
    /// Inserts or replaces a schedule.
    put_counted schedule_put(schedule: &Schedule) -> (): &schedule.schedule_id,
        "SELECT 'schedules/' || agent_id || '/' || kind FROM schedules WHERE schedule_id = $1",
        Some(&count_of(&schedule.agent_id, schedule.kind));
    /// Inserts or replaces a run.
    put schedule_run_put(run: &ScheduleRun) -> (): run;
}

impl Tx {
    /// When the next schedule is due; `None` if no schedule has a due time.
    pub fn schedule_next_at(&mut self) -> Result<Option<Timestamp>> {
        let sql = sql!("SELECT min(next_at) FROM schedules WHERE next_at IS NOT NULL");
        Ok(self.row(sql, args![], |row| get(Schedule::TABLE, row, 0))?.flatten())
    }

    /// The last snapshot of a watch.
    pub fn watch_snapshot_get(&mut self, schedule_id: ScheduleId) -> Result<Option<WatchSnapshot>> {
        let sql = sql!("SELECT record FROM watch_snapshots WHERE schedule_id = $1");
        self.row(sql, args![schedule_id], |row| from_record(SNAPSHOTS, row))
    }

    /// Finds damaged schedules, whose records cannot be decoded, among the first `limit` due ones.
    /// Clears their due time so that they are not due again; the records stay unchanged. Returns
    /// the id and the problem of each.
    pub fn schedules_suspend_unreadable(&mut self, now: Timestamp, limit: u32) -> Result<Vec<(ScheduleId, String)>> {
        let sql = sql!(
            "SELECT record, schedule_id FROM schedules WHERE next_at IS NOT NULL AND next_at <= $1 \
                   ORDER BY next_at, schedule_id {limit $2}"
        );
        let due = self.rows(sql, args![now, limit], |row| match Schedule::read(row) {
            Ok(_) => Ok(None),
            Err(error) => Ok(Some((get::<ScheduleId>(Schedule::TABLE, row, 1)?, error.to_string()))),
        })?;
        let damaged: Vec<_> = due.into_iter().flatten().collect();
        for (schedule_id, _) in &damaged {
            self.execute(sql!("UPDATE schedules SET next_at = NULL WHERE schedule_id = $1"), args![schedule_id])?;
        }
        Ok(damaged)
    }

    /// Removes a schedule and its snapshot. Its runs stay until they are pruned.
    pub fn schedule_delete(&mut self, schedule_id: ScheduleId) -> Result<()> {
        self.execute(sql!("DELETE FROM watch_snapshots WHERE schedule_id = $1"), args![schedule_id])?;
        let sql = sql!("SELECT agent_id, kind FROM schedules WHERE schedule_id = $1");
        let found = self.row(sql, args![schedule_id], |row| {
            Ok(count_of(&get(Schedule::TABLE, row, 0)?, get(Schedule::TABLE, row, 1)?))
        })?;
        let Some(count) = found else { return Ok(()) };
        self.execute(sql!("DELETE FROM schedules WHERE schedule_id = $1"), args![schedule_id])?;
        self.change_count(&count, -1)
    }

    /// Deletes the oldest runs of a schedule until at most `lines` runs and at most `bytes` bytes
    /// of records are left. Returns how many were deleted.
    pub fn schedule_runs_trim(&mut self, schedule_id: ScheduleId, lines: u32, bytes: u64) -> Result<u64> {
        self.execute(TRIM, args![schedule_id, lines, bytes])
    }

    /// Inserts or replaces the last snapshot of a watch.
    pub fn watch_snapshot_put(&mut self, schedule_id: ScheduleId, snapshot: &WatchSnapshot) -> Result<()> {
        let sql = sql!(
            "INSERT INTO watch_snapshots (schedule_id, record) VALUES ($1, $2) \
            ON CONFLICT (schedule_id) DO UPDATE SET record = excluded.record"
        );
        self.execute(sql, args![schedule_id, to_json(SNAPSHOTS, schedule_id, snapshot)?]).map(drop)
    }
}
