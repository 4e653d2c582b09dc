//! What a query comes to.

use ghost_domain::Refusal;

/// What was asked for, or why it is not given.
pub(super) type Result<T> = std::result::Result<T, Refusal>;

/// What the store fails with, as a caller is told it.
pub(super) fn refused(error: ghost_store::StoreError) -> Refusal {
    error.into()
}
