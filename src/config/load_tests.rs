//! Tests of loading whole worlds: valid worlds, worlds with mistakes, and unreadable files.

use std::time::Duration;

use ghost_domain::conversation::{CONTROL_ACTIONS, WEBHOOK_ACTIONS};
use ghost_domain::restart::{RestartType, Strategy as Restart};
use ghost_domain::{ActionKind, Money, Reactions, Scope};
use proptest::prelude::*;

use super::*;
use crate::fixture::{GOOD, World};
use crate::problem::Problem;

#[path = "load_any_text_tests.rs"]
mod any_text;
#[path = "load_parts_tests.rs"]
mod parts;
#[path = "load_values_tests.rs"]
mod values;

// covers: ARCH-01, ARCH-03, WORLD-02, WORLD-06, WORLD-10
#[test]
fn a_good_world_becomes_a_plan() {
    let world = World::new();
    let plan = world.plan();
    assert_eq!(world.warnings(), "");
    assert_eq!((plan.world_id.as_str(), plan.name.as_str(), plan.laws.as_str()), ("demo", "Demo World", "Be exact."));
    assert_eq!(plan.limits.hops_max, 8);
    assert!(!plan.owner_may_update_tasks && plan.metrics_open);
    let hosts: Vec<_> = plan.http.allowed_hosts.iter().map(|found| (found.host.as_str(), found.port)).collect();
    assert_eq!(hosts, [("ghost.example", None), ("ghost", Some(8_080))]);
    assert_eq!(plan.http.allowed_origins, ["https://dash.example"]);
    assert_eq!(plan.secret_env.iter().collect::<Vec<_>>(), ["DEPLOY_KEY"]);
    assert_eq!(plan.creatable.iter().collect::<Vec<_>>(), ["doer"]);

    let chora = &plan.agents[0];
    assert_eq!((chora.name.as_str(), chora.team.as_deref(), chora.line), ("Chora", Some("desk"), 3));
    assert_eq!(chora.write_acl.prefixes(), ["agents/chora/", "output/reports/"]);
    assert!(chora.access.can_access("syscall.task.create"), "from the world file");
    assert!(chora.access.can_access("channel.send") && chora.access.can_access("tool.google_search"));
    assert!(!chora.access.can_access("exec") && !chora.access.can_access("syscall.agent.create"));

    let mux = &plan.agents[1];
    assert_eq!((mux.restart.restart, mux.restart.intensity.max), (RestartType::Transient, 3));
    assert_eq!(mux.restart.intensity.window, Duration::from_secs(120));
    assert_eq!(mux.restart.backoff.base, Duration::from_millis(250));
    assert_eq!((mux.model.model.as_deref(), mux.model.max_tokens), (Some("big"), Some(900)));
    assert_eq!(mux.limits.turn_rounds_max, Some(9));
    assert_eq!(mux.write_acl.prefixes(), ["agents/mux/"]);
    assert_eq!(plan.archetypes["doer"].config.skills, Some(BTreeSet::new()));
    assert_eq!(plan.archetypes["analyst"].config.skills, None);

    let desk = &plan.teams[0];
    assert_eq!((desk.strategy, desk.intensity.window), (Restart::RestForOne, Duration::from_secs(30)));
    assert_eq!(desk.agents.iter().map(AgentId::as_str).collect::<Vec<_>>(), ["chora", "mux"]);
    let budgets: Vec<String> = plan.budgets.iter().map(|(scope, _)| scope.to_string()).collect();
    assert_eq!(budgets, ["world", "team:desk", "agent:mux"]);
    assert_eq!(plan.budgets[2].1.money, Some(Money(1_500_000)));
    assert_eq!(plan.budgets[0].0, Scope::World);

    let scripted = &plan.llm.providers["scripted"];
    assert_eq!(scripted.dir, Some(plan.dir.join("scripts")));
    assert_eq!((plan.llm.default_provider.as_str(), plan.llm.default_model.as_str()), ("scripted", "default"));
    assert_eq!(crate::load(&world.dir().join(WORLD_FILE), &|_| None).unwrap().world_id, "demo");
}

