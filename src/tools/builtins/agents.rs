//! The tools for agents: list, create, start, stop, delete, and read another agent's memory

use std::collections::BTreeMap;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use ghost_config::plan::HeartbeatPlan;
use ghost_domain::text::one_line;
use ghost_domain::{Activity, Agent, AgentId, AgentKind, AgentStatus, Code, Desired};
use ghost_operations::agents::{self as rules, NewAgent};
use ghost_operations::schedules::Wanted;
use serde_json::Map;

use super::common::*;
use crate::workspace::{Lines, io_refusal, list_dir, read_text};

/// The largest number of characters in an agent's name.
const NAME_MAX: usize = 100;
/// The largest number of memory files in a list, and of directory levels.
const MEMORY_FILES: usize = 500;
const MEMORY_DEPTH: u32 = 4;
/// The longest grace period of a stop, in seconds, as for `limits.stop_grace_seconds`.
const GRACE_MAX: u32 = 3_600;
/// The hint for a path that is not a memory file.
const MEMORY_HINT: &str = "give the path of a text file of its memory; without a path the call lists them";

params! {
    pub(super) struct ListParams {
        /// Only agents with this status.
        status: Option<AgentStatus>,
        /// Only agents of this archetype.
        archetype: Option<String>,
    }

    pub(super) struct CreateParams {
        /// The archetype of the new agent; the world decides which ones agents may use.
        archetype: String,
        /// The id of the new agent: lower-case letters, digits, '.', '_' and '-'. Derived from the archetype if absent.
        agent_id: Option<AgentId>,
        /// The name of the new agent for display.
        name: Option<String>,
        /// The agent that owns the new one, pays for it and may delete it: you if absent, or an agent that you created.
        owner: Option<String>,
        /// Settings that narrow its archetype: model, max_tokens, turn_rounds_max, tools. Nothing can be widened.
        overrides: Option<Map<String, Value>>,
        /// The first message to the new agent; without it the agent waits for a message.
        goal: Option<String>,
    }

    pub(super) struct StartParams {
        /// The agent to start.
        agent_id: String,
    }

    pub(super) struct StopParams {
        /// The agent to stop.
        agent_id: String,
        /// The reason, shown to everyone who asks for it.
        reason: Option<String>,
        /// Seconds that its turn may still run, at most 3600; the world's setting if absent.
        #[schemars(range(max = 3600))]
        grace_seconds: Option<u32>,
    }

    pub(super) struct DeleteParams {
        /// The agent to delete: one that you created.
        agent_id: String,
        /// The reason, shown to everyone who asks for it.
        reason: Option<String>,
    }

    pub(super) struct InspectParams {
        /// The agent whose memory you want to read.
        agent_id: String,
        /// The memory file to read, as the list shows it; without it the files are listed.
        path: Option<String>,
        /// The largest number of lines to read or files to list.
        #[schemars(range(min = 1))]
        limit: Option<u32>,
    }
}

pub(super) async fn list(call: &CallContext, params: ListParams) -> Result<Output> {
    let agents = call.services.store.read(|r| Ok::<_, Refusal>(r.agent_list(false)?)).await?;
    let (status, activities) = (params.status, call.services.control.activities());
    let selected = agents.iter().filter(|agent| {
        // Nobody but its parent has to do with a droid.
        agent.kind != AgentKind::Droid
            && status.is_none_or(|status| agent.status == status)
            && params.archetype.as_ref().is_none_or(|archetype| agent.archetype == *archetype)
    });
    let rows = selected.map(|agent| {
        without_nulls(json!({
            "agent_id": agent.agent_id, "name": agent.name, "archetype": agent.archetype, "status": agent.status,
            "activity": shown(agent, &activities), "uptime_seconds": uptime(call, agent),
        }))
    });
    Ok(listed(rows))
}

/// The activity of an agent; `None` unless it runs.
pub(super) fn shown(agent: &Agent, activities: &BTreeMap<AgentId, Activity>) -> Option<Activity> {
    activities.get(&agent.agent_id).copied().filter(|_| agent.status == AgentStatus::Running)
}

/// Seconds since a running agent was able to work: since the daemon began to serve the world, or
/// since the agent was last started or restarted.
pub(super) fn uptime(call: &CallContext, agent: &Agent) -> Option<u64> {
    // A record of an earlier version has no start time. The creation time is the best estimate.
    let started = agent.started_at.unwrap_or(agent.created_at);
    let since = call.services.control.started_at().max(started);
    (agent.status == AgentStatus::Running).then(|| call.services.ctx.now().since(since).as_secs())
}

/// The heartbeat that an agent should have.
pub fn wanted_heartbeat(heartbeat: &HeartbeatPlan) -> Wanted {
    let every_ms = u64::try_from(heartbeat.every.as_millis()).unwrap_or(u64::MAX);
    Wanted { every_ms, target: heartbeat.target.clone() }
}

