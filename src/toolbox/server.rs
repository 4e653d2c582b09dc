//! Accepts connections, with TLS if there is a certificate, and ends them in order; and the requests: who may make them, and how
//! large they may be. Nothing of a request but its head is read before its token is checked.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use ghost_domain::bearer::bearer_matches;
use ghost_domain::{Clock, Code, Refusal};
use ghost_sandbox::remote::protocol::{Ended, Exec, HEAD_MAX, Health, Read, VERSION};
use ghost_sandbox::{Protection, SystemClock, within};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::requests::{Refused, parsed};
use crate::settings::Settings;
use crate::worlds::Worlds;
use crate::{exec, files};

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
    let router = router(Arc::clone(&worlds), settings.token);
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
    let ended = permits.acquire_many(u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX));
    if within(&*clock, STOP_GRACE, ended).await.is_none() {
        tracing::warn!("some requests did not end");
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
    match within(clock, HANDSHAKE, acceptor.accept(stream)).await {
        Some(Ok(stream)) => drive(stream, router, stopped).await,
        Some(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        None => tracing::debug!("a TLS handshake took too long"),
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

/// The routes of the server.
pub(crate) fn router(worlds: Arc<Worlds>, token: Arc<str>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/exec", post(run))
        .route("/exec-stream", post(run_stream))
        .route("/workspace/read", post(read))
        .route("/workspace/write", post(write))
        .fallback(nothing)
        .layer(DefaultBodyLimit::max(HEAD_MAX))
        .layer(from_fn_with_state(token, guard))
        .with_state(worlds)
}

async fn guard(State(token): State<Arc<str>>, headers: HeaderMap, request: Request, next: Next) -> Response {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    if given.is_some_and(|given| bearer_matches(given, &token)) {
        return next.run(request).await;
    }
    let what = if given.is_some() { "the token is wrong" } else { "a token is needed" };
    Refused(Refusal::new(Code::AccessDenied, what).hint("send `authorization: Bearer <token>`")).into_response()
}

async fn nothing() -> Response {
    let refusal = Refusal::new(Code::NotFound, "there is nothing at this path")
        .hint("/health, /exec, /exec-stream, /workspace/read or /workspace/write");
    (StatusCode::NOT_FOUND, Json(refusal)).into_response()
}

#[derive(Deserialize)]
struct Of {
    world: Option<String>,
}

async fn health(State(worlds): State<Arc<Worlds>>, Query(of): Query<Of>) -> Result<Json<Health>, Refused> {
    let workspace = of.world.map(|world| worlds.workspace(&world)).transpose()?;
    let report = worlds.report();
    Ok(Json(Health {
        version: VERSION,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        protections: Protection::names(report.in_force).into_iter().map(str::to_owned).collect(),
        missing: report.missing.clone(),
        workspace: workspace.map(|path| path.display().to_string()),
    }))
}

async fn run(State(worlds): State<Arc<Worlds>>, body: Bytes) -> Result<Json<Ended>, Refused> {
    let request: Exec = parsed(&body)?;
    Ok(Json(exec::once(&worlds, request).await?))
}

async fn run_stream(State(worlds): State<Arc<Worlds>>, body: Body) -> Result<Response, Refused> {
    Ok(exec::stream(worlds, body).await?)
}

async fn read(State(worlds): State<Arc<Worlds>>, body: Bytes) -> Result<Response, Refused> {
    let request: Read = parsed(&body)?;
    Ok(files::read(&worlds, request).await?)
}

async fn write(State(worlds): State<Arc<Worlds>>, body: Body) -> Result<Response, Refused> {
    Ok(Json(files::write(&worlds, body).await?).into_response())
}
