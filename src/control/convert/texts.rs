//! Ids as texts.

/// Each of them as it is written.
pub(super) fn texts<T: ToString>(ids: &[T]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}
