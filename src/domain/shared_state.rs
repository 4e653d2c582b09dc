//! Shared state: versioned JSON values by dotted key (STATE-01..04).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::party::Party;
use crate::refusal::{Code, Refusal};
use crate::time::Timestamp;

/// A value. A key that is deleted and set again goes on above every version that a deleted key had, so that nobody takes
/// a new value for the one that it has seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateEntry {
    /// Its key; see [`check_key`].
    pub key: String,
    /// The value.
    pub value: Value,
    /// Rises by one with every write, from 1 as long as no key was ever deleted.
    pub version: i64,
    /// Who wrote it.
    pub writer: Party,
    /// When.
    pub updated_at: Timestamp,
}

/// Whether a text is a key: 1 to 128 characters in parts of `a-z`, `A-Z`, `0-9`, `_`, `-`, joined by single dots (STATE-02).
pub fn check_key(key: &str) -> Result<(), Refusal> {
    let part =
        |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if key.len() <= 128 && key.split('.').all(part) {
        return Ok(());
    }
    let shown = crate::text::one_line(&crate::text::clip(key, 80));
    Err(Refusal::new(Code::InvalidArguments, format!("`{shown}` is not a state key"))
        .hint("use 1 to 128 characters: parts of letters, digits, '_' and '-', joined by single dots"))
}

/// Whether a text can be the beginning of keys; the empty one is the beginning of all.
pub fn check_prefix(prefix: &str) -> Result<(), Refusal> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if prefix.len() <= 128 && prefix.bytes().all(fits) {
        return Ok(());
    }
    let shown = crate::text::one_line(&crate::text::clip(prefix, 80));
    Err(Refusal::new(Code::InvalidArguments, format!("no state key begins with `{shown}`"))
        .hint("use letters, digits, '_', '-' and single dots, such as plan."))
}

/// Whether a key is read-only to agents (STATE-04).
#[must_use]
pub fn is_system(key: &str) -> bool {
    key == "system" || key.starts_with("system.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_dotted_parts() {
        for good in ["a", "plan.step-1.owner", "A_b.0"] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        let long = "x".repeat(129);
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a\nb", "é", long.as_str()] {
            assert!(check_key(bad).is_err(), "{bad:?}");
        }
        assert!(check_prefix("").is_ok() && check_prefix("plan.").is_ok() && check_prefix("pl").is_ok());
        assert!(check_prefix("a b").is_err() && check_prefix(&long).is_err());
        assert!(is_system("system.load") && is_system("system") && !is_system("systems.x"));
    }
}
