//! The `requests` table: answers to requests that may be sent twice.

use async_trait::async_trait;
use ghost_domain::{Party, RequestId, StoredAnswer};

use crate::error::Result;

/// Reading stored answers.
#[async_trait]
pub trait RequestReads {
    /// What was answered to a request, whatever its method.
    async fn request_get(&mut self, principal: &Party, request_id: &RequestId) -> Result<Option<StoredAnswer>>;
}

/// Writing stored answers.
#[async_trait]
pub trait RequestWrites {
    /// Keeps an answer.
    async fn request_put(&mut self, answer: &StoredAnswer) -> Result<()>;
}
