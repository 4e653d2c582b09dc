//! How an agent acts: tools, the registry that holds exactly those it was granted, and the shared things they reach.
//!
//! Must never: let an argument name the actor (identity is bound into the registry), run a call that was not validated
//! against its schema, or fall back to anything when an enforcing part is missing (promise 4).

mod arguments;
pub mod builtins;
pub mod context;
pub mod loop_guard;
mod parameters;
pub mod registry;
mod schema;
pub mod skills;
pub mod tool;
pub mod view;
pub mod workspace;

pub use context::{AgentControl, CallContext, Caller, WorldServices};
pub use registry::{Registry, ToolTable};
pub use tool::{AskTool, FileTool, FileWork, Output, OutsideTool, ReadTool, Run, Tool, WorldTool};
