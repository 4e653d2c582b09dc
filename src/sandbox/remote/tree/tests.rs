//! Listing and changing, with links in every place.

use std::os::unix::fs::symlink;

use super::*;
use sha2::Sha256;

/// Long after every file was made.
const LATER: i64 = i64::MAX / 2;

fn sha(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

fn file(content: &[u8]) -> Node {
    Node::File { sha256: sha(content), size: content.len() as u64, executable: false }
}

fn put(tree: &Tree, path: &str, content: &[u8], was: Option<&Node>) -> io::Result<bool> {
    let mut incoming = tree.receive(path, content.len() as u64, false)?;
    incoming.write(content)?;
    incoming.finish(&sha(content), was, None)
}

fn list(tree: &Tree) -> Nodes {
    tree.list("", &mut Hashes::default(), &[], LATER).unwrap().0
}

#[test]
fn entries_are_listed_changed_and_listed_again() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::open(dir.path()).unwrap();
    assert!(tree.make_dir("a", None).unwrap() && tree.make_dir("a/b", None).unwrap());
    assert!(put(&tree, "a/b/f", b"one", None).unwrap());
    assert!(tree.make_link("a/l", "b/f", None).unwrap());
    std::fs::write(dir.path().join(".ghost-world"), "mark").unwrap();
    std::os::unix::net::UnixListener::bind(dir.path().join("s")).map(drop).unwrap();
    let link = Node::Link { target: "b/f".into() };
    let found = list(&tree);
    let wanted: Nodes =
        [("a", Node::Dir), ("a/b", Node::Dir), ("a/b/f", file(b"one")), ("a/l", link), ("s", Node::Other)]
            .into_iter()
            .map(|(path, node)| (path.to_owned(), node))
            .collect();
    assert_eq!(found, wanted);
    assert_eq!(tree.list("a/b", &mut Hashes::default(), &[], 0).unwrap().0.len(), 1);
    assert_eq!(tree.list("none", &mut Hashes::default(), &[], 0).unwrap().0.len(), 0);
    // Something else than was believed is left alone.
    assert!(!put(&tree, "a/b/f", b"two", None).unwrap());
    assert!(!put(&tree, "a/b/f", b"two", Some(&file(b"eno"))).unwrap());
    assert!(!tree.remove("a/b/f", &file(b"eno")).unwrap() && !tree.make_dir("a/b", None).unwrap());
    assert!(put(&tree, "a/b/f", b"two", Some(&file(b"one"))).unwrap());
    assert_eq!(std::fs::read(dir.path().join("a/b/f")).unwrap(), b"two");
    assert!(tree.remove("a/b", &Node::Dir).is_err(), "it is not empty");
    assert!(tree.remove("a/b/f", &file(b"two")).unwrap() && tree.remove("a/b", &Node::Dir).unwrap());
    assert!(put(&tree, "a/l", b"x", list(&tree).get("a/l")).unwrap(), "a file in place of a link");
    assert_eq!(std::fs::read_dir(dir.path().join("a")).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn everything_is_removed_however_deep_and_closed_it_is() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("f"), "untouched").unwrap();
    let mut at = entries::open_dir(rustix::fs::CWD, dir.path().to_str().unwrap()).unwrap();
    for _ in 0..2_000 {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::from_raw_mode(0o700)).unwrap();
        rustix::fs::symlinkat(outside.path(), &at, "link").unwrap();
        let next = entries::open_dir(&at, "d").unwrap();
        rustix::fs::fchmod(&next, rustix::fs::Mode::from_raw_mode(0o300)).unwrap();
        at = next;
    }
    Tree::open_copy(dir.path()).unwrap().remove_all().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(std::fs::read(outside.path().join("f")).unwrap(), b"untouched");
}

#[test]
fn no_link_is_followed_and_no_path_leads_out() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(outside.path().join("f"), "untouched").unwrap();
    std::fs::create_dir(dir.path().join("in")).unwrap();
    symlink(outside.path(), dir.path().join("out")).unwrap();
    symlink(outside.path().join("f"), dir.path().join("in/f")).unwrap();
    let tree = Tree::open(dir.path()).unwrap();
    let target = Node::Link { target: outside.path().join("f").display().to_string() };
    assert_eq!(list(&tree).get("in/f"), Some(&target));
    for path in ["out/new", "../new", "/new", "in/../../new", "a/.ghost-tmp-1", ".ghost-world", ""] {
        assert!(put(&tree, path, b"x", None).is_err(), "{path}");
        assert!(tree.make_dir(path, None).is_err() && tree.make_link(path, "x", None).is_err(), "{path}");
        assert!(tree.pieces(path, 0).is_err() && tree.remove(path, &Node::Dir).is_err(), "{path}");
    }
    assert!(tree.pieces("in/f", 0).is_err() && tree.pieces("out/f", 0).is_err());
    assert!(!put(&tree, "in/f", b"x", Some(&file(b"untouched"))).unwrap());
    assert!(put(&tree, "in/f", b"x", Some(&target)).unwrap());
    assert_eq!(std::fs::read(outside.path().join("f")).unwrap(), b"untouched");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_file_that_is_not_as_announced_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::open(dir.path()).unwrap();
    let mut long = tree.receive("f", 2, true).unwrap();
    assert!(long.write(b"abc").is_err());
    drop(long);
    let mut short = tree.receive("f", 3, true).unwrap();
    short.write(b"ab").unwrap();
    assert!(!short.finish(&sha(b"ab"), None, None).unwrap());
    let mut other = tree.receive("f", 2, true).unwrap();
    other.write(b"ab").unwrap();
    assert!(!other.finish(&sha(b"ba"), None, None).unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn contents_are_read_once_unless_they_may_be_changing() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::open(dir.path()).unwrap();
    assert!(put(&tree, "f", b"one", None).unwrap());
    let mut hashes = Hashes::default();
    let path = dir.path().join("f");
    let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
    for (busy, now, is_kept) in [(&["".to_owned()][..], LATER, false), (&[], 0, false), (&[], LATER, true)] {
        tree.list("", &mut hashes, busy, now).unwrap();
        assert_eq!(hashes.has("f"), is_kept, "{busy:?} {now}");
    }
    // The same size and time, but the time of the last change tells.
    std::fs::write(&path, "two").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(changed).unwrap();
    assert_eq!(tree.list("", &mut hashes, &[], LATER).unwrap().0["f"], file(b"two"));
}
