//! Skills from an operator's point of view: the text of a loaded skill is in each prompt of its holder until it is dropped,
//! also after a `kill -9`; other files of the skill can be read; skills that Ghost brings are found.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ghost_testkit::blackbox::{TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Desk }
agents: [{ id: ada, archetype: clerk }, { id: bob, archetype: clerk }]
skills: { bundled: [tables] }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";
const TABLES: &str = "---\nname: tables\ndescription: Use when: figures are loose\n---\nRead MORE.md in this skill.\n";

// covers: BI-72, CONF-06, CP-09, SKILL-12, SKILL-41
#[test]
fn a_loaded_skill_stays_in_the_prompt_until_it_is_dropped() {
    let mut test_env = TestEnvironment::new(ghostd_testing());
    let bundled = test_env.join("bundled");
    std::fs::create_dir_all(bundled.join("tables")).unwrap();
    std::fs::write(bundled.join("tables/SKILL.md"), TABLES).unwrap();
    std::fs::write(bundled.join("tables/MORE.md"), "One row for each figure.\n").unwrap();
    std::fs::create_dir_all(bundled.join("unused")).unwrap();
    std::fs::write(bundled.join("unused/SKILL.md"), "# Unused\n").unwrap();
    test_env.set("GHOST_BUNDLED_SKILLS_DIR", &bundled);
    let world = test_env.world("desk");
    world.config(WORLD).archetype("clerk", "").write("scripts/m.yaml", "otherwise: [{ say: ok }]\n");
    let world = world.path().to_owned();
    let mut daemon = test_env.up(&world, &[]);
    let prompt = |agent: &str| {
        let shown = test_env.ctl(&["agent", "prompt", agent]);
        shown.ok();
        shown.out
    };
    let call = |tool: &str, arguments: Value| -> Value {
        let done = test_env.json(&["tool", "call", "ada", tool, &arguments.to_string()]);
        assert_eq!(done["status"], "ok", "{done}");
        done
    };
    let before = prompt("ada");
    assert!(before.contains("- tables: Use when: figures are loose") && !before.contains("unused"), "{before}");
    assert!(!before.contains("Read MORE.md"));
    call("syscall.skill.load", json!({ "name": "tables" }));
    let listed = test_env.json(&["skill", "list", "--agent", "ada"]);
    assert_eq!((&listed[0]["name"], &listed[0]["active"]), (&json!("tables"), &json!(true)), "{listed}");
    assert_eq!(test_env.json(&["skill", "list"])[0]["held"], false);
    assert_eq!(test_env.json(&["skill", "show", "tables"])["document"], "Read MORE.md in this skill.");
    assert!(test_env.ctl(&["skill", "show", "table"]).exits(3).err.contains("`tables`"));
    daemon.kill();
    daemon = test_env.up(&world, &[]);
    assert!(prompt("ada").contains("[active]\n<skill name=\"tables\">\nRead MORE.md in this skill.\n</skill>"));
    assert!(!prompt("bob").contains("Read MORE.md"));
    let read = call("workspace.read", json!({ "scope": "skill", "path": "tables/MORE.md" }));
    assert!(read.to_string().contains("One row for each figure."), "{read}");
    call("syscall.skill.drop", json!({ "name": "tables" }));
    assert!(!prompt("ada").contains("Read MORE.md"));
    daemon.kill();
    // A name that is not among the skills that Ghost brings is an error with the nearest one.
    std::fs::write(world.join("world-config.yaml"), WORLD.replace("[tables]", "[table]")).unwrap();
    let refused = test_env.ghostd(&["check", world.to_str().unwrap()]);
    assert!(format!("{}{}", refused.exits(2).out, refused.err).contains("`tables`"));
}
