//! From options to a world that serves, and back to an orderly end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ghost_control::{ControlOptions, ListenAddress};
use ghost_domain::ports::Ports;
use ghost_domain::redact::Redactor;
use ghost_domain::{Code, Refusal};
use ghost_store::Store;
use ghost_store::sqlite::SqliteOptions;
use ghost_tools::Tool;
use ghost_tools::workspace::Workspace;
use ghost_world::Boot;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::data_dir::{DataDir, WORKSPACE};
use crate::environment::{SharedEnv, node_name, secrets_of, tls_files};
use crate::failure::Failure;
use crate::loading::{Loaded, Overrides, load, problems_refusal};
use crate::ownership::Held;
use crate::reading::{Files, Read};
use crate::terminal::Terminal;
use crate::{database, job, main_job, reading, recordings};

/// How long a world that can keep nothing any more may take to stop.
const GONE_GRACE: Duration = Duration::from_secs(5);

/// What a daemon is started with.
pub struct Options {
    /// The world's directory.
    pub world_dir: PathBuf,
    /// Where its data lie; `None` is the usual place.
    pub data_dir: Option<PathBuf>,
    /// Whether data that another world directory made are taken over.
    pub adopt: bool,
    /// The job's input; `None` is the world's own.
    pub input: Option<PathBuf>,
    /// Where gRPC listens; empty is the socket in the data directory.
    pub listen: Vec<ListenAddress>,
    /// Where HTTP listens, if it does.
    pub http: Option<SocketAddr>,
    /// Model flags.
    pub overrides: Overrides,
    /// Reads an environment variable.
    pub env: SharedEnv,
    /// Tools besides the built-in ones; for tests.
    pub extra_tools: Vec<Tool>,
    /// Clock, ids, jitter.
    pub ports: Ports,
    /// A bound on the database's pages; for tests of a full disk.
    pub page_limit: Option<u32>,
    /// Where the progress of the job is shown.
    pub terminal: Terminal,
}

