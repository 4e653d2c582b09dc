//! What is at a path of a workspace, as ghostd and a toolbox server tell each other.
//!
//! A path from the other side must never be used before [`is_plain`] has judged it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Longest path in bytes.
pub const PATH_MAX: usize = 4_096;
/// Deepest directory that is looked into.
pub const DEPTH_MAX: usize = 64;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Node {
    /// A directory.
    Dir,
    /// A file with this content.
    File {
        /// SHA-256 of the content, in lower-case hexadecimal digits.
        sha256: String,
        /// Bytes.
        size: u64,
        /// Whether its owner may run it.
        executable: bool,
    },
    /// A symbolic link.
    Link {
        /// Where it leads, as it is written.
        target: String,
    },
    /// Something else: a socket, a pipe, a directory that cannot be read. Nothing at or below it is compared.
    Other,
}

impl Node {
    /// The size of a file; 0 of everything else.
    #[must_use]
    pub fn size(&self) -> u64 {
        if let Self::File { size, .. } = self { *size } else { 0 }
    }
}

/// Entries by path, relative to the workspace.
pub type Nodes = BTreeMap<String, Node>;

/// One value for all entries: equal entries have equal digests.
#[must_use]
pub fn digest<'n>(nodes: impl Iterator<Item = (&'n String, &'n Node)>) -> String {
    let mut hash = Sha256::new();
    for (path, node) in nodes {
        let (kind, text, executable) = match node {
            Node::Dir => (b'd', "", false),
            Node::File { sha256, executable, .. } => (b'f', sha256.as_str(), *executable),
            Node::Link { target } => (b'l', target.as_str(), false),
            Node::Other => (b'o', "", false),
        };
        // A path has no zero byte, and neither has a target, so the parts cannot run into each other.
        hash.update(path);
        hash.update([0, kind, u8::from(executable)]);
        hash.update(text);
        hash.update([0]);
    }
    hex::encode(hash.finalize())
}

/// Whether `path` is strictly below the directory `dir`. Everything is below the root, which is empty.
#[must_use]
pub fn is_below(path: &str, dir: &str) -> bool {
    let dir = dir.trim_end_matches('/');
    dir.is_empty() || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

/// The directory of `path`; empty for the root.
#[must_use]
pub fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Whether `path` names an entry below the workspace's root and nothing else: no `.` or `..`, not absolute.
#[must_use]
pub fn is_plain(path: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.len() <= 255 && part != "." && part != "..";
    path.len() <= PATH_MAX
        && !path.contains('\0')
        && path.split('/').all(is_part)
        && path.split('/').count() <= DEPTH_MAX + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_root_are_plain() {
        for good in ["a", "a/b.c", "agents/ada/ü", "a/..b", "-"] {
            assert!(is_plain(good), "{good}");
        }
        let deep = "a/".repeat(DEPTH_MAX + 1) + "a";
        for bad in ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\0b", &"x".repeat(256), &deep] {
            assert!(!is_plain(bad), "{bad}");
        }
        assert!(is_below("a/b", "a") && is_below("a/b", "a/") && is_below("a", ""));
        assert!(!is_below("a", "a") && !is_below("ab/c", "a") && !is_below("b", "a"));
    }

    #[test]
    fn a_digest_tells_every_difference() {
        let file = |sha256: &str, executable| Node::File { sha256: sha256.into(), size: 1, executable };
        let link = |target: &str| Node::Link { target: target.into() };
        let all = [
            vec![],
            vec![("a", Node::Dir)],
            vec![("a", file("1", false))],
            vec![("a", file("1", true))],
            vec![("a", file("2", false))],
            vec![("b", file("1", false))],
            vec![("a", link("1"))],
            vec![("a", Node::Other)],
            vec![("a", Node::Dir), ("b", Node::Dir)],
        ];
        let digests: std::collections::BTreeSet<String> = all
            .iter()
            .map(|nodes| {
                let nodes: Nodes = nodes.iter().map(|(path, node)| ((*path).to_owned(), node.clone())).collect();
                digest(nodes.iter())
            })
            .collect();
        assert_eq!(digests.len(), all.len());
    }
}
