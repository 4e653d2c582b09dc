//! Runs all tests of this crate once more, with each world on PostgreSQL.

use std::process::Command;
use std::sync::Mutex;

use ghost_store::Store;
use ghost_store::postgres::testing::{Cluster, empty};
use ghost_store::postgres::{PostgresOptions, open_store};

/// The URL on which the worlds of a test program are. It is set for the second run.
const URL: &str = "GHOST_TEST_STORE";

/// Schemas that no world uses, and the number of schemas.
static SCHEMAS: Mutex<(Vec<u32>, u32)> = Mutex::new((Vec::new(), 0));

/// A world's schema. The next world gets it.
pub(super) struct Lease(u32);

impl Lease {
    fn new() -> Self {
        let (free, count) = &mut *SCHEMAS.lock().unwrap();
        Self(free.pop().unwrap_or_else(|| {
            *count += 1;
            *count
        }))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        SCHEMAS.lock().unwrap().0.push(self.0);
    }
}

/// An empty store on PostgreSQL, in the second run.
pub(super) async fn open() -> Option<(Store, Lease)> {
    let url = std::env::var(URL).ok()?;
    let lease = Lease::new();
    let schema = format!("ghost_{}", lease.0);
    empty(&url, &schema);
    Some((open_store(PostgresOptions::new(url, schema)).await.unwrap(), lease))
}

/// How many cases a property test has: fewer on PostgreSQL, where each opens a schema.
pub(crate) fn cases(on_sqlite: u32) -> u32 {
    if std::env::var(URL).is_ok() { on_sqlite / 8 } else { on_sqlite }
}

/// Tests that count what the thread of the test reads. Here other threads read.
const OF_THE_THREAD: [&str; 2] = [
    "a_new_agent_with_a_daily_limit_needs_no_scan_of_the_others",
    "daily_limits_of_many_agents_are_opened_in_one_pass",
];

#[test]
fn all_of_them_hold_on_postgresql() {
    if std::env::var(URL).is_ok() {
        return;
    }
    let Some(cluster) = Cluster::start_or_skip() else { return };
    #[allow(clippy::disallowed_methods, reason = "the tests of this program run once more")]
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again
        .arg("operation_tests::")
        .args(OF_THE_THREAD.iter().flat_map(|test| ["--skip", test]))
        .env(URL, cluster.url())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
