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
mod json;
mod knowledge;
pub mod load;
mod markdown;
pub mod models;
mod near_names;
mod outside;
mod place;
pub mod plan;
pub mod problem;
pub mod reader;
pub mod report;
pub mod spec;
mod substitute;
mod toolbox;
mod world_file;
pub mod yaml;

pub use diff::{FileChanges, ReloadPlan, diff};
pub use load::{examine, load};
pub use place::shown_dir;
pub use plan::Plan;
pub use problem::{Problem, Problems, Severity};
pub use spec::AgentSpec;
