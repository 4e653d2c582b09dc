//! Connections to MCP servers: opened at the first call, looked after while they are open, closed when nobody uses them.
//!
//! A server that keeps failing must be left alone until the next reload.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ghost_config::plan::ToolboxPlan;
use ghost_config::plan::toolbox::McpPlan;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::restart::{Backoff, Intensity};
use ghost_domain::{Code, Refusal};
use ghost_mcp::{ClosedReason, Connection, Definition, ListEnd, Listing};
use serde_json::json;

use super::link::{For, open};
use super::listing::{Trust, compare, withdrawn};
use super::parts::Part;
use super::pool::{Entry, McpConnections, Open, State};
use super::questions::Questions;
use crate::context::{CallContext, WorldServices};

/// A connection that was not used for so long is closed.
const IDLE: Duration = Duration::from_secs(600);
/// How often a server may fail.
const FAILURES: Intensity = Intensity { max: 5, window: Duration::from_secs(600) };
/// Who asks a server for its tools when an operator looks at them.
const OPERATOR: &str = "system";

/// The open connection for a call.
///
/// # Errors
/// `Unavailable` if the server cannot be used now.
pub(crate) async fn connection_for(
    connections: &McpConnections,
    call: &CallContext,
    toolbox: &Arc<ToolboxPlan>,
    mcp: &McpPlan,
) -> Result<Arc<Open>, Refusal> {
    let (services, agent_id) = (&call.services, &call.caller.agent_id);
    if services.plan().toolboxes.get(&toolbox.name) != Some(toolbox) {
        // The turn took its tools before a reload. What was trusted then is perhaps not trusted now.
        return Err(unavailable(toolbox, "the toolbox has changed since your tools were taken"));
    }
    let entry = connections.entry(&toolbox.name, agent_id);
    let mut state = entry.state.lock().await;
    let now = services.ctx.ports.clock.steady();
    if let Some(open) = &state.open {
        match open.connection().closed_reason() {
            None => {
                open.used(now);
                return Ok(Arc::clone(open));
            }
            Some(reason) => {
                let open = state.open.take();
                failed(services, &mut state, &toolbox.name, &ended(&reason, open.as_deref()));
            }
        }
    }
    if let Some(why) = &state.given_up {
        return Err(unavailable(toolbox, &format!("it failed too often, the last time: {why}"))
            .hint("an operator can look at it with `ghostctl toolbox check` and reload; do it without this tool"));
    }
    if let Some(at) = state.retry_at.filter(|at| now < *at) {
        let wait = at.since(now).as_secs().saturating_add(1);
        return Err(unavailable(toolbox, &format!("it has failed, and is tried again in {wait} s")));
    }
    let writable = call.writable().await?.prefixes;
    let who = For { agent_id: agent_id.clone(), writable };
    let questions = Questions::default();
    let opened = async {
        let linked = open(services, toolbox, mcp, &who, Some(questions.clone())).await?;
        let listing = linked.connection.tools().await.map_err(|error| unavailable(toolbox, &error.to_string()))?;
        let found = listed(&linked.connection, &listing, mcp);
        Ok::<_, Refusal>((linked, found))
    };
    match opened.await {
        Ok((linked, found)) => {
            let gone = withdrawn(&found, mcp);
            take_away(connections, services, toolbox, &gone).await;
            let open = Arc::new(Open::new(linked, questions, gone, now));
            let kept = Kept {
                entry: Arc::downgrade(&entry),
                open: Arc::clone(&open),
                services: Arc::clone(services),
                toolbox: Arc::clone(toolbox),
                mcp: mcp.clone(),
            };
            entry.kept_by(tokio::spawn(keep(kept)));
            state.retry_at = None;
            state.open = Some(Arc::clone(&open));
            Ok(open)
        }
        Err(refusal) => {
            failed(services, &mut state, &toolbox.name, &refusal.message);
            Err(refusal)
        }
    }
}

/// Takes tools away that a server has changed or does not have any more, and says so in the feed.
async fn take_away(
    connections: &McpConnections,
    services: &Arc<WorldServices>,
    toolbox: &ToolboxPlan,
    gone: &BTreeMap<String, String>,
) {
    if gone.is_empty() {
        return;
    }
    let full: BTreeMap<String, String> = gone.iter().map(|(tool, why)| (toolbox.full(tool), why.clone())).collect();
    for (tool, why) in (connections.withdraw)(&toolbox.name, &full) {
        tracing::warn!("{tool} is absent: {why}");
        let warning = format!("{tool} is absent: {why}");
        let payload = json!({ "warning": warning, "toolbox": toolbox.name, "tool": tool });
        let event = NewEvent::new(EventKind::WorldWarning, payload);
        let written = services.write(move |w| w.emit(event)).await;
        if let Err(refusal) = written {
            let refusal: Refusal = refusal;
            tracing::warn!(%refusal, "the warning about a tool could not be written");
        }
    }
}

