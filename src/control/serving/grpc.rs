//! One gRPC connection: HTTP/2 with streams that can be ended one by one.
//!
//! Must never: let a request in without who it comes from.

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
use super::first::First;
use super::grpc_errors;
use crate::connections::Streams;

/// Requests of one connection at once.
const CONNECTION_CONCURRENCY: usize = 512;
/// A quiet connection is asked this often whether its peer lives.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// It has so long to answer.
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(20);

/// Serves one connection to its end.
pub(super) async fn connection<IO>(
    io: IO,
    routes: Routes,
    clock: Arc<dyn Clock>,
    first: First,
    closed: watch::Receiver<bool>,
) where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let peer = io.connect_info();
    let came = first.came();
    let service = ConcurrencyLimit::new(Deadlines { inner: routes, clock }, CONNECTION_CONCURRENCY)
        .map_request(move |mut request: hyper::Request<Incoming>| {
            came.tell();
            // The gate reads who it is from here.
            request.extensions_mut().insert(peer.clone());
            request
        })
        .map_response(grpc_errors::whole);
    let mut builder = auto::Builder::new(Streams).http2_only();
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(KEEPALIVE)).keep_alive_timeout(KEEPALIVE_ANSWER);
    let served = pin!(builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(service)));
    first.drive(served, |served| served.graceful_shutdown(), closed).await;
}
