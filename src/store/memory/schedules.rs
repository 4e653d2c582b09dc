//! Schedules, their runs, and the snapshots of watches.

use std::ops::Bound;
use std::sync::Arc;

use ghost_domain::{AgentId, MessageId, Schedule, ScheduleId, ScheduleKind, ScheduleRun, Timestamp, WatchSnapshot};
use uuid::Uuid;

use super::prune::oldest;
use super::session::{LIST_MAX, Session, bound, count};
use super::tables::Tables;
use crate::StoreError;
use crate::tables::{Result, SchedulePlace, ScheduleReads, ScheduleWrites};

/// The key of a schedule in the index by name.
fn name_of(schedule: &Schedule) -> (Arc<str>, &'static str, String) {
    (schedule.agent_id.shared(), schedule.kind.as_str(), schedule.name.clone())
}

impl Tables {
    /// Schedules in order of agent, kind and name, after the position `after`.
    fn schedules_in_order(&self, after: Option<&SchedulePlace>) -> impl Iterator<Item = &Schedule> {
        let from = match after {
            Some((agent_id, kind, name)) => Bound::Excluded((agent_id.shared(), kind.as_str(), name.clone())),
            None => Bound::Unbounded,
        };
        let rows = self.schedules_by_name.range((from, Bound::Unbounded));
        rows.filter_map(|(_, schedule_id)| self.schedules.get(schedule_id))
    }

    fn schedule_unindex(&mut self, schedule_id: ScheduleId) {
        let Some((name, next_at)) = self.schedules.get(&schedule_id).map(|before| (name_of(before), before.next_at))
        else {
            return;
        };
        self.schedules_by_name.remove(&name);
        if let Some(next_at) = next_at {
            self.schedules_by_due.remove(&(next_at, schedule_id));
        }
    }

    fn schedule_run_unindex(&mut self, key: (ScheduleId, i64)) {
        if let Some(message_id) = self.schedule_runs.get(&key).and_then(|before| before.message_id) {
            self.schedule_runs_by_message.remove(&(message_id, key.0, key.1));
        }
    }

    pub(super) fn prune_schedule_runs(&mut self, before: Timestamp, limit: usize) -> usize {
        let old = oldest(self.schedule_runs.iter().map(|(key, run)| (run.fired_at, *key)), before, limit);
        for key in &old {
            self.schedule_run_unindex(*key);
            self.schedule_runs.remove(key);
        }
        old.len()
    }
}

impl ScheduleReads for Session<'_> {
    fn schedule_get(&mut self, schedule_id: ScheduleId) -> Result<Option<Schedule>> {
        Ok(self.tables.schedules.get(&schedule_id).cloned())
    }

    fn schedule_find(&mut self, agent_id: &AgentId, kind: ScheduleKind, name: &str) -> Result<Option<Schedule>> {
        let found = self.tables.schedules_by_name.get(&(agent_id.shared(), kind.as_str(), name.to_owned()));
        Ok(found.and_then(|schedule_id| self.tables.schedules.get(schedule_id)).cloned())
    }

    fn schedule_list(
        &mut self,
        agent_id: Option<&AgentId>,
        kind: Option<ScheduleKind>,
        after: Option<&SchedulePlace>,
    ) -> Result<Vec<Schedule>> {
        let wanted = |schedule: &&Schedule| {
            agent_id.is_none_or(|agent_id| schedule.agent_id == *agent_id)
                && kind.is_none_or(|kind| schedule.kind == kind)
        };
        Ok(self.tables.schedules_in_order(after).filter(wanted).take(LIST_MAX).cloned().collect())
    }

    fn schedule_count(&mut self, agent_id: &AgentId, kind: ScheduleKind) -> Result<u32> {
        let of_agent = self
            .tables
            .schedules_by_name
            .range((agent_id.shared(), kind.as_str(), String::new())..)
            .take_while(|((of, of_kind, _), _)| **of == *agent_id.as_str() && *of_kind == kind.as_str());
        Ok(count(of_agent.count()))
    }

    fn schedules_due(&mut self, now: Timestamp, limit: u32) -> Result<Vec<Schedule>> {
        Ok(self
            .tables
            .schedules_by_due
            .range(..=(now, ScheduleId(Uuid::max())))
            .take(bound(limit))
            .filter_map(|((_, schedule_id), ())| self.tables.schedules.get(schedule_id))
            .cloned()
            .collect())
    }

    fn schedule_next_at(&mut self) -> Result<Option<Timestamp>> {
        Ok(self.tables.schedules_by_due.iter().next().map(|((next_at, _), ())| *next_at))
    }

    fn schedule_runs(&mut self, schedule_id: ScheduleId, limit: u32) -> Result<Vec<ScheduleRun>> {
        let all = (schedule_id, i64::MIN)..=(schedule_id, i64::MAX);
        let newest = self.tables.schedule_runs.range(all).rev();
        Ok(newest.take(bound(limit)).map(|(_, run)| run.clone()).collect())
    }

    fn schedule_run_of(&mut self, message_id: MessageId) -> Result<Option<ScheduleRun>> {
        let all = (message_id, ScheduleId(Uuid::nil()), i64::MIN)..=(message_id, ScheduleId(Uuid::max()), i64::MAX);
        let first = self.tables.schedule_runs_by_message.range(all).next();
        Ok(first.and_then(|((_, schedule_id, run), ())| self.tables.schedule_runs.get(&(*schedule_id, *run))).cloned())
    }

    fn watch_snapshot_get(&mut self, schedule_id: ScheduleId) -> Result<Option<WatchSnapshot>> {
        Ok(self.tables.watch_snapshots.get(&schedule_id).cloned())
    }
}