// covers: ARCH-12
#[test]
fn notes_on_tools_grant_nothing() {
    let world = World::new();
    let before = world.plan();
    world.write("tools.md", "# Tools\n\n## Tool Access\nprivilege_groups: shell\n- tool.cli\n");
    let after = world.plan();
    assert!(after.tools_md.contains("tool.cli"), "{}", after.tools_md);
    for (had, has) in before.agents.iter().zip(after.agents.iter()) {
        assert!(!has.access.can_access("tool.cli"), "{}", has.agent_id);
        for entry in ghost_domain::tool_catalogue::CATALOGUE {
            let (had, has) = (had.access.can_access(entry.name), has.access.can_access(entry.name));
            assert_eq!(had, has, "{}", entry.name);
        }
    }
}

// covers: ACC-06, WORLD-03
#[test]
fn privilege_groups_are_read_as_written() {
    let plan = World::new().plan();
    let tools = |group: &str| plan.groups.tools(group).unwrap().iter().cloned().collect::<Vec<_>>();
    assert_eq!(
        plan.groups.names().collect::<Vec<_>>(),
        ["admin", "communicator", "google-searcher", "manager", "shell"]
    );
    assert_eq!(tools("admin").len(), 6);
    assert_eq!(tools("manager").len(), 5);
    assert_eq!(
        tools("communicator"),
        [
            "channel.file_attach",
            "channel.handoff",
            "channel.send",
            "syscall.ask",
            "syscall.channel.handoff",
            "syscall.channel.send"
        ]
    );
    assert_eq!(tools("shell"), ["syscall.state.write", "tool.cli", "tool.python"]);
}

// covers: WORLD-08
#[test]
fn every_mistake_is_told_at_once_with_its_line() {
    let world = World::new();
    world.config(
        "world: { id: demo, nmae: Demo }
agents:
  - { id: Chora, archetype: analyst }
  - { id: mux, archetype: anlyst, autostart: yes }
  - { id: mux, archetype: doer, team: dsk, privilege_groups: [manger] }
  - id: subrosa
    archetype: doer
    write_acl: [output]
    restart: { type: permanant, backoff: soon }
    overrides: { provider: antropic, temperature: 9 }
teams:
  - { name: desk, strategy: all, agents: [mux, mus] }
tool_privileges:
  manager: [syscall.task.craete, syscall.broadcast]
agents_may_create: [doers]
llm:
  default_provider: scripted
  providers:
    local: { kind: openai, base_url: localhost, concurency: 3, api_key: sk-123 }
limits: { hops_max: 0, inbox_maxx: 5 }
budgets: { agent: { chorus: { tokens: many } } }
write_acls: { nobody: [agents/x/] }
job: { input: input, lead: primus, brief: 'Do {file}', result: ../out }
data_dir: ~/data
limits: {}
",
    );
    world.write(
        "archetype/analyst/config.md",
        "## Tool Access\nprivilege_groups: communicator, manger\nprofil: coding\n- tool.clii\n\n## Limits\nmax_tool_rounds: \
         many\nmax_tool_round: 3\n## Toolbox\n- repo-git\n## Skils\n- python\n",
    );
    std::fs::remove_file(world.dir().join("archetype/doer/goal.md")).unwrap();
    world.write("archetype/doer/gaol.md", "x");
    let problems = world.load().map(|_| ()).unwrap_err();
    let place = |problem: &Problem| {
        let file = problem.file.strip_prefix(world.dir()).unwrap().display();
        format!("{} {file}:{} {}", problem.severity, problem.line, problem.field).trim_end().to_owned()
    };
    insta::assert_snapshot!(problems.0.iter().map(place).collect::<Vec<_>>().join("\n"));
}

