//! The tools of a world as they are now: the built-in ones, and those of sources that come, go and change while agents
//! live. A source is a toolbox, an MCP server, or the toolbox of a skill.
//!
//! A change must never touch the tools of another source. A registry that was built keeps the tools that it has: a turn
//! decides between two model calls when it takes the next ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::watch;

use crate::registry::{Source, ToolTable};
use crate::tool::Tool;

/// The tools of one source.
#[derive(Default)]
pub struct SourceTools {
    /// The tools.
    pub tools: Vec<Tool>,
    /// Full names of tools that cannot be had, with the reason.
    pub absent: Vec<(String, String)>,
}

/// The tools of a world, as they are now.
pub struct LiveTools {
    base: ToolTable,
    sources: Mutex<BTreeMap<String, Arc<Source>>>,
    current: RwLock<Arc<ToolTable>>,
    version: watch::Sender<u64>,
}

impl LiveTools {
    /// The built-in tools of `base`, without any source.
    #[must_use]
    pub fn new(base: ToolTable) -> Self {
        let current = RwLock::new(Arc::new(base.with(&BTreeMap::new(), None)));
        Self { base, sources: Mutex::default(), current, version: watch::Sender::new(0) }
    }

    /// The present tools.
    #[must_use]
    pub fn current(&self) -> Arc<ToolTable> {
        // The lock is held only to copy a pointer, so the value is valid even if the lock is poisoned.
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the tools of a source, which replaces those that it had.
    pub fn set(&self, source: &str, tools: SourceTools) {
        let SourceTools { tools, absent } = tools;
        let source_tools = Source { tools: tools.into_iter().map(Arc::new).collect(), absent };
        self.change(|sources| {
            sources.insert(source.to_owned(), Arc::new(source_tools));
        });
    }

    /// Takes tools of a source away, by full name, with the reasons. Returns those that were there.
    pub fn withdraw(&self, source: &str, gone: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut taken = BTreeMap::new();
        let has = |sources: &BTreeMap<String, Arc<Source>>| {
            sources.get(source).is_some_and(|source| source.tools.iter().any(|tool| gone.contains_key(&tool.spec.name)))
        };
        if !has(&self.sources.lock().unwrap_or_else(PoisonError::into_inner)) {
            return taken;
        }
        self.change(|sources| {
            let Some(before) = sources.get(source) else { return };
            let (mut tools, mut absent) = (Vec::new(), before.absent.clone());
            for tool in &before.tools {
                match gone.get(&tool.spec.name) {
                    None => tools.push(Arc::clone(tool)),
                    Some(why) => {
                        absent.push((tool.spec.name.clone(), why.clone()));
                        taken.insert(tool.spec.name.clone(), why.clone());
                    }
                }
            }
            sources.insert(source.to_owned(), Arc::new(Source { tools, absent }));
        });
        taken
    }

    /// Removes the sources for which `keep` returns false, with all their tools.
    pub fn retain(&self, keep: impl Fn(&str) -> bool) {
        self.change(|sources| sources.retain(|name, _| keep(name)));
    }

    /// Notifies of each change, with the number of changes so far.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<Source>>)) {
        // Held until the new table is current, so that the last change wins.
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut sources);
        let table = Arc::new(self.base.with(&sources, Some(&self.current())));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = table;
        self.version.send_modify(|version| *version += 1);
    }
}

#[cfg(test)]
mod tests {
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
        Tool::with_schema(
            name,
            description,
            json!({ "type": "object", "properties": {} }),
            builtins::all().remove(0).run,
        )
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
            live.current().registry(caller(), Offering { bytes: 100_000, ..Offering::default() }, &|tool| {
                granted(&tool.spec.name)
            })
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
}
