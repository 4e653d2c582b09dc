//! Knowledge (KNOW-01..06): entries with readers and writers of their own, kept in versions.
//!
//! Must never: tell an agent of an entry that it may not read. Such an entry and one that does not exist are refused with
//! the same words, and no near name is offered that the caller could not see.

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::grantee::GRANTEES_MAX;
use ghost_domain::knowledge::{check_content, check_entry_id, check_tags, check_title};
use ghost_domain::text::{nearest, one_line};
use ghost_domain::{Code, Grantee, KnowledgeEntry, KnowledgeSeed, KnowledgeVersion, Party, Refusal, Viewer};
use ghost_store::{Reads, Writes};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Result, RuleContext, agent_lookup};

/// Entries that are looked at in one step of a list: their texts are large.
const STEP: u32 = 64;
/// Readable entries among which a near name is looked for.
const NEAR_MAX: usize = 200;

/// Who changes an entry.
#[derive(Clone, Debug)]
pub struct Author {
    /// Under whose name it is kept.
    pub by: Party,
    /// What is open to it.
    pub viewer: Viewer,
    /// The operator that acts as the agent `by`, if one does.
    pub through: Option<Party>,
}

/// Which entries a list wants.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// With this tag.
    pub tag: Option<String>,
    /// With these words in id, title, tags or text, upper or lower case.
    pub query: Option<String>,
    /// From after this id.
    pub after: String,
    /// At most this many.
    pub limit: usize,
}

/// A part of a list, in order of id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The entries.
    pub entries: Vec<KnowledgeEntry>,
    /// Whether there are more.
    pub more: bool,
}

/// An entry, with its earlier versions if they were asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithVersions {
    /// The entry.
    pub entry: KnowledgeEntry,
    /// Newest first.
    pub versions: Vec<KnowledgeVersion>,
}

/// What is to be written; `None` leaves a field of an entry that exists as it is.
#[derive(Clone, Debug, Default)]
pub struct Writing {
    /// The entry.
    pub entry_id: String,
    /// The text.
    pub content: String,
    /// One line; the id, if a new entry has none.
    pub title: Option<String>,
    /// Words to find it by; none, if a new entry has none.
    pub tags: Option<Vec<String>>,
    /// Who may read it; besides its creator nobody, if a new entry does not say.
    pub readers: Option<Vec<Grantee>>,
    /// Who may change it; besides its creator nobody, if a new entry does not say.
    pub writers: Option<Vec<Grantee>>,
    /// The version that the author has seen; 0 says that there is none; `None` writes over any.
    pub expected_version: Option<i64>,
    /// Whether an entry that does not exist is made.
    pub create: bool,
}

