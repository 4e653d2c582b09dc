//! The options that creating and changing a task have in common, as they are read.

use crate::text::{parse_due, whole};
use crate::wait::now_ms;

/// Reads `--due-in`: the instant that lies so far ahead.
pub fn due(text: &str) -> Result<i64, String> {
    parse_due(text, now_ms())
}

/// Reads `--priority`.
pub fn priority(text: &str) -> Result<i32, String> {
    whole(text, i32::MIN.into(), i32::MAX.into())
}
