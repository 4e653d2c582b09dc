//! The HTTP client of all webhooks.
//!
//! Must never: follow a redirect, or take a way through a proxy.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ghost_domain::Refusal;

/// The client that webhooks share, made when the first of them is called: it reads the certificates of the system, which
/// takes longer than anything else at a start.
#[derive(Clone, Default)]
pub(super) struct Http(Arc<OnceLock<reqwest::Client>>);

impl Http {
    /// The client.
    pub(super) fn client(&self) -> Result<reqwest::Client, Refusal> {
        if let Some(client) = self.0.get() {
            return Ok(client.clone());
        }
        if rustls::crypto::CryptoProvider::get_default().is_none() {
            // Another thread may have been first, which is as good.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let made = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| {
                Refusal::new(ghost_domain::Code::Internal, format!("the HTTP client cannot be made: {error}"))
            })?;
        Ok(self.0.get_or_init(|| made).clone())
    }
}
