//! The client against fake servers: one that behaves, and many that do not.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod suite {
    mod asking;
    mod bounds;
    mod calling;
    mod changing;
    mod closing;
    pub mod fake;
    mod http;
    mod lists;
    mod opening;
    mod reading;
    pub mod web;
}
