//! The daemon: [`run`] wires the layers together and serves a world until it is asked to stop.
//! `ghostd` uses it, and so does the testkit, with its own tools and ports.
//!
//! This crate is wiring. It must never contain rules of another layer.

mod check;
mod data_dir;
mod database;
mod demo;
mod descriptors;
mod environment;
mod expectation;
mod failure;
mod folds;
mod job;
mod loading;
mod main_job;
mod narration;
mod outlet;
mod ownership;
mod page;
mod pointer;
pub mod ports;
mod prices;
mod reading;
mod recordings;
mod run;
mod sandbox_check;
mod scripts;
mod signals;
mod storage;
mod terminal;
mod toolbox_check;
mod workspace_dir;

pub use check::check;
pub use data_dir::{DataDir, default_data_dir, state_dir};
pub use database::check_data;
pub use demo::{DemoOptions, demo};
pub use failure::Failure;
pub use loading::{Loaded, Overrides, load, problems_refusal};
pub use page::Style;
pub use ports::system_ports;
pub use run::{HttpOption, Options, run};
pub use sandbox_check::sandbox_check;
pub use signals::stop_signal;
pub use terminal::Terminal;
