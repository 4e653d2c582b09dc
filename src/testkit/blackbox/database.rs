//! Reads the database of a daemon that has ended, to count its rows.
//!
//! This module must never write to the database.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{Row, SqliteConnection};
use tokio::runtime::Runtime;

/// An open database.
pub struct Database {
    runtime: Runtime,
    pool: SqlitePool,
}

impl Database {
    /// Opens `<data>/ghost.db`.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[must_use]
    pub fn open(data: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // Not read-only, because opening it must recover the write-ahead log of a killed daemon.
        let options = SqliteConnectOptions::new().filename(data.join("ghost.db")).create_if_missing(false);
        let pool = runtime
            .block_on(SqlitePoolOptions::new().max_connections(1).connect_with(options))
            .expect("the daemon's database");
        Self { runtime, pool }
    }

    fn with<T>(&self, work: impl AsyncFn(&mut SqliteConnection) -> Result<T, sqlx::Error>) -> T {
        self.runtime
            .block_on(async {
                let mut connection = self.pool.acquire().await?;
                work(&mut connection).await
            })
            .expect("a query")
    }

    /// The number that a query returns.
    ///
    /// # Panics
    /// If it returns none.
    #[must_use]
    pub fn number(&self, query: &'static str) -> i64 {
        self.with(async |connection| sqlx::query(query).fetch_one(connection).await?.try_get(0))
    }

    /// The texts that a query with one column returns.
    ///
    /// # Panics
    /// If it returns something else.
    #[must_use]
    pub fn texts(&self, query: &'static str) -> Vec<String> {
        self.with(async |connection| {
            sqlx::query(query).fetch_all(connection).await?.iter().map(|row| row.try_get(0)).collect()
        })
    }

    /// The pairs of texts that a query with two columns returns.
    ///
    /// # Panics
    /// If it returns something else.
    #[must_use]
    pub fn pairs(&self, query: &'static str) -> Vec<(String, String)> {
        self.with(async |connection| {
            let rows = sqlx::query(query).fetch_all(connection).await?;
            rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
        })
    }

    /// The result of SQLite's integrity check: `ok`, or a description of the damage.
    #[must_use]
    pub fn integrity(&self) -> String {
        self.texts("PRAGMA integrity_check").join("; ")
    }
}
