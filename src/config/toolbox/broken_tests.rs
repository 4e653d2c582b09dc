//! An error in a manifest is reported once: what follows from it is not.

use crate::Severity;
use crate::fixture::{GOOD, World};

/// The files of the errors of a world whose files name the tools of a toolbox in every way.
fn errors(manifest: &str) -> Vec<String> {
    let world = World::new();
    let config = GOOD
        .replace("  shell: [bash,", "  noter: [notes.add, 'notes.*']\n  shell: [bash,")
        .replace("privilege_groups: [manager]", "privilege_groups: [manager, noter]");
    world.config(&format!("{config}toolboxes: [{{ source: notes/toolbox.yaml, allow: [add] }}]\n"));
    world.write("notes/toolbox.yaml", manifest);
    world.write(
        "archetype/analyst/config.md",
        "# analyst\n## Tool Access\n- notes.add\n## Toolbox\nsource: notes/toolbox.yaml\n- add\n",
    );
    let problems = world.load().map_or_else(|problems| problems, |_| crate::Problems::default());
    let errors = problems.0.iter().filter(|problem| problem.severity == Severity::Error);
    errors.map(|problem| problem.file.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn a_broken_manifest_is_the_only_error() {
    let add = |rest: &str| format!("name: notes\ntools:\n  - {{ name: add, description: Add a note{rest} }}\n");
    assert_eq!(errors(&add(", command: [cat]")), [""; 0]);
    for broken in [
        add(""),
        add(", command: ['cat | sort']"),
        add(", command: []"),
        add(", command: [cat], cwd: x"),
        "name: notes\nkind: mcp\n".to_owned(),
        "name: notes\nkind: mcp\nserver: { command: [] }\n".to_owned(),
        "name: Notes!\ntools: [{ name: add, description: Add, command: [cat] }]\n".to_owned(),
        "name: [\n".to_owned(),
    ] {
        assert_eq!(errors(&broken), ["toolbox.yaml"], "{broken}");
    }
}

#[test]
fn a_wrong_name_beside_a_good_manifest_is_still_an_error() {
    let found = errors("name: notes\ntools: [{ name: ad, description: Add a note, command: [cat] }]\n");
    assert!(found.len() >= 3 && !found.contains(&"toolbox.yaml".to_owned()), "{found:?}");
}
