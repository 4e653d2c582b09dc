//! What an error of a transport means. It must never say that a request did not arrive if it may have.

use std::error::Error;

use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use crate::text::shown;

/// What an error of a transport means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// HTTP 401 or 403.
    Unauthorized { detail: String },
    /// HTTP 404 within a session.
    SessionExpired,
    /// The answer is too large.
    TooLarge { limit: usize },
    /// The stream of a process, or the connection itself.
    Stream,
    /// Anything else over HTTP.
    Other { detail: String, may_have_arrived: bool },
}

type HttpError = StreamableHttpError<reqwest::Error>;

/// What `error` means.
pub(crate) fn failure(error: &DynamicTransportError) -> Failure {
    let mut current: Option<&(dyn Error + 'static)> = Some(error.error.as_ref());
    while let Some(cause) = current {
        if let Some(http) = cause.downcast_ref::<HttpError>() {
            return of_http(http);
        }
        current = cause.source();
    }
    Failure::Stream
}

fn of_http(error: &HttpError) -> Failure {
    let other = |may_have_arrived| Failure::Other { detail: causes(error), may_have_arrived };
    match error {
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) => {
            Failure::Unauthorized { detail: causes(error) }
        }
        StreamableHttpError::SessionExpired => Failure::SessionExpired,
        StreamableHttpError::ResponseBodyTooLarge { max_size } => Failure::TooLarge { limit: *max_size },
        StreamableHttpError::Client(client) => other(!client.is_connect() && !client.is_builder()),
        StreamableHttpError::HttpStatus(status) => other(status.status >= 500),
        // The text begins with `HTTP` and the status for every status without a form of its own.
        StreamableHttpError::UnexpectedServerResponse(text) => match text.strip_prefix("HTTP ") {
            Some(status) if status.starts_with("401") || status.starts_with("403") => {
                Failure::Unauthorized { detail: shown(text) }
            }
            Some(status) => other(!status.starts_with(['3', '4'])),
            None => other(true),
        },
        StreamableHttpError::ReservedHeaderConflict(_) => other(false),
        _ => other(true),
    }
}

/// The texts of an error and of its causes.
fn causes(error: &HttpError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    shown(&text)
}
