use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ghost_config::Plan;
use ghost_config::access::{AccessDefault, Groups, resolve};
use ghost_config::extra_tools::ExtraTools;
use ghost_domain::{Code, Limits, Refusal, tool_catalogue};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::tool_world::{ToolWorld, code};
use crate::builtins::all;
use crate::registry::{Offering, Registry};
use crate::tool::Tool;

/// A bound that fits every tool.
fn offering() -> Offering {
    Offering { bytes: 1 << 20, receivers: Vec::new() }
}

const NAMES: [&str; 63] = [
    "channel.file_attach",
    "channel.handoff",
    "channel.send",
    "message",
    "syscall.agent.create",
    "syscall.agent.delete",
    "syscall.agent.inspect",
    "syscall.agent.list",
    "syscall.agent.start",
    "syscall.agent.stop",
    "syscall.artifact.promote",
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
    "syscall.droid.check",
    "syscall.droid.control",
    "syscall.droid.spawn",
    "syscall.inbox.read",
    "syscall.knowledge.delete",
    "syscall.knowledge.list",
    "syscall.knowledge.read",
    "syscall.knowledge.write",
    "syscall.message.send",
    "syscall.reflect",
    "syscall.resource.usage",
    "syscall.session.history",
    "syscall.session.list",
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
    "syscall.tool.call",
    "syscall.tool.describe",
    "tool.browser",
    "tool.cli",
    "tool.fetch",
    "tool.google_search",
    "tool.process",
    "tool.python",
    "tool.web_search",
    "util.cron",
    "util.timer",
    "util.watch",
    "workspace.edit",
    "workspace.list",
    "workspace.patch",
    "workspace.read",
    "workspace.write",
];

fn properties(tool: &Tool) -> Map<String, Value> {
    tool.schema["properties"].as_object().unwrap().clone()
}

/// The smallest arguments that the schema accepts.
fn minimal(tool: &Tool) -> Map<String, Value> {
    let required = tool.schema["required"].as_array().cloned().unwrap_or_default();
    required
        .iter()
        .map(|name| {
            let name = name.as_str().unwrap();
            // A parameter without a type accepts any value.
            let any = properties(tool)[name].get("type").is_none();
            let kind = &properties(tool)[name]["type"];
            assert!(any || kind == "string" || kind == "array", "{}.{name}", tool.spec.name);
            let first = properties(tool)[name]["enum"][0].clone();
            let text = if first.is_null() { json!("x") } else { first };
            (name.to_owned(), if kind == "array" { json!([]) } else { text })
        })
        .collect()
}

// covers: TOOL-01
#[test]
fn the_table_holds_exactly_these_tools() {
    let names: BTreeSet<String> = all().into_iter().map(|tool| tool.spec.name).collect();
    assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), NAMES);
    assert!(names.iter().all(|name| tool_catalogue::entry(name).is_some()));
}

// covers: CONF-07
#[test]
fn files_and_skills_are_shown_whole_where_other_results_are_cut() {
    let views: BTreeMap<String, Option<u32>> =
        all().into_iter().map(|tool| (tool.spec.name, tool.view_bytes)).collect();
    // What they return is bounded by itself: a page of a file, or the characters of a document.
    for wide in ["workspace.read", "syscall.skill.activate", "syscall.skill.load"] {
        assert!(views[wide].is_some_and(|bytes| bytes > Limits::default().file_bytes), "{wide}");
    }
    for plain in ["tool.cli", "tool.process", "tool.python"] {
        assert_eq!(views[plain], None, "{plain}");
    }
}

