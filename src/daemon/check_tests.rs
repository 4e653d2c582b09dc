use std::fs;

use ghost_config::load::WORLD_FILE;

use super::*;

#[path = "check_models_tests.rs"]
mod models;

const WORLD: &str = "world: { id: test }\nagents:\n  - { id: ada, archetype: clerk }\nllm: { default_provider: scripted, default_model: \
                     clerk }\n";
const RULES: &str = "otherwise: [{ say: Done. }]\n";

/// A good world in a directory.
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

/// Everything that is told of the world at `path`, without the warnings of public tools, with paths relative to its directory.
fn told(path: &Path) -> Vec<String> {
    told_with(path, &Overrides::default())
}

/// The same with model flags. Whatever is in a file has a line, and nothing else has.
fn told_with(path: &Path, overrides: &Overrides) -> Vec<String> {
    let problems = check(path, overrides, &|_| None, &[]);
    let dir = ghost_config::shown_dir(path);
    for problem in &problems.0 {
        assert_eq!(problem.line == 0, !problem.file.is_file(), "{problem}");
    }
    let kept = problems.0.iter().filter(|problem| !problem.message.contains("is dangerous and public"));
    kept.map(|problem| problem.to_string().replace(&format!("{}/", dir.display()), "")).collect()
}

/// What is told of a good world after `change`, which must be one thing with all of `words` in it.
fn one(change: impl Fn(&Path), words: &[&str]) {
    let world = world();
    assert_eq!(told(world.path()), [""; 0], "of a good world");
    change(world.path());
    let told = told(world.path());
    assert_eq!(told.len(), 1, "{told:#?}");
    for word in words {
        assert!(told[0].contains(word), "{word} is not in {}", told[0]);
    }
}

fn rename(from: &'static str, to: &'static str) -> impl Fn(&Path) {
    move |dir| fs::rename(dir.join(from), dir.join(to)).unwrap()
}

#[test]
fn a_rule_file_with_another_ending_is_told_by_its_name() {
    let rules = |more: &'static str| {
        move |dir: &Path| {
            write(dir, "scripts/other.yaml", RULES);
            rename("scripts/clerk.yaml", more)(dir);
        }
    };
    let missing = "error: scripts/clerk.yaml: the rule file is missing; ada would follow it";
    for name in ["scripts/clerk.yml", "scripts/clerk.YAML", "scripts/Clerk.yaml"] {
        let file = name.strip_prefix("scripts/").unwrap();
        one(rules(name), &[missing, &format!("hint: rename `{file}` to `clerk.yaml`")]);
    }
    // Alone in its directory, and beside all that are needed.
    let holds =
        "error: scripts: holds no rule files\n  hint: rename `clerk.yml` to `clerk.yaml`: rule files end in `.yaml`";
    one(rename("scripts/clerk.yaml", "scripts/clerk.yml"), &[holds]);
    one(
        |dir| write(dir, "scripts/spare.yml", RULES),
        &["warning: scripts/spare.yml:1: the file is not read", "hint: rename it to `spare.yaml`, or take it away"],
    );
    one(
        |dir| fs::remove_file(dir.join("scripts/clerk.yaml")).unwrap(),
        &["holds no rule files", "hint: a scripted provider needs"],
    );
}

#[test]
fn a_directory_of_rule_files_that_is_not_there_is_told_with_what_to_do() {
    let cannot = "error: scripts: cannot be read: ";
    one(rename("scripts", "script"), &[cannot, "hint: did you mean `script` to be it? Rename it to `scripts`"]);
    one(rename("scripts", "Scripts"), &[cannot, "hint: did you mean `Scripts` to be it?"]);
    one(rename("scripts", "rules"), &[cannot, "hint: make it: a scripted provider needs a `<model>.yaml`"]);
}

