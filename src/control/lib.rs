//! The control plane: gRPC over a Unix socket or TCP; REST, event streams, health and metrics over
//! HTTP; and delivery of agents' messages to receivers outside the world.
//!
//! This crate must never let invalid input reach an actor, serve an unauthenticated caller except
//! on the few open routes, or make decisions that belong to `ghost-operations`. [`convert`] converts
//! between wire types and domain values. [`refusal`] turns refusals into gRPC statuses.

mod act_as;
pub mod adapters;
mod auth;
mod control;
pub mod convert;
mod dispatch;
mod host;
mod http;
mod queries;
mod refusal;
mod server;
mod services;
mod serving;
mod streams;
mod tallies;
#[cfg(test)]
mod testing;

pub use auth::TlsFiles;
pub use ghost_config::plan::ListenAddress;
pub use server::{Bound, ControlOptions, OpenListeners, bind};
