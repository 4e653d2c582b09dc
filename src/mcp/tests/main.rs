//! The client against fake servers: one that behaves, and many that do not.

// The time of the tests' runtime stands still: no test waits for real.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

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