/// What a server has now, for an operator: over a connection of its own, which is closed again.
///
/// # Errors
/// `Unavailable` if the server cannot be used.
pub async fn look(services: &WorldServices, toolbox: &ToolboxPlan, mcp: &McpPlan) -> Result<Vec<Trust>, Refusal> {
    let who = For { agent_id: OPERATOR.parse()?, writable: Vec::new() };
    let linked = open(services, toolbox, mcp, &who, None).await?;
    let listing = linked.connection.tools().await.map_err(|error| unavailable(toolbox, &error.to_string()))?;
    let found = listed(&linked.connection, &listing, mcp);
    linked.connection.close().await;
    if listing.end != ListEnd::Complete {
        let what = "its list of tools has no end, or is larger than Ghost reads";
        return Err(unavailable(toolbox, what));
    }
    Ok(found)
}

/// What trust there is in all that a server has.
fn listed(connection: &Connection, listing: &Listing<Definition>, mcp: &McpPlan) -> Vec<Trust> {
    compare(listing, Part::of(connection.server()), mcp)
}

fn unavailable(toolbox: &ToolboxPlan, what: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("the MCP server of {} cannot be used: {what}", toolbox.name))
        .hint("do it without this tool, or try again later")
}

fn ended(reason: &ClosedReason, open: Option<&Open>) -> String {
    let words = open.map(Open::last_words).filter(|words| !words.is_empty());
    std::iter::once(reason.to_string()).chain(words).collect::<Vec<_>>().join("; ")
}

/// Notes that a server has failed.
fn failed(services: &WorldServices, state: &mut State, toolbox: &str, why: &str) {
    let (now, why) = (services.ctx.ports.clock.steady(), services.ctx.excerpt(why, 500));
    tracing::warn!(toolbox, why, "an MCP server has failed");
    match state.failures.record(now, FAILURES) {
        Some(attempt) => {
            let jitter = u32::try_from(services.ctx.ports.rng.below(1_000)).unwrap_or_default();
            state.retry_at = Some(now.plus(Backoff::default().delay(attempt, jitter.into())));
        }
        None => state.given_up = Some(why),
    }
}

/// What the keeper of a connection holds. Its entry ends it; so it must not hold the entry.
struct Kept {
    entry: Weak<Entry>,
    open: Arc<Open>,
    services: Arc<WorldServices>,
    toolbox: Arc<ToolboxPlan>,
    mcp: McpPlan,
}

/// Looks after an open connection: reads the list anew when the server says that it has changed, and closes the connection
/// when nobody has used it for some time.
async fn keep(kept: Kept) {
    let Kept { open, services, toolbox, mcp, .. } = &kept;
    loop {
        let idle_at = open.used_at().plus(IDLE);
        if services.ctx.ports.clock.steady() >= idle_at {
            if closed_idle(&kept).await {
                return;
            }
            continue;
        }
        let changed = tokio::select! {
            biased;
            changed = open.connection().changed() => changed.is_ok(),
            () = services.ctx.ports.clock.sleep(idle_at.since(services.ctx.ports.clock.steady())) => continue,
        };
        if !changed {
            return;
        }
        match open.connection().tools().await {
            Ok(listing) => {
                let gone = withdrawn(&listed(open.connection(), &listing, mcp), mcp);
                if let Some(connections) = services.mcp() {
                    take_away(connections, services, toolbox, &gone).await;
                }
                open.withdraw(gone);
            }
            Err(error) => {
                tracing::warn!(toolbox = toolbox.name, %error, "the tools of an MCP server could not be read anew")
            }
        }
    }
}

/// Closes a connection that is idle. Returns whether it is closed; a call may run or have begun.
async fn closed_idle(kept: &Kept) -> bool {
    let Some(entry) = kept.entry.upgrade() else { return true };
    // No call can begin while this is held.
    let mut state = entry.state.lock().await;
    let now = kept.services.ctx.ports.clock.steady();
    if now < kept.open.used_at().plus(IDLE) {
        return false;
    }
    // The entry and this task hold it, and each call that runs.
    if Arc::strong_count(&kept.open) > 2 {
        kept.open.used(now);
        return false;
    }
    state.open = None;
    kept.open.connection().close().await;
    true
}
