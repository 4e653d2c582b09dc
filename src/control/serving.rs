//! Accepts connections, for gRPC and REST alike, and serves them until the daemon stops.
//!
//! Must never: let one peer's handshake, silence or disconnection delay other peers or the shutdown.

mod deadlines;
mod first;
mod grpc;
mod grpc_errors;
mod percent;
mod rest;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use ghost_domain::Refusal;
use ghost_world::World;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;
use tonic::transport::server::Connected;

use self::first::FirstRequest;
use self::percent::PercentFilter;
use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::connections::StallTimeout;
use crate::log_throttle::LogThrottle;

/// Pause after a failed accept, mostly for want of file descriptors.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A bound listener.
pub(crate) enum Listener {
    /// A Unix socket.
    Unix(UnixListener),
    /// A TCP port.
    Tcp(TcpListener),
    /// A TCP port with mutual TLS.
    Tls(TcpListener, Arc<ServerConfig>),
}

/// The protocol of a listener.
#[derive(Clone)]
pub(crate) enum Protocol {
    /// gRPC.
    Grpc(Routes),
    /// HTTP/1.
    Rest(Router),
}

/// Serves until `closed` becomes true and the last connection has ended. The listener closes when no
/// one else holds it.
pub(crate) async fn serve(
    listener: Arc<Listener>,
    protocol: Protocol,
    limit: ConnectionLimit,
    world: Arc<World>,
    closed: watch::Receiver<bool>,
) {
    let clock = Arc::clone(&world.ctx().ports.clock);
    let mut closing = closed.clone();
    let mut connections = JoinSet::new();
    let failed = LogThrottle::default();
    loop {
        let accepted = tokio::select! {
            biased;
            // A dropped sender also means the end.
            _ = closing.wait_for(|closed| *closed) => break,
            // Reaps tasks of ended connections, so that they do not pile up.
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener) => accepted,
        };
        match accepted {
            Ok(accepted) => {
                let permit = tokio::select! {
                    biased;
                    _ = closing.wait_for(|closed| *closed) => break,
                    permit = limit.take(&world) => permit,
                };
                connections.spawn(serve_connection(
                    accepted,
                    permit,
                    protocol.clone(),
                    Arc::clone(&world),
                    closed.clone(),
                ));
            }
            Err(error) if is_peer_error(&error) => tracing::debug!(%error, "a connection was not accepted"),
            Err(error) => {
                if failed.is_due(clock.now()) {
                    tracing::warn!(%error, "a connection could not be accepted; trying again");
                }
                clock.sleep(RETRY_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Whether the error concerns only this one connection.
fn is_peer_error(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | Interrupted | TimedOut | WouldBlock)
}

/// An accepted connection.
enum Accepted {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(TcpStream, Arc<ServerConfig>),
}

async fn accept(listener: &Listener) -> io::Result<Accepted> {
    match listener {
        Listener::Unix(listener) => Ok(Accepted::Unix(listener.accept().await?.0)),
        Listener::Tcp(listener) => {
            let (io, _) = listener.accept().await?;
            io.set_nodelay(true)?;
            Ok(Accepted::Tcp(io))
        }
        Listener::Tls(listener, config) => {
            let (io, _) = listener.accept().await?;
            io.set_nodelay(true)?;
            Ok(Accepted::Tls(io, Arc::clone(config)))
        }
    }
}

/// Serves one accepted connection, after the TLS handshake if it needs one.
async fn serve_connection(
    accepted: Accepted,
    permit: ConnectionPermit,
    protocol: Protocol,
    world: Arc<World>,
    mut closed: watch::Receiver<bool>,
) {
    let mut first = FirstRequest::new(&world);
    match accepted {
        Accepted::Unix(io) => {
            serve_protocol(PercentFilter::new(StallTimeout::new(io, &world, permit)), protocol, &world, first, closed)
                .await;
        }
        Accepted::Tcp(io) => {
            serve_protocol(StallTimeout::new(io, &world, permit), protocol, &world, first, closed).await
        }
        Accepted::Tls(io, config) => {
            let handshake = TlsAcceptor::from(config).accept(StallTimeout::new(io, &world, permit));
            let handshaken = tokio::select! {
                biased;
                handshaken = handshake => handshaken,
                () = first.missed() => Err(io::Error::from(io::ErrorKind::TimedOut)),
                () = async { drop(closed.wait_for(|closed| *closed).await) } => return,
            };
            match handshaken {
                Ok(io) => serve_protocol(io, protocol, &world, first, closed).await,
                // The handshake itself tells a client that its certificate is not accepted.
                Err(error) => tracing::debug!(%error, "a handshake failed"),
            }
        }
    }
}

async fn serve_protocol<IO>(
    io: IO,
    protocol: Protocol,
    world: &World,
    first: FirstRequest,
    closed: watch::Receiver<bool>,
) where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let clock = Arc::clone(&world.ctx().ports.clock);
    match protocol {
        Protocol::Grpc(routes) => grpc::connection(io, routes, clock, first, closed).await,
        Protocol::Rest(router) => rest::connection(io, router, clock, first, closed).await,
    }
}

/// Builds the mutual TLS configuration from PEM texts.
///
/// # Errors
/// If a text cannot be parsed, or the certificate and the key do not belong together.
pub(crate) fn tls(certificate: &[u8], key: &[u8], client_ca: &[u8]) -> Result<Arc<ServerConfig>, Refusal> {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let unusable = |error: &dyn std::fmt::Display| {
        Refusal::new(ghost_domain::Code::InvalidArguments, format!("the TLS files cannot be used: {error}"))
            .hint("GHOST_TLS_CERT, GHOST_TLS_KEY and GHOST_TLS_CA name PEM files that belong together")
    };
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(certificate).collect::<Result<_, _>>().map_err(|error| unusable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| unusable(&error))?;
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(client_ca) {
        roots.add(authority.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|error| unusable(&error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}
