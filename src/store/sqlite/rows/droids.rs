//! Rows and queries of droids.

use ghost_domain::{AgentId, Droid};

use crate::sqlite::facts::LiveByParent;
use crate::sqlite::query::{Conditions, LIST_MAX, list_limit};
use crate::sqlite::row::{Args, Keyed, Row, Shape, SqliteRow, from_record, get_count, get_parsed, to_json};
use crate::sqlite::session::Session;
use crate::sqlite::table_list::table_set;
use crate::tables::{DroidReads, DroidWrites, LiveDroids, Result};

impl Row for Droid {
    const TABLE: &'static str = "droids";
    const SHAPE: Shape = Shape {
        head: "INSERT INTO droids (droid_id, parent_id, ended_at, record) VALUES ",
        columns: 4,
        tail: " ON CONFLICT (droid_id) DO UPDATE SET parent_id = excluded.parent_id, ended_at = excluded.ended_at, \
               record = excluded.record",
    };

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

    fn key(&self) -> AgentId {
        self.droid_id.clone()
    }

    fn bind_key(key: &AgentId, args: &mut Args) {
        args.text(key.as_str());
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        from_record(Self::TABLE, row)
    }

    fn worth_caching(&self) -> bool {
        self.ended_at.is_none()
    }
}

fn parent_if_live(droid: &Droid) -> Option<&AgentId> {
    droid.ended_at.is_none().then_some(&droid.parent_id)
}

fn count(live: &LiveByParent, parent: &AgentId) -> LiveDroids {
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
        if let Some(known) = self.buffer().and_then(|buffer| buffer.facts.droids_live.get(&())) {
            return Ok(count(known, parent));
        }
        self.flush_before_read(table_set::DROIDS)?;
        let sql =
            "SELECT parent_id, count(*) FROM droids INDEXED BY droids_live WHERE ended_at IS NULL GROUP BY parent_id";
        let rows = self.rows(sql, Args::default())?;
        let one = |row| Ok((get_parsed(Droid::TABLE, row, 0)?, get_count(Droid::TABLE, row, 1)?));
        let found = rows.iter().map(one).collect::<Result<LiveByParent>>()?;
        let counted = count(&found, parent);
        if let Ok(buffer) = self.buffer_mut() {
            buffer.facts.droids_live.put((), found);
        }
        Ok(counted)
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
        self.flush_before_read(table_set::DROIDS)?;
        self.rows_dynamic(sql, args)?.iter().map(Droid::read).collect()
    }
}

impl DroidWrites for Session {
    fn droid_put(&mut self, droid: &Droid) -> Result<()> {
        let before = self.get::<Droid>(&droid.droid_id)?;
        self.buffer_mut()?.facts.update_droids_live(before.as_ref().and_then(parent_if_live), parent_if_live(droid));
        self.put(droid.clone())
    }

    fn droid_add(&mut self, droid: &Droid) -> Result<()> {
        self.buffer_mut()?.facts.update_droids_live(None, parent_if_live(droid));
        self.put(droid.clone())
    }
}
