//! Tests of the warnings about settings that a model does not support.

use crate::fixture::World;

const WORLD: &str = "world: { id: demo }\nagents:\n  - { id: ada, archetype: doer }\n";

/// The line, the file name and the field of each warning for a world whose `doer` has `config`.
fn warnings_of(world: &str, config: &str) -> Vec<(usize, String, String)> {
    let world_dir = World::new();
    world_dir
        .config(world)
        .write("archetype/doer/config.md", config)
        .write("archetype/analyst/config.md", "# analyst\n");
    let found = super::model_warnings(&world_dir.plan());
    let file = |problem: &super::Problem| problem.file.file_name().unwrap().to_str().unwrap().to_owned();
    found.iter().map(|problem| (problem.line, file(problem), problem.field.clone())).collect()
}

fn warnings_of_llm(provider: &str, model: &str, settings: &str) -> Vec<(usize, String, String)> {
    warnings_of(WORLD, &format!("## LLM\nprovider: {provider}\nmodel: {model}\n{settings}\n"))
}

#[test]
fn unsupported_settings_get_a_warning_at_their_line() {
    for (provider, model, setting, reported) in [
        ("openai", "gpt-4.1", "thinking: high", true),
        ("openai", "gpt-4.1", "thinking: none", false),
        ("openai", "gpt-5.1", "thinking: none", false),
        ("openai", "gpt-5", "thinking: none", true),
        ("openai", "gpt-5", "thinking: high", false),
        ("openai", "gpt-5", "temperature: 0.5", true),
        ("openai", "gpt-4.1", "temperature: 0.5", false),
        ("openai", "gpt-4.1", "max_tokens: 32768", false),
        ("openai", "gpt-4.1", "max_tokens: 32769", true),
        ("anthropic", "claude-3-5-haiku-20241022", "thinking: low", true),
        ("anthropic", "claude-fable-5", "thinking: none", true),
        ("anthropic", "claude-haiku-4-5", "thinking: none", false),
        ("anthropic", "claude-opus-4-7", "temperature: 1", true),
        ("gemini", "gemini-2.5-pro", "thinking: none", true),
        ("gemini", "gemini-2.5-flash", "thinking: none", false),
        ("gemini", "gemini-3-pro-preview", "thinking: none", true),
        ("ollama", "gpt-oss:20b", "thinking: none", true),
        ("ollama", "qwen3:8b", "thinking: high", false),
        ("openai", "nobody-knows", "thinking: none", false),
        ("openai", "nobody-knows", "temperature: 1", false),
        ("openai", "nobody-knows", "max_tokens: 1000000", false),
        ("scripted", "gpt-5", "temperature: 1", false),
    ] {
        let key = setting.split(':').next().unwrap();
        let expected = reported.then(|| (4, "config.md".to_owned(), format!("LLM.{key}")));
        assert_eq!(
            warnings_of_llm(provider, model, setting),
            expected.into_iter().collect::<Vec<_>>(),
            "{model} {setting}"
        );
    }
}

#[test]
fn an_agents_own_setting_gets_the_warning_at_the_agent() {
    let world = "world: { id: demo }\nagents:\n  - id: ada\n    archetype: doer\n    overrides:\n      model: gpt-4.1\n      \
                 thinking: high\n  - { id: bo, archetype: doer, overrides: { model: gpt-4o } }\n  - { id: cy, archetype: doer }\n";
    let config = "## LLM\nprovider: openai\nmodel: gpt-5\nthinking: low\n";
    // Bo has its own model with the archetype's settings. Cy's model supports them.
    assert_eq!(
        warnings_of(world, config),
        [
            (4, "config.md".to_owned(), "LLM.thinking".to_owned()),
            (7, "world-config.yaml".to_owned(), "agents[0].overrides.thinking".to_owned()),
        ]
    );
}

#[test]
fn fallbacks_are_checked_for_answer_size_only() {
    let settings = "thinking: high\nmax_tokens: 20000\nfallback_models: gpt-4o";
    assert_eq!(
        warnings_of_llm("openai", "gpt-5", settings),
        [(5, "config.md".to_owned(), "LLM.max_tokens".to_owned())]
    );
}

#[test]
fn an_unsupported_api_gets_one_warning() {
    let config = "## LLM\nprovider: openai\nmodel: gpt-5.4\n";
    let world = |api: &str| {
        let agents = "world: { id: demo }\nagents: [{ id: ada, archetype: doer }, { id: bo, archetype: doer }]\n";
        format!("{agents}llm:\n  providers:\n    openai:\n      api: {api}\n")
    };
    let reported = (6, "world-config.yaml".to_owned(), "llm.providers.openai.api".to_owned());
    assert_eq!(warnings_of(&world("chat"), config), [reported]);
    assert_eq!(warnings_of(&world("responses"), config), []);
    assert_eq!(warnings_of(WORLD, config), []);
}

#[test]
fn creatable_archetypes_are_checked_and_unknown_ones_are_not() {
    let world_dir = World::new();
    let world = "world: { id: demo }\nagents:\n  - { id: ada, archetype: analyst }\nagents_may_create: [doer]\naccess: { default: public }\n";
    world_dir
        .config(world)
        .write("archetype/analyst/config.md", "# analyst\n")
        .write("archetype/doer/config.md", "## LLM\nprovider: openai\nmodel: gpt-5\ntemperature: 1\n");
    assert_eq!(super::model_warnings(&world_dir.plan()).len(), 1);
}
