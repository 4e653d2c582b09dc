//! Parts of a world besides its agents: webhooks, toolboxes, skills and commands.

use super::*;
use crate::plan::{ProviderKind, SandboxKind, SandboxNetwork, SandboxScope};

#[test]
fn webhooks_are_read_and_checked() {
    let world = World::new();
    let hook = "channels: { webhooks: { shop: { url: 'http://127.0.0.1:9/in', secret_env: SECRET, agent: chora } } }\n";
    world.config(&format!("{GOOD}{hook}"));
    let plan = world.plan();
    assert_eq!(world.warnings(), "");
    let shop = &plan.webhooks["shop"];
    assert_eq!(
        (shop.url.as_str(), shop.agent.as_str(), shop.tolerance.as_secs()),
        ("http://127.0.0.1:9/in", "chora", 300)
    );
    assert!(plan.secret_env.contains("SECRET"), "it is redacted like every other secret");
    assert_eq!((shop.actions.as_slice(), plan.reactions), (WEBHOOK_ACTIONS, Reactions::Minimal));
    let more = hook.replace("webhooks:", "reactions: extensive, webhooks:");
    world.config(&format!("{GOOD}{}", more.replace("agent: chora", "agent: chora, actions: [thread, poll]")));
    let plan = world.plan();
    let can = [ActionKind::Send, ActionKind::Poll, ActionKind::Thread];
    assert_eq!((plan.webhooks["shop"].actions.as_slice(), plan.reactions), (&can[..], Reactions::Extensive));
    assert_eq!(plan.channel_actions("webhook:shop"), can);
    assert_eq!(plan.channel_actions("control"), CONTROL_ACTIONS);
    assert_eq!((plan.channel_actions("webhook:gone"), plan.channel_actions("mail")), (&[][..], &[][..]));
    // An archetype may have its own level.
    world.write("archetype/analyst/config.md", "# analyst\n## Channels\nreactions: minimal\n");
    let plan = world.plan();
    assert_eq!(plan.reactions_of("analyst"), Reactions::Minimal);
    assert_eq!(plan.reactions_of("doer"), Reactions::Extensive);
    world.write("archetype/analyst/config.md", "# analyst\n## Channels\nreactions: wild\n");
    assert!(world.problems().contains("config.md:3: Channels.reactions: "));
    world.write("archetype/analyst/config.md", "# analyst\n");
    world.config(&format!("{GOOD}{}", hook.replace("SECRET", "UNSET")));
    assert!(world.warnings().contains("UNSET"));
    for (from, to, reported) in [
        ("agent: chora", "agent: chorra", "`chora`"),
        ("http://127.0.0.1:9/in", "ftp://x", "shop.url: "),
        ("secret_env: SECRET", "secret: hunter2-hunter2", "shop.secret: "),
        ("secret_env: SECRET", "secret_env: a-b", "shop.secret_env: "),
        ("shop:", "'a b':", "channels.webhooks.a b: "),
        ("agent: chora", "agent: chora, timestamp_tolerance_s: 0", "timestamp_tolerance_s"),
        ("url:", "uri:", "`url`"),
        ("agent: chora", "agent: chora, actions: [dance]", "`dance`"),
        ("webhooks:", "reactions: wild, webhooks:", "channels.reactions: "),
    ] {
        let problems = world.config(&format!("{GOOD}{}", hook.replace(from, to))).problems();
        assert!(problems.contains(reported) && !problems.contains("hunter2"), "{to}: {problems}");
    }
}

