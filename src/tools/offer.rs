//! Chooses which of an agent's tools a request describes whole, and which are *deferred*: the briefing has a line for
//! each, [`DESCRIBE`] gives its description, and [`CALL`] runs it. Schemas are the largest part of a prompt, so an agent
//! with many tools would pay for all of them in every call. Also compares the tools of a registry with those that a turn's
//! model saw, and says what has changed.
//!
//! The choice must depend on nothing but the tools and the bound: a request's tools are the front of the cached prefix,
//! and a resumed turn must send the same. Deferring must never change what an agent may do.

use std::sync::Arc;

use ghost_domain::json_text::readable;
use ghost_domain::text::clip;
use ghost_domain::tool_catalogue::{self, CALL, DESCRIBE, from_wire};
use ghost_domain::{SeenTools, ToolChanges, ToolSpec};
use serde_json::Value;

use crate::tool::Tool;

/// Bytes that a tool costs in a request besides its name, description and schema.
const FRAME_BYTES: usize = 48;
/// Characters of the description in the line of a tool that the catalogue does not have.
const LINE_CHARS: usize = 80;

/// An agent's tools, as its prompts have them. Both lists are sorted by name.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The tools that a request describes.
    pub sent: Arc<[ToolSpec]>,
    /// The tools that have only a line in the briefing.
    pub deferred: Arc<[ToolSpec]>,
}

impl Offer {
    /// The offer for `tools`, sorted by name, in at most `bytes` if that can be: names, descriptions and schemas of
    /// those that are sent, and the lines of the others. Tools that are used often go first. Nothing is deferred if
    /// everything fits; the tools that reach others are sent then only if others may join.
    pub(crate) fn of(tools: &[Arc<Tool>], bytes: usize, is_live: bool) -> Self {
        let (means, mut tools): (Vec<Arc<Tool>>, Vec<Arc<Tool>>) =
            tools.iter().cloned().partition(|tool| is_means(&tool.spec.name));
        let whole = |tools: &[Arc<Tool>]| tools.iter().map(|tool| size(&tool.spec)).sum::<usize>();
        let list = |tools: &[Arc<Tool>]| tools.iter().map(|tool| tool.spec.clone()).collect::<Arc<[ToolSpec]>>();
        if means.len() < 2 || whole(&tools) <= bytes {
            if is_live && means.len() == 2 {
                tools.extend(means);
                tools.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
            }
            return Self { sent: list(&tools), deferred: Arc::default() };
        }
        let lines: usize = tools.iter().map(|tool| line(&tool.spec).len() + 1).sum();
        let mut left = bytes.saturating_sub(whole(&means) + lines);
        tools.sort_by_key(|tool| tool.used);
        let (mut sent, mut deferred): (Vec<_>, Vec<_>) = tools.into_iter().partition(|tool| {
            let cost = size(&tool.spec).saturating_sub(line(&tool.spec).len() + 1);
            let fits = cost <= left;
            left -= if fits { cost } else { 0 };
            fits
        });
        sent.extend(means);
        for tools in [&mut sent, &mut deferred] {
            tools.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
        }
        Self { sent: list(&sent), deferred: list(&deferred) }
    }

    /// The same offer, whose descriptions of receivers name these agents.
    #[must_use]
    pub(crate) fn naming(self, agents: &[String]) -> Self {
        if agents.is_empty() {
            return self;
        }
        let named = |specs: &[ToolSpec]| specs.iter().map(|spec| naming(spec, agents)).collect();
        Self { sent: named(&self.sent), deferred: named(&self.deferred) }
    }
}

/// Tools with the parameter that names a receiver.
const RECEIVERS: [(&str, &str); 3] =
    [("syscall.ask", "agent_id"), ("syscall.message.send", "to"), ("syscall.task.create", "owner")];

/// A spec whose description of the receiver names these agents. They are not an `enum`: agents that are created later
/// can be receivers, too.
pub(crate) fn naming(spec: &ToolSpec, agents: &[String]) -> ToolSpec {
    let mut spec = spec.clone();
    if let Some((_, parameter)) = RECEIVERS.iter().find(|(tool, _)| *tool == spec.name)
        && !agents.is_empty()
        && let Some(description) = spec.parameters.pointer_mut(&format!("/properties/{parameter}/description"))
        && let Some(text) = description.as_str()
    {
        *description = Value::String(format!("{text} Agents: {}.", agents.join(", ")));
    }
    spec
}

