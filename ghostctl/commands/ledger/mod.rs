//! The record of tool calls.

pub mod list;

use std::time::Duration;

use crate::wait::now_ms;

/// The instant that lies `duration` back.
pub fn since_ms(duration: Duration) -> i64 {
    now_ms().saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX))
}