/// The value itself is not checked if its variable is unset.
// covers: WORLD-09
#[test]
fn an_unset_variable_is_the_only_problem_of_its_value() {
    for (from, to, field) in [
        ("hops_max: 8", "hops_max: '${NONE}'", "limits.hops_max"),
        ("open: true", "open: '${NONE}'", "metrics.open"),
        ("window: 2m", "window: '${NONE}m'", "agents[1].restart.window"),
        ("type: transient", "type: '${NONE}'", "agents[1].restart.type"),
        ("archetype: doer", "archetype: 'do${NONE}'", "agents[1].archetype"),
        ("[DEPLOY_KEY]", "['${NONE}']", "secrets_env[0]"),
        ("google_search]", "google_search, '${NONE}']", "tool_privileges.google-searcher[1]"),
    ] {
        let world = World::new();
        let problems = world.with(from, to).problems();
        let mut lines = problems.lines().filter(|line| line.starts_with("error: "));
        let reported = lines.next().unwrap_or_default();
        assert!(reported.contains(&format!(": {field}: ")) && reported.contains("NONE"), "{problems}");
        assert_eq!(lines.next(), None, "{problems}");
    }
}

// covers: WORLD-09
#[test]
fn values_of_variables_are_used_and_never_shown() {
    let world = World::new();
    world.with("name: Demo World", "name: \"${SECRET} of ${NONE:-nobody}\"");
    assert_eq!(world.plan().name, "hunter2-hunter2 of nobody");
    world.with("archetype: doer", "archetype: ${SECRET}\n    name: ${MISSING}");
    let problems = world.problems();
    assert!(!problems.contains("hunter2"), "{problems}");
    for part in ["world-config.yaml:5: agents[1].archetype: ", "`${SECRET}`", "world-config.yaml:6: agents[1].name: "] {
        assert!(problems.contains(part), "{part} is not in {problems}");
    }
    world.with("hops_max: 8", "hops_max: ${SECRET}");
    assert!(!world.problems().contains("hunter2"));
    // The value of a repeated key is not used, but it is a secret, too.
    let text = GOOD.replace("archetype: doer", "archetype: hunter2-hunter2");
    world.config(&format!("{text}limits: {{ hops_max: \"${{SECRET}}\" }}\n"));
    let problems = world.problems();
    assert!(problems.contains("the key `limits` is repeated"), "{problems}");
    assert!(problems.contains("there is no archetype `${SECRET}`") && !problems.contains("hunter2"), "{problems}");
}

// covers: ARCH-01, CONF-19, CONF-20, PROMPT-04
#[test]
fn a_legacy_agent_md_and_old_file_names_are_read() {
    let world = World::new();
    std::fs::remove_file(world.dir().join("archetype/doer/config.md")).unwrap();
    world.write("archetype/doer/agent.md", "How I work.\n## LLM\nmodel: old\n## Tools\n- bash\n- workspace.read\n");
    world.write("archetype/doer/AGENTS.md", "More.");
    world.write("archetype/doer/USER.md", "For you.");
    let plan = world.plan();
    let doer = &plan.archetypes["doer"];
    assert_eq!((doer.agent.as_str(), doer.user.as_str()), ("How I work.\n\nMore.", "For you."));
    assert_eq!(doer.config.model.model.as_deref(), Some("old"));
    let access = &plan.archetype_access["doer"];
    assert_eq!(access.mode(), access::Mode::AllowListWithinPrivileges);
    assert!(access.can_access("workspace.read") && !access.can_access("bash") && !access.can_access("workspace.list"));
    assert!(world.warnings().contains("archetype/doer/agent.md:2: "));
}

