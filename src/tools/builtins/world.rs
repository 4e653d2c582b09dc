//! The tools that show a state: of the world, of an agent, of the host, and of the agent's own sessions.
//!
//! An agent must never read a session of another agent: conversations are private.

use std::path::Path;
use std::time::Duration;

use ghost_config::plan::LlmPlan;
use ghost_domain::session::name_of;
use ghost_domain::{Activity, Timestamp, TurnId};
use ghost_operations::sessions::{self, Author, cut_page, session_named};
use ghost_operations::status::Facts;
use ghost_store::tables::UsageFilter;

use super::agents::{shown, uptime};
use super::common::*;

/// Longest name of a model.
const MODEL_MAX: usize = 200;

pub(super) async fn reflect(call: &CallContext, _: Nothing) -> Result<Output> {
    let now = call.services.ctx.now();
    let (agents, sums, facts) = call
        .services
        .read(move |r| {
            let agents = r.agent_list(false)?;
            let sums = r.usage_sum(&UsageFilter::default())?;
            Ok::<_, Refusal>((agents, sums, Facts::read(r)?))
        })
        .await?;
    let (plan, activities) = (call.services.plan(), call.services.control.activities());
    let rows = agents.iter().map(|agent| {
        without_nulls(json!({
            "agent_id": agent.agent_id, "name": agent.name, "archetype": agent.archetype, "status": agent.status,
            "activity": shown(agent, &activities),
        }))
    });
    let (rows, all) = fitting(rows, LIST_BYTES - 4_096);
    let content = json!({
        "world": plan.name, "world_id": plan.world_id, "time": now.rfc3339(), "you": call.caller.agent_id,
        "agents": rows, "agents_total": agents.len(), "token_usage": usage_json(&sums),
        "uptime_seconds": now.since(call.services.control.started_at()).as_secs(),
        "open_turns": facts.open_turns, "waiting_mail": facts.inbox_total, "dead_letters": facts.dead_letters,
    });
    Ok(Output::cut(content, !all))
}

params! {
    pub(super) struct StatusParams {
        /// The agent; you if absent.
        agent_id: Option<String>,
        /// The model whose card is shown, as `model` or `provider/model`; the agent's own if absent.
        model: Option<String>,
    }
}

/// What is known of a model. Facts that are unknown are left out. Prices are dollars for a million tokens.
fn card(llm: &LlmPlan, provider: &str, model: &str) -> Result<Value> {
    // An agent whose archetype no longer exists has no model.
    let Some(entry) = llm.providers.get(provider) else { return Ok(Value::Null) };
    if model.is_empty() || model.len() > MODEL_MAX {
        return Err(refusal!(InvalidArguments, "model is not the name of a model")
            .hint("write `model` or `provider/model`; without it you get the card of the agent's own model"));
    }
    let (facts, price) = (llm.facts(entry.kind, provider, model), llm.price(entry.kind, provider, model));
    Ok(without_nulls(json!({
        "provider": provider, "model": model, "context_tokens": facts.context_tokens,
        "output_tokens": facts.output_tokens, "input_usd": price.map(|price| price.input.usd()),
        "output_usd": price.map(|price| price.output.usd()),
    })))
}

pub(super) async fn status(call: &CallContext, params: StatusParams) -> Result<Output> {
    let named = params.agent_id.unwrap_or_else(|| call.caller.agent_id.to_string());
    let (agent, sums, queue) = call
        .services
        .read(move |r| {
            let agent = agent_of(r, &named)?;
            let filter = UsageFilter { agent_id: Some(agent.agent_id.clone()), ..UsageFilter::default() };
            let (sums, queue) = (r.usage_sum(&filter)?, r.inbox_depth(&agent.agent_id)?);
            Ok::<_, Refusal>((agent, sums, queue))
        })
        .await?;
    // If the agent's archetype no longer exists, the agent has no model. The rest of its status
    // is still valid.
    let spec = call.services.plan().spec_for(&agent).ok();
    let timezone = spec.as_ref().and_then(|spec| spec.archetype.config.timezone.clone());
    let model = spec.map(|spec| spec.model).unwrap_or_default();
    let activity = shown(&agent, &call.services.control.activities());
    let plan = call.services.plan();
    let own = model.provider.clone().unwrap_or_default();
    let (provider, name) = match params.model.as_deref() {
        Some(named) => plan.llm.fallback_target(&own, named),
        None => (own.as_str(), model.model.as_deref().unwrap_or_default()),
    };
    let card = card(&plan.llm, provider, name)?;
    let content = without_nulls(json!({
        "agent_id": agent.agent_id, "status": agent.status, "activity": activity, "model_card": card,
        "time": call.services.ctx.now().rfc3339(), "timezone": timezone.unwrap_or_else(|| "UTC".into()),
        "provider": model.provider, "model": model.model, "usage": usage_json(&sums), "queue": queue,
        "uptime_seconds": uptime(call, &agent),
    }));
    Ok(content.into())
}

