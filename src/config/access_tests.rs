//! Tests of tool access: groups, overrides, denials, legacy lists, and the exceptions.

use super::*;
use proptest::prelude::*;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn seed_groups() -> Groups {
    groups(&[
        (
            "admin",
            &[
                "syscall.agent.create",
                "syscall.agent.stop",
                "syscall.agent.start",
                "syscall.agent.inspect",
                "syscall.resource.usage",
            ],
        ),
        ("communicator", &["channel", "syscall.ask", "syscall.channel.send", "syscall.channel.handoff"]),
        ("google-searcher", &["tool.google_search"]),
        ("shell", &["tool.cli", "workspace.write", "tool.browser"]),
    ])
}

fn groups(pairs: &[(&str, &[&str])]) -> Groups {
    let words = pairs
        .iter()
        .map(|(group, words)| ((*group).to_owned(), words.iter().map(|word| (*word).to_owned()).collect()))
        .collect();
    Groups::new(&words, AccessDefault::Public, false, ExtraTools::default())
}

fn section(groups: &[&str], overrides: &[&str]) -> AccessSection {
    AccessSection { groups: set(groups), overrides: set(overrides), ..AccessSection::default() }
}

// covers: ACC-01, ACC-02, ACC-03, ACC-04, ACC-05
#[test]
fn groups_overrides_and_denials_decide_and_always_on_tools_stay() {
    let groups = seed_groups();
    let mut section_of = section(&["communicator"], &["workspace.write"]);
    let access = resolve(&groups, Some(&section_of), &BTreeSet::new(), None, None);
    assert!(access.can_access("workspace.read") && access.is_public("workspace.read"));
    assert!(access.can_access("channel.send") && !access.is_public("channel.send"));
    assert!(access.can_access("file_write"), "an override grants under every name of the tool");
    assert!(!access.can_access("tool.cli") && !access.can_access("bash") && !access.can_access("EXEC"));
    assert_eq!(
        access.granted_privileged(),
        [
            "channel.file_attach",
            "channel.handoff",
            "channel.send",
            "syscall.ask",
            "syscall.channel.handoff",
            "syscall.channel.send",
            "workspace.write"
        ]
    );
    section_of.denied = set(&["channel", "syscall.skill.*", "read"]);
    let access = resolve(&groups, Some(&section_of), &BTreeSet::new(), None, None);
    assert!(!access.can_access("channel.send") && !access.can_access("workspace.read"));
    assert!(access.can_access("syscall.skill.list") && access.can_access("unload_skill"));
    assert_eq!(access.mode(), Mode::Privileges);
}

// covers: ACC-07, CONF-02
#[test]
fn a_legacy_list_is_reduced_by_groups_and_replaced_by_a_section() {
    let list = ["bash".to_owned(), "workspace.read".to_owned(), "channel".to_owned()];
    let legacy = resolve(&groups(&[]), None, &BTreeSet::new(), Some(&list), None);
    assert_eq!(legacy.mode(), Mode::AllowList);
    let mut expected = vec!["channel.file_attach", "channel.handoff", "channel.send"];
    expected.extend([
        "syscall.skill.acquire",
        "syscall.skill.activate",
        "syscall.skill.drop",
        "syscall.skill.list",
        "syscall.skill.load",
        "syscall.tool.call",
        "syscall.tool.describe",
        "tool.cli",
        "workspace.read",
    ]);
    assert_eq!(legacy.catalogue(), expected);

    let mixed = resolve(&seed_groups(), None, &BTreeSet::new(), Some(&list), None);
    assert_eq!(mixed.mode(), Mode::AllowListWithinPrivileges);
    assert!(mixed.can_access("workspace.read") && !mixed.can_access("tool.cli") && !mixed.can_access("workspace.list"));

    let section_of = section(&[], &[]);
    let sectioned = resolve(&groups(&[]), Some(&section_of), &BTreeSet::new(), Some(&list), None);
    assert_eq!(sectioned.mode(), Mode::Privileges);
    assert!(sectioned.can_access("workspace.list"));
}

// covers: CONF-27
#[test]
fn the_default_may_be_privileged() {
    let groups = Groups::new(
        &BTreeMap::from([("g".to_owned(), vec!["tool.cli".to_owned()])]),
        AccessDefault::Privileged,
        false,
        ExtraTools::default(),
    );
    let access = resolve(&groups, Some(&section(&["g"], &["workspace.read"])), &BTreeSet::new(), None, None);
    assert!(
        access.can_access("tool.cli") && access.can_access("workspace.read") && !access.can_access("workspace.list")
    );
    assert!(access.can_access("syscall.skill.list"));
    assert_eq!(access.granted_privileged(), ["tool.cli", "workspace.read"]);
}

