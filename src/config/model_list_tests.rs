//! Tests of the list of known models: lookup, prices and capabilities.

use ghost_domain::Money;
use ghost_domain::model_facts::Thinking;

use super::*;
use crate::plan::LlmPlan;

const HTTP: [ProviderKind; 4] =
    [ProviderKind::Anthropic, ProviderKind::OpenAi, ProviderKind::Gemini, ProviderKind::Ollama];

fn facts(kind: ProviderKind, model: &str) -> ModelFacts {
    LlmPlan::default().facts(kind, "p", model)
}

#[test]
fn the_shipped_list_parses_and_its_values_are_plausible() {
    let list = ModelList::parse(include_str!("models.yaml")).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(list.sections.keys().collect::<Vec<_>>(), ["anthropic", "gemini", "ollama", "openai"]);
    assert_eq!(list.as_of().len(), 10);
    for (model, known) in list.sections.values().flatten() {
        if let Some(price) = known.price {
            assert!(price.input.0 > 0 && price.output >= price.input && price.cache_read <= price.input, "{model}");
        }
        let facts = &known.facts;
        assert!(facts.output_tokens <= facts.context_tokens, "{model}");
        if let Some((least, most)) = facts.thinking_tokens {
            assert!(facts.thinking == ThinkingControl::Budget && least < most, "{model}");
            assert!(Some(most) < facts.output_tokens, "{model}: an answer needs room of its own");
        }
        let by_word = [ThinkingControl::Effort, ThinkingControl::Adaptive, ThinkingControl::AlwaysAdaptive]
            .contains(&facts.thinking);
        assert!(facts.efforts.is_empty() || by_word, "{model}");
    }
}

#[test]
fn the_longest_matching_name_wins() {
    let plan = LlmPlan::default();
    let of = |model| plan.price(ProviderKind::OpenAi, "p", model);
    assert_eq!(of("gpt-4o-2024-08-06"), of("gpt-4o"));
    assert_ne!(of("gpt-4o-mini"), of("gpt-4o"));
    assert_eq!(of("gpt-4o-mini-2024-07-18"), of("gpt-4o-mini"));
    assert_eq!((of("gpt-4o-unheard-of"), of("gpt-4onward")), (None, None));
    assert_eq!(plan.price(ProviderKind::Anthropic, "p", "gpt-4o"), None);
    assert_eq!(plan.price(ProviderKind::Ollama, "p", "llama3"), None);
    let claude = |model| plan.price(ProviderKind::Anthropic, "p", model);
    let opus = |model| claude(model).map(|price| (price.input, price.output));
    for model in ["claude-opus-4-5-20251101", "claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8-latest"] {
        assert_eq!(opus(model), Some((Money(5_000_000), Money(25_000_000))), "{model}");
    }
    assert_eq!(opus("claude-opus-4@20250514"), Some((Money(15_000_000), Money(75_000_000))));
    for newer in
        ["claude-opus-4-9", "claude-opus-4-9-20261101", "claude-opus-5", "claude-sonnet-5-5", "claude-haiku-4-6"]
    {
        assert_eq!(claude(newer), None, "{newer} is another model than those with a price");
    }
}

#[test]
fn the_worlds_own_prices_take_precedence() {
    let own = |micros| Price { input: Money(micros), ..Price::default() };
    let plan = LlmPlan {
        prices: BTreeMap::from([("gpt-4o".to_owned(), own(1)), ("here/gpt-4o".to_owned(), own(2))]),
        ..LlmPlan::default()
    };
    assert_eq!(plan.price(ProviderKind::OpenAi, "here", "gpt-4o"), Some(own(2)));
    assert_eq!(plan.price(ProviderKind::OpenAi, "there", "gpt-4o"), Some(own(1)));
    assert_eq!(plan.price(ProviderKind::Scripted, "there", "gpt-4o"), Some(Price::default()));
    assert_eq!(plan.price(ProviderKind::Recorded, "here", "gpt-4o"), Some(own(2)));
}

