//! Wire records in messages to people. `ghost_proto::json` writes the records as JSON.

pub mod names;
