//! Runs a daemon: reads the world, boots it, serves it, and stops it in order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ghost_config::Problems;
use ghost_config::plan::{Plan, SandboxKind};
use ghost_control::{ControlOptions, ListenAddress};
use ghost_domain::ports::Ports;
use ghost_domain::redact::Redactor;
use ghost_domain::{Clock, Code, Refusal};
use ghost_store::Store;
use ghost_store::sqlite::SqliteOptions;
use ghost_tools::Tool;
use ghost_tools::workspace::Workspace;
use ghost_world::Boot;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::check::rule_file_errors;
use crate::data_dir::{DataDir, SOCKET};
use crate::database::OpenFiles;
use crate::loading::{Failure, Loaded, Overrides, load, problems_refusal};
use crate::pointer::Pointer;
use crate::ports::{SharedEnv, node_name, raise_and_check, secrets_of, tls_files};
use crate::reading::{Files, Read};
use crate::sandbox::Proxies;
use crate::storage::{Database, StoreOption};
use crate::terminal::Terminal;
use crate::workspace_dir::WorkspaceDir;
use crate::{database, input, main_job, reading, recordings};

/// Maximum time to stop if the store can no longer write.
const GONE_GRACE: Duration = Duration::from_secs(5);
/// Time between two checks of the database's files by a daemon that writes nothing.
const STORE_CHECK_EVERY: Duration = Duration::from_secs(2);
/// Time from ready to the check of the rule files.
const CHECK_DELAY: Duration = Duration::from_secs(1);

/// Where HTTP listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpOption {
    /// Where the world file says; nowhere if it says nothing.
    #[default]
    File,
    /// Nowhere.
    Off,
    /// At this address.
    At(SocketAddr),
}

/// The options of a daemon.
pub struct Options {
    /// The world's directory.
    pub world_dir: PathBuf,
    /// The data directory; `None` for that of the world file, else the default.
    pub data_dir: Option<PathBuf>,
    /// The workspace; `None` for that of the world file, else `workspace` in the data directory.
    pub workspace: Option<PathBuf>,
    /// `sqlite` or the URL of PostgreSQL; `None` for the database of the world file.
    pub store: Option<String>,
    /// Whether to accept data that another world directory created.
    pub adopt: bool,
    /// The directory of the main job's input; `None` for the world's own.
    pub input: Option<PathBuf>,
    /// The addresses of gRPC; empty for those of the world file, else the socket in the data directory.
    pub listen: Vec<ListenAddress>,
    /// The address of HTTP.
    pub http: HttpOption,
    /// The model flags.
    pub overrides: Overrides,
    /// Reads an environment variable.
    pub env: SharedEnv,
    /// Tools besides the built-in ones; for tests.
    pub extra_tools: Vec<Tool>,
    /// Clock, ids and random numbers.
    pub ports: Ports,
    /// Maximum number of pages of SQLite's file; for tests of a full disk.
    pub page_limit: Option<u32>,
    /// The output for progress.
    pub terminal: Terminal,
}