// covers: TBX-01, TBX-03, TBX-04, WORLD-07
#[test]
fn only_toolbox_tools_that_the_world_allows_are_known() {
    let world = World::new();
    let boxes = world.above().join("toolbox/devtools");
    std::fs::create_dir_all(&boxes).unwrap();
    let tool = |name: &str| format!("  - {{ name: {name}, description: d, command: [git] }}\n");
    let manifest =
        format!("name: devtools\nversion: 1\ntools:\n{}{}{}", tool("repo-git"), tool("github-repo"), tool("danger"));
    std::fs::write(boxes.join("toolbox.yaml"), manifest).unwrap();
    let listed =
        "toolboxes: [ { source: toolbox/devtools/toolbox.yaml, allow: [repo-git, github-repo] } ]\nx-notes: a\n";
    world.with("x-notes: anything\n", listed).config(
        &std::fs::read_to_string(world.dir().join(WORLD_FILE))
            .unwrap()
            .replace("  shell: [", "  shell: [github-repo, "),
    );
    let section = "## Toolbox\nsource: ./toolbox/devtools/toolbox.yaml\n- repo-git\n- github-repo\n";
    world.write("archetype/doer/config.md", section);
    let plan = world.plan();
    let has = |plan: &Plan, archetype: &str, tool: &str| {
        let (config, access) = (&plan.archetypes[archetype].config, &plan.archetype_access[archetype]);
        plan.grants_of_toolbox((config, access), &[], &plan.toolboxes["devtools"], tool)
    };
    assert!(has(&plan, "doer", "devtools.repo-git"));
    assert!(!has(&plan, "doer", "devtools.github-repo"), "a group lists it");
    assert!(!has(&plan, "analyst", "devtools.repo-git"), "nothing names it for this one");
    assert_eq!(plan.archetypes["doer"].config.refused, None);

    world.write("archetype/doer/config.md", section.replace("repo-git", "danger"));
    assert!(world.plan().archetypes["doer"].config.refused.as_deref().unwrap().contains("`danger`"));
    world.write("archetype/doer/config.md", section.replace("devtools", "devtool"));
    let plan = world.plan();
    assert!(plan.archetypes["doer"].config.refused.is_some() && plan.archetypes["analyst"].config.refused.is_none());
    assert!(world.warnings().contains("`toolbox/devtools/toolbox.yaml`"), "{}", world.warnings());
    world.write("archetype/doer/config.md", section.replace("repo-git", "repo-gti"));
    let problems = world.problems();
    assert!(problems.contains("`repo-gti`") && problems.contains("`repo-git`"), "{problems}");
    std::fs::write(boxes.join("toolbox.yaml"), "name: syscall\ntools: []\n").unwrap();
    assert!(world.problems().contains("toolbox.yaml:1: "), "{}", world.problems());
}

// covers: SKILL-07, SKILL-18
#[test]
fn skills_are_found_and_named() {
    let world = World::new();
    world.write("skills/python/SKILL.md", "# Python\n");
    world.write(
        "skills/gh/SKILL.md",
        "---\nname: github\nmetadata:\n  ghost: { toolbox: box/toolbox.yaml }\n---\nText\n",
    );
    let manifest = "name: hub\ntools: [{ name: open-pr, description: d, command: [gh] }]\n";
    world.write("skills/gh/box/toolbox.yaml", manifest);
    world.write("archetype/doer/config.md", "## Skills\n- python\n- github\n## Tool Access\n- hub.open-pr\n");
    let plan = world.plan();
    assert_eq!(plan.skills.roots().len(), 1);
    assert_eq!(plan.archetypes["doer"].config.skills.as_ref().unwrap().len(), 2);
    world.write("archetype/doer/config.md", "## Skills\n- pyhton\n");
    let problems = world.problems();
    assert!(problems.contains("config.md:2: Skills: ") && problems.contains("`python`"), "{problems}");
}

// covers: SKILL-07
#[test]
fn the_manifest_of_a_skill_cannot_stop_a_world_or_read_its_environment() {
    let world = World::new();
    world.write(
        "skills/gh/SKILL.md",
        "---\nname: gh\ndescription: d\nmetadata: { ghost: { toolbox: box.yaml } }\n---\nText\n",
    );
    let bad = "  - { name: A }\n".repeat(50);
    for manifest in ["name: [\n", "tools: []\n", "name: Tool\n", "name: hub\ntools: x\n", "name: \"${PATH}\"\n", "\0"]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("name: hub\ntools:\n{bad}")])
    {
        world.write("skills/gh/box.yaml", &manifest);
        let warnings = world.warnings();
        let count = warnings.matches("box.yaml:").count();
        assert!((1..=21).contains(&count), "{manifest}: {warnings}");
        assert_eq!(world.plan().skills.all().len(), 1);
    }
}

