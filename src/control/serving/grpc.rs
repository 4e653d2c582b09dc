//! Serves gRPC with tonic's server, and respects the deadlines of clients (`grpc-timeout`). As in tonic, the response head
//! meets the deadline; a stream that has begun does not end because of it. Errors that tonic itself returns before a method
//! is called get a refusal code and a hint, like every other refusal.
//!
//! gRPC reflection is served in v1 and v1alpha, because many clients know only the latter. Its tables are built at the first
//! request: few clients use it, and building them would slow down every start.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, Request, Response};
use ghost_domain::time::BoxFuture;
use ghost_domain::{Code, Refusal};
use ghost_proto::{FILE_DESCRIPTOR_SET, REFUSAL_TRAILER};
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::{Error, Server, ServerTlsConfig};
use tonic_reflection::server::Builder;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt as _};

use super::{Incoming, Listen};
use crate::refusal::{status, status_as};
use crate::serving::connections::Peer;

/// Largest number of concurrent streams on one connection: hyper's default. tonic's default is no limit.
const STREAMS_MAX: u32 = 200;
/// Largest number of streams of one connection that may fail because the peer breaks the protocol: hyper's
/// default. tonic's default is no limit.
const FAILED_STREAMS_MAX: usize = 1_024;
/// How often a quiet connection is pinged. A peer that does not answer in 20 seconds is disconnected.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The header that carries the client's timeout.
const TIMEOUT: &str = "grpc-timeout";
/// Largest number of digits in it.
const DIGITS_MAX: usize = 8;
/// How much earlier than the deadline a request is answered. tonic has its own timer for the deadline and
/// answers CANCELLED, but gRPC defines DEADLINE_EXCEEDED. So the timer here must end before that one.
const EARLIER: Duration = Duration::from_millis(1);

/// A server, with TLS if there is a configuration.
///
/// # Errors
/// If the files of the TLS configuration cannot be used.
pub(crate) fn server(tls: Option<ServerTlsConfig>) -> Result<Server, Error> {
    let server = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_local_error_reset_streams(Some(FAILED_STREAMS_MAX))
        .http2_keepalive_interval(Some(KEEPALIVE));
    match tls {
        Some(tls) => server.tls_config(tls),
        None => Ok(server),
    }
}

/// Serves until the daemon stops and the last connection has ended.
///
/// # Errors
/// If tonic's server fails.
pub(crate) async fn serve<L: Listen>(server: Server, incoming: Incoming<L>, routes: Routes) -> Result<(), Error> {
    let clock = Arc::clone(&incoming.world.ctx().ports.clock);
    let mut closed = incoming.closed.clone();
    let connections = futures_util::stream::unfold(incoming, |incoming| async move {
        Some((Ok::<_, Infallible>(incoming.next().await), incoming))
    });
    let service = tower::service_fn(move |request: Request<Body>| {
        if let Some(peer) = request.extensions().get::<Peer>() {
            peer.request_arrived();
        }
        let deadline = timeout(request.headers());
        let deadline = deadline.map(|timeout| (timeout, clock.sleep(timeout.saturating_sub(EARLIER))));
        answer(routes.clone(), request, deadline)
    });
    let closed = async move { drop(closed.wait_for(|closed| *closed).await) };
    server.serve_with_incoming_shutdown(service, connections, closed).await
}

/// Answers one request, within the client's timeout.
async fn answer(
    routes: Routes,
    request: Request<Body>,
    deadline: Option<(Duration, BoxFuture<'static, ()>)>,
) -> Result<Response<Body>, Infallible> {
    let answer = routes.oneshot(request);
    let Some((timeout, expired)) = deadline else { return answer.await.map(complete) };
    tokio::select! {
        biased;
        answer = answer => answer.map(complete),
        () = expired => {
            let refusal = Refusal::new(Code::Timeout, format!("there was no response within {timeout:?}")).hint(
                "the operation may have been done; repeat the request with the same request_id and a longer deadline",
            );
            Ok(status(&refusal).into_http())
        }
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

/// The response; an error without a refusal gets one.
fn complete(answer: Response<Body>) -> Response<Body> {
    if answer.headers().contains_key(REFUSAL_TRAILER) {
        return answer;
    }
    match Status::from_header_map(answer.headers()).filter(|given| given.code() != tonic::Code::Ok) {
        Some(given) => with_refusal(&given).into_http(),
        None => answer,
    }
}

fn with_refusal(given: &Status) -> Status {
    let text = given.message();
    match given.code() {
        tonic::Code::OutOfRange => status(
            &Refusal::new(Code::TooLarge, text.trim_start_matches("Error, "))
                .hint("write the long part to a workspace file and name its path"),
        ),
        // The services return a refusal with every internal error, so this is a request that cannot be
        // decoded.
        tonic::Code::Internal => status(
            &Refusal::new(Code::InvalidArguments, format!("the request cannot be read: {text}"))
                .hint("send the request message that proto/ghost/v1 defines for this method; strings must be UTF-8"),
        ),
        tonic::Code::Unimplemented => status(
            &Refusal::new(
                Code::Unsupported,
                format!("this daemon does not support the request: {}", or_default_text(text, "no such method")),
            )
            .hint("list its methods with gRPC reflection; it may be of another version than this client"),
        ),
        tonic::Code::NotFound => status(
            &Refusal::new(Code::NotFound, or_default_text(text, "not found"))
                .hint("ask for the health of `ghost.v1.World` or another service of ghost.v1; an empty name means the whole daemon"),
        ),
        code => status_as(
            code,
            &Refusal::new(Code::Unavailable, or_default_text(text, "the request was not accepted")).hint("try again later"),
        ),
    }
}

fn or_default_text(text: &str, default: &str) -> String {
    if text.is_empty() { default.to_owned() } else { text.to_owned() }
}

/// The built reflection service.
type Built = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// The reflection service of one version, built at its first request.
#[derive(Clone)]
pub(crate) struct Reflection {
    /// The full name of the service.
    pub(crate) name: &'static str,
    build: fn() -> Result<Built, String>,
    built: Arc<OnceLock<Result<Built, String>>>,
}

impl Reflection {
    /// The service in both versions.
    pub(crate) fn versions() -> [Self; 2] {
        let of = |name, build| Self { name, build, built: Arc::default() };
        [
            of("grpc.reflection.v1.ServerReflection", || {
                builder().build_v1().map(BoxCloneSyncService::new).map_err(|error| error.to_string())
            }),
            of("grpc.reflection.v1alpha.ServerReflection", || {
                builder().build_v1alpha().map(BoxCloneSyncService::new).map_err(|error| error.to_string())
            }),
        ]
    }
}

impl Service<Request<Body>> for Reflection {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (built, build) = (Arc::clone(&self.built), self.build);
        Box::pin(async move {
            match built.get_or_init(build) {
                Ok(service) => service.clone().oneshot(request).await,
                Err(error) => Ok(Status::internal(format!("reflection cannot be built: {error}")).into_http()),
            }
        })
    }
}

#[cfg(test)]
mod timeout_tests {
    use super::*;

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
            let request = Request::builder().header(TIMEOUT, text).body(()).unwrap();
            assert_eq!(timeout(request.headers()), expected, "{text}");
        }
    }
}

#[cfg(test)]
mod reflection_tests {
    use super::*;

    #[test]
    fn the_descriptors_are_valid() {
        assert!(Reflection::versions().iter().all(|version| (version.build)().is_ok()));
    }
}
