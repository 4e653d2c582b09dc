//! Configuration: reads `world-config.yaml`, archetypes with their `config.md`, skills and
//! knowledge. Returns a checked [`plan::Plan`], or every problem at once, each with file, line and
//! hint.
//!
//! This crate must never start anything, use the network, or accept an unknown key.

pub mod access;
mod agents_and_teams;
mod archetype;
mod archetype_config;
mod comment;
mod cron;
mod dangerous;
mod declared;
mod deserializer;
pub mod diff;
mod droids;
pub mod extra_tools;
mod files;
#[cfg(test)]
mod fixture;
mod grantees;
pub mod grouped;
mod headings;
mod heartbeat;
#[cfg(test)]
mod hints_tests;
pub mod init;
mod kinds;
mod knowledge;
pub mod load;
mod markdown;
mod mistakes;
pub mod model_list;
mod model_warnings;
pub mod models;
#[cfg(test)]
mod models_file_tests;
mod near_names;
mod node;
pub mod plan;
mod price;
pub mod problem;
mod provider_kind;
mod providers;
#[cfg(test)]
mod providers_page_tests;
pub mod reader;
pub mod report;
pub mod schema;
mod skill_roots;
pub mod skills;
mod snippets;
pub mod spec;
mod substitute;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod toolbox;
mod typed;
mod world_file;
mod world_paths;
pub mod yaml;

pub use diff::{FileChanges, ReloadPlan, diff};
pub use files::{Unread, directory_within, first_line, real_place, regular, text_of, unreadable};
pub use load::{examine, load};
pub use model_list::ModelList;
pub use model_warnings::model_warnings;
pub use near_names::misspelt;
pub use plan::{Origin, Plan};
pub use problem::{COMMAND_LINE, Hint, Problem, Problems, Severity};
pub use spec::AgentSpec;
pub use toolbox::mcp::{LOCK_FILE, LOCK_MAX, lock_text};
pub use world_paths::shown_dir;
