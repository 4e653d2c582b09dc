//! The trait of delivery adapters, and what they share; and the adapter of the control plane's own conversations.
//!
//! The HTTP client must never follow a redirect or use a proxy.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::conversation::CONTROL_ACTIONS;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{ActionKind, Attachment, Refusal};
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
    /// The kinds of action that this adapter supports. Every adapter supports sending. An
    /// agent's action of another kind is refused before anything is recorded.
    fn actions(&self) -> &[ActionKind] {
        &[ActionKind::Send]
    }

    /// Makes one attempt to deliver. The same entry may be delivered again under the same id, because
    /// the daemon may die before it records the outcome.
    async fn deliver(&self, world: &World, outgoing: &OutgoingMessage) -> Outcome;
}

/// The HTTP client that all webhooks share. It is created at the first delivery, because it loads the
/// system's certificates, which would slow down the start.
#[derive(Clone, Default)]
pub(super) struct Http(Arc<OnceLock<reqwest::Client>>);

impl Http {
    /// The client, created on the first call.
    pub(super) fn client(&self) -> Result<reqwest::Client, Refusal> {
        if let Some(client) = self.0.get() {
            return Ok(client.clone());
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have installed it first, which is fine.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let built = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| {
                Refusal::new(ghost_domain::Code::Internal, format!("the HTTP client cannot be created: {error}"))
            })?;
        Ok(self.0.get_or_init(|| built).clone())
    }
}

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
