//! Event streams over gRPC, server-sent events and WebSocket, read by foreign clients from a real daemon. Order and
//! content are the same everywhere, also over kills.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod counted;
mod order;
mod rest;
mod slow;
mod stalled;
mod support;
mod tickets;
mod wires;
