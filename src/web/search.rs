//! Searches: `tool.web_search` by Brave or SearXNG, `tool.google_search` by Gemini (BI-15, BI-16).
//!
//! The services are the operator's choice, so their addresses are not judged; no redirect is followed, so a key goes to
//! the named service alone. A key must never be in a message.

mod api;
mod brave;
mod google;
mod query;
mod searxng;

pub use google::{Answer, Citation, Google};
pub use query::{Found, Freshness, Query};

use std::sync::Arc;

use ghost_config::plan::web::{SearchKind, SearchPlan};
use ghost_domain::{Clock, Refusal};

use crate::client::Client;
use api::Api;
use query::{check_query, wrong};

/// The service of `tool.web_search`.
pub struct Search {
    kind: SearchKind,
    api: Api,
}

impl Search {
    /// The service of a plan.
    ///
    /// # Errors
    /// Why there is none, for example because its key is not set.
    pub fn new(
        plan: &SearchPlan,
        env: &dyn Fn(&str) -> Option<String>,
        client: Client,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let key = plan.api_key_env.as_deref().map(|name| api::key(name, env)).transpose()?;
        Ok(Self { kind: plan.kind, api: Api::new(plan.kind.as_str(), &plan.base_url, key, client, clock)? })
    }

    /// Searches.
    ///
    /// # Errors
    /// `InvalidArguments` for what the service cannot do; `RateLimited`, `Unavailable`, `Timeout` and `ExecFailed` if it
    /// fails.
    pub async fn search(&self, query: &Query) -> Result<Vec<Found>, Refusal> {
        check_query(&query.query)?;
        if let Some(country) = &query.country
            && !(country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_alphabetic()))
        {
            return Err(wrong("country", country, "write two letters, such as DE"));
        }
        let mut found = match self.kind {
            SearchKind::Brave => brave::search(&self.api, query).await?,
            SearchKind::Searxng => searxng::search(&self.api, query).await?,
        };
        found.truncate(query.count);
        Ok(found)
    }
}
