//! `ghostctl agent` and `ghostctl droid`: the agents of a world, and the helpers that they start.

use std::time::Duration;

use ghost_proto::json::parsed;
use ghost_proto::v1::{AgentChange, AgentLeft, GetAgentResponse, MemoryFile, PromptSection};
use serde_json::json;

use super::tool::description;
use crate::arguments::{from_1, millis, optional_text, parse_duration};
use crate::commands::prelude::*;
use crate::text::one_line;

#[derive(Debug, clap::Subcommand)]
pub enum Agent {
    /// List agents
    ///
    /// Examples:
    ///   ghostctl agent list
    ///   ghostctl agent list --status failed
    #[command(verbatim_doc_comment)]
    List {
        /// Show only agents with this status: running, restarting, stopping, stopped or failed
        #[arg(long, value_name = "S")]
        status: Option<String>,
        /// Show only agents of this archetype
        #[arg(long, value_name = "A")]
        archetype: Option<String>,
        /// Include deleted agents
        #[arg(long)]
        deleted: bool,
        #[command(flatten)]
        bound: Bound,
    },
    /// Create an agent from an archetype and start it
    ///
    /// Examples:
    ///   ghostctl agent create scout --id scout-2 --goal 'Read notes/ and report'
    #[command(verbatim_doc_comment)]
    Create {
        /// Name of the archetype
        archetype: String,
        /// Set the agent's id (default: derived from the archetype's name)
        #[arg(long = "id", id = "agent_id", value_name = "ID")]
        id: Option<String>,
        /// Set the display name
        #[arg(long, value_name = "N")]
        name: Option<String>,
        /// Start a first turn with this text; - reads standard input; without a goal the agent waits for messages
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        goal: Option<String>,
    },
    /// Show an agent
    ///
    /// Examples:
    ///   ghostctl agent get chora
    #[command(verbatim_doc_comment)]
    Get {
        /// Agent id
        agent_id: String,
    },
    /// List the memory files of an agent, or show one of them
    ///
    /// Examples:
    ///   ghostctl agent inspect chora
    ///   ghostctl agent inspect chora 2026-11-26.md
    #[command(verbatim_doc_comment)]
    Inspect {
        /// Agent id
        agent_id: String,
        /// Path of a memory file, as the list shows it
        path: Option<String>,
        /// Show at most this many bytes
        #[arg(long, value_name = "N", default_value = "65536", value_parser = from_1::<u32>)]
        limit: u32,
    },
    /// Start a stopped or failed agent
    ///
    /// Examples:
    ///   ghostctl agent start chora
    #[command(verbatim_doc_comment)]
    Start {
        /// Agent id
        agent_id: String,
    },
    /// Stop an agent and wait until it has stopped; it stays stopped when the daemon restarts
    ///
    /// Examples:
    ///   ghostctl agent stop chora
    ///   ghostctl agent stop chora --grace 5s --reason 'loops'
    #[command(verbatim_doc_comment)]
    Stop {
        /// Agent id
        agent_id: String,
        /// Record this reason in the event feed
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Let the open turn finish within this time (default: the agent's own setting)
        #[arg(long = "grace", id = "grace_ms", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
        grace: Option<Duration>,
    },
    /// Stop an agent and delete it; its record is kept, marked as deleted
    ///
    /// Examples:
    ///   ghostctl agent delete scout-2
    #[command(verbatim_doc_comment)]
    Delete {
        /// Agent id
        agent_id: String,
        /// Record this reason in the event feed
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Show the prompt of the agent's next turn: system prompt, briefing, history and tools, with their sizes
    ///
    /// Examples:
    ///   ghostctl agent prompt chora | less
    #[command(verbatim_doc_comment)]
    Prompt {
        /// Agent id
        agent_id: String,
    },
}

const AGENTS: &[Column<v1::Agent>] = columns![
    "AGENT" agent_id, "ARCHETYPE" archetype, "STATUS" status, "ACTIVITY" activity, "KIND" kind,
    "RESTARTS" restarts, "REASON" status_reason,
];

const FILES: &[Column<MemoryFile>] = columns![
    "PATH" path, "BYTES" size_bytes,
    "MODIFIED" => |file, view| view.when(file.modified_at_ms),
];

const SECTIONS: &[Column<PromptSection>] = columns![
    "PART" part, "SECTION" name, "BYTES" bytes, "TOKENS AT 3 BYTES" estimated_tokens,
];

impl Agent {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request_id = new_request_id();
        match self {
            Self::List { status, archetype, deleted, bound } => {
                let request = v1::ListAgentsRequest { status, archetype, deleted, ..<_>::default() };
                list(client, &bound, request, AGENTS).await
            }
            Self::Create { archetype, id: agent_id, name, goal } => {
                let (goal, overrides_json) = (optional_text(goal)?, String::new());
                let request = v1::CreateAgentRequest { request_id, archetype, agent_id, name, goal, overrides_json };
                changed(client.call(request).await?, "created")
            }
            Self::Get { agent_id } => get(client, agent_id).await,
            Self::Inspect { agent_id, path, limit } => {
                let answer = client.call(v1::InspectAgentRequest { agent_id, path, limit }).await?;
                let mut text = match &answer.content {
                    Some(content) => content.clone(),
                    None if answer.files.is_empty() => "no memory files\n".to_owned(),
                    None => table(&answer.files, &client.view, FILES),
                };
                if answer.truncated {
                    text.push_str("\n(cut; --limit shows more)\n");
                }
                Ok(Answer::new(&answer, text))
            }
            Self::Start { agent_id } => {
                changed(client.call(v1::StartAgentRequest { request_id, agent_id }).await?, "started")
            }
            Self::Stop { agent_id, reason, grace } => {
                let (reason, grace_ms) = (optional_text(reason)?, grace.map(millis));
                let request = v1::StopAgentRequest { request_id, agent_id, reason, grace_ms };
                changed(client.call(request).await?, "stop requested")
            }
            Self::Delete { agent_id, reason } => {
                let request = v1::DeleteAgentRequest { request_id, agent_id, reason: optional_text(reason)? };
                changed(client.call(request).await?, "deleted")
            }
            Self::Prompt { agent_id } => prompt(client, agent_id).await,
        }
    }
}

async fn get(client: &Client, agent_id: String) -> Result<Answer, Failure> {
    let answer = client.call(v1::GetAgentRequest { agent_id }).await?;
    let GetAgentResponse { agent, turn_id, inbox_pending, model, tools, access, cannot_run, waits, .. } =
        answer.clone();
    let agent = required(agent, "agent")?;
    let reason = agent.status_reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let view = &client.view;
    let shown = [
        ("agent_id", agent.agent_id),
        ("name", agent.name),
        ("archetype", agent.archetype),
        ("kind", agent.kind),
        ("team", agent.team.unwrap_or_default()),
        ("owner", agent.owner.unwrap_or_default()),
        ("status", format!("{}{reason}", agent.status)),
        ("activity", agent.activity.unwrap_or_default()),
        ("turn_id", turn_id.unwrap_or_default()),
        ("inbox", format!("{inbox_pending} pending")),
        ("restarts", agent.restarts.to_string()),
        ("model", model.unwrap_or_default()),
        ("tools", tools.to_string()),
        ("access", access.unwrap_or_default()),
        ("cannot run", cannot_run.unwrap_or_default()),
        ("waiting for", waits.unwrap_or_default()),
        ("created", view.when(agent.created_at_ms)),
        ("last active", agent.last_active_at_ms.map(|at| view.when(at)).unwrap_or_default()),
    ];
    Ok(Answer::new(&answer, fields(view.screen, &shown)))
}

/// Describes the agent after a change. `done` says what was done, if there was a change.
fn changed(change: AgentChange, done: &str) -> Result<Answer, Failure> {
    let agent = required(change.agent.as_ref(), "agent")?;
    let mut text = if change.changed {
        format!("{} {done}; status: {}", agent.agent_id, agent.status)
    } else {
        format!("{} is already {}", agent.agent_id, agent.status)
    };
    if let Some(left) = &change.left {
        text.push_str(&left_undone(&agent.agent_id, left));
    }
    Ok(Answer::new(&change, text))
}

/// Lines about the remains of a deleted agent: open tasks, dropped messages, an entry in
/// `world-config.yaml`.
fn left_undone(agent_id: &str, left: &AgentLeft) -> String {
    let mut text = String::new();
    if left.tasks_left > 0 {
        let see = format!("`ghostctl task list --owner {agent_id}`");
        text.push_str(&format!("\nopen tasks left: {}; see {see}", left.tasks_left));
    }
    if left.mail_dropped > 0 {
        text.push_str(&format!("\nunread mail dropped: {}", left.mail_dropped));
    }
    if left.comes_back {
        text.push_str(
            "\nworld-config.yaml still declares this agent, so the next start or reload creates it again; remove it from the file, or stop the agent instead",
        );
    }
    text
}

async fn prompt(client: &Client, agent_id: String) -> Result<Answer, Failure> {
    let prompt = client.call(v1::AgentPromptRequest { agent_id: agent_id.clone() }).await?;
    let mut total = PromptSection { part: "total".into(), ..PromptSection::default() };
    for section in &prompt.sections {
        total.bytes = total.bytes.saturating_add(section.bytes);
        total.estimated_tokens = total.estimated_tokens.saturating_add(section.estimated_tokens);
    }
    let tools = parsed(&prompt.tools_json);
    let described = tools.as_array().into_iter().flatten().map(|tool| format!("{}\n", description(tool)));
    let parts = [
        ("System prompt", prompt.system.trim_end().to_owned()),
        ("Briefing", prompt.briefing.trim_end().to_owned()),
        ("History", prompt.history.trim_end().to_owned()),
        ("Tools of the request", described.collect()),
        ("Sizes", table(prompt.sections.iter().chain([&total]), &client.view, SECTIONS)),
    ];
    let shown = parts.iter().filter(|(_, text)| !text.is_empty());
    let text: String = shown.map(|(name, text)| format!("## {name}\n\n{}\n\n", text.trim_end())).collect();
    let json = json!({
        "agent_id": agent_id,
        "model": prompt.model,
        "system": prompt.system,
        "briefing": prompt.briefing,
        "history": prompt.history,
        "tools": tools,
        "system_hash": prompt.system_hash,
        "briefing_hash": prompt.briefing_hash,
        "sections": prompt.sections,
    });
    Ok(Answer::new(&json, text.trim_end()))
}

/// Characters of a task in the table.
const TASK_CHARS: usize = 60;

#[derive(Debug, clap::Subcommand)]
pub enum Droid {
    /// List droids, also those that have ended
    ///
    /// Examples:
    ///   ghostctl droid list
    ///   ghostctl droid list --agent praxis --live
    #[command(verbatim_doc_comment)]
    List {
        /// Show only droids of this agent
        #[arg(long = "agent", id = "parent_id", value_name = "A")]
        agent: Option<String>,
        /// Show only droids that have not ended
        #[arg(long)]
        live: bool,
        #[command(flatten)]
        bound: Bound,
    },
    /// Show a droid: its state, task, tools and result
    ///
    /// Examples:
    ///   ghostctl droid show droid-1a2b3c4d
    ///   ghostctl --json droid show droid-1a2b3c4d | jq .error
    #[command(verbatim_doc_comment)]
    Show {
        /// Droid id
        droid_id: String,
    },
    /// Give a droid guidance; it reads it before its next answer
    ///
    /// Examples:
    ///   ghostctl droid steer droid-1a2b3c4d 'Leave the drafts out'
    #[command(verbatim_doc_comment)]
    Steer {
        /// Droid id
        droid_id: String,
        /// What it should know or do
        message: String,
    },
    /// End a droid; its parent is told
    ///
    /// Examples:
    ///   ghostctl droid kill droid-1a2b3c4d --reason 'no longer needed'
    #[command(verbatim_doc_comment)]
    Kill {
        /// Droid id
        droid_id: String,
        /// Why, for its parent
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

const DROIDS: &[Column<v1::Droid>] = columns![
    "DROID" droid_id, "PARENT" parent_id, "STATE" state, "STARTED" moment created_at_ms, "LABEL" label,
    "TASK" => |droid, _| one_line(&droid.task, TASK_CHARS),
];

impl Droid {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request_id = new_request_id();
        match self {
            Self::List { agent: parent_id, live, bound } => {
                let request = v1::ListDroidsRequest { parent_id, live, ..<_>::default() };
                list(client, &bound, request, DROIDS).await
            }
            Self::Show { droid_id } => {
                let droid = client.call(v1::GetDroidRequest { droid_id }).await?;
                Ok(Answer::new(&droid, droid_text(&droid, &client.view)))
            }
            Self::Steer { droid_id, message } => {
                let droid = client.call(v1::SteerDroidRequest { request_id, droid_id, message }).await?;
                Ok(Answer::new(&droid, format!("{} reads it before its next answer\n", droid.droid_id)))
            }
            Self::Kill { droid_id, reason } => {
                let droid = client.call(v1::KillDroidRequest { request_id, droid_id, reason }).await?;
                Ok(Answer::new(&droid, format!("{} is {}\n", droid.droid_id, droid.state)))
            }
        }
    }
}

/// A droid in lines.
fn droid_text(droid: &v1::Droid, view: &View) -> String {
    let v1::Droid { droid_id, parent_id, state, mode, rounds, calls, .. } = droid;
    let label = droid.label.as_deref().map(|label| format!(" ({label})")).unwrap_or_default();
    let end = match droid.ended_at_ms {
        Some(ended) => format!("ended {}", view.moment(ended)),
        None => format!("its time is over {}", view.moment(droid.deadline_at_ms)),
    };
    let tokens = format!("{} tokens in, {} tokens out", droid.input_tokens, droid.output_tokens);
    let mut lines = vec![
        format!("{droid_id}{label}: {state}, a droid of {parent_id} (mode {mode})"),
        format!("started {}, {end}", view.moment(droid.created_at_ms)),
        format!("output: {}", droid.output_path),
        format!("tools: {}", droid.tools.join(", ")),
        format!("used: {rounds} model calls, {calls} tool calls, {tokens}"),
    ];
    if let Some(error) = &droid.error_json {
        let error = parsed(error);
        let part = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        lines.push(format!("error: {}: {}", part("code"), part("error")));
    }
    lines.push(format!("\nTask:\n{}", droid.task.trim_end()));
    if let Some(result) = &droid.result {
        lines.push(format!("\nAnswer:\n{}", result.trim_end()));
    }
    lines.join("\n") + "\n"
}
