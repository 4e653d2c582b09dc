//! The database in the data directory: opened as early as it can be, and none left behind that could not be made whole.
//!
//! Must never: change a database before the configuration is known to be good.

use std::path::Path;

use ghost_domain::Refusal;
use ghost_store::Store;
use ghost_store::sqlite::{SqliteOptions, is_current, open_store};

use crate::data_dir::DataDir;

/// The file in the data directory.
const FILE: &str = "ghost.db";

/// Locks the data directory and opens its database, if that is there and taken as it is. Any other waits until the
/// configuration is known to be good.
pub(crate) async fn open_early(path: &Path, sqlite: SqliteOptions) -> Result<Option<(DataDir, Store)>, Refusal> {
    let file = path.join(FILE);
    if !is_current(&file) {
        return Ok(None);
    }
    let data_dir = DataDir::lock(path)?;
    let store = open_store(&file, sqlite).await?;
    Ok(Some((data_dir, store)))
}

/// Opens a database that is not there yet, or is of an earlier version. One that could not be made whole does not stay.
pub(crate) async fn open(data_dir: &DataDir, sqlite: SqliteOptions) -> Result<Store, Refusal> {
    let file = data_dir.path().join(FILE);
    let new = file.symlink_metadata().is_err();
    let opened = open_store(&file, sqlite).await;
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
