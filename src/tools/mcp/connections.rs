//! Connections to MCP servers: opened at the first call, looked after while they are open, closed when nobody uses them.
//! A server is a process in the sandbox, or reached over HTTP with the token of a variable. Its questions go to an operator.
//!
//! A server that keeps failing must be left alone until the next reload.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::ToolboxPlan;
use ghost_config::plan::toolbox::{McpPlan, McpTransport, Piece, Place};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::restart::{Backoff, Intensity};
use ghost_domain::{AgentId, ApprovalPlan, ApprovalStatus, Refusal, refusal};
use ghost_mcp::{
    Answer, ClosedReason, Connection, Definition, Elicitation, ElicitationHandler, HttpClient, Lifecycle, Limits, Link,
    ListEnd, Listing, OpenError, Options,
};
use ghost_operations::Result;
use ghost_sandbox::{Command, ToolboxDir};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::listing::{Part, Trust, compare, withdrawn};
use super::pool::{Entry, Linked, McpConnections, Open, Questions, State};
use crate::context::{CallContext, WorldServices};
use crate::piped::PipedProcess;

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
) -> Result<Arc<Open>> {
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
pub async fn look(services: &WorldServices, toolbox: &ToolboxPlan, mcp: &McpPlan) -> Result<Vec<Trust>> {
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
    refusal!(Unavailable, "the MCP server of {} cannot be used: {what}", toolbox.name)
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

/// Bytes of error output that the sandbox keeps of a server. The process keeps its end itself.
const STDERR: usize = 4 * 1_024;

/// For whom a server runs, and where it may write.
pub(super) struct For {
    pub(super) agent_id: AgentId,
    pub(super) writable: Vec<String>,
}

/// Opens a connection.
///
/// # Errors
/// `Unavailable` with the reason.
pub(super) async fn open(
    services: &WorldServices,
    toolbox: &ToolboxPlan,
    mcp: &McpPlan,
    who: &For,
    questions: Option<Questions>,
) -> Result<Linked> {
    match linked(services, toolbox, mcp, who, (Lifecycle::Auto, &questions)).await {
        // It does not know the question. Some servers end at one.
        Err((Some(OpenError::ClosedOnDiscover), _)) => {
            linked(services, toolbox, mcp, who, (Lifecycle::Initialize, &questions))
                .await
                .map_err(|(_, refusal)| refusal)
        }
        other => other.map_err(|(_, refusal)| refusal),
    }
}

async fn linked(
    services: &WorldServices,
    toolbox: &ToolboxPlan,
    mcp: &McpPlan,
    who: &For,
    (lifecycle, questions): (Lifecycle, &Option<Questions>),
) -> Result<Linked, (Option<OpenError>, Refusal)> {
    let (link, process) = link(services, toolbox, mcp, who).map_err(|why| (None, unavailable(toolbox, &why)))?;
    let elicitation = questions.clone().map(|questions| Arc::new(questions) as Arc<dyn ElicitationHandler>);
    // A question ends by itself a little sooner.
    let limits = Limits { answer_timeout: QUESTION_TIME + Duration::from_secs(5), ..Limits::default() };
    match Connection::open(link, Options { lifecycle, elicitation, limits, ..Options::default() }).await {
        Ok(connection) => Ok(Linked { connection, process }),
        Err(error) => {
            let words = process.as_ref().map(PipedProcess::last_words).filter(|words| !words.is_empty());
            let what = [Some(error.to_string()), words].into_iter().flatten().collect::<Vec<_>>().join("; ");
            Err((Some(error), unavailable(toolbox, &services.ctx.redactor.redact(&what))))
        }
    }
}

fn link(
    services: &WorldServices,
    toolbox: &ToolboxPlan,
    mcp: &McpPlan,
    who: &For,
) -> Result<(Link, Option<PipedProcess>), String> {
    let of_daemon = |name: &String| std::env::var(name).ok().filter(|_| services.redacts(name));
    match &mcp.transport {
        McpTransport::Http { url, token_env } => {
            let client = HttpClient::new(reqwest::Client::builder()).map_err(|error| error.to_string())?;
            let token = match token_env {
                None => None,
                Some(name) => {
                    Some(of_daemon(name).ok_or_else(|| format!("the variable {name} is not set for ghostd"))?)
                }
            };
            Ok((Link::Http { client, url: url.clone(), token: token.map(SecretString::from) }, None))
        }
        McpTransport::Stdio { command } => {
            let sandbox = services.sandbox().ok_or("there is no sandbox")?;
            let dir = ToolboxDir { name: toolbox.name.clone(), dir: toolbox.dir.clone() };
            let inside = sandbox.toolbox_path(&dir)?;
            let workspace = sandbox.workspace_path();
            let home = who.agent_id.home();
            let word = |pieces: &Vec<Piece>| -> String {
                let shown = pieces.iter().map(|piece| match piece {
                    Piece::Text(text) | Piece::Parameter(text) => text.clone(),
                    Piece::Place(Place::Workspace) => workspace.clone(),
                    Piece::Place(Place::Home) => format!("{workspace}/{home}"),
                    Piece::Place(Place::Toolbox) => inside.clone(),
                });
                shown.collect()
            };
            let passed = toolbox.passthrough_env.iter().filter_map(|name| Some((name.clone(), of_daemon(name)?)));
            let own = [("AGENT_ID", who.agent_id.to_string()), ("WORLD_ID", services.plan().world_id.clone())];
            let own = own.map(|(name, value)| (name.to_owned(), value));
            let command = Command {
                agent_id: who.agent_id.clone(),
                conversation_id: None,
                argv: command.iter().map(word).collect(),
                dir: home.clone(),
                env: toolbox.env.clone().into_iter().chain(passed).chain(own).collect(),
                stdin: Vec::new(),
                feed: None,
                drain: None,
                toolbox: Some(dir),
                timeout: Command::LONGEST,
                writable: who.writable.clone(),
                stdout_limit: 1,
                stderr_limit: STDERR,
            };
            let (reader, writer, process) = PipedProcess::start(Arc::clone(sandbox), command);
            Ok((Link::Streams { reader: Box::new(reader), writer: Box::new(writer) }, Some(process)))
        }
    }
}

/// How long a question waits at most. A call may last so much longer.
pub(crate) const QUESTION_TIME: Duration = Duration::from_secs(600);

/// A call that a question can belong to.
pub(crate) struct Asking {
    pub(crate) call: CallContext,
    /// The full name of its tool.
    pub(crate) full: String,
    pub(crate) arguments: Value,
}

#[async_trait]
impl ElicitationHandler for Asking {
    async fn ask(&self, question: Elicitation) -> Answer {
        let (call, full) = (&self.call, &self.full);
        call.progress(&format!("{full} asks an operator: {}", question.message));
        let mut arguments = json!({ "asks": question.message, "call": self.arguments });
        if let Some(problem) = &question.problem {
            arguments["problem"] = json!(problem);
        }
        let plan =
            ApprovalPlan { tool: full.clone(), arguments, form: Some(question.schema), ..ApprovalPlan::default() };
        let reason = format!("the server of {full} asks its user");
        match call.ask_operator(plan, reason, QUESTION_TIME).await {
            Ok(approval) => match approval.status {
                ApprovalStatus::Approved => Answer::Accept(Value::Object(approval.fields.unwrap_or_default())),
                ApprovalStatus::Denied => Answer::Decline,
                ApprovalStatus::Pending | ApprovalStatus::Expired | ApprovalStatus::Cancelled => Answer::Cancel,
            },
            Err(refusal) => {
                tracing::warn!(%refusal, tool = full, "a question of an MCP server reached no operator");
                call.progress(&format!("no operator could be asked: {}", refusal.message));
                Answer::Cancel
            }
        }
    }
}
