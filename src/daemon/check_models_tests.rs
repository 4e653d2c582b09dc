//! Tests of the problems of providers, models and model flags.

use super::*;

/// A problem of a provider or model is reported at its place in the files, whatever the kind of file.
#[test]
fn every_problem_of_a_provider_is_reported_at_its_place() {
    let llm = "llm: { default_provider: scripted, default_model: clerk }\n";
    let url = "base_url: 'http://127.0.0.1:9'";
    let local = format!(
        "llm:\n  default_provider: scripted\n  default_model: clerk\n  providers:\n    mine: {{ kind: openai, {url} }}\n"
    );
    let limited = "budgets: { world: { usd: 1 } }\n";
    let access = "## Tool Access\n- workspace.read\n";
    for (models, config, place, datum) in [
        // A missing key: at the name of the variable if it is written, else at the provider.
        (
            "llm:\n  default_model: clerk\n  providers:\n    mine:\n      kind: openai\n      api_key_env: MY_KEY\n".to_owned(),
            String::new(),
            format!("{WORLD_FILE}:9: llm.providers.mine.api_key_env"),
            "MY_KEY",
        ),
        (
            "llm:\n  default_model: clerk\n  providers:\n    gemini:\n      concurrency: 2\n".to_owned(),
            String::new(),
            format!("{WORLD_FILE}:7: llm.providers.gemini"),
            "GEMINI_API_KEY",
        ),
        (
            "llm:\n  default_model: m\n  default_provider: anthropic\n".to_owned(),
            String::new(),
            format!("{WORLD_FILE}:6: llm.default_provider"),
            "ANTHROPIC_API_KEY",
        ),
        (
            llm.to_owned(),
            "## LLM\nmodel: clerk\nprovider: openai\n".to_owned(),
            "archetype/clerk/config.md:3: LLM.provider".to_owned(),
            "OPENAI_API_KEY",
        ),
        (
            llm.to_owned(),
            "## LLM\nmodel: clerk\nfallback_models: openai/gpt\n".to_owned(),
            "archetype/clerk/config.md:3: LLM.fallback_models".to_owned(),
            "OPENAI_API_KEY",
        ),
        (
            format!("  - id: bo\n    archetype: clerk\n    overrides:\n      fallback_models:\n        - clerk\n        - gemini/x\n{llm}"),
            String::new(),
            format!("{WORLD_FILE}:9: agents[1].overrides.fallback_models[1]"),
            "GEMINI_API_KEY",
        ),
        (
            format!("  - id: bo\n    archetype: clerk\n    overrides:\n      fallback_models:\n        - clerk\n        - gemni/x\n{llm}"),
            String::new(),
            format!("{WORLD_FILE}:9: agents[1].overrides.fallback_models[1]"),
            "`gemni`",
        ),
        (
            "llm:\n  default_model: clerk\n  providers:\n    mine:\n      kind: openai\n      base_url: 'http://h:port'\n".to_owned(),
            String::new(),
            format!("{WORLD_FILE}:9: llm.providers.mine.base_url"),
            "",
        ),
        (
            "llm:\n  default_model: clerk\n  providers:\n    old:\n      kind: recorded\n      dir: nowhere\n".to_owned(),
            String::new(),
            format!("{WORLD_FILE}:9: llm.providers.old.dir"),
            "",
        ),
        // A model without a price, or with a name that no rule file can have: where it is named.
        (
            format!("{local}{limited}"),
            "## LLM\nprovider: mine\nmodel: m\n".to_owned(),
            "archetype/clerk/config.md:3: LLM.model".to_owned(),
            "`mine/m`",
        ),
        (
            format!("{}{limited}", local.replace("scripted", "mine").replace("clerk", "m")),
            String::new(),
            format!("{WORLD_FILE}:6: llm.default_model"),
            "`mine/m`",
        ),
        (
            format!("agents_may_create: [clerk]\n{}{limited}", local.replace("agents", "")),
            "## LLM\nmodel: clerk\nfallback_models: mine/m\n".to_owned(),
            "archetype/clerk/config.md:3: LLM.fallback_models".to_owned(),
            "`mine/m`",
        ),
        (
            llm.to_owned(),
            "## LLM\nmodel: a clerk\n".to_owned(),
            "archetype/clerk/config.md:2: LLM.model".to_owned(),
            "`a clerk`",
        ),
        (
            llm.replace("default_model: clerk", "default_model: .clerk"),
            String::new(),
            format!("{WORLD_FILE}:4: llm.default_model"),
            "`.clerk`",
        ),
    ] {
        let world = world();
        let agents = WORLD.split("llm:").next().unwrap();
        write(world.path(), WORLD_FILE, format!("{agents}{models}"));
        write(world.path(), "archetype/clerk/config.md", format!("{config}{access}"));
        let found = self::problems(world.path());
        assert_eq!(found.len(), 1, "{place} is to be the only one of {found:#?}");
        let rest = found[0].split_once(": ").unwrap().1;
        assert!(rest.starts_with(&format!("{place}: ")) && rest.contains(datum), "{place} {datum} is not {}", found[0]);
    }
}

