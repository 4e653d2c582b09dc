//! Sources of tools that come, go and change.

use serde_json::json;

use super::*;
use crate::builtins;
use crate::context::Caller;
use crate::registry::Offering;

fn caller() -> Caller {
    Caller {
        agent_id: "ada".parse().unwrap(),
        write_acl: ghost_domain::write_acl::WriteAcl::new(&[]).unwrap(),
        manages_tasks: false,
        updates_own_tasks: false,
        archetype: "a".into(),
        groups: Default::default(),
        skills: None,
        context_bytes: 1_000,
        channel: None,
    }
}

fn tool(name: &str, description: &str) -> Tool {
    Tool::with_schema(name, description, json!({ "type": "object", "properties": {} }), builtins::all().remove(0).run)
}

fn one(name: &str) -> SourceTools {
    SourceTools { tools: vec![tool(name, "d")], absent: Vec::new() }
}

// covers: TOOL-03
#[test]
fn a_source_comes_changes_and_goes_without_the_others() {
    let live = LiveTools::new(ToolTable::new(builtins::all()).unwrap());
    let mut changes = live.watch();
    let has = |name: &str| live.current().names().any(|known| known == name);
    let before = live.current();
    live.set("notes", one("notes.add"));
    live.set("memo", one("memo.get"));
    assert!(has("notes.add") && has("memo.get") && !before.names().any(|name| name == "notes.add"));
    assert!(changes.has_changed().unwrap() && *changes.borrow_and_update() == 2);
    live.set("notes", SourceTools { tools: Vec::new(), absent: vec![("notes.add".into(), "gone".into())] });
    assert!(!has("notes.add") && has("memo.get"));
    let registry = live.current().registry(caller(), Offering::default(), &|_| true);
    assert!(registry.absent().contains(&("notes.add".to_owned(), "gone".to_owned())));
    live.retain(|name| name == "notes");
    assert!(!has("memo.get"));
    // A name of Ghost's own stays Ghost's.
    live.set("evil", one("workspace.read"));
    let registry = live.current().registry(caller(), Offering::default(), &|_| true);
    assert_ne!(registry.find("workspace.read").unwrap().0.spec.description, "d");
}

#[test]
fn a_tool_that_joins_leaves_the_lists_of_others_as_they_are() {
    let live = LiveTools::new(ToolTable::new(builtins::all()).unwrap());
    live.set("notes", one("notes.add"));
    let registry = |granted: &dyn Fn(&str) -> bool| {
        live.current()
            .registry(caller(), Offering { bytes: 100_000, ..Offering::default() }, &|tool| granted(&tool.spec.name))
    };
    let without = registry(&|name| name != "notes.add" && name != "memo.get");
    live.set("memo", one("memo.get"));
    let again = registry(&|name| name != "notes.add" && name != "memo.get");
    assert!(Arc::ptr_eq(&without.specs(), &again.specs()), "the list is the same one");
    // A definition that changed under the same name is another tool.
    let with = registry(&|_| true);
    live.set("memo", SourceTools { tools: vec![tool("memo.get", "other")], absent: Vec::new() });
    assert!(!Arc::ptr_eq(&with.specs(), &registry(&|_| true).specs()));
}
