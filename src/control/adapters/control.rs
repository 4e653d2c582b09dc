//! The adapter of the control plane's own conversations. Clients read them from the conversation's log,
//! so delivery only checks that the attached files exist.

use async_trait::async_trait;
use ghost_domain::ActionKind;
use ghost_domain::conversation::CONTROL_ACTIONS;
use ghost_domain::write_acl::WorkspacePath;
use ghost_operations::conversations::{Outcome, OutgoingMessage};
use ghost_world::World;

use super::adapter::Adapter;

pub(super) struct Control;

#[async_trait]
impl Adapter for Control {
    fn actions(&self) -> &[ActionKind] {
        CONTROL_ACTIONS
    }

    async fn deliver(&self, world: &World, outgoing: &OutgoingMessage) -> Outcome {
        let workspace = &world.engine().services.workspace;
        let mut missing = Vec::new();
        for file in &outgoing.entry.attachments {
            let size = WorkspacePath::parse(&file.path, false).and_then(|path| workspace.size_now(&path));
            if let Err(refusal) = size {
                missing.push(format!("{}: {}", file.name, refusal.message));
            }
        }
        Outcome::Delivered { missing }
    }
}
