//! What SQLite says, in the store's own words. The only place that knows result codes.
//!
//! Must never: turn a failure into silence, or name a cause that the code does not prove.

use std::path::Path;

use crate::StoreError;

/// Primary result codes (sqlite.org/rescode.html).
const ERROR: i32 = 1;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const NOTADB: i32 = 26;
/// Extended: a write came back short or refused, as a quota or a file-size limit does it.
const IOERR_WRITE: i32 = 778;

/// What SQLite says of a table or column that is not there; it has no code of its own for it.
const MISSING: [&str; 3] = ["no such table", "no such column", "has no column named"];

/// The store's error for a failure of `path`.
pub(super) fn of(path: &Path, error: &sqlx::Error) -> StoreError {
    let code = match error {
        sqlx::Error::Database(error) => error.code().and_then(|code| code.parse::<i32>().ok()),
        // The thread that runs a connection's statements does not come back.
        sqlx::Error::WorkerCrashed => return StoreError::Broken("the thread of its connection is gone".into()),
        _ => None,
    };
    let text = error.to_string();
    match code {
        Some(IOERR_WRITE) => StoreError::ReadOnly(format!(
            "the system refused a write to {}: check free space, quotas and file-size limits ({text})",
            path.display()
        )),
        Some(code) => match code & 0xff {
            FULL => StoreError::Full,
            READONLY => StoreError::ReadOnly(format!(
                "{}: check the rights of the file and its directory ({text})",
                path.display()
            )),
            CORRUPT | NOTADB => StoreError::Damaged { path: path.to_owned(), what: text },
            // Every statement is a constant of this program, and fits the schema that the version in the header stands for.
            ERROR if MISSING.iter().any(|words| text.contains(words)) => {
                StoreError::Damaged { path: path.to_owned(), what: text }
            }
            BUSY | LOCKED => StoreError::Busy(format!(
                "{} is locked by another program: close what else has it open ({text})",
                path.display()
            )),
            IOERR => StoreError::Busy(format!("input or output on {} failed: check the disk ({text})", path.display())),
            _ => StoreError::Database(format!("{text} ({})", path.display())),
        },
        None => StoreError::Database(format!("{text} ({})", path.display())),
    }
}

/// A second copy of an error: one failed batch has many callers.
pub(super) fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Closed => StoreError::Closed,
        StoreError::Nested => StoreError::Nested,
        StoreError::Open { path, what } => StoreError::Open { path: path.clone(), what: what.clone() },
        StoreError::Newer { path, found, known } => {
            StoreError::Newer { path: path.clone(), found: *found, known: *known }
        }
        StoreError::Damaged { path, what } => StoreError::Damaged { path: path.clone(), what: what.clone() },
        StoreError::Gone { path } => StoreError::Gone { path: path.clone() },
        StoreError::Full => StoreError::Full,
        StoreError::ReadOnly(what) => StoreError::ReadOnly(what.clone()),
        StoreError::Row { table, key, what } => StoreError::Row { table, key: key.clone(), what: what.clone() },
        StoreError::Database(what) => StoreError::Database(what.clone()),
        StoreError::Busy(what) => StoreError::Busy(what.clone()),
        StoreError::Broken(what) => StoreError::Broken(what.clone()),
    }
}