#[test]
fn problems_of_a_skills_frontmatter_have_lines() {
    let world = World::new();
    for (text, reported) in [
        ("---\nname: one\ndescription: b\nlicense: MIT\nx-own: 1\n---\nText\n", &[][..]),
        ("# Text\n", &["SKILL.md:1: "]),
        ("---\nname: a\n", &["SKILL.md:1: "]),
        ("---\nname: a\ndescription: [\n---\n", &["SKILL.md:"]),
        ("---\nwords\n---\n", &["SKILL.md:2: "]),
        ("---\ndescription: b\n---\n", &["SKILL.md:1: name: "]),
        ("---\nname: a\n---\n", &["SKILL.md:1: description: "]),
        ("---\ndescription: ''\nname: a b\n---\n", &["SKILL.md:2: description: ", "SKILL.md:3: name: "]),
        (
            "---\nname: one\ndescription: b\ndisable-model-invocaton: true\nmood: 1\n---\n",
            &["SKILL.md:4: disable-model-invocaton: ", "`disable-model-invocation`", "SKILL.md:5: mood"],
        ),
    ] {
        world.write("skills/one/SKILL.md", text);
        let warnings = world.warnings();
        assert!(!reported.is_empty() || warnings.is_empty(), "{text}: {warnings}");
        for reported in reported {
            assert!(warnings.contains(reported), "{text}: {reported} is not in {warnings}");
        }
    }
}

#[test]
fn all_problems_of_a_webhook_are_reported() {
    let world = World::new();
    let hook = "channels: { webhooks: { shop: { url: 'ftp://x', secret_env: UNSET, agent: chorra } } }\n";
    let problems = world.config(&format!("{GOOD}{hook}")).problems();
    for reported in ["shop.url: ", "`chora`", "UNSET"] {
        assert!(problems.contains(reported), "{reported} is not in {problems}");
    }
}

#[test]
fn a_repeated_section_is_an_error() {
    let world = World::new();
    world.write("archetype/analyst/config.md", "## LLM\nmodel: a\n## LLM\nmodel: b\n");
    let problems = world.problems();
    assert!(problems.contains("config.md:3: ") && problems.contains("`## LLM`"), "{problems}");
}

#[test]
fn the_time_zone_of_a_prompt_must_exist() {
    let world = World::new();
    world.write("archetype/analyst/config.md", "## Prompt\ntimezone: Mars/Base\n");
    assert!(world.problems().contains("config.md:2: Prompt.timezone: "));
    world.write("archetype/analyst/config.md", "## Prompt\ntimezone: Europe/Berlin\n");
    assert_eq!(world.plan().archetypes["analyst"].config.timezone.as_deref(), Some("Europe/Berlin"));
}

#[test]
fn a_file_with_its_own_meaning_is_not_suggested_for_a_missing_one() {
    let world = World::new();
    std::fs::remove_file(world.dir().join("archetype/doer/goal.md")).unwrap();
    let problems = world.problems();
    assert!(problems.contains("doer/goal.md: ") && !problems.contains(".md`"), "{problems}");
    world.write("archetype/doer/Goal.md", "To do.");
    assert!(world.problems().contains("`Goal.md`"));
}

#[test]
fn fallback_models_without_a_provider_are_reported_at_their_line() {
    let world = World::new();
    let section =
        "## LLM\nprovider: scripted\nmodel: small\nfallback_models: scriptd/x, big, recorded/y, scripted/huge\n";
    world.write("archetype/doer/config.md", section);
    let problems = world.problems();
    for reported in ["`scriptd`", "`scripted`", "`recorded`", "`llm.providers`"] {
        assert!(problems.contains(reported), "{reported} is not in {problems}");
    }
    assert_eq!(problems.matches("config.md:4: LLM.fallback_models: ").count(), 2, "{problems}");
    assert_eq!(problems.matches("fallback_models").count(), 2, "{problems}");
    world.write("archetype/doer/config.md", section.replace("scriptd/x, big, recorded/y", "big"));
    world.with("overrides: { model: big,", "overrides: { model: big, fallback_models: [nowhere/x],");
    let problems = world.problems();
    assert!(problems.contains("world-config.yaml:8: agents[1].overrides.fallback_models[0]: "), "{problems}");
}

