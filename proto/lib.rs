//! The wire contract between `ghostd` and its clients: the code generated from `ghost/v1/*.proto`,
//! the names of gRPC trailers, and the messages as JSON.
//!
//! This crate must never contain a rule or a default. `ghost-control` converts these messages to
//! domain values.

#![warn(missing_docs)]

pub mod http;
pub mod json;
pub mod names;

/// Metadata key of the trailer with a refusal: the JSON object `{error, code, hint?, details?}`.
pub const REFUSAL_TRAILER: &str = "ghost-refusal-bin";

/// Metadata key of the trailer at the end of an event stream whose subscriber was too slow (gRPC
/// code `ABORTED`): the last sent sequence number as decimal text. A new subscription after it
/// continues without a gap or repetition.
pub const LAST_SEQ_TRAILER: &str = "ghost-last-seq";

/// The compiled descriptors of all services, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ghost_descriptors.bin"));

/// A request that changes something.
pub trait Change: prost::Message {
    /// The name of its method in the key under which its answer is stored, such as `messages.send`.
    const METHOD: &'static str;

    /// The client's name for the request: sent again with the same one, it is carried out once.
    fn request_id(&self) -> &str;
}

/// Package `ghost.v1`: messages and clients (`*_client`).
#[allow(missing_docs)] // generated code besides the messages has no comments: enums of oneofs, clients
pub mod v1 {
    tonic::include_proto!("ghost.v1");
    include!(concat!(env!("OUT_DIR"), "/changes.rs"));
}

#[cfg(test)]
mod tests;
