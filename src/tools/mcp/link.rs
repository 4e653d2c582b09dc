//! Opens the connection to an MCP server: starts its process in the sandbox, or reaches it over HTTP with the token of a
//! variable.

use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::ToolboxPlan;
use ghost_config::plan::toolbox::{McpPlan, McpTransport, Piece, Place};
use ghost_domain::{AgentId, Code, Refusal};
use ghost_mcp::{Connection, ElicitationHandler, HttpClient, Lifecycle, Limits, Link, OpenError, Options};
use ghost_sandbox::{Command, ToolboxDir};
use secrecy::SecretString;

use super::asking::QUESTION_TIME;
use super::pool::Linked;
use super::questions::Questions;
use crate::context::WorldServices;
use crate::piped::PipedProcess;

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
) -> Result<Linked, Refusal> {
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
    let unavailable = |what: String| {
        Refusal::new(Code::Unavailable, format!("the MCP server of {} cannot be used: {what}", toolbox.name))
            .hint("do it without this tool, or try again later")
    };
    let (link, process) = link(services, toolbox, mcp, who).map_err(|why| (None, unavailable(why)))?;
    let elicitation = questions.clone().map(|questions| Arc::new(questions) as Arc<dyn ElicitationHandler>);
    // A question ends by itself a little sooner.
    let limits = Limits { answer_timeout: QUESTION_TIME + Duration::from_secs(5), ..Limits::default() };
    match Connection::open(link, Options { lifecycle, elicitation, limits, ..Options::default() }).await {
        Ok(connection) => Ok(Linked { connection, process }),
        Err(error) => {
            let words = process.as_ref().map(PipedProcess::last_words).filter(|words| !words.is_empty());
            let what = [Some(error.to_string()), words].into_iter().flatten().collect::<Vec<_>>().join("; ");
            Err((Some(error), unavailable(services.ctx.redactor.redact(&what))))
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