/// Bytes of a tool in a request.
fn size(spec: &ToolSpec) -> usize {
    spec.name.len() + spec.description.len() + spec.parameters.to_string().len() + FRAME_BYTES
}

/// The line of a deferred tool in the briefing: its name, the parameters that it requires, and what it does, in the
/// catalogue's short words. `…` stands for optional parameters.
pub fn line(spec: &ToolSpec) -> String {
    let names = |key: &str| spec.parameters.get(key).and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
    let mut words: Vec<&str> = names("required").iter().filter_map(Value::as_str).collect();
    let all = spec.parameters.get("properties").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    if all > words.len() {
        words.push("…");
    }
    let does =
        tool_catalogue::entry(&spec.name).map_or_else(|| clip(&spec.description, LINE_CHARS), |e| e.description.into());
    format!("- {}({}): {does}", spec.name, words.join(", "))
}

/// Whether a model means [`CALL`] by `name`.
fn is_call(name: &str) -> bool {
    let plain = plain(&from_wire(name));
    without_prefix(&plain).unwrap_or(&plain) == CALL
}

/// The call inside a call of [`CALL`]: the name and the arguments of the tool that is meant. `None` if `name` is another
/// tool's, or if the call names no tool: then it is judged, and refused, as a call of [`CALL`] itself.
pub fn unwrapped(name: &str, arguments: &Value) -> Option<(String, Value)> {
    if !is_call(name) {
        return None;
    }
    let tool = arguments.get("name")?.as_str().filter(|tool| !is_call(tool))?;
    let inner = match arguments.get("arguments") {
        None | Some(Value::Null) => Value::Object(serde_json::Map::new()),
        // Some models write the arguments as text.
        Some(Value::String(text)) => {
            serde_json::from_str(&readable(text)).unwrap_or_else(|_| Value::String(text.clone()))
        }
        Some(inner) => inner.clone(),
    };
    Some((tool.to_owned(), inner))
}

/// Prefixes that models add to tool names.
const PREFIXES: [&str; 5] = ["api.", "default.api.", "function.", "functions.", "tools."];

/// A name in lower case, with a dot for every separator that models use.
pub(crate) fn plain(name: &str) -> String {
    name.to_ascii_lowercase()
        .split(['.', '_', '-', '/', ':'])
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(".")
}

/// A [`plain`] name without a prefix that models add; `None` if it has none.
pub(crate) fn without_prefix(plain: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|word| plain.strip_prefix(word))
}

/// Tools that a note names one by one.
const NAMED_MAX: usize = 20;

/// Whether a tool only reaches others. These two are no news to a model.
pub(crate) fn is_means(name: &str) -> bool {
    name == CALL || name == DESCRIBE
}

/// The tools of a new turn.
pub(crate) fn seen(tools: &[Arc<Tool>], offer: &Offer) -> SeenTools {
    let hashes = |specs: &[ToolSpec]| {
        let offered = |tool: &&Arc<Tool>| specs.iter().any(|spec| spec.name == tool.spec.name);
        tools.iter().filter(offered).map(|tool| (tool.spec.name.clone(), tool.hash().to_owned())).collect()
    };
    SeenTools { sent: hashes(&offer.sent), deferred: hashes(&offer.deferred) }
}

/// What the model did not see of `tools`, and what it saw that is not there any more. A tool whose definition has changed
/// has left and joined.
pub(crate) fn changes(seen: &SeenTools, tools: &[Arc<Tool>]) -> ToolChanges {
    let is_new = |tool: &&Arc<Tool>| !is_means(&tool.spec.name) && seen.hash_of(&tool.spec.name) != Some(tool.hash());
    let joined = tools.iter().filter(is_new).map(|tool| (tool.spec.name.clone(), tool.hash().to_owned())).collect();
    let is_there = |name: &str, hash: &str| {
        tools.iter().any(|tool| tool.spec.name == name && (tool.hash() == hash || is_means(name)))
    };
    let all = seen.sent.iter().chain(&seen.deferred);
    let mut left: Vec<String> =
        all.filter(|(name, hash)| !is_there(name, hash)).map(|(name, _)| name.clone()).collect();
    left.sort();
    ToolChanges { joined, left }
}