/// Problems that only follow from an invalid setting of a provider are not reported.
#[test]
fn a_bad_setting_of_a_provider_is_the_only_reported_problem() {
    for (entry, field) in [
        ("d: { kind: openai, base_url: 'localhost:80' }", "d.base_url"),
        ("d: { kind: openai, base_url: 'http://' }", "d.base_url"),
        ("d: { kind: openai, base_url: 'http://a b/' }", "d.base_url"),
        ("d: { kind: openai, base_url: '5' }", "d.base_url"),
        ("d: { kind: openai, base_url: 5 }", "d.base_url"),
        ("d: { kind: openai, base_url: true }", "d.base_url"),
        ("d: { kind: openai, base_url: [x] }", "d.base_url"),
        ("d: { kind: openai, base_url: }", "d.base_url"),
        ("d: { kind: gemini, base_url: 'ftp://x' }", "d.base_url"),
        ("anthropic: { base_url: 'htp://x' }", "anthropic.base_url"),
        ("d: { kind: openai, base_url: '${NOPE}' }", "d.base_url"),
        ("d: { kind: openai, base_url: 'http://${NOPE}/' }", "d.base_url"),
        ("d: { kind: openai, base_url: 'http://h:${NOPE}' }", "d.base_url"),
        ("d: { kind: openai, api_key_env: sk-abcdef }", "d.api_key_env"),
        ("d: { kind: openai, api_key_env: 5 }", "d.api_key_env"),
        ("d: { kind: openai, api_key_env: '${NOPE}' }", "d.api_key_env"),
        ("d: { kind: openai, base_url: 'http://h/', api_key_env: sk-abcdef }", "d.api_key_env"),
        ("d: { kind: opnai }", "d.kind"),
        ("d: { kind: '${NOPE}' }", "d.kind"),
        ("openai: { kind: opnai }", "openai.kind"),
        ("d: openai", "d"),
    ] {
        let world = world();
        let name = entry.split(':').next().unwrap();
        let agents = WORLD.split("llm:").next().unwrap();
        let llm = format!("llm:\n  default_model: m\n  default_provider: {name}\n  providers:\n    {entry}\n");
        write(world.path(), WORLD_FILE, format!("{agents}{llm}"));
        let found = problems(world.path());
        assert_eq!(found.len(), 1, "{entry}: {found:#?}");
        let problems = format!("error: {WORLD_FILE}:8: llm.providers.{field}: ");
        assert!(found[0].starts_with(&problems), "{problems} is not {}", found[0]);
    }
    // The same for fall-back models of such a provider.
    let world = world();
    let llm = "llm: { default_provider: scripted, default_model: clerk, providers: { d: { kind: opnai } } }";
    write(world.path(), WORLD_FILE, format!("{}{llm}\n", WORLD.split("llm:").next().unwrap()));
    write(
        world.path(),
        "archetype/clerk/config.md",
        "## LLM\nfallback_models: d/x\n## Tool Access\n- workspace.read\n",
    );
    let found = problems(world.path());
    assert!(found.len() == 1 && found[0].contains(": llm.providers.d.kind: "), "{found:#?}");
}

#[test]
fn problems_of_the_flags_are_reported_for_the_command_line() {
    let flags = |provider: &str, model: Option<&str>, base_url: Option<&str>| {
        let (model, base_url) = (model.map(str::to_owned), base_url.map(str::to_owned));
        Overrides { provider: Some(provider.to_owned()), model, base_url }
    };
    let limited = "budgets: { world: { usd: 1 } }\n";
    for (overrides, problems) in [
        (flags("scriptd", None, None), "error: command line: --provider: "),
        (flags("openai", None, None), "error: command line: --provider: "),
        (flags("openai", Some("m"), None), "error: command line: --provider: "),
        (flags("openai", Some(""), None), "error: command line: --model: "),
        (flags("openai", Some("m"), Some("x")), "error: command line: --base-url: "),
        (flags("openai", Some("m"), Some("http://h:port")), "error: command line: --base-url: "),
        (flags("openai", Some("m"), Some("http://127.0.0.1:9")), "warning: command line: --model: `openai/m`"),
        (flags("scripted", Some("clrk"), None), "error: command line: --model: "),
    ] {
        let world = world();
        write(world.path(), WORLD_FILE, format!("{WORLD}{limited}"));
        let found = problems_with_flags(world.path(), &overrides);
        assert!(found.iter().any(|found| found.starts_with(problems)), "{problems} is not in {found:#?}");
        let of_flags = found.iter().filter(|found| found.contains("command line: --"));
        assert_eq!(of_flags.count(), found.len(), "{found:#?}");
    }
}

/// A model's missing abilities are reported where they are needed. If the list of models has errors, only these are
/// reported.
#[test]
fn missing_abilities_of_a_model_are_reported_when_the_list_of_models_is_valid() {
    let world = world();
    let agents = WORLD.split("llm:").next().unwrap();
    let llm =
        "llm:\n  models_file: models.yaml\n  providers:\n    mine: { kind: openai, base_url: 'http://127.0.0.1:9' }\n";
    write(world.path(), WORLD_FILE, format!("{agents}{llm}budgets: {{ world: {{ usd: 1 }} }}\n"));
    let config = "## LLM\nprovider: mine\nmodel: m\nthinking: high\n## Tool Access\n- workspace.read\n";
    write(world.path(), "archetype/clerk/config.md", config);
    let entry = "mine:\n  m: { thinking: never, price: { input: 1, output: 2 } }\n";
    write(world.path(), "models.yaml", entry);
    let found = problems(world.path());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with("warning: archetype/clerk/config.md:4: LLM.thinking: "), "{found:#?}");
    write(world.path(), "models.yaml", entry.replace("price", "prise"));
    let found = problems(world.path());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with("error: models.yaml:2: mine.m.prise: "), "{found:#?}");
}