pub(super) fn create(call: &CallContext, params: CreateParams, w: &mut Tx) -> Result<Output> {
    let overrides = params.overrides.map_or(Value::Null, Value::Object);
    let plan = call.services.plan();
    plan.check_create(&params.archetype, &overrides)?;
    if let Some(goal) = &params.goal {
        not_blank("goal", goal)?;
    }
    let new_id = match params.agent_id {
        Some(new_id) => new_id,
        None => rules::free_id(w, &params.archetype)?,
    };
    if plan.agent(&new_id).is_some() {
        let existing = w.agent_get(&new_id)?;
        return Err(rules::reserved(&call.services.ctx, &call.party(), &new_id, existing.as_ref()));
    }
    let daily_money = plan.archetypes.get(&params.archetype).and_then(|archetype| archetype.config.daily_money);
    let heartbeat = plan.archetype_heartbeats.get(&params.archetype).map(wanted_heartbeat);
    let owner = match &params.owner {
        None => None,
        Some(named) => {
            let owner = agent_id(w, named)?;
            rules::may_own(w, &call.caller.agent_id, &owner)?;
            Some(owner)
        }
    };
    // Line breaks become spaces. The creation rule refuses other invalid characters.
    let plain = |name: &str| name.split_whitespace().collect::<Vec<_>>().join(" ");
    let name = params.name.as_deref().map(plain).filter(|name| !name.is_empty());
    let new = NewAgent {
        name: name.map_or_else(|| new_id.to_string(), |name| call.services.ctx.excerpt(&name, NAME_MAX)),
        agent_id: new_id,
        archetype: params.archetype,
        team: None,
        kind: AgentKind::Dynamic,
        desired: Desired::Running,
        overrides,
        daily_money,
        heartbeat,
        owner,
        goal: params.goal,
        chain: call.chain(),
    };
    let (agent, changed) = rules::create_once(w, &call.party(), new)?;
    let content = json!({
        "agent_id": agent.agent_id, "archetype": agent.archetype, "name": agent.name, "status": agent.status,
        "changed": changed,
    });
    Ok(content.into())
}

pub(super) fn start(call: &CallContext, params: StartParams, w: &mut Tx) -> Result<Output> {
    let target = agent_id(w, &params.agent_id)?;
    let (agent, changed) = rules::start(w, &call.party(), &target)?;
    Ok(json!({ "agent_id": agent.agent_id, "status": agent.status, "changed": changed }).into())
}

pub(super) fn stop(call: &CallContext, params: StopParams, w: &mut Tx) -> Result<Output> {
    let target = agent_id(w, &params.agent_id)?;
    let reason = params.reason.as_deref().map(one_line).filter(|reason| !reason.is_empty());
    let (by, reason) = (call.party(), reason.as_deref());
    let (agent, changed) = match params.grace_seconds {
        None => rules::stop(w, &by, &target, reason)?,
        Some(seconds) => rules::stop_within(w, &by, &target, reason, seconds.min(GRACE_MAX))?,
    };
    Ok(json!({ "agent_id": agent.agent_id, "status": agent.status, "changed": changed }).into())
}

pub(super) fn delete(call: &CallContext, params: DeleteParams, w: &mut Tx) -> Result<Output> {
    let target = agent_id(w, &params.agent_id)?;
    let reason = params.reason.as_deref().map(one_line).filter(|reason| !reason.is_empty());
    let gone = rules::delete_own(w, &call.party(), &target, reason.as_deref())?;
    let left = gone.left;
    let content = json!({
        "agent_id": gone.agent.agent_id, "deleted": true, "mail_dropped": left.mail_dropped, "tasks_left": left.tasks_left,
    });
    Ok(content.into())
}

pub(super) async fn inspect(call: &CallContext, params: InspectParams) -> Result<Output> {
    let target = call.services.read(move |r| agent_of(r, &params.agent_id)).await?.agent_id;
    let Some(data) = call.services.data_dir() else {
        return Err(refusal!(Unavailable, "this world keeps no memory files").hint("ask the agent itself instead"));
    };
    let (root, inside) = (data.join("agents"), format!("{target}/memory"));
    if params.limit == Some(0) {
        return Err(refusal!(InvalidArguments, "limit is 0; it must be 1 or more")
            .hint("leave it out to get as much as one result holds"));
    }
    let selected = params.path.as_deref().map(|path| WorkspacePath::parse(path, false)).transpose();
    let selected = selected.map_err(|refusal| refusal.hint(MEMORY_HINT))?;
    let max_bytes = call.services.ctx.limits().file_bytes as usize;
    call.services
        .workspace
        .offload(move || {
            let memory = Dir::open_ambient_dir(&root, ambient_authority()).and_then(|dir| dir.open_dir(&inside));
            let memory = match memory {
                Ok(memory) => Some(memory),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => return Err(io_refusal("open", &inside, &error)),
            };
            match selected {
                Some(path) => memory_file(memory.as_ref(), &target, &path, params.limit, max_bytes),
                None => memory_files(memory.as_ref(), &target, params.limit),
            }
        })
        .await
}

fn memory_file(
    memory: Option<&Dir>,
    target: &AgentId,
    path: &WorkspacePath,
    limit: Option<u32>,
    max_bytes: usize,
) -> Result<Output> {
    // The hints of workspace refusals do not apply to memory files.
    let with_memory_hint = |refusal: Refusal| match refusal.code {
        Code::NotFound | Code::PathDenied | Code::InvalidArguments => refusal.hint(MEMORY_HINT),
        _ => refusal,
    };
    let memory = memory.ok_or_else(|| with_memory_hint(Refusal::not_found("memory file", path.as_str(), None)))?;
    let lines = Lines { first: 1, skip: 0, count: limit.map(u64::from), max_bytes };
    let text = read_text(memory, path, lines).map_err(with_memory_hint)?;
    let content = json!({
        "agent_id": target, "path": path.as_str(), "content": text.content, "truncated": text.truncated,
    });
    Ok(Output::cut(content, text.truncated))
}

fn memory_files(memory: Option<&Dir>, target: &AgentId, limit: Option<u32>) -> Result<Output> {
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MEMORY_FILES).min(MEMORY_FILES);
    let listing = match memory {
        Some(memory) => list_dir(memory, &WorkspacePath::parse("", true)?, MEMORY_DEPTH, None, limit)?,
        None => Default::default(),
    };
    let (files, all) = fitting(listing.entries.iter().map(|entry| json!(entry)), LIST_BYTES);
    let truncated = listing.truncated || !all;
    let content = json!({ "agent_id": target, "files": files, "truncated": truncated });
    Ok(Output::cut(content, truncated))
}
