//! Finds the adapter of a conversation.

use ghost_domain::Refusal;
use ghost_domain::conversation::{CONTROL, WEBHOOK};
use ghost_world::World;

use super::adapter::Adapter;
use super::client::Http;
use super::control::Control;
use super::webhook::Webhook;

/// The adapter with this name. `None` if it is a webhook that the world's configuration no longer
/// contains.
pub(super) fn adapter_of(world: &World, name: &str, http: &Http) -> Result<Option<Box<dyn Adapter>>, Refusal> {
    if name == CONTROL {
        return Ok(Some(Box::new(Control)));
    }
    let plan = world.plan();
    let Some(plan) = name.strip_prefix(WEBHOOK).and_then(|name| plan.webhooks.get(name)) else { return Ok(None) };
    Ok(Some(Box::new(Webhook::new(plan.clone(), http.client()?))))
}
