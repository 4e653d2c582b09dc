//! What is at a path of a workspace, as ghostd and a toolbox server tell each other, and what must be sent and brought back so that
//! two copies agree. A path from the other side is used only after [`is_plain`] has judged it, and nothing outside the
//! places that a running command may write to is brought back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::io::Read as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// A change of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) path: String,
    /// What is there now.
    pub(crate) from: Option<Node>,
    /// What it becomes.
    pub(crate) to: Option<Node>,
}

/// What makes two copies agree.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// Changes of the server's copy.
    pub(crate) send: Vec<Change>,
    /// Changes of ghostd's copy.
    pub(crate) fetch: Vec<Change>,
    /// Files that changed on both sides: the server's content is saved beside ghostd's.
    pub(crate) beside: Vec<(String, Node)>,
    /// Links and the like that a command made: they stay with the server.
    pub(crate) stays: Vec<String>,
}

/// Compares ghostd's copy with the server's. `agreed` is what both had when they agreed last; `may_change` says whether a
/// running command may write to a path.
pub(crate) fn steps(agreed: &Nodes, here: &Nodes, there: &Nodes, may_change: &dyn Fn(&str) -> bool) -> Steps {
    let mut steps = Steps::default();
    let paths: BTreeSet<&String> = here.keys().chain(there.keys()).chain(agreed.keys()).collect();
    // What is below something that cannot be compared is not known, and must not count as deleted. Paths are sorted, so
    // what is above a path comes before it.
    let mut unknown: Vec<&str> = Vec::new();
    for path in paths {
        let (here_is, there_is, was) = (here.get(path), there.get(path), agreed.get(path));
        if unknown.iter().any(|dir| is_below(path, dir)) {
            continue;
        }
        if here_is == Some(&Node::Other) {
            unknown.push(path);
            continue;
        }
        if here_is == there_is {
            continue;
        }
        let change = |from: Option<&Node>, to: Option<&Node>| Change {
            path: path.clone(),
            from: from.cloned(),
            to: to.cloned(),
        };
        let is_free = may_change(path);
        if there_is == Some(&Node::Other) && (is_free || here_is.is_none()) {
            unknown.push(path);
            continue;
        }
        if there_is != was && is_free {
            let is_link = matches!(there_is, Some(Node::Link { .. }));
            if is_link {
                steps.stays.push(path.clone());
            } else if here_is == was {
                steps.fetch.push(change(here_is, there_is));
            } else {
                if let Some(file @ Node::File { .. }) = there_is {
                    steps.beside.push((path.clone(), file.clone()));
                }
                steps.send.push(change(there_is, here_is));
            }
            continue;
        }
        // A link that a command made lives as long as its directory does.
        let own_link = matches!(there_is, Some(Node::Link { .. })) && here_is.is_none() && was.is_none();
        let has_place = || parent(path).is_empty() || here.get(parent(path)) == Some(&Node::Dir);
        if !(own_link && has_place()) {
            steps.send.push(change(there_is, here_is));
        }
    }
    for changes in [&mut steps.send, &mut steps.fetch] {
        // What goes, goes from the inside out; what comes needs its directory first.
        changes.sort_by_key(|change| match &change.to {
            None => 0,
            Some(Node::Dir) => 1,
            Some(_) => 2,
        });
        let gone = changes.iter().take_while(|change| change.to.is_none()).count();
        changes[..gone].reverse();
    }
    steps
}

/// A name that nobody else has.
///
/// # Errors
/// If the machine has no random numbers.
pub fn random_name() -> io::Result<String> {
    let mut random = [0; 12];
    File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random))?;
    Ok(hex::encode(random))
}

/// The places that running commands may write to. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<Mutex<BTreeMap<u64, Vec<String>>>>);

/// A command that runs. Dropped, its places are quiet.
#[derive(Debug)]
pub struct Busy(Places, u64);

