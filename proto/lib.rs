//! The one wire contract between `ghostd` and everything outside it: the code generated from `ghost/v1/*.proto`, and
//! the few names that both ends must spell alike.
//!
//! Must never: hold a rule, a default or a conversion. The control room turns these messages into domain values.

/// Metadata key of the trailer that carries a refusal: the JSON of `{error, code, hint?, details?}`.
pub const REFUSAL_TRAILER: &str = "ghost-refusal-bin";

/// Metadata key of the trailer with which a lagging event stream ends (gRPC code `ABORTED`): the last sequence sent,
/// as decimal text. Subscribing again after it continues without gap or repetition.
pub const LAST_SEQ_TRAILER: &str = "ghost-last-seq";

/// The compiled descriptors of every service, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ghost_descriptors.bin"));

/// Package `ghost.v1`: messages, clients (`*_client`) and servers (`*_server`).
#[allow(missing_docs)] // what prost generates beside the messages: enums of oneofs, clients, servers
pub mod v1 {
    tonic::include_proto!("ghost.v1");
}

#[cfg(test)]
mod tests;
