//! `ghostctl events`: the event feed.

mod event_line;
pub mod subscribe;
