//! Whose words are spoken to a host.
//!
//! Must never: know a host.

/// Whose words are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI's own, on its hosts and on Azure's.
    OpenAi,
    /// What most others understand.
    Compatible,
}
