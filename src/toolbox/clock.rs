//! The real clock. Only this module of the server reads the system clock.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Timestamp};

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the port, which all other code uses")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the port, which all other code uses")]
    fn steady(&self) -> Timestamp {
        static BEGAN: OnceLock<(Timestamp, Instant)> = OnceLock::new();
        let (wall, began) = BEGAN.get_or_init(|| (self.now(), Instant::now()));
        wall.plus(began.elapsed())
    }

    #[allow(clippy::disallowed_methods, reason = "this is the port, which all other code uses")]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
