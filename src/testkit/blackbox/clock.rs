//! A clock that a test can set forward while the daemon runs. It is the system's clock plus the
//! milliseconds in a file.
//!
//! This clock must never be the clock of a shipped daemon.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Timestamp;
use ghost_domain::ports::Ports;
use ghost_domain::time::{BoxFuture, Clock};

/// The environment variable with the path of that file.
pub const AHEAD: &str = "GHOST_TEST_AHEAD";
/// How often a sleeper reads the file.
const READ_EVERY: Duration = Duration::from_millis(50);

/// The ports of a daemon, with the test's clock if the environment names its file.
#[must_use]
pub fn test_ports(ports: Ports, env: &dyn Fn(&str) -> Option<String>) -> Ports {
    match env(AHEAD) {
        Some(file) => {
            let clock = AheadClock { system: Arc::clone(&ports.clock), file: file.into() };
            Ports { clock: Arc::new(clock), ..ports }
        }
        None => ports,
    }
}

#[derive(Clone)]
struct AheadClock {
    system: Arc<dyn Clock>,
    file: PathBuf,
}

impl Clock for AheadClock {
    fn now(&self) -> Timestamp {
        let ahead = std::fs::read_to_string(&self.file).ok().and_then(|text| text.trim().parse().ok());
        self.system.now().plus(Duration::from_millis(ahead.unwrap_or(0)))
    }

    // The file changes from outside, so it must be read again and again.
    #[allow(clippy::disallowed_methods)]
    fn sleep_until(&self, until: Timestamp) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let left = until.since(clock.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(READ_EVERY)).await;
            }
        })
    }
}
