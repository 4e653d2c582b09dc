//! The tools of a world as they are now: the built-in ones, and those of sources that come, go and change while agents live;
//! and the registry: the tools of one agent, bound to that agent. A source is a toolbox, an MCP server, or the toolbox of a
//! skill. Agents with the same access share one list of tools, so a registry is cheap.
//!
//! A change must never touch the tools of another source. A registry that was built keeps the tools that it has: a turn
//! decides between two model calls when it takes the next ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use ghost_config::Plan;
use ghost_config::plan::is_of_channel;
use ghost_domain::text::{nearest, shown};
use ghost_domain::tool_catalogue::{CATALOGUE, canonical, entry, from_wire};
use ghost_domain::{SeenTools, ToolChanges, ToolSpec, refusal};
use ghost_operations::Result;
use serde_json::Value;
use tokio::sync::watch;

use crate::context::Caller;
use crate::loop_guard::Nature;
use crate::offer::{self, Offer, naming, plain, without_prefix};
use crate::tool::Tool;

/// Why this version has no tool of this name.
fn without_tool(name: &str) -> &'static str {
    match name {
        "image" | "tts" | "canvas" | "nodes" => "it needs an adapter for a device or a provider, and there is none",
        "syscall.control" => "only operators reload, pause and resume a world",
        _ => "this version does not have it yet",
    }
}

/// The tools of a source, shared by all versions of the table that have them.
pub(crate) struct Source {
    pub(crate) tools: Vec<Arc<Tool>>,
    pub(crate) absent: Vec<(String, String)>,
}

/// Every tool, by canonical name.
pub struct ToolTable {
    tools: BTreeMap<String, Arc<Tool>>,
    /// Why tools of the catalogue are not in the table, by canonical name.
    absent: BTreeMap<String, String>,
    /// Whether tools come and go, so that requests always describe the tools that reach others.
    is_live: bool,
    /// Tool lists by their keys. Lists that no registry uses are dropped: overrides can
    /// select many different sets, and a list takes more than a hundred kilobytes.
    granted: Mutex<BTreeMap<ListKey, Weak<Granted>>>,
}

/// The names in a tool list, and what its offer depends on; at last, whether tools come and go.
type ListKey = (Vec<String>, Offering, bool);

/// What an offer depends on besides the tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offering {
    /// A request carries at most so many bytes of tools; see [`Offer`].
    pub bytes: usize,
    /// Agents that the descriptions of receivers name.
    pub receivers: Vec<String>,
}

/// The tools and specs for one set of granted names.
struct Granted {
    tools: Vec<Arc<Tool>>,
    specs: Arc<[ToolSpec]>,
    offer: Offer,
    receivers: Vec<String>,
}

impl ToolTable {
    /// Builds the table. Two tools of the same name are refused.
    pub fn new(tools: Vec<Tool>) -> Result<Self> {
        let mut table = BTreeMap::new();
        for tool in tools {
            let name = tool.spec.name.clone();
            if table.insert(name.clone(), Arc::new(tool)).is_some() {
                return Err(refusal!(Conflict, "two tools are named {name}"));
            }
        }
        let absent = CATALOGUE.iter().filter(|entry| !table.contains_key(entry.name));
        let absent = absent.map(|entry| (entry.name.to_owned(), without_tool(entry.name).to_owned())).collect();
        Ok(Self { tools: table, absent, is_live: false, granted: Mutex::default() })
    }

    /// A table with the tools of these sources, too. Lists of `before` whose tools are still the same ones are kept, so
    /// that a change costs only the agents that it concerns.
    pub(crate) fn with(&self, sources: &BTreeMap<String, Arc<Source>>, before: Option<&Self>) -> Self {
        let (mut tools, mut absent) = (self.tools.clone(), self.absent.clone());
        for source in sources.values() {
            absent.extend(source.absent.iter().cloned());
            for tool in &source.tools {
                let name = &tool.spec.name;
                if tools.contains_key(name) || absent.contains_key(name) {
                    absent.entry(name.clone()).or_insert_with(|| "another tool has this name".to_owned());
                } else {
                    tools.insert(name.clone(), Arc::clone(tool));
                }
            }
        }
        let is_same = |tool: &Arc<Tool>| tools.get(&tool.spec.name).is_some_and(|now| Arc::ptr_eq(now, tool));
        let lists = before.map(|before| {
            let lists = before.granted.lock().unwrap_or_else(PoisonError::into_inner);
            let is_valid = |list: &&Weak<Granted>| list.upgrade().is_some_and(|list| list.tools.iter().all(is_same));
            lists
                .iter()
                .filter(|(_, list)| is_valid(list))
                .map(|(key, list)| (key.clone(), Weak::clone(list)))
                .collect()
        });
        Self { tools, absent, is_live: !sources.is_empty(), granted: Mutex::new(lists.unwrap_or_default()) }
    }

