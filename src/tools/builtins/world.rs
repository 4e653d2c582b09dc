//! `syscall.reflect` and `syscall.session.status`: the state of the world and of an agent (BI-20,
//! BI-27).

use async_trait::async_trait;
use ghost_domain::Refusal;
use ghost_operations::mail::agent_named;
use ghost_operations::status::Facts;
use ghost_store::tables::UsageFilter;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::agents::{shown, uptime};
use super::common::{LIST_BYTES, Nothing, agent_id, fitting, usage_json, without_nulls};
use crate::context::CallContext;
use crate::tool::{Output, ReadTool};

pub(super) struct Reflect;

#[async_trait]
impl ReadTool for Reflect {
    type Params = Nothing;

    async fn run(&self, call: &CallContext, _: Nothing) -> Result<Output, Refusal> {
        let now = call.services.ctx.now();
        let (agents, sums, facts) = call
            .services
            .store
            .read(move |r| {
                Box::pin(async move {
                    let agents = r.agent_list(false).await?;
                    let sums = r.usage_sum(&UsageFilter::default()).await?;
                    Ok::<_, Refusal>((agents, sums, Facts::read(r).await?))
                })
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
        Ok(Output { content, truncated: !all, events: Vec::new() })
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusParams {
    /// The agent; you if absent.
    #[serde(default)]
    agent_id: Option<String>,
}

pub(super) struct Status;

#[async_trait]
impl ReadTool for Status {
    type Params = StatusParams;

    async fn run(&self, call: &CallContext, params: StatusParams) -> Result<Output, Refusal> {
        let named = params.agent_id.unwrap_or_else(|| call.caller.agent_id.to_string());
        let (agent, sums, queue) = call
            .services
            .store
            .read(move |r| {
                Box::pin(async move {
                    let target = agent_id(r, &named).await?;
                    let agent = agent_named(r, &target).await?;
                    let filter = UsageFilter { agent_id: Some(target.clone()), ..UsageFilter::default() };
                    let sums = r.usage_sum(&filter).await?;
                    Ok::<_, Refusal>((agent, sums, r.inbox_depth(&target).await?))
                })
            })
            .await?;
        // If the agent's archetype no longer exists, the agent has no model. The rest of its status
        // is still valid.
        let spec = call.services.plan().spec_for(&agent).ok();
        let timezone = spec.as_ref().and_then(|spec| spec.archetype.config.timezone.clone());
        let model = spec.map(|spec| spec.model).unwrap_or_default();
        let activity = shown(&agent, &call.services.control.activities());
        let content = without_nulls(json!({
            "agent_id": agent.agent_id, "status": agent.status, "activity": activity,
            "time": call.services.ctx.now().rfc3339(), "timezone": timezone.unwrap_or_else(|| "UTC".into()),
            "provider": model.provider, "model": model.model, "usage": usage_json(&sums), "queue": queue,
            "uptime_seconds": uptime(call, &agent),
        }));
        Ok(content.into())
    }
}
