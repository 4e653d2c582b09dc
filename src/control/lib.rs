//! The control plane: gRPC services over a Unix socket or TCP, REST and health over HTTP, and who may use them.
//!
//! Must never: let bad input reach an actor, answer without having told who asks, or decide what commons decides. Types
//! of the wire become domain values in [`convert`] and nowhere else; refusals become statuses in [`refusal`].

pub mod act_as;
pub mod adapters;
mod auth;
pub mod caller;
mod connection_limit;
mod connections;
pub mod control;
pub mod convert;
mod details;
#[cfg(test)]
mod fixture;
mod host;
pub mod http;
mod log_throttle;
pub mod queries;
mod reflection;
pub mod refusal;
pub mod server;
pub mod services;
mod serving;
mod streams;
mod tallies;

pub use server::{Bound, ControlOptions, ListenAddress, OpenListeners, TlsFiles, bind};
