//! Compares the tools of a registry with those that a turn's model saw, and says what has changed (TOOL-03).

use std::sync::Arc;

use ghost_domain::tool_catalogue::{CALL, DESCRIBE};
use ghost_domain::transcript::ToolSpec;
use ghost_domain::{SeenTools, ToolChanges};

use crate::offer::{Offer, line};
use crate::tool::Tool;

/// Tools that a note names one by one.
const NAMED_MAX: usize = 20;

/// Whether a tool only reaches others. These two are no news to a model.
fn is_means(name: &str) -> bool {
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::builtins;
    use crate::context::Caller;
    use crate::live::{LiveTools, SourceTools};
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
