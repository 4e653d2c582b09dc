//! Looks up the facts and prices of models.
//!
//! Must never: guess.

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
        own.map(|known| known.facts.clone()).or_else(|| self.models.find_anywhere(bare)).unwrap_or_default()
    }

    /// The price of `model` at the provider `provider`, or `None` if it is unknown. The world's own
    /// prices come first, `provider/model` before `model`. Then comes the list: the longest entry
    /// that the model's name begins with, followed by nothing but a version. Models of `scripted`
    /// and `recorded` providers are free, unless the world prices them as `provider/model`.
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
