//! What is known of the models of a world: what they take, and what they cost.
//!
//! Must never: guess.

use ghost_domain::Price;
use ghost_domain::model_facts::ModelFacts;

use crate::plan::{LlmPlan, ProviderKind};

impl LlmPlan {
    /// What is known of `model` at the provider named `provider`. Where nobody has said anything, nothing is.
    #[must_use]
    pub fn facts(&self, kind: ProviderKind, provider: &str, model: &str) -> ModelFacts {
        if kind.is_local() {
            return ModelFacts::default();
        }
        // Behind a `:` stands which build or variant of the model it is.
        let bare = model.strip_prefix("ft:").unwrap_or(model).split(':').next().unwrap_or(model);
        let own = [model, bare].into_iter().find_map(|name| self.models.find_at(kind, provider, name));
        own.map(|known| known.facts.clone()).or_else(|| self.models.find_anywhere(bare)).unwrap_or_default()
    }

    /// The price of `model` at the provider named `provider`, or `None` if nobody has said it. The world's own prices come
    /// first, `provider/model` before `model`; then the list, by the longest name that the model's begins with and that only a
    /// version follows. Models of `scripted` and `recorded` providers are free, unless the world prices them as
    /// `provider/model`.
    #[must_use]
    pub fn price(&self, kind: ProviderKind, provider: &str, model: &str) -> Option<Price> {
        let named = self.prices.get(&format!("{provider}/{model}")).copied();
        if kind.is_local() {
            // A price of its own, by the full name alone, is for trying budgets out.
            return Some(named.unwrap_or_default());
        }
        let own = named.or_else(|| self.prices.get(model).copied());
        own.or_else(|| self.models.find_at(kind, provider, model)?.price)
    }
}
