//! The world's main job: its input is copied into the workspace once, under a name that follows from its content, and its lead
//! gets a task for it.

mod begin;
mod input;

pub use begin::{begin, known, put_back};
pub use input::{Folder, Input, check_place, read};