/// The model's schema has all parameters with their words, types and choices, and none of the bounds of number types.
#[test]
fn the_schema_of_the_model_leaves_out_what_only_costs_tokens() {
    let (mut sent, mut whole) = (0, 0);
    for tool in all() {
        let name = &tool.spec.name;
        let shown = tool.spec.parameters["properties"].as_object().unwrap();
        let own = properties(&tool);
        assert_eq!(shown.keys().collect::<Vec<_>>(), own.keys().collect::<Vec<_>>(), "{name}");
        for (field, schema) in shown {
            for key in ["type", "enum"] {
                assert_eq!(schema.get(key), own[field].get(key), "{name}.{field}");
            }
            let words = |schema: &Value| schema["description"].as_str().unwrap().to_owned();
            assert!(words(schema).starts_with(&words(&own[field])), "{name}.{field}");
        }
        let text = tool.spec.parameters.to_string();
        for costly in ["additionalProperties\":false", "4294967295", "9007199254740991", "\"minimum\":0"] {
            assert!(!text.contains(costly), "{name}: {text}");
        }
        sent += text.len();
        whole += tool.schema.to_string().len();
    }
    assert!(sent * 100 < whole * 82, "{sent} of {whole} bytes");
    let cron = all().into_iter().find(|tool| tool.spec.name == "util.cron").unwrap().spec.parameters;
    let words = |member: &Value| member["description"].as_str().unwrap().contains("`job.options`");
    assert!(words(&cron["properties"]["options"]) && words(&cron["properties"]["patch"]["properties"]["options"]));
    assert!(cron["properties"]["job"]["properties"]["options"]["properties"].is_object());
}

#[test]
fn every_schema_is_plain_and_strict() {
    for tool in all() {
        let name = &tool.spec.name;
        assert!(!tool.spec.description.contains('\n') && tool.spec.description.len() > 20, "{name}");
        assert!(jsonschema::validator_for(&tool.schema).is_ok(), "{name}");
        let text = tool.schema.to_string();
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
        assert_eq!(field_of(tool.validate(&unknown).unwrap_err()), "actor", "{name}");
        assert_eq!(code(tool.validate(&json!([]))), Code::InvalidArguments, "{name}");
        for field in minimal(&tool).keys() {
            let mut lacking = minimal(&tool);
            lacking.remove(field);
            assert_eq!(field_of(tool.validate(&Value::Object(lacking)).unwrap_err()), *field, "{name}");
        }
    }
}

// covers: TOOL-06
#[tokio::test]
async fn unknown_fields_are_refused_by_the_parser_too() {
    let world = ToolWorld::new().await;
    for tool in world.tools.values() {
        let mut arguments = Value::Object(minimal(tool));
        arguments["actor"] = json!("bob");
        assert_eq!(code(world.run(&world.ada, tool, arguments).await), Code::InvalidArguments, "{}", tool.spec.name);
    }
}

/// The field that a refusal of arguments names first.
fn field_of(refusal: Refusal) -> String {
    assert_eq!(refusal.code, Code::InvalidArguments);
    let field = refusal.details.as_ref().unwrap()["problems"][0]["field"].as_str().unwrap().to_owned();
    assert!(refusal.message.contains(&format!("{field}: ")), "{refusal}");
    field
}

// covers: TOOL-06
#[tokio::test]
async fn every_number_is_accepted_or_refused_with_its_field() {
    let world = ToolWorld::new().await;
    for tool in world.tools.values() {
        let name = &tool.spec.name;
        for (field, schema) in properties(tool) {
            if schema["type"] != "integer" {
                continue;
            }
            assert!(schema["minimum"].is_i64() && schema["maximum"].is_i64(), "{name}.{field}: {schema}");
            let with = |value: Value| {
                let mut arguments = Value::Object(minimal(tool));
                arguments[&field] = value;
                tool.normalise(None, arguments)
            };
            let whole = with(json!(2.0));
            assert_eq!(whole[&field].to_string(), "2", "{name}.{field}");
            for wrong in [json!(2.5), json!(1e30), json!(-1e30), json!(u64::MAX), json!("2"), json!(true)] {
                let refusal = tool.validate(&with(wrong.clone())).unwrap_err();
                assert_eq!(field_of(refusal), field, "{name} {wrong}");
            }
            // A number that passes the schema also fits the Rust type.
            for fits in [&schema["minimum"], &schema["maximum"]] {
                let arguments = with(fits.clone());
                tool.validate(&arguments).unwrap();
                if let Err(refusal) = world.run(&world.ada, tool, arguments).await {
                    assert!(!refusal.message.contains(", expected "), "{name}.{field}: {refusal}");
                }
            }
        }
    }
    let list = &world.tools["workspace.list"];
    assert!(list.validate(&list.normalise(None, json!({ "depth": 2.0 }))).is_ok());
    let refusal = list.validate(&json!({ "limit": 5_000_000_000_u64 })).unwrap_err();
    assert!(
        refusal.message.starts_with("workspace.list: limit: ") && refusal.message.contains("4294967295"),
        "{refusal}"
    );
    let refusal = list.validate(&json!({ "pth": "a" })).unwrap_err();
    assert!(refusal.message.starts_with("workspace.list: pth: ") && refusal.message.contains("`path`"), "{refusal}");
}

