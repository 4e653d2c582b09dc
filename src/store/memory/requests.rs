//! Answers to requests that may be sent twice.

use ghost_domain::{Party, RequestId, StoredAnswer};

use super::session::Session;
use crate::tables::{RequestReads, RequestWrites, Result};

impl RequestReads for Session<'_> {
    fn request_get(&mut self, principal: &Party, request_id: &RequestId) -> Result<Option<StoredAnswer>> {
        Ok(self.tables.requests.get(&(principal.clone(), request_id.clone())).cloned())
    }
}

impl RequestWrites for Session<'_> {
    fn request_put(&mut self, answer: &StoredAnswer) -> Result<()> {
        let key = (answer.key.principal.clone(), answer.key.request_id.clone());
        self.tables.requests.put(key, answer.clone());
        Ok(())
    }
}
