//! Looks up the capabilities and prices of models.
//!
//! A lookup must never guess: an unknown fact stays empty, and an unknown price stays `None`.

use ghost_domain::Price;
use ghost_domain::model_facts::ModelFacts;

use crate::plan::{LlmPlan, ProviderKind};

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