#[test]
fn a_fallback_may_name_a_kind_that_is_not_listed() {
    let world = World::new();
    let choice = |fallbacks: &str| {
        let section = format!("## LLM\nprovider: local\nmodel: small\nfallback_models: {fallbacks}\n");
        world.write("archetype/doer/config.md", section);
        let local = "llm: { providers: { local: { kind: openai, base_url: 'http://127.0.0.1:1/v1' } } }\n";
        world.config(&format!("{GOOD}{local}")).plan()
    };
    let plan = choice("anthropic/claude-x, local/anthropic/claude-x, org/model");
    assert_eq!(plan.llm.providers["anthropic"].kind, ProviderKind::Anthropic);
    assert!(plan.secret_env.contains("ANTHROPIC_API_KEY"));
    for (entry, target) in [
        ("anthropic/claude-x", ("anthropic", "claude-x")),
        ("local/anthropic/claude-x", ("local", "anthropic/claude-x")),
        ("org/model", ("local", "org/model")),
    ] {
        assert_eq!(plan.llm.fallback_target("local", entry), target);
    }
    assert!(!choice("small-2").llm.providers.contains_key("anthropic"));
    // The same for an agent's own fallback models.
    world.write("archetype/doer/config.md", "");
    world.with("overrides: { model: big,", "overrides: { model: big, fallback_models: [gemini/g],");
    assert!(world.plan().llm.providers.contains_key("gemini"));
}

#[test]
fn an_unknown_tool_word_gets_a_fitting_hint() {
    let world = World::new();
    for (word, hint) in [
        ("group:runtme", "`group:runtime`"),
        ("group:filesystem", "fs, runtime, web"),
        ("zz*", ""),
        ("syscal.task.*", "`syscall.task.*`"),
        ("tool.clii", "`tool.cli`"),
        ("nonsense", ""),
    ] {
        world.write("archetype/doer/config.md", format!("## Tool Access\n- {word}\n"));
        world.with("  shell: [bash,", &format!("  shell: ['{word}', bash,"));
        let problems = world.problems();
        let hints = problems.lines().filter(|line| line.starts_with("  hint: ") && line.contains(hint));
        assert_eq!((problems.matches("error: ").count(), hints.count()), (2, 2), "{word}: {problems}");
        assert_eq!(problems.matches(&format!("`{word}`")).count(), 2, "{problems}");
    }
}

#[test]
fn misplaced_configuration_is_always_reported() {
    let world = World::new();
    let deny = "privilege_groups: communicator\ndeny: tool.cli\n";
    let all = |text: String| {
        world.write("archetype/doer/config.md", text);
        world.problems()
    };
    let reported = |text: String, expected_problems: &[&str]| {
        let problems = all(text.clone());
        for expected_problems in expected_problems {
            assert!(
                problems.contains(&format!("doer/config.md:{expected_problems}")),
                "{text}: {expected_problems} is not in {problems}"
            );
        }
        assert_eq!(problems.matches("error:").count(), expected_problems.len(), "{text}: {problems}");
    };
    reported(format!("# Tool Access\n{deny}"), &["1: `# Tool Access` ", "2: `privilege_groups:` ", "3: `deny:` "]);
    reported(format!("notes\n{deny}## LLM\nmodel: m\n"), &["2: `privilege_groups:` ", "3: `deny:` "]);
    reported("### LLM\n- a\n".into(), &["1: `### LLM` ", "2: "]);
    reported("# doer\n# Tool-Access\n## LLM\nmodel: m\n".into(), &["2: `# Tool-Access` "]);
    reported("# doer\n## LLM\n# Skills\nmodel: m\n".into(), &["3: `# Skills` "]);
    reported("## Mine\ntext\n### Skills\n".into(), &["3: `### Skills` "]);
    let lost = format!("## LLM\nmodel: m\n<!-- a note\n## Tool Access\n{deny}");
    reported(lost, &["3: "]);
    // A title, notes and comments are allowed.
    world.write("archetype/doer/config.md", "# doer\n\nSome notes.\n<!-- x: y\n- z -->\n## LLM\nmodel: m\n");
    assert_eq!(world.warnings(), "");
}

