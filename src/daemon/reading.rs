//! What a world is started with, read side by side: its files, its models, the job's input, and the database, which is
//! opened meanwhile.
//!
//! Must never: leave anything changed when something of it is wrong.

use std::path::PathBuf;
use std::sync::Arc;

use ghost_config::Problems;
use ghost_domain::{Clock, Code, Refusal};
use ghost_provider::scripted::Vetted;
use ghost_store::Store;
use ghost_store::sqlite::SqliteOptions;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::check::check;
use crate::data_dir::{DataDir, default_data_dir};
use crate::environment::SharedEnv;
use crate::loading::{Loaded, Overrides, complete};
use crate::run::Failure;
use crate::{database, job, recordings, vetted_scripts};

/// The files that a world is made of, and what is asked about them.
pub(crate) struct Files {
    pub(crate) world_dir: PathBuf,
    pub(crate) overrides: Overrides,
    pub(crate) env: SharedEnv,
    /// Names of tools besides the built-in ones.
    pub(crate) extra_tools: Vec<String>,
}

impl Files {
    /// Everything that is wrong with them, now that `first` was found.
    pub(crate) fn problems(&self, first: Problems) -> Problems {
        let all = check(&self.world_dir, &self.overrides, &*self.env, &self.extra_tools);
        if all.has_errors() { all } else { first }
    }
}

/// Everything that a world is started with.
pub(crate) struct Read {
    pub(crate) loaded: Loaded,
    pub(crate) input: Vec<job::Input>,
    /// Rule files that needed no reading.
    pub(crate) vetted: Vetted,
    pub(crate) data_dir: DataDir,
    /// The database, if it could be opened as it is.
    pub(crate) store: Option<Store>,
}

type Opening = JoinHandle<Result<Option<(DataDir, Store)>, Refusal>>;

fn panicked(what: &str) -> Refusal {
    Refusal::new(Code::Internal, format!("{what} panicked"))
}

/// Reads all of it. `data_dir` is where the data lie, `None` the usual place; `input` the job's, `None` the world's own.
///
/// # Errors
/// When anything is wrong with it; the data directory is as it was then.
pub(crate) async fn read(
    files: &Files,
    data_dir: Option<PathBuf>,
    input: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    sqlite: &SqliteOptions,
) -> Result<Read, Failure> {
    // If something turns out to be wrong with the files, a database that is taken as it is, is as it was.
    let open = |path: PathBuf| -> (PathBuf, Opening) {
        let (file, sqlite) = (path.clone(), sqlite.clone());
        (path, tokio::spawn(async move { database::open_early(&file, sqlite).await }))
    };
    let mut opening = data_dir.map(&open);
    let read = async {
        let first = ghost_config::load(&files.world_dir, &*files.env)
            .map_err(|first| Failure::Problems(files.problems(first)))?;
        let recordings = recordings::read_all(&first.llm).await?;
        let (path, _) = match &mut opening {
            Some(opening) => opening,
            None => opening.insert(open(default_data_dir(&first.world_id, &*files.env)?)),
        };
        let path = path.clone();
        let input = job::read(&first, input);
        let (overrides, env) = (files.overrides.clone(), Arc::clone(&files.env));
        let completing = spawn_blocking(move || {
            let vetted = vetted_scripts::read(&path);
            (complete(first, &overrides, &*env, clock, recordings, &vetted), vetted)
        });
        let (completed, input) = tokio::join!(completing, input);
        let (loaded, vetted) = completed.map_err(|_| panicked("reading the configuration"))?;
        let loaded = loaded.map_err(|first| Failure::Problems(files.problems(first)))?;
        Ok::<_, Failure>((loaded, input?, vetted))
    }
    .await;
    let opened = match opening {
        Some((path, opening)) => Some((path, opening.await.map_err(|_| panicked("opening the database"))?)),
        None => None,
    };
    match (read, opened) {
        (Ok((loaded, input, vetted)), Some((path, opened))) => {
            let (data_dir, store) = match opened? {
                Some((data_dir, store)) => (data_dir, Some(store)),
                None => (DataDir::lock(&path)?, None),
            };
            Ok(Read { loaded, input, vetted, data_dir, store })
        }
        (Ok(_), None) => Err(Refusal::new(Code::Internal, "nobody said where the data lie").into()),
        (Err(failure), opened) => {
            if let Some((_, Ok(Some((_, store))))) = opened {
                store.close().await;
            }
            Err(failure)
        }
    }
}
