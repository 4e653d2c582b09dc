//! Binds the listeners and serves the control plane. Everything is bound before the world runs, so a
//! port or socket in use is an error before anything has started.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, Response};
use axum::middleware::from_fn;
use ghost_config::plan::ListenAddress;
use ghost_domain::bearer::check_token;
use ghost_domain::{Code, Party, Refusal};
use ghost_world::World;
use ghost_world::loops::DELIVERIES;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tower::ServiceExt as _;

use crate::adapters;
use crate::auth::{Gate, Pems, TOKEN_FILE, TlsFiles, token};
use crate::control::Control;
use crate::dispatch::{Dispatcher, Methods};
use crate::http;
use crate::services;
use crate::serving::connections::ConnectionLimit;
use crate::serving::{Incoming, grpc, serve_rest};
use crate::tallies;

/// How long open streams may go on after the daemon begins to stop.
const CLOSING: Duration = Duration::from_millis(1_500);

/// Configuration of the control plane.
pub struct ControlOptions {
    /// Where gRPC listens. May be empty.
    pub listeners: Vec<ListenAddress>,
    /// Where HTTP listens, or `None` for no HTTP.
    pub http: Option<SocketAddr>,
    /// The data directory, which holds the token's file.
    pub data_dir: PathBuf,
    /// The token, if the environment gives one. Otherwise the token of the data directory is used.
    pub token: Option<String>,
    /// TLS of the network listeners: mutual for gRPC, where it replaces the token; the server's alone for HTTP.
    pub tls: Option<TlsFiles>,
    /// Starts the orderly shutdown of the daemon.
    pub on_shutdown: Arc<dyn Fn(&Party) + Send + Sync>,
}

/// The HTTP listener.
struct Rest {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

/// A gRPC listener, its server, and how it authenticates callers.
struct Socket {
    listener: Listener,
    server: Server,
    gate: Gate,
}

enum Listener {
    Unix(Arc<UnixListener>),
    Tcp(Arc<TcpListener>),
}

/// Files that binding has created, with their device and inode numbers. Dropping this removes them,
/// unless another file has replaced them.
#[derive(Default)]
struct CreatedFiles(Vec<(PathBuf, Option<(u64, u64)>)>);

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

impl CreatedFiles {
    /// Records the file at `path`, which was just created.
    fn add(&mut self, path: PathBuf) {
        let made = identity(&path);
        self.0.push((path, made));
    }

