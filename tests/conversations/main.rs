//! Conversations with the outside, over the control plane and over signed webhooks, with the real programs and with
//! kills of the daemon.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod actions;
mod desk;
mod pruned;
mod receiver;
mod talk;
mod terminal;
mod webhooks;
