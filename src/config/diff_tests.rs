//! Tests of the changes that a reload reports.

use super::*;
use crate::fixture::World;

#[test]
fn the_same_world_changes_nothing() {
    let world = World::new();
    let plan = diff(&world.plan(), &world.plan(), &FileChanges::default());
    assert!(plan.is_empty());
    assert_eq!(plan.to_string(), "nothing changes (2 agents)");
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
    assert_eq!(
        plan.to_string(),
        "~ laws\n~ teams\n~ archetype doer: goal\n+ agent nova\n+ agent fern\n~ agent mux: archetype.goal\n- agent chora: no \
         longer in the world file; stopped and kept\n0 agents unchanged"
    );
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["changed"][0]["fields"][0], "archetype.goal");
    assert_eq!(json["dropped"][0], "chora");
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
    assert_eq!(
        plan.to_string(),
        "~ budget team:desk: set as in the world file\n~ budget world: no longer in the world file; the \
         limit that the file set is removed\n2 agents unchanged"
    );
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
    assert_eq!(
        plan.to_string(),
        "+ agent ana\n> agent bea: in the world file again\n~ agent cyd: in the world file again; stays stopped\n~ agent dan: belongs to the world \
         file from now on; changes: archetype, access\n2 agents unchanged"
    );
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
    assert_eq!(
        plan.to_string(),
        "~ script scripts/big.yaml: changed\n~ script scripts/gone.yaml: removed\n~ skill python: added\n~ agent mux: script\n1 \
         agent unchanged"
    );
    assert!(!plan.is_empty());
}

#[test]
fn agents_that_can_no_longer_run_are_listed_with_the_reason() {
    let world = World::new();
    let mut plan = diff(&world.plan(), &world.plan(), &FileChanges::default());
    plan.repaired = vec!["cyd".parse().unwrap()];
    assert!(!plan.is_empty());
    plan.unfit =
        (0..=UNFIT_SHOWN_MAX).map(|n| (format!("n{n:03}").parse().unwrap(), "no archetype".to_owned())).collect();
    let text = plan.to_string();
    assert!(
        text.starts_with("> agent cyd: can run again\n! agent n000: fails; its mail waits: no archetype\n"),
        "{text}"
    );
    assert!(
        text.ends_with("n199: fails; its mail waits: no archetype\n! 1 more agents fail\n2 agents unchanged"),
        "{text}"
    );
}
