//! How far back a command looks.

use crate::text::parse_since;
use crate::wait::now_ms;

/// Reads `--since`: the instant that lies so far back.
pub fn since(text: &str) -> Result<i64, String> {
    parse_since(text, now_ms())
}
