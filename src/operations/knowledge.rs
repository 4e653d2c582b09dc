//! Knowledge: versioned entries, each with its own readers and writers.
//!
//! These rules must never reveal an entry to an agent that may not read it. Such an entry is
//! refused with the same text as an entry that does not exist, and suggestions only name entries
//! that the caller may read.

use ghost_domain::knowledge::GRANTEES_MAX;
use ghost_domain::knowledge::{check_content, check_entry_id, check_tags, check_title};

use crate::lookup;
use crate::prelude::*;

/// The number of entries that one step of a list reads. Their texts are large.
const STEP: u32 = 64;
/// Maximum readable entries that are compared for a suggestion.
const NEAR_MAX: usize = 200;

/// The author of a change.
#[derive(Clone, Debug)]
pub struct Author {
    /// The party that is recorded as author.
    pub by: Party,
    /// Decides what the author may read and write.
    pub viewer: Viewer,
    /// The operator that acts as the agent `by`, if there is one.
    pub through: Option<Party>,
}

/// A query for entries.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only entries with this tag.
    pub tag: Option<String>,
    /// Only entries that contain this text in id, title, tags or content, ignoring case.
    pub query: Option<String>,
    /// Only entries after this id.
    pub after: String,
    /// Maximum entries to return.
    pub limit: usize,
}

/// A page of entries, ordered by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The entries.
    pub entries: Vec<KnowledgeEntry>,
    /// Whether more entries follow.
    pub more: bool,
}

/// An entry, with its earlier versions if they were requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithVersions {
    /// The entry.
    pub entry: KnowledgeEntry,
    /// Earlier versions, newest first.
    pub versions: Vec<KnowledgeVersion>,
}

/// The parameters of a write. `None` leaves a field of an existing entry as it is.
#[derive(Clone, Debug, Default)]
pub struct Writing {
    /// Id of the entry.
    pub entry_id: String,
    /// Content of the entry.
    pub content: String,
    /// Title, one line. A new entry without one uses its id.
    pub title: Option<String>,
    /// Tags. A new entry without a value has none.
    pub tags: Option<Vec<String>>,
    /// Who may read it besides its creator. A new entry without a value has no other readers.
    pub readers: Option<Vec<Grantee>>,
    /// Who may change it besides its creator. A new entry without a value has no other writers.
    pub writers: Option<Vec<Grantee>>,
    /// The version that the author has read. 0 means that the entry must not exist. `None` skips
    /// the check.
    pub expected_version: Option<i64>,
    /// Whether to create the entry if it does not exist.
    pub create: bool,
}

/// Lists the entries that `viewer` may read and that match `wanted`.
pub fn list(r: &mut StoreTx, viewer: &Viewer, wanted: &Wanted) -> Result<Listed> {
    let query = wanted.query.as_ref().map(|query| query.trim().to_lowercase()).filter(|query| !query.is_empty());
    let matches = |entry: &KnowledgeEntry| {
        let has = |text: &str, query: &str| text.to_lowercase().contains(query);
        entry.may_read(viewer)
            && wanted.tag.as_ref().is_none_or(|tag| entry.tags.contains(tag))
            && query.as_ref().is_none_or(|query| {
                has(&entry.entry_id, query)
                    || has(&entry.title, query)
                    || entry.tags.iter().any(|tag| has(tag, query))
                    || has(&entry.content, query)
            })
    };
    let mut listed = Listed::default();
    let mut after = wanted.after.clone();
    loop {
        let step = r.knowledge_list(&after, STEP)?;
        let last = step.len() < STEP as usize;
        after = step.last().map(|entry| entry.entry_id.clone()).unwrap_or_default();
        for entry in step.into_iter().filter(&matches) {
            if listed.entries.len() == wanted.limit {
                listed.more = true;
                return Ok(listed);
            }
            listed.entries.push(entry);
        }
        if last {
            return Ok(listed);
        }
    }
}

/// Returns one entry, if `viewer` may read it.
pub fn read(r: &mut StoreTx, viewer: &Viewer, entry_id: &str, versions: bool) -> Result<WithVersions> {
    let entry = readable(r, viewer, entry_id)?;
    let versions = if versions { r.knowledge_versions(entry_id)? } else { Vec::new() };
    Ok(WithVersions { entry, versions })
}

