//! Decides what must be sent and what must be brought back, so that two copies of a workspace agree. Pure.
//!
//! Nothing outside the places that a running command may write to must ever be brought back.

use std::collections::BTreeSet;

use super::node::{Node, Nodes, is_below, parent};

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

#[cfg(test)]
mod tests {
    use super::*;

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
