//! Tests of the gRPC services, with a client over the socket.

// Helpers of tests may panic: a test whose setup fails must fail.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agents;
mod any_input;
mod board;
mod grants;
mod knowledge;
mod messages;
mod test_daemon;
mod tls;
mod tools;
mod wire;
