use std::fs;

use ghost_config::load::WORLD_FILE;

use super::*;

#[path = "check_models_tests.rs"]
mod models;

const WORLD: &str = "world: { id: test }\nagents:\n  - { id: ada, archetype: clerk }\nllm: { default_provider: scripted, default_model: \
                     clerk }\n";
const RULES: &str = "otherwise: [{ say: Done. }]\n";

/// Writes a good world into a directory.
fn world() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        (WORLD_FILE, WORLD),
        ("archetype/clerk/soul.md", "I am."),
        ("archetype/clerk/goal.md", "To do."),
        ("archetype/clerk/config.md", "## Tool Access\n- workspace.read\n"),
        ("scripts/clerk.yaml", RULES),
    ] {
        write(dir.path(), path, text);
    }
    dir
}

fn write(dir: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The problems of the world at `path`, without the warnings about public tools. Paths are relative to its directory.
fn problems(path: &Path) -> Vec<String> {
    problems_with_flags(path, &Overrides::default())
}

/// The same with model flags. Asserts that exactly the problems in files have a line.
fn problems_with_flags(path: &Path, overrides: &Overrides) -> Vec<String> {
    let problems = check(path, overrides, &|_| None, &[]);
    let dir = ghost_config::shown_dir(path);
    for problem in &problems.0 {
        assert_eq!(problem.line == 0, !problem.file.is_file(), "{problem}");
    }
    let kept = problems.0.iter().filter(|problem| problem.field != "tool_privileges");
    kept.map(|problem| problem.to_string().replace(&format!("{}/", dir.display()), "")).collect()
}

/// Asserts that after `change` a good world has one problem that contains all of `words`.
fn assert_one_problem(change: impl Fn(&Path), words: &[&str]) {
    let world = world();
    assert_eq!(problems(world.path()), [""; 0], "of a good world");
    change(world.path());
    let problems = problems(world.path());
    assert_eq!(problems.len(), 1, "{problems:#?}");
    for word in words {
        assert!(problems[0].contains(word), "{word} is not in {}", problems[0]);
    }
}

fn rename(from: &'static str, to: &'static str) -> impl Fn(&Path) {
    move |dir| fs::rename(dir.join(from), dir.join(to)).unwrap()
}

#[test]
fn a_rule_file_with_another_ending_is_reported() {
    let rules = |more: &'static str| {
        move |dir: &Path| {
            write(dir, "scripts/other.yaml", RULES);
            rename("scripts/clerk.yaml", more)(dir);
        }
    };
    let missing = "error: scripts/clerk.yaml: ";
    for name in ["scripts/clerk.yml", "scripts/clerk.YAML", "scripts/Clerk.yaml"] {
        let file = name.strip_prefix("scripts/").unwrap();
        assert_one_problem(rules(name), &[missing, &format!("`{file}`"), "`clerk.yaml`"]);
    }
    // Both when it is the only file and beside all needed files.
    let renames = ["error: scripts: ", "`clerk.yml`", "`clerk.yaml`"];
    assert_one_problem(rename("scripts/clerk.yaml", "scripts/clerk.yml"), &renames);
    assert_one_problem(
        |dir| write(dir, "scripts/spare.yml", RULES),
        &["warning: scripts/spare.yml:1: ", "`spare.yaml`"],
    );
    assert_one_problem(|dir| fs::remove_file(dir.join("scripts/clerk.yaml")).unwrap(), &["error: scripts: ", "hint: "]);
}

#[test]
fn a_missing_directory_of_rule_files_is_reported_with_a_hint() {
    let cannot = "error: scripts: ";
    assert_one_problem(rename("scripts", "script"), &[cannot, "`script`"]);
    assert_one_problem(rename("scripts", "Scripts"), &[cannot, "`Scripts`"]);
    assert_one_problem(rename("scripts", "rules"), &[cannot, "`<model>.yaml`"]);
}

#[test]
fn a_misspelt_world_file_or_directory_is_reported() {
    assert_one_problem(rename("world-config.yaml", "world-config.yml"), &["world-config.yaml: ", "`world-config.yml`"]);
    assert_one_problem(rename("archetype", "archetypes"), &["archetype: ", "`archetypes`"]);
    assert_one_problem(|dir| write(dir, "Skills/a/SKILL.md", "x"), &["error: Skills: ", "`skills`"]);
    // A world file with a name other than `world-config.yaml` is read if the command line names it.
    let world = world();
    rename("world-config.yaml", "other.yml")(world.path());
    assert_eq!(problems(&world.path().join("other.yml")), [""; 0]);
    write(world.path(), "other.yml", WORLD.replace("default_provider: scripted", "default_provider: openai"));
    let problems = problems(&world.path().join("other.yml"));
    assert!(
        problems[0].starts_with("error: other.yml:4: llm.default_provider: ") && problems[0].contains("hint: "),
        "{problems:?}"
    );
}

