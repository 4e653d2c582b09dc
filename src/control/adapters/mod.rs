//! The ways to those outside. An adapter hands over one thing that an agent said or did; when it is tried, how often and what
//! becomes of it is the commons' rule, and [`courier`] keeps the time.
//!
//! They live in this room because it is the one that faces outwards: what comes in by the same ways arrives here, too, and
//! no room below may know of them.
//!
//! Must never: retry by themselves, follow a redirect, or keep anything that a crash may not take.

mod control;
mod courier;
mod signature;
mod webhook;

use async_trait::async_trait;
use ghost_commons::conversations::{Outcome, Parcel};
use ghost_config::plan::WebhookPlan;
use ghost_domain::conversation::{CONTROL, WEBHOOK};
use ghost_domain::{ActionKind, Attachment, Refusal};
use ghost_world::World;

use courier::Http;

pub(crate) use courier::courier;
pub use signature::{SIGNATURE_VERSION, sign, verify};
pub use webhook::{DELIVERY, SIGNATURE, TIMESTAMP};

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

/// The adapter of a conversation; nothing if the world has none of that name any more.
fn adapter_of(world: &World, name: &str, http: &Http) -> Result<Option<Box<dyn Adapter>>, Refusal> {
    if name == CONTROL {
        return Ok(Some(Box::new(control::Control)));
    }
    let plan = world.plan();
    let Some(plan) = name.strip_prefix(WEBHOOK).and_then(|name| plan.webhooks.get(name)) else { return Ok(None) };
    Ok(Some(Box::new(webhook::Webhook::new(plan.clone(), http.client()?))))
}

/// The secret that a webhook shares with the outside, from the environment.
pub(crate) fn secret(plan: &WebhookPlan) -> Option<String> {
    std::env::var(&plan.secret_env).ok().filter(|secret| !secret.is_empty())
}
