//! Code shared by `timer`, `cron` and `watch`: lookup by id or name, text output, and the common subcommands.

pub mod cancel;
pub mod display;
pub mod list;
pub mod lookup;
pub mod runs;