#[test]
fn files_with_invalid_yaml_do_not_hide_other_problems() {
    let world = world();
    write(world.path(), WORLD_FILE, format!("{WORLD}limits: [\n"));
    write(world.path(), "scripts/clerk.yaml", "otherwise: [\n");
    write(world.path(), "scripts/other.yaml", "rules: 5\n");
    write(world.path(), "archetype/clerk/config.md", "## Limits\nmax_tool_rounds: '5\n");
    write(world.path(), "knowledge/a.md", "---\nid: [\n---\nx");
    let problems = problems(world.path());
    for words in [
        "world-config.yaml:5: ",
        "scripts/clerk.yaml:1: ",
        "scripts/other.yaml:1: rules: ",
        "scripts/other.yaml:1: otherwise: ",
        "archetype/clerk/config.md:2: Limits.max_tool_rounds: ",
        "knowledge/a.md:2: ",
    ] {
        assert!(problems.iter().any(|problems| problems.contains(words)), "{words} is not in {problems:#?}");
    }
    assert_eq!(problems.len(), 6, "{problems:#?}");
    assert!(problems.iter().all(|problems| problems.contains("\n  hint: ")), "{problems:#?}");
}

#[test]
fn every_problem_of_a_rule_file_has_a_line_and_a_hint() {
    let world = world();
    for (rules, line, datum) in [
        ("rules: []", 1, "`otherwise`"),
        ("otherwise: [{ say: x }]\notherwise: x", 2, "`otherwise`"),
        ("otherwise:\n  - call: workspace.raed", 2, "`workspace.read`"),
        ("otherwise: x", 1, "[x]"),
        ("otherwise: []", 1, "`call`"),
        ("otherwise: [{ say: '{{ mail' }]", 1, ""),
        ("otherwise: [{ say: '{{ mial }}' }]", 1, "`mail`"),
        ("otherwise: [{ say: x, call: y }]", 1, ""),
        ("otherwise: [{ say: x, with: { a: 1 } }]", 1, "`call`"),
        ("otherwise: [{ wait: soon }]", 1, "`soon`"),
        ("otherwise: [{ fail: { times: 1 } }]", 1, "`kind: rate_limited`"),
        ("otherwise: [{ fail: { kind: server, times: '1' } }]", 1, "`1`"),
        ("otherwise: [{ call: tts }]", 1, "`tts`"),
        ("otherwise: [{ call: quite.another.thing }]", 1, "docs/tools.md"),
        ("otherwise: [{ call: workspace.raed }]", 1, "`workspace.read`"),
        ("otherwise: [{ say: x }]\nrules: [{ when: { mail: '(' } }]", 2, "`(`"),
        ("otherwise: [{ say: x }]\nrules: [{ when: { mail: a } }]", 2, "`do: "),
        ("otherwise: [{ say: x }]\nrules: [a]", 2, "`key: value`"),
        ("otherwise: [{ say: x }]\nlet: { a: item }", 2, "`for_each`"),
        ("otherwise: [{ say: x }]\nlet: { A: '1' }", 2, "`A`"),
    ] {
        write(world.path(), "scripts/clerk.yaml", format!("{rules}\n"));
        let Problems(found) = check(world.path(), &Overrides::default(), &|_| None, &[]);
        let fits = |problem: &Problem| {
            problem.file.ends_with("scripts/clerk.yaml")
                && problem.line == line
                && (problem.message.contains(datum) || problem.hint.as_str().contains(datum))
        };
        assert!(found.iter().any(fits), "{rules}: {line}: {datum} is not in {found:#?}");
    }
    write(world.path(), "scripts/clerk.yaml", [0xff]);
    let problems = problems(world.path());
    assert!(problems[0].contains("clerk.yaml:1: ") && problems[0].contains("hint: "), "{problems:?}");
}

/// Otherwise the world would start without the denials in this file.
#[test]
fn a_misnamed_configuration_is_an_error() {
    for name in ["Config.md", "config.MD", "conf.md"] {
        let (world, name) = (world(), format!("archetype/clerk/{name}"));
        fs::rename(world.path().join("archetype/clerk/config.md"), world.path().join(&name)).unwrap();
        let problems = problems(world.path());
        assert!(problems[0].starts_with(&format!("error: {name}:1: ")), "{problems:#?}");
    }
}

#[test]
fn a_mistake_in_the_choice_of_the_model_is_the_only_reported_problem() {
    for (path, text, slip) in [
        (WORLD_FILE, WORLD.replace("default_model: clerk", "defualt_model: clerk"), "`default_model`?"),
        (
            "archetype/clerk/config.md",
            "## LLM\nmodle: clerk\n## Tool Access\n- workspace.read\n".to_owned(),
            "`model`?",
        ),
        (
            "archetype/clerk/config.md",
            "# LLM\nmodel: clerk\n## Tool Access\n- workspace.read\n".to_owned(),
            "`## LLM`?",
        ),
    ] {
        let world = world();
        write(world.path(), WORLD_FILE, WORLD.replace(", default_model: clerk", ""));
        write(world.path(), path, text);
        let problems: Vec<String> =
            problems(world.path()).into_iter().filter(|problems| !problems.contains("so it is not read")).collect();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        assert!(problems[0].contains(slip), "{slip} is not in {problems:#?}");
    }
}