#[test]
fn a_world_file_and_directories_of_nearly_their_names_are_told() {
    one(
        rename("world-config.yaml", "world-config.yml"),
        &["world-config.yaml: the world file is missing", "hint: did you mean `world-config.yml` to be it? Rename it"],
    );
    one(
        rename("archetype", "archetypes"),
        &["archetype: the world has no directory `archetype`", "hint: did you mean `archetypes` to be it? Rename it"],
    );
    one(
        |dir| write(dir, "Skills/a/SKILL.md", "x"),
        &["error: Skills: the directory is not read", "rename it to `skills`"],
    );
    // A world file of another name is read if it is named.
    let world = world();
    rename("world-config.yaml", "other.yml")(world.path());
    assert_eq!(told(&world.path().join("other.yml")), [""; 0]);
    write(world.path(), "other.yml", WORLD.replace("default_provider: scripted", "default_provider: openai"));
    let told = told(&world.path().join("other.yml"));
    assert!(
        told[0].starts_with("error: other.yml:4: llm.default_provider: provider `openai` needs")
            && told[0].contains("hint: "),
        "{told:?}"
    );
}

#[test]
fn files_that_are_no_yaml_hide_nothing_of_one_another() {
    let world = world();
    write(world.path(), WORLD_FILE, format!("{WORLD}limits: [\n"));
    write(world.path(), "scripts/clerk.yaml", "otherwise: [\n");
    write(world.path(), "scripts/other.yaml", "rules: 5\n");
    write(world.path(), "archetype/clerk/config.md", "## Limits\nmax_tool_rounds: '5\n");
    write(world.path(), "knowledge/a.md", "---\nid: [\n---\nx");
    let told = told(world.path());
    for words in [
        "world-config.yaml:5: this is not YAML",
        "scripts/clerk.yaml:1: this is not YAML",
        "scripts/other.yaml:1: rules: `5` is not a list\n  hint: write [5]",
        "scripts/other.yaml:1: otherwise: there is no `otherwise`",
        "archetype/clerk/config.md:2: Limits.max_tool_rounds: `'5` is not a whole number",
        "knowledge/a.md:2: this is not YAML",
    ] {
        assert!(told.iter().any(|told| told.contains(words)), "{words} is not in {told:#?}");
    }
    assert_eq!(told.len(), 6, "{told:#?}");
    assert!(told.iter().all(|told| told.contains("\n  hint: ")), "{told:#?}");
}

#[test]
fn every_problem_of_a_rule_file_has_a_line_and_a_hint() {
    let world = world();
    for (rules, line, message, hint) in [
        ("rules: []", 1, "there is no `otherwise`", "say what happens when no rule fits"),
        ("otherwise: [{ say: x }]\notherwise: x", 2, "`x` is not a list", "write [x]"),
        ("otherwise: [{ say: x }]\notherwise:\n  - call: workspace.raed", 3, "there is no tool", "`workspace.read`?"),
        ("otherwise: x", 1, "`x` is not a list", "write [x]"),
        ("otherwise: []", 1, "does nothing", "at least one `call`"),
        ("otherwise: [{ say: '{{ mail' }]", 1, "syntax error", "is closed"),
        ("otherwise: [{ say: '{{ mial }}' }]", 1, "`mial` is not defined", "did you mean `mail`?"),
        ("otherwise: [{ say: '{{ mail | zzzzzzz }}' }]", 1, "there is no filter `zzzzzzz`", "there are: "),
        ("otherwise: [{ say: x, call: y }]", 1, "none or several actions", "exactly one of"),
        ("otherwise: [{ say: x, with: { a: 1 } }]", 1, "belong to a `call`", "take it out"),
        ("otherwise: [{ wait: soon }]", 1, "`soon` is not a duration", "write milliseconds"),
        ("otherwise: [{ fail: { times: 1 } }]", 1, "`kind` is missing", "write such as `kind: rate_limited`"),
        ("otherwise: [{ fail: { kind: server, times: '1' } }]", 1, "`1` is not a whole number", "without quotes"),
        ("otherwise: [{ call: tool.google_search }]", 1, "is not built yet", "call another tool"),
        ("otherwise: [{ call: quite.another.thing }]", 1, "there is no tool", "docs/tools.md"),
        ("otherwise: [{ call: workspace.raed }]", 1, "there is no tool", "did you mean `workspace.read`?"),
        ("otherwise: [{ say: x }]\nrules: [{ when: { mail: '(' } }]", 2, "not a regular expression", "look-around"),
        ("otherwise: [{ say: x }]\nrules: [{ when: { mail: a } }]", 2, "`do` is missing", "write such as `do: "),
        ("otherwise: [{ say: x }]\nrules: [a]", 2, "`a` is not a map", "`key: value`"),
        ("otherwise: [{ say: x }]\nlet: { a: item }", 2, "only under `for_each`", "use it in the `call`"),
        ("otherwise: [{ say: x }]\nlet: { A: '1' }", 2, "cannot be a name", "small letters"),
        (
            "otherwise: [{ say: '{{ mail | regex_find(vars.a) }}' }]\nvars: { a: '(' }",
            2,
            "not a regular",
            "look-around",
        ),
    ] {
        write(world.path(), "scripts/clerk.yaml", format!("{rules}\n"));
        let Problems(found) = check(world.path(), &Overrides::default(), &|_| None, &[]);
        let fits = |problem: &Problem| {
            problem.file.ends_with("scripts/clerk.yaml")
                && problem.line == line
                && problem.message.contains(message)
                && problem.hint.as_str().contains(hint)
        };
        assert!(found.iter().any(fits), "{rules}: {line}: {message} / {hint} is not in {found:#?}");
    }
    write(world.path(), "scripts/clerk.yaml", [0xff]);
    let told = told(world.path());
    assert!(told[0].contains("clerk.yaml:1: the file is not UTF-8 here") && told[0].contains("hint: "), "{told:?}");
}