/// Boots the world and serves it until `stop` turns true or a client asks it to shut down.
///
/// # Errors
/// If the start fails: the configuration has problems, the data directory is in use or not writable, a
/// port is taken, the database is damaged, or the job's input cannot be read. Then nothing runs and the data
/// directory has not changed. Also if the daemon must stop because its data or its control plane failed.
pub async fn run(options: Options, mut stop: watch::Receiver<bool>) -> Result<(), Failure> {
    let extra = options.extra_tools;
    let store = options.store.as_deref().map(StoreOption::parse).transpose()?;
    let files = Arc::new(Files {
        world_dir: options.world_dir,
        overrides: options.overrides,
        workspace: options.workspace,
        store,
        adopt: options.adopt,
        env: options.env,
        extra_tools: extra.iter().map(|tool| tool.spec.name.clone()).collect(),
    });
    let tools = tokio::task::spawn_blocking(move || ghost_tools::builtins::with(extra));
    let sqlite = SqliteOptions { page_limit: options.page_limit, ..SqliteOptions::default() };
    let clock = Arc::clone(&options.ports.clock);
    let stopped = async {
        // An error means that the sender was dropped. That is a stop, too.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let read = reading::read(&files, options.data_dir, options.input, clock, &sqlite, stopped).await?;
    let Some(Read { loaded, input, data_dir, workspace, database, store }) = read else { return Ok(()) };
    for group in ghost_config::grouped::grouped(&loaded.plan.warnings) {
        tracing::warn!("{}", group.bare());
    }
    if let Some(warning) = raise_and_check(&loaded.plan.limits) {
        tracing::warn!("{warning}");
    }
    let places = &loaded.plan.places;
    let socket = || vec![ListenAddress::Unix(data_dir.path().join(SOCKET))];
    let named = if options.listen.is_empty() { &places.grpc } else { &options.listen };
    let listeners = if named.is_empty() { socket() } else { named.clone() };
    let http = match options.http {
        HttpOption::File => places.http,
        HttpOption::Off => None,
        HttpOption::At(address) => Some(address),
    };
    let (ports, terminal) = (options.ports, options.terminal);
    let start = Start { files, data_dir: &data_dir, workspace: &workspace, input, tools, ports, terminal };
    let result = serve_world(loaded, store, database, (listeners, http), start, stop).await;
    drop(workspace);
    drop(data_dir);
    result
}

/// What a start has read and made, beside the plan and the store.
struct Start<'d> {
    files: Arc<Files>,
    data_dir: &'d DataDir,
    workspace: &'d WorkspaceDir,
    input: input::Folder,
    tools: JoinHandle<Vec<Tool>>,
    ports: Ports,
    terminal: Terminal,
}

async fn serve_world(
    loaded: Loaded,
    store: Option<Store>,
    database: Database,
    (listeners, http): (Vec<ListenAddress>, Option<SocketAddr>),
    start: Start<'_>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let (data_dir, workspace, env) = (start.data_dir, start.workspace, Arc::clone(&start.files.env));
    let mut secrets = secrets_of(&loaded.plan, &*env);
    secrets.extend(database.secrets());
    let (shutdown, mut shutdown_request) = watch::channel(false);
    let shutdown = Arc::new(shutdown);
    let shutdown_sender = Arc::clone(&shutdown);
    // Bound before the world boots, so that a taken port starts nothing.
    let bind = async {
        input::check_place(workspace.path(), &start.input.files)?;
        let tls = tls_files(&*env)?;
        ghost_control::bind(ControlOptions {
            listeners,
            http,
            data_dir: data_dir.path().to_owned(),
            token: env("GHOST_TOKEN").filter(|token| !token.is_empty()),
            tls,
            on_shutdown: Arc::new(move |_| {
                shutdown_sender.send_replace(true);
            }),
        })
        .await
    };
    let bound = tokio::select! {
        biased;
        bound = bind => bound.map(Some),
        _ = stop.wait_for(|stop| *stop) => Ok(None),
    };
    let bound = match bound {
        Ok(Some(bound)) => bound,
        nothing => {
            if let Some(store) = store {
                store.close().await;
            }
            return nothing.map(|_| ()).map_err(Failure::from);
        }
    };
    secrets.extend(bound.token().map(str::to_owned));
    // The listeners close after the database: a client that waits for the end of this daemon must not see it too early.
    let listeners = bound.listeners();
    let store = match store {
        Some(store) => store,
        None => database::open(data_dir, workspace, database).await?,
    };
    let mut pointer = None;
    let stopped = async move {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => "signal",
            _ = shutdown_request.wait_for(|requested| *requested) => "request",
        }
    };
    let outcome = boot_and_serve(loaded, &store, secrets, bound, start, &mut pointer, stopped).await;
    drop(shutdown);
    store.close().await;
    drop(pointer);
    drop(listeners);
    // What the daemon acknowledged last may be damaged, although it was about to end in order.
    let damaged = tokio::select! {
        biased;
        why = store.broken() => Err(database::broken(&why).into()),
        () = std::future::ready(()) => Ok(()),
    };
    outcome.and(damaged)
}