// covers: TOOL-06
#[tokio::test]
async fn refusals_of_the_parser_name_the_field_too() {
    let world = ToolWorld::new().await;
    let run =
        async |arguments: Value| world.run(&world.ada, &world.tools["workspace.list"], arguments).await.unwrap_err();
    assert_eq!(field_of(run(json!({ "depth": "deep" })).await), "depth");
    assert_eq!(field_of(run(json!({ "actor": "bob" })).await), "actor");
    let read = world.run(&world.ada, &world.tools["workspace.read"], json!({})).await.unwrap_err();
    assert_eq!(field_of(read), "path");
    let get = world.run(&world.ada, &world.tools["syscall.task.get"], json!({ "task_id": "first" })).await.unwrap_err();
    assert!(get.message.starts_with("task_id: `first` is not a task id"), "{get}");
    assert_eq!(field_of(get), "task_id");
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

// covers: ACC-11, CONF-10, TOOL-01, TOOL-22
#[tokio::test]
async fn a_registry_contains_only_granted_tools() {
    let world = ToolWorld::new().await;
    let table = world.table();
    let words = BTreeMap::from([("admin".to_owned(), vec!["syscall.agent.create".to_owned()])]);
    let groups = Groups::new(&words, AccessDefault::Public, false, ExtraTools::default());
    let access = resolve(&groups, None, &BTreeSet::new(), None, None);
    let registry = table.registry((*world.ada.caller).clone(), offering(), &|tool| access.can_access(&tool.spec.name));
    assert_eq!(registry.specs().len(), NAMES.len() - 4, "deleting goes with creating, and nothing is deferred");
    assert_eq!(code(registry.find("syscall.agent.create").map(|_| ())), Code::AccessDenied);
    assert_eq!(code(registry.find("workspace.raed").map(|_| ())), Code::UnknownTool);
    let hint = |registry: &Registry| registry.find("syscall.agent.create").map(|_| ()).unwrap_err().hint.unwrap();
    assert!(!hint(&registry).contains("admin"));
    let plan = Arc::new(Plan { groups, ..(*world.services.plan()).clone() });
    let registry = registry.of_plan(Arc::clone(&plan));
    assert!(hint(&registry).contains("admin"), "{}", hint(&registry));
    let mut member = (*world.ada.caller).clone();
    member.groups.insert("admin".to_owned());
    let narrowed = table.registry(member, offering(), &|_| false).of_plan(plan);
    assert!(hint(&narrowed).contains("admin") && hint(&narrowed) != hint(&registry), "{}", hint(&narrowed));
    let (tool, alias) = registry.find("file_read").unwrap();
    assert_eq!((tool.spec.name.as_str(), alias.as_deref()), ("workspace.read", Some("file_read")));
    assert!(registry.find("workspace__read").unwrap().1.is_none());
}

// covers: TOOL-22
#[tokio::test]
async fn unusual_names_are_resolved_if_only_one_tool_matches() {
    let world = ToolWorld::new().await;
    let registry = world
        .table()
        .registry((*world.ada.caller).clone(), offering(), &|tool| tool.spec.name != "syscall.agent.create");
    for (written, meant) in [
        ("syscall_ask", "syscall.ask"),
        ("functions.syscall__ask", "syscall.ask"),
        ("Syscall.Ask", "syscall.ask"),
        ("default_api.syscall_ask", "syscall.ask"),
        ("workspace-read", "workspace.read"),
        ("workspace/read", "workspace.read"),
        ("syscall_message_send", "syscall.message.send"),
    ] {
        let (tool, alias) = registry.find(written).unwrap();
        assert_eq!((tool.spec.name.as_str(), alias), (meant, None), "{written}");
        assert_eq!(registry.known(written), Some(meant), "records have the tool's own name");
    }
    assert_eq!(code(registry.find("functions.syscall_agent_create").map(|_| ())), Code::AccessDenied);
    for nobodys in ["ask_syscall", "syscall", "functions.", "", "x.syscall_ask"] {
        assert_eq!(code(registry.find(nobodys).map(|_| ())), Code::UnknownTool, "{nobodys}");
    }
}

#[tokio::test]
async fn lists_that_no_registry_uses_are_dropped() {
    let world = ToolWorld::new().await;
    let table = world.table();
    let registry =
        |without: &str| table.registry((*world.ada.caller).clone(), offering(), &|tool| tool.spec.name != without);
    let (kept, same) = (registry("channel.send"), registry("channel.send"));
    assert!(std::sync::Arc::ptr_eq(&kept.specs(), &same.specs()), "one list for the same access");
    for name in NAMES {
        registry(name);
    }
    assert_eq!(table.lists_kept(), 2, "the one that is in use and the last one");
    assert!(std::sync::Arc::ptr_eq(&kept.specs(), &registry("channel.send").specs()));
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
    fn no_arguments_cause_a_panic(calls in prop::collection::vec(
        (0..NAMES.len(), prop::collection::vec(leaf(), 8), any::<u8>(), any::<bool>()), 1..12,
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let world = ToolWorld::new().await;
            for (at, leaves, mask, checked) in calls {
                let tool = &world.tools[NAMES[at]];
                let given = properties(tool).into_iter().map(|(field, _)| field).zip(leaves).enumerate();
                let arguments: Map<String, Value> = given
                    .filter(|(n, (field, _))| mask & (1 << n) != 0 || minimal(tool).contains_key(field))
                    .map(|(_, pair)| pair)
                    .collect();
                let arguments = Value::Object(arguments);
                // A refusal is fine; a panic or a hang is not.
                let _ = if checked {
                    world.call(NAMES[at], arguments).await
                } else {
                    world.run(&world.ada, tool, arguments).await
                };
            }
        });
    }
}

