//! Parsers of options that `task create` and `task update` share.

use crate::text::{parse_due, whole_number};
use crate::wait::now_ms;

/// Parses `--due-in` into an instant, in milliseconds since 1970.
pub fn due(text: &str) -> Result<i64, String> {
    parse_due(text, now_ms())
}

/// Parses `--priority`.
pub fn priority(text: &str) -> Result<i32, String> {
    whole_number(text, i32::MIN.into(), i32::MAX.into())
}