/// The note for the model.
pub(crate) fn note(changes: &ToolChanges, tools: &[Arc<Tool>]) -> String {
    let mut text = String::from("Your tools have changed.");
    let left: Vec<&str> =
        changes.left.iter().filter(|name| !changes.joined.contains_key(*name)).map(String::as_str).collect();
    if !left.is_empty() {
        let more = left.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = left.get(..NAMED_MAX).unwrap_or(&left);
        text.push_str(&format!(" These are gone: {}{more}.", named.join(", ")));
    }
    if !changes.joined.is_empty() {
        text.push_str(&format!(
            " These are new; run one with {CALL}, given its name and its arguments, and see its parameters with \
             {DESCRIBE}:"
        ));
        for name in changes.joined.keys().take(NAMED_MAX) {
            if let Some(tool) = tools.iter().find(|tool| tool.spec.name == *name) {
                text.push_str(&format!("\n{}", line(&tool.spec)));
            }
        }
        if changes.joined.len() > NAMED_MAX {
            text.push_str(&format!("\n- {} more", changes.joined.len() - NAMED_MAX));
        }
    }
    text
}

#[cfg(test)]
mod offer_tests {
    use super::*;
    use crate::builtins;
    use serde_json::json;

    fn all() -> Vec<Arc<Tool>> {
        let mut tools: Vec<Arc<Tool>> = builtins::all().into_iter().map(Arc::new).collect();
        tools.sort_by(|one, other| one.spec.name.cmp(&other.spec.name));
        tools
    }

    fn names(specs: &[ToolSpec]) -> Vec<&str> {
        specs.iter().map(|spec| spec.name.as_str()).collect()
    }

    #[test]
    fn what_is_sent_and_the_lines_of_the_rest_fit_the_bound() {
        let tools = all();
        for bytes in [7_000, 9_000, 15_000, 25_000] {
            let offer = Offer::of(&tools, bytes, false);
            let cost = offer.sent.iter().map(size).sum::<usize>()
                + offer.deferred.iter().map(|spec| line(spec).len() + 1).sum::<usize>();
            assert!(cost <= bytes, "{cost} of {bytes}");
            assert!(offer.sent.len() + offer.deferred.len() == tools.len());
            assert!(names(&offer.sent).is_sorted() && names(&offer.deferred).is_sorted());
            assert!([DESCRIBE, CALL].iter().all(|name| names(&offer.sent).contains(name)));
            assert_eq!(names(&Offer::of(&tools, bytes, false).sent), names(&offer.sent));
        }
        let offer = Offer::of(&tools, 9_000, false);
        for often in ["workspace.read", "workspace.write", "syscall.message.send", "syscall.ask"] {
            assert!(names(&offer.sent).contains(&often), "{often}");
        }
        assert!(names(&offer.deferred).contains(&"util.cron"));
    }

    #[test]
    fn if_everything_fits_nothing_is_deferred() {
        let tools = all();
        let offer = Offer::of(&tools, 100_000, false);
        assert!(offer.deferred.is_empty());
        assert_eq!(offer.sent.len(), tools.len() - 2, "and nothing is needed to reach the deferred");
        assert!(Offer::of(&[], 10, false).sent.is_empty());
    }

    #[test]
    fn a_line_names_what_must_be_given() {
        let spec = |parameters| ToolSpec { name: "a.b".into(), description: "Does b.".into(), parameters };
        let both = json!({ "properties": { "x": {}, "y": {} }, "required": ["x"] });
        assert_eq!(line(&spec(both)), "- a.b(x, …): Does b.");
        assert_eq!(line(&spec(json!({ "properties": {} }))), "- a.b(): Does b.");
    }

