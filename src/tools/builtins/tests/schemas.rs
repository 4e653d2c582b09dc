use std::collections::{BTreeMap, BTreeSet};

use ghost_config::access::{AccessDefault, ExtraTools, Groups, resolve};
use ghost_domain::{Code, tool_catalogue};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::rig::{Rig, code};
use crate::builtins::all;
use crate::tool::Tool;

const NAMES: [&str; 46] = [
    "channel.file_attach",
    "channel.handoff",
    "channel.send",
    "message",
    "syscall.agent.create",
    "syscall.agent.inspect",
    "syscall.agent.list",
    "syscall.agent.start",
    "syscall.agent.stop",
    "syscall.ask",
    "syscall.broadcast",
    "syscall.channel.handoff",
    "syscall.channel.send",
    "syscall.chat.create",
    "syscall.chat.history",
    "syscall.chat.invite",
    "syscall.chat.list",
    "syscall.chat.remove",
    "syscall.chat.send",
    "syscall.inbox.read",
    "syscall.knowledge.delete",
    "syscall.knowledge.list",
    "syscall.knowledge.read",
    "syscall.knowledge.write",
    "syscall.message.send",
    "syscall.reflect",
    "syscall.resource.usage",
    "syscall.session.status",
    "syscall.skill.acquire",
    "syscall.skill.activate",
    "syscall.skill.drop",
    "syscall.skill.list",
    "syscall.skill.load",
    "syscall.state.read",
    "syscall.state.write",
    "syscall.task.create",
    "syscall.task.get",
    "syscall.task.list",
    "syscall.task.update",
    "util.cron",
    "util.timer",
    "util.watch",
    "workspace.edit",
    "workspace.list",
    "workspace.read",
    "workspace.write",
];

fn properties(tool: &Tool) -> Map<String, Value> {
    tool.spec.parameters["properties"].as_object().unwrap().clone()
}

/// The least that the schema takes.
fn minimal(tool: &Tool) -> Map<String, Value> {
    let required = tool.spec.parameters["required"].as_array().cloned().unwrap_or_default();
    required
        .iter()
        .map(|name| {
            let name = name.as_str().unwrap();
            // Without a type anything goes.
            let any = properties(tool)[name].get("type").is_none();
            let kind = &properties(tool)[name]["type"];
            assert!(any || kind == "string" || kind == "array", "{}.{name}", tool.spec.name);
            let first = properties(tool)[name]["enum"][0].clone();
            let text = if first.is_null() { json!("x") } else { first };
            (name.to_owned(), if kind == "array" { json!([]) } else { text })
        })
        .collect()
}

#[test]
fn the_table_holds_exactly_these_tools() {
    let names: BTreeSet<String> = all().into_iter().map(|tool| tool.spec.name).collect();
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), NAMES);
    assert!(names.iter().all(|name| tool_catalogue::entry(name).is_some()));
}

#[test]
fn every_schema_is_plain_and_strict() {
    for tool in all() {
        let name = &tool.spec.name;
        assert!(!tool.spec.description.contains('\n') && tool.spec.description.len() > 20, "{name}");
        assert!(jsonschema::validator_for(&tool.spec.parameters).is_ok(), "{name}");
        let text = tool.spec.parameters.to_string();
        for costly in ["$ref", "$defs", "anyOf", "null", "\"format\"", "$schema"] {
            assert!(!text.contains(costly), "{name}: {text}");
        }
        let least = Value::Object(minimal(&tool));
        tool.validate(&least).unwrap();
        for (field, schema) in properties(&tool) {
            assert!(schema["description"].as_str().is_some_and(|words| words.len() > 5), "{name}.{field}");
            assert!(field != "id", "{name}: ids are named for what they identify");
            let wrong = match schema.get("type").map(|name| name.as_str().unwrap()) {
                None => continue,
                Some("string") => json!(7),
                Some(_) => json!("seven"),
            };
            let mut arguments = least.clone();
            arguments[&field] = wrong;
            let refusal = tool.validate(&arguments).unwrap_err();
            assert_eq!(refusal.code, Code::InvalidArguments);
            assert_eq!(refusal.details.as_ref().unwrap()["problems"][0]["field"], field.as_str(), "{name}");
        }
        let mut unknown = least.clone();
        unknown["actor"] = json!("someone else");
        assert_eq!(code(tool.validate(&unknown)), Code::InvalidArguments, "{name}");
        assert_eq!(code(tool.validate(&json!([]))), Code::InvalidArguments, "{name}");
        for field in minimal(&tool).keys() {
            let mut lacking = minimal(&tool);
            lacking.remove(field);
            assert_eq!(code(tool.validate(&Value::Object(lacking))), Code::InvalidArguments, "{name}.{field}");
        }
    }
}

