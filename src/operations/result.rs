//! The result type of all rules.
//!
//! This module must never import anything from this crate, because every other module imports it.

/// The result of a rule: a value, or a typed refusal.
pub type Result<T> = std::result::Result<T, ghost_domain::Refusal>;
