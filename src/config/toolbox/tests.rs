//! Manifests: what is read, and what every mistake is told.

use super::*;
use crate::plan::toolbox::{
    Argument, CommandTool, Cwd, McpTransport, Piece, Place, Program, ResultForm, Stdin, ToolboxAccess, ToolboxRuntime,
};

/// A toolbox on disk.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        for (name, mode) in [("search", 0o755), ("plain", 0o644)] {
            let path = dir.path().join("bin").join(name);
            std::fs::write(&path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        Self { dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    fn read_as(&self, text: &str, skill: Option<&str>) -> (Option<ToolboxPlan>, String) {
        let (root, report) = (self.root(), Report::default());
        let path = root.join("toolbox.yaml");
        std::fs::write(&path, text).unwrap();
        let plan = match skill {
            Some(skill) => untrusted_manifest(&path, &root, skill, &report),
            None => manifest::manifest(&path, &root, "box/toolbox.yaml", &report, &|_| None).plan,
        };
        (plan, report.finish().to_string())
    }

    fn read(&self, text: &str) -> (Option<ToolboxPlan>, String) {
        self.read_as(text, None)
    }
}

fn tools(plan: &ToolboxPlan) -> &[CommandTool] {
    match &plan.kind {
        ToolboxKind::Commands { tools, .. } => tools,
        ToolboxKind::Mcp(_) => panic!("commands"),
    }
}

const WHOLE: &str = "
name: notes
version: 1
description: Notes of the house
runtime: { kind: sandbox }
bin_dir: bin
env: { MODE: fast }
passthrough_env: [NOTES_TOKEN]
tools:
  - name: search
    description: Search the notes
    command: [search, --fixed]
    parameters:
      type: object
      properties: { query: { type: string }, tags: { type: array, items: { type: string } }, limit: { type: integer } }
      required: [query]
    args: [\"--query={query}\", [--limit, \"{limit}\"], --, \"{tags...}\", \"{{x}}\", \"{home}/a\"]
    stdin: \"{json}\"
    cwd: \"{workspace}\"
    timeout_seconds: 5
    stream: none
    result: json
    output_limit_bytes: 1000
    requires: { bins: [git], any_bins: [rg, grep], env: [NOTES_TOKEN] }
    workspace_access: ro
";

// covers: TBX-01, TBX-04, TBX-05
#[test]
fn a_manifest_becomes_a_plan() {
    let (plan, problems) = Files::new().read(WHOLE);
    assert_eq!(problems, "");
    let plan = plan.unwrap();
    assert_eq!((plan.name.as_str(), plan.full("search").as_str()), ("notes", "notes.search"));
    assert_eq!(plan.secrets().collect::<Vec<_>>(), ["NOTES_TOKEN"]);
    let tool = &tools(&plan)[0];
    assert_eq!(tool.command, ["search", "--fixed"]);
    assert_eq!(tool.program, Program::Own("bin/search".into()));
    assert_eq!(tool.parameters["additionalProperties"], false);
    let one = |text: &str| Argument::One(vec![Piece::Text(text.into())]);
    let parameter = |name: &str| Piece::Parameter(name.into());
    let wanted = [
        Argument::One(vec![Piece::Text("--query=".into()), parameter("query")]),
        Argument::Together(vec![one("--limit"), Argument::One(vec![parameter("limit")])]),
        one("--"),
        Argument::Spread("tags".into()),
        one("{x}"),
        Argument::One(vec![Piece::Place(Place::Home), Piece::Text("/a".into())]),
    ];
    assert_eq!(tool.args, wanted);
    assert_eq!((&tool.stdin, &tool.cwd, tool.timeout.as_secs()), (&Stdin::Json, &Cwd::Workspace, 5));
    assert_eq!((tool.result.clone(), tool.access, tool.output_limit), (ResultForm::Json, ToolboxAccess::Read, 1_000));
    assert_eq!((tool.bins.len(), tool.any_bins.len(), tool.needs_env.len()), (1, 2, 1));
}

// covers: TBX-05
#[test]
fn every_mistake_has_its_line_its_field_and_a_hint() {
    let files = Files::new();
    for (from, to, field, hint) in [
        ("[search, --fixed]", "\"search notes | head\"", "tools[0].command", "list"),
        ("[search, --fixed]", "[\"search|head\"]", "tools[0].command", "no shell"),
        ("[search, --fixed]", "[../search]", "tools[0].command", "file of the toolbox"),
        ("[search, --fixed]", "[]", "tools[0].command", "command"),
        ("[search, --fixed]", "[search, \"{query}\"]", "tools[0].command", "args"),
        ("[search, --fixed]", "[search, \"--tags={tags...}\"]", "tools[0].command", "args"),
        ("[search, --fixed]", "[search, \"{toolbox}/list\"]", "tools[0].command", "args"),
        ("[search, --fixed]", "[plain]", "tools[0].command", "chmod +x"),
        ("--query={query}", "--query={qeury}", "tools[0].args[0]", "`{query}`"),
        ("{tags...}", "x{tags...}", "tools[0].args[3]", "stand alone"),
        ("{{x}}", "{x", "tools[0].args[4]", "{name}"),
        ("\"{json}\"", "some text", "tools[0].stdin", "{json}"),
        ("\"{workspace}\"", "/etc", "tools[0].cwd", "{home}"),
        ("name: search", "name: Search", "tools[0].name", "lower-case"),
        ("name: search", &format!("name: {}", "a".repeat(60)), "tools[0].name", "shorten"),
        ("type: object\n", "type: array\n", "tools[0].parameters", "object"),
        ("query: { type: string }", "home: { type: string }", "tools[0].parameters", "rename"),
        ("bins: [git]", "bins: [\"git; rm\"]", "tools[0].requires.bins[0]", "name"),
        ("{ kind: sandbox }", "{ url: 'https://a' }", "runtime.url", "kind: remote"),
        ("{ kind: sandbox }", "{ kind: sandbox, token_env: T }", "runtime.token_env", "kind: remote"),
        ("{ kind: sandbox }", "{ kind: local }", "runtime.kind", "kind: sandbox"),
        ("{ kind: sandbox }", "{ kind: remote, url: 'http://a.example' }", "runtime.url", "https://"),
        ("bin_dir: bin", "bin_dir: ../bin", "bin_dir", "bin"),
        ("bin_dir: bin", "bin_dir: bim", "bin_dir", "add it"),
        ("MODE: fast", "AGENT_ID: x", "env.AGENT_ID", "own"),
        ("[NOTES_TOKEN]\ntools", "[\"sk-secret-value\"]\ntools", "passthrough_env[0]", "never the value"),
        ("description: Search the notes", "descripton: x", "tools[0].descripton", "`description`"),
        ("name: notes", "name: syscall", "name", "lower-case"),
        ("timeout_seconds: 5", "timeout_seconds: 0", "tools[0].timeout_seconds", "1"),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let (_, problems) = files.read(&WHOLE.replace(from, to));
        assert!(problems.contains(&format!(": {field}: ")) && problems.contains(hint), "{to}: {problems}");
        assert!(!problems.contains("sk-secret"), "{problems}");
    }
    let many: String = (0..10_000).map(|n| format!("  - {{ name: t{n}, description: d, command: [git] }}\n")).collect();
    let (_, problems) = files.read(&format!("name: big\ntools:\n{many}"));
    assert!(problems.lines().filter(|line| line.starts_with("error: ")).count() <= 3, "{problems}");
    let twice = "name: b\ntools:\n  - { name: t, description: d, command: [git] }\n  - { name: t, description: d, command: [ls] }\n";
    assert!(files.read(twice).1.contains("tools[1]"));
}

#[test]
fn a_program_that_leaves_the_toolbox_is_refused() {
    let files = Files::new();
    std::os::unix::fs::symlink("/bin/sh", files.root().join("bin/link")).unwrap();
    let (_, problems) = files.read(&WHOLE.replace("[search, --fixed]", "[link]"));
    assert!(problems.contains("tools[0].command: ") && problems.starts_with("error: "), "{problems}");
    let (plan, problems) = files.read(&WHOLE.replace("[search, --fixed]", "[git, log]"));
    assert_eq!(problems, "");
    assert_eq!(tools(&plan.unwrap())[0].program, Program::OfSandbox("git".into()));
}

// covers: TBX-07
#[test]
fn a_toolbox_can_have_a_server_of_its_own() {
    let there = "{ kind: remote, url: 'https://box.example:9090', token_env: BOX_TOKEN }";
    let (plan, problems) = Files::new().read(&WHOLE.replace("{ kind: sandbox }", there));
    assert_eq!(problems, "");
    let plan = plan.unwrap();
    let ToolboxKind::Commands { runtime: ToolboxRuntime::Remote(remote), tools } = &plan.kind else { panic!("remote") };
    assert_eq!(remote.url, "https://box.example:9090");
    assert_eq!(tools[0].program, Program::OfSandbox("search".into()), "the files are on that machine");
    assert_eq!(plan.secrets().collect::<Vec<_>>(), ["NOTES_TOKEN", "BOX_TOKEN"]);
}

// covers: SKILL-07
#[test]
fn the_manifest_of_a_skill_gets_no_variable_no_server_and_no_other_machine() {
    let files = Files::new();
    let (_, problems) = files.read_as(WHOLE, Some("noting"));
    assert!(problems.contains("passthrough_env") && problems.contains("runtime"), "{problems}");
    assert!(
        problems.lines().filter(|line| !line.starts_with(' ')).all(|line| !line.starts_with("error: ")),
        "{problems}"
    );
    let (plan, _) = files.read_as(WHOLE, Some("noting"));
    let plan = plan.unwrap();
    assert_eq!((plan.passthrough_env.len(), plan.skill.as_deref()), (0, Some("noting")));
    let (plan, problems) = files.read_as("name: m\nkind: mcp\nserver: { command: [node] }\n", Some("noting"));
    assert!(plan.is_none() && problems.contains("MCP"), "{problems}");
}

// covers: SKILL-07
#[test]
fn no_link_gives_the_commands_of_a_skill_another_directory() {
    let (files, outside) = (Files::new(), tempfile::tempdir().unwrap());
    let (root, outside) = (files.root(), outside.path().canonicalize().unwrap());
    let link = |target: &Path, at: &Path| std::os::unix::fs::symlink(target, at).unwrap();
    let text = "name: m\nbin_dir: bin\ntools: [{ name: a, description: d, command: [search] }]\n";
    std::fs::write(root.join("real.yaml"), text).unwrap();
    std::fs::create_dir(outside.join("bin")).unwrap();
    std::fs::copy(root.join("bin/search"), outside.join("bin/search")).unwrap();
    std::fs::write(outside.join("own.yaml"), text).unwrap();
    // A manifest of the skill's, in a directory that is not.
    link(&root.join("real.yaml"), &outside.join("back.yaml"));
    link(&outside, &root.join("away"));
    link(&outside.join("own.yaml"), &root.join("out.yaml"));
    link(Path::new("bin/../real.yaml"), &root.join("near.yaml"));
    let read = |name: &str| {
        let report = Report::default();
        (untrusted_manifest(&root.join(name), &root, "noting", &report), report.finish().to_string())
    };
    for name in ["away/back.yaml", "away/own.yaml", "out.yaml", "away"] {
        let (plan, problems) = read(name);
        assert!(plan.is_none() && problems.starts_with("warning: "), "{name}: {problems}");
    }
    for name in ["real.yaml", "near.yaml"] {
        assert_eq!(read(name).0.unwrap().dir, root, "{name}");
    }
}

// covers: TBX-09
#[test]
fn an_mcp_server_is_read_with_the_tools_that_are_trusted() {
    let files = Files::new();
    let text = "name: memo\nkind: mcp\nserver: { command: [node, \"{toolbox}/server.js\"] }\npassthrough_env: [KEY]\n";
    let (plan, problems) = files.read(text);
    assert!(!problems.contains("error: "), "{problems}");
    let ToolboxKind::Mcp(mcp) = plan.unwrap().kind else { panic!("mcp") };
    let McpTransport::Stdio { command } = &mcp.transport else { panic!("stdio") };
    assert_eq!(command[1], [Piece::Place(Place::Toolbox), Piece::Text("/server.js".into())]);
    assert_eq!(mcp.trusted, []);
    let lock = r#"{ "version": 1, "tools": [
        { "tool": "add", "name": "Add", "hash": "00", "description": "d", "parameters": {} }] }"#;
    std::fs::write(files.root().join(mcp::LOCK_FILE), lock).unwrap();
    let (plan, problems) =
        files.read("name: memo\nkind: mcp\nserver: { url: 'https://mcp.example/mcp', token_env: T }\n");
    assert!(!problems.contains("error: "), "{problems}");
    let plan = plan.unwrap();
    assert_eq!((plan.tool_names().collect::<Vec<_>>(), plan.secrets().collect::<Vec<_>>()), (vec!["add"], vec!["T"]));
    for (server, field) in [
        ("{ url: 'http://mcp.example' }", "server.url"),
        ("{ url: 'https://user:pw@mcp.example' }", "server.url"),
        ("{ command: [node], url: 'https://mcp.example' }", "server"),
        ("{}", "server"),
        ("{ url: 'https://mcp.example', token: secret }", "server.token"),
    ] {
        let (_, problems) = files.read(&format!("name: memo\nkind: mcp\nserver: {server}\n"));
        assert!(problems.contains(&format!(": {field}: ")), "{server}: {problems}");
    }
    std::fs::write(files.root().join(mcp::LOCK_FILE), "{").unwrap();
    let (_, problems) = files.read(text);
    assert!(problems.contains("mcp.lock") && problems.contains("mcp.lock"), "{problems}");
}
