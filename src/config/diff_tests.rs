use super::*;
use crate::fixture::World;

#[test]
fn the_same_world_changes_nothing() {
    let world = World::new();
    let plan = diff(&world.plan(), &world.plan());
    assert!(plan.is_empty());
    assert_eq!(plan.to_string(), "nothing changes (2 agents)");
}

#[test]
fn a_reload_is_told_agent_by_agent() {
    let world = World::new();
    let old = world.plan();
    world.with(
        "  - { id: chora, archetype: analyst, name: Chora, privilege_groups: [manager] }\n",
        "  - { id: nova, archetype: doer, team: desk }\n  - { id: fern, archetype: analyst }\n",
    );
    let text = std::fs::read_to_string(world.dir().join("world-config.yaml")).unwrap();
    world.config(&text.replace("agents: [chora]", "agents: []").replace("write_acls: { chora:", "write_acls: { nova:"));
    world.write("archetype/doer/goal.md", "Something else.").write("laws.md", "New.");
    let plan = diff(&old, &world.plan());
    assert_eq!(
        plan.to_string(),
        "~ laws\n~ teams\n~ archetype doer: goal\n+ agent nova\n+ agent fern\n~ agent mux: archetype.goal\n- agent chora: no \
         longer named; stopped and kept\n0 agents unchanged"
    );
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["changed"][0]["fields"][0], "archetype.goal");
    assert_eq!(json["dropped"][0], "chora");
}
