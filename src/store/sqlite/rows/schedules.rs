//! Rows and queries of schedules, their runs, and the snapshots of watches.

use ghost_domain::{AgentId, MessageId, Schedule, ScheduleId, ScheduleKind, ScheduleRun, Timestamp, WatchSnapshot};

use crate::sqlite::internal_rows::WatchSnapshotRow;
use crate::sqlite::query::{Conditions, LIST_MAX};
use crate::sqlite::row::{Args, Keyed, Row, SqliteRow, from_record, get, get_count, get_id, to_json};
use crate::sqlite::session::Session;
use crate::tables::{Result, SchedulePlace, ScheduleReads, ScheduleWrites};

impl Row for Schedule {
    const TABLE: &'static str = "schedules";
    const WRITE: &str = "INSERT INTO schedules (schedule_id, agent_id, kind, name, next_at, record) VALUES (?, ?, ?, ?, \
        ?, ?) ON CONFLICT (schedule_id) DO UPDATE SET agent_id = excluded.agent_id, kind = \
        excluded.kind, name = excluded.name, next_at = excluded.next_at, record = excluded.record";

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.id(self.schedule_id.0)
            .text(self.agent_id.as_str())
            .text(self.kind.as_str())
            .text(&self.name)
            .maybe_at(self.next_at)
            .put(to_json(Self::TABLE, self.schedule_id, self)?);
        Ok(())
    }
}

impl Keyed for Schedule {
    type Key = ScheduleId;
    const SELECT: &'static str = "SELECT record FROM schedules WHERE schedule_id = ?";

    fn bind_key(key: &ScheduleId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Row for ScheduleRun {
    const TABLE: &'static str = "schedule_runs";
    const WRITE: &str = "INSERT INTO schedule_runs (schedule_id, run, message_id, fired_at, record) VALUES (?, ?, ?, ?, \
        ?) ON CONFLICT (schedule_id, run) DO UPDATE SET message_id = excluded.message_id, fired_at = \
        excluded.fired_at, record = excluded.record";

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.id(self.schedule_id.0)
            .int(self.run)
            .maybe_id(self.message_id.map(|id| id.0))
            .int(self.fired_at.0)
            .put(to_json(Self::TABLE, self.schedule_id, self)?);
        Ok(())
    }
}

impl Keyed for ScheduleRun {
    type Key = (ScheduleId, i64);
    const SELECT: &'static str = "SELECT record FROM schedule_runs WHERE schedule_id = ? AND run = ?";

    fn bind_key(key: &Self::Key, args: &mut Args) {
        args.id(key.0.0).int(key.1);
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

/// Keeps the newest runs, up to a number of runs and a number of bytes.
const TRIM: &str = "DELETE FROM schedule_runs WHERE schedule_id = ?1 AND run <= (SELECT max(run) FROM (SELECT run, \
    row_number() OVER newest AS line, sum(octet_length(record)) OVER newest AS bytes FROM schedule_runs \
    WHERE schedule_id = ?1 WINDOW newest AS (ORDER BY run DESC)) WHERE line > ?2 OR bytes > ?3)";

impl Row for WatchSnapshotRow {
    const TABLE: &'static str = "watch_snapshots";
    const WRITE: &str = "INSERT INTO watch_snapshots (schedule_id, record) VALUES (?, ?) ON CONFLICT (schedule_id) DO \
        UPDATE SET record = excluded.record";

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.id(self.schedule_id.0).put(to_json(Self::TABLE, self.schedule_id, &self.snapshot)?);
        Ok(())
    }
}

impl Keyed for WatchSnapshotRow {
    type Key = ScheduleId;
    const SELECT: &'static str = "SELECT record, schedule_id FROM watch_snapshots WHERE schedule_id = ?";

    fn bind_key(key: &ScheduleId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        Ok(Self { schedule_id: ScheduleId(get_id(Self::TABLE, row, 1)?), snapshot: from_record(Self::TABLE, row)? })
    }
}

impl ScheduleReads for Session {
    fn schedule_get(&mut self, schedule_id: ScheduleId) -> Result<Option<Schedule>> {
        self.get(&schedule_id)
    }

    fn schedule_find(&mut self, agent_id: &AgentId, kind: ScheduleKind, name: &str) -> Result<Option<Schedule>> {
        let mut args = Args::default();
        args.text(agent_id.as_str()).text(kind.as_str()).text(name);
        Ok(self
            .list("SELECT record FROM schedules WHERE agent_id = ? AND kind = ? AND name = ?", args)?
            .into_iter()
            .next())
    }

