//! The control plane: gRPC services over a Unix socket or TCP, REST and health over HTTP, and who may use them.
//!
//! Must never: let bad input reach an actor, answer without having told who asks, or decide what commons decides. Types
//! of the wire become domain values in [`convert`] and nowhere else; refusals become statuses in [`refusal`].

pub mod acting;
pub mod adapters;
mod auth;
pub mod caller;
mod connections;
pub mod control;
pub mod convert;
mod details;
#[cfg(test)]
mod fixture;
mod host;
pub mod http;
mod places;
pub mod queries;
mod reflection;
pub mod refusal;
mod seldom;
pub mod server;
pub mod services;
mod serving;
mod streams;
mod tallies;

pub use server::{Bound, ControlOptions, Doors, Listener, TlsFiles, bind};
