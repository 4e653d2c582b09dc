//! Broken archetypes, manifests and knowledge entries, and files that are missing, misnamed or unreadable.

use super::*;

/// Discards the result of a chain of changes to a world.
fn done(_: &World) {}

#[test]
fn every_problem_of_an_archetype_has_a_line_and_a_hint() {
    let mut wrong = Vec::new();
    for (text, line, message, hint) in [
        ("## LLm\nmodel: a\n## LLM\n", 3, "`## LLM` is repeated", "it is already on line 1"),
        ("## Limit\nx: 1\n", 1, "the section `## Limit` is not read", "did you mean `## Limits`?"),
        ("## Tool-Access\n- x\n", 1, "is not read", "did you mean `## Tool Access`?"),
        ("## Thoughts\n", 1, "is not read", "known: ## LLM, ## Limits, ## Tool Access, ## Toolbox"),
        ("### LLM\n", 1, "`### LLM` does not begin a section", "did you mean `## LLM`? Sections begin with two `#`"),
        ("# doer\n### Musings\n", 2, "does not begin a section", "sections begin with two `#`"),
        ("- x\n", 1, "is before the first section", "`## Section`"),
        ("<!-- x\n", 1, "is not closed", "write `-->`"),
        ("## LLM\nwords\n", 2, "`words` cannot be read here", "write `key: value`"),
        ("## LLM\nmodel: a\nmodel: b\n", 3, "`model` is repeated", "line 2; keep one"),
        ("## LLM\nmodle: a\n", 2, "there is no key `modle`", "did you mean `model`?"),
        ("## LLM\nprovider: opnai\n", 2, "there is no provider `opnai`", "did you mean `openai`?"),
        ("## LLM\nprovider: openai\n", 1, "no model is named", "write `model:`"),
        ("## LLM\nprovider: scripted\nmodel: a\nfallback_models: x/y\n", 4, "no provider `x`", ""),
        ("## Limits\nmax_tool_rounds: many\n", 2, "`many` is not a whole number", "write a whole number from 1 to"),
        ("## Limits\nmax_tool_rounds: '5'\n", 2, "`5` is not a whole number", "write it without quotes"),
        ("## Limits\ndaily_cost_usd: \"5\"\n", 2, "`5` is not a number", "write it without quotes"),
        ("## LLM\nmodel: a\ntemperature: '0.5'\n", 3, "`0.5` is not a number", "write it without quotes"),
        ("## Tool Access\ndeny:\n- bash\n", 2, "`deny` has no value", "behind the colon"),
        ("## Tool Access\nprivilege_groups:\n- admin\n", 2, "`privilege_groups` has no value", "behind the colon"),
        ("## Limits\nmax_tool_rounds:\n", 2, "nothing is not a whole number", "omit the key"),
        ("## Limits\ndaily_cost_usd: $5\n", 2, "`$5` is not a number", "write US dollars such as 2.50"),
        ("## Limits\nusd_per_day: 5\n", 2, "there is no key `usd_per_day`", "write `daily_cost_usd`"),
        ("## Limits\ntokens_per_day: 5\n", 2, "there is no key `tokens_per_day`", "write it into the world file"),
        ("## Limits\nmax_tool_rounds: 90\n", 1, "limits are lower", "raise `limits`"),
        ("## Tool Access\nprofile: codng\n", 2, "there is no profile `codng`", "did you mean `coding`?"),
        ("## Tool Access\nprivilege_groups: manger\n", 2, "no privilege group", "did you mean `manager`?"),
        ("## Tool Access\ndeny: bash\ndeny: bash\n", 3, "`deny` is repeated", "with commas"),
        ("## Tool Access\ndeny: syscall.skill.list\n", 2, "cannot be denied", "remove it"),
        ("## Tool Access\n- bsh\n", 2, "there is no tool `bsh`", ""),
        ("## Tool Access\n-\n", 2, "an item of this list is empty", "name a tool"),
        ("## Tool Access\ngroups: x\n", 2, "there is no key `groups`", "known: deny, privilege_groups, profile"),
        ("## Tools\nread: x\n", 2, "there is no key `read`", "write each tool on a line of its own"),
        ("## Tools\n- bash\n## Tool Access\n- bash\n", 1, "`## Tools` is not read", "move its tools there"),
        ("## Skills\n- x\n", 2, "there is no skill `x`", "a directory under `skills`"),
        ("## Skills\nuse: x\n", 2, "there is no key `use`", "write each skill on a line of its own"),
        ("## Toolbox\n- x\n", 1, "the section has no `source`", "write `source:"),
        ("## Toolbox\nsource: a\nsource: b\n- x\n", 3, "a second source", "one `## Toolbox` section for each"),
        ("## Toolbox\nsource: a\n", 1, "no tool of this toolbox is named", "list those that are wanted"),
        ("## Toolbox\nsource: a\n- x\n", 2, "not among the world's `toolboxes`", "list it under `toolboxes`"),
        ("## Prompt\nmode: none\n", 1, "nothing uses this yet", "write `full`"),
        ("## Prompt\ntimezone: Mars\n", 2, "there is no time zone", ""),
        ("## Channels\nreactions: wild\n", 2, "`wild` is not a value", "it may be: minimal, extensive"),
        ("## Heartbeat\nevery: often\n", 2, "`often` is not a duration", "30s"),
    ] {
        let world = World::new();
        world.write("archetype/doer/config.md", text);
        wrong.extend(faults(&world, text, &[("archetype/doer/config.md", line, message, hint)]));
    }
    none(&wrong);
}

