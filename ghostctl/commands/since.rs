//! The parser of `--since`.

use crate::text::parse_since;
use crate::wait::now_ms;

/// Parses `--since` into an instant, in milliseconds since 1970.
pub fn since(text: &str) -> Result<i64, String> {
    parse_since(text, now_ms())
}
