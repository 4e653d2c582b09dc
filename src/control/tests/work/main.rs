//! Agents, turns, tools, messages, tasks, budgets and the ledger, as a client over the socket sees them.

// A test's rig may fall over: that is how a test says that its ground is not firm.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod agents;
mod any_input;
mod board;
mod knowledge;
mod messages;
mod rig;
mod tls;
mod tools;
mod wire;
