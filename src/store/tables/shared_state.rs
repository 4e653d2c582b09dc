//! Rows and queries of the shared state: values by key.

use ghost_domain::StateEntry;

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

    /// Inserts or replaces a value.
    pub fn state_put(&mut self, entry: &StateEntry) -> Result<()> {
        let stored = sql!("SELECT 'state_keys' FROM shared_state WHERE key = $1");
        self.put_counted(entry, &entry.key, stored, Some(KEYS))
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
