//! Tests of the specs of agents, and of overrides, which only narrow.

use ghost_domain::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::fixture::World;

fn record(id: &str, archetype: &str, kind: AgentKind, overrides: Value) -> Agent {
    Agent { overrides, ..Agent::new(id.parse().unwrap(), archetype, kind, Timestamp(0)) }
}

fn created(overrides: Value) -> Agent {
    record("helper-1", "doer", AgentKind::Dynamic, overrides)
}

#[test]
fn a_named_agent_gets_its_entry() {
    let plan = World::new().plan();
    let spec = plan.spec_for(&record("mux", "doer", AgentKind::Persistent, json!({}))).unwrap();
    assert_eq!((spec.model.provider.as_deref(), spec.model.model.as_deref()), (Some("scripted"), Some("big")));
    assert_eq!((spec.limits.turn_rounds_max, spec.limits.answer_tokens), (9, 900));
    assert_eq!(spec.limits.turn_seconds, plan.limits.turn_seconds);
    assert_eq!((spec.team.as_deref(), spec.restart.intensity.max), (Some("desk"), 3));
    assert!(Arc::ptr_eq(&spec.access, &plan.agents[1].access));
}

#[test]
fn the_models_window_is_the_archetypes_within_the_worlds_limit() {
    let world = World::new();
    let window = |plan: &Plan| plan.spec_for(&created(json!({}))).unwrap().limits.window_tokens;
    assert_eq!(window(&world.plan()), None, "left to the provider");
    for (tokens, expected) in [(8_192, 8_192), (2_000_000, 150_000)] {
        let text = format!("## LLM\nprovider: scripted\nmodel: small\n\n## Limits\ncontext_window_tokens: {tokens}\n");
        world.write("archetype/doer/config.md", &text);
        assert_eq!(window(&world.plan()), Some(expected));
    }
}

#[test]
fn an_agent_without_a_place_in_the_plan_cannot_run_and_gets_a_hint() {
    let plan = World::new().plan();
    for (agent, name) in [
        (record("muxx", "doer", AgentKind::Persistent, Value::Null), "`muxx`"),
        (record("mux", "dore", AgentKind::Dynamic, Value::Null), "`dore`"),
    ] {
        let refusal = plan.may_run(&agent).unwrap_err();
        assert_eq!(refusal, plan.spec_for(&agent).unwrap_err());
        assert_eq!(refusal.code, Code::Conflict);
        assert!(refusal.message.contains(name), "{refusal}");
        // A similar name would not help: the agent's record cannot be edited.
        assert!(!refusal.hint.unwrap().contains('`'));
    }
    assert_eq!(plan.may_run(&record("mux", "doer", AgentKind::Persistent, Value::Null)), Ok(()));
    assert_eq!(plan.may_run(&created(json!({ "max_tokens": 5 }))), Ok(()));
    assert_eq!(plan.may_run(&created(json!({ "modle": "big" }))).unwrap_err().code, Code::Conflict);
}

#[test]
fn recorded_overrides_still_narrow_after_the_archetype_has_changed() {
    let world = World::new();
    let overrides = json!({
        "model": "huge", "max_tokens": 1_500, "turn_rounds_max": 8, "tools": ["workspace.read", "syscall.task.list"]
    });
    assert_eq!(world.plan().check_create("doer", &overrides), Ok(()));
    world.write(
        "archetype/doer/config.md",
        "## LLM\nprovider: scripted\nmodel: small\nfallback_models: big\nmax_tokens: 1000\n\n## Limits\nmax_tool_rounds: \
         5\n## Tool Access\n- workspace.list\n- workspace.read\n",
    );
    let plan = world.plan();
    assert_eq!(plan.check_create("doer", &overrides).unwrap_err().code, Code::InvalidArguments);
    let spec = plan.spec_for(&created(overrides)).unwrap();
    assert_eq!((spec.limits.answer_tokens, spec.limits.turn_rounds_max), (1_000, 5));
    assert_eq!(spec.model.model.as_deref(), Some("small"), "the choice is gone");
    assert_eq!(spec.model.fallback_models, ["big"]);
    assert!(spec.access.can_access("workspace.read") && !spec.access.can_access("workspace.list"));
    // If no listed tool is left, the agent has none, rather than all.
    let none = plan.spec_for(&created(json!({ "tools": ["syscall.task.list", "tool.gone"] }))).unwrap();
    assert!(!none.access.can_access("workspace.read") && none.access.can_access("syscall.skill.list"));
}

// covers: ACL-11
#[test]
fn a_created_agent_gets_its_archetype_and_its_own_directory() {
    let plan = World::new().plan();
    let spec = plan.spec_for(&created(Value::Null)).unwrap();
    assert_eq!(spec.write_acl.prefixes(), ["agents/helper-1/"]);
    assert_eq!((spec.model.model.as_deref(), spec.limits.answer_tokens), (Some("small"), 2_000));
    assert!(Arc::ptr_eq(&spec.access, &plan.archetype_access["doer"]));
    let spec = plan
        .spec_for(&created(json!({
            "model": "huge", "max_tokens": 100, "turn_rounds_max": 2, "tools": ["file_read", "workspace.list"]
        })))
        .unwrap();
    assert_eq!((spec.model.provider.as_deref(), spec.model.model.as_deref()), (Some("scripted"), Some("huge")));
    assert_eq!(spec.model.fallback_models, ["scripted/big"]);
    assert_eq!((spec.limits.answer_tokens, spec.limits.turn_rounds_max), (100, 2));
    assert!(spec.access.can_access("workspace.read") && spec.access.can_access("syscall.skill.list"));
    assert!(!spec.access.can_access("workspace.write") && !spec.access.can_access("syscall.reflect"));
}