/// Creates or replaces an entry.
pub fn write(w: &mut Tx, author: &Author, new: Writing) -> Result<KnowledgeEntry> {
    check_entry_id(&new.entry_id)?;
    let limits = w.ctx.limits();
    check_content(&new.content, limits.knowledge_bytes)?;
    let title = new.title.as_deref().map(one_line);
    title.as_deref().map_or(Ok(()), check_title)?;
    new.tags.as_deref().map_or(Ok(()), check_tags)?;
    for (field, list) in [("readers", &new.readers), ("writers", &new.writers)] {
        check_named(w, author, field, list.as_deref().unwrap_or_default())?;
    }
    check_expected(new.expected_version)?;
    let stored = w.knowledge_get(&new.entry_id)?;
    let before = match stored.as_ref().filter(|entry| !entry.deleted) {
        Some(entry) if entry.may_read(&author.viewer) => {
            Some(check_change(entry, author, new.expected_version)?.clone())
        }
        None if new.create && new.expected_version.is_none_or(|version| version == 0) => None,
        // For an entry that the author may not read, this unavoidably reveals that the id is in use, but has the same text
        // as for a missing entry.
        _ => return Err(missing(w, &author.viewer, &new.entry_id)?),
    };
    let now = w.ctx.now();
    let entry = match before {
        Some(before) => {
            let entry = KnowledgeEntry {
                title: title.unwrap_or_else(|| before.title.clone()),
                content: new.content,
                tags: new.tags.map_or_else(|| before.tags.clone(), sorted),
                readers: new.readers.unwrap_or_else(|| before.readers.clone()),
                writers: new.writers.unwrap_or_else(|| before.writers.clone()),
                version: before.version + 1,
                updated_by: author.by.clone(),
                updated_at: now,
                ..before.clone()
            };
            keep_version(w, before, entry.version, limits.knowledge_versions)?;
            entry
        }
        None => {
            let (count, most) = (w.knowledge_count()?, limits.knowledge_entries_max);
            let hint = "extend an existing entry, or delete one that is no longer needed";
            at_most("knowledge_entries_max", count, most, "knowledge entries are in this world", hint)?;
            let seed = KnowledgeSeed {
                title: title.unwrap_or_else(|| new.entry_id.clone()),
                entry_id: new.entry_id,
                content: new.content,
                tags: new.tags.unwrap_or_default(),
                readers: new.readers.unwrap_or_default(),
                writers: new.writers.unwrap_or_default(),
            };
            new_entry(seed, stored.map_or(1, |gone| gone.version + 1), &author.by, now)
        }
    };
    w.knowledge_put(&entry)?;
    emit(w, author, &entry)?;
    Ok(entry)
}

/// Deletes an entry. Its id and version stay; its content and earlier versions are deleted, so that
/// a later user of the id does not see them.
pub fn delete(w: &mut Tx, author: &Author, entry_id: &str, expected_version: Option<i64>) -> Result<KnowledgeEntry> {
    check_expected(expected_version)?;
    let before = readable(w, &author.viewer, entry_id)?;
    check_change(&before, author, expected_version)?;
    let entry = KnowledgeEntry {
        title: String::new(),
        content: String::new(),
        tags: Vec::new(),
        readers: Vec::new(),
        writers: Vec::new(),
        version: before.version + 1,
        updated_by: author.by.clone(),
        updated_at: w.ctx.now(),
        deleted: true,
        ..before
    };
    w.knowledge_versions_prune(entry_id, entry.version)?;
    w.knowledge_put(&entry)?;
    emit(w, author, &entry)?;
    Ok(entry)
}

/// Creates the entries in the world's files, unless they exist or existed before. Changed and
/// deleted entries stay as they are. Returns the ids of new entries.
pub fn seed(w: &mut Tx, seeds: &[KnowledgeSeed]) -> Result<Vec<String>> {
    let system = Author { by: Party::System, viewer: Viewer::Everything, through: None };
    let mut new = Vec::new();
    for seed in seeds {
        if w.knowledge_get(&seed.entry_id)?.is_some() {
            continue;
        }
        let entry = new_entry(seed.clone(), 1, &Party::System, w.ctx.now());
        w.knowledge_put(&entry)?;
        emit(w, &system, &entry)?;
        new.push(entry.entry_id);
    }
    Ok(new)
}

/// Returns an entry that `viewer` may read. All other cases get the same refusal.
fn readable(r: &mut StoreTx, viewer: &Viewer, entry_id: &str) -> Result<KnowledgeEntry> {
    check_entry_id(entry_id)?;
    match r.knowledge_get(entry_id)? {
        Some(entry) if !entry.deleted && entry.may_read(viewer) => Ok(entry),
        _ => Err(missing(r, viewer, entry_id)?),
    }
}