// covers: CONF-28
#[tokio::test]
async fn receivers_are_named_and_others_are_still_allowed() {
    let world = ToolWorld::new().await;
    let table = world.table();
    let offering = Offering { receivers: vec!["ada".into(), "bob".into()], ..offering() };
    let registry = table.registry((*world.ada.caller).clone(), offering, &|_| true);
    for (tool, parameter) in
        [("syscall.ask", "agent_id"), ("syscall.message.send", "to"), ("syscall.task.create", "owner")]
    {
        let spec = registry.specs().iter().find(|spec| spec.name == tool).cloned().unwrap();
        let schema = &spec.parameters["properties"][parameter];
        assert!(schema["description"].as_str().unwrap().contains("ada, bob"), "{tool}: {schema}");
        assert!(schema.get("enum").is_none(), "{tool}: agents that are created later are receivers, too");
    }
}

// covers: TOOL-05, BI-90, BI-91
#[tokio::test]
async fn an_absent_tool_has_a_reason() {
    let world = ToolWorld::new().await;
    let registry =
        world.table().registry((*world.ada.caller).clone(), offering(), &|tool| tool.spec.name != "syscall.ask");
    let absent: BTreeMap<String, String> = registry.absent().into_iter().collect();
    for name in ["canvas", "image", "nodes", "tts", "syscall.control", "syscall.ask"] {
        assert!(absent.get(name).is_some_and(|why| !why.is_empty()), "{name}: {absent:?}");
    }
    assert!(!absent.contains_key("workspace.read"));
    for alias in ["gateway", "tts"] {
        assert_eq!(code(registry.find(alias).map(|_| ())), Code::Unsupported, "{alias}");
    }
}
