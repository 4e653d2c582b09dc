//! MCP servers as toolboxes (TBX-09): their connections, and the tools that an operator has trusted.
//!
//! A server is a stranger. What it says after an operator trusted it can only take tools away: it must never add a tool,
//! or change what a model reads of one.

pub(crate) mod asking;
mod connections;
mod link;
mod listing;
pub(crate) mod parts;
pub(crate) mod pool;
pub(crate) mod questions;

pub(crate) use connections::connection_for;
pub use connections::look;
pub use listing::{Trust, TrustState};
pub use pool::McpConnections;