async fn boot_and_serve(
    loaded: Loaded,
    store: &Store,
    secrets: Vec<String>,
    bound: ghost_control::Bound,
    start: Start<'_>,
    pointer: &mut Option<Pointer>,
    stopped: impl Future<Output = &'static str>,
) -> Result<(), Failure> {
    let Start { files, data_dir, workspace: dir, input, tools, ports, terminal } = start;
    let job_plan = loaded.plan.job.clone();
    let (world_id, world_name) = (loaded.plan.world_id.clone(), loaded.plan.name.clone());
    let (clock, watch_clock) = (Arc::clone(&ports.clock), Arc::clone(&ports.clock));
    let redactor: Arc<OnceLock<Redactor>> = Arc::default();
    let (world_dir, env) = (files.world_dir.clone(), Arc::clone(&files.env));
    let learning = Arc::clone(&redactor);
    let journal = store.clone();
    let reloader = Box::new(move || {
        let loaded = load(&files.world_dir, &files.overrides, &*files.env, Arc::clone(&clock))
            .map_err(|first| problems_refusal(&files.problems(first)))?;
        let errors = rule_file_errors(&loaded.plan);
        if !errors.is_empty() {
            return Err(problems_refusal(&files.problems(Problems::sorted(errors))));
        }
        if loaded.providers.recorded().next().is_some() {
            recordings::here(recordings::go_on(&journal, &loaded.providers)).flatten()?;
        }
        if let Some(redactor) = learning.get() {
            // The redactor learns the new secrets before any code can use a key from the new
            // configuration.
            redactor.learn(secrets_of(&loaded.plan, &*files.env));
        }
        Ok((loaded.plan, loaded.providers))
    });
    if ghost_world::has_run(store, &world_id).await.map_err(|refusal| database::located(refusal, data_dir))? {
        dir.check_kept()?;
    }
    recordings::go_on(store, &loaded.providers).await.map_err(|refusal| database::located(refusal, data_dir))?;
    let workspace = Workspace::open(dir.path())?;
    main_job::put_back(store, &workspace, &input.files).await?;
    let tools = tools
        .await
        .map_err(|error| Refusal::new(Code::Internal, format!("the tools could not be created: {error}")))?;
    let owner = ghost_sandbox::Owner { world_id: &loaded.plan.world_id, data_dir: data_dir.path() };
    let outlet = Proxies::new(&loaded.plan, Arc::clone(&ports.clock));
    let sandbox = ghost_sandbox::open(&loaded.plan.sandbox, owner, dir.path(), outlet, Arc::clone(&ports.clock)).await;
    if let (Err(why), true) = (&sandbox, loaded.plan.sandbox.kind != SandboxKind::None) {
        tracing::warn!("there is no sandbox, so no agent can run commands: {why}");
    }
    let web = ghost_web::Web::open(loaded.plan.web.as_ref(), &|name| env(name), Arc::clone(&ports.clock)).map(Arc::new);
    if let (Err(why), Some(_)) = (&web, &loaded.plan.web) {
        tracing::warn!("no agent can reach the web: {why}");
    }
    let running = sandbox.as_ref().ok().map(Arc::clone);
    let world = ghost_world::boot(Boot {
        plan: loaded.plan,
        store: store.clone(),
        ports,
        providers: loaded.providers,
        workspace,
        data_dir: Some(data_dir.path().to_owned()),
        secrets,
        node: node_name(),
        tools,
        sandbox,
        web,
        reloader,
    })
    .await
    .map_err(|refusal| database::located(refusal, data_dir))?;
    // The world has now run, so its data is kept.
    data_dir.keep(&world_id, &world_dir);
    dir.keep();
    let open_files = OpenFiles::new(data_dir);
    // This is the only place that sets it, so it cannot fail.
    let _ = redactor.set((*world.ctx().redactor).clone());
    let endpoints = bound.endpoints();
    *pointer = Pointer::place(&world_id, data_dir.path(), &endpoints, &*env);
    let (closing, closed) = watch::channel(false);
    let mut control = tokio::spawn(bound.serve(Arc::clone(&world), async move {
        let mut closed = closed;
        // An error means that the sender was dropped. That is a stop, too.
        let _ = closed.wait_for(|closed| *closed).await;
    }));
    terminal.ready(&world_name, &endpoints, data_dir.path(), dir.is_apart().then(|| dir.path()));
    let checking = tokio::spawn(check_later(world.plan(), Arc::clone(&watch_clock)));
    let watching = tokio::spawn(terminal.clone().watch(store.clone(), watch_clock.now()));
    let health = tokio::spawn(Arc::clone(&world).watch_health());
    let checking_store = tokio::spawn(check_store(store.clone(), Arc::clone(&watch_clock)));
    let main_job = main_job::begin(&world, job_plan, &input, &terminal, dir.path()).await;
    let mut failed = main_job.as_ref().err().cloned();
    let (mut served, mut gone) = (None, None);
    let reason = match failed {
        Some(_) => "the job could not be started",
        None => tokio::select! {
            biased;
            reason = stopped => reason,
            refusal = open_files.gone(&*watch_clock) => {
                gone = Some(refusal);
                "its data files were removed or replaced"
            }
            why = store.broken() => {
                gone = Some(database::broken(&why));
                "its store has failed"
            }
            // A daemon without a control plane is of no use, so it stops in order.
            ended = &mut control => {
                served = Some(ended);
                "the control plane failed"
            }
        },
    };
    terminal.stopping(reason);
    health.abort();
    checking_store.abort();
    checking.abort();
    data_dir.ending();
    tokio::select! {
        biased;
        () = world.shutdown(reason) => {}
        // If nothing can be stored, waiting for turns is useless.
        () = watch_clock.sleep(GONE_GRACE), if gone.is_some() => {}
    }
    if let Some(sandbox) = running {
        sandbox.close().await;
    }
    failed = failed.or(gone);
    closing.send_replace(true);
    let early = served.is_some();
    let served = match served {
        Some(served) => served,
        None => control.await,
    };
    watching.abort();
    if let Ok(Some(task)) = main_job {
        task.abort();
    }
    let broken = match served {
        Ok(Ok(())) => None,
        Ok(Err(refusal)) => Some(refusal),
        Err(error) => Some(Refusal::new(Code::Internal, format!("the control plane panicked: {error}"))),
    };
    match broken {
        Some(refusal) if early => failed = failed.or(Some(refusal)),
        Some(refusal) => tracing::warn!(%refusal, "the control plane did not stop cleanly"),
        None => {}
    }
    failed.map_or(Ok(()), |refusal| Err(refusal.into()))
}

/// Has the store check its files, also if nothing is written. Damage ends the daemon, see [`Store::broken`].
async fn check_store(store: Store, clock: Arc<dyn Clock>) {
    loop {
        clock.sleep(STORE_CHECK_EVERY).await;
        if let Err(error) = store.answers().await {
            tracing::debug!(%error, "the store does not answer");
        }
    }
}

/// Does what a start does not wait for: logs the errors of rule files (a rule with an error fails the turns that reach it),
/// and reads the machine's certificates.
async fn check_later(plan: Arc<Plan>, clock: Arc<dyn Clock>) {
    // The check takes as long as the whole start, so the first clients come first.
    clock.sleep(CHECK_DELAY).await;
    let checked = tokio::task::spawn_blocking(move || {
        if plan.web.is_some()
            && let Err(why) = ghost_web::read_certificates()
        {
            tracing::warn!("no agent can reach an https address: {why}");
        }
        rule_file_errors(&plan)
    });
    match checked.await {
        Ok(errors) => errors.iter().for_each(|problem| tracing::error!("{problem}")),
        Err(error) => tracing::error!(%error, "the check of the rule files panicked"),
    }
}