#[test]
fn unsuitable_files_are_refused() {
    let world = World::new();
    world.write("archetype/doer/soul.md", "x".repeat(64 * 1024 + 1));
    world.write("archetype/doer/goal.md", b"\xff\xfe");
    std::fs::create_dir(world.dir().join("archetype/doer/user.md")).unwrap();
    std::fs::remove_file(world.dir().join("archetype/analyst/soul.md")).unwrap();
    let problems = world.problems();
    for expected in [
        "archetype/doer/soul.md:1: ",
        "archetype/doer/goal.md:1: ",
        "archetype/doer/user.md: ",
        "archetype/analyst/soul.md: ",
    ] {
        assert!(problems.contains(expected), "{problems}");
    }
    assert_eq!(problems.matches("error:").count(), 4, "{problems}");
    #[cfg(unix)]
    {
        let world = World::new();
        std::os::unix::fs::symlink("/etc/hostname", world.dir().join("tools.md")).unwrap();
        std::os::unix::fs::symlink("/none", world.dir().join("archetype/doer/agent.md")).unwrap();
        let problems = world.problems();
        assert!(problems.contains("tools.md:1: "), "{problems}");
        assert!(problems.contains("archetype/doer/agent.md: "), "{problems}");
    }
    let world = World::new();
    for number in 0..=archetype::ARCHETYPES_MAX {
        world.write(&format!("archetype/a{number}/soul.md"), "x").write(&format!("archetype/a{number}/goal.md"), "x");
    }
    assert!(world.problems().contains("200"));
}

#[test]
fn a_world_needs_agents_a_file_and_a_directory() {
    let world = World::new();
    world.config("world: { id: demo }\nagents: []\n");
    assert!(world.problems().contains("world-config.yaml:2: agents: "));
    world.config("world: { id: demo }\n");
    assert!(world.problems().contains("`agents`"));
    world.config("- a\n");
    assert!(world.problems().contains("error: world-config.yaml:1: "));
    world.config("# nothing\n");
    assert!(world.problems().contains("error: world-config.yaml:1: "));
    std::fs::remove_file(world.dir().join(WORLD_FILE)).unwrap();
    assert!(world.problems().contains("error: world-config.yaml: "));
    let gone = crate::load(Path::new("/none/such"), &|_| None).unwrap_err();
    assert!(gone.to_string().contains("ghostd init"));
    world.write("archetype/analyst/config.md", "");
    let many: String = (0..2_001).map(|at| format!("  - {{ id: a{at}, archetype: doer }}\n")).collect();
    world.config(&format!("agents:\n{many}"));
    let reported = world.problems();
    assert!(reported.contains("2001") && reported.contains("2000"), "{reported}");
    assert_eq!(reported.matches("error: ").count(), 1, "nothing that only follows from it: {reported}");
    world.config(&format!("agents:\n{}", many.lines().take(2_000).map(|line| format!("{line}\n")).collect::<String>()));
    let plan = world.plan();
    assert_eq!(plan.agents.len(), 2_000);
    assert!(plan.agents.iter().all(|agent| Arc::ptr_eq(&agent.access, &plan.archetype_access["doer"])));
}

#[test]
fn a_provider_needs_a_model_and_a_known_name() {
    let world = World::new();
    world.config(&format!("{GOOD}llm: {{ default_provider: anthropic }}\n"));
    let problems = world.problems();
    assert!(problems.contains("world-config.yaml:31: llm.default_provider: "), "{problems}");
    world.config(&format!("{GOOD}llm: {{ default_provider: anthropic, default_model: m }}\n"));
    let plan = world.plan();
    assert!(plan.secret_env.contains("ANTHROPIC_API_KEY"));
    world.config(&format!(
        "{GOOD}llm: {{ providers: {{ local: {{ kind: openai, base_url: 'http://127.0.0.1:1/v1' }} }} }}\n"
    ));
    assert_eq!(world.plan().llm.providers["local"].api_key_env, None, "a key goes nowhere unasked");
}

#[test]
fn a_broken_world_file_does_not_hide_problems_of_other_files() {
    let world = World::new();
    world.config("agents: [\n");
    world.write(
        "archetype/analyst/config.md",
        "## Tool Access\nprivilege_groups: whoever\nprofil: coding\n- some.tool\n## Toolbox\nsource: a/b.yaml\n- x\n## Skills\n- y\n",
    );
    world.write("knowledge/x.md", "---\nid: x\nreaders: [group:whoever, nobody]\n---\ntext\n");
    std::fs::write(world.dir().join("laws.md"), [0xff, 0xfe]).unwrap();
    let problems = world.problems();
    for reported in ["world-config.yaml:1: ", "config.md:3: Tool Access.profil", "x.md:1: title", "laws.md"] {
        assert!(problems.contains(reported), "{reported} is not in {problems}");
    }
    // References to definitions of `world-config.yaml` are not checked.
    for word in ["whoever", "some.tool", "a/b.yaml", "skill", "nobody"] {
        assert!(!problems.contains(word), "{word} is in {problems}");
    }
    let (plan, _) = crate::examine(&world.dir(), &|_| None);
    assert!(plan.is_none());
}

