//! One file a budget.

pub mod durable_sends;
pub mod grpc_read;
pub mod idle_memory;
pub mod journaled_turn;
pub mod ready;
