//! Shared state: versioned JSON values by dotted key (STATE-01..04).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::party::Party;
use crate::refusal::{Code, Refusal};
use crate::time::Timestamp;

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateEntry {
    /// Its key; see [`check_key`].
    pub key: String,
    /// The value.
    pub value: Value,
    /// Rises by one with every write, from 1.
    pub version: i64,
    /// Who wrote it.
    pub writer: Party,
    /// When.
    pub updated_at: Timestamp,
}

/// Whether a text is a key: 1 to 128 characters in parts of `a-z`, `A-Z`, `0-9`, `_`, `-`, joined by single dots (STATE-02).
pub fn check_key(key: &str) -> Result<(), Refusal> {
    let part = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if key.len() <= 128 && key.split('.').all(part) {
        return Ok(());
    }
    Err(Refusal::new(Code::InvalidArguments, format!("`{}` is not a state key", crate::text::clip(key, 80)))
        .hint("use 1 to 128 characters: parts of letters, digits, '_' and '-', joined by single dots"))
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
        assert!(is_system("system.load") && is_system("system") && !is_system("systems.x"));
    }
}
