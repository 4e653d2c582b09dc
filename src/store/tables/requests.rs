//! Rows and queries of stored answers, for requests that may be sent twice.

use ghost_domain::{Party, RequestId, StoredAnswer};

use crate::error::Result;
use crate::row::{Args, Keyed, ReadRow, Row, from_record, to_json};
use crate::sql::{Sql, sql};
use crate::tx::Tx;

impl Row for StoredAnswer {
    const TABLE: &'static str = "requests";
    const WRITE: Sql = sql!(
        "INSERT INTO requests (principal, request_id, at, record) VALUES ($1, $2, $3, $4) ON CONFLICT \
        (principal, request_id) DO UPDATE SET at = excluded.at, record = excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.put(self.key.principal.to_string()).text(self.key.request_id.as_str()).int(self.at.0).put(to_json(
            Self::TABLE,
            self.key.request_id.as_str(),
            self,
        )?);
        Ok(())
    }
}

impl Keyed for StoredAnswer {
    type Key = (Party, RequestId);
    const SELECT: Sql = sql!("SELECT record FROM requests WHERE principal = $1 AND request_id = $2");

    fn bind_key(key: &Self::Key, args: &mut Args) {
        args.put(key.0.to_string()).text(key.1.as_str());
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Tx {
    /// The stored answer to a request of this principal, for any method.
    pub fn request_get(&mut self, principal: &Party, request_id: &RequestId) -> Result<Option<StoredAnswer>> {
        self.get(&(principal.clone(), request_id.clone()))
    }
}

impl Tx {
    /// Stores the answer to a request.
    pub fn request_put(&mut self, answer: &StoredAnswer) -> Result<()> {
        self.put(answer)
    }
}
