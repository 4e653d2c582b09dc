//! The trait of delivery adapters.

use async_trait::async_trait;
use ghost_domain::{ActionKind, Attachment};
use ghost_operations::conversations::{Outcome, OutgoingMessage};
use ghost_world::World;

/// A file that is attached to a message.
pub struct File {
    /// Name, type and workspace path of the file.
    pub attachment: Attachment,
    /// Content of the file, or the reason why it could not be read.
    pub content: Result<Vec<u8>, String>,
}

/// Delivers messages and actions to one kind of receiver outside the world.
#[async_trait]
pub trait Adapter: Send + Sync {
    /// The kinds of action that this adapter supports (BI-38). Every adapter supports sending. An
    /// agent's action of another kind is refused before anything is recorded.
    fn actions(&self) -> &[ActionKind] {
        &[ActionKind::Send]
    }

    /// Makes one attempt to deliver. The same entry may be delivered again under the same id, because
    /// the daemon may die before it records the outcome.
    async fn deliver(&self, world: &World, outgoing: &OutgoingMessage) -> Outcome;
}