#[test]
fn every_file_that_is_missing_misnamed_or_unreadable_has_a_hint() {
    let remove = |world: &World, path: &str| {
        let path = world.dir().join(path);
        if path.is_dir() { std::fs::remove_dir_all(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
    };
    let rename = |world: &World, from: &str, to: &str| {
        std::fs::rename(world.dir().join(from), world.dir().join(to)).unwrap();
    };
    type Break<'b> = &'b dyn Fn(&World);
    let doer = "archetype/doer/config.md";
    let cases: &[(&str, Break<'_>, &[Expected<'_>])] = &[
        (
            "yml",
            &|w| rename(w, "world-config.yaml", "world-config.yml"),
            &[(
                "world-config.yaml",
                0,
                "the world file is missing",
                "did you mean `world-config.yml`? Rename it to `world-config.yaml`",
            )],
        ),
        ("no file", &|w| remove(w, "world-config.yaml"), &[("world-config.yaml", 0, "is missing", "ghostd init")]),
        (
            "both",
            &|w| done(w.write("world-config.yml", "x")),
            &[("world-config.yml", 1, "not read", "did you mean `world-config.yaml`?")],
        ),
        (
            "plural",
            &|w| rename(w, "archetype", "archetypes"),
            &[("archetype", 0, "the world has no directory `archetype`", "did you mean `archetypes`? Rename it")],
        ),
        ("capital", &|w| rename(w, "archetype", "Archetype"), &[("archetype", 0, "no directory", "`Archetype`")]),
        ("none", &|w| remove(w, "archetype"), &[("archetype", 0, "no directory", "make archetype/<name>/")]),
        (
            "empty",
            &|w| {
                remove(w, "archetype/doer");
                remove(w, "archetype/analyst")
            },
            &[("archetype", 0, "there is no archetype in it", "make archetype/<name>/")],
        ),
        (
            "Skills",
            &|w| done(w.write("Skills/a/SKILL.md", "x")),
            &[("Skills", 0, "is not read", "did you mean `skills`?")],
        ),
        ("Knowledge", &|w| done(w.write("Knowledge/a.md", "x")), &[("Knowledge", 0, "is not read", "`knowledge`")]),
        (
            "Archetype",
            &|w| done(w.write("Archetype/a/soul.md", "x")),
            &[("Archetype", 0, "is not read", "`archetype`")],
        ),
        (
            "skill",
            &|w| done(w.write("skill/a/SKILL.md", "x")),
            &[("skill", 0, "is not read", "did you mean `skills`?")],
        ),
        (
            "archetypes",
            &|w| done(w.write("archetypes/a/x", "x")),
            &[("archetypes", 0, "not read", "did you mean `archetype`?")],
        ),
        ("a file", &|w| done(w.write("skills", "x")), &[("skills", 1, "it is not a directory", "make it one")]),
        ("a file", &|w| done(w.write("knowledge", "x")), &[("knowledge", 1, "it is not a directory", "make it one")]),
        (
            "bad name",
            &|w| done(w.write("archetype/a b/soul.md", "x")),
            &[("archetype/a b", 0, "cannot have this name", "use 1")],
        ),
        (
            "no soul",
            &|w| remove(w, "archetype/doer/soul.md"),
            &[("archetype/doer/soul.md", 0, "is missing", "a sentence")],
        ),
        (
            "empty soul",
            &|w| done(w.write("archetype/doer/soul.md", "")),
            &[("archetype/doer/soul.md", 1, "empty", "a sentence")],
        ),
        (
            "case",
            &|w| rename(w, doer, "archetype/doer/Config.md"),
            &[("archetype/doer/Config.md", 1, "not read", "did you mean `config.md`?")],
        ),
        (
            "near",
            &|w| rename(w, doer, "archetype/doer/conf.md"),
            &[("archetype/doer/conf.md", 1, "not read", "did you mean `config.md`?")],
        ),
        (
            "inputs",
            &|w| {
                std::fs::create_dir(w.dir().join("inputs")).unwrap();
                w.config(&format!("{GOOD}job: {{ input: input, lead: mux, brief: b, result: r/ }}\n"));
            },
            &[("world-config.yaml", 31, "there is no directory `input`", "did you mean `inputs`?")],
        ),
        (
            "legacy",
            &|w| {
                remove(w, doer);
                w.write("archetype/doer/agent.md", "a\n## LLM\nmodel: x\n");
            },
            &[("archetype/doer/agent.md", 2, "read as configuration", "move these sections to config.md")],
        ),
        ("large", &|w| done(w.write("laws.md", "x".repeat(65 * 1024))), &[("laws.md", 1, "larger than", "shorten it")]),
        ("utf-8", &|w| done(w.write("laws.md", b"a\n\xff")), &[("laws.md", 2, "not UTF-8", "save it as UTF-8")]),
        (
            "utf-8",
            &|w| done(w.write("world-config.yaml", b"a\n\xff")),
            &[("world-config.yaml", 2, "not UTF-8", "UTF-8")],
        ),
        ("empty", &|w| done(w.config("")), &[("world-config.yaml", 1, "the file is empty", "write something")]),
        ("null", &|w| done(w.config("~")), &[("world-config.yaml", 1, "the file has no content", "at least `agents`")]),
        ("list", &|w| done(w.config("- a")), &[("world-config.yaml", 1, "a list is not a map", "`key: value`")]),
        (
            "no agents",
            &|w| done(w.config("x-a: 1")),
            &[("world-config.yaml", 1, "`agents` is missing", "archetype: lead")],
        ),
        (
            "nobody",
            &|w| done(w.config("agents: []")),
            &[("world-config.yaml", 1, "at least one agent", "name at least one")],
        ),
        (
            "huge",
            &|w| done(w.config(&"# x\n".repeat(70_000))),
            &[("world-config.yaml", 1, "larger than", "shorten it")],
        ),
        (
            "head",
            &|w| done(w.write("knowledge/a.md", "x")),
            &[("knowledge/a.md", 1, "has no head", "begin the file with")],
        ),
        (
            "no id",
            &|w| done(w.write("knowledge/a.md", "---\ntitle: a\n---\nx")),
            &[("knowledge/a.md", 1, "no `id`", "write `id:")],
        ),
        (
            "id",
            &|w| done(w.write("knowledge/a.md", "---\nid: A\ntitle: a\n---\nx")),
            &[("knowledge/a.md", 2, "`A`", "lower-case")],
        ),
        (
            "no text",
            &|w| done(w.write("knowledge/a.md", "---\nid: a\ntitle: a\n---\n")),
            &[("knowledge/a.md", 4, "empty", "write")],
        ),
        (
            "readers",
            &|w| done(w.write("knowledge/a.md", "---\nid: a\ntitle: a\nreaders: archetype:deor\n---\nx")),
            &[("knowledge/a.md", 4, "there is no archetype `deor`", "did you mean `doer`?")],
        ),
        ("other", &|w| done(w.write("knowledge/a.txt", "x")), &[("knowledge/a.txt", 1, "nothing reads this", "*.md")]),
        (
            "two",
            &|w| {
                done(
                    w.write("knowledge/a.md", "---\nid: a\ntitle: a\n---\nx")
                        .write("knowledge/b.md", "---\nid: a\ntitle: a\n---\nx"),
                )
            },
            &[("knowledge/b.md", 2, "a second entry", "ids are unique")],
        ),
        (
            "no matter",
            &|w| done(w.write("skills/a/SKILL.md", "x")),
            &[("skills/a/SKILL.md", 1, "no frontmatter", "`name`")],
        ),
        (
            "matter",
            &|w| done(w.write("skills/a/SKILL.md", "---\nname: [\n---\n")),
            &[("skills/a/SKILL.md", 2, "is read as it is written", "not YAML")],
        ),
        (
            "box",
            &|w| {
                done(w.write(
                    "skills/a/SKILL.md",
                    "---\nname: a\ndescription: b\nmetadata: { ghost: { toolbox: x } }\n---\n",
                ))
            },
            &[("skills/a/SKILL.md", 1, "there is no such file", "such as toolbox.yaml")],
        ),
    ];
    let mut wrong = Vec::new();
    for (what, break_it, expected) in cases {
        let world = World::new();
        break_it(&world);
        wrong.extend(faults(&world, what, expected));
    }
    none(&wrong);
}

#[test]
fn every_problem_of_a_manifest_has_a_hint() {
    let mut wrong = Vec::new();
    for (manifest, line, message, hint) in [
        ("tools: []\n", 1, "`name` is missing", "for example `name: devtools`"),
        ("name: Tool\n", 1, "cannot have this name", "use lower-case letters"),
        ("name: dev\ntools: x\n", 2, "`x` is not a list", "[x]"),
        ("name: dev\ntools: [{}]\n", 2, "`name` is missing", "for example `name: search`"),
        ("name: dev\ntools: [{ name: A }]\n", 2, "a tool cannot have this name", "use lower-case letters"),
        (
            "name: dev\ntools: [{ name: a, description: d, command: [ls] }, { name: a, description: d, command: [ls] }]\n",
            2,
            "another tool has this name",
            "rename one of them",
        ),
        ("name: [\n", 1, "not YAML", "check the indentation"),
    ] {
        let world = World::new();
        world.config(&format!("{GOOD}toolboxes: [{{ source: box/toolbox.yaml }}]\n"));
        world.write("box/toolbox.yaml", manifest);
        wrong.extend(faults(&world, manifest, &[("box/toolbox.yaml", line, message, hint)]));
    }
    none(&wrong);
}

#[test]
fn consequences_of_another_problem_are_not_reported() {
    let world = World::new();
    std::fs::rename(world.dir().join("archetype"), world.dir().join("archetypes")).unwrap();
    world.write("knowledge/a.md", "---\nid: a\ntitle: a\nreaders: archetype:doer\n---\nx");
    std::fs::create_dir(world.dir().join("input")).unwrap();
    let more = "job: { input: input, lead: chora, brief: Do it., result: out/ }\nchannels: { webhooks: { shop: { url: \
                'http://127.0.0.1:9/', secret_env: SECRET, agent: mux } } }\n";
    world.config(&format!("{GOOD}{more}"));
    let problems = all(&world);
    assert_eq!(problems.counts().0, 1, "{problems}");
    // An agent without its archetype is still an agent of the world.
    let world = World::new();
    std::fs::create_dir(world.dir().join("input")).unwrap();
    world.config(&format!("{GOOD}{more}").replace("archetype: analyst", "archetype: analist"));
    let problems = all(&world);
    assert_eq!(problems.counts().0, 1, "{problems}");
    assert!(problems.to_string().contains("there is no archetype `analist`\n  hint: did you mean `analyst`?"));
}

#[test]
fn a_repeated_key_is_an_error_and_its_first_value_counts() {
    let world = World::new();
    world.config(&format!("{GOOD}agents:\n  - {{ id: eve, archetype: deor }}\n"));
    let problems = all(&world);
    let errors = problems.0.iter().filter(|problem| problem.severity == Severity::Error);
    let reported: Vec<(usize, &str)> = errors.map(|problem| (problem.line, problem.field.as_str())).collect();
    assert_eq!(reported, [(31, "agents")], "{problems}");
}

#[test]
fn a_file_that_is_not_yaml_does_not_hide_problems_of_other_files() {
    let world = World::new();
    world.config(&format!("{GOOD}toolboxes: [{{ source: box/toolbox.yaml }}]\nlimits: [\n"));
    world.write("archetype/doer/config.md", "## Limits\nmax_tool_rounds: many\n");
    world.write("archetype/analyst/soul.md", "");
    world.write("knowledge/a.md", "---\nid: [\n---\nx");
    world.write("knowledge/b.md", "x");
    world.write("Laws.md", "x");
    let expected: &[Expected<'_>] = &[
        ("archetype/doer/config.md", 2, "is not a whole number", "write a whole number"),
        ("archetype/analyst/soul.md", 1, "empty", "a sentence"),
        ("knowledge/a.md", 2, "not YAML", "check"),
        ("knowledge/b.md", 1, "has no head", "begin"),
        ("Laws.md", 1, "not read", "did you mean `laws.md`?"),
    ];
    none(&faults(&world, "a broken world file", expected));
    assert!(all(&world).to_string().contains("this is not YAML"));
    // The same for a world file with a wrong name.
    std::fs::rename(world.dir().join("world-config.yaml"), world.dir().join("world-config.yml")).unwrap();
    none(&faults(&world, "no world file", expected));
    // And for a broken manifest.
    world.config(&format!("{GOOD}toolboxes: [{{ source: box/toolbox.yaml }}]\n").replace("hops_max: 8", "hops_max: 0"));
    world.write("box/toolbox.yaml", "name: [\n");
    none(&faults(&world, "a broken manifest", expected));
    none(&faults(&world, "a broken manifest", &[("world-config.yaml", 23, "0 is not within", "at least 1")]));
}