// covers: ACC-08, CONF-03
#[test]
fn an_outside_conversation_adds_its_two_tools() {
    let access = resolve(&seed_groups(), None, &BTreeSet::new(), None, None);
    assert!(!access.can_access("syscall.channel.send"));
    assert!(access.can_access_with_channel("syscall.channel.send") && !access.can_access_with_channel("channel.send"));
    let narrowed = resolve(&seed_groups(), None, &BTreeSet::new(), None, Some(Profile::Minimal));
    assert!(!narrowed.can_access_with_channel("syscall.channel.send"), "profiles narrow what the context brings");
    let strict = Groups { strict_channel: true, ..seed_groups() };
    assert!(!resolve(&strict, None, &BTreeSet::new(), None, None).can_access_with_channel("syscall.channel.send"));
}

// covers: ACC-10, TBX-03
#[test]
fn toolbox_tools_by_full_and_short_name() {
    let mut extra = ExtraTools::default();
    extra.insert("devtools", "github-repo");
    extra.insert("devtools", "run");
    extra.insert("universe", "run");
    assert_eq!(extra.expand("github-repo"), set(&["devtools.github-repo"]));
    assert_eq!(extra.expand("run"), set(&[]), "ambiguous");
    assert_eq!(extra.expand("devtools.*"), set(&["devtools.github-repo", "devtools.run"]));
    let groups = Groups::new(
        &BTreeMap::from([("git".to_owned(), vec!["github-repo".to_owned()])]),
        AccessDefault::Public,
        false,
        extra,
    );
    let without = resolve(&groups, None, &BTreeSet::new(), None, None);
    assert!(!without.can_access("devtools.github-repo") && !without.can_access_of_skill("devtools.github-repo"));
    assert!(without.can_access("universe.run") && without.can_access_of_skill("universe.run"));
    let with = resolve(&groups, None, &set(&["git"]), None, None);
    assert!(with.can_access("Devtools.GitHub-Repo"));
}

// covers: TASK-05
#[test]
fn the_exception_for_task_owners_passes_every_filter() {
    let world = crate::fixture::World::new();
    world.with("tasks: { owner_may_update: false }\n", "");
    let mut plan = world.plan();
    assert!(plan.owner_may_update_tasks);
    let list = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    for (what, section, legacy, profile, only, granted) in [
        ("no group has it, its owner may", AccessSection::default(), None, None, None, true),
        (
            "denied",
            AccessSection { denied: set(&["syscall.task.update"]), ..section(&[], &[]) },
            None,
            None,
            None,
            false,
        ),
        (
            "denied by a pattern",
            AccessSection { denied: set(&["syscall.task.*"]), ..section(&[], &[]) },
            None,
            None,
            None,
            false,
        ),
        (
            "a profile of the archetype",
            AccessSection { profile: Some("minimal".into()), ..section(&[], &[]) },
            None,
            None,
            None,
            false,
        ),
        ("a profile of the agent", section(&[], &[]), None, Some(Profile::Coding), None, false),
        ("the full profile", section(&[], &[]), None, Some(Profile::Full), None, true),
        ("overrides without it", section(&[], &[]), None, None, Some("workspace.read"), false),
        ("overrides with it", section(&[], &[]), None, None, Some("syscall.task.update"), true),
        ("a list without it", section(&[], &[]), list(&["workspace.read"]), None, None, false),
        ("a list with it", section(&[], &[]), list(&["syscall.task.update"]), None, None, true),
    ] {
        let section = legacy.is_none().then_some(&section);
        let wide = resolve(&plan.groups, section, &BTreeSet::new(), legacy.as_deref(), profile);
        let access = only.map_or_else(|| wide.clone(), |only| narrow(&wide, &set(&[only])));
        assert!(
            !access.can_access("syscall.task.update"),
            "{what}: a group lists it, and the agent is not in the group"
        );
        assert_eq!(plan.grants(&access, "syscall.task.update", false), granted, "{what}");
        assert_eq!(plan.grants(&access, "syscall.task.update", true), granted, "{what}");
    }
    plan.owner_may_update_tasks = false;
    let access = resolve(&plan.groups, None, &BTreeSet::new(), None, None);
    assert!(!plan.grants(&access, "syscall.task.update", false));
}

fn word() -> impl Strategy<Value = String> {
    let words: Vec<&'static str> = tool_catalogue::words().chain(["group:fs", "tool.*", "nonsense"]).collect();
    prop::sample::select(words).prop_map(str::to_owned)
}

fn words() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(word(), 0..6)
}

prop_compose! {
    fn world()(map in prop::collection::btree_map("[a-c]", words(), 0..4), closed: bool, strict: bool) -> Groups {
        let default = if closed { AccessDefault::Privileged } else { AccessDefault::Public };
        Groups::new(&map, default, strict, ExtraTools::default())
    }
}