/// The entries that `viewer` may read and `wanted` asks for.
pub async fn list(r: &mut dyn Reads, viewer: &Viewer, wanted: &Wanted) -> Result<Listed> {
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
        let step = r.knowledge_list(&after, STEP).await?;
        let last = step.len() < STEP as usize;
        match step.last() {
            Some(entry) => after.clone_from(&entry.entry_id),
            None => return Ok(listed),
        }
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

/// One entry, if `viewer` may read it.
pub async fn read(r: &mut dyn Reads, viewer: &Viewer, entry_id: &str, versions: bool) -> Result<WithVersions> {
    let entry = readable(r, viewer, entry_id).await?;
    let versions = if versions { r.knowledge_versions(entry_id).await? } else { Vec::new() };
    Ok(WithVersions { entry, versions })
}

/// Creates or replaces an entry.
pub async fn write(w: &mut dyn Writes, ctx: &RuleContext, author: &Author, new: Writing) -> Result<KnowledgeEntry> {
    check_entry_id(&new.entry_id)?;
    let limits = ctx.limits();
    check_content(&new.content, limits.knowledge_bytes)?;
    let title = new.title.as_deref().map(one_line);
    title.as_deref().map_or(Ok(()), check_title)?;
    new.tags.as_deref().map_or(Ok(()), check_tags)?;
    for (field, list) in [("readers", &new.readers), ("writers", &new.writers)] {
        check_named(w, ctx, author, field, list.as_deref().unwrap_or_default()).await?;
    }
    check_expected(new.expected_version)?;
    let stored = w.knowledge_get(&new.entry_id).await?;
    let before = match stored.as_ref().filter(|entry| !entry.deleted) {
        Some(entry) if entry.may_read(&author.viewer) => Some(changeable(entry, author, new.expected_version)?.clone()),
        // That the id is taken shows in the refusal itself, but not by what, nor in other words.
        Some(_) => return Err(missing(w, &author.viewer, &new.entry_id).await?),
        None if !new.create || new.expected_version.is_some_and(|version| version > 0) => {
            return Err(missing(w, &author.viewer, &new.entry_id).await?);
        }
        None => None,
    };
    let now = ctx.now();
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
            keep_version(w, before, entry.version, limits.knowledge_versions).await?;
            entry
        }
        None => {
            let count = w.knowledge_count().await?;
            if count >= limits.knowledge_entries_max {
                return Err(Refusal::new(
                    Code::RateLimited,
                    format!(
                        "this world has {count} knowledge entries, which is its bound (limits.knowledge_entries_max)"
                    ),
                )
                .hint("add to an entry that there is, or delete one that nobody needs"));
            }
            KnowledgeEntry {
                title: title.unwrap_or_else(|| new.entry_id.clone()),
                entry_id: new.entry_id,
                content: new.content,
                tags: new.tags.map(sorted).unwrap_or_default(),
                readers: new.readers.unwrap_or_default(),
                writers: new.writers.unwrap_or_default(),
                version: stored.map_or(1, |gone| gone.version + 1),
                creator: author.by.clone(),
                updated_by: author.by.clone(),
                created_at: now,
                updated_at: now,
                deleted: false,
            }
        }
    };
    w.knowledge_put(&entry).await?;
    emit(w, ctx, author, &entry).await?;
    Ok(entry)
}

/// Deletes an entry. Its id and version stay, its texts and earlier versions go: whoever uses the id next is not shown
/// what somebody else has written.
pub async fn delete(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    author: &Author,
    entry_id: &str,
    expected_version: Option<i64>,
) -> Result<KnowledgeEntry> {
    check_expected(expected_version)?;
    let before = readable(w, &author.viewer, entry_id).await?;
    changeable(&before, author, expected_version)?;
    let entry = KnowledgeEntry {
        title: String::new(),
        content: String::new(),
        tags: Vec::new(),
        readers: Vec::new(),
        writers: Vec::new(),
        version: before.version + 1,
        updated_by: author.by.clone(),
        updated_at: ctx.now(),
        deleted: true,
        ..before
    };
    w.knowledge_versions_prune(entry_id, entry.version).await?;
    w.knowledge_put(&entry).await?;
    emit(w, ctx, author, &entry).await?;
    Ok(entry)
}

/// Puts entries that the world's files bring and that have never been there. What someone changed or deleted stays as it
/// is. Gives the ids of those that are new.
pub async fn seed(w: &mut dyn Writes, ctx: &RuleContext, seeds: &[KnowledgeSeed]) -> Result<Vec<String>> {
    let system = Author { by: Party::System, viewer: Viewer::Everything, through: None };
    let mut new = Vec::new();
    for seed in seeds {
        if w.knowledge_get(&seed.entry_id).await?.is_some() {
            continue;
        }
        let now = ctx.now();
        let entry = KnowledgeEntry {
            entry_id: seed.entry_id.clone(),
            title: seed.title.clone(),
            content: seed.content.clone(),
            tags: sorted(seed.tags.clone()),
            readers: seed.readers.clone(),
            writers: seed.writers.clone(),
            version: 1,
            creator: Party::System,
            updated_by: Party::System,
            created_at: now,
            updated_at: now,
            deleted: false,
        };
        w.knowledge_put(&entry).await?;
        emit(w, ctx, &system, &entry).await?;
        new.push(entry.entry_id);
    }
    Ok(new)
}

/// An entry that `viewer` may read, or the one refusal for all others.
async fn readable(r: &mut dyn Reads, viewer: &Viewer, entry_id: &str) -> Result<KnowledgeEntry> {
    check_entry_id(entry_id)?;
    match r.knowledge_get(entry_id).await? {
        Some(entry) if !entry.deleted && entry.may_read(viewer) => Ok(entry),
        _ => Err(missing(r, viewer, entry_id).await?),
    }
}

