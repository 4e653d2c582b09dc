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

#[test]
fn every_problem_of_the_world_file_has_a_line_and_a_hint() {
    let cases: &[(&str, &str, &str)] = &[
        // Values of the wrong kind.
        ("world: demo", "`demo` is not a map", "for example { id: my-world }"),
        ("world: { id: 'a b' }", "`a b` is not a name", "use 1 to 64 letters"),
        ("world: { name: [x] }", "a list is not text", "write one text"),
        ("world: { name: }", "it is empty", "write a text here, or remove it"),
        ("world: { intensity: { max: '3' } }", "`3` is not a whole number", "write it without quotes"),
        ("world: { intensity: { window: 1w } }", "`1w` is not a duration", "7d"),
        ("world: { intensity: { window: 30d } }", "is not within", "write at most 604800s"),
        ("limits: { hops_max: 0 }", "0 is not within 1 to 10000", "write at least 1"),
        ("limits: { hops_max: }", "nothing is not a whole number", "or omit the key"),
        ("limits: 5", "`5` is not a map", "write `key: value` on indented lines"),
        ("http: { allowed_hosts: ['http://a'] }", "`http://a` is not a host", "a name or an address"),
        ("http: { allowed_origins: [a] }", "`a` is not an origin", "scheme and host alone"),
        ("metrics: { open: 'true' }", "`true` is not a truth value", "without quotes"),
        ("chat: { wake: }", "nothing is not a value for this", "it may be: all, mentions, none"),
        ("chat: { wake: mention }", "`mention` is not a value for this", "did you mean `mentions`?"),
        ("agents_may_create: doer", "`doer` is not a list", "write [doer]"),
        ("secrets_env: [a-b]", "not the name of an environment variable", "never the value itself"),
        // Keys.
        ("acess: { default: public }", "there is no key `acess` here", "did you mean `access`?"),
        ("quite_something_else: 1", "there is no key `quite_something_else` here", "known: access, agents"),
        ("listen: 8080", "there is no key `listen` here", "ghostd up --listen"),
        ("usd_per_day: 5", "there is no key `usd_per_day` here", "`budgets: { world: { usd_per_day: … } }`"),
        ("budgets: { world/day: { usd: 5 } }", "there is no key `world/day` here", "`world: { usd_per_day: … }`"),
        ("budgets: { agent: { mux/day: { usd: 5 } } }", "a daily budget", "under `mux`"),
        ("budgets: { world: { usd: '$5' } }", "`$5` is not a number", "US dollars such as 2.50, without quotes"),
        ("budgets: { world: { tokens: '5000' } }", "`5000` is not a whole number", "write it without quotes"),
        ("budgets: { world: 5000 }", "`5000` is not a map", "{ tokens: 5000 }"),
        ("budgets: { world: { tokens: ~ } }", "nothing is not a whole number", "omit the key for no limit"),
        ("budgets: { world: { usd: 0.0000001 } }", "less than a millionth", "millionths of a dollar"),
        ("budgets: { agent: { 'A B': { usd: 1 } } }", "agent", "use 1 to 64"),
        ("budgets: { team: { dsk: { usd: 1 } } }", "there is no team `dsk`", "did you mean `desk`?"),
        // Agents and teams.
        ("teams: [desk]", "`desk` is not a map", "{ name: desk, agents: [lead] }"),
        ("teams: [{ agents: [mux] }]", "`name` is missing", "for example `name: desk`"),
        ("teams: [{ name: desk }, { name: desk }]", "a second team is called `desk`", "rename it"),
        ("teams: [{ name: desk, strategy: all }]", "`all` is not a value", "it may be: one_for_one"),
        ("teams: [{ name: desk, agents: [Mux] }]", "`Mux` is not an agent id", "use 1 to 64 of a-z"),
        ("teams: [{ name: desk, agents: [mux] }, { name: other, agents: [mux] }]", "already in team", "in one team"),
        ("teams: [{ name: other, agents: [mux] }, { name: desk }]", "`teams` puts this agent into", "name one team"),
        ("agents_may_create: [nobody-here]", "there is no archetype `nobody-here`", "known: analyst, doer"),
        ("write_acls: { 'A B': [x/] }", "agent", "use 1 to 64"),
        ("write_acls: { mux: [out] }", "does not end in `/`", "write `out/`"),
        ("write_acls: { mux: [../x/] }", "`../x/`", ""),
        // Access.
        ("tool_privileges: { 'a b': [] }", "the group's name is not a name", "use 1 to 64 letters"),
        ("tool_privileges: { web: [tool.ftch] }", "there is no tool `tool.ftch`", "did you mean `tool.fetch`?"),
        ("tool_privileges: { web: [syscall.skill.list] }", "this tool is always on", "remove it from the group"),
        ("access: { default: privat }", "`privat` is not a value", "it may be: public, privileged"),
        // Models.
        ("llm: { providers: { mine: {} } }", "`kind` is missing", "it may be: anthropic"),
        ("llm: { providers: { mine: openai } }", "`openai` is not a map", "for example { kind: openai"),
        ("llm: { providers: { 'a b': {} } }", "the provider's name is not a name", "use letters"),
        ("llm: { providers: { mine: { kind: recorded } } }", "needs `dir`", "the data directory of the earlier run"),
        ("llm: { providers: { mine: { kind: openai, dir: x } } }", "has a directory", "omit it"),
        ("llm: { providers: { mine: { kind: scripted, dir: ../x } } }", "does not stay", "a relative path"),
        ("llm: { providers: { mine: { kind: openai, base_url: x } } }", "not an address", "http://HOST:PORT"),
        ("llm: { providers: { mine: { kind: ollama, retry_base: 2s, retry_cap: 1s } } }", "is shorter", "the longest"),
        ("llm: { providers: { mine: { kind: openai, api_key: x } } }", "there is no key `api_key`", "`api_key_env`"),
        ("llm: { default_provider: antropic }", "there is no provider `antropic`", "did you mean `anthropic`?"),
        ("llm: { default_provider: scripted, prices: { m: 3 } }", "`3` is not a map", "{ input: 3, output: 15 }"),
        ("llm: { default_provider: scripted, prices: { m: { input: 3 } } }", "`output` is missing", "million tokens"),
        (
            "llm: { default_provider: scripted, prices: { m: { input: , output: 1 } } }",
            "nothing",
            "write 0 if it costs",
        ),
        // Webhooks and HTTP.
        ("channels: { webhooks: { shop: x } }", "`x` is not a map", "secret_env: SHOP_SECRET"),
        ("channels: { webhooks: { shop: { agent: mux } } }", "`url` is missing", "url: https://HOST/PATH"),
        ("channels: { webhooks: { shop: { agent: mux } } }", "`secret_env` is missing", "secret_env: SHOP_SECRET"),
        (
            "channels: { webhooks: { shop: { url: 'http://h/', secret_env: NONE, agent: mux } } }",
            "is not set",
            "set it",
        ),
        ("channels: { webhooks: { shop: { url: 'http://h/', secret_env: NONE, agent: mxu } } }", "no agent", "`mux`?"),
        ("channels: { webhooks: { shop: { url: x } } }", "the URL is not an address", "https://HOST/PATH"),
        ("channels: { webhooks: { 'a b': {} } }", "the webhook's name is not a name", "use 1 to 64 letters"),
        ("channels: { reactions: wild }", "`wild` is not a value", "it may be: minimal, extensive"),
        ("heartbeat: { every: 1ms }", "the shortest interval is 1s", "30m"),
        ("heartbeat: { every: often }", "`often` is not a duration", "30s"),
        ("heartbeat: { target: 'a b' }", "is not a target for alerts", "none, last"),
        ("heartbeat: { timezone: Mars }", "there is no time zone", ""),
        ("heartbeat: { active_hours: all }", "is not a range of hours", "08:00-22:00"),
        ("heartbeat: 30m", "`30m` is not a map", "{ every: 30m }"),
        // The job, toolboxes, skills, and sections without effect.
        ("job: { input: input }", "`brief` is missing", "for example `brief:"),
        ("job: { input: in, lead: mux, brief: b, result: r/ }", "there is no directory `in`", "such as input"),
        (
            "tasks: { owner_may_update: false }\njob: { input: in, lead: mux, brief: b, result: r/ }",
            "mux cannot close the task of the job",
            "owner_may_update",
        ),
        ("job: { input: in, lead: mxu, brief: b, result: r/ }", "there is no agent `mxu`", "did you mean `mux`?"),
        (
            "job: { input: in, lead: mux, brief: '{fiels}', result: r/ }",
            "there is no placeholder",
            "did you mean `files`?",
        ),
        ("job: { input: in, lead: mux, brief: b, result: ../r }", "is not a path in the workspace", "relative"),
        ("toolboxes: [x]", "`x` is not a map", "{ source: toolbox/devtools/toolbox.yaml }"),
        ("toolboxes: [{ allow: [x] }]", "`source` is missing", "source: toolbox/devtools/toolbox.yaml"),
        ("toolboxes: [{ source: ../x }]", "the path is not relative", "toolbox/<box>/toolbox.yaml"),
        ("toolboxes: [{ source: a/b.yaml }, { source: ./a/b.yaml }]", "listed twice", "keep one entry"),
        ("toolboxes: [{ source: a/b.yaml }]", "there is no such file", "two levels above it"),
        ("toolboxes: [{ source: a/b.yaml }]", "nothing uses this yet", "remove it"),
        (
            "skills: { roots: [nowhere] }",
            "there is no directory `nowhere`",
            "copy the directory to `nowhere` in the world's directory",
        ),
        ("skills: { roots: [../x] }", "`../x` is not relative", "two levels above it"),
        ("inputs: x", "there is no key `inputs`", "did you mean `job: { input: … }`?"),
        ("limits: { max_tool_rounds: 3 }", "there is no key `max_tool_rounds`", "write `turn_rounds_max`"),
        ("hops_max: 3", "there is no key `hops_max`", "did you mean `limits: { hops_max: … }`?"),
        ("model: m", "there is no key `model`", "did you mean `llm: { default_model: … }`?"),
        ("sandbox: { memory: 5 }", "there is no key `memory`", "did you mean `memory_mb`?"),
        // YAML.
        ("a: &x 1", "anchors (`&name`) are not read", "write the value out"),
        ("a: *x", "not YAML", "check the indentation"),
        ("a: !!str 1", "tags", "leave it out"),
        ("<<: { a: 1 }", "merge keys", "write the keys out"),
        ("? { a: 1 }\n: 2", "a key must be plain text", "quote a key"),
        ("limits: { hops_max: 3 }\nlimits: {}", "is repeated", "keep one"),
        ("\tx: 1", "not YAML", "forbids tabs"),
        ("x-a: \"${}\"", "does not name a variable", "write ${NAME}"),
        ("x-a: \"${NONE}\"", "the environment variable NONE is not set", "set it"),
        ("x-a: \"${NONE\"", "`${` has no `}`", "write `$$`"),
        ("---\nb: 1", "a second document", "keep one"),
        ("x-a: \u{1}", "control character", "remove it"),
        (&format!("x-a: {}1{}", "[".repeat(40), "]".repeat(40)), "nested more than 32 deep", "take levels out"),
        (&format!("x-a: {}", "x".repeat(65 * 1024)), "the value has", "a file of its own"),
        (&format!("x-a: [{}]", "1,".repeat(20_001)), "more than 20000 values", "shorten it"),
    ];
    let mut wrong = Vec::new();
    for (yaml, message, hint) in cases {
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
        let reported = problems.0.iter().find(|p| p.message.contains(message) && p.hint.as_str().contains(hint));
        if reported.is_none_or(|reported| !reported.file.ends_with(crate::load::WORLD_FILE) || reported.line == 0) {
            wrong.push(format!("{yaml}: {message} / {hint} is not in\n{problems}"));
        }
        wrong.extend(faults(&world, yaml, &[]));
    }
    none(&wrong);
}

