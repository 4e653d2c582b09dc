//! The daemon: [`run`] wires the layers together and serves a world until it is asked to stop.
//! `ghostd` uses it, and so does the testkit, with its own tools and ports.
//!
//! This crate is wiring; rules are in other layers.

mod check;
mod data_dir;
mod database;
mod demo;
mod input;
mod loading;
mod main_job;
mod model_checks;
mod narration;
mod page;
mod pointer;
pub mod ports;
mod reading;
mod recordings;
mod run;
mod sandbox;
mod storage;
mod terminal;
mod workspace_dir;

pub use check::check;
pub use data_dir::{DataDir, default_data_dir, state_dir};
pub use database::check_data;
pub use demo::{DemoOptions, demo};
pub use loading::{Failure, Loaded, Overrides, load, problems_refusal};
pub use page::Style;
pub use ports::{stop_signal, system_ports};
pub use run::{HttpOption, Options, run};
pub use sandbox::sandbox_check;
pub use terminal::Terminal;
