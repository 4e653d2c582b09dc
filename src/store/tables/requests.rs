//! The `requests` table: stored answers to requests. If a client repeats a request, it gets the
//! stored answer.

use ghost_domain::{Party, RequestId, StoredAnswer};

use crate::error::Result;

/// Reads of stored answers.
pub trait RequestReads {
    /// The stored answer to a request of this principal, for any method.
    fn request_get(&mut self, principal: &Party, request_id: &RequestId) -> Result<Option<StoredAnswer>>;
}

/// Writes of stored answers.
pub trait RequestWrites {
    /// Stores the answer to a request.
    fn request_put(&mut self, answer: &StoredAnswer) -> Result<()>;
}
