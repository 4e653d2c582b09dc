//! A clock that a test can set while the daemon runs. It is the system's clock plus the milliseconds
//! in a file: time that passes, or a jump of the wall clock alone, in either direction.
//!
//! This clock must never be the clock of a shipped daemon.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Timestamp;
use ghost_domain::ports::Ports;
use ghost_domain::time::{BoxFuture, Clock};

/// The environment variable with the path of the file of the time that has passed.
pub const AHEAD: &str = "GHOST_TEST_AHEAD";
/// The environment variable with the path of the file of the wall clock's error.
pub const WALL_OFF: &str = "GHOST_TEST_WALL_OFF";
/// How often a sleeper reads the file.
const READ_EVERY: Duration = Duration::from_millis(50);

/// The ports of a daemon, with the test's clock if the environment names its file.
#[must_use]
pub fn test_ports(ports: Ports, env: &dyn Fn(&str) -> Option<String>) -> Ports {
    let (ahead, off) = (env(AHEAD).map(PathBuf::from), env(WALL_OFF).map(PathBuf::from));
    if ahead.is_none() && off.is_none() {
        return ports;
    }
    Ports { clock: Arc::new(SetClock { system: Arc::clone(&ports.clock), ahead, off }), ..ports }
}

#[derive(Clone)]
struct SetClock {
    system: Arc<dyn Clock>,
    ahead: Option<PathBuf>,
    off: Option<PathBuf>,
}

fn ms_in(file: Option<&PathBuf>) -> i64 {
    let text = file.and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

impl SetClock {
    fn set(&self, at: Timestamp, ms: i64) -> Timestamp {
        Timestamp(at.0.saturating_add(ms_in(self.ahead.as_ref())).saturating_add(ms))
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        self.set(self.system.now(), ms_in(self.off.as_ref()))
    }

    fn steady(&self) -> Timestamp {
        self.set(self.system.steady(), 0)
    }

    // The file changes from outside, so it must be read again and again.
    #[allow(clippy::disallowed_methods)]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        let until = clock.steady().plus(duration);
        Box::pin(async move {
            loop {
                let left = until.since(clock.steady());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(READ_EVERY)).await;
            }
        })
    }
}
