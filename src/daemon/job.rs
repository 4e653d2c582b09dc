//! The main job: its input is copied into the workspace once, under a name that follows from its content, and its end
//! is seen in the event feed (issue 2, 11).

mod again;
mod begin;
mod follow;
mod input;
mod seen;

pub use begin::{begin, put_back};
pub use follow::{Standing, follow};
pub use input::{Input, check_place, read};
