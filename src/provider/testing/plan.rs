//! The plan of a provider for tests.

use std::time::Duration;

use ghost_config::plan::{ProviderKind, ProviderPlan};

/// A plan of `kind` with short pauses, four parallel calls and three attempts.
#[must_use]
pub fn provider_plan(kind: ProviderKind, base_url: Option<String>) -> ProviderPlan {
    ProviderPlan {
        kind,
        base_url,
        api_key_env: None,
        concurrency: 4,
        attempts: 3,
        retry_base: Duration::from_millis(10),
        retry_cap: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(60),
        dir: None,
        headers: Default::default(),
        query: Default::default(),
        extra_body: Default::default(),
        api: None,
    }
}
