//! The result type of all rules.
//!
//! Must never: import anything from this crate. Every other module imports this one.

/// The result of a rule: a value, or a typed refusal.
pub type Result<T> = std::result::Result<T, ghost_domain::Refusal>;
