//! The measurements, one file for each budget.

pub mod age;
mod age_feed;
mod age_reads;
mod age_wakes;
mod age_width;
pub mod broadcast;
pub mod cache;
pub mod chat_fanout;
pub mod coding;
pub mod droids;
pub mod durable_sends;
pub mod fetch;
pub mod gating;
pub mod grpc_read;
pub mod idle_memory;
pub mod joining;
pub mod journaled_turn;
pub mod many_agents;
pub mod mcp;
pub mod postgres;
pub mod ready;
pub mod sandbox;
pub mod streams;
pub mod tokens;
pub mod toolbox;
pub mod waits;
