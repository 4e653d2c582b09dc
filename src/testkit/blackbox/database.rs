//! Reads the database of a daemon that has ended, to count its rows.
//!
//! This module must never write to the database.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row};

/// Maximum time that a query waits for a daemon that still holds the database.
const PATIENCE: Duration = Duration::from_secs(5);

/// An open database.
pub struct Database {
    connection: Connection,
}

impl Database {
    /// Opens `<data>/ghost.db`.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[must_use]
    pub fn open(data: &Path) -> Self {
        // Not read-only, because opening it must recover the write-ahead log of a killed daemon.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(data.join("ghost.db"), flags).expect("the daemon's database");
        connection.busy_timeout(PATIENCE).expect("a busy timeout");
        Self { connection }
    }

    fn rows<T>(&self, query: &str, read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>) -> Vec<T> {
        let mut statement = self.connection.prepare(query).expect("a query");
        let rows = statement.query_map([], read).expect("a query without parameters");
        rows.collect::<Result<_, _>>().expect("rows of the expected types")
    }

    /// The number that a query returns.
    ///
    /// # Panics
    /// If it returns none.
    #[must_use]
    pub fn number(&self, query: &'static str) -> i64 {
        self.connection.query_row(query, [], |row| row.get(0)).expect("a number")
    }

    /// The texts that a query with one column returns.
    ///
    /// # Panics
    /// If it returns something else.
    #[must_use]
    pub fn texts(&self, query: &'static str) -> Vec<String> {
        self.rows(query, |row| row.get(0))
    }

    /// The pairs of texts that a query with two columns returns.
    ///
    /// # Panics
    /// If it returns something else.
    #[must_use]
    pub fn pairs(&self, query: &'static str) -> Vec<(String, String)> {
        self.rows(query, |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// The result of SQLite's integrity check: `ok`, or a description of the damage.
    #[must_use]
    pub fn integrity(&self) -> String {
        self.texts("PRAGMA integrity_check").join("; ")
    }
}