#[test]
fn misspelt_file_names_are_reported() {
    let world = World::new();
    world.write("laws.md", "l").write("archetype/doer/config.md", "");
    for free in ["README.md", "NOTES.md", "archetype/README.md", "archetype/doer/README.md", "archetype/doer/notes.md"]
    {
        world.write(free, "mine");
    }
    assert_eq!(world.warnings(), "");
    for name in ["archetype/doer/conf.md", "archetype/doer/Config.md", "law.md", "Laws.md"] {
        world.write(name, "x");
    }
    let warnings = world.warnings();
    assert_eq!(warnings.matches("warning: ").count(), 4, "{warnings}");
    for part in ["doer/conf.md:1: ", "`config.md`", "law.md:1: ", "`laws.md`"] {
        assert!(warnings.contains(part), "{part} is not in {warnings}");
    }
    // The file that it should be is missing.
    world.write("archetype/doer/agents.md", "How.");
    assert!(world.problems().contains("error: archetype/doer/agents.md:1: "), "{}", world.problems());
}

// covers: ACL-03
#[test]
fn a_write_rule_must_not_include_another_agents_directory() {
    let world = World::new();
    world.with("agents/chora/, output/reports/", "agents/, agents/mux/, output/, agents/chora/notes/");
    let problems = world.problems();
    for (at, prefix) in [(0, "agents/"), (1, "agents/mux/")] {
        assert!(problems.contains(&format!("write_acls.chora[{at}]: ")), "{at}: {problems}");
        assert!(problems.contains(&format!("`{prefix}`")), "{prefix}: {problems}");
    }
    assert_eq!(problems.matches("error:").count(), 2, "{problems}");
    world.with("    team: desk\n", "    team: desk\n    write_acl: [agents/chora/]\n");
    assert!(world.problems().contains("agents[1].write_acl[0]: "));
}

#[test]
fn an_empty_item_in_a_list_of_tools_is_reported_as_empty() {
    let world = World::new();
    world.write("archetype/doer/config.md", "## Tool Access\n- workspace.read\n-\n");
    let problems = world.problems();
    assert!(problems.contains("doer/config.md:3: Tool Access: ") && !problems.contains("``"), "{problems}");
}

// covers: CONF-27
#[test]
fn dangerous_tools_need_a_grant_and_a_world_that_counts_on_them_hears_it_once() {
    const SHELL: &str = "  shell: [bash, tool.python, syscall.state.write]\n";
    let may = |world: &World, tool: &str| world.plan().agents[1].access.can_access(tool);
    let world = World::new();
    world.with(SHELL, "  shell: [tool.python]\nsandbox: { kind: local }\n");
    assert_eq!(world.warnings(), "");
    for tool in ["tool.cli", "tool.python", "syscall.state.write"] {
        assert!(!may(&world, tool), "{tool}");
    }
    assert!(may(&world, "syscall.state.read"));
    world.write("archetype/doer/agent.md", "Look around with tool.cli, and note it with `syscall.state.write`.\n");
    let problems = world.problems();
    assert_eq!(problems.matches("access.default: ").count(), 1, "{problems}");
    assert!(["`tool.cli`", "`syscall.state.write`", "`doer`"].iter().all(|name| problems.contains(name)), "{problems}");
    assert!(!problems.contains("tool.python"), "a group has it: {problems}");
    world.with(SHELL, "  shell: [tool.python]\naccess: { default: public }\nsandbox: { kind: local }\n");
    assert_eq!(world.warnings(), "");
    assert!(may(&world, "tool.cli") && !may(&world, "tool.python"));
    world.with(SHELL, "  shell: [tool.cli, syscall.state.write]\nsandbox: { kind: local }\n");
    assert_eq!(world.warnings(), "", "what a group has is a decision");
    world.with(SHELL, "  shell: [tool.python]\naccess: { default: safe }\nsandbox: { kind: local }\n");
    assert!(!may(&world, "tool.cli"), "the world says that it is meant");
    world.write("archetype/doer/agent.md", "Look around.\n");
    world.with(SHELL, "  shell: [tool.python]\nsandbox: { kind: local }\ncli_policy: { default: deny }\n");
    let problems = world.problems();
    assert!(problems.contains("`cli_policy`") && problems.contains("`tool.cli`"), "{problems}");
}