impl Places {
    fn running(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<String>>> {
        // Changes under the lock are single calls of the map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a command may write below these places.
    #[must_use]
    pub fn begin(&self, places: Vec<String>) -> Busy {
        let mut running = self.running();
        let number = running.last_key_value().map_or(0, |(last, _)| last + 1);
        running.insert(number, places);
        drop(running);
        Busy(self.clone(), number)
    }

    /// The places of all commands that run.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.running().values().flatten().cloned().collect()
    }

    /// How many commands run.
    #[must_use]
    pub fn count(&self) -> usize {
        self.running().len()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.running().remove(&self.1);
    }
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

    fn file(content: &str) -> Node {
        Node::File { sha256: content.into(), size: content.len() as u64, executable: false }
    }

    fn nodes(of: &[(&str, Node)]) -> Nodes {
        of.iter().map(|(path, node)| ((*path).to_owned(), node.clone())).collect()
    }

    fn change(path: &str, from: Option<Node>, to: Option<Node>) -> Change {
        Change { path: path.into(), from, to }
    }

    fn in_own(path: &str) -> bool {
        is_below(path, "own")
    }

    // covers: TBX-07
    #[test]
    fn every_difference_of_one_file_has_its_step() {
        let values = [None, Some("1"), Some("2"), Some("3")];
        for was in values {
            for here in values {
                for there in values {
                    for path in ["own/f", "other/f"] {
                        let of = |value: Option<&str>| {
                            nodes(&value.map(|v| (path, file(v))).into_iter().collect::<Vec<_>>())
                        };
                        let node = |value: Option<&str>| value.map(file);
                        let steps = steps(&of(was), &of(here), &of(there), &in_own);
                        let (mut send, mut fetch, mut beside) = (vec![], vec![], vec![]);
                        let command_wrote = there != was && path == "own/f";
                        if here == there {
                        } else if !command_wrote {
                            send.push(change(path, node(there), node(here)));
                        } else if here == was {
                            fetch.push(change(path, node(here), node(there)));
                        } else {
                            beside.extend(there.map(|there| (path.to_owned(), file(there))));
                            send.push(change(path, node(there), node(here)));
                        }
                        let wanted = Steps { send, fetch, beside, stays: vec![] };
                        assert_eq!(steps, wanted, "{path}: {was:?} {here:?} {there:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn directories_come_before_what_is_in_them_and_go_after_it() {
        let full = nodes(&[("own/a", Node::Dir), ("own/a/b", Node::Dir), ("own/a/b/f", file("1"))]);
        let paths = |changes: &[Change]| changes.iter().map(|change| change.path.clone()).collect::<Vec<_>>();
        let none = Nodes::new();
        assert_eq!(paths(&steps(&none, &none, &full, &in_own).fetch), ["own/a", "own/a/b", "own/a/b/f"]);
        assert_eq!(paths(&steps(&full, &full, &none, &in_own).fetch), ["own/a/b/f", "own/a/b", "own/a"]);
        assert_eq!(paths(&steps(&none, &none, &full, &|_| false).send), ["own/a/b/f", "own/a/b", "own/a"]);
    }

    #[test]
    fn links_of_commands_stay_and_what_is_unknown_is_not_deleted() {
        let link = || Node::Link { target: "x".into() };
        let (none, here) = (Nodes::new(), nodes(&[("own", Node::Dir)]));
        let there = nodes(&[("own", Node::Dir), ("own/l", link())]);
        let made = steps(&here, &here, &there, &in_own);
        assert_eq!((made.stays.as_slice(), made.fetch.len(), made.send.len()), (&["own/l".to_owned()][..], 0, 0));
        assert_eq!(steps(&here, &here, &there, &|_| false), Steps::default());
        // With its directory it goes.
        assert_eq!(steps(&there, &none, &there, &|_| false).send.len(), 2);
        // ghostd's own links are sent.
        assert_eq!(steps(&here, &there, &here, &in_own).send, [change("own/l", None, Some(link()))]);
        let before = nodes(&[("own", Node::Dir), ("own/d", Node::Dir), ("own/d/f", file("1"))]);
        let shut = nodes(&[("own", Node::Dir), ("own/d", Node::Other)]);
        assert_eq!(steps(&before, &before, &shut, &in_own), Steps::default());
        assert_eq!(steps(&before, &shut, &before, &in_own), Steps::default());
    }
}
