//! `syscall.reflect` and `syscall.session.status`: the state of the world and of an agent (BI-20,
//! BI-27).

use ghost_config::plan::LlmPlan;
use ghost_domain::{Code, Refusal};
use ghost_operations::mail::agent_named;
use ghost_operations::status::Facts;
use ghost_store::tables::UsageFilter;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::agents::{shown, uptime};
use super::common::{LIST_BYTES, Nothing, agent_id, fitting, usage_json, without_nulls};
use crate::context::CallContext;
use crate::effect::Output;

/// Longest name of a model.
const MODEL_MAX: usize = 200;

pub(super) async fn reflect(call: &CallContext, _: Nothing) -> Result<Output, Refusal> {
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

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusParams {
    /// The agent; you if absent.
    agent_id: Option<String>,
    /// The model whose card is shown, as `model` or `provider/model`; the agent's own if absent.
    model: Option<String>,
}

/// What is known of a model. Facts that are unknown are left out. Prices are dollars for a million tokens.
fn card(llm: &LlmPlan, provider: &str, model: &str) -> Result<Value, Refusal> {
    // An agent whose archetype no longer exists has no model.
    let Some(entry) = llm.providers.get(provider) else { return Ok(Value::Null) };
    if model.is_empty() || model.len() > MODEL_MAX {
        return Err(Refusal::new(Code::InvalidArguments, "model is not the name of a model")
            .hint("write `model` or `provider/model`; without it you get the card of the agent's own model"));
    }
    let (facts, price) = (llm.facts(entry.kind, provider, model), llm.price(entry.kind, provider, model));
    Ok(without_nulls(json!({
        "provider": provider, "model": model, "context_tokens": facts.context_tokens,
        "output_tokens": facts.output_tokens, "input_usd": price.map(|price| price.input.usd()),
        "output_usd": price.map(|price| price.output.usd()),
    })))
}

pub(super) async fn status(call: &CallContext, params: StatusParams) -> Result<Output, Refusal> {
    let named = params.agent_id.unwrap_or_else(|| call.caller.agent_id.to_string());
    let (agent, sums, queue) = call
        .services
        .read(move |r| {
            let target = agent_id(r, &named)?;
            let agent = agent_named(r, &target)?;
            let filter = UsageFilter { agent_id: Some(target.clone()), ..UsageFilter::default() };
            let sums = r.usage_sum(&filter)?;
            Ok::<_, Refusal>((agent, sums, r.inbox_depth(&target)?))
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
