//! Maps errors of SQLite to [`StoreError`]. Only this module knows SQLite's result codes.
//!
//! The mapping must never ignore a failure or name a cause that the result code does not prove.

use std::path::Path;

use rusqlite::ffi;

use crate::error::StoreError;

/// Messages of SQLite for a missing table or column. It has no result code of its own for this.
const MISSING: [&str; 3] = ["no such table", "no such column", "has no column named"];

/// Whether a row broke a rule of its table, such as a unique name. Then the statement has changed nothing.
pub(crate) fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

/// Maps an error of the database at `path`.
pub(crate) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> StoreError {
    let code = match error {
        rusqlite::Error::SqliteFailure(error, _) => error.extended_code,
        rusqlite::Error::SqlInputError { error, .. } => error.extended_code,
        _ => ffi::SQLITE_OK,
    };
    let (text, place) = (error.to_string(), path.display());
    // All statements are constants of this program and match the schema version in the header. So if a table or column is
    // missing, the database is damaged.
    let is_missing = MISSING.iter().any(|words| text.contains(words));
    match (code, code & 0xff) {
        (ffi::SQLITE_IOERR_WRITE, _) => StoreError::ReadOnly(format!(
            "the system refused a write to {place}: check free space, quotas and file-size limits ({text})"
        )),
        (ffi::SQLITE_IOERR_SHORT_READ, _) | (_, ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB) => {
            StoreError::Damaged { path: path.to_owned(), what: text }
        }
        (_, ffi::SQLITE_ERROR) if is_missing => StoreError::Damaged { path: path.to_owned(), what: text },
        (_, ffi::SQLITE_FULL) => StoreError::Full,
        (_, ffi::SQLITE_READONLY) => {
            StoreError::ReadOnly(format!("{place}: check the rights of the file and its directory ({text})"))
        }
        (_, ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED) => {
            StoreError::Busy(format!("{place} is locked by another program: close what else has it open ({text})"))
        }
        (_, ffi::SQLITE_IOERR) => {
            StoreError::Busy(format!("input or output on {place} failed: check the disk ({text})"))
        }
        _ => StoreError::Database(format!("{text} ({place})")),
    }
}
