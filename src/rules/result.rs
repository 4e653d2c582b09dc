//! What every rule gives.
//!
//! Must never: name anything of this crate; everything in it takes from here.

/// What every rule gives: a value, or a refusal that someone can read.
pub type Result<T> = std::result::Result<T, ghost_domain::Refusal>;
