//! Maps errors of PostgreSQL to [`StoreError`]. Only this module knows SQLSTATEs
//! (<https://www.postgresql.org/docs/current/errcodes-appendix.html>).
//!
//! The mapping must never ignore a failure, name a cause that the code does not prove, or show a URL.

use std::io::{Error as IoError, ErrorKind};
use std::path::Path;

use crate::error::StoreError;

/// The server sent no answer in time.
pub(super) fn no_answer() -> sqlx::Error {
    sqlx::Error::Io(IoError::new(ErrorKind::TimedOut, "the server does not answer"))
}

/// There is no connection.
pub(super) fn not_connected() -> sqlx::Error {
    sqlx::Error::Io(IoError::new(ErrorKind::NotConnected, "the connection to the server is lost"))
}

/// The query's caller has left.
pub(super) fn interrupted() -> sqlx::Error {
    sqlx::Error::Io(IoError::new(ErrorKind::Interrupted, "the caller of the query has left"))
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

/// Whether the connection can no longer be used. It is unknown whether the server has followed its last order.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(_) => {
            code(error).is_some_and(|code| code.starts_with("08") || code.starts_with("57P") || code == "25P03")
        }
        sqlx::Error::RowNotFound | sqlx::Error::ColumnIndexOutOfBounds { .. } | sqlx::Error::Encode(_) => false,
        _ => true,
    }
}

/// What the error says. `sqlx` adds the line in the server's own source, which no user looks for.
fn text(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

/// The rule of a table that a row broke, if that is the error. Then the statement has changed nothing.
pub(super) fn broken_rule(error: &sqlx::Error) -> Option<String> {
    code(error).filter(|code| code.starts_with("23")).map(|_| text(error))
}

/// Maps an error of a statement.
pub(super) fn from_postgres(name: &Path, error: &sqlx::Error) -> StoreError {
    let (name, says) = (name.display(), text(error));
    if is_lost(error) {
        return StoreError::Busy(format!("{name}: {says}: the store connects again by itself"));
    }
    let Some(code) = code(error) else { return StoreError::Database(format!("{says} ({name})")) };
    match code.as_str() {
        "53100" => StoreError::Full,
        "25006" => {
            StoreError::ReadOnly(format!("{name} is a standby or read-only: give the URL of the primary ({says})"))
        }
        "42501" => StoreError::ReadOnly(format!("{name}: check the rights of the role ({says})")),
        // All statements are constants of this program and match the schema version. So if a table or column is missing,
        // the schema is damaged.
        "42P01" | "42703" | "3F000" | "XX001" | "XX002" => {
            StoreError::Damaged { path: name.to_string().into(), what: says }
        }
        // Memory, connections, locks, a deadlock, a statement that took too long.
        _ if ["53", "40", "55", "57"].iter().any(|class| code.starts_with(class)) => {
            StoreError::Busy(format!("{name}: {says}"))
        }
        _ => StoreError::Database(format!("{says} ({name}, SQLSTATE {code})")),
    }
}

/// Maps an error of a connection that does not open, or of a schema that cannot be made.
pub(super) fn opening(name: &Path, error: &sqlx::Error) -> StoreError {
    let hint = match (code(error).as_deref(), error) {
        (Some("28P01" | "28000"), _) => "check the user and the password in its URL, and pg_hba.conf",
        (Some("3D000"), _) => "create the database, or correct its name in the URL",
        (Some("42501"), _) => "grant the role CONNECT and CREATE on the database, or make it the owner of the schema",
        (Some("53300"), _) => "the server has no connection left: raise max_connections, or close others",
        (Some("57P03"), _) => "the server is starting or stopping: wait",
        (_, sqlx::Error::Tls(_)) => "check `sslmode` in its URL, and the server's certificate",
        (None, _) => "check that the server runs and that host and port of its URL are right",
        _ => "see the log of the server",
    };
    StoreError::Open { path: name.to_owned(), what: format!("{}: {hint}", text(error)) }
}
