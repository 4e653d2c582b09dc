//! Tests of what droids may use.

use ghost_domain::{AgentKind, Timestamp};
use serde_json::json;

use super::*;
use crate::fixture::World;

const HEAD: &str = "world: { name: W }\nagents: [{ id: ada, archetype: doer }]\n\
    llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }\n";

fn plan(section: &str) -> Plan {
    let world = World::new();
    world.write("archetype/analyst/config.md", "");
    world.config(&format!("{HEAD}{section}"));
    world.plan()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn droid(terms: &DroidTerms) -> Agent {
    let blank = Agent::new("droid-1a2b3c4d".parse().unwrap(), "droid", AgentKind::Droid, Timestamp(0));
    Agent { owner: Some("agent:ada".into()), overrides: json!(terms), ..blank }
}

fn terms(tools: &[&str]) -> DroidTerms {
    DroidTerms {
        tools: names(tools),
        groups: names(&["ops"]),
        model: None,
        parent_model: "p/parent".into(),
        turn_seconds: 60,
        depth: 1,
    }
}

// covers: DROID-03
#[test]
fn a_droid_has_at_most_its_parent_s_tools_or_those_of_the_world_file() {
    let bare = plan("");
    let parent = names(&["workspace.read", "tool.fetch", "syscall.ask"]);
    assert_eq!(bare.droid_tools(&parent, None, None), Ok(names(&["tool.fetch", "workspace.read"])), "of the five");
    assert_eq!(bare.droid_tools(&parent, None, Some(&words(&["read"]))), Ok(names(&["workspace.read"])));
    let refused = |word: &str| bare.droid_tools(&parent, None, Some(&words(&[word]))).unwrap_err().code;
    assert_eq!((refused("syscall.ask"), refused("tool.cli")), (Code::AccessDenied, Code::AccessDenied));
    assert_eq!(refused("workspace.raed"), Code::InvalidArguments);
    // The world file may give the droids of a lead what the lead itself lacks.
    let wide = plan("droids: { tools: [workspace.read, tool.cli] }\n");
    assert_eq!(wide.droid_tools(&parent, None, None), Ok(names(&["tool.cli", "workspace.read"])));
    assert_eq!(wide.droid_tools(&parent, None, Some(&words(&["tool.*"]))), Ok(names(&["tool.cli"])));
    let none = plan("droids: { tools: [] }\n");
    assert_eq!(none.droid_tools(&parent, None, None), Ok(names(&[])));
    // A droid gives its own droids no more than it was given.
    let narrow = names(&["workspace.read"]);
    assert_eq!(wide.droid_tools(&narrow, Some(&narrow), None), Ok(narrow.clone()));
    let refused = wide.droid_tools(&narrow, Some(&narrow), Some(&words(&["tool.cli"])));
    assert_eq!(refused.unwrap_err().code, Code::AccessDenied);
}

// covers: DROID-04, DROID-05, DROID-12
#[test]
fn the_spec_of_a_droid_is_closed() {
    let plan_of = plan("droids: { tools: [workspace.read, tool.cli], model: other }\naccess: { default: public }\n");
    let spec = plan_of.spec_for(&droid(&terms(&["workspace.read", "tool.fetch"]))).unwrap();
    let allowed: Vec<&str> = ghost_domain::tool_catalogue::CATALOGUE
        .iter()
        .map(|entry| entry.name)
        .filter(|name| spec.access.can_access(name))
        .collect();
    // What the world file took away is gone, and nothing is public to a droid or always on.
    assert_eq!(allowed, ["syscall.tool.call", "syscall.tool.describe", "workspace.read"]);
    assert!(!spec.access.can_access_with_channel("syscall.channel.send"));
    assert_eq!(*spec.access.groups(), names(&["ops"]), "rules for commands judge it as they judge its parent");
    assert_eq!(spec.write_acl.prefixes(), ["droids/droid-1a2b3c4d/"]);
    assert_eq!((spec.limits.turn_rounds_max, spec.limits.turn_seconds), (8, 60));
    assert_eq!(spec.restart.restart, RestartType::Temporary);
    assert_eq!((spec.model.provider.as_deref(), spec.model.model.as_deref()), (Some("p"), Some("other")));
    assert_eq!(spec.skills, Some(BTreeSet::new()));
    let bare = plan("").spec_for(&droid(&terms(&[]))).unwrap();
    assert_eq!(bare.model.model.as_deref(), Some("parent"));
    let chosen = DroidTerms { model: Some("p/third".into()), ..terms(&[]) };
    assert_eq!(plan_of.spec_for(&droid(&chosen)).unwrap().model.model.as_deref(), Some("third"));
    assert_eq!(plan_of.droid_model("other"), Ok("p/other".to_owned()));
    assert_eq!(plan_of.droid_model("unheard-of").unwrap_err().code, Code::NotFound);
}

#[test]
fn a_mistake_in_the_section_has_its_line_and_a_hint() {
    let world = World::new();
    world.config(&format!("{HEAD}droids:\n  tools: [workspace.raed]\n  max: 3\n"));
    let problems = world.problems();
    for part in
        ["world-config.yaml:5: droids.tools[0]", "workspace.read", "world-config.yaml:6: droids.max", "droids_max"]
    {
        assert!(problems.contains(part), "{part}: {problems}");
    }
}
