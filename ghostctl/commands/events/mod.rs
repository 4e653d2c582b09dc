//! The event feed.

pub mod subscribe;
mod told;
