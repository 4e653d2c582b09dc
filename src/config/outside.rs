//! What agents can do in conversations with people outside the world.
//!
//! An action that the adapter does not declare must never be allowed.

use ghost_domain::conversation::{CONTROL, CONTROL_ACTIONS, WEBHOOK};
use ghost_domain::{ActionKind, Reactions};

use crate::plan::Plan;

impl Plan {
    /// The actions that an adapter supports. Empty if the world has no adapter of that name.
    #[must_use]
    pub fn channel_actions(&self, adapter: &str) -> &[ActionKind] {
        match adapter.strip_prefix(WEBHOOK) {
            Some(name) => self.webhooks.get(name).map_or(&[], |webhook| &webhook.actions),
            None if adapter == CONTROL => CONTROL_ACTIONS,
            None => &[],
        }
    }

    /// How readily agents of an archetype react.
    #[must_use]
    pub fn reactions_of(&self, archetype: &str) -> Reactions {
        self.archetypes.get(archetype).and_then(|archetype| archetype.config.reactions).unwrap_or(self.reactions)
    }
}
