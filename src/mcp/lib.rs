//! The client of MCP servers: it lists their tools, calls them, and reads their resources and prompts.
//!
//! A server is not trusted. It must never make this client wait without an end, hold memory without a bound, follow
//! it to another host, or reach a model with a definition that was not checked.
//!
//! The crate speaks protocol 2026-07-28 and the older ones with a handshake. The crate `rmcp` does the protocol;
//! this crate bounds it. `rmcp` logs text of the server: a subscriber has to filter it with `rmcp=warn`.

mod blocks;
mod connection;
mod elicitation;
mod error;
mod exchange;
mod gate;
mod incoming;
mod limits;
mod lists;
mod options;
mod tools;
mod transports;

pub use blocks::{Block, CallResult, MediaKind};
pub use connection::{Connection, ServerInfo};
pub use elicitation::{Answer, Elicitation, ElicitationHandler};
pub use error::{CallError, ClosedReason, OpenError};
pub use gate::Progress;
pub use limits::{Limits, SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, SchemaProblem, check_schema};
pub use lists::{
    ListEnd, Listing, NAME_MAX, Prompt, PromptArgument, PromptDefinition, PromptMessage, Resource, Skipped,
};
pub use options::{CallOptions, Lifecycle, Link, Options};
pub use tools::{
    Annotations, Definition, GHOST_NAME_MAX, GhostNames, HASH_LENGTH, ghost_name, ghost_names, is_tool_name,
};
pub use transports::{HttpClient, HttpClientError};
