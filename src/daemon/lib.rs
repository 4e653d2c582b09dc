//! The daemon: `run(options)` wires the rooms together and serves a world until it is told to stop. Used by `ghostd` and
//! by the testkit, which brings its own tools and ports.
//!
//! Must never: decide anything that a room decides. This is wiring.

mod check;
mod data_dir;
mod database;
mod demo;
mod environment;
mod error_suppression;
mod failure;
mod job;
mod loading;
mod main_job;
mod narration;
mod ownership;
mod page;
pub mod ports;
mod prices;
mod reading;
mod recordings;
mod run;
mod scripts;
mod signals;
mod terminal;

pub use check::check;
pub use data_dir::{DataDir, default_data_dir, state_dir};
pub use demo::{DemoOptions, demo};
pub use failure::Failure;
pub use loading::{Loaded, Overrides, load, problems_refusal};
pub use page::Style;
pub use ports::system_ports;
pub use run::{Options, run};
pub use signals::stop_signal;
pub use terminal::Terminal;
