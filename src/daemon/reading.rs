//! Reads everything that a start needs, in parallel: the world's files, its models, the job's
//! input. Opens the database at the same time.
//!
//! A refused start must never leave a change behind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghost_config::plan::Plan;
use ghost_config::{Problems, real_place};
use ghost_domain::{Clock, Code, Refusal};
use ghost_store::Store;
use ghost_store::sqlite::SqliteOptions;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::check::check;
use crate::data_dir::{DataDir, default_data_dir};
use crate::input::Folder;
use crate::loading::{Failure, Loaded, Overrides, complete, of_provider, plan_of};
use crate::ports::SharedEnv;
use crate::storage::{Database, StoreOption};
use crate::workspace_dir::WorkspaceDir;
use crate::{database, input, recordings};

/// The location of a world's files, and how to read them.
pub(crate) struct Files {
    pub(crate) world_dir: PathBuf,
    pub(crate) overrides: Overrides,
    /// The workspace; `None` for that of the world file, else the default.
    pub(crate) workspace: Option<PathBuf>,
    /// The database; `None` for that of the world file.
    pub(crate) store: Option<StoreOption>,
    /// Whether to accept data that another world directory created.
    pub(crate) adopt: bool,
    pub(crate) env: SharedEnv,
    /// Names of tools besides the built-in ones.
    pub(crate) extra_tools: Vec<String>,
}

impl Files {
    /// All problems of the files. `first` is the first one found; it is returned if the check finds no error.
    pub(crate) fn problems(&self, first: Problems) -> Problems {
        let all = check(&self.world_dir, &self.overrides, &*self.env, &self.extra_tools);
        if all.has_errors() { all } else { first }
    }
}

/// Everything that a start needs.
pub(crate) struct Read {
    pub(crate) loaded: Loaded,
    pub(crate) input: Folder,
    pub(crate) data_dir: DataDir,
    pub(crate) workspace: WorkspaceDir,
    pub(crate) database: Database,
    /// The open database; `None` if it does not exist yet, has an earlier version, or is PostgreSQL.
    pub(crate) store: Option<Store>,
}

type Opening = JoinHandle<Result<Option<(DataDir, Store)>, Refusal>>;

fn panicked(what: &str) -> Refusal {
    Refusal::new(Code::Internal, format!("{what} panicked"))
}

/// All problems of the files. Reads them on a blocking thread.
async fn failure(files: &Arc<Files>, first: Problems) -> Failure {
    let files = Arc::clone(files);
    match spawn_blocking(move || files.problems(first)).await {
        Ok(problems) => Failure::Problems(problems),
        Err(_) => panicked("reading the configuration").into(),
    }
}

/// Refuses data that lies among the files of the world or of the job's input: agents would read the database.
fn check_apart(data_dir: &Path, input: Option<&Path>, plan: &Plan) -> Result<(), Refusal> {
    let place = real_place(data_dir);
    let input = input.map(real_place).filter(|input| place.starts_with(input));
    match input.or_else(|| plan.data_conflict(&place)) {
        None => Ok(()),
        Some(dir) => {
            let message = format!("the data directory {} is among the files of {}", place.display(), dir.display());
            Err(Refusal::new(Code::InvalidArguments, message).hint("give another directory with --data"))
        }
    }
}

/// Reads everything, on threads of their own. `data_dir` is the data directory, `None` for the default. `input` is
/// the job's input, `None` for the world's own. Returns `None` if `stopped` completes first.
///
/// # Errors
/// If anything is wrong. Then the data directory has not changed.
pub(crate) async fn read(
    files: &Arc<Files>,
    data_dir: Option<PathBuf>,
    input: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    sqlite: &SqliteOptions,
    stopped: impl Future<Output = ()>,
) -> Result<Option<Read>, Failure> {
    // Opening a database of the current version changes nothing, so it need not wait for the configuration.
    let open = |path: PathBuf| -> (PathBuf, Opening) {
        let (file, sqlite, clock) = (path.clone(), sqlite.clone(), Arc::clone(&clock));
        (path, tokio::spawn(async move { database::open_early(&file, sqlite, &*clock).await }))
    };
    let mut opening = data_dir.map(&open);
    let all = async {
        let of = Arc::clone(files);
        let first = spawn_blocking(move || plan_of(&of.world_dir, &of.overrides, &*of.env)).await;
        let first = first.map_err(|_| panicked("reading the configuration"))?.map_err(Failure::Problems)?;
        let recordings = recordings::read_all(&first.llm).await;
        let recordings = recordings.map_err(|unread| Failure::Problems(Problems(vec![of_provider(unread, &first)])))?;
        if opening.is_none() {
            let place = match &first.places.data_dir {
                Some(dir) => dir.clone(),
                None => default_data_dir(&first.world_id, &*files.env)?,
            };
            opening = Some(open(place));
        }
        let database = Database::of(files.store.as_ref(), &first, sqlite, &*files.env)?;
        if let Some((place, _)) = &opening {
            check_apart(place, input.as_deref(), &first)?;
        }
        let input = input::read(&first, input);
        let (env, clock) = (Arc::clone(&files.env), Arc::clone(&clock));
        let completing = spawn_blocking(move || complete(first, &*env, clock, recordings));
        let (completed, input) = tokio::join!(completing, input);
        let loaded = completed.map_err(|_| panicked("reading the configuration"))?.map_err(Failure::Problems)?;
        Ok((loaded, input?, database))
    };
    let all = async {
        match all.await {
            Err(Failure::Problems(first)) => Err(failure(files, first).await),
            read => read,
        }
    };
    let read = tokio::select! {
        biased;
        all = all => all.map(Some),
        () = stopped => Ok(None),
    };
    let opened = match opening {
        Some((path, opening)) => Some((path, opening.await.map_err(|_| panicked("opening the database"))?)),
        None => None,
    };
    match (read, opened) {
        (Ok(Some((loaded, input, database))), Some((path, opened))) => {
            let (data_dir, store) = match opened? {
                Some((data_dir, store)) => (data_dir, Some(store)),
                None => (DataDir::lock(&path, &*clock).await?, None),
            };
            match workspace_of(&data_dir, files, &loaded.plan, &database, &*clock).await {
                Ok(workspace) => Ok(Some(Read { loaded, input, data_dir, workspace, database, store })),
                Err(refusal) => {
                    if let Some(store) = store {
                        store.close().await;
                    }
                    Err(refusal.into())
                }
            }
        }
        (Ok(Some(_)), None) => Err(Refusal::new(Code::Internal, "the data directory was not opened").into()),
        (nothing, opened) => {
            if let Some((_, Ok(Some((_, store))))) = opened {
                store.close().await;
            }
            nothing.map(|_| None)
        }
    }
}

/// Checks that the data belongs to the world and its database, and claims its workspace.
async fn workspace_of(
    data_dir: &DataDir,
    files: &Files,
    plan: &Plan,
    database: &Database,
    clock: &dyn Clock,
) -> Result<WorkspaceDir, Refusal> {
    data_dir.check_origin(&files.world_dir, &plan.world_id, files.adopt)?;
    database.check_kept(data_dir)?;
    WorkspaceDir::claim(data_dir, plan, files.workspace.as_deref(), files.adopt, clock).await
}