#[test]
fn the_shipped_facts_of_models_are_right() {
    use ProviderKind::{Anthropic, Gemini, Ollama, OpenAi};
    use ThinkingControl::{Adaptive, AlwaysAdaptive, Budget, Effort, Never, Unknown};
    for (kind, model, thinking, temperature) in [
        (Anthropic, "claude-3-5-haiku-20241022", Never, true),
        (Anthropic, "claude-haiku-4-5-20251001", Budget, true),
        (Anthropic, "claude-opus-4-20250514", Budget, true),
        (Anthropic, "claude-sonnet-4-6", Adaptive, true),
        (Anthropic, "claude-opus-4-7", Adaptive, false),
        (Anthropic, "claude-sonnet-5", Adaptive, false),
        (Anthropic, "claude-fable-5", AlwaysAdaptive, false),
        (Anthropic, "claude-mythos-5", AlwaysAdaptive, false),
        (OpenAi, "gpt-4.1-2025-04-14", Never, true),
        (OpenAi, "o3-2025-04-16", Effort, false),
        (OpenAi, "gpt-5.5-2026-04-23", Effort, false),
        (Gemini, "gemini-2.5-flash-preview-09-2025", Budget, true),
        (Gemini, "gemini-3.1-pro-preview", Effort, true),
        (Ollama, "gpt-oss:20b", Effort, true),
        (Ollama, "qwen3:8b", Unknown, true),
        (OpenAi, "nobody-knows", Unknown, true),
    ] {
        let facts = facts(kind, model);
        assert_eq!((facts.thinking, facts.temperature), (thinking, temperature), "{model}");
    }
    let word = |model| facts(OpenAi, model).effort(Thinking::None).map(str::to_owned);
    assert_eq!(word("gpt-5").as_deref(), Some("minimal"));
    assert_eq!(word("gpt-5.1").as_deref(), Some("none"));
    assert_eq!(word("o4-mini").as_deref(), Some("low"));
    let api = |model| facts(OpenAi, model).api;
    assert_eq!(
        (api("gpt-5.3-codex"), api("gpt-5.4"), api("gpt-6-sol")),
        (None, Some(Api::Responses), Some(Api::Responses))
    );
    assert_eq!(facts(Gemini, "gemini-2.5-pro").thinking_budget(Thinking::Low), 2_048);
    assert_eq!(facts(Gemini, "gemini-2.5-pro").thinking_tokens, Some((128, 32_768)));
    for kind in [ProviderKind::Scripted, ProviderKind::Recorded] {
        assert_eq!(facts(kind, "gpt-5"), ModelFacts::default(), "of a script nothing is known");
    }
}

// covers: TOOL-15
#[test]
fn a_model_sees_images_if_the_list_or_its_kind_says_so() {
    use ProviderKind::{Anthropic, Gemini, Ollama, OpenAi, Scripted};
    for (kind, model, vision) in [
        (Anthropic, "claude-sonnet-4-6", true),
        (Anthropic, "claude-of-tomorrow", true),
        (Gemini, "gemini-2.5-pro", true),
        (OpenAi, "gpt-4o-mini", true),
        (OpenAi, "gpt-4", false),
        (OpenAi, "o3-mini", false),
        (OpenAi, "deepseek-chat", false),
        (OpenAi, "nobody-knows", false),
        (OpenAi, "anthropic/claude-opus-4.8", true),
        (Ollama, "llava:13b", true),
        (Ollama, "gpt-oss:20b", false),
        (Scripted, "gpt-4o", false),
    ] {
        assert_eq!(facts(kind, model).vision, vision, "{model}");
    }
    let own = "p: { blind: { vision: false }, plain: { context: 5 } }";
    let file = crate::report::Report::default();
    let file = file.file("models.yaml");
    let node = crate::yaml::parse_within(own, &file, None, crate::yaml::Bounds::CONFIGURATION).unwrap();
    let own = ModelList::read(&crate::reader::Field::root(&node, &file), &["p"]);
    let plan = LlmPlan { models: Arc::new(own), ..LlmPlan::default() };
    let sees = |kind, model| plan.facts(kind, "p", model).vision;
    assert_eq!((sees(Anthropic, "blind"), sees(Anthropic, "plain"), sees(OpenAi, "plain")), (false, true, false));
}

