//! Reads requests, first their version, then the rest; and answers with refusals or lines.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt as _;
use ghost_domain::{Clock, Code, Refusal};
use ghost_sandbox::remote::protocol::{Lines, VERSION, Versioned};
use ghost_sandbox::within;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

/// A request of this version.
pub(crate) fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let version = serde_json::from_slice::<Versioned>(body).map_err(invalid)?.version;
    if version != VERSION {
        let what = format!("the client speaks version {version} of the protocol, and this server speaks {VERSION}");
        return Err(Refusal::new(Code::Conflict, what).hint("use ghostd and ghost-toolbox of the same release"));
    }
    serde_json::from_slice(body).map_err(invalid)
}

/// A request that is not one.
pub(crate) fn invalid(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("the request cannot be read: {why}"))
        .hint("docs/remote.md describes the requests")
}

/// A refusal that is an answer.
pub(crate) struct Refused(pub(crate) Refusal);

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match self.0.code {
            Code::AccessDenied => StatusCode::UNAUTHORIZED,
            Code::InvalidArguments | Code::PathDenied => StatusCode::BAD_REQUEST,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::Conflict => StatusCode::CONFLICT,
            Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Code::Timeout => StatusCode::REQUEST_TIMEOUT,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(self.0)).into_response()
    }
}

/// An answer of lines, which come from a queue.
pub(crate) fn lines(from: mpsc::Receiver<Bytes>) -> Response {
    let lines = futures_util::stream::unfold(from, |mut from| async move {
        from.recv().await.map(|line| (Ok::<_, std::convert::Infallible>(line), from))
    });
    ([("content-type", "application/x-ndjson")], Body::from_stream(lines.boxed())).into_response()
}

/// The next line of a request. Without one, the request lacks what `missing` says.
pub(crate) async fn next_line(
    lines: &mut Lines<BodyDataStream>,
    max: usize,
    (clock, silence): (&dyn Clock, Duration),
    missing: &str,
) -> Result<Vec<u8>, Refusal> {
    let late = || Refusal::new(Code::Timeout, "the request took too long").hint("try again");
    let line = within(clock, silence, lines.next(max)).await.ok_or_else(late)?;
    line.map_err(invalid)?.ok_or_else(|| invalid(missing))
}
