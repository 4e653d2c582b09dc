//! Reads the body of an answer with an idle limit. A provider that begins to answer and then falls
//! silent must release its slot.
//!
//! The idle limit must never include the time before the first byte, in which a model may reason.
//! The call's own deadline limits that time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ghost_domain::Clock;
use ghost_domain::redact::Redactor;

use crate::error::{ErrorKind, ProviderError};
use crate::http::transport_error;

/// How long a provider may be silent within an answer.
#[derive(Clone)]
pub(crate) struct IdleLimit {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) max: Duration,
}

/// A response body that is read chunk by chunk.
pub(crate) struct Chunks {
    response: reqwest::Response,
    limit: IdleLimit,
    begun: bool,
}

impl Chunks {
    pub(crate) fn new(response: reqwest::Response, limit: IdleLimit) -> Self {
        Self { response, limit, begun: false }
    }

    /// The next chunk; `None` at the end.
    ///
    /// # Errors
    /// `Timeout` if nothing arrives within the limit; otherwise the error of the connection.
    pub(crate) async fn next(&mut self, redactor: &Redactor) -> Result<Option<Bytes>, ProviderError> {
        let chunk = if self.begun {
            let late = self.limit.clock.sleep(self.limit.max);
            tokio::select! {
                biased;
                chunk = self.response.chunk() => chunk,
                () = late => {
                    let seconds = self.limit.max.as_secs_f64();
                    let message = format!("the answer stopped in the middle: no data arrived for {seconds} s (idle_timeout)");
                    return Err(ProviderError::new(ErrorKind::Timeout, message));
                }
            }
        } else {
            self.response.chunk().await
        };
        self.begun = true;
        chunk.map_err(|error| transport_error(error, redactor))
    }

    /// The response, to read what follows the answer's end.
    pub(crate) fn into_inner(self) -> reqwest::Response {
        self.response
    }
}
