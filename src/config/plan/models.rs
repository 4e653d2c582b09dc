//! The models, providers and prices of a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Price;
use ghost_domain::model_facts::{Api, ModelFacts, Thinking};

use crate::model_list::ModelList;
use crate::provider_kind::ProviderKind;

/// The model of an agent or archetype. `None` fields take the world's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelChoice {
    /// A key of [`LlmPlan::providers`].
    pub provider: Option<String>,
    /// The model's name at that provider.
    pub model: Option<String>,
    /// Models to try if this one fails, in order. Each is `model` or `provider/model`.
    pub fallback_models: Vec<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// The largest number of tokens in an answer.
    pub max_tokens: Option<u32>,
    /// How much the model thinks.
    pub thinking: Option<Thinking>,
}

/// The providers, models and prices of a world.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmPlan {
    /// The provider of agents that name none.
    pub default_provider: String,
    /// The model of agents that name none.
    pub default_model: String,
    /// Providers by name.
    pub providers: BTreeMap<String, ProviderPlan>,
    /// Prices by `provider/model` or `model`. See [`LlmPlan::price`] for models of `scripted` and
    /// `recorded` providers.
    pub prices: BTreeMap<String, Price>,
    /// The list of known models: the shipped list, with the world's own entries taking precedence.
    pub models: Arc<ModelList>,
    /// The usual key variables of providers that were set when the world was loaded. Never their
    /// values.
    pub keys_present: BTreeSet<String>,
    /// The world's directory, canonical. Rule files must be inside it. If it is empty, each rule
    /// file must be inside its provider's `dir`.
    pub world_dir: PathBuf,
}

impl Default for LlmPlan {
    fn default() -> Self {
        Self {
            default_provider: String::new(),
            default_model: String::new(),
            providers: BTreeMap::new(),
            prices: BTreeMap::new(),
            models: ModelList::shipped(),
            keys_present: BTreeSet::new(),
            world_dir: PathBuf::new(),
        }
    }
}

/// A provider with all its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPlan {
    /// The protocol of the provider.
    pub kind: ProviderKind,
    /// The address of the provider. `None` means the default address of its kind.
    pub base_url: Option<String>,
    /// The environment variable with the key. `None` means that no key is sent.
    pub api_key_env: Option<String>,
    /// The number of concurrent calls.
    pub concurrency: u32,
    /// The number of attempts of a call before a fallback model or failure.
    pub attempts: u32,
    /// The wait after a failed attempt without a retry-after. It doubles with each attempt, up to
    /// `retry_cap`.
    pub retry_base: Duration,
    /// The longest wait. If a retry-after is longer, the call falls back at once.
    pub retry_cap: Duration,
    /// How long an answer that has begun may pause before the call fails.
    pub idle_timeout: Duration,
    /// For `scripted`: the directory with `<model>.yaml` rule files. For `recorded`: the data directory of the run.
    pub dir: Option<PathBuf>,
    /// Additional headers of each request, by name.
    pub headers: BTreeMap<String, String>,
    /// Additional query parameters of each request.
    pub query: BTreeMap<String, String>,
    /// Additional fields of each request's body. An object is merged into Ghost's field of that
    /// name; any other value replaces it.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    /// The OpenAI API to use. `None` means that the host and the model determine it.
    pub api: Option<Api>,
}

impl LlmPlan {
    /// The facts about `model` at the provider `provider`. Unknown facts are empty.
    #[must_use]
    pub fn facts(&self, kind: ProviderKind, provider: &str, model: &str) -> ModelFacts {
        if kind.is_local() {
            return ModelFacts::default();
        }
        // The part after `:` names a build or variant of the model.
        let bare = model.strip_prefix("ft:").unwrap_or(model).split(':').next().unwrap_or(model);
        let own = [model, bare].into_iter().find_map(|name| self.models.find_at(kind, provider, name));
        let known = own.map(|known| known.facts_at(kind)).or_else(|| self.models.find_anywhere(bare));
        known.unwrap_or_else(|| ModelFacts { vision: kind.sees_images(), ..ModelFacts::default() })
    }

    /// The price of `model` at the provider `provider`, or `None` if it is unknown. The world's own
    /// prices take precedence, `provider/model` before `model`. Next comes the list of known
    /// models: the longest entry that is a prefix of the model's name, where the rest of the name
    /// may only be a version. Models of `scripted` and `recorded` providers are free, unless the
    /// world prices them as `provider/model`.
    #[must_use]
    pub fn price(&self, kind: ProviderKind, provider: &str, model: &str) -> Option<Price> {
        let named = self.prices.get(&format!("{provider}/{model}")).copied();
        if kind.is_local() {
            // A price under the full name is for testing budgets.
            return Some(named.unwrap_or_default());
        }
        let own = named.or_else(|| self.prices.get(model).copied());
        own.or_else(|| self.models.find_at(kind, provider, model)?.price)
    }
}
