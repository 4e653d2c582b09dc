//! Listening: connections are taken at every door, gRPC's and REST's alike, and served until the daemon goes.
//!
//! Must never: let one peer's handshake, its silence, or its connection's end, hold up the others or the daemon's end.

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

use self::first::First;
use self::percent::Percentless;
use crate::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::connections::StallTimeout;
use crate::log_throttle::LogThrottle;

/// When a connection cannot be taken, mostly for want of file descriptors, the next is tried after this.
const AGAIN: Duration = Duration::from_secs(1);

/// Where connections come in.
pub(crate) enum Listener {
    /// A Unix socket.
    Unix(UnixListener),
    /// A TCP port.
    Tcp(TcpListener),
    /// A TCP port with mutual TLS.
    Tls(TcpListener, Arc<ServerConfig>),
}

/// What is spoken behind a door.
#[derive(Clone)]
pub(crate) enum Protocol {
    /// gRPC.
    Grpc(Routes),
    /// HTTP/1.
    Rest(Router),
}

/// Serves until `closed` turns true and the last connection has ended. The door closes when nobody else holds it.
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
        let taken = tokio::select! {
            biased;
            // The sender being gone is the end as well.
            _ = closing.wait_for(|closed| *closed) => break,
            // Looked at one by one, so that what has ended is let go.
            Some(_) = connections.join_next() => continue,
            taken = take(&listener) => taken,
        };
        match taken {
            Ok(taken) => {
                let permit = tokio::select! {
                    biased;
                    _ = closing.wait_for(|closed| *closed) => break,
                    permit = limit.take(&world) => permit,
                };
                connections.spawn(welcome(taken, permit, protocol.clone(), Arc::clone(&world), closed.clone()));
            }
            Err(error) if is_of_the_peer(&error) => tracing::debug!(%error, "a connection was not taken"),
            Err(error) => {
                if failed.is_due(clock.now()) {
                    tracing::warn!(%error, "a connection could not be taken; trying again");
                }
                clock.sleep(AGAIN).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Whether only the one connection is lost.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | Interrupted | TimedOut | WouldBlock)
}

/// A connection that was taken.
enum Taken {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(TcpStream, Arc<ServerConfig>),
}

async fn take(listener: &Listener) -> io::Result<Taken> {
    match listener {
        Listener::Unix(listener) => Ok(Taken::Unix(listener.accept().await?.0)),
        Listener::Tcp(listener) => {
            let (io, _) = listener.accept().await?;
            io.set_nodelay(true)?;
            Ok(Taken::Tcp(io))
        }
        Listener::Tls(listener, config) => {
            let (io, _) = listener.accept().await?;
            io.set_nodelay(true)?;
            Ok(Taken::Tls(io, Arc::clone(config)))
        }
    }
}

/// Serves one connection, of whatever kind it is.
async fn welcome(
    taken: Taken,
    permit: ConnectionPermit,
    protocol: Protocol,
    world: Arc<World>,
    mut closed: watch::Receiver<bool>,
) {
    let mut first = First::new(&world);
    match taken {
        Taken::Unix(io) => {
            speak(Percentless::new(StallTimeout::new(io, &world, permit)), protocol, &world, first, closed).await;
        }
        Taken::Tcp(io) => speak(StallTimeout::new(io, &world, permit), protocol, &world, first, closed).await,
        Taken::Tls(io, config) => {
            let handshake = TlsAcceptor::from(config).accept(StallTimeout::new(io, &world, permit));
            let shaken = tokio::select! {
                biased;
                shaken = handshake => shaken,
                () = first.missed() => Err(io::Error::from(io::ErrorKind::TimedOut)),
                () = async { drop(closed.wait_for(|closed| *closed).await) } => return,
            };
            match shaken {
                Ok(io) => speak(io, protocol, &world, first, closed).await,
                // Whoever has no certificate of ours is told so by the handshake itself.
                Err(error) => tracing::debug!(%error, "a handshake failed"),
            }
        }
    }
}

async fn speak<IO>(io: IO, protocol: Protocol, world: &World, first: First, closed: watch::Receiver<bool>)
where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let clock = Arc::clone(&world.ctx().ports.clock);
    match protocol {
        Protocol::Grpc(routes) => grpc::connection(io, routes, clock, first, closed).await,
        Protocol::Rest(router) => rest::connection(io, router, clock, first, closed).await,
    }
}

/// Makes the settings of mutual TLS from PEM texts.
///
/// # Errors
/// When they cannot be read, or do not belong together.
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
