//! Support for black-box tests: daemons as real processes that tests start, kill and start again, a
//! model server, tools for tests, and direct reads of the database.
//!
//! A test must never use a running daemon in a way that a user cannot. The database is read only
//! when no daemon runs.

// A failure in a black-box test is a panic. It fails the test with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod clock;
mod daemon;
mod database;
mod faults;
mod lines;
mod model_server;
mod programs;
mod python;
mod roles;
mod test_environment;
mod toolbox_server;
mod tools;
mod wait;
mod world_dir;

pub use clock::{AHEAD, WALL_OFF, test_ports};
pub use daemon::Daemon;
pub use database::Database;
pub use faults::{PATCH_KILL, test_faults};
pub use lines::Lines;
pub use model_server::{Asked, Mail, ModelServer, Outcome, agent_of, fresh_outcomes, mail_of};
pub use programs::{ghost_toolbox, ghostctl, ghostd_testing};
pub use python::python;
pub use roles::ScriptedRoles;
pub use test_environment::{Backend, Ran, TestEnvironment};
pub use toolbox_server::ToolboxServer;
pub use tools::{CALM, EFFECTS, test_tools};
pub use wait::Deadline;
pub use world_dir::WorldDir;
