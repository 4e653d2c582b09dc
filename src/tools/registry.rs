//! The registry of one agent: exactly the tools that it was granted, under the identity that it was built for. Agents
//! with the same access share one list of tools, so that a registry costs an agent next to nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ghost_config::Plan;
use ghost_config::plan::is_of_channel;
use ghost_domain::text::{nearest, shown};
use ghost_domain::tool_catalogue::{canonical, from_wire};
use ghost_domain::transcript::ToolSpec;
use ghost_domain::{Code, Refusal};
use serde_json::Value;

use crate::context::Caller;
use crate::loop_guard::Nature;
use crate::tool::Tool;

/// Every tool that the code has, by canonical name.
pub struct ToolTable {
    tools: BTreeMap<String, Arc<Tool>>,
    /// Lists by the names that are in them. Those that no registry uses any more are dropped: agents choose sets by
    /// overrides, and a list is more than a hundred kilobytes.
    granted: Mutex<BTreeMap<Vec<String>, Weak<Granted>>>,
}

/// Lists that were built for one set of granted names.
struct Granted {
    tools: Vec<Arc<Tool>>,
    specs: Arc<[ToolSpec]>,
}

impl ToolTable {
    /// A table of these tools. Two of the same name are a defect of the build and refused.
    pub fn new(tools: Vec<Tool>) -> Result<Self, Refusal> {
        let mut table = BTreeMap::new();
        for tool in tools {
            let name = tool.spec.name.clone();
            if table.insert(name.clone(), Arc::new(tool)).is_some() {
                return Err(Refusal::new(Code::Conflict, format!("two tools are named {name}")));
            }
        }
        Ok(Self { tools: table, granted: Mutex::new(BTreeMap::new()) })
    }

    /// How many lists are held.
    #[cfg(test)]
    pub(crate) fn lists_kept(&self) -> usize {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Every name, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    /// Builds the registry of an agent: the tools of the table that are granted (TOOL-02).
    #[must_use]
    pub fn registry(self: &Arc<Self>, caller: Caller, granted: &dyn Fn(&str) -> bool) -> Registry {
        let names: Vec<String> = self.tools.keys().filter(|name| granted(name)).cloned().collect();
        let mut cache = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let granted = match cache.get(&names).and_then(Weak::upgrade) {
            Some(granted) => granted,
            None => {
                let tools: Vec<Arc<Tool>> = names.iter().filter_map(|name| self.tools.get(name)).cloned().collect();
                let specs = tools.iter().map(|tool| tool.spec.clone()).collect();
                let granted = Arc::new(Granted { tools, specs });
                cache.retain(|_, list| list.strong_count() > 0);
                cache.insert(names, Arc::downgrade(&granted));
                granted
            }
        };
        Registry { table: Arc::clone(self), caller: Arc::new(caller), granted, plan: None }
    }
}

/// Words that models put in front of a tool's name.
const PREFIXES: [&str; 5] = ["api.", "default.api.", "function.", "functions.", "tools."];

/// A name in lower case, with a dot for every sign that models write in its place.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase()
        .split(['.', '_', '-', '/', ':'])
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(".")
}

/// One agent's tools.
#[derive(Clone)]
pub struct Registry {
    table: Arc<ToolTable>,
    caller: Arc<Caller>,
    granted: Arc<Granted>,
    plan: Option<Arc<Plan>>,
}

impl Registry {
    /// The same, whose refusals name the privilege groups of this plan.
    #[must_use]
    pub fn of_plan(self, plan: Arc<Plan>) -> Self {
        Self { plan: Some(plan), ..self }
    }

    /// Who it was built for.
    #[must_use]
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// Names, descriptions and schemas, sorted by name: one value for the briefing and the request (ARCH-11).
    #[must_use]
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.granted.specs)
    }

    /// The tool that a call means, and the alias it was called by. A name that exists but was not granted is denied; one
    /// that does not exist is unknown. Neither runs (ACC-11).
    pub fn find(&self, name: &str) -> Result<(Arc<Tool>, Option<String>), Refusal> {
        let dotted = from_wire(name);
        let resolved = self.resolved(&dotted);
        let found = self.granted.tools.binary_search_by(|tool| tool.spec.name.as_str().cmp(resolved));
        if let Ok(at) = found {
            let alias = canonical(&dotted).is_some_and(|name| name != dotted).then(|| dotted.clone());
            return Ok((Arc::clone(&self.granted.tools[at]), alias));
        }
        if self.table.tools.contains_key(resolved) {
            if self.caller.channel.is_none() && is_of_channel(resolved) {
                let what = format!("{resolved} exists only in a turn that comes from a conversation outside");
                return Err(Refusal::new(Code::Unsupported, what)
                    .hint("send a message instead, or wait until something is said in a conversation"));
            }
            return Err(Refusal::new(Code::AccessDenied, format!("{} may not use {resolved}", self.caller.agent_id))
                .hint(self.why_denied(resolved)));
        }
        let near = nearest(&dotted, self.granted.tools.iter().map(|tool| tool.spec.name.as_str()));
        let refusal = Refusal::new(Code::UnknownTool, format!("there is no tool `{}`", shown(&dotted, 80)));
        Err(match near {
            Some(near) => refusal.hint(format!("did you mean `{near}`?")),
            None => refusal.hint("use one of the tools you were given"),
        })
    }

    /// The canonical name of the tool that a call means, granted or not; `None` if there is no such tool.
    #[must_use]
    pub fn known(&self, name: &str) -> Option<&str> {
        let dotted = from_wire(name);
        let resolved = self.resolved(&dotted);
        self.table.tools.get_key_value(resolved).map(|(name, _)| name.as_str())
    }

    /// What the loop guard needs to know of a call that a model has written; nothing of one that may not run.
    #[must_use]
    pub fn nature(&self, name: &str, arguments: &Value) -> Nature {
        let Ok((tool, alias)) = self.find(name) else { return Nature::default() };
        tool.nature(&tool.normalise(alias.as_deref(), arguments.clone()))
    }

    /// The name of the tool that `dotted` means: its own or an alias, else one that differs in its signs, its case or in a word
    /// that models put in front, where only one does.
    fn resolved<'n>(&'n self, dotted: &'n str) -> &'n str {
        if let Some(name) = canonical(dotted) {
            return name;
        }
        if self.table.tools.contains_key(dotted) {
            return dotted;
        }
        let plain = plain(dotted);
        let behind = PREFIXES.iter().find_map(|word| plain.strip_prefix(word));
        let of = |wanted: &str| {
            let mut found = self.table.tools.keys().filter(|name| self::plain(name) == wanted);
            found.next().filter(|_| found.next().is_none())
        };
        of(&plain).or_else(|| behind.and_then(of)).map_or(dotted, String::as_str)
    }

    /// What the agent lacks for a tool that is there, and what it can do instead.
    fn why_denied(&self, tool: &str) -> String {
        let instead = "use one of the tools you were given, or ask an agent that has this one";
        let groups = self.plan.as_ref().map(|plan| plan.groups.groups_of(tool)).unwrap_or_default();
        if groups.is_empty() {
            instead.to_owned()
        } else if groups.iter().any(|group| self.caller.groups.contains(*group)) {
            format!("you are in its group {}, but it is denied to you or left out; {instead}", groups.join(", "))
        } else {
            format!("it needs the privilege group {}; {instead}", groups.join(" or "))
        }
    }
}
