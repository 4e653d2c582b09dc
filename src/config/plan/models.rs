//! Models, who provides them, and what they cost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::Price;
use ghost_domain::model_facts::{Api, Thinking};

use crate::model_list::ModelList;
use crate::provider_kind::ProviderKind;

/// Which model an agent thinks with. `None` fields fall through to the world's defaults.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelChoice {
    /// A key of [`LlmPlan::providers`].
    pub provider: Option<String>,
    /// The model's name at that provider.
    pub model: Option<String>,
    /// Models to try after it, in order, each `model` or `provider/model`.
    pub fallback_models: Vec<String>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Most tokens in one answer.
    pub max_tokens: Option<u32>,
    /// How much it thinks.
    pub thinking: Option<Thinking>,
}

/// Models.
#[derive(Clone, Debug, PartialEq)]
pub struct LlmPlan {
    /// The provider of agents that name none.
    pub default_provider: String,
    /// The model of agents that name none.
    pub default_model: String,
    /// Providers by name.
    pub providers: BTreeMap<String, ProviderPlan>,
    /// Prices by `provider/model` or `model`; the price of every model is 0 at a `scripted` or `recorded` provider.
    pub prices: BTreeMap<String, Price>,
    /// What is known of models: the list that ships, with the world's own entries before it.
    pub models: Arc<ModelList>,
    /// Which of the providers' usual key variables were set when the world was loaded; never their values.
    pub keys_present: BTreeSet<String>,
    /// The world's directory, canonical, which rule files must lie in. If it is empty, each must lie where its provider's `dir`
    /// says.
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

/// One provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPlan {
    /// Its protocol.
    pub kind: ProviderKind,
    /// Where it listens; `None` is the provider's own address.
    pub base_url: Option<String>,
    /// The environment variable that holds its key; `None` sends none.
    pub api_key_env: Option<String>,
    /// Calls at once.
    pub concurrency: u32,
    /// Attempts of one call before a fall-back or the end (LOOP-09).
    pub attempts: u32,
    /// The wait after a failure without a retry-after; doubled each time up to `retry_cap`.
    pub retry_base: Duration,
    /// See `retry_base`. A longer retry-after than this makes the call fall back at once.
    pub retry_cap: Duration,
    /// How long an answer that has begun may stay silent before its call counts as failed.
    pub idle_timeout: Duration,
    /// For `scripted`: the directory with `<model>.yaml` rule files. For `recorded`: the data directory of the run.
    pub dir: Option<PathBuf>,
    /// Headers of each request, by name.
    pub headers: BTreeMap<String, String>,
    /// Parameters behind each address.
    pub query: BTreeMap<String, String>,
    /// Fields of each request's body: an object is merged into ours, anything else takes the place of ours.
    pub extra_body: serde_json::Map<String, serde_json::Value>,
    /// Which API of OpenAI's kind; `None` leaves it to the host and the model.
    pub api: Option<Api>,
}
