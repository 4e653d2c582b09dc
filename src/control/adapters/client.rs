//! The HTTP client of all webhooks.
//!
//! The client must never follow a redirect or use a proxy.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ghost_domain::Refusal;

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
