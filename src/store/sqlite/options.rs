//! How a database is opened.

use std::time::Duration;

/// How long a statement waits for another program that holds the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Most pages of 4,096 bytes that the file may have; `None` is SQLite's own limit. At the limit the disk counts as
    /// full.
    pub page_limit: Option<u32>,
    /// Connections for queries; at least 1.
    pub reader_connections: usize,
    /// Most commands of one transaction; at least 1.
    pub batch_max: usize,
    /// Most commands that wait; further callers wait in line. At least 1.
    pub queue: usize,
    /// How long a statement waits for another program that holds the file.
    pub busy_timeout: Duration,
    /// Why there must be a database already, if so, such as `a world has run in its directory`: one that is missing or holds
    /// nothing is then refused and never made.
    pub expected: Option<&'static str>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            page_limit: None,
            reader_connections: 4,
            batch_max: 512,
            queue: 1_024,
            busy_timeout: BUSY_TIMEOUT,
            expected: None,
        }
    }
}
