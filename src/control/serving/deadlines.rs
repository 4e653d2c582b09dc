//! Deadlines that gRPC clients send along: a call that has no answer by then is answered with that.
//!
//! Must never: end a stream that has begun. Its head is its answer, as it is in tonic.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, Request, Response};
use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Code, Refusal};
use tonic::body::Body;
use tower::Service;

use crate::refusal::status;

/// The header with the time that a client grants.
const TIMEOUT: &str = "grpc-timeout";
/// Digits of that time.
const DIGITS_MAX: usize = 8;

/// Services whose answers are waited for only as long as their clients do.
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
        let granted = granted(request.headers()).map(|granted| (granted, self.clock.sleep(granted)));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let Some((granted, over)) = granted else { return answer.await };
            tokio::select! {
                biased;
                answer = answer => answer,
                () = over => {
                    let refusal = Refusal::new(Code::Timeout, format!("there was no answer within {granted:?}"))
                        .hint("what was asked for may have been done; ask again with the same request_id and more time");
                    Ok(status(&refusal).into_http())
                }
            }
        })
    }
}

/// The time that a client grants. One that cannot be read is none, as in tonic.
fn granted(headers: &HeaderMap) -> Option<Duration> {
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

    fn asking(timeout: &str) -> Request<()> {
        Request::builder().header(TIMEOUT, timeout).body(()).unwrap()
    }

    #[test]
    fn a_granted_time_is_read() {
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
            assert_eq!(granted(asking(text).headers()), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn a_call_without_an_answer_ends_when_its_client_has_no_more_time() {
        let clock = ManualClock::at(0);
        let never = tower::service_fn(|_: Request<()>| std::future::pending::<Result<Response<Body>, Infallible>>());
        let service = Deadlines { inner: never, clock: clock.clone() };
        let answer = service.oneshot(asking("5S"));
        tokio::pin!(answer);
        assert!(futures_util::poll!(&mut answer).is_pending());
        clock.advance(Duration::from_secs(4));
        assert!(futures_util::poll!(&mut answer).is_pending());
        clock.advance(Duration::from_secs(1));
        let answer = answer.await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4");
    }

    #[tokio::test]
    async fn an_answer_in_time_is_the_answer() {
        let at_once = tower::service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Body::empty())) });
        let service = Deadlines { inner: at_once, clock: ManualClock::at(0) };
        assert!(!service.oneshot(asking("0S")).await.unwrap().headers().contains_key("grpc-status"));
    }
}