/// Boots the world and serves it until `stop` turns true or a client asks for the end.
///
/// # Errors
/// When it cannot start: the configuration has problems, the data directory is in use or not writable, a port is taken,
/// the database is damaged, the job's input cannot be taken in. Nothing runs then, and the data directory is as it was.
pub async fn run(options: Options, mut stop: watch::Receiver<bool>) -> Result<(), Failure> {
    let extra = options.extra_tools;
    let files = Arc::new(Files {
        world_dir: options.world_dir,
        overrides: options.overrides,
        adopt: options.adopt,
        env: Arc::clone(&options.env),
        extra_tools: extra.iter().map(|tool| tool.spec.name.clone()).collect(),
    });
    let tools = tokio::task::spawn_blocking(move || ghost_tools::builtins::with(extra));
    let sqlite = SqliteOptions { page_limit: options.page_limit, ..SqliteOptions::default() };
    let clock = Arc::clone(&options.ports.clock);
    let stopped = async {
        // An error means that nobody can ask for the end any more, which is the end as well.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let read = reading::read(&files, options.data_dir, options.input, clock, &sqlite, stopped).await?;
    let Some(Read { loaded, input, data_dir, store }) = read else { return Ok(()) };
    for warning in &loaded.plan.warnings {
        tracing::warn!("{}", warning.bare());
    }
    let rest = ServeOptions {
        files,
        input,
        listen: options.listen,
        http: options.http,
        env: options.env,
        tools,
        ports: options.ports,
        terminal: options.terminal,
    };
    let result = serve_world(loaded, &data_dir, store, sqlite, rest, stop).await;
    drop(data_dir);
    result
}

struct ServeOptions {
    files: Arc<Files>,
    input: Vec<job::Input>,
    listen: Vec<ListenAddress>,
    http: Option<SocketAddr>,
    env: SharedEnv,
    tools: JoinHandle<Vec<Tool>>,
    ports: Ports,
    terminal: Terminal,
}

async fn serve_world(
    loaded: Loaded,
    data_dir: &DataDir,
    store: Option<Store>,
    sqlite: SqliteOptions,
    options: ServeOptions,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    let mut secrets = secrets_of(&loaded, &*options.env);
    let (asked, mut ask) = watch::channel(false);
    let asked = Arc::new(asked);
    let asker = Arc::clone(&asked);
    // Bound before the world runs: a taken port is an error that starts nothing.
    let listeners = if options.listen.is_empty() {
        vec![ListenAddress::Unix(data_dir.path().join("ghostd.sock"))]
    } else {
        options.listen
    };
    let bind = async {
        job::check_place(&data_dir.path().join(WORKSPACE), &options.input)?;
        let tls = tls_files(&*options.env)?;
        ghost_control::bind(ControlOptions {
            listeners,
            http: options.http,
            data_dir: data_dir.path().to_owned(),
            token: (options.env)("GHOST_TOKEN").filter(|token| !token.is_empty()),
            tls,
            on_shutdown: Arc::new(move |_| {
                asker.send_replace(true);
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
    // Closed when the database is: until then whoever waits for this daemon's end is not told that it has come.
    let listeners = bound.listeners();
    let store = match store {
        Some(store) => store,
        None => database::open(data_dir, sqlite).await?,
    };
    let outcome = boot_and_serve(
        loaded,
        data_dir,
        &store,
        secrets,
        bound,
        Rest {
            files: options.files,
            input: options.input,
            tools: options.tools,
            ports: options.ports,
            terminal: options.terminal,
        },
        async move {
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => "signal",
                _ = ask.wait_for(|asked| *asked) => "request",
            }
        },
    )
    .await;
    drop(asked);
    store.close().await;
    drop(listeners);
    outcome
}

struct Rest {
    files: Arc<Files>,
    input: Vec<job::Input>,
    tools: JoinHandle<Vec<Tool>>,
    ports: Ports,
    terminal: Terminal,
}

async fn boot_and_serve(
    loaded: Loaded,
    data_dir: &DataDir,
    store: &Store,
    secrets: Vec<String>,
    bound: ghost_control::Bound,
    rest: Rest,
    stopped: impl Future<Output = &'static str>,
) -> Result<(), Failure> {
    let Rest { files, input, tools, ports, terminal } = rest;
    let job_plan = loaded.plan.job.clone();
    let (world_id, world_name) = (loaded.plan.world_id.clone(), loaded.plan.name.clone());
    let (clock, watch_clock) = (Arc::clone(&ports.clock), Arc::clone(&ports.clock));
    let redactor: Arc<OnceLock<Redactor>> = Arc::default();
    let world_dir = files.world_dir.clone();
    let learning = Arc::clone(&redactor);
    let journal = store.clone();
    let reloader = Box::new(move || {
        let loaded = load(&files.world_dir, &files.overrides, &*files.env, Arc::clone(&clock))
            .map_err(|first| problems_refusal(&files.problems(first)))?;
        if loaded.providers.recorded().next().is_some() {
            recordings::here(recordings::go_on(&journal, &loaded.providers)).flatten()?;
        }
        if let Some(redactor) = learning.get() {
            // Before anything can use a key that the new configuration names.
            redactor.learn(secrets_of(&loaded, &*files.env));
        }
        Ok((loaded.plan, loaded.providers))
    });
    if ghost_world::has_run(store, &world_id).await.map_err(|refusal| database::located(refusal, data_dir))? {
        data_dir.check_workspace()?;
    }
    recordings::go_on(store, &loaded.providers).await.map_err(|refusal| database::located(refusal, data_dir))?;
    let workspace = Workspace::open(&data_dir.path().join(WORKSPACE))?;
    job::put_back(store, &workspace, &input).await?;
    let tools =
        tools.await.map_err(|error| Refusal::new(Code::Internal, format!("the tools could not be made: {error}")))?;
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
        reloader,
    })
    .await
    .map_err(|refusal| database::located(refusal, data_dir))?;
    // From here on the world is one that ran: what it has made stays.
    data_dir.keep(&world_id, &world_dir);
    let held = Held::of(data_dir);
    // Set once: this is the only place that sets it.
    let _ = redactor.set((*world.ctx().redactor).clone());
    let endpoints = bound.endpoints();
    let (closing, closed) = watch::channel(false);
    let mut control = tokio::spawn(bound.serve(Arc::clone(&world), async move {
        let mut closed = closed;
        // An error means that the sender is gone, which is the end as well.
        let _ = closed.wait_for(|closed| *closed).await;
    }));
    terminal.ready(&world_name, &endpoints, data_dir.path());
    let watching = tokio::spawn(terminal.clone().watch(store.clone(), watch_clock.now()));
    let ground = tokio::spawn(Arc::clone(&world).watch_ground());
    let main_job = main_job::begin(&world, job_plan, &input, &terminal, data_dir).await;
    let mut failed = main_job.as_ref().err().cloned();
    let (mut served, mut gone) = (None, None);
    let reason = match failed {
        Some(_) => "the job could not be taken in",
        None => tokio::select! {
            biased;
            reason = stopped => reason,
            refusal = held.gone(&*watch_clock) => {
                gone = Some(refusal);
                "its data are gone"
            }
            why = store.broken() => {
                gone = Some(database::broken(&why));
                "its store has failed"
            }
            // A daemon that nobody can reach is no use: it ends in order, and says why.
            ended = &mut control => {
                served = Some(ended);
                "the control plane failed"
            }
        },
    };
    terminal.stopping(reason);
    ground.abort();
    data_dir.ending();
    tokio::select! {
        biased;
        () = world.shutdown(reason) => {}
        // Turns that are let finish are no use to anyone then.
        () = watch_clock.sleep(GONE_GRACE), if gone.is_some() => {}
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
        Some(refusal) => tracing::warn!(%refusal, "the control plane did not end well"),
        None => {}
    }
    failed.map_or(Ok(()), |refusal| Err(refusal.into()))
}
