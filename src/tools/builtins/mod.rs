//! The tools that the code brings: a family a file, and the one table that lists them all.

use crate::tool::Tool;

/// Every built-in tool.
#[must_use]
pub fn all() -> Vec<Tool> {
    Vec::new()
}
