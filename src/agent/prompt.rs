//! The prompt of a turn: the stable parts first, byte for byte the same while their sources are, then what the turn is
//! about (ARCH-08..12, 14). Assembled once a turn; a resumed turn reads it back from its journal.
//!
//! Must never: hold the time of day, a secret, or machine configuration (ARCH-02, ARCH-14).

mod briefing;
mod escape;
mod mail;
mod part;
mod system;

pub use briefing::briefing;
pub use escape::{escape, escape_attribute};
pub use mail::{Ways, channel, earlier_note, inbox, recent};
pub use part::{Part, Section, Size, join, sizes};
pub use system::system;
