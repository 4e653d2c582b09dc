//! Accepts connections, with TLS if there is a certificate, and ends them in order.
//!
//! More connections than the limit must wait, and one that says nothing must end.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::{Clock, Code, Refusal};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::clock::SystemClock;
use crate::routes;
use crate::settings::Settings;
use crate::worlds::Worlds;

/// Open connections.
const CONNECTIONS_MAX: usize = 256;
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the head of a request may take, and how long a connection may be idle.
const HEAD: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const HEAD_BYTES: usize = 16 * 1024;
/// How long requests may take to end when the server stops.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// A pause after a failed accept: the machine may be out of descriptors.
const AGAIN: Duration = Duration::from_millis(100);

/// Serves until `stopped` turns true.
///
/// # Errors
/// If commands cannot be protected here, or the address cannot be listened on.
pub(crate) async fn serve(settings: Settings, mut stopped: watch::Receiver<bool>) -> Result<(), Refusal> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let worlds = Arc::new(Worlds::open(&settings.dir, settings.agent_uids, Arc::clone(&clock), stopped.clone()).await?);
    let listener = TcpListener::bind(settings.listen).await.map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::AddrInUse { Code::Conflict } else { Code::Unavailable };
        Refusal::new(code, format!("cannot listen on {}: {error}", settings.listen))
            .hint("choose another port, or stop what listens there")
    })?;
    let address = listener.local_addr().unwrap_or(settings.listen);
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    let acceptor = settings.tls.map(TlsAcceptor::from);
    let router = routes::router(Arc::clone(&worlds), settings.token);
    // Whoever started it may have closed the output.
    drop(writeln!(std::io::stdout(), "ready: {scheme}://{address}"));
    drop(std::io::stdout().flush());
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let permit = Arc::clone(&permits).acquire_owned().await.ok();
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            biased;
            () = turned(&mut stopped) => break,
            accepted = accepted => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                clock.sleep(AGAIN).await;
                continue;
            }
        };
        let (router, acceptor, clock, stopped) =
            (router.clone(), acceptor.clone(), Arc::clone(&clock), stopped.clone());
        tokio::spawn(async move {
            attend(stream, acceptor, router, &*clock, stopped).await;
            drop(permit);
        });
    }
    drop(listener);
    tracing::info!("stopping");
    tokio::select! {
        biased;
        // All connections have ended.
        _ = permits.acquire_many(u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX)) => {}
        () = clock.sleep(STOP_GRACE) => tracing::warn!("some requests did not end"),
    }
    worlds.close().await;
    Ok(())
}

/// Waits until the server stops.
async fn turned(stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped. That is a stop, too.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

async fn attend(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    router: axum::Router,
    clock: &dyn Clock,
    stopped: watch::Receiver<bool>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection is slower than it could be");
    }
    let Some(acceptor) = acceptor else { return drive(stream, router, stopped).await };
    let shaken = tokio::select! {
        biased;
        shaken = acceptor.accept(stream) => shaken,
        () = clock.sleep(HANDSHAKE) => return tracing::debug!("a TLS handshake took too long"),
    };
    match shaken {
        Ok(stream) => drive(stream, router, stopped).await,
        Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
    }
}

async fn drive(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: axum::Router,
    mut stopped: watch::Receiver<bool>,
) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_BYTES);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = turned(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}