// covers: SBX-07, SBX-10
#[test]
fn sandbox_and_policy_become_a_plan() {
    let world = World::new();
    let commands = "sandbox: { kind: local, memory_mb: 64, disk_mb: 8, pids: 9, require: [tree], passthrough_env: [GH_TOKEN], \
                    workspace_access: ro, default_timeout_ms: 9000, max_timeout_ms: 5000, stdout_limit: 7 }\n\
                    cli_policy: { default: deny, tiers: { read: { commands: [ls], action: allow, groups: [communicator] } } }\n";
    world.config(&format!("{GOOD}{commands}"));
    let plan = world.load().unwrap();
    let sandbox = &plan.sandbox;
    assert_eq!((sandbox.kind, sandbox.memory_bytes, sandbox.processes), (SandboxKind::Local, 64 << 20, 9));
    assert_eq!((sandbox.default_timeout.as_millis(), sandbox.stdout_limit), (5_000, 7));
    let settings = plan.cli_policy.settings();
    assert_eq!((settings.default, settings.tiers.len()), (ghost_policy::Action::Deny, 1));
    assert_eq!(settings.tiers["read"].groups, ["communicator"]);
    world
        .config(&format!("{GOOD}{}", commands.replace("[communicator]", "[comunicator]").replace("[tree]", "[treee]")));
    let problems = world.problems();
    assert!(problems.contains("`comunicator`") && problems.contains("sandbox.require[0]"), "{problems}");
    world.config(&format!("{GOOD}sandbox: {{ kind: local, network: bridge }}\n"));
    assert!(world.problems().contains("sandbox.network"));
}

// covers: SBX-07
#[test]
fn containers_become_a_plan() {
    let world = World::new();
    let docker = "sandbox: { kind: docker, image: box@sha256:0a, scope: world, network: open, cpus: 1.5, containers_max: 3, \
                  read_only_root: true }\n";
    world.config(&format!("{GOOD}{docker}"));
    let plan = world.load().unwrap().sandbox.clone();
    assert_eq!((plan.kind, plan.scope, plan.network), (SandboxKind::Docker, SandboxScope::World, SandboxNetwork::Open));
    assert_eq!((plan.image.as_str(), plan.cpu_millis, plan.containers_max), ("box@sha256:0a", Some(1_500), 3));
    assert!(!world.warnings().contains("sandbox."), "{}", world.warnings());
    for (good, bad) in [
        ("scope: world", "scope: sessions"),
        ("read_only_root: true", "read_only_root: false"),
        ("cpus: 1.5", "cpus: 0"),
        ("containers_max: 3", "containers_max: 0"),
        ("image: box@sha256:0a", "image: \"a b\""),
        ("network: open", "network: proxy"),
        ("kind: docker", "kind: local"),
    ] {
        world.config(&format!("{GOOD}{}", docker.replace(good, bad)));
        assert!(world.problems().contains("sandbox."), "{bad}: {}", world.problems());
    }
}