prop_compose! {
    fn any_section()(
        groups in prop::collection::btree_set("[a-d]", 0..3),
        overrides in words(),
        denied in words(),
        profile in prop::option::of(prop::sample::select(&Profile::NAMES[..])),
    ) -> AccessSection {
        AccessSection {
            groups,
            overrides: overrides.into_iter().collect(),
            profile: profile.map(str::to_owned),
            denied: denied.into_iter().collect(),
        }
    }
}

proptest! {
    // covers: CONF-01
    #[test]
    fn an_alias_has_the_same_access_as_its_tool(
        groups in world(), section in prop::option::of(any_section()), list in prop::option::of(words()),
    ) {
        let access = resolve(&groups, section.as_ref(), &BTreeSet::new(), list.as_deref(), None);
        for entry in tool_catalogue::CATALOGUE {
            for alias in entry.aliases {
                prop_assert_eq!(access.can_access(alias), access.can_access(entry.name));
                prop_assert_eq!(access.can_access(&alias.to_uppercase()), access.can_access(entry.name));
                prop_assert_eq!(access.is_public(alias), access.is_public(entry.name));
            }
        }
    }

    // covers: ACC-03
    #[test]
    fn a_privileged_tool_needs_a_group_or_an_override(groups in world(), section in any_section()) {
        let access = resolve(&groups, Some(&section), &BTreeSet::new(), None, None);
        for name in access.catalogue() {
            let by_group = groups.groups_of(goes_with(name, &groups.listed)).iter().any(|g| section.groups.contains(*g));
            let grant = goes_with(name, &groups.listed);
            let by_override = section.overrides.iter().any(|word| tool_catalogue::expand(word).contains(&grant));
            prop_assert!(groups.is_public(name) || always_on(name) || by_group || by_override, "{}", name);
            let denied = section.denied.iter().any(|word| tool_catalogue::expand(word).contains(&name));
            prop_assert!(always_on(name) || !denied, "{} is denied", name);
        }
    }

    #[test]
    fn joining_a_group_removes_no_tool(groups in world(), section in any_section(), more in "[a-d]") {
        let before = resolve(&groups, Some(&section), &BTreeSet::new(), None, None);
        let after = resolve(&groups, Some(&section), &BTreeSet::from([more]), None, None);
        for name in before.catalogue() {
            prop_assert!(after.can_access(name));
        }
    }

    // covers: ACC-13, ACC-15, CONF-17
    #[test]
    fn narrowing_and_profiles_never_widen(
        groups in world(), section in any_section(), list in prop::option::of(words()), allowed in words(), again in words(),
        profile in prop::sample::select(&Profile::NAMES[..]),
    ) {
        let wide = resolve(&groups, Some(&section), &BTreeSet::new(), list.as_deref(), None);
        let once = narrow(&wide, &allowed.into_iter().collect());
        let twice = narrow(&once, &again.into_iter().collect());
        let profiled = resolve(&groups, Some(&section), &BTreeSet::new(), list.as_deref(), Profile::named(profile));
        for entry in tool_catalogue::CATALOGUE {
            prop_assert!(wide.can_access(entry.name) || !once.can_access(entry.name));
            prop_assert!(once.can_access(entry.name) || !twice.can_access(entry.name));
            prop_assert!(wide.can_access(entry.name) || !profiled.can_access(entry.name));
            prop_assert!(wide.can_access_with_channel(entry.name) || !once.can_access_with_channel(entry.name));
            prop_assert!(wide.can_access_with_channel(entry.name) || !profiled.can_access_with_channel(entry.name));
            let let_through = Profile::named(profile).is_none_or(|profile| profile.allows(entry.name));
            prop_assert!(entry.always_on || let_through || !profiled.can_access_with_channel(entry.name));
            prop_assert!(!entry.always_on || twice.can_access(entry.name));
        }
    }

    // covers: ACC-04, ACC-07
    #[test]
    fn legacy_mode_allows_the_list_and_always_on_tools(list in words(), closed: bool) {
        let default = if closed { AccessDefault::Privileged } else { AccessDefault::Public };
        let groups = Groups::new(&BTreeMap::new(), default, false, ExtraTools::default());
        let access = resolve(&groups, None, &BTreeSet::new(), Some(&list), None);
        let listed: BTreeSet<&str> = list.iter().flat_map(|word| tool_catalogue::expand(word)).collect();
        for entry in tool_catalogue::CATALOGUE {
            prop_assert_eq!(access.can_access(entry.name), entry.always_on || listed.contains(entry.name));
        }
    }

    #[test]
    fn no_name_causes_a_panic(groups in world(), section in any_section(), name in ".{0,40}") {
        let access = resolve(&groups, Some(&section), &BTreeSet::new(), None, None);
        let _ = (access.can_access(&name), access.can_access_with_channel(&name), access.can_access_of_skill(&name));
    }
}
