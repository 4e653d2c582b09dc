//! What an adapter is.

use async_trait::async_trait;
use ghost_domain::{ActionKind, Attachment};
use ghost_rules::conversations::{Outcome, Parcel};
use ghost_world::World;

/// A file that goes with what is handed over.
pub struct File {
    /// What was attached.
    pub attachment: Attachment,
    /// Its content, or why it cannot go: nobody reads it where the way out does not carry it.
    pub content: Result<Vec<u8>, String>,
}

/// A way out.
#[async_trait]
pub trait Adapter: Send + Sync {
    /// What can be done over it (BI-38). Sending is a part of every adapter; the rest is for each to declare. Agents are
    /// refused what is not among these before anything is recorded.
    fn actions(&self) -> &[ActionKind] {
        &[ActionKind::Send]
    }

    /// Hands something over, once. It may be handed over again under the same id: the daemon may die before it has
    /// recorded that the outside has it.
    async fn deliver(&self, world: &World, parcel: &Parcel) -> Outcome;
}
