//! Knowledge entries as wire messages. Text by agents is redacted.

use ghost_domain::redact::Redactor;
use ghost_domain::{KnowledgeEntry, KnowledgeVersion};
use ghost_proto::v1;

/// An entry, redacted. Lists leave its text out.
#[must_use]
pub fn entry(entry: &KnowledgeEntry, redactor: &Redactor, with_text: bool) -> v1::KnowledgeEntry {
    let texts = |list: &[ghost_domain::Grantee]| list.iter().map(ToString::to_string).collect();
    v1::KnowledgeEntry {
        entry_id: entry.entry_id.clone(),
        title: redactor.redact(&entry.title),
        content: if with_text { redactor.redact(&entry.content) } else { String::new() },
        tags: entry.tags.iter().map(|tag| redactor.redact(tag)).collect(),
        readers: texts(&entry.readers),
        writers: texts(&entry.writers),
        version: entry.version,
        creator: entry.creator.to_string(),
        updated_by: entry.updated_by.to_string(),
        created_at_ms: entry.created_at.0,
        updated_at_ms: entry.updated_at.0,
        deleted: entry.deleted,
    }
}

/// An earlier version of an entry, redacted.
#[must_use]
pub fn version(version: &KnowledgeVersion, redactor: &Redactor) -> v1::KnowledgeVersion {
    v1::KnowledgeVersion {
        version: version.version,
        title: redactor.redact(&version.title),
        content: redactor.redact(&version.content),
        by: version.by.to_string(),
        at_ms: version.at.0,
    }
}
