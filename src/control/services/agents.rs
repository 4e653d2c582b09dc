//! The services `Agents` and `Droids`. The memory files of an agent are listed and read through a capability to its directory, so no path
//! and no symbolic link can leave it.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use ghost_agent::prompt::{self, Part};
use ghost_config::plan::Plan;
use ghost_domain::approval::SHOWN_MAX;
use ghost_domain::text::prefix_bytes;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Agent, AgentId, AgentKind, AgentStatus, Approval, Code, Desired, Droid, Limits, Party, Refusal};
use ghost_operations::agents::{self as rules, NewAgent};
use ghost_operations::mail::Chain;
use ghost_operations::{Tx, droids};
use ghost_proto::v1;
use ghost_tools::AgentControl;
use ghost_tools::builtins::wanted_heartbeat;
use ghost_tools::workspace::Workspace;
use ghost_world::AgentCard;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::control::Control;
use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// Name of the list, for its cursors.
const LIST: &str = "agents";
/// Largest length of an agent's or archetype's name, in characters.
const NAME_MAX: usize = 100;
/// Largest length of a reason, in characters.
const REASON_MAX: usize = 300;
/// Largest size of overrides, in bytes.
const OVERRIDES_MAX: u32 = 16 * 1024;
/// How long to wait until a committed change is visible in memory.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);

/// The stored answer of a creation.
#[derive(Serialize, Deserialize)]
struct Created {
    #[serde(flatten)]
    agent: Agent,
    /// Answers of earlier versions lack this field; they were only stored for new agents.
    #[serde(default = "default_true")]
    changed: bool,
}

/// The stored answer of a deletion.
#[derive(Serialize, Deserialize)]
struct Deleted {
    #[serde(flatten)]
    agent: Agent,
    /// Answers of earlier versions lack this field.
    #[serde(default)]
    left: Option<rules::Left>,
}

fn default_true() -> bool {
    true
}

/// Checks a request to create an agent as far as that needs no stored records. The result does the rest.
fn creation(
    request: v1::CreateAgentRequest,
    limits: &Limits,
    plan: Arc<Plan>,
) -> Result<impl FnOnce(&mut Tx, &Party) -> Result<Created> + use<>> {
    let archetype = input::line("archetype", &request.archetype, NAME_MAX)?;
    let agent_id = input::parsed_if("agent_id", request.agent_id.as_deref())?;
    let name = input::line_if("name", request.name.as_deref(), NAME_MAX)?;
    let goal = request.goal.as_deref().map(|goal| input::prose("goal", goal, limits.message_bytes)).transpose()?;
    let overrides = input::object("overrides_json", &request.overrides_json, OVERRIDES_MAX)?;
    Ok(move |w: &mut Tx, by: &Party| {
        plan.check_overrides_of(&archetype, &overrides)?;
        let agent_id: AgentId = match agent_id {
            Some(agent_id) => agent_id,
            None => rules::free_id(w, &archetype)?,
        };
        if plan.agent(&agent_id).is_some() {
            let existing = w.agent_get(&agent_id)?;
            return Err(rules::reserved(w.ctx, by, &agent_id, existing.as_ref()));
        }
        let new = NewAgent {
            name: name.unwrap_or_else(|| agent_id.to_string()),
            agent_id,
            team: None,
            kind: AgentKind::Dynamic,
            desired: Desired::Running,
            overrides,
            daily_money: plan.archetypes.get(&archetype).and_then(|archetype| archetype.config.daily_money),
            heartbeat: plan.archetype_heartbeats.get(&archetype).map(wanted_heartbeat),
            archetype,
            owner: None,
            goal,
            chain: Chain::root(w.ctx),
        };
        let (agent, changed) = rules::create_once(w, by, new)?;
        Ok(Created { agent, changed })
    })
}

/// What an agent waits for while an approval is pending.
fn waits_for(approval: &Approval) -> String {
    let summary: String = approval.plan.summary().chars().take(SHOWN_MAX).collect();
    format!("an approval (`ghostctl approval show {}`): {summary}", approval.approval_id)
}

