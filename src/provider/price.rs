//! What models cost: the world's own prices first, then the list prices that ship as data in `prices.yaml`.
//!
//! Must never: guess. A model that no entry names has no price, and a money budget then refuses the call.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ghost_config::plan::{LlmPlan, ProviderKind};
use ghost_domain::Money;
use ghost_domain::Price;
use serde::Deserialize;

/// The shipped list. A test shows that it reads; were it broken all the same, no price would be known, and money
/// budgets would refuse rather than undercharge.
static LIST: LazyLock<PriceList> = LazyLock::new(|| parse(include_str!("prices.yaml")).unwrap_or_default());

/// Prices by protocol, then by the beginning of a model's name.
type PriceList = BTreeMap<String, BTreeMap<String, Price>>;

/// US dollars for a million tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    input: f64,
    output: f64,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
}

fn parse(text: &str) -> Result<PriceList, String> {
    let rows: BTreeMap<String, BTreeMap<String, Row>> =
        serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    let money = |usd: f64| Money::from_usd(usd).map_err(|refusal| refusal.to_string());
    rows.into_iter()
        .map(|(protocol, models)| {
            let models = models
                .into_iter()
                .map(|(model, row)| {
                    let price = Price {
                        input: money(row.input)?,
                        output: money(row.output)?,
                        cache_read: money(row.cache_read.unwrap_or(row.input))?,
                        cache_write: money(row.cache_write.unwrap_or(row.input))?,
                    };
                    Ok((model, price))
                })
                .collect::<Result<_, String>>()?;
            Ok((protocol, models))
        })
        .collect()
}

/// The price of `model` at the provider named `provider`, or `None` if nobody has said it. The world's own prices come
/// first, `provider/model` before `model`; then the shipped list, by the longest name that the model's begins with and
/// that only a version follows. Models of `scripted` and `recorded` providers are free, unless
/// the world prices them as `provider/model`.
#[must_use]
pub fn price(plan: &LlmPlan, provider: &str, kind: ProviderKind, model: &str) -> Option<Price> {
    let named = plan.prices.get(&format!("{provider}/{model}"));
    let protocol = match kind {
        // A price of its own, by the full name alone, is for trying budgets out.
        ProviderKind::Scripted | ProviderKind::Recorded => return Some(named.copied().unwrap_or_default()),
        ProviderKind::Anthropic => "anthropic",
        ProviderKind::OpenAi => "openai",
        ProviderKind::Gemini => "gemini",
        ProviderKind::Ollama => "ollama",
    };
    if let Some(own) = named.or_else(|| plan.prices.get(model)) {
        return Some(*own);
    }
    LIST.get(protocol)?
        .iter()
        .filter(|(name, _)| model.strip_prefix(name.as_str()).is_some_and(only_a_version))
        .max_by_key(|(name, _)| name.len())
        .map(|(_, price)| *price)
}

/// Whether asking a model costs nobody anything: it is a script or a recording, and the world has put no price on it.
#[must_use]
pub fn is_free(kind: ProviderKind, price: Option<&Price>) -> bool {
    matches!(kind, ProviderKind::Scripted | ProviderKind::Recorded)
        && price.is_none_or(|price| *price == Price::default())
}

/// Whether what follows a model's name is empty or a version of it, rather than the name of another model: `-2024-08-06`
/// and `-latest` are versions, `-mini` is not.
fn only_a_version(rest: &str) -> bool {
    if rest.is_empty() {
        return true;
    }
    let Some(version) = rest.strip_prefix(['-', '@']) else { return false };
    version.split(['-', '.']).all(|part| {
        matches!(part, "latest" | "preview" | "exp") || (!part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_list_reads_and_costs_something() {
        let list = parse(include_str!("prices.yaml")).unwrap();
        assert_eq!(list.keys().collect::<Vec<_>>(), ["anthropic", "gemini", "openai"]);
        for (model, price) in list.values().flatten() {
            assert!(price.input.0 > 0 && price.output >= price.input && price.cache_read <= price.input, "{model}");
        }
    }

    #[test]
    fn the_longest_name_that_fits_wins() {
        let plan = LlmPlan::default();
        let of = |model| price(&plan, "p", ProviderKind::OpenAi, model);
        assert_eq!(of("gpt-4o-2024-08-06"), of("gpt-4o"));
        assert_ne!(of("gpt-4o-mini"), of("gpt-4o"));
        assert_eq!(of("gpt-4o-mini-2024-07-18"), of("gpt-4o-mini"));
        assert_eq!(of("gpt-4o-unheard-of"), None);
        assert_eq!(of("gpt-4onward"), None);
        assert_eq!(price(&plan, "p", ProviderKind::Anthropic, "gpt-4o"), None);
        assert_eq!(price(&plan, "p", ProviderKind::Ollama, "llama3"), None);
    }

    #[test]
    fn the_worlds_own_prices_come_first_and_scripts_are_free() {
        let own = |micros| Price { input: Money(micros), ..Price::default() };
        let plan = LlmPlan {
            prices: BTreeMap::from([("gpt-4o".to_owned(), own(1)), ("here/gpt-4o".to_owned(), own(2))]),
            ..LlmPlan::default()
        };
        assert_eq!(price(&plan, "here", ProviderKind::OpenAi, "gpt-4o"), Some(own(2)));
        assert_eq!(price(&plan, "there", ProviderKind::OpenAi, "gpt-4o"), Some(own(1)));
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