// covers: BI-22
#[test]
fn overrides_never_widen() {
    let plan = World::new().plan();
    // With each: whether an existing agent with these overrides can still run.
    for (overrides, field, runs) in [
        (json!({ "model": "other" }), "model", true),
        (json!({ "model": 3 }), "model", true),
        (json!({ "max_tokens": 2_001 }), "max_tokens", true),
        (json!({ "max_tokens": 0 }), "max_tokens", false),
        (json!({ "max_tokens": -1.5 }), "max_tokens", false),
        (json!({ "turn_rounds_max": 10 }), "turn_rounds_max", true),
        (json!({ "tools": ["bash"] }), "tools", true),
        (json!({ "tools": ["nonsense"] }), "tools", true),
        (json!({ "tools": "workspace.read" }), "tools", false),
        (json!({ "modle": "big" }), "modle", false),
        (json!(["model"]), "", false),
    ] {
        let refusal = plan.check_create("doer", &overrides).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidArguments, "{overrides}");
        let field = format!("overrides.{field}").trim_end_matches('.').to_owned();
        assert_eq!(refusal.details, Some(json!({ "field": field })), "{refusal}");
        assert!(refusal.hint.is_some(), "{refusal}");
        assert_eq!(plan.spec_for(&created(overrides)).is_ok(), runs, "{refusal}");
    }
}

#[test]
fn overrides_may_name_every_tool_that_the_registry_grants() {
    let world = World::new();
    world.with("tasks: { owner_may_update: false }\n", "");
    let plan = world.plan();
    for tool in ["syscall.task.update", "syscall.channel.send"] {
        let spec = plan.spec_for(&created(json!({ "tools": [tool] }))).unwrap();
        let outside = tool.contains("channel");
        assert!(
            plan.grants(&spec.access, tool, outside) && !plan.grants(&spec.access, "workspace.read", false),
            "{tool}"
        );
    }
    let spec = plan.spec_for(&created(json!({ "tools": ["workspace.read"] }))).unwrap();
    assert!(!plan.grants(&spec.access, "syscall.task.update", false));
    assert!(!plan.grants(&spec.access, "syscall.channel.send", true));
    let strict = World::new().plan();
    let refusal = strict.check_create("doer", &json!({ "tools": ["syscall.task.update"] })).unwrap_err();
    assert_eq!(refusal.details, Some(json!({ "field": "overrides.tools" })), "{refusal}");
}

// covers: BI-22
#[test]
fn only_listed_archetypes_may_be_created() {
    let plan = World::new().plan();
    assert_eq!(plan.check_create("doer", &Value::Null), Ok(()));
    let refusal = plan.check_create("analyst", &Value::Null).unwrap_err();
    assert_eq!(refusal.code, Code::AccessDenied);
    assert!(refusal.hint.unwrap().contains("doer"));
    assert_eq!(plan.check_create("doerr", &Value::Null).unwrap_err().code, Code::NotFound);
    assert_eq!(plan.check_overrides_of("analyst", &json!({})), Ok(()));
}

// covers: WORLD-07, WORLD-11
#[test]
fn a_refused_archetype_starts_no_agent() {
    let world = World::new();
    world.write("archetype/doer/config.md", "## Toolbox\nsource: toolbox/x/toolbox.yaml\n- a\n");
    let plan = world.plan();
    let refusal = plan.spec_for(&record("mux", "doer", AgentKind::Persistent, Value::Null)).unwrap_err();
    assert_eq!(refusal.code, Code::Conflict);
    assert!(refusal.message.contains("toolbox/x/toolbox.yaml"));
    assert!(plan.spec_for(&record("chora", "analyst", AgentKind::Persistent, Value::Null)).is_ok());
}

fn overrides() -> impl Strategy<Value = Value> {
    let tool = prop::sample::select(vec!["bash", "workspace.*", "file_read", "syscall.skill.list", "group:fs", "zzz"]);
    (
        prop::option::of(prop::sample::select(vec!["small", "big", "huge", "scripted/huge", "other"])),
        prop::option::of(0u32..3_000),
        prop::option::of(0u32..30),
        prop::option::of(prop::collection::vec(tool, 0..4)),
    )
        .prop_map(|(model, tokens, rounds, tools)| {
            let mut map = serde_json::Map::new();
            model.map(|value| map.insert("model".into(), value.into()));
            tokens.map(|value| map.insert("max_tokens".into(), value.into()));
            rounds.map(|value| map.insert("turn_rounds_max".into(), value.into()));
            tools.map(|value| map.insert("tools".into(), value.into()));
            Value::Object(map)
        })
}

#[test]
fn accepted_overrides_never_widen() {
    let plan = World::new().plan();
    let wide = plan.spec_for(&created(Value::Null)).unwrap();
    proptest!(|(overrides in overrides())| {
        let checked = plan.check_create("doer", &overrides);
        let spec = plan.spec_for(&created(overrides));
        prop_assert!(checked.is_err() || spec.is_ok());
        if let Ok(spec) = spec {
            prop_assert!(spec.limits.answer_tokens <= wide.limits.answer_tokens);
            prop_assert!(spec.limits.turn_rounds_max <= wide.limits.turn_rounds_max);
            for entry in ghost_domain::tool_catalogue::CATALOGUE {
                prop_assert!(wide.access.can_access(entry.name) || !spec.access.can_access(entry.name));
            }
        }
    });
}
