//! The transport over streamable HTTP. It must never follow a redirect: the token would reach another host.

use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use secrecy::{ExposeSecret as _, SecretString};

use crate::limits::Limits;

/// Time for the connection to a host.
const CONNECT: Duration = Duration::from_secs(10);
/// Times that an interrupted stream of events is opened again.
const RECONNECTS: usize = 5;
/// Longest pause before that.
const RECONNECT_PAUSE: Duration = Duration::from_secs(30);
/// Bytes of an error page that are read.
const ERROR_PAGE: usize = 4 * 1_024;

/// An HTTP client that follows no redirect.
#[derive(Clone, Debug)]
pub struct HttpClient(reqwest::Client);

/// The HTTP client cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be built: {detail}")]
pub struct HttpClientError {
    /// What is wrong with its settings.
    pub detail: String,
}

impl HttpClient {
    /// The client with the settings of `builder`: its trusted roots, its resolver, its proxy. The redirect policy, the
    /// connection pool and the connect timeout (10 seconds) are set here. Do not set a total timeout: streams live
    /// long. The process needs a default crypto provider of `rustls` (or the builder its own configuration).
    ///
    /// # Errors
    /// If the settings do not fit together.
    pub fn new(builder: reqwest::ClientBuilder) -> Result<Self, HttpClientError> {
        // Pooled connections cost 40 ms per call with some servers (the default of `rmcp` avoids them as well).
        let builder =
            builder.redirect(Policy::none()).pool_max_idle_per_host(0).connect_timeout(CONNECT).referer(false);
        builder.build().map(Self).map_err(|error| HttpClientError { detail: error.to_string() })
    }
}

/// The transport to the server at `url`.
pub(crate) fn transport(
    client: HttpClient,
    url: &str,
    token: Option<&SecretString>,
    limits: &Limits,
) -> StreamableHttpClientTransport<reqwest::Client> {
    let mut backoff = ExponentialBackoff::default();
    backoff.max_times = Some(RECONNECTS);
    backoff.max_delay = Some(RECONNECT_PAUSE);
    // A call is never sent twice, so a forgotten session ends the connection.
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_sse_event_size(limits.http_bytes)
        .max_json_response_size(limits.http_bytes)
        .max_error_response_size(ERROR_PAGE.min(limits.http_bytes))
        .reinit_on_expired_session(false);
    config.retry_config = Arc::new(backoff);
    if let Some(token) = token {
        config = config.auth_header(token.expose_secret());
    }
    StreamableHttpClientTransport::with_client(client.0, config)
}
