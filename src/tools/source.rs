//! The tools of one source, as every version of the table has them.

use std::sync::Arc;

use crate::tool::Tool;

/// The tools of a source, shared by all versions of the table that have them.
pub(crate) struct Source {
    pub(crate) tools: Vec<Arc<Tool>>,
    pub(crate) absent: Vec<(String, String)>,
}