    /// Keeps the files.
    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for CreatedFiles {
    fn drop(&mut self) {
        for (path, made) in &self.0 {
            // Another daemon may have replaced the file. Its socket must stay.
            if identity(path) == *made
                && let Err(error) = std::fs::remove_file(path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(%error, path = %path.display(), "the file could not be removed");
            }
        }
    }
}

/// The open gRPC listeners. While a clone of this exists, clients can connect; they wait if no one
/// serves them. Dropping the last clone removes the socket files, then closes the listeners.
#[derive(Clone)]
pub struct OpenListeners(Arc<BoundSockets>);

struct BoundSockets {
    // Dropped in this order: a daemon that finds a socket file tries to connect to it.
    _files: CreatedFiles,
    sockets: Vec<Socket>,
}

/// A control plane whose listeners are bound but not served yet. Dropping it before [`Bound::serve`]
/// leaves no file behind.
pub struct Bound {
    /// The token's file, if it is new.
    made: CreatedFiles,
    listeners: OpenListeners,
    rest: Option<Rest>,
    token: Option<Arc<str>>,
    endpoints: Vec<String>,
    on_shutdown: Arc<dyn Fn(&Party) + Send + Sync>,
}

/// Binds every listener.
///
/// # Errors
/// If an address is in use or cannot be bound. Then no listener stays bound, and the files created so
/// far are removed.
pub async fn bind(options: ControlOptions) -> Result<Bound, Refusal> {
    let mut made = CreatedFiles::default();
    // Ports first: a port in use is found before any file is created.
    let http = match options.http {
        Some(address) => Some(bind_tcp(address).await?),
        None => None,
    };
    let mut ports = VecDeque::new();
    for listener in &options.listeners {
        if let ListenAddress::Tcp(address) = listener {
            ports.push_back(bind_tcp(*address).await?);
        }
    }
    let uses_tls = http.is_some() || !ports.is_empty();
    let pems = match options.tls.filter(|_| uses_tls) {
        Some(files) => Some(Pems::read(files).await?),
        None => None,
    };
    let needs_token = options.http.is_some()
        || (pems.is_none() && options.listeners.iter().any(|listener| matches!(listener, ListenAddress::Tcp(_))));
    let token: Option<Arc<str>> = match options.token {
        Some(text) => {
            check_token(&text).map_err(|why| {
                Refusal::new(Code::InvalidArguments, format!("GHOST_TOKEN {why}"))
                    .hint("use a long random token, or unset it to have one created")
            })?;
            Some(text.into())
        }
        None if needs_token => {
            let file = options.data_dir.join(TOKEN_FILE);
            let new = file.symlink_metadata().is_err();
            let token = token(&options.data_dir)?;
            if new {
                made.add(file);
            }
            Some(token)
        }
        None => None,
    };
    let (mut files, mut sockets, mut endpoints) = (CreatedFiles::default(), Vec::new(), Vec::new());
    for listener in &options.listeners {
        match listener {
            ListenAddress::Unix(path) => {
                endpoints.push(format!("unix:{}", path.display()));
                let server = plain_server()?;
                let listener = Listener::Unix(Arc::new(bind_unix(path)?));
                files.add(path.clone());
                let gate = Gate::Peer { uid: rustix::process::getuid().as_raw() };
                sockets.push(Socket { listener, server, gate });
            }
            ListenAddress::Tcp(address) => {
                let Some(socket) = ports.pop_front() else {
                    return Err(Refusal::new(Code::Internal, "a TCP listener was not bound"));
                };
                let address = socket.local_addr().unwrap_or(*address);
                let (gate, scheme) = match (&pems, &token) {
                    (Some(_), _) => (Gate::Certificate, "https"),
                    (None, Some(token)) => (Gate::Token(Arc::clone(token)), "http"),
                    (None, None) => {
                        return Err(Refusal::new(Code::Internal, "a TCP listener without a token or a certificate"));
                    }
                };
                endpoints.push(format!("{scheme}://{address}"));
                let listener = Listener::Tcp(Arc::new(socket));
                sockets.push(Socket { listener, server: network_server(pems.as_ref())?, gate });
            }
        }
    }
    let mut rest = None;
    if let Some((socket, address)) = http.zip(options.http) {
        let address = socket.local_addr().unwrap_or(address);
        let tls = pems.as_ref().map(Pems::http).transpose()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        endpoints.push(format!("REST {scheme}://{address}"));
        rest = Some(Rest { listener: socket, address, tls });
    }
    let listeners = OpenListeners(Arc::new(BoundSockets { _files: files, sockets }));
    Ok(Bound { made, listeners, rest, token, endpoints, on_shutdown: options.on_shutdown })
}

fn network_server(pems: Option<&Pems>) -> Result<Server, Refusal> {
    match pems {
        Some(pems) => pems.grpc(),
        None => plain_server(),
    }
}

fn plain_server() -> Result<Server, Refusal> {
    grpc::server(None).map_err(|error| Refusal::new(Code::Internal, format!("gRPC cannot be served: {error}")))
}

async fn bind_tcp(address: SocketAddr) -> Result<TcpListener, Refusal> {
    TcpListener::bind(address).await.map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::AddrInUse { Code::Conflict } else { Code::Unavailable };
        Refusal::new(code, format!("cannot listen on {address}: {error}"))
            .hint("choose another port, or stop what listens there")
    })
}

