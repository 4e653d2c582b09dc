//! Model providers behind one trait: Anthropic, OpenAI and servers with its APIs, Gemini, Ollama,
//! rule files (`scripted`) and the answers of an earlier run (`recorded`). Each provider has a
//! pool, which limits parallel calls and respects pauses that the provider asks for. Each model has
//! a circuit in its provider's breaker, which stops calls to a model that is down. Pure functions
//! decide about retries and fall-backs; the turn calls them, because it journals every attempt.
//!
//! Every future of this crate may be dropped at any await without leaving anything behind.

mod answer;
mod blocks;
pub mod breaker;
pub mod circuit;
pub mod error;
pub mod estimate;
mod exchange;
mod failure;
mod http;
mod json;
pub mod markup;
mod markup_stream;
pub mod model;
pub mod pool;
#[cfg(test)]
mod protocol_tests;
mod protocols;
pub mod providers;
pub mod recorded;
pub mod retry;
pub mod scripted;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod too_long;

pub use breaker::{Admitted, Breaker, Pass};
pub use circuit::Outage;
pub use error::{Charge, ErrorKind, ProviderError};
pub use estimate::{estimate_tokens, estimate_with, is_free, price, tokens_of_bytes, tool_bytes};
pub use json::SharedMessage;
pub use markup::{Visible, clean_visible, malformed_tool_call};
pub use markup_stream::Cleaner;
pub use model::{Deltas, ModelAnswer, ModelRequest, NoDeltas, Provider, Stop};
pub use pool::{Class, Pool, Slot};
pub use providers::{Entry, Providers, Unbuilt};
pub use recorded::{Recorded, RecordedAnswer, Recording};
pub use retry::{Next, Rest, decide};
pub use too_long::{is_long, may_be_too_long};
