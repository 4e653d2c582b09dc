//! One gRPC connection: HTTP/2, with streams that can be reset one by one.
//!
//! Must never: pass on a request without the information about its peer.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Clock;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::transport::server::Connected;
use tower::limit::ConcurrencyLimit;
use tower::util::ServiceExt as _;

use super::deadlines::Deadlines;
use super::first::FirstRequest;
use super::grpc_errors;
use crate::connections::Streams;

/// Largest number of concurrent requests on one connection.
const CONNECTION_CONCURRENCY: usize = 512;
/// How often a quiet connection is pinged.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Time that the peer has to answer a ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves one connection to its end.
pub(super) async fn connection<IO>(
    io: IO,
    routes: Routes,
    clock: Arc<dyn Clock>,
    first: FirstRequest,
    closed: watch::Receiver<bool>,
) where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let peer = io.connect_info();
    let arrived = first.arrived();
    let service = ConcurrencyLimit::new(Deadlines { inner: routes, clock }, CONNECTION_CONCURRENCY)
        .map_request(move |mut request: hyper::Request<Incoming>| {
            arrived.report();
            // The gate authenticates the caller with it.
            request.extensions_mut().insert(peer.clone());
            request
        })
        .map_response(grpc_errors::complete);
    let mut builder = auto::Builder::new(Streams).http2_only();
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(KEEPALIVE)).keep_alive_timeout(KEEPALIVE_TIMEOUT);
    let served = pin!(builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(service)));
    first.drive(served, |served| served.graceful_shutdown(), closed).await;
}
