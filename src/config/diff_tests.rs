//! Tests of the changes that a reload reports.

use serde_json::json;

use super::*;
use crate::fixture::World;

#[test]
fn the_same_world_changes_nothing() {
    let world = World::new();
    let plan = diff(&world.plan(), &world.plan(), &FileChanges::default());
    assert!(plan.is_empty());
    assert_eq!(plan.unchanged, 2);
}

#[test]
fn a_reload_lists_each_change() {
    let world = World::new();
    let old = world.plan();
    world.with(
        "  - { id: chora, archetype: analyst, name: Chora, privilege_groups: [manager] }\n",
        "  - { id: nova, archetype: doer, team: desk }\n  - { id: fern, archetype: analyst }\n",
    );
    let text = std::fs::read_to_string(world.dir().join("world-config.yaml")).unwrap();
    world.config(
        &text
            .replace("agents: [chora]", "agents: []")
            .replace("write_acls: { chora: [agents/chora/", "write_acls: { nova: [agents/nova/"),
    );
    world.write("archetype/doer/goal.md", "Something else.").write("laws.md", "New.");
    let plan = diff(&old, &world.plan(), &FileChanges::default());
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["world"], json!(["laws", "teams"]));
    assert_eq!(json["archetypes"], json!({ "doer": ["goal"] }));
    assert_eq!((&json["added"], &json["dropped"]), (&json!(["nova", "fern"]), &json!(["chora"])));
    assert_eq!(json["changed"], json!([{ "agent_id": "mux", "fields": ["archetype.goal"] }]));
    assert_eq!(json["unchanged"], 0);
    let lines: Vec<String> = plan.to_string().lines().map(str::to_owned).collect();
    for (sign, what) in [("~", "archetype doer"), ("+", "agent nova"), ("~", "agent mux"), ("-", "agent chora")] {
        assert!(lines.iter().any(|line| line.starts_with(&format!("{sign} {what}"))), "{sign} {what}: {lines:?}");
    }
}

#[test]
fn budgets_are_listed_by_scope_and_returning_agents_by_effect() {
    let world = World::new();
    let old = world.plan();
    world.with(
        "budgets: { world: { tokens: 1_000_000 }, team: { desk: { usd: 3 } } }\n",
        "budgets: { team: { desk: { usd: 4 } } }\n",
    );
    let mut plan = diff(&old, &world.plan(), &FileChanges::default());
    assert_eq!(plan.budgets.keys().collect::<Vec<_>>(), ["team:desk", "world"]);
    assert_ne!(plan.budgets["team:desk"], plan.budgets["world"], "one is set, the other is removed");
    let id = |name: &str| -> AgentId { name.parse().unwrap() };
    plan.budgets.clear();
    plan.added = vec![id("ana"), id("bea"), id("cyd"), id("dan")];
    assert!(!plan.is_empty());
    let back = |how, fields: &[&str]| Returning { how, fields: fields.iter().map(ToString::to_string).collect() };
    plan.returning(
        [
            (id("bea"), back(Return::Starts, &[])),
            (id("cyd"), back(Return::StaysStopped, &[])),
            (id("dan"), back(Return::Runs, &["archetype", "access"])),
        ]
        .into(),
    );
    assert_eq!(plan.added, [id("ana")]);
    assert_eq!(plan.returning.keys().collect::<Vec<_>>(), [&id("bea"), &id("cyd"), &id("dan")]);
    let text = plan.to_string();
    for part in ["+ agent ana", "> agent bea", "~ agent cyd", "~ agent dan", "archetype, access"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    plan.added.clear();
    assert!(!plan.is_empty(), "one that returns is a change");
}

#[test]
fn a_rule_file_that_changed_is_named_with_the_agents_that_follow_it() {
    let world = World::new();
    let (old, new) = (world.plan(), world.plan());
    let scripts = new.dir.join("scripts");
    let changes = FileChanges {
        scripts: FileChanges::of(
            &[(scripts.join("big.yaml"), 1), (scripts.join("gone.yaml"), 1), (scripts.join("same.yaml"), 1)].into(),
            &[(scripts.join("big.yaml"), 2), (scripts.join("same.yaml"), 1)].into(),
        ),
        skills: [("python".to_owned(), "added")].into(),
    };
    let plan = diff(&old, &new, &changes);
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["scripts"], json!({ "scripts/big.yaml": "changed", "scripts/gone.yaml": "removed" }));
    assert_eq!(json["skills"], json!({ "python": "added" }));
    assert_eq!(json["changed"], json!([{ "agent_id": "mux", "fields": ["script"] }]));
    assert_eq!(json["unchanged"], 1);
    assert!(!plan.is_empty());
}