#[test]
fn a_gateways_model_has_the_capabilities_of_the_vendors_model() {
    let plan = LlmPlan::default();
    for (gateway, kind, vendor) in [
        ("anthropic/claude-opus-4.8", ProviderKind::Anthropic, "claude-opus-4-8"),
        ("anthropic/claude-opus-4-8:beta", ProviderKind::Anthropic, "claude-opus-4-8"),
        ("google/gemini-2.5-pro", ProviderKind::Gemini, "gemini-2.5-pro"),
        ("accounts/x/models/gpt-oss-120b", ProviderKind::Ollama, "gpt-oss-120b"),
        ("claude-haiku-4-5", ProviderKind::Anthropic, "claude-haiku-4-5"),
    ] {
        // A gateway speaks another protocol, in which the vendor's own form for tools does not exist.
        let vendors = ModelFacts { loads_tools: false, ..facts(kind, vendor) };
        assert_eq!(facts(ProviderKind::OpenAi, gateway), vendors, "{gateway}");
        assert_ne!(facts(kind, vendor), ModelFacts::default(), "{vendor}");
        assert_eq!(
            plan.price(ProviderKind::OpenAi, "p", gateway),
            None,
            "{gateway}: what the gateway takes is its own"
        );
    }
    let at_gateway = facts(ProviderKind::OpenAi, "openai/gpt-5.4");
    assert_eq!(at_gateway, ModelFacts { api: None, loads_tools: false, ..facts(ProviderKind::OpenAi, "gpt-5.4") });
    assert_eq!(facts(ProviderKind::OpenAi, "anthropic/claude-opus-4.9"), ModelFacts::default());
    // If two kinds have the name, the model is ambiguous.
    let other = ModelList::parse("gemini: { claude-opus-4-8: { context: 5 } }").unwrap();
    let plan = LlmPlan { models: Arc::new((*ModelList::shipped()).clone().merged(other)), ..LlmPlan::default() };
    assert_eq!(plan.facts(ProviderKind::OpenAi, "p", "anthropic/claude-opus-4-8"), ModelFacts::default());
}

#[test]
fn an_entry_of_the_same_name_replaces_the_shipped_one() {
    let text = "openai: { gpt-4o: { context: 5 }, mine: { price: { input: 1, output: 2 }, thinking: switch } }";
    let models = (*ModelList::shipped()).clone().merged(ModelList::parse(text).unwrap());
    assert_eq!(models.as_of(), ModelList::shipped().as_of());
    let plan = LlmPlan { models: Arc::new(models), ..LlmPlan::default() };
    assert_eq!(plan.price(ProviderKind::OpenAi, "p", "gpt-4o"), None, "as a whole");
    assert_eq!(plan.facts(ProviderKind::OpenAi, "p", "gpt-4o").context_tokens, Some(5));
    assert_eq!(plan.price(ProviderKind::OpenAi, "p", "mine").unwrap().output, Money(2_000_000));
    assert_eq!(plan.facts(ProviderKind::OpenAi, "p", "mine").thinking, ThinkingControl::Switch);
    let shipped = LlmPlan::default();
    assert_eq!(
        plan.price(ProviderKind::OpenAi, "p", "gpt-4o-mini"),
        shipped.price(ProviderKind::OpenAi, "p", "gpt-4o-mini")
    );
}

#[test]
fn problems_of_a_list_have_lines() {
    let text = "as_of: soon\nopnai: {}\nopenai:\n  m:\n    contxt: 5\n    thinking: allways\n    efforts: [low, hi]\n    \
                thinking_tokens: [5]\n    api: chats\n    input: 3\n    price: { input: 3 }\n    temperature: 'no'\n    \
                output: 0\n  n: 5\n  o: { thinking_tokens: [9, 5] }\nx-note: anything\n";
    let found = ModelList::parse(text).unwrap_err();
    let of = |line: usize, field: &str| {
        found
            .0
            .iter()
            .find(|problem| problem.line == line && problem.field == field)
            .map(|problem| problem.hint.as_str())
    };
    for (line, field, hint) in [
        (1, "as_of", "2026-07-02"),
        (2, "opnai", "`openai`"),
        (5, "openai.m.contxt", "`context`"),
        (6, "openai.m.thinking", "always_adaptive"),
        (7, "openai.m.efforts[1]", "high"),
        (8, "openai.m.thinking_tokens", "[1_024"),
        (9, "openai.m.api", "`chat`"),
        (10, "openai.m.input", "`price"),
        (11, "openai.m.price", ""),
        (12, "openai.m.temperature", "false"),
        (13, "openai.m.output", "1"),
        (14, "openai.n", "{ context"),
        (15, "openai.o.thinking_tokens", "[1_024"),
    ] {
        assert!(of(line, field).is_some_and(|reported| reported.contains(hint)), "{line} {field}: {found}");
    }
    assert_eq!(found.0.len(), 13, "{found}");
    assert!(HTTP.iter().all(|kind| kinds().any(|name| name == kind.as_str())));
}
