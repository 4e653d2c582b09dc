//! What agents can do in conversations with someone outside, as the plan has it.
//!
//! Must never: allow what the way to the outside did not declare.

use ghost_domain::conversation::{CONTROL, CONTROL_ACTIONS, WEBHOOK};
use ghost_domain::{ActionKind, Reactions};

use crate::plan::Plan;

impl Plan {
    /// What can be done in conversations of an adapter; nothing if the world has none of that name.
    #[must_use]
    pub fn channel_actions(&self, adapter: &str) -> &[ActionKind] {
        match adapter.strip_prefix(WEBHOOK) {
            Some(name) => self.webhooks.get(name).map_or(&[], |webhook| &webhook.actions),
            None if adapter == CONTROL => CONTROL_ACTIONS,
            None => &[],
        }
    }

    /// How freely agents of an archetype react (MSG-14).
    #[must_use]
    pub fn reactions_of(&self, archetype: &str) -> Reactions {
        self.archetypes.get(archetype).and_then(|archetype| archetype.config.reactions).unwrap_or(self.reactions)
    }
}
