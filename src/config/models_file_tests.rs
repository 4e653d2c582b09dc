//! `llm.models_file`: a world's own list of models.

use std::sync::Arc;

use ghost_domain::Money;

use crate::fixture::{GOOD, World};
use crate::plan::ProviderKind::OpenAi;
use crate::{FileChanges, ModelList, diff};

fn world(file: &str, text: &str) -> World {
    let world = World::new();
    let llm = "llm: { models_file: FILE, providers: { azure: { kind: openai, base_url: 'http://h/' } } }\n";
    world.config(&format!("{GOOD}{}", llm.replace("FILE", file))).write("facts/models.yaml", text);
    world
}

const MINE: &str = "as_of: 2026-11-23\nopenai:\n  mine: { price: { input: 1, output: 2 }, output: 9 }\nazure:\n  mine: { output: 5 }\n";

#[test]
fn a_worlds_own_file_takes_precedence_over_the_shipped_list() {
    let plan = world("facts/models.yaml", MINE).plan();
    let output = |provider: &str| plan.llm.facts(OpenAi, provider, "mine").output_tokens;
    assert_eq!((output("openai"), output("azure")), (Some(9), Some(5)), "a provider's entries come before its kind's");
    assert_eq!(plan.llm.price(OpenAi, "openai", "mine").unwrap().output, Money(2_000_000));
    assert_eq!(plan.llm.price(OpenAi, "azure", "mine"), None);
    assert!(plan.origins.models_file.is_some_and(|file| file.ends_with("demo/facts/models.yaml")));
    assert!(plan.llm.price(OpenAi, "openai", "gpt-4o").is_some());
    assert!(Arc::ptr_eq(&World::new().plan().llm.models, &ModelList::shipped()), "without one nothing is copied");
}

#[test]
fn a_reload_reports_changes_of_the_file_and_of_providers() {
    let own = world("facts/models.yaml", MINE);
    let before = own.plan();
    let changed = |own: &World| diff(&before, &own.plan(), &FileChanges::default()).world;
    assert_eq!(changed(&own), [""; 0]);
    own.write("facts/models.yaml", MINE.replace("output: 9", "output: 8"));
    assert_eq!(changed(&own), ["llm"]);
    for more in ["headers: { a: b }", "query: { a: b }", "extra_body: { a: b }", "api: chat"] {
        let own = world("facts/models.yaml", MINE);
        let llm = "llm: { models_file: facts/models.yaml, providers: { azure: { kind: openai, base_url: 'http://h/', ";
        own.config(&format!("{GOOD}{llm}{more} }} }} }}\n"));
        assert_eq!(changed(&own), ["llm"], "{more}");
    }
}

#[test]
fn problems_of_the_file_have_lines() {
    let line = GOOD.lines().count() + 1;
    for (file, text, reported) in [
        ("facts/models.yaml", "azur: {}", "facts/models.yaml:1: azur"),
        ("facts/models.yaml", "azure:\n  m:\n    contex: 5", "facts/models.yaml:3: azure.m.contex"),
        ("facts/models.yaml", "azure: [", "facts/models.yaml:1: "),
        ("facts/models.yaml", "azure: {}\nazure: {}", "facts/models.yaml:2: azure"),
        ("facts/none.yaml", "", "facts/none.yaml: "),
        ("../models.yaml", "", &format!("world-config.yaml:{line}: llm.models_file")),
    ] {
        let problems = world(file, text).problems();
        assert!(problems.starts_with(&format!("error: {reported}")), "{reported} is not {problems}");
        assert_eq!(problems.matches("error: ").count(), 1, "{problems}");
        assert!(problems.contains("\n  hint: "), "{problems}");
    }
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("m.yaml"), MINE).unwrap();
    let own = world("link.yaml", MINE);
    std::os::unix::fs::symlink(outside.path().join("m.yaml"), own.dir().join("link.yaml")).unwrap();
    assert!(own.problems().contains("link.yaml"), "{}", own.problems());
}
