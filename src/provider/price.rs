//! What models cost, as the plan says.
//!
//! Must never: guess. A model without a price has none, and a money budget then refuses the call.

use ghost_config::plan::{LlmPlan, ProviderKind};
use ghost_domain::Price;

/// The price of `model` at the provider named `provider`, or `None` if nobody has said it: see [`LlmPlan::price`].
#[must_use]
pub fn price(plan: &LlmPlan, provider: &str, kind: ProviderKind, model: &str) -> Option<Price> {
    plan.price(kind, provider, model)
}

/// Whether asking a model costs nobody anything: it is a script or a recording, and the world has put no price on it.
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
        assert!(!is_free(ProviderKind::Ollama, Some(&Price::default())), "whose tokens are somebody's work");
        for kind in [ProviderKind::Scripted, ProviderKind::Recorded] {
            let free = price(&plan, "there", kind, "gpt-4o");
            assert_eq!(free, Some(Price::default()), "of whoever else bears the name");
            let paid = price(&plan, "here", kind, "gpt-4o");
            assert_eq!(paid, Some(own(2)), "to try budgets out");
            assert!(is_free(kind, free.as_ref()) && !is_free(kind, paid.as_ref()));
        }
    }
}
