//! Routes that read: agents, channels, tasks and the ledger. They return the records that
//! `ghostctl --json` prints. Most call the gRPC services; `tools` and `brief` read the agent's registry.
//!
//! A route must never return data that gRPC would not return.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Uri;
use ghost_domain::text::{clip, one_line};
use ghost_domain::transcript::ToolSpec;
use ghost_domain::{Code, Refusal};
use ghost_proto::{json, v1};
use serde_json::{Value, json};

use super::failed::Failed;
use super::params::Params;
use super::rest::Shared;
use crate::control::Control;
use crate::convert::input::PAGE_MAX;
use crate::services::tool_registry::listed;
use crate::services::{agents, approvals, artifacts, chat, grants, ledger, sessions, skills, tasks};

/// A name or id from the path.
pub(super) type Named = Result<Path<String>, PathRejection>;

type Answer = Result<Json<Value>, Failed>;

/// Extracts a name or id from the path.
pub(super) fn named(id: Named) -> Result<String, Refusal> {
    let Path(id) = id.map_err(|rejection| {
        Refusal::new(Code::InvalidArguments, clip(&rejection.body_text(), 200))
            .hint("write a valid name or id into the path")
    })?;
    Ok(id)
}

/// An agent and one of its sessions from the path.
pub(super) type NamedSession = Result<Path<(String, String)>, PathRejection>;

/// Extracts an agent and one of its sessions from the path.
pub(super) fn named_session(path: NamedSession) -> Result<(String, String), Refusal> {
    let Path(both) = path.map_err(|rejection| {
        Refusal::new(Code::InvalidArguments, clip(&rejection.body_text(), 200))
            .hint("write the id of an agent and the name of a session into the path")
    })?;
    Ok(both)
}

/// An empty cursor becomes null.
fn cursor(next: String) -> Value {
    if next.is_empty() { Value::Null } else { next.into() }
}

pub(super) async fn agents(State(rest): Shared, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["status", "archetype", "deleted", "limit", "cursor"], &[])?;
    let request = v1::ListAgentsRequest {
        status: params.text("status"),
        archetype: params.text("archetype"),
        deleted: params.flag("deleted")?,
        limit: params.limit()?,
        cursor: params.text("cursor").unwrap_or_default(),
    };
    let page = agents::list(rest.query(), request).await?;
    Ok(Json(json!({ "agents": page.agents, "next_cursor": cursor(page.next_cursor) })))
}

pub(super) async fn agent(State(rest): Shared, id: Named, uri: Uri) -> Answer {
    Params::read(&uri, &[], &[])?;
    let agent = agents::get(rest.query(), v1::GetAgentRequest { agent_id: named(id)? }).await?;
    Ok(Json(json::value(&agent)))
}

pub(super) async fn channels(State(rest): Shared, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["agent", "limit", "cursor"], &[])?;
    let request = v1::ListChannelsRequest {
        agent_id: params.text("agent"),
        limit: params.limit()?,
        cursor: params.text("cursor").unwrap_or_default(),
    };
    let page = chat::list(rest.query(), request).await?;
    Ok(Json(json!({ "channels": page.channels, "next_cursor": cursor(page.next_cursor) })))
}

pub(super) async fn tools(State(rest): Shared, id: Named, uri: Uri) -> Result<Json<Vec<Value>>, Failed> {
    Params::read(&uri, &[], &[])?;
    let specs = specs(&rest.control, id).await?;
    let row = |spec: &ToolSpec| json!({ "name": spec.name, "description": one_line(&spec.description) });
    Ok(Json(specs.iter().map(row).collect()))
}

pub(super) async fn brief(State(rest): Shared, id: Named, uri: Uri) -> Result<String, Failed> {
    Params::read(&uri, &[], &[])?;
    let specs = specs(&rest.control, id).await?;
    Ok(specs.iter().map(|spec| format!("- {}: {}\n", spec.name, one_line(&spec.description))).collect())
}

async fn specs(control: &Control, id: Named) -> Result<Arc<[ToolSpec]>, Failed> {
    Ok(listed(&control.world, &named(id)?.parse()?).await?)
}

/// Default number of chat messages in a page (CHAT-08).
const HISTORY_LIMIT: usize = 50;

pub(super) async fn messages(State(rest): Shared, channel: Named, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["limit", "before", "after"], &[])?;
    let request = v1::HistoryRequest {
        channel: named(channel)?,
        limit: params.limit()?,
        before_seq: params.number("before")?,
        after_seq: params.number("after")?,
        as_agent: None,
    };
    let (limit, after) = (request.limit, request.after_seq.unwrap_or(0));
    let history = chat::history(rest.query(), request).await?;
    // The newest chat messages are returned, so older ones may be missing if the page is full.
    let full = history.messages.len() >= if limit == 0 { HISTORY_LIMIT } else { (limit as usize).min(PAGE_MAX) };
    let before = history.messages.first().is_some_and(|first| first.seq > after.saturating_add(1));
    let truncated = history.cut || (full && before);
    Ok(Json(json!({ "messages": history.messages, "truncated": truncated })))
}

