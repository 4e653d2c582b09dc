//! Tools: their types, the built-in tools, the registry with the tools of one agent, and the
//! services that tools use.
//!
//! An argument must never name the actor: the registry is bound to the agent. A call must never run
//! if it was not validated against its schema or if a check is unavailable (promise 4).

pub mod builtins;
pub mod context;
pub mod effect;
pub mod loop_guard;
pub mod manifest;
pub mod mcp;
pub mod offer;
mod parameters;
mod patch;
mod piped;
pub mod processes;
pub mod registry;
#[cfg(test)]
mod schema_tests;
pub mod tool;
pub mod view;
pub mod workspace;

pub use context::{AgentControl, CallContext, Caller, GrantCache, WorldServices, Writable};
pub use effect::{FileTool, FileWork, Output, OutsideTool, ReadTool, Run, WorldTool};
pub use mcp::McpConnections;
pub use offer::Offer;
pub use registry::{LiveTools, Offering, Registry, SourceTools, ToolTable};
pub use tool::{Origin, Tool, is_granted};
