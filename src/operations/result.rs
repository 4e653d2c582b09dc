//! The result type of all rules.
//!
//! This module must never import anything from this crate, because every other module imports it.

/// The result of a rule: a value, or a typed refusal.
pub type Result<T> = std::result::Result<T, ghost_domain::Refusal>;

/// A refusal with a code and a formatted message, for example `refusal!(Conflict, "{name} has ended")`.
macro_rules! refusal {
    ($code:ident, $($message:tt)+) => {
        ghost_domain::Refusal::new(ghost_domain::Code::$code, format!($($message)+))
    };
}
pub(crate) use refusal;
