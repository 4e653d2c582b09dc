//! The client of MCP servers: it lists their tools, calls them, and reads their resources and prompts.
//!
//! A server is not trusted. It must never make this client wait without an end, hold memory without a bound, follow
//! it to another host, or reach a model with a definition that was not checked.
//!
//! The crate speaks protocol 2026-07-28 and the older ones with a handshake. The crate `rmcp` does the protocol;
//! this crate bounds it. `rmcp` logs text of the server: a subscriber has to filter it with `rmcp=warn`.

mod asker;
mod blocks;
mod call;
mod calls;
mod canonical;
mod changes;
mod closing;
mod connection;
mod definition;
mod elicitation;
mod error;
mod exchange;
mod gate;
mod guarded;
mod handler;
mod http;
mod ids;
mod incoming;
mod limits;
mod lines;
mod link;
mod listing;
mod names;
mod open;
mod options;
mod pages;
mod progress;
mod prompts;
mod resources;
mod rounds;
mod schema;
mod server;
mod text;
mod time;
mod transport_error;
mod writer;

pub use blocks::{Block, CallResult, MediaKind};
pub use call::CallOptions;
pub use closing::ClosedReason;
pub use connection::Connection;
pub use definition::{Annotations, Definition, HASH_LENGTH, NAME_MAX, is_tool_name};
pub use elicitation::{Answer, Elicitation, ElicitationHandler};
pub use error::CallError;
pub use http::{HttpClient, HttpClientError};
pub use limits::Limits;
pub use link::Link;
pub use listing::{ListEnd, Listing, Skipped};
pub use names::{GHOST_NAME_MAX, GhostNames, ghost_name, ghost_names};
pub use open::OpenError;
pub use options::{Lifecycle, Options};
pub use progress::Progress;
pub use prompts::{Prompt, PromptArgument, PromptDefinition, PromptMessage};
pub use resources::Resource;
pub use schema::{SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX, SchemaProblem, check_schema};
pub use server::ServerInfo;