#[test]
fn a_rule_may_call_a_tool_of_a_toolbox() {
    let world = world();
    let more = "toolboxes: [{ source: toolbox/notes/toolbox.yaml }]\nsandbox: { kind: local }\n";
    write(world.path(), WORLD_FILE, format!("{WORLD}{more}"));
    let manifest = "name: notes\nbin_dir: bin\ntools: [{ name: add, description: Add a note, command: [add] }]\n";
    write(world.path(), "toolbox/notes/toolbox.yaml", manifest);
    write(world.path(), "toolbox/notes/bin/add", "#!/bin/sh\n");
    let add = world.path().join("toolbox/notes/bin/add");
    fs::set_permissions(add, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    write(world.path(), "archetype/clerk/config.md", "## Tool Access\n- workspace.read\n- notes.add\n");
    let rules =
        |tool: &str| format!("rules: [{{ when: {{ round: 0 }}, do: [{{ call: {tool}, with: {{}} }}] }}]\n{RULES}");
    write(world.path(), "scripts/clerk.yaml", rules("notes.add"));
    assert_eq!(problems(world.path()), [""; 0]);
    write(world.path(), "archetype/clerk/config.md", "## Toolbox\nsource: toolbox/notes/toolbox.yaml\n- add\n");
    assert_eq!(problems(world.path()), [""; 0]);
    write(world.path(), "archetype/clerk/config.md", "## Tool Access\n- workspace.read\n");
    assert_eq!(problems(world.path()).len(), 1, "no word of the world gives it");
    write(world.path(), "scripts/clerk.yaml", rules("notes.gone"));
    assert_eq!(problems(world.path()).len(), 1);
}

#[test]
fn a_rule_that_calls_an_untrusted_tool_of_a_server_is_a_warning() {
    let world = world();
    let more = "toolboxes: [{ source: toolbox/notes/toolbox.yaml }]\nsandbox: { kind: local }\n";
    write(world.path(), WORLD_FILE, format!("{WORLD}{more}"));
    write(world.path(), "toolbox/notes/toolbox.yaml", "name: notes\nkind: mcp\nserver: { command: [node] }\n");
    let found = |tool: &str| {
        let rules = format!("rules: [{{ when: {{ round: 0 }}, do: [{{ call: {tool}, with: {{}} }}] }}]\n{RULES}");
        write(world.path(), "scripts/clerk.yaml", rules);
        let problems = problems(world.path());
        problems.into_iter().filter(|problem| problem.contains("scripts/clerk.yaml")).collect::<Vec<_>>().join("\n")
    };
    let warning = found("notes.add");
    assert!(warning.starts_with("warning: ") && warning.contains("ghostctl toolbox trust notes add"), "{warning}");
    assert!(found("notesadd").starts_with("error: "), "no server has this name");
}

#[test]
fn what_would_leave_the_tools_of_a_toolbox_out_is_reported() {
    let world = world();
    let manifest =
        |tool: &str| format!("name: notes\ntools: [{{ name: add, description: Add, command: [cat], {tool} }}]\n");
    let found = |config: &str, tool: &str| {
        write(
            world.path(),
            WORLD_FILE,
            format!("{WORLD}{config}toolboxes: [{{ source: toolbox/notes/toolbox.yaml }}]\n"),
        );
        write(world.path(), "toolbox/notes/toolbox.yaml", manifest(tool));
        problems(world.path()).join("\n")
    };
    let sandbox = "sandbox: { kind: local }\n";
    assert_eq!(found(sandbox, ""), "");
    assert!(found("", "").contains("there is no `sandbox`"));
    assert!(found(sandbox, "parameters: { properties: { a: { type: intger } } }").contains("tools.add.parameters"));
    assert!(found(sandbox, "parameters: { required: [nam] }").contains("`nam`"));
    let agent = "stream: acp, stdin: \"{task}\", parameters: { properties: { task: { type: string } } }";
    let money = format!("{sandbox}budgets: {{ world: {{ usd: 1 }} }}\n");
    assert!(found(&money, agent).contains("notes.add"));
    assert_eq!(found(&format!("{money}coding: {{ run_budget: 0.5 }}\n"), agent), "");
    // An error of the manifest causes no others.
    write(world.path(), "archetype/clerk/config.md", "## Toolbox\nsource: toolbox/notes/toolbox.yaml\n- add\n");
    assert_eq!(found(sandbox, "strem: acp").matches("error: ").count(), 1);
}
