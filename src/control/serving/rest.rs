//! Serves REST: HTTP/1, with upgrades for WebSockets, over TLS if there are keys.
//!
//! This module must never speak HTTP/2. There a reader that stalls blocks its stream without
//! blocking a write, so no write timeout could detect it. (`axum::serve` speaks it, and waits for
//! requests without a limit.)

use std::pin::pin;

use axum::Router;
use hyper::body::Incoming as Body;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::util::ServiceExt as _;

use super::incoming::Incoming;
use crate::serving::connections::{Connection, FIRST_REQUEST, Peer};

/// Serves until the daemon stops and the last connection has ended.
pub(crate) async fn serve(incoming: Incoming<TcpListener>, router: Router, tls: Option<TlsAcceptor>) {
    let closed = incoming.closed.clone();
    let mut closing = closed.clone();
    let mut connections = JoinSet::new();
    loop {
        let io = tokio::select! {
            biased;
            // A dropped sender also means the end.
            _ = closing.wait_for(|closed| *closed) => break,
            io = incoming.next() => io,
        };
        // Reaps tasks of ended connections, so that they do not pile up.
        while connections.try_join_next().is_some() {}
        connections.spawn(begin(io, tls.clone(), router.clone(), closed.clone()));
    }
    drop(incoming);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection, after its TLS handshake if there is one. The handshake is within the time limit of the first
/// request.
async fn begin(io: Connection<TcpStream>, tls: Option<TlsAcceptor>, router: Router, mut closed: watch::Receiver<bool>) {
    let peer = io.peer().clone();
    let Some(tls) = tls else { return serve_connection(io, peer, router, closed).await };
    let accepted = tokio::select! {
        biased;
        accepted = tls.accept(io) => accepted,
        () = async { drop(closed.wait_for(|closed| *closed).await) } => return,
    };
    match accepted {
        Ok(io) => serve_connection(io, peer, router, closed).await,
        Err(error) => tracing::debug!(%error, "a connection ended before its TLS handshake did"),
    }
}

/// Serves one connection to its end, or until it becomes a WebSocket.
async fn serve_connection<IO: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: IO,
    peer: Peer,
    router: Router,
    mut closed: watch::Receiver<bool>,
) {
    let service = router.map_request(move |request: hyper::Request<Body>| {
        peer.request_arrived();
        request
    });
    let mut builder = http1::Builder::new();
    // The head of each later request has the same time limit as the first request.
    builder.timer(TokioTimer::new()).header_read_timeout(FIRST_REQUEST);
    let mut served =
        pin!(builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(service)).with_upgrades());
    let ended = tokio::select! {
        biased;
        ended = served.as_mut() => ended,
        () = async { drop(closed.wait_for(|closed| *closed).await) } => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
