//! Parts of a world beside its agents: webhooks, toolboxes, skills, and those that come later.

use super::*;

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
    // An archetype has a level of its own.
    world.write("archetype/analyst/config.md", "# analyst\n## Channels\nreactions: minimal\n");
    let plan = world.plan();
    assert_eq!(plan.reactions_of("analyst"), Reactions::Minimal);
    assert_eq!(plan.reactions_of("doer"), Reactions::Extensive);
    world.write("archetype/analyst/config.md", "# analyst\n## Channels\nreactions: wild\n");
    assert!(world.problems().contains("`wild` is not a value for this"));
    world.write("archetype/analyst/config.md", "# analyst\n");
    world.config(&format!("{GOOD}{}", hook.replace("SECRET", "UNSET")));
    assert!(world.warnings().contains("`UNSET` is not set"));
    for (from, to, told) in [
        ("agent: chora", "agent: chorra", "did you mean `chora`?"),
        ("http://127.0.0.1:9/in", "ftp://x", "the URL is not an address of a server"),
        ("secret_env: SECRET", "secret: hunter2-hunter2", "secrets are never written here"),
        ("secret_env: SECRET", "secret_env: a-b", "this is not the name of an environment variable"),
        ("shop:", "'a b':", "the webhook's name is not a name"),
        ("agent: chora", "agent: chora, timestamp_tolerance_s: 0", "timestamp_tolerance_s"),
        ("url:", "uri:", "`url` is missing"),
        ("agent: chora", "agent: chora, actions: [dance]", "`dance` is not a value for this"),
        ("webhooks:", "reactions: wild, webhooks:", "`wild` is not a value for this"),
    ] {
        let problems = world.config(&format!("{GOOD}{}", hook.replace(from, to))).problems();
        assert!(problems.contains(told) && !problems.contains("hunter2"), "{to}: {problems}");
    }
}

#[test]
fn toolboxes_are_known_and_bounded_by_the_worlds_list() {
    let world = World::new();
    let boxes = world.above().join("toolbox/devtools");
    std::fs::create_dir_all(&boxes).unwrap();
    let manifest = "name: devtools\nversion: 1\ntools:\n  - name: repo-git\n  - name: github-repo\n  - name: danger\n";
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
    assert!(plan.archetype_access["doer"].can_access("devtools.repo-git"));
    assert!(!plan.archetype_access["doer"].can_access("devtools.github-repo"), "a group lists it");
    assert_eq!(plan.archetypes["doer"].config.refused, None);
    assert!(world.warnings().contains("toolboxes: nothing uses this yet"));

    world.write("archetype/doer/config.md", section.replace("repo-git", "danger"));
    assert!(world.plan().archetypes["doer"].config.refused.as_deref().unwrap().contains("does not allow `danger`"));
    world.write("archetype/doer/config.md", section.replace("devtools", "devtool"));
    let plan = world.plan();
    assert!(plan.archetypes["doer"].config.refused.is_some() && plan.archetypes["analyst"].config.refused.is_none());
    assert!(world.warnings().contains("did you mean `toolbox/devtools/toolbox.yaml`?"), "{}", world.warnings());
    world.write("archetype/doer/config.md", section.replace("repo-git", "repo-gti"));
    assert!(
        world
            .problems()
            .contains("there is no tool `repo-gti` in toolbox `devtools`\n  hint: did you mean `repo-git`?")
    );
    std::fs::write(boxes.join("toolbox.yaml"), "name: syscall\ntools: [{ name: skill.evil }]\n").unwrap();
    assert!(world.problems().contains("the toolbox cannot be called that"));
}

#[test]
fn skills_are_found_and_named() {
    let world = World::new();
    world.write("skills/python/SKILL.md", "# Python\n");
    world.write(
        "skills/gh/SKILL.md",
        "---\nname: github\nmetadata:\n  ghost: { toolbox: box/toolbox.yaml }\n---\nText\n",
    );
    world.write("skills/gh/box/toolbox.yaml", "name: hub\ntools: [{ name: open-pr }]\n");
    world.write("archetype/doer/config.md", "## Skills\n- python\n- github\n## Tool Access\n- hub.open-pr\n");
    let plan = world.plan();
    assert_eq!(plan.skill_roots.len(), 1);
    assert_eq!(plan.archetypes["doer"].config.skills.as_ref().unwrap().len(), 2);
    world.write("archetype/doer/config.md", "## Skills\n- pyhton\n");
    assert!(
        world.problems().contains("config.md:2: Skills: there is no skill `pyhton`\n  hint: did you mean `python`?")
    );
}

#[test]
fn dangerous_public_tools_are_warned_of() {
    let world = World::new();
    world.with("  shell: [bash, tool.python, syscall.state.write]\n", "");
    let warnings = world.warnings();
    for tool in ["tool.cli", "tool.python", "syscall.state.write"] {
        assert!(
            warnings.contains(&format!("world-config.yaml:12: tool_privileges: `{tool}` is dangerous")),
            "{warnings}"
        );
    }
    assert!(!warnings.contains("syscall.agent.create"));
    world.with("  shell: [bash, tool.python, syscall.state.write]\n", "access: { default: privileged }\n");
    assert_eq!(world.warnings(), "");
}

#[test]
fn parts_for_later_are_checked_and_said_to_have_no_effect() {
    let world = World::new();
    let later = "cli_policy: { default: deny, mode: segments, tiers: { read: { commands: [ls], action: allow } } }\n\
                 sandbox: { kind: local, memory_mb: 512, passthrough_env: [GH_TOKEN] }\nheartbeat: { every: 30m, \
                 ack_max_chars: 300 }\nchat: { wake: mentions }\napprovals: { security: allowlist, ask: on-miss }\n";
    world.config(&format!("{GOOD}{later}"));
    assert_eq!(world.warnings().matches("nothing uses this yet").count(), 3);
    world.config(&format!("{GOOD}{}", later.replace("memory_mb", "memory").replace("mentions", "everyone")));
    let problems = world.problems();
    assert!(problems.contains("sandbox.memory: there is no key `memory` here\n  hint: did you mean `memory_mb`?"));
    assert!(problems.contains("chat.wake: `everyone` is not a value for this\n  hint: it may be: all, mentions, none"));
}
