//! What `timer`, `cron` and `watch` share: which one is meant, how they look, and the verbs that go for all three.

pub mod cancel;
pub mod list;
pub mod named;
pub mod runs;
pub mod shown;
