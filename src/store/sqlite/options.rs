//! Options: how a database is opened.

use std::time::Duration;

/// How long a statement waits while another program holds a lock on the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Options for opening a database.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Maximum size of the file in pages of 4,096 bytes; `None` means SQLite's own limit. At the
    /// limit, writes fail as on a full disk.
    pub page_limit: Option<u32>,
    /// Number of connections for queries; at least 1. People's requests get half of them at most, and one at least.
    pub reader_connections: usize,
    /// Maximum number of commands in one batch; at least 1.
    pub batch_max: usize,
    /// Maximum number of queued commands; further callers wait for space. At least 1.
    pub queue: usize,
    /// How long a statement waits while another program holds a lock on the file.
    pub busy_timeout: Duration,
    /// If set, the database must exist already and hold data; otherwise opening is refused and no
    /// file is created. The text is the reason, for example `a world has run in its directory`.
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
