//! What a turn needs for its first model call, obtained before it is opened.

use ghost_provider::{Pass, Slot};

/// A pass and a slot for the first model call.
pub(super) struct Admission {
    /// A pass of the first model that may be asked.
    pub(super) pass: Pass,
    /// A slot of that model's provider.
    pub(super) slot: Slot,
}
