//! Tests of the choice of provider and model, and of the flags of `ghostd up`.

use super::*;
use crate::fixture::{GOOD, World};

fn models(plan: &Plan) -> Vec<(String, String)> {
    let choice = |choice: &ModelChoice| {
        let choice = plan.llm.resolve(choice);
        (choice.provider.unwrap(), choice.model.unwrap())
    };
    plan.archetypes.values().map(|archetype| choice(&archetype.config.model)).collect()
}

fn pair(provider: &str, model: &str) -> (String, String) {
    (provider.to_owned(), model.to_owned())
}

#[test]
fn a_kind_with_a_model_replaces_every_choice() {
    let mut plan = World::new().plan();
    plan.override_models("openai", Some("gpt"), Some("http://127.0.0.1:9/v1")).unwrap();
    assert_eq!(models(&plan), [pair("openai", "gpt"), pair("openai", "gpt")]);
    assert!(plan.agents.iter().all(|agent| agent.model.model.as_deref() == Some("gpt")));
    assert!(plan.archetypes["doer"].config.model.fallback_models.is_empty());
    let provider = &plan.llm.providers["openai"];
    assert_eq!(provider.base_url.as_deref(), Some("http://127.0.0.1:9/v1"));
    assert_eq!(provider.api_key_env, None, "no key was set, and a server of one's own may want none");
    plan.override_models("anthropic", Some("claude"), None).unwrap();
    assert_eq!(plan.llm.providers["anthropic"].api_key_env.as_deref(), Some("ANTHROPIC_API_KEY"));
    assert!(plan.secret_env.contains("ANTHROPIC_API_KEY"));
}

#[test]
fn a_key_that_is_set_goes_to_the_address_of_the_flag() {
    let world = World::new();
    let env = |name: &str| (name == "OPENAI_API_KEY").then(|| "sk-something".to_owned());
    let mut plan = crate::load(&world.dir(), &env).unwrap();
    plan.override_models("openai", Some("m"), Some("http://127.0.0.1:9/v1")).unwrap();
    assert_eq!(plan.llm.providers["openai"].api_key_env.as_deref(), Some("OPENAI_API_KEY"));
}

#[test]
fn providers_that_no_agent_uses_are_removed() {
    let world = World::new();
    world.config(&format!(
        "{GOOD}llm: {{ default_provider: anthropic, default_model: m, providers: {{ gemini: {{}} }} }}\n"
    ));
    let mut plan = world.plan();
    assert_eq!(plan.llm.providers.keys().collect::<Vec<_>>(), ["anthropic", "gemini", "scripted"]);
    plan.override_models("ollama", Some("m"), None).unwrap();
    assert_eq!(plan.llm.providers.keys().collect::<Vec<_>>(), ["ollama", "scripted"]);
}

#[test]
fn agents_of_the_provider_keep_their_model() {
    let mut plan = World::new().plan();
    plan.override_models("scripted", None, None).unwrap();
    assert_eq!(models(&plan), [pair("scripted", "default"), pair("scripted", "small")]);
    assert_eq!(plan.archetypes["doer"].config.model.fallback_models, ["big", "scripted/huge"]);
}

#[test]
fn an_unknown_provider_is_refused_and_nothing_changes() {
    let world = World::new();
    world.config(&format!("{GOOD}llm: {{ providers: {{ local: {{ kind: ollama }} }} }}\n"));
    let mut plan = world.plan();
    let refusal = plan.override_models("antropic", None, None).unwrap_err();
    let hint = refusal.hint.unwrap();
    assert!(hint.contains("`anthropic`") && hint.contains("local") && !hint.contains("recorded"), "{hint}");
    assert_eq!(plan.override_models("gemini", None, None).unwrap_err().code, Code::InvalidArguments);
    assert!(plan.override_models("local", Some("m"), Some("localhost")).is_err());
    assert!(plan.override_models("local", Some(" "), None).is_err());
    assert!(plan.override_models("recorded", Some("m"), None).is_err());
    assert_eq!(models(&plan), models(&world.plan()));
    plan.override_models("local", Some("m"), None).unwrap();
    assert_eq!(models(&plan)[0], pair("local", "m"));
}

#[test]
fn fallbacks_name_a_provider_only_if_the_world_has_it() {
    let plan = World::new().plan();
    assert_eq!(plan.llm.fallback_target("scripted", "scripted/a/b"), ("scripted", "a/b"));
    assert_eq!(plan.llm.fallback_target("scripted", "meta/llama"), ("scripted", "meta/llama"));
}
