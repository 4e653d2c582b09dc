//! What can go wrong below the rules: the database itself.

use std::path::PathBuf;

use ghost_domain::{Code, Refusal};
use serde_json::json;

/// What every table method gives.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A failure of the store. A rule that refuses is a [`Refusal`], not one of these.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store has been closed; nothing of the command was kept.
    #[error("the store is closed")]
    Closed,
    /// A command asked the store for another one, which could only begin when it has ended. Nothing was written for it.
    #[error("a command or query called the store from within itself: it must use the tables that it was given")]
    Nested,
    /// The database could not be opened.
    #[error("cannot open the database {path}: {what}")]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why, and what to do.
        what: String,
    },
    /// The database was written by a newer ghostd.
    #[error(
        "the database {path} has schema version {found}, and this ghostd knows versions up to {known}: run the ghostd that wrote it, or a newer one"
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// What it says of itself.
        found: i64,
        /// What this program knows.
        known: i64,
    },
    /// The database is damaged. It is never deleted or repaired on the quiet.
    #[error(
        "the database {path} is damaged: {what}: restore it from a backup, or move the whole directory away to start an empty world"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The file is no longer where it was opened: what is written now would be found by nobody. Nothing of the batch was kept.
    #[error("the database {path} was removed or replaced while it was in use")]
    Gone {
        /// Which file.
        path: PathBuf,
    },
    /// No room. Nothing of the batch was kept.
    #[error("the disk under the database is full: free some space; nothing that was acknowledged is lost")]
    Full,
    /// The file cannot be written.
    #[error("the database cannot be written: {0}")]
    ReadOnly(String),
    /// A passing fault: locked by another program, or an input or output error. Nothing of the batch was kept.
    #[error("the database cannot be used for the moment: {0}")]
    Busy(String),
    /// What works on the database broke down. Nobody knows whether the batch was kept.
    #[error("the database cannot be used any more, {0}: whether this was kept shows when the daemon is back")]
    Broken(String),
    /// A stored row does not read back.
    #[error("table {table}, row `{key}`: {what}")]
    Row {
        /// Which table.
        table: &'static str,
        /// Which row.
        key: String,
        /// What is wrong with it.
        what: String,
    },
    /// Anything else that the database said.
    #[error("the database said: {0}")]
    Database(String),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Closed
            | StoreError::Full
            | StoreError::ReadOnly(_)
            | StoreError::Busy(_)
            | StoreError::Gone { .. } => Code::Unavailable,
            _ => Code::Internal,
        };
        // Where a record lies, for whoever knows the file.
        let details = match &error {
            StoreError::Row { table, key, .. } => Some(json!({ "table": table, "row": key })),
            _ => None,
        };
        let hint = match &error {
            StoreError::Gone { .. } => {
                Some("nothing was changed; the daemon ends, so start it again where its data are")
            }
            StoreError::Row { .. } => Some(
                "a record that does not read back is damaged: stop the daemon and restore the database from a backup",
            ),
            StoreError::Full => Some("nothing was changed; free some space and try again"),
            StoreError::Broken(_) => Some("the daemon ends; look when it is back, and try again if need be"),
            StoreError::Closed => Some("the daemon is stopping; try again when it is back"),
            _ => None,
        };
        let refusal = Refusal::new(code, error.to_string());
        let refusal = match details {
            Some(details) => refusal.details(details),
            None => refusal,
        };
        match hint {
            Some(hint) => refusal.hint(hint),
            None => refusal,
        }
    }
}
