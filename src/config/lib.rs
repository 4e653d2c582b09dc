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
mod declared;
pub mod diff;
pub mod extra_tools;
mod files;
#[cfg(test)]
mod fixture;
mod grantees;
mod headings;
mod heartbeat;
#[cfg(test)]
mod hints_tests;
pub mod init;
mod json;
mod knowledge;
pub mod load;
mod markdown;
pub mod models;
mod near_names;
mod node;
mod outside;
mod place;
pub mod plan;
pub mod problem;
mod providers;
pub mod reader;
pub mod repeats;
pub mod report;
mod scalars;
pub mod spec;
mod substitute;
mod toolbox;
mod world_file;
pub mod yaml;

pub use diff::{FileChanges, ReloadPlan, diff};
pub use files::{Unread, directory_within, first_line, regular, text_of, unreadable};
pub use load::{examine, load};
pub use near_names::{meant_directory, misnamed_directory};
pub use place::shown_dir;
pub use plan::{Origin, Plan};
pub use problem::{COMMAND_LINE, Hint, Problem, Problems, Severity};
pub use spec::AgentSpec;