pub(crate) async fn list(cx: Query, request: v1::ListAgentsRequest) -> Result<v1::ListAgentsResponse> {
    let status: Option<AgentStatus> = input::parsed_if("status", request.status.as_deref())?;
    let archetype = match input::line_if("archetype", request.archetype.as_deref(), NAME_MAX)? {
        Some(name) => Some(queries::archetype_in_filter(&cx.world, &name).await?),
        None => None,
    };
    let after: Option<AgentId> = input::after(LIST, &request.cursor)?;
    let limit = input::page(request.limit);
    let matches = |has: AgentStatus, of: &str| {
        status.is_none_or(|status| has == status) && archetype.as_ref().is_none_or(|archetype| of == archetype)
    };
    let world = &cx.world;
    let (agents, more): (Vec<v1::Agent>, bool) = if request.deleted {
        let activities = world.directory().activities();
        let all = queries::all_agents(world).await?;
        let rest = all.iter().filter(|agent| after.as_ref().is_none_or(|after| agent.agent_id > *after));
        let mut found = rest.filter(|agent| matches(agent.status, &agent.archetype)).fuse();
        let to_wire = |agent: &Agent| convert::agent(agent, activities.get(&agent.agent_id).copied());
        (found.by_ref().take(limit).map(to_wire).collect(), found.next().is_some())
    } else {
        let mut cards: Vec<AgentCard> = world.directory().cards_after(after, limit.saturating_add(1), matches);
        let more = cards.len() > limit;
        cards.truncate(limit);
        let records = cx.agents_read.records(world, &cards).await?;
        let to_wire = |(card, record): (&AgentCard, &Option<Arc<Agent>>)| {
            record.as_deref().map(|record| convert::agent_card(card, record))
        };
        (cards.iter().zip(&records).filter_map(to_wire).collect(), more)
    };
    let (agents, next_cursor) = queries::sealed(LIST, agents, more, |last| &last.agent_id);
    Ok(v1::ListAgentsResponse { agents, next_cursor })
}

pub(crate) async fn get(cx: Query, request: v1::GetAgentRequest) -> Result<v1::GetAgentResponse> {
    let agent_id: AgentId = input::parsed("agent_id", &request.agent_id)?;
    let world = &cx.world;
    let details = cx.agents_read.at_work(world, &agent_id).await?;
    let agent = match world.directory().card(&agent_id) {
        Some(card) if card.incarnation == details.work.agent.incarnation => {
            convert::agent_card(&card, &details.work.agent)
        }
        // The agent was created a moment ago and is not in memory yet.
        _ => convert::agent(&details.work.agent, None),
    };
    // No event reports that an agent waits for a model, so this is read on each request.
    let waiting_for = details
        .work
        .parked
        .clone()
        .or_else(|| world.ctx().waiting(&agent_id).map(|wait| wait.reason.to_string()))
        .or_else(|| details.work.approval.as_ref().map(waits_for));
    Ok(v1::GetAgentResponse {
        agent: Some(agent),
        inbox_pending: details.work.inbox_pending,
        turn_id: details.work.turn_id.map(|id| id.to_string()),
        model: details.model.clone(),
        tools: details.tools,
        access: details.access.map(str::to_owned),
        cannot_run: details.cannot_run.clone(),
        waits: waiting_for.map(|reason| world.ctx().redactor.redact(&reason)),
    })
}

