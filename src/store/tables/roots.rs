//! Rows and queries of the tallies of roots.

use ghost_domain::RootId;
use ghost_domain::root_tally::RootTally;

use crate::error::Result;
use crate::query::list_limit;
use crate::row::{Args, Keyed, ReadRow, Row, from_record, to_json};
use crate::sql::{Sql, sql};
use crate::tx::Tx;

impl Row for RootTally {
    const TABLE: &'static str = "roots";
    const WRITE: Sql = sql!(
        "INSERT INTO roots (root_id, messages, updated_at, record) VALUES ($1, $2, $3, $4) ON CONFLICT \
        (root_id) DO UPDATE SET messages = excluded.messages, updated_at = excluded.updated_at, record = \
        excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.id(self.root_id.0).count(self.messages).int(self.updated_at.0).put(to_json(
            Self::TABLE,
            self.root_id,
            self,
        )?);
        Ok(())
    }
}

impl Keyed for RootTally {
    type Key = RootId;
    const SELECT: Sql = sql!("SELECT record FROM roots WHERE root_id = $1");

    fn bind_key(key: &RootId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Tx {
    /// The tally of a root; `None` if nothing was counted yet.
    pub fn root_get(&mut self, root_id: RootId) -> Result<Option<RootTally>> {
        self.get(&root_id)
    }

    /// Tallies with the most messages first, at most `limit`.
    pub fn root_list(&mut self, limit: u32) -> Result<Vec<RootTally>> {
        let mut args = Args::default();
        args.int(list_limit(limit));
        self.list(sql!("SELECT record FROM roots ORDER BY messages DESC, root_id {limit $1}"), args)
    }
}

impl Tx {
    /// Inserts or replaces a tally.
    pub fn root_put(&mut self, tally: &RootTally) -> Result<()> {
        self.put(tally)
    }
}