    /// Takes tools out of the table because this world cannot have them, with the reason.
    #[must_use]
    pub fn without(mut self, names: &[&'static str], why: &str) -> Self {
        for name in names {
            self.tools.remove(*name);
            self.absent.insert((*name).to_owned(), why.to_owned());
        }
        self
    }

    /// Adds sentences about this world to the descriptions of tools. Must be called before the first
    /// registry is built; a name that the table does not have is ignored.
    #[must_use]
    pub fn telling(mut self, facts: Vec<(&'static str, String)>) -> Self {
        for (name, fact) in facts {
            if let Some(tool) = self.tools.get_mut(name).and_then(Arc::get_mut) {
                tool.spec.description = ghost_domain::text::one_line(&format!("{} {fact}", tool.spec.description));
            }
        }
        self
    }

    /// The description of a tool.
    #[cfg(test)]
    pub(crate) fn description(&self, name: &str) -> Option<&str> {
        self.tools.get(name).map(|tool| tool.spec.description.as_str())
    }

    /// The number of lists in the cache.
    #[cfg(test)]
    pub(crate) fn lists_kept(&self) -> usize {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Why a tool cannot be had here, by full name.
    pub fn absent_reason(&self, name: &str) -> Option<&str> {
        self.absent.get(name).map(String::as_str)
    }

    /// The names of all tools, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Builds the registry of an agent: the tools for which `granted` returns true.
    pub fn registry(self: &Arc<Self>, caller: Caller, offering: Offering, granted: &dyn Fn(&Tool) -> bool) -> Registry {
        let names: Vec<String> =
            self.tools.values().filter(|tool| granted(tool)).map(|tool| tool.spec.name.clone()).collect();
        let mut cache = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (names, offering, self.is_live);
        let granted = match cache.get(&key).and_then(Weak::upgrade) {
            Some(granted) => granted,
            None => {
                let tools: Vec<Arc<Tool>> = key.0.iter().filter_map(|name| self.tools.get(name)).cloned().collect();
                let offer = Offer::of(&tools, key.1.bytes, key.2).naming(&key.1.receivers);
                let specs = match offer.deferred.is_empty() {
                    true => Arc::clone(&offer.sent),
                    false => tools.iter().map(|tool| naming(&tool.spec, &key.1.receivers)).collect(),
                };
                let granted = Arc::new(Granted { tools, specs, offer, receivers: key.1.receivers.clone() });
                cache.retain(|_, list| list.strong_count() > 0);
                cache.insert(key, Arc::downgrade(&granted));
                granted
            }
        };
        Registry { table: Arc::clone(self), caller: Arc::new(caller), granted, kept: None, plan: None }
    }
}

/// The tools of one agent.
#[derive(Clone)]
pub struct Registry {
    table: Arc<ToolTable>,
    caller: Arc<Caller>,
    granted: Arc<Granted>,
    /// What requests describe, if the turn has seen its tools already.
    kept: Option<Arc<Offer>>,
    plan: Option<Arc<Plan>>,
}

impl Registry {
    /// The same registry, with a plan. Refusals can then name the plan's privilege groups.
    #[must_use]
    pub fn of_plan(self, plan: Arc<Plan>) -> Self {
        Self { plan: Some(plan), ..self }
    }

    /// The same registry, for a turn whose model has seen these tools: requests describe what they described before, as
    /// far as it is still there; all others are deferred.
    #[must_use]
    pub fn keeping(self, seen: &SeenTools) -> Self {
        let named = |tool: &&Arc<Tool>| seen.sent.contains_key(&tool.spec.name);
        let specs = |sent: bool| {
            let tools = self.granted.tools.iter().filter(|tool| named(tool) == sent);
            let tools = tools.filter(|tool| sent || !offer::is_means(&tool.spec.name));
            tools.map(|tool| naming(&tool.spec, &self.granted.receivers)).collect::<Arc<[ToolSpec]>>()
        };
        let kept = Arc::new(Offer { sent: specs(true), deferred: specs(false) });
        Self { kept: Some(kept), ..self }
    }

    /// The tools as the model of a new turn sees them.
    pub fn seen(&self) -> SeenTools {
        offer::seen(&self.granted.tools, self.offer())
    }

    /// What has changed since a model saw its tools.
    pub fn changes_since(&self, seen: &SeenTools) -> ToolChanges {
        offer::changes(seen, &self.granted.tools)
    }

    /// The note for the model about these changes.
    pub fn note(&self, changes: &ToolChanges) -> String {
        offer::note(changes, &self.granted.tools)
    }

    /// The table that the registry was built from.
    pub fn table(&self) -> &Arc<ToolTable> {
        &self.table
    }

    /// Whether tools come and go while the registry lives.
    pub fn is_live(&self) -> bool {
        self.table.is_live
    }

    /// The agent of the registry.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Names, descriptions and schemas of all tools that the agent may use, sorted by name.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.granted.specs)
    }

    /// The tools as prompts have them. The briefing and the request share the value.
    pub fn offer(&self) -> &Offer {
        self.kept.as_deref().unwrap_or(&self.granted.offer)
    }

    /// Whether a request leaves out the tool with this canonical name.
    pub fn is_deferred(&self, tool: &str) -> bool {
        self.offer().deferred.iter().any(|spec| spec.name == tool)
    }

    /// Finds the tool of a call, and the alias if one was used. An existing tool that is not
    /// granted is denied; a name that does not exist is unknown. Neither runs.
    pub fn find(&self, name: &str) -> Result<(Arc<Tool>, Option<String>)> {
        let dotted = from_wire(name);
        let resolved = self.resolved(&dotted);
        let found = self.granted.tools.binary_search_by(|tool| tool.spec.name.as_str().cmp(resolved));
        if let Ok(at) = found {
            let is_short = self.short(&dotted).is_some();
            let alias = (is_short || canonical(&dotted).is_some_and(|name| name != dotted)).then(|| dotted.clone());
            return Ok((Arc::clone(&self.granted.tools[at]), alias));
        }
        if self.table.tools.contains_key(resolved) {
            if self.caller.channel.is_none() && is_of_channel(resolved) {
                return Err(refusal!(
                    Unsupported,
                    "{resolved} exists only in a turn that comes from a conversation outside"
                )
                .hint("send a message instead, or wait for a turn that comes from a conversation"));
            }
            return Err(refusal!(AccessDenied, "{} may not use {resolved}", self.caller.agent_id)
                .hint(self.why_denied(resolved)));
        }
        if let Some(why) = self.table.absent.get(resolved) {
            return Err(
                refusal!(Unsupported, "{resolved} is not available: {why}").hint("use one of the tools you were given")
            );
        }
        let near = nearest(&dotted, self.granted.tools.iter().map(|tool| tool.spec.name.as_str()));
        let refusal = refusal!(UnknownTool, "there is no tool `{}`", shown(&dotted, 80));
        Err(match near {
            Some(near) => refusal.hint(format!("did you mean `{near}`?")),
            None => refusal.hint("use one of the tools you were given"),
        })
    }

    /// The tools of the catalogue that the agent does not have, by name, each with the reason.
    pub fn absent(&self) -> Vec<(String, String)> {
        let has = |name: &str| self.granted.tools.binary_search_by(|tool| tool.spec.name.as_str().cmp(name)).is_ok();
        let denied = self.table.tools.keys().filter(|name| !has(name)).map(|name| {
            let why = match self.find(name) {
                Err(refusal) => refusal.in_words(),
                Ok(_) => String::new(),
            };
            (name.clone(), why)
        });
        let absent = self.table.absent.iter().map(|(name, why)| (name.clone(), why.clone()));
        let mut all: Vec<(String, String)> = denied.chain(absent).collect();
        all.sort();
        all
    }

    /// The canonical name of the tool of a call, granted or not; `None` if there is no such tool.
    pub fn known(&self, name: &str) -> Option<&str> {
        let dotted = from_wire(name);
        let resolved = self.resolved(&dotted);
        self.table.tools.get_key_value(resolved).map(|(name, _)| name.as_str())
    }

    /// The properties of a call for the loop guard. The default for a call that may not run.
    pub fn nature(&self, name: &str, arguments: &Value) -> Nature {
        let Ok((tool, alias)) = self.find(name) else { return Nature::default() };
        tool.nature(&tool.normalise(alias.as_deref(), arguments.clone()))
    }

    /// The canonical name for `dotted`: the name itself, the target of an alias, or the only name
    /// that differs just in separators, case or a prefix that models add.
    fn resolved<'n>(&'n self, dotted: &'n str) -> &'n str {
        if let Some(name) = canonical(dotted) {
            return name;
        }
        if self.table.tools.contains_key(dotted) {
            return dotted;
        }
        let plain = plain(dotted);
        let without_prefix = without_prefix(&plain);
        let only_match = |wanted: &str| {
            let mut found = self.table.tools.keys().filter(|name| offer::plain(name) == wanted);
            found.next().filter(|_| found.next().is_none())
        };
        let spelt = only_match(&plain).or_else(|| without_prefix.and_then(only_match)).map(String::as_str);
        spelt.or_else(|| self.short(dotted)).unwrap_or(dotted)
    }

    /// The only tool of a toolbox with this short name.
    fn short<'n>(&'n self, dotted: &str) -> Option<&'n str> {
        if canonical(dotted).is_some() || self.table.tools.contains_key(dotted) {
            return None;
        }
        let is_meant = |tool: &&Arc<Tool>| {
            let short = tool.origin.toolbox().and_then(|toolbox| tool.spec.name.strip_prefix(toolbox.name.as_str()));
            short.and_then(|short| short.strip_prefix('.')).is_some_and(|short| short == dotted)
        };
        let mut found = self.table.tools.values().filter(is_meant);
        found.next().filter(|_| found.next().is_none()).map(|tool| tool.spec.name.as_str())
    }