pub(super) async fn skills(State(rest): Shared, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["agent", "limit", "cursor"], &[])?;
    let request = v1::ListSkillsRequest {
        agent_id: params.text("agent"),
        limit: params.limit()?,
        cursor: params.text("cursor").unwrap_or_default(),
    };
    let page = skills::list(rest.query(), request).await?;
    Ok(Json(json!({ "skills": page.skills, "next_cursor": cursor(page.next_cursor) })))
}

pub(super) async fn skill(State(rest): Shared, name: Named, uri: Uri) -> Answer {
    Params::read(&uri, &[], &[])?;
    let request = v1::GetSkillRequest { name: named(name)? };
    Ok(Json(json::value(&skills::get(rest.query(), request).await?)))
}

pub(super) async fn approvals(State(rest): Shared, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["agent", "status", "always", "limit", "cursor"], &[])?;
    let request = v1::ListApprovalsRequest {
        agent_id: params.text("agent"),
        status: params.text("status"),
        always: params.flag("always")?,
        limit: params.limit()?,
        cursor: params.text("cursor").unwrap_or_default(),
    };
    let page = approvals::list(rest.query(), request).await?;
    Ok(Json(json!({ "approvals": page.approvals, "next_cursor": cursor(page.next_cursor) })))
}

pub(super) async fn approval(State(rest): Shared, id: Named, uri: Uri) -> Answer {
    Params::read(&uri, &[], &[])?;
    Ok(Json(json::value(&approvals::get(rest.query(), v1::GetApprovalRequest { approval_id: named(id)? }).await?)))
}

pub(super) async fn sessions(State(rest): Shared, id: Named, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["since", "limit"], &[])?;
    let request = v1::ListSessionsRequest {
        agent_id: named(id)?,
        since_at_ms: params.since("since", rest.control.world.ctx().now().0)?,
        limit: params.limit()?,
    };
    Ok(Json(json::value(&sessions::list(rest.query(), request).await?)))
}

pub(super) async fn session(State(rest): Shared, path: NamedSession, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["before", "limit"], &[])?;
    let (agent_id, session) = named_session(path)?;
    let (before_turn_id, limit) = (params.text("before"), params.limit()?);
    let request = v1::GetSessionRequest { agent_id, session, before_turn_id, limit };
    Ok(Json(json::value(&sessions::get(rest.query(), request).await?)))
}

pub(super) async fn tasks(State(rest): Shared, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["owner", "status", "limit", "cursor"], &[])?;
    let request = v1::ListTasksRequest {
        owner: params.text("owner"),
        status: params.text("status"),
        limit: params.limit()?,
        cursor: params.text("cursor").unwrap_or_default(),
    };
    let page = tasks::list(rest.query(), request).await?;
    Ok(Json(json!({ "tasks": page.tasks, "next_cursor": cursor(page.next_cursor), "truncated": page.truncated })))
}

pub(super) async fn task(State(rest): Shared, id: Named, uri: Uri) -> Answer {
    Params::read(&uri, &[], &[])?;
    let request = v1::GetTaskRequest { task_id: named(id)? };
    let found = tasks::get(rest.query(), request).await?;
    Ok(Json(json::value(&found)))
}

pub(super) async fn grants(State(rest): Shared, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["agent", "limit", "cursor"], &[])?;
    let request = v1::ListGrantsRequest {
        agent_id: params.text("agent"),
        limit: params.limit()?,
        cursor: params.text("cursor").unwrap_or_default(),
    };
    let page = grants::list(rest.query(), request).await?;
    Ok(Json(json!({ "grants": page.grants, "next_cursor": cursor(page.next_cursor) })))
}

pub(super) async fn artifacts(State(rest): Shared, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["agent", "prefix", "limit", "cursor"], &[])?;
    let request = v1::ListArtifactsRequest {
        prefix: params.text("prefix"),
        agent_id: params.text("agent"),
        limit: params.limit()?,
        cursor: params.text("cursor").unwrap_or_default(),
    };
    let page = artifacts::list(rest.query(), request).await?;
    Ok(Json(json!({ "artifacts": page.artifacts, "next_cursor": cursor(page.next_cursor) })))
}

pub(super) async fn ledger_totals(State(rest): Shared, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["agent", "tool", "status", "turn", "since"], &[])?;
    let request = v1::LedgerTotalsRequest {
        agent_id: params.text("agent"),
        tool: params.text("tool"),
        status: params.text("status"),
        turn_id: params.text("turn"),
        since_at_ms: params.since("since", rest.control.world.ctx().now().0)?,
    };
    Ok(Json(json::value(&ledger::totals(rest.query(), request).await?)))
}

pub(super) async fn ledger(State(rest): Shared, uri: Uri) -> Answer {
    let params = Params::read(&uri, &["agent", "tool", "status", "turn", "since", "limit", "cursor"], &[])?;
    let request = v1::ListLedgerRequest {
        agent_id: params.text("agent"),
        tool: params.text("tool"),
        status: params.text("status"),
        turn_id: params.text("turn"),
        since_at_ms: params.since("since", rest.control.world.ctx().now().0)?,
        limit: params.limit()?,
        cursor: params.text("cursor").unwrap_or_default(),
    };
    let page = ledger::list(rest.query(), request).await?;
    Ok(Json(json!({ "calls": page.rows, "next_cursor": cursor(page.next_cursor) })))
}