impl ScheduleWrites for Session<'_> {
    fn schedule_put(&mut self, schedule: &Schedule) -> Result<()> {
        let (schedule_id, name) = (schedule.schedule_id, name_of(schedule));
        if self.tables.schedules_by_name.get(&name).is_some_and(|other| *other != schedule_id) {
            return Err(StoreError::Row {
                table: "schedules",
                key: schedule_id.to_string(),
                what: format!("{} has another {} named `{}`", schedule.agent_id, schedule.kind, schedule.name),
            });
        }
        self.tables.schedule_unindex(schedule_id);
        self.tables.schedules_by_name.put(name, schedule_id);
        if let Some(next_at) = schedule.next_at {
            self.tables.schedules_by_due.put((next_at, schedule_id), ());
        }
        self.tables.schedules.put(schedule_id, schedule.clone());
        Ok(())
    }

    fn schedules_suspend_unreadable(&mut self, _: Timestamp, _: u32) -> Result<Vec<(ScheduleId, String)>> {
        // Memory stores the values themselves, so they can always be read.
        Ok(Vec::new())
    }

    fn schedule_delete(&mut self, schedule_id: ScheduleId) -> Result<()> {
        self.tables.schedule_unindex(schedule_id);
        self.tables.schedules.remove(&schedule_id);
        self.tables.watch_snapshots.remove(&schedule_id);
        Ok(())
    }

    fn schedule_run_put(&mut self, run: &ScheduleRun) -> Result<()> {
        let key = (run.schedule_id, run.run);
        self.tables.schedule_run_unindex(key);
        if let Some(message_id) = run.message_id {
            self.tables.schedule_runs_by_message.put((message_id, key.0, key.1), ());
        }
        self.tables.schedule_runs.put(key, run.clone());
        Ok(())
    }

    fn schedule_runs_trim(&mut self, schedule_id: ScheduleId, lines: u32, bytes: u64) -> Result<u64> {
        let all = (schedule_id, i64::MIN)..=(schedule_id, i64::MAX);
        let (mut line, mut size, mut old) = (0_u64, 0_u64, Vec::new());
        for (key, run) in self.tables.schedule_runs.range(all).rev() {
            line += 1;
            // Encoded as in the SQLite backend, so that both delete the same runs.
            let record = serde_json::to_vec(run).map_err(|error| StoreError::Row {
                table: "schedule_runs",
                key: schedule_id.to_string(),
                what: format!("cannot be written as JSON: {error}"),
            })?;
            size = size.saturating_add(u64::try_from(record.len()).unwrap_or(u64::MAX));
            if line > u64::from(lines) || size > bytes {
                old.push(*key);
            }
        }
        for key in &old {
            self.tables.schedule_run_unindex(*key);
            self.tables.schedule_runs.remove(key);
        }
        Ok(u64::try_from(old.len()).unwrap_or(u64::MAX))
    }

    fn watch_snapshot_put(&mut self, schedule_id: ScheduleId, snapshot: &WatchSnapshot) -> Result<()> {
        self.tables.watch_snapshots.put(schedule_id, snapshot.clone());
        Ok(())
    }
}