/// Builds the refusal for an entry that does not exist for `viewer`, with a suggestion among those
/// that do.
fn missing(r: &mut StoreTx, viewer: &Viewer, entry_id: &str) -> Result<Refusal> {
    let open = list(r, viewer, &Wanted { limit: NEAR_MAX, ..Wanted::default() })?.entries;
    let near = nearest(entry_id, open.iter().map(|entry| entry.entry_id.as_str()).filter(|near| *near != entry_id));
    let hint = "list the entries to see those that you may read; a new entry needs an unused id";
    Ok(not_among("knowledge entry", entry_id, near, hint))
}

/// Returns `entry` if the author may change it and has read its current version.
fn check_change<'e>(entry: &'e KnowledgeEntry, author: &Author, expected: Option<i64>) -> Result<&'e KnowledgeEntry> {
    let KnowledgeEntry { entry_id, version, creator, .. } = entry;
    if !entry.may_write(&author.viewer) {
        let by = &author.by;
        return Err(refusal!(AccessDenied, "{by} may read the knowledge entry `{entry_id}`, but not change it")
            .hint(format!("ask its creator, {creator}, or create your own entry")));
    }
    match expected {
        Some(expected) if expected != *version => {
            Err(refusal!(Conflict, "the knowledge entry `{entry_id}` is at version {version}, not at {expected}")
                .hint("read it again, and write the new content with that version")
                .details(json!({ "entry_id": entry_id, "version": version })))
        }
        _ => Ok(entry),
    }
}

fn check_expected(expected: Option<i64>) -> Result<()> {
    match expected {
        Some(version) if version < 0 => Err(refusal!(InvalidArguments, "expected_version is {version}")
            .hint("give the version that you have read, or 0 if the entry must not exist yet")),
        _ => Ok(()),
    }
}

/// Checks that agents with access exist, because a typing mistake would silently exclude them.
fn check_named(r: &mut Tx, author: &Author, field: &str, list: &[Grantee]) -> Result<()> {
    if list.len() > GRANTEES_MAX {
        return Err(refusal!(InvalidArguments, "{field} has {} entries; the limit is {GRANTEES_MAX}", list.len())
            .hint("name an archetype or a privilege group instead of its agents"));
    }
    for grantee in list {
        if let Grantee::Agent(agent_id) = grantee {
            lookup::agent_for(r, author.through.as_ref().unwrap_or(&author.by), agent_id)
                .map_err(|refusal| Refusal { message: format!("{field}: {}", refusal.message), ..refusal })?;
        }
    }
    Ok(())
}

/// Stores the previous version, and deletes versions beyond the limit.
fn keep_version(w: &mut StoreTx, before: KnowledgeEntry, version: i64, versions_max: u32) -> Result<()> {
    let entry_id = before.entry_id.clone();
    if versions_max > 0 {
        let kept = KnowledgeVersion {
            entry_id: before.entry_id,
            version: before.version,
            title: before.title,
            content: before.content,
            by: before.updated_by,
            at: before.updated_at,
        };
        w.knowledge_version_put(&kept)?;
    }
    w.knowledge_versions_prune(&entry_id, version - i64::from(versions_max))?;
    Ok(())
}

fn new_entry(seed: KnowledgeSeed, version: i64, creator: &Party, now: Timestamp) -> KnowledgeEntry {
    KnowledgeEntry {
        entry_id: seed.entry_id,
        title: seed.title,
        content: seed.content,
        tags: sorted(seed.tags),
        readers: seed.readers,
        writers: seed.writers,
        version,
        creator: creator.clone(),
        updated_by: creator.clone(),
        created_at: now,
        updated_at: now,
        deleted: false,
    }
}

fn sorted(mut tags: Vec<String>) -> Vec<String> {
    tags.sort_unstable();
    tags.dedup();
    tags
}

fn emit(w: &mut Tx, author: &Author, entry: &KnowledgeEntry) -> Result<()> {
    let KnowledgeEntry { entry_id, version, deleted, .. } = entry;
    let mut payload = json!({ "entry_id": entry_id, "version": version, "by": author.by, "deleted": deleted });
    if let Some(through) = &author.through {
        payload["through"] = json!(through);
    }
    let event = NewEvent::new(EventKind::KnowledgeChanged, payload);
    w.emit(NewEvent { agent_id: author.by.agent().cloned(), ..event })
}