/// Everything that agents may use and think with hangs on it, and their rules with that.
#[test]
fn a_misnamed_configuration_is_the_only_problem_that_is_told() {
    for name in ["Config.md", "config.MD", "conf.md", "config.yaml"] {
        let (world, name) = (world(), format!("archetype/clerk/{name}"));
        write(
            world.path(),
            WORLD_FILE,
            WORLD.replace(", default_model: clerk", "").replace("agents:", "access: { default: privileged }\nagents:"),
        );
        write(world.path(), "archetype/clerk/config.md", "## LLM\nmodel: clerk\n## Tool Access\n- workspace.read\n");
        write(world.path(), "scripts/clerk.yaml", "otherwise: [{ call: workspace.read, with: { path: a } }]\n");
        assert_eq!(told(world.path()), [""; 0], "of a good world");
        fs::rename(world.path().join("archetype/clerk/config.md"), world.path().join(&name)).unwrap();
        let told = told(world.path());
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].starts_with(&format!("error: {name}:1: the file is not read")), "{told:#?}");
    }
}

#[test]
fn a_slip_in_what_chooses_the_model_is_the_only_problem_that_is_told() {
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
        let told: Vec<String> =
            told(world.path()).into_iter().filter(|told| !told.contains("nothing reads it")).collect();
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(told[0].contains(slip), "{slip} is not in {told:#?}");
    }
}

#[test]
fn a_misnamed_directory_of_rule_files_is_told_without_a_world_file_too() {
    for (name, told_as) in
        [("Scripts", "error: Scripts: the directory is not read"), ("script", "warning: script: the directory")]
    {
        let world = world();
        fs::remove_file(world.path().join(WORLD_FILE)).unwrap();
        rename("scripts", name)(world.path());
        write(world.path(), &format!("{name}/clerk.yaml"), "otherwise: 5\n");
        let told = told(world.path());
        for words in
            [told_as, &format!("{name}/clerk.yaml:1: otherwise: `5` is not a list"), "the world file is missing"]
        {
            assert!(told.iter().any(|told| told.contains(words)), "{words} is not in {told:#?}");
        }
        assert_eq!(told.len(), 3, "{told:#?}");
        // One of shell scripts is somebody's own.
        fs::rename(world.path().join(name).join("clerk.yaml"), world.path().join(name).join("clerk.sh")).unwrap();
        assert_eq!(self::told(world.path()).len(), 1);
    }
}
