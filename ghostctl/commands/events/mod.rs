//! The event feed.

pub mod subscribe;