#[test]
fn agents_that_can_no_longer_run_are_listed_with_the_reason() {
    let world = World::new();
    let mut plan = diff(&world.plan(), &world.plan(), &FileChanges::default());
    plan.repaired = vec!["cyd".parse().unwrap()];
    assert!(!plan.is_empty());
    plan.cannot_run =
        (0..=CANNOT_RUN_SHOWN_MAX).map(|n| (format!("n{n:03}").parse().unwrap(), "no archetype".to_owned())).collect();
    let text = plan.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("> agent cyd"), "{text}");
    let cannot_run =
        lines.iter().filter(|line| line.starts_with("! agent n") && line.ends_with("no archetype")).count();
    assert_eq!(cannot_run, CANNOT_RUN_SHOWN_MAX, "{text}");
    assert!(lines[1 + CANNOT_RUN_SHOWN_MAX].starts_with("! 1 "), "the number of the others: {text}");
}

#[test]
fn places_that_change_are_used_at_the_next_start() {
    let world = World::new();
    let old = world.plan();
    let more = "data_dir: d\nworkspace_dir: w\nlisten: { grpc: '127.0.0.1:1', http: '127.0.0.1:2' }\n\
                storage: { backend: postgres, url_env: DEPLOY_KEY }\n";
    world.config(&format!("{}{more}", crate::fixture::GOOD));
    let plan = diff(&old, &world.plan(), &FileChanges::default());
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["next_start"], json!(["data_dir", "workspace_dir", "listen.grpc", "listen.http", "storage"]));
    assert!(!plan.is_empty() && plan.world.is_empty());
    for key in &plan.next_start {
        assert!(plan.to_string().lines().any(|line| line.starts_with(&format!("~ {key}: "))), "{key}: {plan}");
    }
}

/// The keys of a struct in the schema of the world file.
fn keys(schema: &serde_json::Value) -> BTreeSet<&str> {
    schema["properties"].as_object().unwrap().keys().map(String::as_str).collect()
}

/// Compares the names that a reload tells with the keys of the file. Some names are those of `others`. Some keys have no name
/// of their own: `elsewhere` says for each how a change of it is told.
fn compare(told: &[&str], keys: &BTreeSet<&str>, others: &[&str], elsewhere: &[(&str, &str)]) {
    let told: BTreeSet<&str> = told.iter().map(|name| name.split_once('.').map_or(*name, |(key, _)| key)).collect();
    let unknown: Vec<_> = told.iter().filter(|name| !keys.contains(*name) && !others.contains(name)).collect();
    assert!(unknown.is_empty(), "the file has no keys {unknown:?}");
    let silent: Vec<_> =
        keys.difference(&told).filter(|key| !elsewhere.iter().any(|(known, _)| known == *key)).collect();
    assert!(silent.is_empty(), "diff.rs tells no change of {silent:?}");
    let stale: Vec<_> = elsewhere.iter().filter(|(key, _)| told.contains(key) || !keys.contains(key)).collect();
    assert!(stale.is_empty(), "these have names of their own, or are no keys: {stale:?}");
}

#[test]
fn a_reload_tells_changes_by_the_keys_of_the_file() {
    let schema: serde_json::Value = serde_json::from_str(&crate::schema::of("world-config.yaml").unwrap()).unwrap();
    let plan = World::new().plan();
    let told: Vec<&str> = world(&plan, &plan)
        .iter()
        .map(|(name, _)| *name)
        .chain(next_start(&plan, &plan).map(|(name, _)| name))
        .collect();
    let elsewhere = [
        ("agents", "by agent"),
        ("access", "as `access` of agents and archetypes"),
        ("budgets", "by scope"),
        ("write_acls", "as `write_acl` of agents"),
        ("chat_channels", "in `declared`"),
        ("cron", "in `declared`"),
    ];
    compare(&told, &keys(&schema), &["laws", "tools", "knowledge"], &elsewhere);
    let elsewhere = [
        ("id", "another id is another agent"),
        ("count", "it makes agents"),
        ("privilege_groups", "as `access`"),
        ("profile", "as `access`"),
        ("overrides", "as `model` and `limits`"),
        ("budget", "by scope"),
        ("heartbeat", "as `heartbeat` of the world"),
    ];
    let told = agent_fields(&plan.agents[0], &plan.agents[0]).map(|(name, _)| name);
    compare(&told, &keys(&schema["definitions"]["AgentSection"]), &["access", "model", "limits"], &elsewhere);
}
