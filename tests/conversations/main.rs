//! Talking with agents from outside (issue 3, part 2): over the control plane and over signed webhooks, through the real
//! programs, with the daemon killed in the middle.

// A black-box test has nothing to recover to: what goes wrong is told by the panic that fails it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod actions;
mod desk;
mod pruned;
mod receiver;
mod talk;
mod terminal;
mod webhooks;
