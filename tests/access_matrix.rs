//! Snapshots of the tool access of every shipped world: which archetype may use which tool. A change of access
//! changes a file of this repository. `UPDATE_SNAPSHOTS=1 cargo test --test access_matrix` writes the snapshots
//! again.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use ghost_config::plan::{Plan, SandboxKind};
use ghost_domain::tool_catalogue::CATALOGUE;
use ghost_testkit::blackbox::{Deadline, TestEnvironment};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The names of all tools in the code.
fn registered() -> BTreeSet<String> {
    ghost_tools::builtins::all().into_iter().map(|tool| tool.spec.name).collect()
}

/// The tools that this world can have: without a sandbox it has none that run commands, without `web` none that reach the
/// network, without a service no search, and without containers no browser.
fn registered_in(plan: &Plan) -> BTreeSet<String> {
    let mut names = registered();
    let kind = plan.sandbox.kind;
    if kind == SandboxKind::None {
        names.retain(|name| !ghost_tools::builtins::NEED_SANDBOX.contains(&name.as_str()));
    }
    if plan.web.is_none() {
        names.retain(|name| !ghost_tools::builtins::NEED_WEB.contains(&name.as_str()));
    }
    let web = plan.web.as_ref();
    let absent = [
        ("tool.web_search", web.is_none_or(|web| web.search.is_none())),
        ("tool.google_search", web.is_none_or(|web| web.google_search.is_none())),
        ("tool.browser", web.is_none() || kind != SandboxKind::Docker),
    ];
    names.retain(|name| !absent.contains(&(name.as_str(), true)));
    names
}

fn load(dir: &Path) -> Plan {
    ghost_config::load(dir, &|_| None).unwrap_or_else(|problems| panic!("{}: {problems}", dir.display()))
}

/// The matrix: one row for each tool, one column for each archetype and for each agent with other tools than its
/// archetype.
fn matrix(plan: &Plan) -> String {
    let mut columns: BTreeMap<String, _> = plan.archetype_access.clone();
    for agent in &plan.agents {
        if columns.get(&agent.archetype) != Some(&agent.access) {
            columns.insert(format!("{}:{}", agent.archetype, agent.agent_id), agent.access.clone());
        }
    }
    let code = registered_in(plan);
    let mut text = format!("{:<28}", "");
    for name in columns.keys() {
        write!(text, " {name}").unwrap();
    }
    text.push('\n');
    for entry in CATALOGUE {
        write!(text, "{:<28}", entry.name).unwrap();
        for (name, access) in &columns {
            let mark = if access.can_access(entry.name) { "x" } else { "." };
            write!(text, " {mark:<width$}", width = name.len()).unwrap();
        }
        text.push_str(if code.contains(entry.name) { "\n" } else { " absent\n" });
    }
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

fn compare(name: &str, matrix: &str) {
    let file = PathBuf::from(ROOT).join("tests/access_matrix").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&file, matrix).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    let changed: Vec<String> = matrix
        .lines()
        .filter(|line| !known.lines().any(|known| known == *line))
        .map(|line| format!("now:    {line}"))
        .chain(
            known.lines().filter(|line| !matrix.lines().any(|now| now == *line)).map(|line| format!("before: {line}")),
        )
        .collect();
    assert!(known == matrix, "who may use what has changed in {name} ({}):\n{}", file.display(), changed.join("\n"));
}

// covers: ACC-14
#[test]
fn every_tool_of_the_code_is_in_the_catalogue() {
    let names: BTreeSet<&str> = CATALOGUE.iter().map(|entry| entry.name).collect();
    for tool in registered() {
        assert!(names.contains(tool.as_str()), "{tool} is registered and no matrix shows it");
    }
}

/// The catalogue of tools as a table in Markdown (ACC-14).
fn catalogue() -> String {
    let code = registered();
    let mut text = "| name | | section | profiles | also | |\n|---|---|---|---|---|---|\n".to_owned();
    for entry in CATALOGUE {
        let profiles: Vec<String> =
            entry.profiles.iter().map(|profile| format!("{profile:?}")[..3].to_ascii_lowercase()).collect();
        let also: Vec<String> = entry.aliases.iter().map(|alias| format!("`{alias}`")).collect();
        let marks = [
            (entry.of_ghost, "ghost"),
            (entry.always_on, "always"),
            (entry.dangerous, "!"),
            (!code.contains(entry.name), "absent"),
        ];
        let marks: Vec<&str> = marks.into_iter().filter_map(|(holds, mark)| holds.then_some(mark)).collect();
        writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} |",
            entry.name,
            entry.description,
            entry.section,
            profiles.join(", "),
            also.join(", "),
            marks.join(", ")
        )
        .unwrap();
    }
    text
}