// covers: ARCH-06
#[test]
fn a_budget_for_a_day_comes_from_the_world_file_or_from_the_archetype() {
    let world = World::new();
    world.write("archetype/doer/config.md", "## Limits\ndaily_cost_usd: 0.5\n");
    world.write("archetype/analyst/config.md", "## Limits\ndaily_cost_usd: 2\n");
    world.with(
        "budgets: { world: { tokens: 1_000_000 }, team: { desk: { usd: 3 } } }\n",
        "budgets: { world: { tokens: 1_000_000, tokens_per_day: 5_000 }, team: { desk: { usd_per_day: 3 } }, agent: { \
         chora: { usd_per_day: 1.5 } } }\n",
    );
    let plan = world.plan();
    let limits: Vec<String> = plan
        .budgets
        .iter()
        .map(|(scope, limits)| format!("{scope} {:?} {:?}", limits.tokens, limits.money.map(Money::usd)))
        .collect();
    assert_eq!(
        limits,
        [
            "world Some(1000000) None",
            "agent:mux Some(5000) Some(1.5)",
            "world/day Some(5000) None",
            "team:desk/day None Some(3.0)",
            "agent:chora/day None Some(1.5)",
            "agent:mux/day None Some(0.5)",
        ]
    );
    assert_eq!(plan.archetypes["doer"].config.daily_money, Some(Money(500_000)));
    for bad in ["daily_cost_usd: -1", "daily_cost_usd: much", "daily_cost_usd: 0.0000001"] {
        world.write("archetype/doer/config.md", format!("## Limits\n{bad}\n"));
        assert!(world.problems().to_string().contains("daily_cost_usd"), "{bad}");
    }
}

#[test]
fn a_wrong_group_and_a_wrong_archetype_of_one_agent_are_both_reported() {
    let world = World::new();
    world.write(
        "world-config.yaml",
        "agents:\n  - { id: ada, archetype: nobody, privilege_groups: [nogroup], write_acl: [x] }\n",
    );
    let reported = world.problems();
    for words in ["`nobody`", "`nogroup`"] {
        assert!(reported.contains(words), "{reported}");
    }
}

#[test]
fn a_count_makes_numbered_agents_that_keep_their_own_directory() {
    let world = World::new();
    let agents = |entries: &str| {
        world.write(
            "world-config.yaml",
            format!("tool_privileges: {{ communicator: [syscall.ask] }}\nagents:\n{entries}"),
        );
        world.load().unwrap().agents
    };
    let two = agents(
        "  - { id: w, archetype: doer, name: Worker, count: 12, write_acl: [shared/] }\n  - { id: x, archetype: doer }\n",
    );
    let ids: Vec<&str> = two.iter().map(|agent| agent.agent_id.as_str()).collect();
    assert_eq!((ids.len(), ids[0], ids[11], ids[12]), (13, "w-1", "w-12", "x"));
    assert_eq!((two[11].name.as_str(), two[12].name.as_str()), ("Worker 12", "x"));
    assert_eq!(two[11].write_acl.prefixes(), ["agents/w-12/", "shared/"]);
    let one = agents("  - { id: w, archetype: doer, count: 1 }\n");
    assert_eq!(one[0].agent_id.as_str(), "w-1");
    for (entries, words) in [
        ("  - { id: w, archetype: doer, count: 0 }\n", "count"),
        ("  - { id: w, archetype: doer, count: 100001 }\n", "count"),
        ("  - { id: w, archetype: doer, count: 100000 }\n  - { id: x, archetype: doer }\n", "100000"),
        ("  - { id: w, archetype: doer, count: 3 }\n  - { id: w-2, archetype: doer }\n", "`w-2`"),
        ("  - { id: w, archetype: doer, count: 3, write_acl: [agents/w-2/] }\n", "agents/w-2/"),
    ] {
        world.write(
            "world-config.yaml",
            format!("tool_privileges: {{ communicator: [syscall.ask] }}\nagents:\n{entries}"),
        );
        let reported = world.problems();
        assert!(reported.contains(words), "{entries}: {reported}");
        assert!(reported.matches("error:").count() <= 2, "{reported}");
    }
}