    /// The hint for a tool that exists but is not granted.
    fn why_denied(&self, tool: &str) -> String {
        let instead = "use one of the tools you were given, or ask an agent that has this one";
        let groups = self.plan.as_ref().map(|plan| plan.groups.groups_of(tool)).unwrap_or_default();
        let toolbox = self.table.tools.get(tool).and_then(|tool| tool.origin.toolbox());
        let skill = toolbox.and_then(|toolbox| toolbox.skill.as_ref());
        if let Some(skill) = skill.filter(|_| groups.is_empty()) {
            format!("it comes with the skill `{skill}`; syscall.skill.acquire takes it")
        } else if let Some(toolbox) = toolbox.filter(|_| groups.is_empty()) {
            format!(
                "neither `## Toolbox` of your archetype nor a group names a tool of `{}` for you; {instead}",
                toolbox.name
            )
        } else if groups.is_empty() && entry(tool).is_some_and(|entry| entry.dangerous) {
            format!(
                "it is dangerous, and `## Tool Access` of your archetype or a group must name it for you; {instead}"
            )
        } else if groups.is_empty() {
            instead.to_owned()
        } else if groups.iter().any(|group| self.caller.groups.contains(*group)) {
            format!("you are in its group {}, but your access excludes it; {instead}", groups.join(", "))
        } else {
            format!("it needs the privilege group {}; {instead}", groups.join(" or "))
        }
    }
}

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
    pub fn new(base: ToolTable) -> Self {
        let current = RwLock::new(Arc::new(base.with(&BTreeMap::new(), None)));
        Self { base, sources: Mutex::default(), current, version: watch::Sender::new(0) }
    }

    /// The present tools.
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
#[path = "live_tests.rs"]
mod tests;
