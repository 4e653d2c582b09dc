//! Ids as strings.

/// The string form of each id.
pub(super) fn texts<T: ToString>(ids: &[T]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
