//! What models are told of tools: sentences about this world at the ends of descriptions, and the tools that reach
//! deferred tools; see [`crate::offer`].
//!
//! A sentence must be short, because every prompt carries it, and must hold until the daemon ends.

use ghost_config::plan::sandbox::{SandboxKind, SandboxNetwork, WorkspaceAccess};
use ghost_config::plan::web::{GooglePlan, Robots, SearchKind, SearchPlan, WebTarget};
use ghost_config::plan::{Plan, SandboxPlan, WebPlan};
use ghost_domain::text::nearest;
use ghost_domain::tool_catalogue::{canonical, from_wire};
use serde_json::Map;

use super::common::*;

/// Hosts of commands that are named.
const HOSTS_MAX: usize = 6;

/// Sentences for the ends of descriptions, by the name of the tool.
pub fn facts(plan: &Plan) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if plan.sandbox.kind != SandboxKind::None {
        let sandbox = sandbox(&plan.sandbox);
        facts.extend([("tool.cli", sandbox.clone()), ("tool.python", sandbox)]);
    }
    if let Some(web) = &plan.web {
        facts.push(("tool.fetch", fetch(web)));
        facts.extend(web.search.as_ref().map(|search| ("tool.web_search", searched(search))));
        facts.extend(web.google_search.as_ref().map(|google| ("tool.google_search", asked(google))));
    }
    facts
}

fn sandbox(plan: &SandboxPlan) -> String {
    let network = match plan.network {
        SandboxNetwork::None => "no network".to_owned(),
        SandboxNetwork::Proxy => format!("a proxy (http_proxy) to {}", hosts(&plan.hosts)),
        SandboxNetwork::Open => "network".to_owned(),
    };
    let workspace = match plan.workspace_access {
        WorkspaceAccess::None => "only your own directory of the workspace, to read",
        WorkspaceAccess::ReadOnly => "the workspace to read, nothing to write",
        WorkspaceAccess::ReadWrite => "the workspace to read, your own directories to write",
    };
    let kind = plan.kind.as_str();
    let (usual, most) = (plan.default_timeout.as_secs_f64(), plan.max_timeout.as_secs_f64());
    format!("The sandbox ({kind}) has {network}, {workspace}; a command ends after {usual} s, at most {most} s.")
}

fn hosts(hosts: &[WebTarget]) -> String {
    let mut named: Vec<String> = hosts.iter().take(HOSTS_MAX).map(WebTarget::to_string).collect();
    if let Some(more) = hosts.len().checked_sub(HOSTS_MAX).filter(|more| *more > 0) {
        named.push(format!("{more} more hosts"));
    }
    named.join(", ")
}

fn fetch(plan: &WebPlan) -> String {
    let reach = match plan.allow.len() {
        0 => "Reaches public addresses".to_owned(),
        1 => "Reaches public addresses and one more that the operator allows".to_owned(),
        more => format!("Reaches public addresses and {more} more that the operator allows"),
    };
    let robots = match plan.robots {
        Robots::Ignore => "",
        Robots::Respect => "; robots.txt is respected",
    };
    format!("{reach}; takes at most {} s{robots}.", plan.timeout.as_secs_f64())
}

fn searched(plan: &SearchPlan) -> String {
    match plan.kind {
        SearchKind::Brave => "By Brave.".to_owned(),
        SearchKind::Searxng => "By SearXNG.".to_owned(),
    }
}

fn asked(plan: &GooglePlan) -> String {
    let others = if plan.models.is_empty() { String::new() } else { format!(" (or {})", plan.models.join(", ")) };
    format!("By {}{others}, ${} a query.", plan.model, plan.usd_per_query.usd())
}

params! {
    pub(super) struct DescribeParams {
        /// The name of the tool.
        name: String,
    }
}

pub(super) async fn describe(call: &CallContext, params: DescribeParams) -> Result<Output> {
    let dotted = from_wire(params.name.trim());
    let wanted = canonical(&dotted).unwrap_or(&dotted);
    let Some(spec) = call.tools.iter().find(|spec| spec.name == wanted) else {
        let near = nearest(wanted, call.tools.iter().map(|spec| spec.name.as_str()));
        return Err(Refusal::not_found("tool", wanted, near));
    };
    Ok(json!({ "name": spec.name, "description": spec.description, "parameters": spec.parameters }).into())
}

params! {
    pub(super) struct CallParams {
        /// The name of the tool.
        name: String,
        /// Its arguments.
        #[serde(default)]
        arguments: Map<String, Value>,
    }
}

/// A call that names a tool runs as a call of that tool, so this one runs only if a call names itself.
pub(super) async fn call_tool(_call: &CallContext, params: CallParams) -> Result<Output> {
    let CallParams { name, arguments } = params;
    Err(refusal!(
        InvalidArguments,
        "`{name}` with {} arguments is not a tool that can be called this way",
        arguments.len()
    )
    .hint("name the tool that is to run"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::builtins;
    use crate::registry::ToolTable;

    fn said(plan: &Plan, tool: &str) -> Option<String> {
        facts(plan).into_iter().find(|(name, _)| *name == tool).map(|(_, fact)| fact)
    }

    // covers: TOOL-23
    #[test]
    fn the_descriptions_say_what_holds_in_this_world() {
        let mut plan = ghost_config::testing::WorldFiles::new(ghost_config::testing::TWO_AGENTS, "").plan();
        assert_eq!(facts(&plan), [], "without a sandbox and a web there is nothing to say");
        plan.sandbox.kind = SandboxKind::Local;
        let local = said(&plan, "tool.cli").unwrap();
        assert!(local.contains("local") && local.contains("no network") && local.contains("at most 120 s"), "{local}");
        assert_eq!(said(&plan, "tool.python"), Some(local));
        plan.sandbox.kind = SandboxKind::Docker;
        plan.sandbox.network = SandboxNetwork::Proxy;
        plan.sandbox.hosts = ["a.example:443", "10.0.0.0/8"].map(|text| WebTarget::parse(text).unwrap()).into();
        assert!(said(&plan, "tool.cli").unwrap().contains("a proxy (http_proxy) to a.example:443, 10.0.0.0/8"));
        plan.sandbox.network = SandboxNetwork::Open;
        plan.sandbox.workspace_access = WorkspaceAccess::ReadOnly;
        plan.sandbox.max_timeout = Duration::from_millis(1_500);
        let docker = said(&plan, "tool.cli").unwrap();
        assert!(docker.contains("docker) has network, the workspace to read, nothing to write"), "{docker}");
        assert!(docker.contains("at most 1.5 s"), "{docker}");
        let search = SearchPlan { kind: SearchKind::Searxng, base_url: String::new(), api_key_env: None };
        plan.web = Some(WebPlan { search: Some(search), robots: Robots::Respect, ..WebPlan::default() });
        assert_eq!(said(&plan, "tool.web_search").as_deref(), Some("By SearXNG."));
        assert_eq!(said(&plan, "tool.google_search"), None);
        let fetch = said(&plan, "tool.fetch").unwrap();
        assert!(fetch.contains("at most 20 s; robots.txt is respected"), "{fetch}");
        let bytes: usize = facts(&plan).iter().map(|(_, fact)| fact.len()).sum();
        assert!(bytes < 600, "every prompt carries them: {bytes}");

        let table = Arc::new(ToolTable::new(builtins::all()).unwrap().telling(facts(&plan)));
        let description = table.description("tool.cli").unwrap();
        assert!(description.starts_with("Run a bash") && description.ends_with(&docker), "{description}");
    }
}