#[tokio::test]
async fn unknown_fields_are_refused_behind_the_schema_too() {
    let rig = Rig::new().await;
    for tool in rig.tools.values() {
        let mut arguments = Value::Object(minimal(tool));
        arguments["actor"] = json!("bob");
        assert_eq!(code(rig.run(&rig.ada, tool, arguments).await), Code::InvalidArguments, "{}", tool.spec.name);
    }
}

#[test]
fn arguments_are_normalised() {
    let tools: BTreeMap<String, Tool> = all().into_iter().map(|tool| (tool.spec.name.clone(), tool)).collect();
    let read = &tools["workspace.read"];
    let given = json!({ "path": "a", "offset": null });
    assert_eq!(read.normalise(None, given.clone()), json!({ "path": "a" }));
    assert_eq!(read.normalise(Some("file_read"), given), json!({ "path": "a", "scope": "world" }));
    let own = json!({ "path": "a", "scope": "agent" });
    assert_eq!(read.normalise(Some("file_read"), own.clone()), own);
    assert!(read.validate(&read.normalise(None, json!({ "path": null }))).is_err());
    let send = &tools["syscall.message.send"];
    let sent = send.normalise(Some("send_to_agent"), json!({ "target_agent": "bob", "content": "hi" }));
    assert_eq!(sent, json!({ "to": "bob", "content": "hi" }));
    assert_eq!(tools["syscall.reflect"].normalise(None, Value::Null), json!({}));
}

#[tokio::test]
async fn a_registry_holds_what_was_granted_and_nothing_else() {
    let rig = Rig::new().await;
    let table = rig.table();
    let words = BTreeMap::from([("admin".to_owned(), vec!["syscall.agent.create".to_owned()])]);
    let groups = Groups::new(&words, AccessDefault::Public, false, ExtraTools::default());
    let access = resolve(&groups, None, &BTreeSet::new(), None, None);
    let registry = table.registry((*rig.ada.caller).clone(), &|name| access.can_access(name));
    assert_eq!(registry.specs().len(), NAMES.len() - 1);
    assert_eq!(code(registry.find("syscall.agent.create").map(|_| ())), Code::AccessDenied);
    assert_eq!(code(registry.find("workspace.raed").map(|_| ())), Code::UnknownTool);
    let (tool, alias) = registry.find("file_read").unwrap();
    assert_eq!((tool.spec.name.as_str(), alias.as_deref()), ("workspace.read", Some("file_read")));
    assert!(registry.find("workspace__read").unwrap().1.is_none());
}

fn leaf() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "",
        "ada",
        "bob",
        "nobody",
        "Bob",
        "../x",
        "/etc/passwd",
        "agents/ada/notes/a.md",
        "output/reports/r.md",
        ".",
        "a\0b",
        "writer",
        "git",
        "done",
        "world",
        "agent",
        "00000000-0000-0000-0000-000000000001",
        "*",
        "2026-11-30T18:00:00Z",
        "\u{202e}é\n",
    ]);
    prop_oneof![
        4 => words.prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => (0u32..40).prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => ".{0,40}".prop_map(Value::from),
        1 => prop::collection::vec("[a-z]{0,6}".prop_map(Value::from), 0..4).prop_map(Value::from),
        1 => Just(json!({ "tools": ["x"], "model": 1 })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_arguments_make_a_tool_panic(calls in prop::collection::vec(
        (0..NAMES.len(), prop::collection::vec(leaf(), 8), any::<u8>(), any::<bool>()), 1..12,
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new().await;
            for (at, leaves, mask, checked) in calls {
                let tool = &rig.tools[NAMES[at]];
                let given = properties(tool).into_iter().map(|(field, _)| field).zip(leaves).enumerate();
                let arguments: Map<String, Value> = given
                    .filter(|(n, (field, _))| mask & (1 << n) != 0 || minimal(tool).contains_key(field))
                    .map(|(_, pair)| pair)
                    .collect();
                let arguments = Value::Object(arguments);
                // Refusals are answers; a panic or a hang is not.
                let _ = if checked {
                    rig.call(NAMES[at], arguments).await
                } else {
                    rig.run(&rig.ada, tool, arguments).await
                };
            }
        });
    }
}
