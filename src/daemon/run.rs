//! From options to a world that serves, and back to an orderly end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ghost_commons::budgets;
use ghost_config::Problems;
use ghost_control::{ControlOptions, Listener, TlsFiles};
use ghost_domain::ports::Ports;
use ghost_domain::redact::Redactor;
use ghost_domain::{Code, Job, Money, Refusal};
use ghost_store::Store;
use ghost_store::sqlite::{SqliteOptions, is_current, open_store};
use ghost_store::tables::UsageFilter;
use ghost_tools::Tool;
use ghost_tools::workspace::Workspace;
use ghost_world::{Boot, World};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::check::check;
use crate::data_dir::{DataDir, default_data_dir};
use crate::loading::{Loaded, Overrides, complete, load, problems_refusal};
use crate::terminal::Terminal;
use crate::{job, recordings};

/// The database in the data directory.
const DATABASE: &str = "ghost.db";
/// The agents' files in the data directory.
const WORKSPACE: &str = "workspace";

/// Reads an environment variable; shared with the reload.
pub type SharedEnv = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What a daemon is started with.
pub struct Options {
    /// The world's directory.
    pub world_dir: PathBuf,
    /// Where its data lie; `None` is the usual place.
    pub data_dir: Option<PathBuf>,
    /// The job's input; `None` is the world's own.
    pub input: Option<PathBuf>,
    /// Where gRPC listens; empty is the socket in the data directory.
    pub listen: Vec<Listener>,
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

/// Why a daemon did not start, or did not end well.
#[derive(Debug)]
pub enum Failure {
    /// The configuration.
    Problems(Problems),
    /// Anything else.
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Boots the world and serves it until `stop` turns true or a client asks for the end.
///
/// # Errors
/// When it cannot start: the configuration has problems, the data directory is in use or not writable, a port is taken,
/// the database is damaged, the job's input cannot be taken in. Nothing runs then, and the data directory is as it was.
pub async fn run(options: Options, stop: watch::Receiver<bool>) -> Result<(), Failure> {
    let env = Arc::clone(&options.env);
    let extra = options.extra_tools;
    let files = Files {
        world_dir: options.world_dir,
        overrides: options.overrides,
        env: Arc::clone(&env),
        extra_tools: extra.iter().map(|tool| tool.spec.name.clone()).collect(),
    };
    let tools = tokio::task::spawn_blocking(move || ghost_tools::builtins::with(extra));
    let sqlite = SqliteOptions { page_limit: options.page_limit, ..SqliteOptions::default() };
    // A database that is taken as it is can be opened while the files are read: if something is wrong with these, it is
    // as it was. Any other waits until the configuration is known to be good.
    let open = |path: PathBuf| {
        let sqlite = sqlite.clone();
        tokio::spawn(async move {
            let opened = open_early(&path, sqlite).await;
            (path, opened)
        })
    };
    let panicked = |what: &str| Refusal::new(Code::Internal, format!("{what} panicked"));
    let mut opening = options.data_dir.map(&open);
    let read = async {
        let first =
            ghost_config::load(&files.world_dir, &*env).map_err(|first| Failure::Problems(files.problems(first)))?;
        let recordings = recordings::read_all(&first.llm).await?;
        if opening.is_none() {
            opening = Some(open(default_data_dir(&first.world_id, &*env)?));
        }
        let input = job::read(&first, options.input);
        let (overrides, env, clock) = (files.overrides.clone(), Arc::clone(&env), Arc::clone(&options.ports.clock));
        let reading = tokio::task::spawn_blocking(move || complete(first, &overrides, &*env, clock, recordings));
        let (loaded, input) = tokio::join!(reading, input);
        let loaded = loaded.map_err(|_| panicked("reading the configuration"))?;
        Ok::<_, Failure>((loaded.map_err(|first| Failure::Problems(files.problems(first)))?, input?))
    }
    .await;
    let opened = match opening {
        Some(opening) => Some(opening.await.map_err(|_| panicked("opening the database"))?),
        None => None,
    };
    let ((loaded, input), (path, opened)) = match (read, opened) {
        (Ok(read), Some(opened)) => (read, opened),
        (Ok(_), None) => return Err(Refusal::new(Code::Internal, "nobody said where the data lie").into()),
        (Err(failure), opened) => {
            if let Some((_, Ok(Some((_, store))))) = opened {
                store.close().await;
            }
            return Err(failure);
        }
    };
    for warning in &loaded.plan.warnings {
        tracing::warn!("{}", warning.bare());
    }
    let (data_dir, store) = match opened? {
        Some((data_dir, store)) => (data_dir, Some(store)),
        None => (DataDir::lock(&path)?, None),
    };
    let result = serve_world(
        loaded,
        &data_dir,
        store,
        sqlite,
        ServeOptions {
            files,
            input,
            listen: options.listen,
            http: options.http,
            env,
            tools,
            ports: options.ports,
            terminal: options.terminal,
        },
        stop,
    )
    .await;
    drop(data_dir);
    result
}

/// The files that a world is made of, and what is asked about them.
struct Files {
    world_dir: PathBuf,
    overrides: Overrides,
    env: SharedEnv,
    /// Names of tools besides the built-in ones.
    extra_tools: Vec<String>,
}

impl Files {
    /// Everything that is wrong with them, now that `first` was found.
    fn problems(&self, first: Problems) -> Problems {
        let all = check(&self.world_dir, &self.overrides, &*self.env, &self.extra_tools);
        if all.has_errors() { all } else { first }
    }
}

struct ServeOptions {
    files: Files,
    input: Vec<job::Input>,
    listen: Vec<Listener>,
    http: Option<SocketAddr>,
    env: SharedEnv,
    tools: JoinHandle<Vec<Tool>>,
    ports: Ports,
    terminal: Terminal,
}

/// Locks the data directory and opens its database, if that is there and of this version.
async fn open_early(path: &Path, sqlite: SqliteOptions) -> Result<Option<(DataDir, Store)>, Refusal> {
    let file = path.join(DATABASE);
    if !is_current(&file) {
        return Ok(None);
    }
    let data_dir = DataDir::lock(path)?;
    let store = open_store(&file, sqlite).await?;
    Ok(Some((data_dir, store)))
}

/// Opens a database that is not there yet, or is of an earlier version. One that could not be made whole does not stay.
async fn open_new(file: &Path, sqlite: SqliteOptions) -> Result<Store, Refusal> {
    let new = file.symlink_metadata().is_err();
    let opened = open_store(file, sqlite).await;
    if opened.is_err() && new {
        for left in ["", "-wal", "-shm", "-journal"] {
            let mut name = file.as_os_str().to_owned();
            name.push(left);
            // Whatever is not there need not go; the refusal that follows says what is wrong.
            drop(std::fs::remove_file(name));
        }
    }
    opened.map_err(Refusal::from)
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
        vec![Listener::Unix(data_dir.path().join("ghostd.sock"))]
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
    let bound = match bind.await {
        Ok(bound) => bound,
        Err(refusal) => {
            if let Some(store) = store {
                store.close().await;
            }
            return Err(refusal.into());
        }
    };
    secrets.extend(bound.token().map(str::to_owned));
    let store = match store {
        Some(store) => store,
        None => open_new(&data_dir.path().join(DATABASE), sqlite).await?,
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
    outcome
}

struct Rest {
    files: Files,
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
    let world_name = loaded.plan.name.clone();
    let clock = Arc::clone(&ports.clock);
    let redactor: Arc<OnceLock<Redactor>> = Arc::default();
    let learning = Arc::clone(&redactor);
    let reloader = Box::new(move || {
        let loaded = load(&files.world_dir, &files.overrides, &*files.env, Arc::clone(&clock), BTreeMap::new())
            .map_err(|first| problems_refusal(&files.problems(first)))?;
        if let Some(redactor) = learning.get() {
            // Before anything can use a key that the new configuration names.
            redactor.learn(secrets_of(&loaded, &*files.env));
        }
        Ok((loaded.plan, loaded.providers))
    });
    let workspace = Workspace::open(&data_dir.path().join(WORKSPACE))?;
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
    .await?;
    // From here on the world is one that ran: what it has made stays.
    data_dir.keep();
    // Set once: this is the only place that sets it.
    let _ = redactor.set((*world.cx().redactor).clone());
    let endpoints = bound.endpoints();
    let (closing, closed) = watch::channel(false);
    let mut control = tokio::spawn(bound.serve(Arc::clone(&world), async move {
        let mut closed = closed;
        // An error means that the sender is gone, which is the end as well.
        let _ = closed.wait_for(|closed| *closed).await;
    }));
    terminal.ready(&world_name, &endpoints, data_dir.path());
    let watching = tokio::spawn(terminal.clone().watch(store.clone()));
    let main_job = begin_job(&world, job_plan, &input, &terminal, data_dir).await;
    let mut failed = main_job.as_ref().err().cloned();
    let mut served = None;
    let reason = match failed {
        Some(_) => "the job could not be taken in",
        None => tokio::select! {
            biased;
            reason = stopped => reason,
            // A daemon that nobody can reach is no use: it ends in order, and says why.
            ended = &mut control => {
                served = Some(ended);
                "the control plane failed"
            }
        },
    };
    terminal.stopping(reason);
    world.shutdown(reason).await;
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

/// Takes the job in and follows it in a task of its own. Nothing if the world has no job.
async fn begin_job(
    world: &Arc<World>,
    plan: Option<ghost_config::plan::JobPlan>,
    input: &[job::Input],
    terminal: &Terminal,
    data_dir: &DataDir,
) -> Result<Option<tokio::task::JoinHandle<()>>, Refusal> {
    let Some(plan) = plan else { return Ok(None) };
    let (job, brief) = job::begin(world, &plan, input).await?;
    let root = data_dir.path().join(WORKSPACE);
    let done = job.finished_at.is_some();
    if done {
        terminal.job_was_done(&job, &root);
    } else {
        terminal.job(&job);
    }
    if world.directory().is_paused() {
        terminal.paused();
    }
    if done {
        return Ok(None);
    }
    let (world, terminal) = (Arc::clone(world), terminal.clone());
    Ok(Some(tokio::spawn(async move {
        let (shown, job_id) = (terminal.clone(), job.job_id.clone());
        let still = move |why: &str| shown.job_stands(&job_id, why);
        match job::follow(Arc::clone(&world), plan, job, brief, still).await {
            Ok(job) => {
                let (tokens, cost) = spent(&world, &job).await.unwrap_or_default();
                terminal.job_done(&job, &root, tokens, cost);
            }
            Err(refusal) => tracing::debug!(%refusal, "the job is no longer followed"),
        }
    })))
}

/// What a job cost so far.
async fn spent(world: &World, job: &Job) -> Result<(u64, Money), Refusal> {
    let filter = UsageFilter { root_id: Some(job.root_id), ..UsageFilter::default() };
    let sums = world.store().read(move |r| Box::pin(async move { budgets::usage(r, &filter).await })).await?;
    Ok(sums.iter().fold((0, Money(0)), |(tokens, cost), sum| (tokens + sum.tokens.total(), cost.plus(sum.cost))))
}

/// The values that must not get out: keys of providers and what the world file names besides.
fn secrets_of(loaded: &Loaded, env: &(dyn Fn(&str) -> Option<String> + Send + Sync)) -> Vec<String> {
    let keys = loaded.plan.llm.providers.values().filter_map(|provider| provider.api_key_env.as_deref());
    let named = loaded.plan.secret_env.iter().map(String::as_str);
    keys.chain(named).chain(["GHOST_TOKEN"]).filter_map(env).filter(|value| !value.is_empty()).collect()
}

/// The files of mutual TLS, if the environment names them: all three, or none.
fn tls_files(env: &(dyn Fn(&str) -> Option<String> + Send + Sync)) -> Result<Option<TlsFiles>, Refusal> {
    let named = |name: &str| env(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    match (named("GHOST_TLS_CERT"), named("GHOST_TLS_KEY"), named("GHOST_TLS_CA")) {
        (None, None, None) => Ok(None),
        (Some(certificate), Some(key), Some(client_ca)) => Ok(Some(TlsFiles { certificate, key, client_ca })),
        _ => Err(Refusal::new(Code::InvalidArguments, "mutual TLS is set up in part")
            .hint("set GHOST_TLS_CERT, GHOST_TLS_KEY and GHOST_TLS_CA, or none of them")),
    }
}

/// This daemon's name: the host and the process, so that two daemons on one database are told apart.
fn node_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}
