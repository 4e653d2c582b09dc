//! The tools for knowledge (BI-60..63; KNOW-01..06). `ghost_operations` decides who may read and change
//! an entry.

use ghost_domain::grantee::grantees;
use ghost_domain::{Code, Grantee, KnowledgeEntry, Refusal};
use ghost_operations::Tx;
use ghost_operations::knowledge::{self as rules, Author, Wanted, Writing};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::common::{LIST_BYTES, fitting, within};
use crate::context::CallContext;
use crate::effect::Output;

/// The default and the largest number of entries in a list.
const LIMIT_DEFAULT: u32 = 50;
const LIMIT_MAX: u32 = 500;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// Only entries that contain these words in id, title, tags or text.
    query: Option<String>,
    /// Only entries with this tag.
    tag: Option<String>,
    /// The entry_id after which the list continues, if an earlier list was cut.
    after: Option<String>,
    /// The largest number of entries, up to 500; 50 if absent.
    limit: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadParams {
    /// The id of the entry.
    entry_id: String,
    /// An earlier version instead of the current one, if it is still kept.
    version: Option<i64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteParams {
    /// The id of the entry, such as style/headlines.
    entry_id: String,
    /// The whole new text.
    content: String,
    /// The title, on one line; unchanged if absent.
    title: Option<String>,
    /// Words to find the entry by; unchanged if absent.
    tags: Option<Vec<String>>,
    /// Who may read it: agent ids, archetype:<name>, group:<privilege group> or *. Unchanged if absent; only you may
    /// read a new entry.
    readers: Option<Vec<String>>,
    /// Who may change it, in the same form.
    writers: Option<Vec<String>>,
    /// The version that you have read: if the entry has changed since, nothing is written. 0 means that it must not
    /// exist yet.
    expected_version: Option<i64>,
    /// Whether to create the entry if it does not exist; true if absent.
    create: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteParams {
    /// The id of the entry.
    entry_id: String,
    /// The version that you have read: if the entry has changed since, nothing is deleted.
    expected_version: Option<i64>,
}

fn author(call: &CallContext) -> Author {
    Author { by: call.party(), viewer: call.caller.viewer(), through: None }
}

/// Parses a list of readers or writers. Archetypes and groups in it must exist.
fn people(call: &CallContext, field: &str, texts: Option<&[String]>) -> Result<Option<Vec<Grantee>>, Refusal> {
    let Some(texts) = texts else { return Ok(None) };
    let list = grantees(field, texts)?;
    call.services.plan().check_grantees(&list)?;
    Ok(Some(list))
}

pub(super) async fn list(call: &CallContext, params: ListParams) -> Result<Output, Refusal> {
    let limit = within("limit", params.limit, LIMIT_DEFAULT, LIMIT_MAX, "narrow the list by query or tag instead")?;
    let wanted =
        Wanted { tag: params.tag, query: params.query, after: params.after.unwrap_or_default(), limit: limit as usize };
    let viewer = call.caller.viewer();
    let row = |entry: &KnowledgeEntry| {
        json!({
            "entry_id": entry.entry_id, "title": entry.title, "tags": entry.tags, "version": entry.version,
            "updated_at": entry.updated_at.rfc3339(), "can_write": entry.may_write(&call.caller.viewer()),
        })
    };
    let listed = call.services.store.read(move |r| rules::list(r, &viewer, &wanted)).await?;
    let (rows, all) = fitting(listed.entries.iter().map(row), LIST_BYTES);
    Ok(Output::cut(Value::Array(rows), listed.more || !all))
}

pub(super) async fn read(call: &CallContext, params: ReadParams) -> Result<Output, Refusal> {
    let (viewer, entry_id, version) = (call.caller.viewer(), params.entry_id, params.version);
    let found = call.services.store.read(move |r| rules::read(r, &viewer, &entry_id, version.is_some())).await?;
    let entry = found.entry;
    if let Some(version) = version.filter(|version| *version != entry.version) {
        let kept = found.versions.iter().find(|old| old.version == version).ok_or_else(|| {
            let kept: Vec<i64> = found.versions.iter().map(|old| old.version).collect();
            Refusal::new(Code::NotFound, format!("version {version} of `{}` is not kept", entry.entry_id))
                .hint(format!("it is at version {}; kept besides: {kept:?}", entry.version))
        })?;
        return Ok(json!({
            "entry_id": entry.entry_id, "title": kept.title, "content": kept.content, "version": kept.version,
            "updated_by": kept.by, "updated_at": kept.at.rfc3339(), "latest_version": entry.version,
        })
        .into());
    }
    let can_write = entry.may_write(&call.caller.viewer());
    Ok(json!({
        "entry_id": entry.entry_id, "title": entry.title, "content": entry.content, "version": entry.version,
        "tags": entry.tags, "readers": entry.readers, "writers": entry.writers, "creator": entry.creator,
        "updated_by": entry.updated_by, "updated_at": entry.updated_at.rfc3339(), "can_write": can_write,
    })
    .into())
}

pub(super) fn write(call: &CallContext, params: WriteParams, w: &mut Tx) -> Result<Output, Refusal> {
    let new = Writing {
        readers: people(call, "readers", params.readers.as_deref())?,
        writers: people(call, "writers", params.writers.as_deref())?,
        entry_id: params.entry_id,
        content: params.content,
        title: params.title,
        tags: params.tags,
        expected_version: params.expected_version,
        create: params.create.unwrap_or(true),
    };
    let entry = rules::write(w, &author(call), new)?;
    Ok(json!({ "entry_id": entry.entry_id, "version": entry.version }).into())
}

pub(super) fn delete(call: &CallContext, params: DeleteParams, w: &mut Tx) -> Result<Output, Refusal> {
    let by = author(call);
    let entry = rules::delete(w, &by, &params.entry_id, params.expected_version)?;
    Ok(json!({ "entry_id": entry.entry_id, "version": entry.version, "deleted": true }).into())
}
