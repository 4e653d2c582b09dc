//! Compares what a server lists with what an operator has trusted.
//!
//! Two definitions are the same only if their hashes are.

use std::collections::{BTreeMap, BTreeSet};

use ghost_config::plan::toolbox::{McpPlan, TrustedTool};
use ghost_domain::text::one_line;
use ghost_mcp::{Definition, Listing, ghost_names};

use crate::schema::lenient;

/// Longest description that is trusted, in bytes. Every request of an agent with the tool carries it.
const DESCRIPTION_MAX: usize = 2_048;

/// What trust an operator has in a tool of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustState {
    /// It is as it was trusted.
    Trusted,
    /// The server has it, and nobody trusted it.
    New,
    /// Its definition is not the one that was trusted.
    Changed,
    /// It was trusted, and the server does not have it any more.
    Missing,
    /// It cannot be used.
    Unusable,
}

impl TrustState {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trusted => "trusted",
            Self::New => "new",
            Self::Changed => "changed",
            Self::Missing => "missing",
            Self::Unusable => "unusable",
        }
    }
}

/// One tool of a server, for an operator who decides about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trust {
    /// The short name; that of the server, for a tool that cannot be used.
    pub tool: String,
    /// What trust there is.
    pub state: TrustState,
    /// Why it cannot be used, or what has changed.
    pub why: Option<String>,
    /// The definition as the server has it now; `None` if it has none that can be used.
    pub now: Option<TrustedTool>,
}

/// All tools of a listing and of the lock, by short name. `parts` are the tools of what else the server has.
pub(super) fn compare(listing: &Listing<Definition>, parts: Vec<TrustedTool>, mcp: &McpPlan) -> Vec<Trust> {
    let names = ghost_names(listing.items.iter().map(|definition| definition.name.as_str()));
    let short: BTreeMap<&str, &str> = names.names.iter().map(|(short, name)| (name.as_str(), short.as_str())).collect();
    let trusted: BTreeMap<&str, &TrustedTool> = mcp.trusted.iter().map(|tool| (tool.tool.as_str(), tool)).collect();
    let mut found: Vec<Trust> = Vec::new();
    for definition in &listing.items {
        let Some(tool) = short.get(definition.name.as_str()) else {
            let why = "its name has no form that agents can use, or the same form as another one";
            found.push(unusable(&definition.name, why));
            continue;
        };
        let description = one_line(definition.description.trim());
        if description.len() > DESCRIPTION_MAX {
            found.push(unusable(tool, "its description is longer than 2,048 bytes"));
            continue;
        }
        if let Err(why) = lenient(&definition.input_schema) {
            found.push(unusable(tool, &why));
            continue;
        }
        let now = TrustedTool {
            tool: (*tool).to_owned(),
            name: definition.name.clone(),
            hash: definition.hash(),
            description,
            parameters: definition.input_schema.clone(),
        };
        found.push(judged(now, &trusted));
    }
    found.extend(parts.into_iter().map(|part| judged(part, &trusted)));
    found.extend(listing.skipped.iter().map(|skipped| unusable(&skipped.name, &skipped.why)));
    let there: BTreeSet<String> = found.iter().map(|trust| trust.tool.clone()).collect();
    let gone = mcp.trusted.iter().filter(|tool| !there.contains(&tool.tool));
    found.extend(gone.map(|tool| Trust {
        tool: tool.tool.clone(),
        state: TrustState::Missing,
        why: Some("the server does not list it".to_owned()),
        now: None,
    }));
    found.sort_by(|one, other| one.tool.cmp(&other.tool));
    found
}

/// What trust there is in a definition.
fn judged(now: TrustedTool, trusted: &BTreeMap<&str, &TrustedTool>) -> Trust {
    let (state, why) = match trusted.get(now.tool.as_str()) {
        None => (TrustState::New, None),
        Some(before) if before.hash == now.hash && before.name == now.name => (TrustState::Trusted, None),
        Some(before) => (TrustState::Changed, Some(difference(before, &now))),
    };
    Trust { tool: now.tool.clone(), state, why, now: Some(now) }
}

fn unusable(tool: &str, why: &str) -> Trust {
    Trust { tool: tool.to_owned(), state: TrustState::Unusable, why: Some(why.to_owned()), now: None }
}

fn difference(before: &TrustedTool, now: &TrustedTool) -> String {
    let parts = [
        (before.name != now.name).then_some("name"),
        (before.description != now.description).then_some("description"),
        (before.parameters != now.parameters).then_some("parameters"),
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => "its title or annotations are not those that were trusted".to_owned(),
        false => format!("not those that were trusted: {}", parts.join(", ")),
    }
}

/// Why trusted tools cannot be had from a server that lists this, by short name.
pub(super) fn withdrawn(found: &[Trust], mcp: &McpPlan) -> BTreeMap<String, String> {
    let is_trusted = |tool: &str| mcp.trusted.iter().any(|trusted| trusted.tool == tool);
    found
        .iter()
        .filter(|trust| trust.state != TrustState::Trusted && is_trusted(&trust.tool))
        .map(|trust| {
            let why = trust.why.clone().unwrap_or_default();
            let what = match trust.state {
                TrustState::Changed => {
                    format!("the server has changed its definition ({why}): an operator must trust it again")
                }
                _ => why,
            };
            (trust.tool.clone(), what)
        })
        .collect()
}
