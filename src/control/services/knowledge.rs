//! The services `Knowledge` and `State`: what the agents of a world share.

use ghost_domain::knowledge::grantees;
use ghost_domain::text::clip;
use ghost_domain::{Grantee, Limits, Refusal, StateEntry};
use ghost_operations::knowledge::{self as rules, Wanted, WithVersions, Writing};
use ghost_operations::shared_state::{self, Listed, Setting};
use ghost_proto::v1;

use crate::act_as::Acting;
use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// Largest length of a search text or tag, in characters.
const QUERY_MAX: usize = 200;

/// A list of readers or writers. `None` leaves the list as it is; `clear` empties it.
fn people(field: &str, texts: &[String], clear: &[String]) -> Result<Option<Vec<Grantee>>> {
    let list = grantees(field, texts)
        .map_err(|refusal| Refusal { details: Some(serde_json::json!({ "field": field })), ..refusal })?;
    Ok(list_or_clear(list, field, clear))
}

fn list_or_clear<T>(list: Vec<T>, field: &str, clear: &[String]) -> Option<Vec<T>> {
    (!list.is_empty() || clear.iter().any(|name| name == field)).then_some(list)
}

fn writing(limits: &Limits, request: &v1::WriteKnowledgeRequest) -> Result<Writing> {
    for field in &request.clear {
        let texts = match field.as_str() {
            "tags" => &request.tags,
            "readers" => &request.readers,
            "writers" => &request.writers,
            other => {
                return Err(input::bad("clear", format!("names `{}`", clip(other, 60)))
                    .hint("it may name tags, readers and writers"));
            }
        };
        if !texts.is_empty() {
            return Err(input::bad("clear", format!("names {field}, which is also given"))
                .hint("give the list as it should be, or clear it"));
        }
    }
    let title = (!request.title.is_empty()).then_some(request.title.as_str());
    Ok(Writing {
        entry_id: request.entry_id.clone(),
        content: input::prose("content", &request.content, limits.knowledge_bytes)?,
        title: input::line_if("title", title, ghost_domain::knowledge::TITLE_MAX)?,
        tags: list_or_clear(request.tags.clone(), "tags", &request.clear),
        readers: people("readers", &request.readers, &request.clear)?,
        writers: people("writers", &request.writers, &request.clear)?,
        expected_version: request.expected_version,
        create: true,
    })
}

pub(crate) async fn list(cx: Query, request: v1::ListKnowledgeRequest) -> Result<v1::ListKnowledgeResponse> {
    let by = cx.by.clone();
    let after = input::unseal("knowledge", &request.cursor)?.to_owned();
    let acting = Acting::read(&cx, request.as_agent.as_deref())?;
    let wanted = Wanted {
        tag: input::line_if("tag", request.tag.as_deref(), QUERY_MAX)?,
        query: input::line_if("query", request.query.as_deref(), QUERY_MAX)?,
        after,
        limit: input::page(request.limit),
    };
    let listed = cx
        .world
        .read(move |r| {
            let author = acting.author(r, &by, "syscall.knowledge.list")?;
            rules::list(r, &author.viewer, &wanted)
        })
        .await?;
    let redactor = cx.redactor();
    let entries = listed.entries.iter().map(|entry| convert::knowledge_entry(entry, redactor, false));
    let (entries, next_cursor) = queries::sealed("knowledge", entries, listed.more, |last| &last.entry_id);
    Ok(v1::ListKnowledgeResponse { entries, next_cursor })
}

pub(crate) async fn read(cx: Query, request: v1::ReadKnowledgeRequest) -> Result<v1::ReadKnowledgeResponse> {
    let by = cx.by.clone();
    let acting = Acting::read(&cx, request.as_agent.as_deref())?;
    let found: WithVersions = cx
        .world
        .read(move |r| {
            let author = acting.author(r, &by, "syscall.knowledge.read")?;
            rules::read(r, &author.viewer, &request.entry_id, request.versions)
        })
        .await?;
    let redactor = cx.redactor();
    Ok(v1::ReadKnowledgeResponse {
        entry: Some(convert::knowledge_entry(&found.entry, redactor, true)),
        versions: found.versions.iter().map(|version| convert::knowledge_version(version, redactor)).collect(),
    })
}

pub(crate) async fn write(cx: Mutation, request: v1::WriteKnowledgeRequest) -> Result<v1::KnowledgeEntry> {
    let (ctx, plan) = (cx.world.ctx().clone(), cx.world.plan());
    let new = writing(&ctx.limits(), &request)?;
    let acting = Acting::read(&cx, request.as_agent.as_deref())?;
    let entry = cx
        .once(move |w, by| {
            for list in [&new.readers, &new.writers] {
                plan.check_grantees(list.as_deref().unwrap_or_default())?;
            }
            let author = acting.author(w, by, "syscall.knowledge.write")?;
            rules::write(w, &author, new)
        })
        .await?;
    Ok(convert::knowledge_entry(&entry, cx.redactor(), true))
}

pub(crate) async fn delete(cx: Mutation, request: v1::DeleteKnowledgeRequest) -> Result<v1::KnowledgeEntry> {
    let acting = Acting::read(&cx, request.as_agent.as_deref())?;
    let entry = cx
        .once(move |w, by| {
            let author = acting.author(w, by, "syscall.knowledge.delete")?;
            rules::delete(w, &author, &request.entry_id, request.expected_version)
        })
        .await?;
    Ok(convert::knowledge_entry(&entry, cx.redactor(), true))
}

pub(crate) async fn get_state(cx: Query, request: v1::GetStateRequest) -> Result<v1::StateEntry> {
    let found: StateEntry = cx.world.store().read(move |r| shared_state::get(r, &request.key)).await?;
    Ok(convert::state_entry(&found, cx.redactor()))
}

pub(crate) async fn list_state(cx: Query, request: v1::ListStateRequest) -> Result<v1::ListStateResponse> {
    let after = input::unseal("state", &request.cursor)?.to_owned();
    let limit = u32::try_from(input::page(request.limit)).unwrap_or(u32::MAX);
    let listed: Listed = cx.world.store().read(move |r| shared_state::list(r, &request.prefix, &after, limit)).await?;
    let redactor = cx.redactor();
    let entries = listed.entries.iter().map(|entry| convert::state_entry(entry, redactor));
    let (entries, next_cursor) = queries::sealed("state", entries, listed.more, |last| &last.key);
    Ok(v1::ListStateResponse { entries, next_cursor })
}

pub(crate) async fn set_state(cx: Mutation, request: v1::SetStateRequest) -> Result<v1::StateEntry> {
    let acting = Acting::read(&cx, request.as_agent.as_deref())?;
    let new = Setting {
        value: input::json("value_json", &request.value_json, cx.world.ctx().limits().state_bytes)?,
        key: request.key,
        expected_version: request.expected_version,
    };
    let entry: StateEntry = cx
        .once(move |w, by| {
            let author = acting.author(w, by, "syscall.state.write")?;
            shared_state::set(w, &author.by, author.through.as_ref(), new)
        })
        .await?;
    Ok(convert::state_entry(&entry, cx.redactor()))
}
