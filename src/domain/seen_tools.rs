//! The tools of a turn as its model saw them, and what changes while the turn runs. They are journaled, so that a
//! resumed turn sees what it saw.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::tool_catalogue::{CALL, DESCRIBE};

/// The tools of a turn as its model saw them: hashes of their definitions, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenTools {
    /// The tools that requests describe.
    pub sent: BTreeMap<String, String>,
    /// The tools that are called through [`CALL`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub deferred: BTreeMap<String, String>,
}

/// What has changed since a model saw its tools. A tool whose definition has changed has left and joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolChanges {
    /// Tools that have joined: hashes of their definitions, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub joined: BTreeMap<String, String>,
    /// Names of tools that have left, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
}

impl SeenTools {
    /// Whether the model can call a tool that joins.
    #[must_use]
    pub fn can_grow(&self) -> bool {
        [CALL, DESCRIBE].iter().all(|means| self.sent.contains_key(*means))
    }

    /// The hash of a tool as it was seen.
    #[must_use]
    pub fn hash_of(&self, name: &str) -> Option<&str> {
        self.sent.get(name).or_else(|| self.deferred.get(name)).map(String::as_str)
    }

    /// Takes changes over. What joins is deferred: what requests describe is the front of a cached prefix.
    pub fn apply(&mut self, changes: &ToolChanges) {
        for name in &changes.left {
            self.sent.remove(name);
            self.deferred.remove(name);
        }
        self.deferred.extend(changes.joined.iter().map(|(name, hash)| (name.clone(), hash.clone())));
    }
}

impl ToolChanges {
    /// Whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.joined.is_empty() && self.left.is_empty()
    }
}
