//! Broken worlds, one for each kind of problem. Each problem is reported with its file, its line
//! and a hint.

use crate::fixture::{GOOD, World};
use crate::problem::{Problem, Problems, Severity};

#[path = "hints_files_tests.rs"]
mod files;
#[path = "hints_names_tests.rs"]
mod names;

/// An expected problem: the file, the line (0 if the problem has none), a part of the message, and
/// a part of the hint.
type Expected<'t> = (&'t str, usize, &'t str, &'t str);

/// All problems of a world, with paths relative to it.
fn all(world: &World) -> Problems {
    let (_, mut problems) = crate::examine(&world.dir(), &|name| (name == "SECRET").then(|| "hunter2-hunter2".into()));
    let (shown, real) = (world.dir(), world.dir().canonicalize().unwrap());
    for problem in &mut problems.0 {
        let relative = problem.file.strip_prefix(&shown).or_else(|_| problem.file.strip_prefix(&real));
        problem.file = relative.map(Into::into).unwrap_or_else(|_| problem.file.clone());
    }
    problems
}

/// Checks the problems of a world. Each of `expected` must be reported, and every problem must have
/// a file, a hint, and a line that exists in the file. Returns the expected problems that are
/// missing.
fn faults(world: &World, what: &str, expected: &[Expected<'_>]) -> Vec<String> {
    let problems = all(world);
    let mut faults = Vec::new();
    for (file, line, message, hint) in expected {
        let reported = problems.0.iter().any(|problem| {
            problem.file.to_str() == Some(file)
                && problem.line == *line
                && problem.message.contains(message)
                && problem.hint.as_str().contains(hint)
        });
        if !reported {
            faults.push(format!("{what}: {file}:{line}: {message} / {hint} is not in\n{problems}"));
        }
    }
    let is_file = |problem: &Problem| world.dir().join(&problem.file).is_file();
    for problem in &problems.0 {
        let text = std::fs::read(world.dir().join(&problem.file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if problem.file.as_os_str().is_empty() || problem.hint.as_str().trim().is_empty() {
            faults.push(format!("{what}: no file or no hint: {problem}"));
        } else if problem.line > text.lines().count().max(1) || (problem.line == 0) == is_file(problem) {
            faults.push(format!("{what}: no such line: {problem}"));
        }
    }
    faults
}

/// Fails if there are `faults`.
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

/// Whether a problem has a line of the world file and this field, and shows `datum`.
fn is_about(problem: &Problem, field: &str, datum: &str) -> bool {
    problem.file.ends_with(crate::load::WORLD_FILE)
        && problem.line > 0
        && problem.field == field
        && (problem.message.contains(datum) || problem.hint.as_str().contains(datum))
}

#[test]
fn every_problem_of_the_world_file_has_a_line_and_a_field() {
    let cases: &[(&str, &str, &str)] = &[
        // Values of the wrong kind.
        ("world: demo", "world", "{ id: my-world }"),
        ("world: { id: 'a b' }", "world.id", ""),
        ("world: { name: [x] }", "world.name", ""),
        ("world: { name: }", "world.name", ""),
        ("world: { intensity: { max: '3' } }", "world.intensity.max", ""),
        ("world: { intensity: { window: 1w } }", "world.intensity.window", "7d"),
        ("world: { intensity: { window: 30d } }", "world.intensity.window", "604800s"),
        ("limits: { hops_max: 0 }", "limits.hops_max", ""),
        ("limits: { hops_max: }", "limits.hops_max", ""),
        ("limits: 5", "limits", "`key: value`"),
        ("http: { allowed_hosts: ['http://a'] }", "http.allowed_hosts[0]", ""),
        ("http: { allowed_origins: [a] }", "http.allowed_origins[0]", ""),
        ("metrics: { open: 'true' }", "metrics.open", ""),
        ("chat: { wake: }", "chat.wake", "all, mentions, none"),
        ("chat: { wake: mention }", "chat.wake", "`mentions`"),
        ("agents_may_create: doer", "agents_may_create", "[doer]"),
        ("secrets_env: [a-b]", "secrets_env[0]", ""),
        // Keys.
        ("acess: { default: public }", "acess", "`access`"),
        ("quite_something_else: 1", "quite_something_else", "access, agents"),
        ("workspace: x", "workspace", "`workspace_dir`"),
        ("world: { id: demo, data_dir: x }", "world.data_dir", "top of the file"),
        ("grpc: 127.0.0.1:1", "grpc", "`listen: { grpc: … }`"),
        // Places.
        ("data_dir: ", "data_dir", ""),
        ("data_dir: [x]", "data_dir", ""),
        ("data_dir: ~/ghost", "data_dir", "`${HOME}/ghost`"),
        ("data_dir: laws.md", "data_dir", ""),
        ("workspace_dir: laws.md", "workspace_dir", ""),
        ("workspace_dir: .", "workspace_dir", "`workspace`"),
        ("workspace_dir: ../..", "workspace_dir", ""),
        ("workspace_dir: archetype/doer", "workspace_dir", "archetype"),
        ("workspace_dir: a/../skills", "workspace_dir", "skills"),
        ("data_dir: data\nworkspace_dir: data", "workspace_dir", "data"),
        ("data_dir: data\nworkspace_dir: data/agents", "workspace_dir", "agents"),
        ("listen: 8080", "listen", "{ grpc: 127.0.0.1:7070"),
        ("listen: { grpc: localhost:7070 }", "listen.grpc", "127.0.0.1:7070"),
        ("listen: { grpc: ['127.0.0.1:7070', 'unix:'] }", "listen.grpc[1]", "path"),
        ("listen: { grpc: [] }", "listen.grpc", "default socket"),
        (&format!("listen: {{ grpc: 'unix:{}' }}", "x".repeat(108)), "listen.grpc", "107"),
        (&format!("listen: {{ grpc: 'unix:{}' }}", "x".repeat(104)), "listen.grpc", "107"),
        ("listen: { http: 8080 }", "listen.http", "127.0.0.1:8080"),
        ("listen: { htttp: '127.0.0.1:1' }", "listen.htttp", "`http`"),
        ("listen: { auth_token_env: X }", "listen.auth_token_env", "GHOST_TOKEN"),
        ("storage: sqlite", "storage", "{ backend: postgres"),
        ("storage: { backend: postgres }", "storage", "`url_env: "),
        ("storage: { backend: postgresql, url_env: SECRET }", "storage.backend", "`postgres`"),
        ("storage: { backend: sqlit }", "storage.backend", "`sqlite`"),
        ("storage: { url_env: X }", "storage.url_env", "`backend: postgres`"),
        ("storage: { backend: sqlite, url_env: X }", "storage.url_env", "`backend: postgres`"),
        ("storage: { backend: postgres, url_env: 'postgres://u:p@h/d' }", "storage.url_env", "name"),
        ("storage: { backend: postgres, url_env: '${SECRET}' }", "storage.url_env", "without `${}`"),
        ("storage: { backend: postgres, url_env: X, url: 'postgres://u:p@h/d' }", "storage.url", "`url_env`"),
        ("storage: { backend: postgres, url_env: NONE }", "storage.url_env", "postgres://"),
        ("url_env: X", "url_env", "`storage: { url_env: … }`"),
        ("usd_per_day: 5", "usd_per_day", "`budgets: { world: { usd_per_day: … } }`"),
        ("budgets: { world/day: { usd: 5 } }", "budgets.world/day", "`world: { usd_per_day: … }`"),
        ("budgets: { agent: { mux/day: { usd: 5 } } }", "budgets.agent.mux/day", "`mux`"),
        ("budgets: { world: { usd: '$5' } }", "budgets.world.usd", "2.50"),
        ("budgets: { world: { tokens: '5000' } }", "budgets.world.tokens", ""),
        ("budgets: { world: 5000 }", "budgets.world", "{ tokens: 5000 }"),
        ("budgets: { world: { tokens: ~ } }", "budgets.world.tokens", ""),
        ("budgets: { world: { usd: 0.0000001 } }", "budgets.world.usd", ""),
        ("budgets: { agent: { 'A B': { usd: 1 } } }", "budgets.agent.A B", ""),
        ("budgets: { team: { dsk: { usd: 1 } } }", "budgets.team.dsk", "`desk`"),
        // Agents and teams.
        ("teams: [desk]", "teams[0]", "{ name: desk, agents: [lead] }"),
        ("teams: [{ agents: [mux] }]", "teams[0]", "`name: desk`"),
        ("teams: [{ name: desk }, { name: desk }]", "teams[1]", ""),
        ("teams: [{ name: desk, strategy: all }]", "teams[0].strategy", "one_for_one"),
        ("teams: [{ name: desk, agents: [Mux] }]", "teams[0].agents[0]", ""),
        ("teams: [{ name: desk, agents: [mux] }, { name: other, agents: [mux] }]", "teams[1].agents[0]", ""),
        ("teams: [{ name: other, agents: [mux] }, { name: desk }]", "agents[1].team", ""),
        ("agents_may_create: [nobody-here]", "agents_may_create[0]", "analyst, doer"),
        ("write_acls: { 'A B': [x/] }", "write_acls.A B", ""),
        ("write_acls: { mux: [out] }", "write_acls.mux[0]", "`out/`"),
        ("write_acls: { mux: [../x/] }", "write_acls.mux[0]", ""),
        // Access.
        ("tool_privileges: { 'a b': [] }", "tool_privileges.a b", ""),
        ("tool_privileges: { web: [tool.ftch] }", "tool_privileges.web[0]", "`tool.fetch`"),
        ("tool_privileges: { web: [syscall.skill.list] }", "tool_privileges.web[0]", ""),
        // Models.
        ("llm: { providers: { mine: {} } }", "llm.providers.mine", "anthropic"),
        ("llm: { providers: { mine: openai } }", "llm.providers.mine", "{ kind: openai"),
        ("llm: { providers: { 'a b': {} } }", "llm.providers.a b", ""),
        ("llm: { providers: { mine: { kind: recorded } } }", "llm.providers.mine", "`dir`"),
        ("llm: { providers: { mine: { kind: openai, dir: x } } }", "llm.providers.mine.dir", ""),
        ("llm: { providers: { mine: { kind: scripted, dir: ../x } } }", "llm.providers.mine.dir", ""),
        (
            "llm: { providers: { mine: { kind: openai, base_url: x } } }",
            "llm.providers.mine.base_url",
            "http://HOST:PORT",
        ),
        ("llm: { providers: { mine: { kind: ollama, retry_base: 2s, retry_cap: 1s } } }", "llm.providers.mine", ""),
        ("llm: { providers: { mine: { kind: openai, api_key: x } } }", "llm.providers.mine.api_key", "`api_key_env`"),
        ("llm: { default_provider: antropic }", "llm.default_provider", "`anthropic`"),
        ("llm: { default_provider: scripted, prices: { m: 3 } }", "llm.prices.m", "{ input: 3, output: 15 }"),
        ("llm: { default_provider: scripted, prices: { m: { input: 3 } } }", "llm.prices.m", ""),
        ("llm: { default_provider: scripted, prices: { m: { input: , output: 1 } } }", "llm.prices.m.input", ""),
        // The outside.
        ("channels: { webhooks: { shop: x } }", "channels.webhooks.shop", "secret_env: SHOP_SECRET"),
        ("channels: { webhooks: { shop: { agent: mux } } }", "channels.webhooks.shop", "url: https://HOST/PATH"),
        ("channels: { webhooks: { shop: { agent: mux } } }", "channels.webhooks.shop", "secret_env: SHOP_SECRET"),
        (
            "channels: { webhooks: { shop: { url: 'http://h/', secret_env: NONE, agent: mux } } }",
            "channels.webhooks.shop",
            "NONE",
        ),
        (
            "channels: { webhooks: { shop: { url: 'http://h/', secret_env: NONE, agent: mxu } } }",
            "channels.webhooks.shop.agent",
            "`mux`",
        ),
        ("channels: { webhooks: { shop: { url: x } } }", "channels.webhooks.shop.url", "https://HOST/PATH"),
        ("channels: { webhooks: { 'a b': {} } }", "channels.webhooks.a b", ""),
        ("channels: { reactions: wild }", "channels.reactions", "minimal, extensive"),
        ("heartbeat: { every: 1ms }", "heartbeat.every", "30m"),
        ("heartbeat: { every: often }", "heartbeat.every", "30s"),
        ("heartbeat: { target: 'a b' }", "heartbeat.target", "none, last"),
        ("heartbeat: { timezone: Mars }", "heartbeat.timezone", ""),
        ("heartbeat: { active_hours: all }", "heartbeat.active_hours", "08:00-22:00"),
        ("heartbeat: 30m", "heartbeat", "{ every: 30m }"),
        // The job, toolboxes, skills, and parts for later.
        ("job: { input: input }", "job", "`brief"),
        ("job: { input: in, lead: mux, brief: b, result: r/ }", "job.input", ""),
        (
            "tasks: { owner_may_update: false }\njob: { input: in, lead: mux, brief: b, result: r/ }",
            "job.lead",
            "owner_may_update",
        ),
        ("job: { input: in, lead: mxu, brief: b, result: r/ }", "job.lead", "`mux`"),
        ("job: { input: in, lead: mux, brief: '{fiels}', result: r/ }", "job.brief", "`files`"),
        ("job: { input: in, lead: mux, brief: b, result: ../r }", "job.result", ""),
        ("toolboxes: [x]", "toolboxes[0]", "{ source: toolbox/devtools/toolbox.yaml }"),
        ("toolboxes: [{ allow: [x] }]", "toolboxes[0]", "source: toolbox/devtools/toolbox.yaml"),
        ("toolboxes: [{ source: ../x }]", "toolboxes[0].source", "toolbox/<box>/toolbox.yaml"),
        ("toolboxes: [{ source: a/b.yaml }, { source: ./a/b.yaml }]", "toolboxes[1].source", ""),
        ("toolboxes: [{ source: a/b.yaml }]", "toolboxes[0].source", ""),
        ("skills: { roots: [nowhere] }", "skills.roots[0]", "`nowhere`"),
        ("skills: { roots: [../x] }", "skills.roots[0]", ""),
        ("inputs: x", "inputs", "`job: { input: … }`"),
        ("limits: { max_tool_rounds: 3 }", "limits.max_tool_rounds", "`turn_rounds_max`"),
        ("hops_max: 3", "hops_max", "`limits: { hops_max: … }`"),
        ("model: m", "model", "`llm: { default_model: … }`"),
        ("sandbox: { memory: 5 }", "sandbox.memory", "`memory_mb`"),
        // YAML.
        ("a: &x 1", "", "`&name`"),
        ("a: *x", "", ""),
        ("a: !!str 1", "", ""),
        ("<<: { a: 1 }", "", ""),
        ("? { a: 1 }\n: 2", "", ""),
        ("limits: { hops_max: 3 }\nlimits: {}", "limits", "`limits`"),
        ("\tx: 1", "", ""),
        ("x-a: \"${}\"", "x-a", "${NAME}"),
        ("x-a: \"${NONE}\"", "x-a", "NONE"),
        ("x-a: \"${NONE\"", "x-a", "`$$`"),
        ("---\nb: 1", "", ""),
        ("x-a: \u{1}", "", ""),
        (&format!("x-a: {}1{}", "[".repeat(40), "]".repeat(40)), "", "32"),
        (&format!("x-a: {}", "x".repeat(65 * 1024)), "", ""),
        (&format!("x-a: [{}]", "1,".repeat(20_001)), "", "20000"),
    ];
    let mut wrong = Vec::new();
    for (yaml, field, datum) in cases {
        let world = World::new();
        // Replace the good world's value of the same key.
        let key = yaml.split(':').next().unwrap();
        let mut skip = false;
        let kept: Vec<&str> = GOOD
            .lines()
            .filter(|line| {
                if !line.starts_with(' ') {
                    skip = line.starts_with(&format!("{key}:"));
                }
                !skip
            })
            .collect();
        world.config(&format!("{}\n{yaml}\n", kept.join("\n")));
        let problems = all(&world);
        if !problems.0.iter().any(|problem| is_about(problem, field, datum)) {
            wrong.push(format!("{yaml}: {field} / {datum} is not in\n{problems}"));
        }
        wrong.extend(faults(&world, yaml, &[]));
    }
    none(&wrong);
}

#[test]
fn every_problem_of_an_agent_has_a_line_and_a_field() {
    let mut wrong = Vec::new();
    for (entry, field, datum) in [
        ("chora", "agents[2]", "{ id: lead, archetype: lead }"),
        ("{ archetype: doer }", "agents[2]", "`id: lead`"),
        ("{ id: ada }", "agents[2]", "`archetype: lead`"),
        ("{ id: Ada, archetype: doer }", "agents[2].id", ""),
        ("{ id: all, archetype: doer }", "agents[2].id", "`all`"),
        ("{ id: mux, archetype: doer }", "agents[2]", "4"),
        ("{ id: ada, archetype: deor }", "agents[2].archetype", "`doer`"),
        ("{ id: ada, archetype: doer, team: dsk }", "agents[2].team", "`desk`"),
        ("{ id: ada, archetype: doer, autostart: 1 }", "agents[2].autostart", ""),
        ("{ id: ada, archetype: doer, restart: always }", "agents[2].restart", "`key: value`"),
        ("{ id: ada, archetype: doer, restart: { type: never } }", "agents[2].restart.type", "permanent"),
        ("{ id: ada, archetype: doer, restart: { backoff: { base: 2s, cap: 1s } } }", "agents[2].restart.backoff", ""),
        ("{ id: ada, archetype: doer, privilege_groups: [manger] }", "agents[2].privilege_groups[0]", "`manager`"),
        ("{ id: ada, archetype: doer, profile: codng }", "agents[2].profile", "`coding`"),
        ("{ id: ada, archetype: doer, write_acl: [agents/mux/] }", "agents[2].write_acl[0]", ""),
        ("{ id: ada, archetype: doer, budget: 5 }", "agents[2].budget", "{ tokens: 5000 }"),
        (
            "{ id: ada, archetype: doer, budget: { daily_cost_usd: 5 } }",
            "agents[2].budget.daily_cost_usd",
            "`usd_per_day`",
        ),
        ("{ id: ada, archetype: doer, overides: {} }", "agents[2].overides", "`overrides`"),
        ("{ id: ada, archetype: doer, overrides: { temperature: 9 } }", "agents[2].overrides.temperature", ""),
        (
            "{ id: ada, archetype: doer, overrides: { turn_seconds: 60, turn_timeout_seconds: 60 } }",
            "agents[2].overrides.turn_timeout_seconds",
            "turn_seconds",
        ),
        ("{ id: ada, archetype: doer, overrides: { turn_rounds_max: 90 } }", "agents[2]", "`limits`"),
        ("{ id: ada, archetype: doer, overrides: { provider: opnai } }", "agents[2].overrides.provider", "`openai`"),
        ("{ id: ada, archetype: doer, heartbeat: 5m }", "agents[2].heartbeat", "{ every: 30m }"),
    ] {
        let world = World::new();
        world.with("teams:\n", &format!("  - {entry}\nteams:\n"));
        let problems = all(&world);
        if !problems.0.iter().any(|problem| is_about(problem, field, datum)) {
            wrong.push(format!("{entry}: {field} / {datum} is not in\n{problems}"));
        }
        wrong.extend(faults(&world, entry, &[]));
    }
    none(&wrong);
}
