//! Deadlines that gRPC clients send (`grpc-timeout`). A call without a response by then gets
//! DEADLINE_EXCEEDED.
//!
//! Must never: end a stream that has begun. As in tonic, the response head meets the deadline.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, Request, Response};
use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Code, Refusal};
use tonic::body::Body;
use tower::Service;

use crate::refusal::status;

/// The header that carries the client's timeout.
const TIMEOUT: &str = "grpc-timeout";
/// Largest number of digits in it.
const DIGITS_MAX: usize = 8;

/// A service whose responses are subject to the client's deadline.
#[derive(Clone)]
pub(super) struct Deadlines<S> {
    pub(super) inner: S,
    pub(super) clock: Arc<dyn Clock>,
}

impl<S, B> Service<Request<B>> for Deadlines<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, ctx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(ctx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let timeout = timeout(request.headers()).map(|timeout| (timeout, self.clock.sleep(timeout)));
        let response = self.inner.call(request);
        Box::pin(async move {
            let Some((timeout, expired)) = timeout else { return response.await };
            tokio::select! {
                biased;
                response = response => response,
                () = expired => {
                    let refusal = Refusal::new(Code::Timeout, format!("there was no response within {timeout:?}"))
                        .hint("the operation may have been done; repeat the request with the same request_id and a longer deadline");
                    Ok(status(&refusal).into_http())
                }
            }
        })
    }
}

/// The client's timeout. An invalid one is ignored, as in tonic.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3_600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use ghost_provider::testing::ManualClock;
    use tower::ServiceExt as _;

    use super::*;

    fn request_with_timeout(timeout: &str) -> Request<()> {
        Request::builder().header(TIMEOUT, timeout).body(()).unwrap()
    }

    #[test]
    fn the_timeout_header_is_parsed() {
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("4m", Some(Duration::from_millis(4))),
            ("5u", Some(Duration::from_micros(5))),
            ("6n", Some(Duration::from_nanos(6))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3_600))),
            ("100000000S", None),
            ("", None),
            ("S", None),
            ("-1S", None),
            ("1s", None),
            ("1", None),
        ] {
            assert_eq!(timeout(request_with_timeout(text).headers()), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn a_call_without_a_response_ends_at_its_deadline() {
        let clock = ManualClock::at(0);
        let never = tower::service_fn(|_: Request<()>| std::future::pending::<Result<Response<Body>, Infallible>>());
        let service = Deadlines { inner: never, clock: clock.clone() };
        let response = service.oneshot(request_with_timeout("5S"));
        tokio::pin!(response);
        assert!(futures_util::poll!(&mut response).is_pending());
        clock.advance(Duration::from_secs(4));
        assert!(futures_util::poll!(&mut response).is_pending());
        clock.advance(Duration::from_secs(1));
        let response = response.await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "4");
    }

    #[tokio::test]
    async fn a_response_in_time_is_returned() {
        let at_once = tower::service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
        let service = Deadlines { inner: at_once, clock: ManualClock::at(0) };
        assert!(!service.oneshot(request_with_timeout("0S")).await.unwrap().headers().contains_key("grpc-status"));
    }
}