/// The refusal of an entry that is not there for `viewer`, with a near name among those that are.
async fn missing(r: &mut dyn Reads, viewer: &Viewer, entry_id: &str) -> Result<Refusal> {
    let open = list(r, viewer, &Wanted { limit: NEAR_MAX, ..Wanted::default() }).await?.entries;
    let near = nearest(entry_id, open.iter().map(|entry| entry.entry_id.as_str()).filter(|near| *near != entry_id));
    let refusal = Refusal::not_found("knowledge entry", entry_id, near);
    Ok(match near {
        Some(_) => refusal,
        None => refusal.hint("list the entries to see those that are open to you; a new one needs an id of its own"),
    })
}

/// `entry`, which the author may read, if the author may change it and has seen it as it is.
fn changeable<'e>(entry: &'e KnowledgeEntry, author: &Author, expected: Option<i64>) -> Result<&'e KnowledgeEntry> {
    if !entry.may_write(&author.viewer) {
        return Err(Refusal::new(
            Code::AccessDenied,
            format!("{} may read the knowledge entry `{}`, but not change it", author.by, entry.entry_id),
        )
        .hint(format!("ask its creator, {}, or write an entry of your own", entry.creator)));
    }
    match expected {
        Some(expected) if expected != entry.version => Err(Refusal::new(
            Code::Conflict,
            format!("the knowledge entry `{}` is at version {}, not at {expected}", entry.entry_id, entry.version),
        )
        .hint("read it again, and write what should be there now with that version")
        .details(json!({ "entry_id": entry.entry_id, "version": entry.version }))),
        _ => Ok(entry),
    }
}

fn check_expected(expected: Option<i64>) -> Result<()> {
    match expected {
        Some(version) if version < 0 => {
            Err(Refusal::new(Code::InvalidArguments, format!("expected_version is {version}"))
                .hint("give the version that you have read, or 0 if there must be none yet"))
        }
        _ => Ok(()),
    }
}

/// Agents that are given access must be there, or a slip of the keyboard would keep them out in silence.
async fn check_named(
    r: &mut dyn Reads,
    ctx: &RuleContext,
    author: &Author,
    field: &str,
    list: &[Grantee],
) -> Result<()> {
    if list.len() > GRANTEES_MAX {
        return Err(Refusal::new(
            Code::InvalidArguments,
            format!("{field} has {} entries; at most {GRANTEES_MAX} are taken", list.len()),
        )
        .hint("name an archetype or a privilege group instead of its agents"));
    }
    for grantee in list {
        if let Grantee::Agent(agent_id) = grantee {
            agent_lookup::agent_for(r, ctx, author.through.as_ref().unwrap_or(&author.by), agent_id)
                .await
                .map_err(|refusal| Refusal { message: format!("{field}: {}", refusal.message), ..refusal })?;
        }
    }
    Ok(())
}

/// Keeps what was there before, and drops what is older than the bound allows.
async fn keep_version(w: &mut dyn Writes, before: KnowledgeEntry, version: i64, most: u32) -> Result<()> {
    let entry_id = before.entry_id.clone();
    if most > 0 {
        let kept = KnowledgeVersion {
            entry_id: before.entry_id,
            version: before.version,
            title: before.title,
            content: before.content,
            by: before.updated_by,
            at: before.updated_at,
        };
        w.knowledge_version_put(&kept).await?;
    }
    w.knowledge_versions_prune(&entry_id, version - i64::from(most)).await?;
    Ok(())
}

fn sorted(mut tags: Vec<String>) -> Vec<String> {
    tags.sort_unstable();
    tags.dedup();
    tags
}

async fn emit(w: &mut dyn Writes, ctx: &RuleContext, author: &Author, entry: &KnowledgeEntry) -> Result<()> {
    let mut payload = json!({
        "entry_id": entry.entry_id, "version": entry.version, "by": author.by, "deleted": entry.deleted,
    });
    if let Some(through) = &author.through {
        payload["through"] = json!(through);
    }
    let mut event = NewEvent::new(EventKind::KnowledgeChanged, payload);
    if let Some(agent_id) = author.by.agent() {
        event = event.agent(agent_id);
    }
    ctx.emit(w, event).await
}
