//! gRPC over one listener: connections are taken, told apart by who they come from, and served until the daemon goes.
//!
//! Must never: let one peer's handshake, or its connection's end, hold up the others.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Refusal;
use ghost_world::World;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;
use tonic::transport::server::Connected;
use tower::limit::ConcurrencyLimit;
use tower::util::ServiceExt as _;

use crate::connections::{Patient, Streams};

/// Requests of one connection at once.
const CONNECTION_CONCURRENCY: usize = 512;
/// A quiet connection is asked this often whether its peer lives.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// It has so long to answer.
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(20);
/// A handshake takes no longer.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// When a connection cannot be taken, mostly for want of file descriptors, the next is tried after this.
const AGAIN: Duration = Duration::from_secs(1);

/// Where gRPC listens.
pub(crate) enum Door {
    /// A Unix socket.
    Unix(UnixListener),
    /// A TCP port.
    Tcp(TcpListener),
    /// A TCP port with mutual TLS.
    Tls(TcpListener, Arc<ServerConfig>),
}

/// Serves until `closed` turns true and the last connection has ended.
pub(crate) async fn serve(door: Door, routes: Routes, world: Arc<World>, closed: watch::Receiver<bool>) {
    let clock = Arc::clone(&world.cx().ports.clock);
    let mut closing = closed.clone();
    let mut connections = JoinSet::new();
    loop {
        let taken = tokio::select! {
            biased;
            // The sender being gone is the end as well.
            _ = closing.wait_for(|closed| *closed) => break,
            // Looked at one by one, so that what has ended is let go.
            Some(_) = connections.join_next() => continue,
            taken = take(&door) => taken,
        };
        match taken {
            Ok(taken) => {
                connections.spawn(welcome(taken, Arc::clone(&world), routes.clone(), closed.clone()));
            }
            Err(error) if is_of_the_peer(&error) => tracing::debug!(%error, "a connection was not taken"),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken; trying again");
                clock.sleep(AGAIN).await;
            }
        }
    }
    drop(door);
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

async fn take(door: &Door) -> io::Result<Taken> {
    match door {
        Door::Unix(listener) => Ok(Taken::Unix(listener.accept().await?.0)),
        Door::Tcp(listener) => {
            let (io, _) = listener.accept().await?;
            io.set_nodelay(true)?;
            Ok(Taken::Tcp(io))
        }
        Door::Tls(listener, config) => {
            let (io, _) = listener.accept().await?;
            io.set_nodelay(true)?;
            Ok(Taken::Tls(io, Arc::clone(config)))
        }
    }
}

/// Serves one connection, of whatever kind it is.
async fn welcome(taken: Taken, world: Arc<World>, routes: Routes, closed: watch::Receiver<bool>) {
    match taken {
        Taken::Unix(io) => connection(Patient::new(io, &world), routes, closed).await,
        Taken::Tcp(io) => connection(Patient::new(io, &world), routes, closed).await,
        Taken::Tls(io, config) => {
            let handshake = TlsAcceptor::from(config).accept(Patient::new(io, &world));
            let shaken = tokio::select! {
                biased;
                shaken = handshake => shaken,
                () = world.cx().ports.clock.sleep(HANDSHAKE) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            };
            match shaken {
                Ok(io) => connection(io, routes, closed).await,
                // Whoever has no certificate of ours is told so by the handshake itself.
                Err(error) => tracing::debug!(%error, "a handshake failed"),
            }
        }
    }
}

/// Serves one connection to its end.
async fn connection<IO>(io: IO, routes: Routes, mut closed: watch::Receiver<bool>)
where
    IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let peer = io.connect_info();
    let service = ConcurrencyLimit::new(routes, CONNECTION_CONCURRENCY).map_request(
        move |mut request: hyper::Request<Incoming>| {
            // The gate reads who it is from here.
            request.extensions_mut().insert(peer.clone());
            request
        },
    );
    let mut builder = auto::Builder::new(Streams).http2_only();
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(KEEPALIVE)).keep_alive_timeout(KEEPALIVE_ANSWER);
    let mut served = pin!(builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(service)));
    let ended = tokio::select! {
        biased;
        ended = served.as_mut() => Some(ended),
        () = async { drop(closed.wait_for(|closed| *closed).await) } => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
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