pub(crate) async fn prompt(cx: Query, request: v1::AgentPromptRequest) -> Result<v1::AgentPromptResponse> {
    let preview = cx.world.preview(&input::parsed("agent_id", &request.agent_id)?).await?;
    let (system, briefing) = (prompt::join(&preview.system), prompt::join(&preview.briefing));
    let (system, briefing) = (Part::new(system), Part::new(briefing));
    let tools: Vec<Value> = preview
        .tools
        .iter()
        .map(|tool| json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters }))
        .collect();
    let section = |size: prompt::Size| v1::PromptSection {
        part: size.part.to_owned(),
        name: size.name.to_owned(),
        bytes: size.bytes,
        estimated_tokens: size.estimated_tokens,
    };
    Ok(v1::AgentPromptResponse {
        sections: preview.sizes().into_iter().map(section).collect(),
        system: system.text,
        briefing: briefing.text,
        tools_json: Value::Array(tools).to_string(),
        model: preview.spec.model.model,
        system_hash: system.hash,
        briefing_hash: briefing.hash,
        history: preview.history,
    })
}

pub(crate) async fn inspect(cx: Query, request: v1::InspectAgentRequest) -> Result<v1::InspectAgentResponse> {
    let agent_id: AgentId = input::parsed("agent_id", &request.agent_id)?;
    let world = &cx.world;
    queries::at_work(world, &agent_id).await?;
    let world_services = &world.engine().services;
    let Some(data) = world_services.data_dir() else {
        return Err(Refusal::new(Code::Unavailable, "this world has no memory files").hint("ask the agent itself"));
    };
    let file_max = world.ctx().limits().file_bytes;
    let limit = if request.limit == 0 { file_max } else { request.limit.min(file_max) };
    inspect_memory(&world_services.workspace, data, agent_id, request.path.as_deref(), limit).await
}

/// Waits up to `SETTLE_TIMEOUT` until memory shows a committed change, so that the caller's
/// next list contains it.
async fn settle(cx: &Control, agent_id: &AgentId, shows: impl Fn(Option<AgentCard>) -> bool) {
    let world = &cx.world;
    let mut changes = world.directory().changes();
    let poll = async {
        while !shows(world.directory().card(agent_id)) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = poll => {}
        // The supervisor is busy or ending. Memory follows the committed record later.
        () = world.ctx().ports.clock.sleep(SETTLE_TIMEOUT) => {}
    }
}

fn change(cx: &Control, agent: &Agent, changed: bool) -> v1::AgentChange {
    let activity = cx.world.directory().card(&agent.agent_id).map(|card| card.activity);
    v1::AgentChange { agent: Some(convert::agent(agent, activity)), changed, left: None }
}

/// Waits until a stopping agent has stopped. A turn that outlasts the grace period is interrupted
/// and stays open; it continues when the agent is started again.
async fn stopped(cx: &Control, agent_id: &AgentId, grace: Option<Duration>) -> Result<Agent> {
    let world = &cx.world;
    if let Some(grace) = grace {
        world.hasten_stop(agent_id, grace).await?;
    }
    world.wait_until_stopped(agent_id).await
}

pub(crate) async fn create(cx: Mutation, request: v1::CreateAgentRequest) -> Result<v1::AgentChange> {
    let creation = creation(request, &cx.world.ctx().limits(), cx.world.plan())?;
    let Created { agent, changed } = cx.once(creation).await?;
    settle(&cx, &agent.agent_id, |card| card.is_some_and(|card| card.incarnation >= agent.incarnation)).await;
    Ok(change(&cx, &agent, changed))
}

pub(crate) async fn start(cx: Mutation, request: v1::StartAgentRequest) -> Result<v1::AgentChange> {
    let agent_id: AgentId = input::parsed("agent_id", &request.agent_id)?;
    let id = agent_id.clone();
    let (agent, changed) = cx.once(move |w, by| rules::start(w, by, &id)).await?;
    let runs = |card: Option<AgentCard>| {
        card.is_none_or(|card| !matches!(card.status, AgentStatus::Stopped | AgentStatus::Stopping))
    };
    settle(&cx, &agent_id, runs).await;
    Ok(change(&cx, &agent, changed))
}

