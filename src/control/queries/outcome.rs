//! The result type of the queries.

use ghost_domain::Refusal;

/// The result of a query.
pub(super) type Result<T> = std::result::Result<T, Refusal>;

/// A store error as a refusal.
pub(super) fn refused(error: ghost_store::StoreError) -> Refusal {
    error.into()
}