// covers: SBX-07
#[test]
fn the_hosts_of_commands_become_a_plan() {
    let world = World::new();
    let good = "sandbox: { kind: local, network: proxy, hosts: ['crates.io:443', '*.crates.io', 10.0.0.0/8] }\n";
    world.config(&format!("{GOOD}{good}"));
    let plan = world.load().unwrap().sandbox.clone();
    assert_eq!((plan.network, plan.hosts.len()), (SandboxNetwork::Proxy, 3));
    assert!(plan.hosts[0].names("crates.io", 443) && !plan.hosts[0].names("crates.io", 80));
    let without = good.replace(", hosts: ['crates.io:443', '*.crates.io', 10.0.0.0/8]", "");
    for (bad, place) in [
        (without.as_str(), "sandbox.network"),
        (&good.replace("proxy", "none"), "sandbox.hosts"),
        (&good.replace("10.0.0.0/8", "'http://a.example/'"), "sandbox.hosts[2]"),
    ] {
        world.config(&format!("{GOOD}{bad}"));
        assert!(world.problems().contains(place), "{bad}: {}", world.problems());
    }
}

// covers: SBX-07, TBX-07
#[test]
fn a_toolbox_server_becomes_a_plan() {
    let world = World::new();
    let remote = "sandbox: { kind: remote, url: 'https://box.example:9090', token_env: BOX_TOKEN, ca_file: box.pem }\n";
    world.config(&format!("{GOOD}{remote}"));
    let plan = world.load().unwrap();
    let server = plan.sandbox.remote.clone().unwrap();
    assert_eq!((server.url.as_str(), server.token_env.as_str()), ("https://box.example:9090", "BOX_TOKEN"));
    assert_eq!(server.ca_file, Some(plan.dir.join("box.pem")));
    assert!(plan.secret_env.contains("BOX_TOKEN"), "its value is redacted");
    assert!(!world.warnings().contains("sandbox."), "{}", world.warnings());
    for (good, bad) in [
        ("url: 'https://box.example:9090', ", ""),
        ("https:", "http:"),
        (", token_env: BOX_TOKEN", ""),
        ("BOX_TOKEN", "'a token'"),
        ("kind: remote", "kind: remote, network: open"),
        ("kind: remote", "kind: remote, network: proxy, hosts: [a.example]"),
    ] {
        world.config(&format!("{GOOD}{}", remote.replace(good, bad)));
        assert!(world.problems().contains("sandbox"), "{bad}: {}", world.problems());
    }
}

// covers: EXEC-06, LIM-38
#[test]
fn sections_of_commands_are_read_strictly() {
    let world = World::new();
    assert_eq!(world.plan().approvals.expires.as_secs(), 30 * 60);
    let good = "cli_policy: { default: deny, mode: segments, tiers: { read: { commands: [ls], action: allow } } }\n\
                sandbox: { kind: local, memory_mb: 512, passthrough_env: [GH_TOKEN] }\nheartbeat: { every: 30m, \
                ack_max_chars: 300 }\nchat: { wake: mentions }\n\
                approvals: { tools: [workspace.write, tool.cli], approvers: [uid-0], expires: 10m }\n";
    world.config(&format!("{GOOD}{good}"));
    assert_eq!(world.warnings(), "");
    let approvals = world.plan().approvals;
    assert_eq!(approvals.tools, ["tool.cli", "workspace.write"].map(str::to_owned).into());
    assert_eq!(approvals.approvers, ["uid-0".to_owned()].into());
    assert_eq!(approvals.expires.as_secs(), 600);
    let bad = good
        .replace("memory_mb", "memory")
        .replace("mentions", "everyone")
        .replace("workspace.write", "workspace.wrte");
    world.config(&format!("{GOOD}{}", bad.replace("10m", "8d")));
    let problems = world.problems();
    for part in [
        "sandbox.memory: ",
        "`memory_mb`",
        "chat.wake: ",
        "all, mentions, none",
        "approvals.tools[0]",
        "approvals.expires",
    ] {
        assert!(problems.contains(part), "{part} is not in {problems}");
    }
}
