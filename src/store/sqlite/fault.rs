//! Maps errors of SQLite to [`StoreError`]. Only this module knows SQLite's result codes.
//!
//! The mapping must never ignore a failure or name a cause that the result code does not prove.

use std::path::Path;

use crate::error::StoreError;

/// Primary result codes (<https://sqlite.org/rescode.html>).
const ERROR: i32 = 1;
const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const NOTADB: i32 = 26;
/// Extended code: a file ended before the page that was to be read.
const IOERR_SHORT_READ: i32 = 522;
/// Extended code: a write failed or was short, for example because of a quota or a file-size limit.
const IOERR_WRITE: i32 = 778;

/// Messages of SQLite for a missing table or column. It has no result code of its own for this.
const MISSING: [&str; 3] = ["no such table", "no such column", "has no column named"];

/// Whether a row broke a rule of its table, such as a unique name. Then the statement has changed nothing.
pub(crate) fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

/// Maps an error of the database at `path`.
pub(crate) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> StoreError {
    let code = match error {
        rusqlite::Error::SqliteFailure(error, _) => Some(error.extended_code),
        rusqlite::Error::SqlInputError { error, .. } => Some(error.extended_code),
        _ => None,
    };
    let text = error.to_string();
    match code {
        Some(IOERR_WRITE) => StoreError::ReadOnly(format!(
            "the system refused a write to {}: check free space, quotas and file-size limits ({text})",
            path.display()
        )),
        Some(IOERR_SHORT_READ) => StoreError::Damaged { path: path.to_owned(), what: text },
        Some(code) => match code & 0xff {
            FULL => StoreError::Full,
            READONLY => StoreError::ReadOnly(format!(
                "{}: check the rights of the file and its directory ({text})",
                path.display()
            )),
            CORRUPT | NOTADB => StoreError::Damaged { path: path.to_owned(), what: text },
            // All statements are constants of this program and match the schema version in the
            // header. So if a table or column is missing, the database is damaged.
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