    #[test]
    fn a_call_is_unwrapped_however_a_model_writes_it() {
        let inner = || json!({ "path": "a" });
        for (name, arguments, meant) in [
            (CALL, json!({ "name": "workspace.read", "arguments": inner() }), Some(inner())),
            ("syscall__tool__call", json!({ "name": "workspace.read", "arguments": inner() }), Some(inner())),
            ("syscall_tool_call", json!({ "name": "workspace.read", "arguments": "{\"path\":\"a\"}" }), Some(inner())),
            ("functions.syscall__tool__call", json!({ "name": "workspace.read" }), Some(json!({}))),
            (CALL, json!({ "name": "workspace.read", "arguments": "a" }), Some(json!("a"))),
            (CALL, json!({ "name": CALL, "arguments": { "name": "workspace.read" } }), None),
            (CALL, json!({ "arguments": inner() }), None),
            (CALL, json!({ "name": 7 }), None),
            (CALL, json!("workspace.read"), None),
            ("workspace.read", json!({ "name": "x" }), None),
        ] {
            let found = unwrapped(name, &arguments);
            assert_eq!(found, meant.map(|meant| ("workspace.read".to_owned(), meant)), "{name} {arguments}");
        }
    }
}

#[cfg(test)]
mod seen_tests {
    use serde_json::json;

    use super::*;
    use crate::builtins;
    use crate::context::Caller;
    use crate::registry::{LiveTools, SourceTools};
    use crate::registry::{Offering, Registry, ToolTable};

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

    fn live() -> LiveTools {
        let live = LiveTools::new(ToolTable::new(builtins::all()).unwrap());
        live.set("notes", SourceTools::default());
        live
    }

    fn set(live: &LiveTools, tools: &[(&str, &str)]) {
        let tool = |(name, description): &(&str, &str)| {
            Tool::with_schema(name, description, json!({ "type": "object" }), builtins::all().remove(0).run)
        };
        live.set("notes", SourceTools { tools: tools.iter().map(tool).collect(), absent: Vec::new() });
    }

    fn registry(live: &LiveTools) -> Registry {
        live.current().registry(caller(), Offering { bytes: 200_000, ..Offering::default() }, &|_| true)
    }

    // covers: TOOL-03
    #[test]
    fn what_joins_is_called_through_another_tool_and_what_was_sent_stays() {
        let live = live();
        set(&live, &[("notes.a", "a"), ("notes.b", "b")]);
        let first = registry(&live);
        let mut seen = first.seen();
        assert!(seen.can_grow() && first.changes_since(&seen).is_empty());
        // `a` leaves, `b` changes, `c` joins.
        set(&live, &[("notes.b", "other"), ("notes.c", "c")]);
        let second = registry(&live);
        let changes = second.changes_since(&seen);
        let joined: Vec<&str> = changes.joined.keys().map(String::as_str).collect();
        assert_eq!(
            (joined, changes.left.as_slice()),
            (vec!["notes.b", "notes.c"], &["notes.a".to_owned(), "notes.b".to_owned()][..])
        );
        let note = second.note(&changes);
        assert!(note.contains("notes.c") && note.contains("gone: notes.a.") && note.contains(CALL), "{note}");
        seen.apply(&changes);
        let kept = second.clone().keeping(&seen);
        let names = |specs: &[ToolSpec]| specs.iter().map(|spec| spec.name.clone()).collect::<Vec<_>>();
        let sent = names(&kept.offer().sent);
        let before: Vec<String> =
            names(&first.offer().sent).into_iter().filter(|name| !name.starts_with("notes.")).collect();
        assert_eq!(sent, before, "the front of the prefix stays");
        assert_eq!(names(&kept.offer().deferred), ["notes.b", "notes.c"]);
        assert!(kept.find("notes.c").is_ok() && kept.find("notes.a").is_err());
        // What was journaled says the same.
        let text = serde_json::to_string(&seen).unwrap();
        assert_eq!(serde_json::from_str::<SeenTools>(&text).unwrap(), seen);
        assert!(second.changes_since(&seen).is_empty());
    }

    #[test]
    fn a_tool_that_goes_and_comes_back_is_one_change_or_none() {
        let live = live();
        set(&live, &[("notes.a", "a")]);
        let mut seen = registry(&live).seen();
        set(&live, &[]);
        set(&live, &[("notes.a", "a")]);
        assert!(registry(&live).changes_since(&seen).is_empty());
        set(&live, &[]);
        let changes = registry(&live).changes_since(&seen);
        seen.apply(&changes);
        assert_eq!(changes.left, ["notes.a"]);
        set(&live, &[("notes.a", "a")]);
        let changes = registry(&live).changes_since(&seen);
        assert_eq!(changes.joined.len(), 1);
    }
}
