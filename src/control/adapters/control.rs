//! The control plane's own conversations: whoever watches one reads what is said from its log, so that handing over is
//! only to look whether the files are there that were promised.

use async_trait::async_trait;
use ghost_domain::ActionKind;
use ghost_domain::conversation::CONTROL_ACTIONS;
use ghost_domain::write_acl::WorkspacePath;
use ghost_rules::conversations::{Outcome, Parcel};
use ghost_world::World;

use super::adapter::Adapter;

pub(super) struct Control;

#[async_trait]
impl Adapter for Control {
    fn actions(&self) -> &[ActionKind] {
        CONTROL_ACTIONS
    }

    async fn deliver(&self, world: &World, parcel: &Parcel) -> Outcome {
        let workspace = &world.engine().services.workspace;
        let mut missing = Vec::new();
        for file in &parcel.entry.attachments {
            let there = WorkspacePath::parse(&file.path, false).and_then(|path| workspace.size_now(&path));
            if let Err(refusal) = there {
                missing.push(format!("{}: {}", file.name, refusal.message));
            }
        }
        Outcome::Delivered { missing }
    }
}
