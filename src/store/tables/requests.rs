//! The `requests` table: stored answers to requests. If a client repeats a request, it gets the
//! stored answer.

use async_trait::async_trait;
use ghost_domain::{Party, RequestId, StoredAnswer};

use crate::error::Result;

/// Reads of stored answers.
#[async_trait]
pub trait RequestReads {
    /// The stored answer to a request of this principal, for any method.
    async fn request_get(&mut self, principal: &Party, request_id: &RequestId) -> Result<Option<StoredAnswer>>;
}

/// Writes of stored answers.
#[async_trait]
pub trait RequestWrites {
    /// Stores the answer to a request.
    async fn request_put(&mut self, answer: &StoredAnswer) -> Result<()>;
}
