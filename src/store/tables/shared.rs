//! What agents share: values by key, knowledge entries and their earlier versions, and artifacts.

use ghost_domain::{AgentId, Artifact, KnowledgeEntry, KnowledgeVersion, StateEntry};

use super::prelude::*;

/// The count of keys.
const KEYS: &str = "state_keys";

record! { entry: StateEntry, "shared_state"; key key: str; }

/// The smallest text that is larger than all texts with this prefix, if there is one. Texts are
/// compared byte by byte, which for UTF-8 is the order of characters.
pub(super) fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut rest = prefix.chars();
    while let Some(last) = rest.next_back() {
        // The code points from U+D800 to U+DFFF are surrogates and no characters.
        let next = if last == '\u{d7ff}' { Some('\u{e000}') } else { char::from_u32(u32::from(last) + 1) };
        if let Some(next) = next {
            let mut text = rest.as_str().to_owned();
            text.push(next);
            return Some(text);
        }
    }
    None
}

functions! {
    /// The value of this key.
    get state_get(key: &str) -> Option<StateEntry>: key;
    /// Number of keys.
    counted state_count() -> u32: KEYS;
    /// Inserts or replaces a value.
    put_counted state_put(entry: &StateEntry) -> (): &entry.key,
        "SELECT 'state_keys' FROM shared_state WHERE key = $1", Some(KEYS);
}

impl Tx {
    /// Values whose key begins with `prefix`, in order of key, after the key `after`, at most
    /// `limit`.
    pub fn state_list(&mut self, prefix: &str, after: &str, limit: u32) -> Result<Vec<StateEntry>> {
        let Some(end) = end_of_prefix(prefix) else {
            let sql = sql!("SELECT record FROM shared_state WHERE key > $1 AND key >= $2 ORDER BY key {limit $3}");
            return self.list(sql, args![after, prefix, limit]);
        };
        let sql =
            sql!("SELECT record FROM shared_state WHERE key > $1 AND key >= $2 AND key < $3 ORDER BY key {limit $4}");
        self.list(sql, args![after, prefix, end, limit])
    }

    /// Deletes a value. Returns whether it existed.
    pub fn state_remove(&mut self, key: &str) -> Result<bool> {
        let existed = self.execute(sql!("DELETE FROM shared_state WHERE key = $1"), args![key])? > 0;
        if existed {
            self.change_count(KEYS, -1)?;
        }
        Ok(existed)
    }
}

/// The count of entries that are not deleted.
const KNOWLEDGE: &str = "knowledge";

record! { entry: KnowledgeEntry, "knowledge"; key entry_id: str; deleted, creator, updated_at }

record! { version: KnowledgeVersion, "knowledge_versions"; key entry_id: String, version: i64; }

functions! {
    /// The entry with this id, even if it is deleted.
    get knowledge_get(entry_id: &str) -> Option<KnowledgeEntry>: entry_id;
    /// Entries that are not deleted, in order of id, after the id `after`, at most `limit`.
    list knowledge_list(after: &str, limit: u32) -> Vec<KnowledgeEntry>:
        "SELECT record FROM knowledge WHERE deleted = 0 AND entry_id > $1 ORDER BY entry_id {limit $2}";
    /// The stored earlier versions of an entry, newest first.
    list knowledge_versions(entry_id: &str) -> Vec<KnowledgeVersion>:
        "SELECT record FROM knowledge_versions WHERE entry_id = $1 ORDER BY version DESC";
    /// Number of entries that are not deleted.
    counted knowledge_count() -> u32: KNOWLEDGE;
    /// Inserts or replaces a version.
    put knowledge_version_put(version: &KnowledgeVersion) -> (): version;
    /// Deletes the versions of an entry that are older than `oldest_kept`.
    change knowledge_versions_prune(entry_id: &str, oldest_kept: i64) -> ():
        "DELETE FROM knowledge_versions WHERE entry_id = $1 AND version < $2";
    /// Inserts or replaces an entry.
    put_counted knowledge_put(entry: &KnowledgeEntry) -> (): &entry.entry_id,
        "SELECT 'knowledge' FROM knowledge WHERE entry_id = $1 AND deleted = 0",
        (!entry.deleted).then_some(KNOWLEDGE);
}

/// Which artifacts a list contains.
#[derive(Clone, Debug, Default)]
pub struct ArtifactFilter {
    /// Only files whose path begins with this text.
    pub prefix: String,
    /// Only files that this agent changed last.
    pub agent_id: Option<AgentId>,
    /// Only paths after this one.
    pub after: String,
    /// At most this many rows.
    pub limit: u32,
}

record! { artifact: Artifact, "artifacts"; key path: str; artifact_id, agent_id }

functions! {
    /// Matching artifacts in order of path.
    page artifact_list(filter: &ArtifactFilter) -> Vec<Artifact>:
        Conditions::new("SELECT record FROM artifacts")
            .when(filter.agent_id.as_ref(), "agent_id = $1")
            .when(Some(&filter.after), "path > $1")
            .when(Some(&filter.prefix), "path >= $1")
            .when(end_of_prefix(&filter.prefix), "path < $1")
            .order("path", list_limit(filter.limit));
    /// The artifact at this path.
    get artifact_get(path: &str) -> Option<Artifact>: path;
    /// Inserts or replaces the artifact at its path.
    put artifact_put(artifact: &Artifact) -> (): artifact;
    /// Removes the artifact at this path. Returns whether it existed.
    remove artifact_remove(path: &str) -> bool: "DELETE FROM artifacts WHERE path = $1";
}

#[cfg(test)]
mod tests {
    use super::end_of_prefix;

    #[test]
    fn a_prefix_ends_where_the_next_text_begins() {
        assert_eq!(end_of_prefix("plan."), Some("plan/".to_owned()));
        assert_eq!(end_of_prefix("a\u{d7ff}"), Some("a\u{e000}".to_owned()));
        assert_eq!(end_of_prefix("a\u{10ffff}\u{10ffff}"), Some("b".to_owned()));
        assert_eq!(end_of_prefix("\u{10ffff}"), None);
        assert_eq!(end_of_prefix(""), None);
    }
}
