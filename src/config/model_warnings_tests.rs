use crate::fixture::World;

const WORLD: &str = "world: { id: demo }\nagents:\n  - { id: ada, archetype: doer }\n";

/// The line, the file's last part and the field of each doubt, of a world whose `doer` has `config`.
fn doubts(world: &str, config: &str) -> Vec<(usize, String, String)> {
    let here = World::new();
    here.config(world).write("archetype/doer/config.md", config).write("archetype/analyst/config.md", "# analyst\n");
    let found = super::model_warnings(&here.plan(), |_| true);
    let file = |problem: &super::Problem| problem.file.file_name().unwrap().to_str().unwrap().to_owned();
    found.iter().map(|problem| (problem.line, file(problem), problem.field.clone())).collect()
}

fn of_llm(provider: &str, model: &str, settings: &str) -> Vec<(usize, String, String)> {
    doubts(WORLD, &format!("## LLM\nprovider: {provider}\nmodel: {model}\n{settings}\n"))
}

#[test]
fn what_a_model_cannot_do_is_told_where_it_is_asked_for() {
    for (provider, model, setting, told) in [
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
        let expected = told.then(|| (4, "config.md".to_owned(), format!("LLM.{key}")));
        assert_eq!(of_llm(provider, model, setting), expected.into_iter().collect::<Vec<_>>(), "{model} {setting}");
    }
}

#[test]
fn an_agents_own_setting_is_told_where_the_agent_has_it() {
    let world = "world: { id: demo }\nagents:\n  - id: ada\n    archetype: doer\n    overrides:\n      model: gpt-4.1\n      \
                 thinking: high\n  - { id: bo, archetype: doer, overrides: { model: gpt-4o } }\n  - { id: cy, archetype: doer }\n";
    let config = "## LLM\nprovider: openai\nmodel: gpt-5\nthinking: low\n";
    // Bo's model is its own, and what it asks of it its archetype's. Cy's model can do it.
    assert_eq!(
        doubts(world, config),
        [
            (4, "config.md".to_owned(), "LLM.thinking".to_owned()),
            (7, "world-config.yaml".to_owned(), "agents[0].overrides.thinking".to_owned()),
        ]
    );
}

#[test]
fn fallbacks_are_asked_for_no_more_than_they_give_and_may_think_less() {
    let settings = "thinking: high\nmax_tokens: 20000\nfallback_models: gpt-4o";
    assert_eq!(of_llm("openai", "gpt-5", settings), [(5, "config.md".to_owned(), "LLM.max_tokens".to_owned())]);
}

#[test]
fn an_api_that_a_model_does_not_have_is_told_once_where_it_is_set() {
    let config = "## LLM\nprovider: openai\nmodel: gpt-5.4\n";
    let world = |api: &str| {
        let agents = "world: { id: demo }\nagents: [{ id: ada, archetype: doer }, { id: bo, archetype: doer }]\n";
        format!("{agents}llm:\n  providers:\n    openai:\n      api: {api}\n")
    };
    let told = (6, "world-config.yaml".to_owned(), "llm.providers.openai.api".to_owned());
    assert_eq!(doubts(&world("chat"), config), [told]);
    assert_eq!(doubts(&world("responses"), config), []);
    assert_eq!(doubts(WORLD, config), []);
}

#[test]
fn who_is_created_counts_and_who_is_in_doubt_does_not() {
    let here = World::new();
    let world = "world: { id: demo }\nagents:\n  - { id: ada, archetype: analyst }\nagents_may_create: [doer]\n";
    here.config(world)
        .write("archetype/analyst/config.md", "# analyst\n")
        .write("archetype/doer/config.md", "## LLM\nprovider: openai\nmodel: gpt-5\ntemperature: 1\n");
    assert_eq!(super::model_warnings(&here.plan(), |_| true).len(), 1);
    assert_eq!(super::model_warnings(&here.plan(), |name| name != "doer"), []);
}
