//! The variants of OpenAI's APIs.
//!
//! This module must never contain host names.

/// Which fields and roles a host understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI's own, on its hosts and on Azure.
    OpenAi,
    /// The form that most other servers understand.
    Compatible,
}
