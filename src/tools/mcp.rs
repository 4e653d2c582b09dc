//! MCP servers as toolboxes: their connections, and the tools that an operator has trusted.
//!
//! A server is a stranger. What it says after an operator trusted it can only take tools away: it must never add a tool,
//! or change what a model reads of one.

mod connections;
mod listing;
pub(crate) mod pool;

pub use connections::look;
pub(crate) use connections::{Asking, QUESTION_TIME, connection_for};
pub(crate) use listing::Part;
pub use listing::{Trust, TrustState};
pub use pool::McpConnections;