    fn schedule_list(
        &mut self,
        agent_id: Option<&AgentId>,
        kind: Option<ScheduleKind>,
        after: Option<&SchedulePlace>,
    ) -> Result<Vec<Schedule>> {
        let (sql, args) = Conditions::new("SELECT record FROM schedules")
            .when(agent_id, "agent_id = ?", |id, args| {
                args.text(id.as_str());
            })
            .when(kind, "kind = ?", |kind, args| {
                args.text(kind.as_str());
            })
            .when(after, "(agent_id, kind, name) > (?, ?, ?)", |(agent_id, kind, name), args| {
                args.text(agent_id.as_str()).text(kind.as_str()).text(name);
            })
            .order("agent_id, kind, name", i64::from(LIST_MAX));
        self.rows(sql, args)?.iter().map(Schedule::read).collect()
    }

    fn schedule_count(&mut self, agent_id: &AgentId, kind: ScheduleKind) -> Result<u32> {
        let mut args = Args::default();
        args.text(agent_id.as_str()).text(kind.as_str());
        let row = self.row("SELECT count(*) FROM schedules WHERE agent_id = ? AND kind = ?", args)?;
        row.map_or(Ok(0), |row| get_count(Schedule::TABLE, &row, 0))
    }

    fn schedules_due(&mut self, now: Timestamp, limit: u32) -> Result<Vec<Schedule>> {
        let mut args = Args::default();
        args.int(now.0).int(i64::from(limit));
        let sql = "SELECT record FROM schedules WHERE next_at IS NOT NULL AND next_at <= ? \
                   ORDER BY next_at, schedule_id LIMIT ?+0";
        self.list(sql, args)
    }

    fn schedule_next_at(&mut self) -> Result<Option<Timestamp>> {
        let sql = "SELECT min(next_at) FROM schedules WHERE next_at IS NOT NULL";
        let Some(row) = self.row(sql, Args::default())? else { return Ok(None) };
        Ok(get::<Option<i64>>(Schedule::TABLE, &row, 0)?.map(Timestamp))
    }

    fn schedule_runs(&mut self, schedule_id: ScheduleId, limit: u32) -> Result<Vec<ScheduleRun>> {
        let sql = "SELECT record FROM schedule_runs WHERE schedule_id = ? ORDER BY run DESC LIMIT ?+0";
        let mut args = Args::default();
        args.id(schedule_id.0).int(i64::from(limit));
        self.list(sql, args)
    }

    fn schedule_run_of(&mut self, message_id: MessageId) -> Result<Option<ScheduleRun>> {
        let sql = "SELECT record FROM schedule_runs WHERE message_id = ? ORDER BY schedule_id, run";
        let mut args = Args::default();
        args.id(message_id.0);
        let runs = self.list(sql, args)?;
        Ok(runs.into_iter().next())
    }

    fn watch_snapshot_get(&mut self, schedule_id: ScheduleId) -> Result<Option<WatchSnapshot>> {
        Ok(self.get::<WatchSnapshotRow>(&schedule_id)?.map(|seen| seen.snapshot))
    }
}

impl ScheduleWrites for Session {
    fn schedule_put(&mut self, schedule: &Schedule) -> Result<()> {
        self.put(schedule)
    }

    fn schedules_suspend_unreadable(&mut self, now: Timestamp, limit: u32) -> Result<Vec<(ScheduleId, String)>> {
        let mut args = Args::default();
        args.int(now.0).int(i64::from(limit));
        let sql = "SELECT record, schedule_id FROM schedules WHERE next_at IS NOT NULL AND next_at <= ? \
                   ORDER BY next_at, schedule_id LIMIT ?+0";
        let mut damaged = Vec::new();
        for row in self.rows(sql, args)? {
            if let Err(error) = Schedule::read(&row) {
                damaged.push((ScheduleId(get_id(Schedule::TABLE, &row, 1)?), error.to_string()));
            }
        }
        for (schedule_id, _) in &damaged {
            let mut args = Args::default();
            args.id(schedule_id.0);
            self.execute("UPDATE schedules SET next_at = NULL WHERE schedule_id = ?", args)?;
        }
        Ok(damaged)
    }

    fn schedule_delete(&mut self, schedule_id: ScheduleId) -> Result<()> {
        for sql in ["DELETE FROM watch_snapshots WHERE schedule_id = ?", "DELETE FROM schedules WHERE schedule_id = ?"]
        {
            let mut args = Args::default();
            args.id(schedule_id.0);
            self.execute(sql, args)?;
        }
        Ok(())
    }

    fn schedule_run_put(&mut self, run: &ScheduleRun) -> Result<()> {
        self.put(run)
    }

    fn schedule_runs_trim(&mut self, schedule_id: ScheduleId, lines: u32, bytes: u64) -> Result<u64> {
        let mut args = Args::default();
        args.id(schedule_id.0).int(i64::from(lines)).int(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.execute(TRIM, args)
    }

    fn watch_snapshot_put(&mut self, schedule_id: ScheduleId, snapshot: &WatchSnapshot) -> Result<()> {
        self.put(&WatchSnapshotRow { schedule_id, snapshot: snapshot.clone() })
    }
}
