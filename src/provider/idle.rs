//! Reading an answer's body with an idle limit: a provider that has begun to answer and falls silent holds its slot no longer
//! than that (S6).
//!
//! Must never: count the time before the first byte, in which a model may think; the call's own deadline bounds that.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ghost_domain::Clock;
use ghost_domain::redact::Redactor;

use crate::error::{ErrorKind, ProviderError};
use crate::http::transport_error;

/// How long a provider may be silent in the middle of an answer.
#[derive(Clone)]
pub(crate) struct IdleLimit {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) most: Duration,
}

/// A body that is read chunk by chunk.
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
    /// `Timeout` when nothing came for the limit; else what the connection met.
    pub(crate) async fn next(&mut self, redactor: &Redactor) -> Result<Option<Bytes>, ProviderError> {
        let chunk = if self.begun {
            let late = self.limit.clock.sleep(self.limit.most);
            tokio::select! {
                biased;
                chunk = self.response.chunk() => chunk,
                () = late => {
                    let seconds = self.limit.most.as_secs_f64();
                    let words = format!("the answer stopped in the middle: nothing came for {seconds} s (idle_timeout)");
                    return Err(ProviderError::new(ErrorKind::Timeout, words));
                }
            }
        } else {
            self.response.chunk().await
        };
        self.begun = true;
        chunk.map_err(|error| transport_error(error, redactor))
    }

    /// The response, for what is read past the answer's end.
    pub(crate) fn into_inner(self) -> reqwest::Response {
        self.response
    }
}
