//! Builds the prompt of a turn. The stable parts come first and are byte-identical between turns
//! until their sources change; then come the log of the session and the mail. A
//! prompt is built once for each turn; a resumed turn reads it from its journal.
//!
//! A prompt must never contain the time of day, a secret, or machine configuration (ARCH-02,
//! ARCH-14).

mod briefing;
mod droid;
mod escape;
mod log_text;
mod mail;
mod part;
mod skills;
mod system;

pub use briefing::briefing;
pub use escape::{escape, escape_attribute};
pub use log_text::log_text;
pub use mail::{ChannelOptions, ENDED_CONVERSATION, channel, earlier_note, inbox, jobs, said};
pub use part::{Part, Section, Size, join, sizes};
pub use system::system;
