//! Prices of models, as the plan sets them.
//!
//! This module must never guess a price. A money budget refuses a call to a model without a price.

use ghost_config::plan::{LlmPlan, ProviderKind};
use ghost_domain::Price;

/// The price of `model` at the provider `provider`, or `None` if there is none; see
/// [`LlmPlan::price`].
#[must_use]
pub fn price(plan: &LlmPlan, provider: &str, kind: ProviderKind, model: &str) -> Option<Price> {
    plan.price(kind, provider, model)
}

/// Whether a call of the model costs nothing: the provider is scripted or recorded, and the world
/// sets no price for it.
#[must_use]
pub fn is_free(kind: ProviderKind, price: Option<&Price>) -> bool {
    matches!(kind, ProviderKind::Scripted | ProviderKind::Recorded)
        && price.is_none_or(|price| *price == Price::default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ghost_domain::Money;

    use super::*;

    #[test]
    fn scripts_are_free_unless_the_world_prices_them() {
        let own = |micros| Price { input: Money(micros), ..Price::default() };
        let plan = LlmPlan {
            prices: BTreeMap::from([("gpt-4o".to_owned(), own(1)), ("here/gpt-4o".to_owned(), own(2))]),
            ..LlmPlan::default()
        };
        assert!(!is_free(ProviderKind::Ollama, Some(&Price::default())), "a local model is not free");
        for kind in [ProviderKind::Scripted, ProviderKind::Recorded] {
            let free = price(&plan, "there", kind, "gpt-4o");
            assert_eq!(free, Some(Price::default()), "the price of the real model does not apply");
            let paid = price(&plan, "here", kind, "gpt-4o");
            assert_eq!(paid, Some(own(2)), "the world's own price applies");
            assert!(is_free(kind, free.as_ref()) && !is_free(kind, paid.as_ref()));
        }
    }
}
