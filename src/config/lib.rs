//! Configuration: `world-config.yaml`, archetypes and their `config.md`, skill folders. Files go in; a checked
//! [`plan::Plan`] comes out, or every problem at once, each with its file, its line and a hint.
//!
//! Must never: start anything, reach the network, or let a key through that it does not understand (DESIGN.md section 4,
//! "Configuration fails closed").

pub mod access;
mod archetype;
mod archetype_config;
mod crew;
mod cron;
pub mod diff;
mod files;
#[cfg(test)]
mod fixture;
mod grantees;
mod heartbeat;
pub mod init;
mod knowledge;
pub mod load;
mod markdown;
pub mod models;
mod outside;
pub mod plan;
pub mod problem;
mod reader;
mod report;
pub mod spec;
mod substitute;
mod toolbox;
mod world_file;
mod yaml;

pub use diff::{ReloadPlan, diff};
pub use load::load;
pub use plan::Plan;
pub use problem::{Problem, Problems, Severity};
pub use spec::AgentSpec;
