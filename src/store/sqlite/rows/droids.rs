//! Rows and queries of droids.

use std::collections::BTreeMap;

use ghost_domain::{AgentId, Droid};

use crate::sqlite::query::{Conditions, LIST_MAX, list_limit};
use crate::sqlite::row::{Args, Keyed, Row, SqliteRow, from_record, get_count, get_parsed, to_json};
use crate::sqlite::session::Session;
use crate::tables::{DroidReads, DroidWrites, LiveDroids, Result};

impl Row for Droid {
    const TABLE: &'static str = "droids";
    const WRITE: &str = "INSERT INTO droids (droid_id, parent_id, ended_at, record) VALUES (?, ?, ?, ?) ON CONFLICT \
        (droid_id) DO UPDATE SET parent_id = excluded.parent_id, ended_at = excluded.ended_at, record = \
        excluded.record";

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.text(self.droid_id.as_str()).text(self.parent_id.as_str()).maybe_at(self.ended_at).put(to_json(
            Self::TABLE,
            &self.droid_id,
            self,
        )?);
        Ok(())
    }
}

impl Keyed for Droid {
    type Key = AgentId;
    const SELECT: &'static str = "SELECT record FROM droids WHERE droid_id = ?";

    fn bind_key(key: &AgentId, args: &mut Args) {
        args.text(key.as_str());
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

fn count(live: &BTreeMap<AgentId, u32>, parent: &AgentId) -> LiveDroids {
    LiveDroids { of_parent: live.get(parent).copied().unwrap_or(0), all: live.values().sum() }
}

impl DroidReads for Session {
    fn droid_get(&mut self, droid_id: &AgentId) -> Result<Option<Droid>> {
        self.get(droid_id)
    }

    fn droids_live(&mut self) -> Result<Vec<Droid>> {
        let mut args = Args::default();
        args.int(i64::from(LIST_MAX));
        let sql = "SELECT record FROM droids INDEXED BY droids_live WHERE ended_at IS NULL ORDER BY droid_id LIMIT ?+0";
        self.list(sql, args)
    }

    fn droids_live_count(&mut self, parent: &AgentId) -> Result<LiveDroids> {
        let sql =
            "SELECT parent_id, count(*) FROM droids INDEXED BY droids_live WHERE ended_at IS NULL GROUP BY parent_id";
        let rows = self.rows(sql, Args::default())?;
        let one = |row| Ok((get_parsed(Droid::TABLE, row, 0)?, get_count(Droid::TABLE, row, 1)?));
        let found = rows.iter().map(one).collect::<Result<BTreeMap<AgentId, u32>>>()?;
        Ok(count(&found, parent))
    }

    fn droid_list(&mut self, parent: Option<&AgentId>, after: Option<&AgentId>, limit: u32) -> Result<Vec<Droid>> {
        let (sql, args) = Conditions::new("SELECT record FROM droids")
            .when(parent, "parent_id = ?", |parent, args| {
                args.text(parent.as_str());
            })
            .when(after, "droid_id > ?", |after, args| {
                args.text(after.as_str());
            })
            .order("droid_id", list_limit(limit));
        self.rows(sql, args)?.iter().map(Droid::read).collect()
    }
}

impl DroidWrites for Session {
    fn droid_put(&mut self, droid: &Droid) -> Result<()> {
        self.put(droid)
    }

    fn droid_add(&mut self, droid: &Droid) -> Result<()> {
        self.put(droid)
    }
}
