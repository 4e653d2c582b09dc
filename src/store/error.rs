//! Errors of the store: failures of the database itself.

use std::path::PathBuf;

use ghost_domain::{Code, Refusal};
use serde_json::json;

/// The result of every table method.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A failure of the store. If a rule refuses a request, the error is a [`Refusal`] instead.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The store is closed. Nothing that the command wrote is stored, except after a simulated
    /// crash right after a commit (`MemoryDisk::crash_after_commits`).
    #[error("the store is closed")]
    Closed,
    /// A command called the store from within itself. The inner command could only start after the
    /// outer one has ended, so it would wait forever. Nothing was written for it.
    #[error("a command or query called the store from within itself: it must use the tables that it was given")]
    Nested,
    /// The database could not be opened.
    #[error("cannot open the database {path}: {what}")]
    Open {
        /// Path of the database file.
        path: PathBuf,
        /// The cause, and what the operator can do about it.
        what: String,
    },
    /// Another daemon has the schema.
    #[error("another ghostd uses the database {path}")]
    InUse {
        /// What the database and schema are called.
        path: PathBuf,
    },
    /// The database was written by a newer ghostd.
    #[error(
        "the database {path} has schema version {found}, and this ghostd knows versions up to {known}: run the ghostd that wrote it, or a newer one"
    )]
    Newer {
        /// Path of the database file.
        path: PathBuf,
        /// Schema version in the file.
        found: i64,
        /// Newest schema version that this program knows.
        known: i64,
    },
    /// The file system has too little space for the upgrade of the database. Nothing was changed.
    #[error(
        "the database {path} must be upgraded, which needs {} MiB of free space for a while, and its file system has {} MiB",
        needed.div_ceil(1 << 20),
        free >> 20
    )]
    NoRoom {
        /// Path of the database file.
        path: PathBuf,
        /// Bytes that the upgrade may need.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The database is damaged. The store never deletes or repairs a damaged database.
    #[error(
        "the database {path} is damaged: {what}: restore it from a backup, or move the whole directory away to start an empty world"
    )]
    Damaged {
        /// Path of the database file.
        path: PathBuf,
        /// The damage that was found.
        what: String,
    },
    /// The file was removed or replaced after it was opened, so later writes would be lost. Nothing
    /// of the batch is stored.
    #[error("the database {path} was removed or replaced while it was in use")]
    Gone {
        /// Path of the database file.
        path: PathBuf,
    },
    /// The disk is full. Nothing of the batch is stored.
    #[error("the disk under the database is full: free some space; nothing that was acknowledged is lost")]
    Full,
    /// The file cannot be written. The text says why.
    #[error("the database cannot be written: {0}")]
    ReadOnly(String),
    /// A temporary fault: another program holds a lock, or an input or output error occurred.
    /// Nothing of the batch is stored.
    #[error("the database cannot be used for the moment: {0}")]
    Busy(String),
    /// The writer or its connection has ended. It is unknown whether the batch was stored.
    #[error(
        "the database cannot be used any more, {0}: it is unknown whether the last changes were stored; check after the daemon has restarted"
    )]
    Broken(String),
    /// A row is not usable: a stored row cannot be decoded, or a new row cannot be encoded or
    /// breaks a rule of its table, such as a unique name.
    #[error("table {table}, row `{key}`: {what}")]
    Row {
        /// Name of the table.
        table: &'static str,
        /// Key of the row, or another text that identifies it.
        key: String,
        /// The problem of the row.
        what: String,
    },
    /// Any other error of the database.
    #[error("database error: {0}")]
    Database(String),
}

/// The detail of a refusal by which [`is_away`] knows it.
const AWAY: &str = "store";

/// Whether a refusal says that the store itself cannot work for the moment. Then no rule has refused anything.
#[must_use]
pub fn is_away(refusal: &Refusal) -> bool {
    refusal.details.as_ref().is_some_and(|details| details.get(AWAY).is_some())
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Closed
            | StoreError::NoRoom { .. }
            | StoreError::Full
            | StoreError::ReadOnly(_)
            | StoreError::Busy(_)
            | StoreError::Gone { .. } => Code::Unavailable,
            StoreError::InUse { .. } => Code::Conflict,
            _ => Code::Internal,
        };
        // The details name the damaged record, so that an operator can find it in the file.
        let details = match &error {
            StoreError::Row { table, key, .. } => Some(json!({ "table": table, "row": key })),
            StoreError::Full | StoreError::ReadOnly(_) | StoreError::Busy(_) => {
                Some(json!({ AWAY: error.to_string() }))
            }
            _ => None,
        };
        let hint = match &error {
            StoreError::Gone { .. } => {
                Some("nothing was changed and the daemon stops: put the database back, then start the daemon again")
            }
            StoreError::Damaged { .. } => {
                Some("`ghostd check --data DIR` checks a database that no daemon uses; one that runs stops")
            }
            StoreError::InUse { .. } => Some("stop it, or give this world another name or database"),
            StoreError::Open { .. } => {
                Some("repair what is named here, or restore the file from a backup; then start again")
            }
            StoreError::NoRoom { .. } => {
                Some("nothing was changed: free some space and start again; the program that ran before still works")
            }
            StoreError::Row { .. } => Some(
                "if the record cannot be read, it is damaged: stop the daemon and restore the database from a backup",
            ),
            StoreError::Full => Some("nothing was changed; free some space and try again"),
            StoreError::Broken(_) => Some(
                "the daemon stops; check after its restart whether the change was stored, and repeat it if it was not",
            ),
            StoreError::Closed => Some("the daemon is stopping; try again when it runs again"),
            _ => None,
        };
        Self { details, hint: hint.map(str::to_owned), ..Self::new(code, error.to_string()) }
    }
}
