//! The control plane: gRPC over a Unix socket or TCP; REST, event streams, health and metrics over
//! HTTP; and delivery of agents' messages to receivers outside the world.
//!
//! This crate must never let invalid input reach an actor, serve an unauthenticated caller except
//! on the few open routes, or make decisions that belong to `ghost-operations`. [`convert`] converts
//! between wire types and domain values. [`refusal`] turns refusals into gRPC statuses.

pub mod act_as;
pub mod adapters;
mod auth;
mod connection_limit;
mod connections;
pub mod control;
pub mod convert;
mod details;
mod dispatch;
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
mod tls;

pub use ghost_config::plan::ListenAddress;
pub use server::{Bound, ControlOptions, OpenListeners, bind};
pub use tls::TlsFiles;