pub(crate) async fn stop(cx: Mutation, request: v1::StopAgentRequest) -> Result<v1::AgentChange> {
    let agent_id: AgentId = input::parsed("agent_id", &request.agent_id)?;
    let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX)?;
    // 0 is a valid grace period.
    let grace = match request.grace_ms {
        Some(0) => Some(Duration::ZERO),
        grace => input::wait("grace_ms", grace)?,
    };
    let id = agent_id.clone();
    let (_, changed) = cx.once(move |w, by| rules::stop(w, by, &id, reason.as_deref())).await?;
    let agent = stopped(&cx, &agent_id, grace).await?;
    settle(&cx, &agent_id, |card| card.is_none_or(|card| card.status == agent.status)).await;
    Ok(change(&cx, &agent, changed))
}

pub(crate) async fn delete(cx: Mutation, request: v1::DeleteAgentRequest) -> Result<v1::AgentChange> {
    let agent_id: AgentId = input::parsed("agent_id", &request.agent_id)?;
    let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX)?;
    let id = agent_id.clone();
    let Deleted { agent, left } = cx
        .once(move |w, by| {
            let done = rules::delete_because(w, by, &id, reason.as_deref())?;
            Ok(Deleted { agent: done.agent, left: Some(done.left) })
        })
        .await?;
    settle(&cx, &agent_id, |card| card.is_none_or(|card| card.incarnation > agent.incarnation)).await;
    let mut change = change(&cx, &agent, true);
    let comes_back = cx.world.plan().agent(&agent_id).is_some();
    change.left =
        left.map(|left| v1::AgentLeft { mail_dropped: left.mail_dropped, tasks_left: left.tasks_left, comes_back });
    Ok(change)
}

/// Largest number of listed files, and of directory levels.
const FILES_MAX: usize = 500;
const DEPTH_MAX: u32 = 4;

/// Lists the memory files of an agent, or reads one of them up to `limit` bytes.
async fn inspect_memory(
    workspace: &Workspace,
    data: &Path,
    agent_id: AgentId,
    path: Option<&str>,
    limit: u32,
) -> Result<v1::InspectAgentResponse, Refusal> {
    let path = path.map(|path| WorkspacePath::parse(path, false)).transpose().map_err(|refusal| Refusal {
        code: Code::InvalidArguments,
        details: Some(serde_json::json!({ "field": "path" })),
        ..refusal
    })?;
    let root = data.join("agents").join(agent_id.as_str()).join("memory");
    workspace
        .offload(move || {
            let memory = match Dir::open_ambient_dir(&root, ambient_authority()) {
                Ok(memory) => Some(memory),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(unreadable("memory", &error)),
            };
            match (memory, path) {
                (Some(memory), Some(path)) => memory_file(&memory, &path, limit),
                (None, Some(path)) => Err(missing(&path)),
                (Some(memory), None) => {
                    let mut listing = v1::InspectAgentResponse::default();
                    list_memory(&memory, "", DEPTH_MAX, &mut listing).map_err(|error| unreadable("memory", &error))?;
                    listing.files.sort_by(|a, b| a.path.cmp(&b.path));
                    Ok(listing)
                }
                (None, None) => Ok(v1::InspectAgentResponse::default()),
            }
        })
        .await
}

fn unreadable(what: &str, error: &std::io::Error) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{what} cannot be read: {error}"))
        .hint("check the permissions of the data directory")
}

fn missing(path: &WorkspacePath) -> Refusal {
    Refusal::not_found("memory file", path.as_str(), None).hint("omit the path to list the files")
}

fn memory_file(memory: &Dir, path: &WorkspacePath, limit: u32) -> Result<v1::InspectAgentResponse, Refusal> {
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => missing(path),
        _ => unreadable(path.as_str(), &error),
    };
    // Checked before opening, because opening a named pipe would block until a writer comes.
    if !memory.symlink_metadata(path.as_str()).map_err(failed)?.is_file() {
        return Err(missing(path));
    }
    let mut bytes = Vec::new();
    let opened = memory.open(path.as_str()).map_err(failed)?;
    opened.take(u64::from(limit) + 1).read_to_end(&mut bytes).map_err(failed)?;
    let truncated = bytes.len() > limit as usize;
    let text = String::from_utf8_lossy(&bytes);
    let content = prefix_bytes(&text, limit as usize).to_owned();
    Ok(v1::InspectAgentResponse { files: Vec::new(), content: Some(content), truncated })
}