// covers: ACC-14
#[test]
fn the_documents_contain_the_current_catalogue() {
    const BEGIN: &str = "cargo test --test access_matrix` -->\n";
    let file = Path::new(ROOT).join("docs/tools.md");
    let document = std::fs::read_to_string(&file).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect("the table's beginning is marked");
    let (known, after) = rest.split_once("<!-- end of catalogue -->").expect("its end is marked");
    let table = catalogue();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{table}<!-- end of catalogue -->{after}")).unwrap();
    } else {
        assert!(known == table, "{} has another catalogue than the code; UPDATE_SNAPSHOTS=1 writes it", file.display());
    }
}

// covers: ACC-01, WORLD-03
#[test]
fn the_matrix_of_every_shipped_world_matches_its_snapshot() {
    let mut worlds = 0;
    for entry in std::fs::read_dir(Path::new(ROOT).join("worlds")).unwrap() {
        let dir = entry.unwrap().path();
        if dir.join("world-config.yaml").is_file() {
            worlds += 1;
            compare(dir.file_name().unwrap().to_str().unwrap(), &matrix(&load(&dir)));
        }
    }
    assert!(worlds > 0);
}

#[test]
fn the_matrix_of_a_world_from_init_matches_its_snapshot() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let dir = test_env.join("first");
    test_env.ghostd(&["init", dir.to_str().unwrap()]).ok();
    compare("init", &matrix(&load(&dir)));
}

/// The roles of the newsroom have the tools that ACC-12 demands.
// covers: ACC-12, CONF-16, TEST-01, WORLD-16
#[test]
fn the_newsroom_roles_have_the_demanded_tools() {
    let plan = load(&Path::new(ROOT).join("worlds/newsroom"));
    let six = ["chora", "mux", "praxis", "primus", "subrosa", "thaum"];
    let map: [(&str, &[&str]); 9] = [
        ("tool.cli", &["mux", "praxis"]),
        ("tool.web_search", &["chora", "praxis", "subrosa", "thaum"]),
        ("tool.fetch", &["chora", "mux", "praxis", "thaum"]),
        ("workspace.read", &six),
        ("workspace.write", &six),
        ("syscall.message.send", &six),
        ("syscall.droid.check", &six),
        ("memory.search", &six),
        ("syscall.droid.spawn", &["mux", "praxis", "primus"]),
    ];
    for (tool, expected) in map {
        let mut having: Vec<&str> = plan
            .agents
            .iter()
            .filter(|agent| agent.access.can_access(tool))
            .map(|agent| agent.agent_id.as_str())
            .collect();
        having.sort_unstable();
        assert_eq!(having, expected, "{tool}");
    }
}

/// A running daemon gives each agent the tools of the matrix.
// covers: ACC-11, CONF-02, TASK-05, WORLD-11
#[test]
fn a_running_newsroom_gives_the_tools_of_the_matrix() {
    let newsroom = Path::new(ROOT).join("worlds/newsroom");
    let plan = load(&newsroom);
    let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    test_env.set("GHOST_LOG", "ghost_world=info");
    let daemon = test_env.up(&newsroom, &[]);
    test_env.ctl(&["pause"]).ok();
    let mut code = registered_in(&plan);
    // This machine may lack what the sandbox needs.
    if test_env.json(&["status"])["sandbox"]["absent"].is_string() {
        code.retain(|name| !ghost_tools::builtins::NEED_SANDBOX.contains(&name.as_str()));
    }
    for agent in &plan.agents {
        let tools = test_env.json(&["tool", "list", agent.agent_id.as_str()]);
        let given: BTreeSet<&str> =
            tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let mut expected: BTreeSet<&str> =
            code.iter().map(String::as_str).filter(|name| agent.access.can_access(name)).collect();
        // These tools exist only in a turn that belongs to a conversation with the outside (CONF-03).
        expected.retain(|name| *name != "message" && !name.trim_start_matches("syscall.").starts_with("channel."));
        if plan.owner_may_update_tasks && agent.access.may_update_own_tasks() {
            // Every agent has it for its own tasks (TASK-05), unless a denial or a profile removes it.
            expected.insert("syscall.task.update");
        }
        assert_eq!(given, expected, "{}", agent.agent_id);
        // The log and the agent's details name the rule that decided (CONF-02).
        let mode = agent.access.mode().as_str();
        assert_eq!(test_env.json(&["agent", "get", agent.agent_id.as_str()])["access"], mode);
        let is_access_line =
            |line: &str| line.contains("tool access") && line.contains(&format!("agent_id={} ", agent.agent_id));
        let (_, line) =
            daemon.err.find(0, Deadline::seconds(10), is_access_line).expect("the log says which rule decides");
        assert!(line.contains(&format!("access=\"{mode}\"")), "{line}");
    }
    daemon.kill();
}
