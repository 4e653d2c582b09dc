//! Model providers behind one trait: Anthropic, OpenAI and servers with its APIs, Gemini, Ollama,
//! rule files (`scripted`) and the answers of an earlier run (`recorded`). Each provider has a
//! pool, which limits parallel calls and respects pauses that the provider asks for. Each model has
//! a circuit in its provider's breaker, which stops calls to a model that is down. Pure functions
//! decide about retries and fall-backs; the turn calls them.
//!
//! This crate must never retry by itself (the turn journals every attempt), run a tool, or let a
//! key or an unbounded payload into an error. Every future of this crate may be dropped at any
//! await without leaving anything behind.

mod answer_bounds;
mod anthropic;
mod attached;
mod blocks;
pub mod breaker;
pub mod circuit;
pub mod error;
pub mod estimate;
mod exchange;
mod gemini;
mod http;
mod idle;
pub mod markup;
mod markup_marks;
mod markup_stream;
pub mod model;
mod ollama;
mod openai;
pub mod pool;
pub mod price;
#[cfg(test)]
mod protocol_tests;
pub mod providers;
pub mod recorded;
pub mod retry;
mod retry_after;
pub mod scripted;
pub mod shared;
mod sse;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod too_long;
mod tool_lists;

pub use breaker::{Admitted, Breaker, Pass};
pub use circuit::Outage;
pub use error::{Charge, ErrorKind, ProviderError};
pub use estimate::{estimate_tokens, estimate_with, tokens_of_bytes, tool_bytes};
pub use markup::{Visible, clean_visible, malformed_tool_call};
pub use markup_stream::Cleaner;
pub use model::{Deltas, ModelAnswer, ModelRequest, NoDeltas, Provider, Stop};
pub use pool::{Class, Pool, Slot};
pub use price::{is_free, price};
pub use providers::{Entry, Providers, Unbuilt};
pub use recorded::{Recorded, RecordedAnswer, Recording};
pub use retry::{Next, Rest, decide};
pub use shared::SharedMessage;
pub use too_long::{is_long, may_be_too_long};