fn list_memory(dir: &Dir, under: &str, depth: u32, listing: &mut v1::InspectAgentResponse) -> std::io::Result<()> {
    for entry in dir.entries()? {
        let entry = entry?;
        // A name that is not UTF-8 cannot be requested either.
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if under.is_empty() { name } else { format!("{under}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if depth > 1 {
                list_memory(&entry.open_dir()?, &path, depth - 1, listing)?;
            } else {
                listing.truncated = true;
            }
        } else if kind.is_file() {
            if listing.files.len() >= FILES_MAX {
                listing.truncated = true;
                return Ok(());
            }
            let metadata = entry.metadata()?;
            let modified = metadata.modified()?.into_std().duration_since(UNIX_EPOCH).unwrap_or_default();
            listing.files.push(v1::MemoryFile {
                path,
                size_bytes: metadata.len(),
                modified_at_ms: i64::try_from(modified.as_millis()).unwrap_or(i64::MAX),
            });
        }
    }
    Ok(())
}

/// Largest length of a droid's id as a caller writes it, in characters.
const DROID_ID_MAX: usize = 64;
/// Largest length of a reason, in characters.
const DROID_REASON_MAX: usize = 1_000;

pub(crate) async fn list_droids(cx: Query, request: v1::ListDroidsRequest) -> Result<v1::ListDroidsResponse> {
    let world = &cx.world;
    let parent = queries::agent_in_filter(world, "parent_id", request.parent_id.as_deref()).await?;
    let (after, live): (Option<AgentId>, _) = (input::after("droids", &request.cursor)?, request.live);
    let read = move |r: &mut ghost_store::Tx, most| {
        if !live {
            return r.droid_list(parent.as_ref(), after.as_ref(), most);
        }
        let mut found = r.droids_live()?;
        found.retain(|droid| parent.as_ref().is_none_or(|parent| droid.parent_id == *parent));
        found.retain(|droid| after.as_ref().is_none_or(|after| droid.droid_id > *after));
        Ok(found)
    };
    let page = queries::page(world, request.limit, read, |droid: &Droid| droid.droid_id.to_string()).await?;
    let (rows, next_cursor) = page.sealed("droids", |droid| convert::droid(droid, cx.redactor()));
    Ok(v1::ListDroidsResponse { droids: rows, next_cursor })
}

pub(crate) async fn get_droid(cx: Query, request: v1::GetDroidRequest) -> Result<v1::Droid> {
    let droid_id = input::line("droid_id", &request.droid_id, DROID_ID_MAX)?;
    let read = cx.world.store().read(move |r| droids::named(r, &droid_id));
    Ok(convert::droid(&read.await?, cx.redactor()))
}

pub(crate) async fn steer_droid(cx: Mutation, request: v1::SteerDroidRequest) -> Result<v1::Droid> {
    let droid_id = input::line("droid_id", &request.droid_id, DROID_ID_MAX)?;
    let message = request.message;
    let steered = cx.once(move |w, by| droids::steer(w, by, &droid_id, &message, None));
    Ok(convert::droid(&steered.await?, cx.redactor()))
}

pub(crate) async fn kill_droid(cx: Mutation, request: v1::KillDroidRequest) -> Result<v1::Droid> {
    let droid_id = input::line("droid_id", &request.droid_id, DROID_ID_MAX)?;
    let reason = input::line_if("reason", request.reason.as_deref(), DROID_REASON_MAX)?;
    let ended = cx.once(move |w, by| droids::kill(w, by, &droid_id, reason.as_deref()));
    Ok(convert::droid(&ended.await?, cx.redactor()))
}
