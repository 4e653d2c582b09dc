//! Tools: their types, the built-in tools, the registry with the tools of one agent, and the
//! services that tools use.
//!
//! An argument must never name the actor: the registry is bound to the agent. A call must never run
//! if it was not validated against its schema or if a check is unavailable (promise 4).

pub mod approval;
mod arguments;
pub mod builtins;
pub mod context;
mod grant_cache;
mod granted;
pub mod heartbeats;
mod identity;
pub mod live;
pub mod loop_guard;
pub mod manifest;
pub mod mcp;
mod midcall;
mod nulls;
pub mod offer;
pub mod origin;
mod outputs;
mod parameters;
mod patch;
mod piped;
pub mod processes;
pub mod registry;
pub mod saved;
mod schema;
#[cfg(test)]
mod schema_tests;
mod seen;
mod source;
mod spelling;
pub mod tool;
pub mod view;
pub mod workspace;

pub use context::{AgentControl, CallContext, Caller, WorldServices, Writable};
pub use grant_cache::GrantCache;
pub use granted::is_granted;
pub use live::{LiveTools, SourceTools};
pub use mcp::McpConnections;
pub use offer::Offer;
pub use origin::Origin;
pub use registry::{Offering, Registry, ToolTable};
pub use tool::{AskTool, FileTool, FileWork, Output, OutsideTool, ReadTool, Run, Tool, WorldTool};
