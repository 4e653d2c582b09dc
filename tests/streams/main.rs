//! The feed over gRPC, server-sent events and WebSocket, read by foreign clients from a real daemon: one order and one
//! object everywhere, whoever dies in the middle.

// A black-box test has nothing to recover to: what goes wrong is told by the panic that fails it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod counted;
mod order;
mod rest;
mod scene;
mod slow;
mod stalled;
mod tickets;
mod wires;
