//! The real clock. Only this module of the server reads the system clock.

use std::time::{SystemTime, UNIX_EPOCH};

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
    fn sleep_until(&self, until: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(until.since(self.now())))
    }
}