// covers: CONF-19, PROMPT-08
#[test]
fn identity_and_tools_files_are_read_and_others_get_a_warning() {
    let world = World::new();
    world.write("archetype/doer/IDENTITY.md", "I am the doer.").write("archetype/doer/TOOLS.md", "Prefer lists.");
    let plan = world.load().unwrap();
    let doer = &plan.archetypes["doer"];
    assert!(doer.soul.ends_with("\n\nI am the doer.") && doer.agent.ends_with("Prefer lists."), "{doer:?}");
    world.write("archetype/doer/MEMORY.md", "x").write("archetype/doer/BOOTSTRAP.md", "x");
    let warnings = world.load().unwrap().warnings;
    for file in ["doer/MEMORY.md", "doer/BOOTSTRAP.md"] {
        assert_eq!(warnings.iter().filter(|warning| warning.file.ends_with(file)).count(), 1, "{file}: {warnings:?}");
    }
}

// covers: HB-04
#[test]
fn a_heartbeat_text_without_a_heartbeat_gets_a_warning() {
    let world = World::new();
    let warned = || {
        let warnings = world.load().unwrap().warnings;
        warnings.iter().filter(|warning| warning.file.ends_with("doer/HEARTBEAT.md")).count()
    };
    world.write("archetype/doer/HEARTBEAT.md", "# Only a heading\n");
    assert_eq!(warned(), 0);
    world.write("archetype/doer/HEARTBEAT.md", "Look at the desk.\n");
    assert_eq!(warned(), 1);
    let file = "tool_privileges: { communicator: [syscall.ask] }\nheartbeat: { every: 5m }\nagents:\n  - { id: x, archetype: doer }\n";
    world.write("world-config.yaml", file);
    assert_eq!(warned(), 0);
    let plan = world.load().unwrap();
    let of =
        |id: &str, archetype: &str| plan.heartbeat(&id.parse().unwrap(), archetype).map(|found| found.every.as_secs());
    assert_eq!((of("x", "doer"), of("made-later", "doer"), of("x", "none")), (Some(300), Some(300), Some(300)));
    assert_eq!(of("made-later", "none"), None);
}

// covers: WORLD-05
#[test]
fn a_line_of_a_prompt_may_be_a_snippet() {
    let world = World::new();
    world.write("snippets/tone.md", "Be kind.\n@snippets/other.md\n").write("laws.md", "One\n@snippets/tone.md\nTwo");
    world.write("archetype/doer/soul.md", "@snippets/tone.md\n");
    let plan = world.load().unwrap();
    // A snippet is not read for further ones.
    assert_eq!(plan.laws, "One\nBe kind.\n@snippets/other.md\nTwo\n");
    assert!(plan.archetypes["doer"].soul.starts_with("Be kind."));
    world.write("laws.md", "One\n  @snippets/tone.md\n@snippet/tone.md");
    let warned = world.load().unwrap().warnings;
    let of = |file: &str| warned.iter().filter(|warning| warning.file.ends_with(file)).count();
    assert_eq!((of("laws.md"), of("snippets/tone.md")), (2, 1), "{warned:?}");
    world.write("laws.md", "One\n@snippets/ton.md\n@snippets/../x.md");
    let reported = world.problems();
    assert!(
        reported.contains("laws.md:2: ") && reported.contains("tone.md") && reported.contains("laws.md:3: "),
        "{reported}"
    );
}