#[test]
fn every_problem_of_an_agent_has_a_line_and_a_hint() {
    let mut wrong = Vec::new();
    for (entry, message, hint) in [
        ("chora", "`chora` is not a map", "for example { id: lead, archetype: lead }"),
        ("{ archetype: doer }", "`id` is missing", "for example `id: lead`"),
        ("{ id: ada }", "`archetype` is missing", "for example `archetype: lead`"),
        ("{ id: Ada, archetype: doer }", "`Ada` is not an agent id", "use 1 to 64 of a-z"),
        ("{ id: all, archetype: doer }", "no agent can be called `all`", "everyone in a channel; choose another id"),
        ("{ id: mux, archetype: doer }", "a second agent is called `mux`", "the first one is on line 4"),
        ("{ id: ada, archetype: deor }", "there is no archetype `deor`", "did you mean `doer`?"),
        ("{ id: ada, archetype: doer, team: dsk }", "there is no team `dsk`", "did you mean `desk`?"),
        ("{ id: ada, archetype: doer, autostart: 1 }", "`1` is not a truth value", "write true or false"),
        ("{ id: ada, archetype: doer, restart: always }", "`always` is not a map", "`key: value`"),
        ("{ id: ada, archetype: doer, restart: { type: never } }", "`never` is not a value", "it may be: permanent"),
        ("{ id: ada, archetype: doer, restart: { backoff: { base: 2s, cap: 1s } } }", "is shorter", "the longest"),
        ("{ id: ada, archetype: doer, privilege_groups: [manger] }", "no privilege group", "did you mean `manager`?"),
        ("{ id: ada, archetype: doer, profile: codng }", "`codng` is not a value", "did you mean `coding`?"),
        ("{ id: ada, archetype: doer, write_acl: [agents/mux/] }", "includes another agent's directory", ""),
        ("{ id: ada, archetype: doer, budget: 5 }", "`5` is not a map", "{ tokens: 5000 }"),
        ("{ id: ada, archetype: doer, budget: { daily_cost_usd: 5 } }", "no key", "write `usd_per_day`"),
        ("{ id: ada, archetype: doer, overides: {} }", "no key `overides`", "did you mean `overrides`?"),
        ("{ id: ada, archetype: doer, overrides: { temperature: 9 } }", "9 is not within 0 to 2", "write at most 2"),
        (
            "{ id: ada, archetype: doer, overrides: { turn_seconds: 60, turn_timeout_seconds: 60 } }",
            "same bound",
            "keep one",
        ),
        ("{ id: ada, archetype: doer, overrides: { turn_rounds_max: 90 } }", "limits are lower", "raise `limits`"),
        (
            "{ id: ada, archetype: doer, overrides: { provider: opnai } }",
            "no provider `opnai`",
            "did you mean `openai`?",
        ),
        ("{ id: ada, archetype: doer, heartbeat: 5m }", "`5m` is not a map", "{ every: 30m }"),
    ] {
        let world = World::new();
        world.with("teams:\n", &format!("  - {entry}\nteams:\n"));
        let problems = all(&world);
        let reported = |problem: &Problem| {
            problem.message.contains(message) && problem.hint.as_str().contains(hint) && problem.line > 0
        };
        if !problems.0.iter().any(reported) {
            wrong.push(format!("{entry}: {message} / {hint} is not in\n{problems}"));
        }
        wrong.extend(faults(&world, entry, &[]));
    }
    none(&wrong);
}
