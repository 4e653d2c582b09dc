//! Rows and queries of write grants.

use ghost_domain::{AgentId, Grant, GrantId, Timestamp};

use crate::error::Result;
use crate::query::{Conditions, PAGE_MAX, list_limit};
use crate::row::{Args, Keyed, ReadRow, Row, from_record, to_json};
use crate::sql::{Sql, sql};
use crate::tx::Tx;

impl Row for Grant {
    const TABLE: &'static str = "acl_grants";
    const WRITE: Sql = sql!(
        "INSERT INTO acl_grants (grant_id, agent_id, expires_at, record) VALUES ($1, $2, $3, $4) ON CONFLICT \
        (grant_id) DO UPDATE SET agent_id = excluded.agent_id, expires_at = excluded.expires_at, record \
        = excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.id(self.grant_id.0).text(self.agent_id.as_str()).int(self.expires_at.0).put(to_json(
            Self::TABLE,
            self.grant_id,
            self,
        )?);
        Ok(())
    }
}

impl Keyed for Grant {
    type Key = GrantId;
    const SELECT: Sql = sql!("SELECT record FROM acl_grants WHERE grant_id = $1");

    fn bind_key(key: &GrantId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Tx {
    /// The grant with this id, also after its end while it is stored.
    pub fn grant_get(&mut self, grant_id: GrantId) -> Result<Option<Grant>> {
        self.get(&grant_id)
    }

    /// The grants of an agent that have not ended at `now`, in order of id, at most
    /// [`PAGE_MAX`](super::PAGE_MAX).
    pub fn grants_live(&mut self, agent_id: &AgentId, now: Timestamp) -> Result<Vec<Grant>> {
        let mut args = Args::default();
        args.text(agent_id.as_str()).int(now.0).int(i64::from(PAGE_MAX));
        self.list(
            sql!(
                "SELECT record FROM acl_grants{index acl_grants_agent} WHERE agent_id = $1 AND expires_at > $2 \
             ORDER BY grant_id {limit $3}"
            ),
            args,
        )
    }

    /// All stored grants in order of id, also those that have ended. Only grants after the id `after`.
    pub fn grant_list(&mut self, after: Option<GrantId>, limit: u32) -> Result<Vec<Grant>> {
        let (sql, args) = Conditions::new("SELECT record FROM acl_grants")
            .when(after, "grant_id > $1", |after, args| {
                args.id(after.0);
            })
            .order("grant_id", list_limit(limit));
        self.rows(sql, args, Grant::read)
    }
}

impl Tx {
    /// Inserts or replaces a grant.
    pub fn grant_put(&mut self, grant: &Grant) -> Result<()> {
        self.put(grant)
    }

    /// Removes a grant. Returns whether it existed.
    pub fn grant_remove(&mut self, grant_id: GrantId) -> Result<bool> {
        let mut args = Args::default();
        args.id(grant_id.0);
        Ok(self.execute(sql!("DELETE FROM acl_grants WHERE grant_id = $1"), args)? > 0)
    }
}