/// Binds a Unix socket with mode 0600. A stale socket is replaced. A socket that accepts connections,
/// or a file that is not a socket, is an error.
fn bind_unix(path: &Path) -> Result<UnixListener, Refusal> {
    let failed = |error: std::io::Error| {
        Refusal::new(Code::Unavailable, format!("cannot listen on {}: {error}", path.display()))
            .hint("choose another path with --listen unix:PATH; it may have at most 107 bytes")
    };
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(Refusal::new(Code::Conflict, format!("{} exists and is not a socket", path.display()))
                .hint("choose another path with --listen unix:PATH"));
        }
        Ok(_) => match StdUnixStream::connect(path) {
            Ok(_) => {
                return Err(Refusal::new(Code::Conflict, format!("another program listens on {}", path.display()))
                    .hint("stop it with `ghostctl shutdown`, or choose another path with --listen unix:PATH"));
            }
            // No one accepts: the socket is left over from a daemon that died.
            Err(_) => std::fs::remove_file(path).map_err(failed)?,
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

impl Bound {
    /// The token that TCP and HTTP callers must send, if there is one. It is a secret.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The addresses that the control plane listens on, for people and for clients.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.endpoints.clone()
    }

    /// The gRPC listeners. A caller may keep them open after serving ends; a client that waits for the
    /// daemon's end waits until they close.
    #[must_use]
    pub fn listeners(&self) -> OpenListeners {
        self.listeners.clone()
    }

    /// Serves the world until `shutdown` completes. Requests under way then have 1.5 s to finish.
    ///
    /// # Errors
    /// If a listener ends or panics while it serves. The others are stopped too.
    pub async fn serve(self, world: Arc<World>, shutdown: impl Future<Output = ()> + Send) -> Result<(), Refusal> {
        self.made.keep();
        let (closing, closed) = watch::channel(false);
        let control = Control::new(world, self.endpoints.into(), Arc::clone(&self.on_shutdown), closed.clone());
        let (health, health_service) = tonic_health::server::health_reporter();
        let dispatcher = Dispatcher { methods: Arc::new(services::methods()), control: control.clone() };
        set_health(&health, &dispatcher.methods, tonic_health::ServingStatus::Serving).await;
        let mut tasks = JoinSet::new();
        let (own, network) = (ConnectionLimit::default(), ConnectionLimit::default());
        for Socket { listener, server, gate } in &self.listeners.0.sockets {
            let routes = routes(&dispatcher, gate, health_service.clone());
            match listener {
                Listener::Unix(listener) => {
                    let incoming = Incoming::new(listener, &own, &control.world, &closed);
                    tasks.spawn(grpc::serve(server.clone(), incoming, routes));
                }
                Listener::Tcp(listener) => {
                    let incoming = Incoming::new(listener, &network, &control.world, &closed);
                    tasks.spawn(grpc::serve(server.clone(), incoming, routes));
                }
            }
        }
        if let Some(Rest { listener, address, tls }) = self.rest {
            let router = http::router(control.clone(), self.token.clone(), (address, tls.is_some()));
            let incoming = Incoming::new(&Arc::new(listener), &network, &control.world, &closed);
            tasks.spawn(async move {
                serve_rest(incoming, router, tls).await;
                Ok(())
            });
        }
        let (counted, counts) = (Arc::clone(&control.world), Arc::clone(&control.tallies));
        let counting = control.world.keep_running(tallies::METRICS, move || {
            Box::pin(tallies::follow(Arc::clone(&counted), Arc::clone(&counts)))
        });
        let outside = Arc::clone(&control.world);
        let delivery_worker =
            control.world.keep_running(DELIVERIES, move || Box::pin(adapters::delivery_worker(Arc::clone(&outside))));
        tokio::pin!(shutdown);
        let failed = tokio::select! {
            biased;
            () = &mut shutdown => None,
            Some(ended) = tasks.join_next() => Some(match ended {
                Ok(Ok(())) => Refusal::new(Code::Internal, "a listener ended by itself"),
                Ok(Err(error)) => Refusal::new(Code::Internal, format!("a listener failed: {error}")),
                Err(error) => Refusal::new(Code::Internal, format!("a listener panicked: {error}")),
            }),
        };
        set_health(&health, &dispatcher.methods, tonic_health::ServingStatus::NotServing).await;
        closing.send_replace(true);
        delivery_worker.abort();
        counting.abort();
        let clock = Arc::clone(&control.world.ctx().ports.clock);
        tokio::select! {
            biased;
            () = async { while tasks.join_next().await.is_some() {} } => {}
            // Event streams do not end by themselves. Their readers resume after the next start.
            () = clock.sleep(CLOSING) => tasks.abort_all(),
        }
        // Connections that are still open end now.
        drop(closing);
        failed.map_or(Ok(()), Err)
    }
}

/// Sets the health of the daemon and of each of its services. They all have the same status.
async fn set_health(
    health: &tonic_health::server::HealthReporter,
    methods: &Methods,
    status: tonic_health::ServingStatus,
) {
    for service in std::iter::once("").chain(methods.services()) {
        health.set_service_status(service, status).await;
    }
}

/// All services behind one gate. Only the health service needs no authentication.
fn routes<H>(dispatcher: &Dispatcher, gate: &Gate, health: tonic_health::pb::health_server::HealthServer<H>) -> Routes
where
    H: tonic_health::pb::health_server::Health,
{
    let mut routes = Routes::builder();
    routes.add_service(health);
    let mut router = routes.routes().into_axum_router();
    for service in dispatcher.methods.services() {
        router = gated(router, service, dispatcher.clone(), gate);
    }
    for reflection in grpc::Reflection::versions() {
        router = gated(router, reflection.name, reflection, gate);
    }
    Routes::from(router.layer(from_fn(http::as_people))).prepare()
}

/// Adds a service behind the gate.
fn gated<S>(router: axum::Router, name: &str, service: S, gate: &Gate) -> axum::Router
where
    S: tower::Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let gated = InterceptedService::new(service, gate.clone());
    let gated = gated.map_request(|request: axum::extract::Request| request.map(Body::new));
    router.route_service(&format!("/{name}/{{*method}}"), gated)
}
