//! The database in the data directory: opened as early as it can be, and none left behind that could not be made whole.
//!
//! Must never: change a database before the configuration is known to be good.

use std::path::{Path, PathBuf};

use ghost_domain::{Clock, Refusal};
use ghost_store::Store;
use ghost_store::sqlite::{SqliteOptions, is_current, open_store};

use crate::data_dir::DataDir;

/// The file in the data directory.
pub(crate) const FILE: &str = "ghost.db";
/// Its log beside it, there as long as it is open.
pub(crate) const LOG: &str = "ghost.db-wal";

/// Locks the data directory and opens its database, if that is there and taken as it is. Any other waits until the
/// configuration is known to be good.
pub(crate) async fn open_early(
    path: &Path,
    sqlite: SqliteOptions,
    clock: &dyn Clock,
) -> Result<Option<(DataDir, Store)>, Refusal> {
    let file = path.join(FILE);
    if !is_current(&file) {
        return Ok(None);
    }
    let data_dir = DataDir::lock(path, clock).await?;
    let store = open_store(&file, sqlite).await.map_err(|error| located(error.into(), &data_dir))?;
    Ok(Some((data_dir, store)))
}

/// Opens a database that is not there yet, or is of an earlier version. One that could not be made whole does not stay.
/// Where a world has run already, none is made.
pub(crate) async fn open(data_dir: &DataDir, sqlite: SqliteOptions) -> Result<Store, Refusal> {
    let file = data_dir.path().join(FILE);
    let named = |end: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let names = ["", "-wal", "-shm", "-journal"].map(named);
    let missing: Vec<&PathBuf> = names.iter().filter(|name| name.symlink_metadata().is_err()).collect();
    let new = missing.contains(&&file);
    let opened = open_store(&file, SqliteOptions { expected: data_dir.has_held_a_world(), ..sqlite }).await;
    if opened.is_err() && new {
        for made in missing {
            // Whatever is not there need not go; the refusal that follows says what is wrong.
            drop(std::fs::remove_file(made));
        }
    }
    opened.map_err(|error| located(error.into(), data_dir))
}

/// A refusal of the start, with the file if it is about one of its records.
pub(crate) fn located(mut refusal: Refusal, data_dir: &DataDir) -> Refusal {
    if refusal.details.as_ref().is_some_and(|details| details.get("table").is_some()) {
        let file = data_dir.path().join(FILE);
        refusal.message = format!("a record of the database {} is damaged: {}", file.display(), refusal.message);
    }
    refusal
}
