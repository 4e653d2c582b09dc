//! The tools for knowledge and for the shared state. `ghost_operations` decides who may read and change an entry.

use ghost_domain::knowledge::grantees;
use ghost_domain::{Grantee, KnowledgeEntry, StateEntry};
use ghost_operations::knowledge::{self as rules, Author, Wanted, Writing};
use ghost_operations::shared_state::{self as state, Setting};
use serde_json::Map;

use super::common::*;

/// The default and the largest number of entries in a list.
const LIMIT_DEFAULT: u32 = 50;
const LIMIT_MAX: u32 = 500;

params! {
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

    pub(super) struct ReadParams {
        /// The id of the entry.
        entry_id: String,
        /// An earlier version instead of the current one, if it is still kept.
        version: Option<i64>,
    }

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

    pub(super) struct DeleteParams {
        /// The id of the entry.
        entry_id: String,
        /// The version that you have read: if the entry has changed since, nothing is deleted.
        expected_version: Option<i64>,
    }
}

fn author(call: &CallContext) -> Author {
    Author { by: call.party(), viewer: call.caller.viewer(), through: None }
}

/// Parses a list of readers or writers. Archetypes and groups in it must exist.
fn people(call: &CallContext, field: &str, texts: Option<&[String]>) -> Result<Option<Vec<Grantee>>> {
    let Some(texts) = texts else { return Ok(None) };
    let list = grantees(field, texts)?;
    call.services.plan().check_grantees(&list)?;
    Ok(Some(list))
}

pub(super) async fn list(call: &CallContext, params: ListParams) -> Result<Output> {
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

pub(super) async fn read(call: &CallContext, params: ReadParams) -> Result<Output> {
    let (viewer, entry_id, version) = (call.caller.viewer(), params.entry_id, params.version);
    let found = call.services.store.read(move |r| rules::read(r, &viewer, &entry_id, version.is_some())).await?;
    let entry = found.entry;
    if let Some(version) = version.filter(|version| *version != entry.version) {
        let kept = found.versions.iter().find(|old| old.version == version).ok_or_else(|| {
            let kept: Vec<i64> = found.versions.iter().map(|old| old.version).collect();
            refusal!(NotFound, "version {version} of `{}` is not kept", entry.entry_id)
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

pub(super) fn write(call: &CallContext, params: WriteParams, w: &mut Tx) -> Result<Output> {
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

pub(super) fn delete(call: &CallContext, params: DeleteParams, w: &mut Tx) -> Result<Output> {
    let by = author(call);
    let entry = rules::delete(w, &by, &params.entry_id, params.expected_version)?;
    Ok(json!({ "entry_id": entry.entry_id, "version": entry.version, "deleted": true }).into())
}

/// The default and the largest number of keys in a list.
const KEYS_DEFAULT: u32 = 100;
const KEYS_MAX: u32 = 500;

params! {
    pub(super) struct ReadStateParams {
        /// One key, such as plan.step; without it, keys are listed.
        key: Option<String>,
        /// Only keys that begin with this, such as plan.
        prefix: Option<String>,
        /// The key after which the list continues, if an earlier list was cut.
        after: Option<String>,
        /// The largest number of keys, up to 500; 100 if absent.
        limit: Option<u32>,
    }

    pub(super) struct WriteStateParams {
        /// The key: letters, digits, _ and -, in parts joined by dots. Keys under system. are read-only.
        key: String,
        /// Any JSON value.
        value: Value,
        /// The version that you have read: if the value has changed since, nothing is written. 0 means that the key must
        /// not exist yet.
        expected_version: Option<i64>,
    }
}

fn entry_json(entry: &StateEntry) -> Value {
    let mut object = value_json(entry);
    extend(&mut object, json!({ "key": entry.key, "writer": entry.writer, "updated_at": entry.updated_at.rfc3339() }));
    object
}

/// The value with its version. If its numbers have more digits than JSON values here can hold, also
/// the exact text.
fn value_json(entry: &StateEntry) -> Value {
    let mut object = json!({ "value": entry.value.value(), "version": entry.version });
    if !entry.value.is_exact() {
        object["value_json"] = json!(entry.value.as_str());
    }
    object
}

pub(super) async fn read_state(call: &CallContext, params: ReadStateParams) -> Result<Output> {
    let store = &call.services.store;
    if let Some(key) = params.key {
        if params.prefix.is_some() || params.after.is_some() || params.limit.is_some() {
            return Err(refusal!(InvalidArguments, "key names one value; prefix, after and limit a list")
                .hint("give either the key or the others"));
        }
        let entry = store.read(move |r| state::get(r, &key)).await?;
        return Ok(entry_json(&entry).into());
    }
    let limit = within("limit", params.limit, KEYS_DEFAULT, KEYS_MAX, "narrow the list by prefix instead")?;
    let (prefix, after) = (params.prefix.unwrap_or_default(), params.after.unwrap_or_default());
    let listed = store.read(move |r| state::list(r, &prefix, &after, limit)).await?;
    let (mut values, mut used, mut truncated) = (Map::new(), 0, listed.more);
    for entry in listed.entries {
        let value = value_json(&entry);
        used += entry.key.len() + value.to_string().len() + 4;
        if used > LIST_BYTES && !values.is_empty() {
            truncated = true;
            break;
        }
        values.insert(entry.key, value);
    }
    Ok(Output::cut(Value::Object(values), truncated))
}

pub(super) fn write_state(call: &CallContext, params: WriteStateParams, w: &mut Tx) -> Result<Output> {
    let new = Setting { key: params.key, value: params.value.into(), expected_version: params.expected_version };
    let entry = state::set(w, &call.party(), None, new)?;
    let mut content = json!({ "key": entry.key, "version": entry.version });
    if entry.value.is_null() {
        content["deleted"] = json!(true);
    }
    Ok(content.into())
}
