//! Serves gRPC and REST on bound listeners until the daemon stops.
//!
//! This module must never let one peer's handshake, silence or disconnection delay other peers or
//! the shutdown.

pub(crate) mod connections;
pub(crate) mod grpc;
pub(crate) mod incoming;
mod percent;
pub(crate) mod rest;
#[cfg(test)]
mod tests;
