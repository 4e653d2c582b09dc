//! Rows and queries of stored answers, for requests that may be sent twice.

use ghost_domain::{Party, RequestId, StoredAnswer};

use super::prelude::*;

record! {
    answer: StoredAnswer, "requests";
    key principal: Party = &answer.key.principal, request_id: RequestId = &answer.key.request_id;
    at
}

impl Tx {
    /// The stored answer to a request of this principal, for any method.
    pub fn request_get(&mut self, principal: &Party, request_id: &RequestId) -> Result<Option<StoredAnswer>> {
        self.get(&(principal.clone(), request_id.clone()))
    }

    /// Stores the answer to a request.
    pub fn request_put(&mut self, answer: &StoredAnswer) -> Result<()> {
        self.put(answer)
    }
}