pub(super) async fn usage(call: &CallContext, _: Nothing) -> Result<Output> {
    let tasks = tokio::runtime::Handle::try_current().ok().map(|handle| handle.metrics().num_alive_tasks());
    let activities = call.services.control.activities();
    let awake = activities.values().filter(|activity| **activity != Activity::Asleep).count();
    let data_dir = call.services.data_dir().map(Path::to_owned);
    let (cpu, memory, disk, rss) = call
        .services
        .workspace
        .offload(move || Ok((cpu(), memory(), data_dir.as_deref().and_then(disk), rss())))
        .await?;
    let runtime = without_nulls(json!({ "tasks": tasks, "actors": awake, "rss_bytes": rss }));
    let content = without_nulls(json!({ "cpu": cpu, "memory": memory, "disk": disk, "runtime": runtime }));
    Ok(content.into())
}

fn cpu() -> Value {
    let count = std::thread::available_parallelism().ok().map(usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load: Vec<f64> = load.iter().flat_map(|text| text.split_whitespace().take(3)).flat_map(str::parse).collect();
    let load = (load.len() == 3).then_some(load);
    without_nulls(json!({ "count": count, "load_1_5_15_minutes": load }))
}

fn memory() -> Option<Value> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    Some(without_nulls(json!({
        "total_bytes": kilobytes(&text, "MemTotal:"), "available_bytes": kilobytes(&text, "MemAvailable:"),
    })))
}

fn rss() -> Option<u64> {
    kilobytes(&std::fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The value of a line of `/proc/meminfo`, for example `MemTotal:  8000 kB`, in bytes.
fn kilobytes(text: &str, label: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

fn disk(data_dir: &Path) -> Option<Value> {
    let facts = rustix::fs::statvfs(data_dir).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    Some(json!({ "total_bytes": bytes(facts.f_blocks), "available_bytes": bytes(facts.f_bavail) }))
}

/// The default and the largest number of sessions.
const SESSIONS: u32 = 50;
const SESSIONS_MAX: u32 = 500;
/// The default and the largest number of turns.
const TURNS: u32 = 10;
const TURNS_MAX: u32 = 50;
/// The hint for a number that is too large.
const IN_PAGES: &str = "ask again in pages";

params! {
    pub(super) struct SessionsParams {
        /// Only sessions that were active in the last so many minutes.
        active_minutes: Option<u32>,
        /// The largest number of sessions, up to 500; 50 if absent.
        limit: Option<u32>,
    }
}

pub(super) async fn list_sessions(call: &CallContext, params: SessionsParams) -> Result<Output> {
    let limit = within("limit", params.limit, SESSIONS, SESSIONS_MAX, IN_PAGES)?;
    let now = call.services.ctx.now();
    let since = params.active_minutes.map_or(Timestamp(i64::MIN), |minutes| {
        let span = Duration::from_secs(u64::from(minutes) * 60);
        Timestamp(now.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    });
    let agent_id = call.caller.agent_id.clone();
    let read = call.services.store.read(move |r| sessions::list(r, &agent_id, since, limit));
    let rows = read.await?.into_iter().map(|row| {
        let current = (row.conversation_id == call.conversation_id).then_some(true);
        without_nulls(json!({
            "session": name_of(row.conversation_id), "turns": row.turns, "last_at": row.last_at.rfc3339(),
            "current": current,
        }))
    });
    let (rows, all) = fitting(rows, LIST_BYTES);
    Ok(Output::cut(json!({ "sessions": rows }), !all))
}

params! {
    pub(super) struct HistoryParams {
        /// `own` for your own work, or the id of a conversation; the session of this turn if absent.
        session: Option<String>,
        /// The largest number of turns, up to 50; 10 if absent.
        limit: Option<u32>,
        /// Only turns before this one: `earlier` of the page before.
        before: Option<TurnId>,
        /// Also show calls and their results.
        #[serde(default)]
        include_tools: bool,
    }
}

pub(super) async fn history(call: &CallContext, params: HistoryParams) -> Result<Output> {
    let turns = within("limit", params.limit, TURNS, TURNS_MAX, IN_PAGES)?;
    let session = params.session.as_deref().map_or(Ok(call.conversation_id), session_named)?;
    let agent_id = call.caller.agent_id.clone();
    let read = call.services.store.read(move |r| sessions::history(r, &agent_id, session, params.before, turns));
    let history = read.await?;
    let wanted = history
        .entries
        .iter()
        .filter(|entry| params.include_tools || (entry.tool.is_none() && entry.author != Author::Tool));
    // The newest entries matter most, so they are fitted first.
    let wanted: Vec<_> = wanted.rev().collect();
    let rows = wanted.iter().map(|entry| {
        without_nulls(json!({
            "at": entry.at.rfc3339(), "author": entry.author.as_str(), "tool": entry.tool, "text": entry.text,
        }))
    });
    let (mut rows, all) = fitting(rows, LIST_BYTES);
    let turns: Vec<TurnId> = wanted.iter().map(|entry| entry.turn_id).collect();
    let (shown, earlier) = cut_page(&turns, rows.len(), history.earlier);
    rows.truncate(shown);
    rows.reverse();
    let content = without_nulls(json!({ "session": name_of(session), "entries": rows, "earlier": earlier }));
    Ok(Output::cut(content, !all))
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: BI-26, CONF-24
    #[test]
    fn kernel_values_are_parsed() {
        assert_eq!(kilobytes("A: 1 kB\nMemTotal:   8 kB\n", "MemTotal:"), Some(8_192));
        assert_eq!(kilobytes("MemTotal: x", "MemTotal:"), None);
        assert_eq!(kilobytes(&format!("MemTotal: {} kB", u64::MAX), "MemTotal:"), None);
    }
}
