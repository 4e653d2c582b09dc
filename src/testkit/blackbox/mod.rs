//! Daemons as real processes, for the black-box tests: binaries that are started, killed with -9 and started again, a
//! model server of the test's own, test-only tools, and the database read behind the daemon's back.
//!
//! Must never: reach into a running daemon by any way that a user has not got; the database is read when it is closed.

// A black-box test has nothing to recover to: what goes wrong here is told by the panic that fails the test.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod clock;
mod daemon;
mod database;
mod lines;
mod model_server;
mod programs;
mod python;
mod roles;
mod test_environment;
mod tools;
mod wait;
mod world_dir;

pub use clock::{AHEAD, test_ports};
pub use daemon::Daemon;
pub use database::Database;
pub use lines::Lines;
pub use model_server::{Asked, Mail, ModelServer, Outcome, agent_of, fresh_outcomes, mail_of};
pub use programs::{ghostctl, ghostd_testing};
pub use python::python;
pub use roles::ScriptedRoles;
pub use test_environment::{Ran, TestEnvironment};
pub use tools::{CALM, EFFECTS, test_tools};
pub use wait::Deadline;
pub use world_dir::WorldDir;
