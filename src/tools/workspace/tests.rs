use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use ghost_domain::Refusal;
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode};
use tempfile::TempDir;

use super::*;

pub(super) fn path(text: &str) -> WorkspacePath {
    WorkspacePath::parse(text, true).unwrap()
}

pub(super) fn new_workspace() -> (TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    let workspace = Workspace::inline(&dir.path().join("ws")).unwrap();
    (dir, workspace)
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
    result.unwrap_err().code
}

pub(super) fn all_lines(max_bytes: usize) -> Lines {
    Lines { first: 1, skip: 0, count: None, max_bytes }
}

/// A planned change of a file from one text to another; `None` is no file.
fn write_of(path: &str, before: Option<&str>, after: Option<&str>) -> FileWrite {
    let hash = |text: &str| sha256_hex(text.as_bytes());
    let plan = FilePlan { path: path.into(), before: before.map(hash), after: after.map(hash), grant_id: None };
    FileWrite { plan, bytes: after.map(|text| text.as_bytes().to_vec()) }
}

/// Every name under `root` that is a temporary file.
fn temps(root: &Path) -> usize {
    let mut found = 0;
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            }
            found += usize::from(entry.file_name().to_string_lossy().starts_with(ghost_domain::write_acl::TEMP_PREFIX));
        }
    }
    found
}

#[tokio::test]
async fn the_oldest_files_of_a_kind_are_removed() {
    let (dir, workspace) = new_workspace();
    let is_kept = |name: &str| name.starts_with('r');
    workspace.keep_newest(&path("agents/a/r"), 1, is_kept).await.unwrap();
    for name in ["r1", "r2", "own", "r3"] {
        workspace.write_atomic(&path(&format!("agents/a/r/{name}")), b"x").await.unwrap();
    }
    let place = dir.path().join("ws/agents/a/r");
    for (name, day) in [("r1", 3), ("r2", 1), ("own", 0), ("r3", 2)] {
        let file = std::fs::File::options().write(true).open(place.join(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(day * 86_400)).unwrap();
    }
    workspace.keep_newest(&path("agents/a/r"), 2, is_kept).await.unwrap();
    let left = |name: &str| place.join(name).exists();
    assert_eq!(["r1", "r2", "own", "r3"].map(left), [true, false, true, true]);
    // Nothing is removed through a link.
    symlink("r", dir.path().join("ws/agents/a/link")).unwrap();
    assert_eq!(code(workspace.keep_newest(&path("agents/a/link"), 0, is_kept).await), Code::PathDenied);
    assert!(left("r1"));
}

/// If ghostd is root, commands are another user, who owns the directories that commands wrote to.
#[tokio::test]
async fn what_is_made_in_a_directory_belongs_to_its_owner() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (dir, workspace) = new_workspace();
    let home = dir.path().join("ws/agents/ada");
    std::fs::create_dir_all(&home).unwrap();
    chown(&home, Some(65_534), Some(65_534)).unwrap();
    workspace.ensure_agent(&"ada".parse().unwrap()).await.unwrap();
    for (path, owner) in [("agents/ada/new/deep/f", 65_534), ("output/f", 0)] {
        workspace.write_atomic(&self::path(path), b"x").await.unwrap();
        let found = std::fs::metadata(dir.path().join("ws").join(path)).unwrap();
        assert_eq!((found.uid(), found.gid()), (owner, owner), "{path}");
    }
    for path in ["notes", "new", "new/deep"] {
        assert_eq!(std::fs::metadata(home.join(path)).unwrap().uid(), 65_534, "{path}");
    }
}

// covers: ART-04
#[tokio::test]
async fn opening_creates_the_layout_and_removes_temporary_files() {
    let (dir, workspace) = new_workspace();
    workspace.ensure_agent(&"ada".parse().unwrap()).await.unwrap();
    workspace.ensure_agent(&"ada".parse().unwrap()).await.unwrap();
    let root = dir.path().join("ws");
    for place in [
        "output/briefings",
        "output/digests",
        "projects",
        "shared/manifests",
        "shared/templates",
        "agents/ada/inbox",
        "agents/ada/notes",
    ] {
        assert!(root.join(place).is_dir(), "{place}");
    }
    std::fs::write(root.join("agents/ada/notes/.ghost-tmp-7"), "half").unwrap();
    std::fs::write(root.join("agents/ada/notes/kept.md"), "whole").unwrap();
    assert_eq!(code(workspace.read(&path("agents/ada/notes/.ghost-tmp-7"), 10).await), Code::PathDenied);
    let listing = workspace.list(&path("agents/ada/notes"), 1, None, 10).await.unwrap();
    assert_eq!(listing.entries.len(), 1);
    Workspace::inline(&root).unwrap();
    assert_eq!(temps(&root), 0);
    assert!(root.join("agents/ada/notes/kept.md").is_file());
}

// covers: DROID-07
#[tokio::test]
async fn a_droids_directory_is_made_again_where_it_is_missing() {
    let (dir, workspace) = new_workspace();
    let droid_id: ghost_domain::AgentId = "droid-0a1b2c3d".parse().unwrap();
    let home = dir.path().join("ws").join(droid_id.home());
    let task = || std::fs::read_to_string(home.join("task.md")).unwrap();
    let ensure = || workspace.ensure_droid(&droid_id, "count".into(), false);
    ensure().await.unwrap();
    std::fs::write(home.join("output/old.md"), "of another droid").unwrap();
    for number in 1..3 {
        workspace.ensure_droid(&droid_id, "count".into(), true).await.unwrap();
        assert!(home.with_file_name(format!("{droid_id}.{number}")).join("task.md").exists());
        assert!(!home.join("output/old.md").exists(), "a new droid starts in a directory of its own");
    }
    assert!(home.join("output").is_dir() && task() == "count" && temps(&dir.path().join("ws")) == 0);
    // A power loss leaves a file without its content, or no directory.
    std::fs::write(home.join("task.md"), "").unwrap();
    std::fs::remove_dir(home.join("output")).unwrap();
    ensure().await.unwrap();
    assert!(home.join("output").is_dir() && task() == "count");
    std::fs::remove_dir_all(&home).unwrap();
    ensure().await.unwrap();
    assert_eq!(task(), "count");
    std::fs::write(home.join("task.md"), "changed by the droid").unwrap();
    ensure().await.unwrap();
    assert_eq!(task(), "changed by the droid");
    workspace.write_atomic(&path("droids/droid-0a1b2c3d/output/part/a.md"), b"x").await.unwrap();
    assert_eq!(std::fs::read(home.join("output/part/a.md")).unwrap(), b"x");
    std::fs::remove_dir_all(&home).unwrap();
    std::os::unix::fs::symlink(dir.path(), &home).unwrap();
    assert_eq!(code(ensure().await), Code::PathDenied);
}

#[tokio::test]
async fn files_are_written_read_and_hashed() {
    let (dir, workspace) = new_workspace();
    let file = path("projects/a/b/notes.md");
    assert_eq!(workspace.hash(&file).await.unwrap(), None);
    assert!(!dir.path().join("ws/projects/a").exists(), "looking creates nothing");
    workspace.write_atomic(&file, "one\ntwo\nthree é\n".as_bytes()).await.unwrap();
    workspace.write_atomic(&file, "one\ntwo\nthree é\n".as_bytes()).await.unwrap();
    assert_eq!(workspace.hash(&file).await.unwrap().unwrap(), sha256_hex("one\ntwo\nthree é\n".as_bytes()));
    let text = workspace.read_text(&file, Lines { first: 2, skip: 0, count: Some(1), max_bytes: 100 }).await.unwrap();
    assert_eq!((text.content.as_str(), text.lines, text.bytes, text.truncated), ("two\n", 1, 17, true));
    let text = workspace.read_text(&file, all_lines(15)).await.unwrap();
    assert_eq!((text.content.as_str(), text.truncated), ("one\ntwo\nthree ", true));
    let text = workspace.read_text(&file, Lines { first: 9, skip: 0, count: None, max_bytes: 100 }).await.unwrap();
    assert_eq!((text.content.as_str(), text.lines, text.truncated), ("", 0, false));
    assert_eq!(code(workspace.read(&file, 16).await), Code::TooLarge);
    assert_eq!(workspace.read(&file, 17).await.unwrap().len(), 17);
    assert_eq!(code(workspace.read(&path("projects/none"), 10).await), Code::NotFound);
    assert_eq!(code(workspace.read(&path("projects/a"), 10).await), Code::InvalidArguments);
    assert_eq!(code(workspace.read(&path("projects/a/b/notes.md/x"), 10).await), Code::PathDenied);
    workspace.write_atomic(&path("projects/blob"), &[0xff, 0xfe, 0]).await.unwrap();
    let refusal = workspace.read_text(&path("projects/blob"), all_lines(10)).await.unwrap_err();
    assert_eq!(refusal.code, Code::InvalidArguments, "{refusal}");
}

// covers: ACL-07, TEST-03
#[tokio::test]
async fn links_do_not_lead_out_and_writes_follow_none() {
    let (dir, workspace) = new_workspace();
    let (root, outside) = (dir.path().join("ws"), dir.path().join("outside"));
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "s").unwrap();
    symlink(&outside, root.join("shared/out")).unwrap();
    symlink("../../outside", root.join("shared/up")).unwrap();
    symlink("/etc/passwd", root.join("shared/passwd")).unwrap();
    symlink("nowhere", root.join("shared/dangling")).unwrap();
    symlink(outside.join("new"), root.join("shared/dangling-out")).unwrap();
    symlink("../projects", root.join("shared/inside")).unwrap();
    symlink("loop", root.join("shared/loop")).unwrap();
    for bad in ["out/secret", "up/secret", "passwd", "dangling-out", "loop"] {
        let bad = path(&format!("shared/{bad}"));
        assert_eq!(code(workspace.read(&bad, 10).await), Code::PathDenied, "{bad:?}");
        assert_eq!(code(workspace.list(&bad, 1, None, 10).await), Code::PathDenied, "{bad:?}");
    }
    for bad in
        ["out/secret", "out/new", "up/secret", "passwd", "dangling", "dangling-out", "inside/x", "inside", "loop"]
    {
        let bad = path(&format!("shared/{bad}"));
        assert_eq!(code(workspace.write_atomic(&bad, b"x").await), Code::PathDenied, "{bad:?}");
        assert_eq!(code(workspace.hash(&bad).await), Code::PathDenied, "{bad:?}");
        assert_eq!(code(workspace.text_for_change(&bad, 10).await), Code::PathDenied, "{bad:?}");
    }
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(root.join("projects")).unwrap().count(), 0);
    // A link within the workspace may be followed for reading.
    workspace.write_atomic(&path("projects/x"), b"x").await.unwrap();
    assert_eq!(workspace.read(&path("shared/inside/x"), 10).await.unwrap(), b"x");
    let listing = workspace.list(&path("shared"), 8, None, 100).await.unwrap();
    let made = |entry: &&Entry| !["shared/manifests", "shared/templates"].contains(&entry.path.as_str());
    assert!(listing.entries.iter().filter(made).all(|entry| entry.kind == EntryKind::Link), "{listing:?}");
}

#[tokio::test]
async fn pipes_and_devices_are_never_opened_or_replaced() {
    let (dir, workspace) = new_workspace();
    let pipe = dir.path().join("ws/shared/pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    // A read that waited for a writer would hang here.
    assert_eq!(code(workspace.read(&path("shared/pipe"), 10).await), Code::PathDenied);
    assert_eq!(code(workspace.write_atomic(&path("shared/pipe"), b"x").await), Code::PathDenied);
    assert_eq!(code(workspace.write_atomic(&path("shared/pipe/x"), b"x").await), Code::PathDenied);
    assert_eq!(code(workspace.write_atomic(&path("output/reports"), b"x").await), Code::PathDenied);
    assert_eq!(code(workspace.write_atomic(&path("shared/.ghost-tmp-1"), b"x").await), Code::PathDenied);
}

/// Stops the swapping thread on drop, so that a failed assertion does not hang the test.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// covers: ACL-07
#[test]
fn a_parent_swapped_for_a_link_never_lets_a_write_out() {
    let (dir, workspace) = new_workspace();
    let (root, outside) = (dir.path().join("ws"), dir.path().join("outside"));
    std::fs::create_dir(&outside).unwrap();
    let (sub, held) = (root.join("shared/sub"), root.join("shared/held"));
    std::fs::create_dir(&sub).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // Any of these may fail if a write recreates the directory at the same time.
                let _ = std::fs::rename(&sub, &held);
                let _ = symlink(&outside, &sub);
                let _ = std::fs::remove_file(&sub);
                let _ = std::fs::rename(&held, &sub);
                let _ = std::fs::remove_dir_all(&held);
            }
        });
        let _done = Done(&done);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for n in 0..400 {
                // The write is refused or done, but never outside the workspace.
                let _ = workspace.write_atomic(&path(&format!("shared/sub/f{n}")), b"x").await;
                let _ = workspace.write_atomic(&path(&format!("shared/sub/deep/f{n}")), b"x").await;
            }
        });
    });
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[tokio::test]
async fn a_failed_write_leaves_the_old_content() {
    let (dir, workspace) = new_workspace();
    let file = path("output/reports/r.md");
    workspace.write_atomic(&file, b"old").await.unwrap();
    let full = writing::replace(&workspace.disk.root, &file, |out| {
        std::io::Write::write_all(out, b"ne")?;
        Err(rustix::io::Errno::NOSPC.into())
    });
    let refusal = full.unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.hint.is_some());
    assert_eq!(workspace.read(&file, 10).await.unwrap(), b"old");
    assert_eq!(temps(dir.path()), 0);
}

#[tokio::test]
async fn an_outdated_plan_is_a_conflict() {
    let (_dir, workspace) = new_workspace();
    let board = |before: Option<&str>, after: &str| vec![write_of("shared/board.md", before, Some(after))];
    workspace.carry_out(board(None, "1")).await.unwrap();
    assert_eq!(code(workspace.carry_out(board(None, "2")).await), Code::Conflict);
    workspace.carry_out(board(Some("1"), "2")).await.unwrap();
    assert_eq!(code(workspace.carry_out(board(Some("1"), "3")).await), Code::Conflict);
    assert_eq!(code(workspace.carry_out(vec![write_of("../x", None, Some(""))]).await), Code::PathDenied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_with_one_plan_exactly_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let workspace = Arc::new(Workspace::open(dir.path()).unwrap());
    let writers: Vec<_> = (0..16_u8)
        .map(|n| {
            let workspace = Arc::clone(&workspace);
            tokio::spawn(async move {
                let text = n.to_string();
                workspace.carry_out(vec![write_of("shared/one", None, Some(text.as_str()))]).await.is_ok()
            })
        })
        .collect();
    let mut won = 0;
    for writer in writers {
        won += usize::from(writer.await.unwrap());
    }
    assert_eq!(won, 1);
    assert_eq!(temps(dir.path()), 0);
}

// covers: BI-04
#[tokio::test]
async fn several_files_are_written_together_or_not_at_all() {
    let (dir, workspace) = new_workspace();
    let read = async |name: &str| match workspace.read(&path(name), 100).await {
        Ok(bytes) => Some(String::from_utf8(bytes).unwrap()),
        Err(_) => None,
    };
    for (name, text) in [("projects/old", "old"), ("projects/gone", "gone")] {
        workspace.write_atomic(&path(name), text.as_bytes()).await.unwrap();
    }
    let all = || {
        vec![
            write_of("projects/new/a", None, Some("a")),
            write_of("projects/old", Some("old"), Some("new")),
            write_of("projects/gone", Some("gone"), None),
        ]
    };
    let untouched = async || {
        let now = (read("projects/new/a").await, read("projects/old").await, read("projects/gone").await);
        assert_eq!(now, (None, Some("old".into()), Some("gone".into())));
        assert_eq!(temps(dir.path()), 0);
    };
    // One that is not as planned, wherever it stands, stops all.
    for at in 0..3 {
        let mut writes = all();
        writes.insert(at, write_of("projects/other", Some("not there"), Some("x")));
        assert_eq!(code(workspace.carry_out(writes).await), Code::Conflict, "{at}");
        untouched().await;
    }
    let mut twice = all();
    twice.push(write_of("projects/old", Some("old"), Some("other")));
    assert_eq!(code(workspace.carry_out(twice).await), Code::InvalidArguments);
    untouched().await;
    // One that fails when the others are in their places: a directory that only another write makes is in its way.
    let mut writes = all();
    writes.push(write_of("projects/deep", None, Some("a file")));
    writes.push(write_of("projects/deep/x", None, Some("below it")));
    assert_eq!(code(workspace.carry_out(writes).await), Code::PathDenied);
    untouched().await;
    workspace.carry_out(all()).await.unwrap();
    let now = (read("projects/new/a").await, read("projects/old").await, read("projects/gone").await);
    assert_eq!(now, (Some("a".into()), Some("new".into()), None));
    assert_eq!(temps(dir.path()), 0);
    // The files that were not there are taken back, the others are not.
    assert!(!workspace.take_back(&all().into_iter().map(|write| write.plan).collect::<Vec<_>>()).await.unwrap());
    assert_eq!((read("projects/new/a").await, read("projects/old").await), (None, Some("new".into())));
}

#[tokio::test]
async fn lines_are_appended_and_files_of_any_size_hashed() {
    let (dir, workspace) = new_workspace();
    let file = path("shared/manifests/x.jsonl");
    workspace.append(&file, b"one\n".to_vec()).await.unwrap();
    workspace.append(&file, b"two\n".to_vec()).await.unwrap();
    assert_eq!(workspace.read(&file, 100).await.unwrap(), b"one\ntwo\n");
    assert_eq!(workspace.digest(&file).await.unwrap(), Some((sha256_hex(b"one\ntwo\n"), 8)));
    assert_eq!(workspace.digest(&path("shared/none")).await.unwrap(), None);
    let root = dir.path().join("ws/shared/manifests");
    std::fs::write(dir.path().join("outside"), "kept").unwrap();
    symlink(dir.path().join("outside"), root.join("link")).unwrap();
    std::fs::create_dir(root.join("dir")).unwrap();
    for name in ["link", "dir", "link/x"] {
        assert_eq!(
            code(workspace.append(&path(&format!("shared/manifests/{name}")), b"x".to_vec()).await),
            Code::PathDenied
        );
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("outside")).unwrap(), "kept");
}

#[tokio::test]
async fn listings_are_sorted_and_limited() {
    let (_dir, workspace) = new_workspace();
    for name in ["b.md", "a.md", "sub/c.md", "sub/deep/d.txt"] {
        workspace.write_atomic(&path(&format!("projects/{name}")), b"xy").await.unwrap();
    }
    let names = |listing: Listing| listing.entries.into_iter().map(|entry| entry.path).collect::<Vec<_>>();
    let one = workspace.list(&path("projects"), 1, None, 100).await.unwrap();
    assert_eq!(one.entries[0].bytes, Some(2));
    assert_eq!(names(one), ["projects/a.md", "projects/b.md", "projects/sub"]);
    let deep = workspace.list(&path("projects"), 8, Some("*.md"), 100).await.unwrap();
    assert_eq!(names(deep), ["projects/a.md", "projects/b.md", "projects/sub/c.md"]);
    let cut = workspace.list(&path(""), 8, None, 2).await.unwrap();
    assert!(cut.truncated && cut.entries.len() == 2);
    assert_eq!(code(workspace.list(&path("projects/a.md"), 1, None, 1).await), Code::InvalidArguments);
    assert_eq!(code(workspace.list(&path("none"), 1, None, 1).await), Code::NotFound);
}

/// Set in the child process that runs the test again with few file descriptors.
const FEW_HANDLES: &str = "GHOST_TEST_FEW_HANDLES";

#[test]
#[expect(clippy::disallowed_methods, reason = "the bound on handles is a process's: this one keeps its own")]
fn a_wide_tree_is_walked_with_few_file_descriptors() {
    if std::env::var_os(FEW_HANDLES).is_none() {
        let mut again = std::process::Command::new("/bin/sh");
        again.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        again.args(["--exact", "workspace::tests::a_wide_tree_is_walked_with_few_handles", "--test-threads=1"]);
        let output = again.env(FEW_HANDLES, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        return;
    }
    let (dir, workspace) = new_workspace();
    for n in 0..300 {
        let sub = dir.path().join(format!("ws/projects/p/{n:03}"));
        std::fs::create_dir_all(&sub).unwrap();
        std::fs::write(sub.join("x.md"), "x").unwrap();
        std::fs::write(sub.join(".ghost-tmp-1"), "x").unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let listing = runtime.block_on(workspace.list(&path("projects/p"), 2, Some("x.md"), 2_000)).unwrap();
    assert_eq!((listing.entries.len(), listing.truncated), (300, false));
    let seen = runtime.block_on(workspace.stamps(&path("projects"), true, 1_000)).unwrap().unwrap();
    assert_eq!(seen.files.len(), 300);
    Workspace::inline(&dir.path().join("ws")).unwrap();
    assert_eq!(temps(dir.path()), 0);
}

/// Removes the capabilities with which root ignores file modes, from this thread only.
fn drop_capabilities() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH);
    set_capabilities(None, sets).unwrap();
}

#[test]
fn an_unreadable_directory_is_reported_and_not_treated_as_removed() {
    // A separate thread, because it drops capabilities.
    std::thread::spawn(|| {
        let (dir, workspace) = new_workspace();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let closed = dir.path().join("ws/shared/closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::write(closed.join("x"), "x").unwrap();
        std::fs::write(dir.path().join("ws/shared/y"), "y").unwrap();
        let list = || runtime.block_on(workspace.list(&path("shared"), 2, None, 100)).unwrap();
        let stamps = || runtime.block_on(workspace.stamps(&path("shared"), true, 100));
        assert!(!list().truncated && stamps().unwrap().unwrap().files.len() == 2);
        drop_capabilities();
        let mode =
            |mode| std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        mode(0o000);
        let listing = list();
        // Beside the two, the layout has two.
        assert!(listing.truncated && listing.entries.len() == 4, "{listing:?}");
        let refusal = stamps().unwrap_err();
        assert!(refusal.code == Code::PathDenied && refusal.message.contains("shared/closed"), "{refusal}");
        // Opening skips such a directory.
        Workspace::inline(&dir.path().join("ws")).unwrap();
        mode(0o755);
    })
    .join()
    .unwrap();
}

#[tokio::test]
async fn directories_below_a_watch_are_limited_too() {
    let (dir, workspace) = new_workspace();
    for n in 0..5 {
        std::fs::create_dir(dir.path().join(format!("ws/projects/{n}"))).unwrap();
    }
    assert!(workspace.stamps(&path("projects"), true, 5).await.unwrap().unwrap().files.is_empty());
    let refusal = workspace.stamps(&path("projects"), true, 4).await.unwrap_err();
    assert!(refusal.code == Code::TooLarge && refusal.message.contains("4 directories"), "{refusal}");
}

#[tokio::test]
async fn a_file_too_large_to_hash_is_not_replaced() {
    let (dir, workspace) = new_workspace();
    let big = std::fs::File::create(dir.path().join("ws/shared/big")).unwrap();
    // The file is sparse.
    big.set_len(65 * 1024 * 1024).unwrap();
    assert_eq!(code(workspace.hash(&path("shared/big")).await), Code::TooLarge);
    std::fs::write(dir.path().join("ws/shared/big"), vec![b'x'; 65 * 1024 * 1024]).unwrap();
    let beyond = Lines { first: 2, skip: 0, count: None, max_bytes: 10 };
    let refusal = workspace.read_text(&path("shared/big"), beyond).await.unwrap_err();
    assert!(refusal.code == Code::TooLarge && refusal.message.contains("`shared/big`"), "{refusal}");
    assert!(refusal.hint.is_some_and(|hint| !hint.contains("offset")));
    assert_eq!(code(workspace.carry_out(vec![write_of("shared/big", None, Some("x"))]).await), Code::TooLarge);
    let (_, bytes) = workspace.digest(&path("shared/big")).await.unwrap().unwrap();
    assert_eq!(bytes, 65 * 1024 * 1024, "a digest has no such bound");
}

#[tokio::test]
async fn a_write_is_undone_only_if_its_content_is_unchanged() {
    let (dir, workspace) = new_workspace();
    let plan = |before: Option<&str>| [write_of("shared/new", before, Some("new")).plan];
    let at = dir.path().join("ws/shared/new");
    workspace.carry_out(vec![write_of("shared/new", None, Some("new"))]).await.unwrap();
    assert!(workspace.take_back(&plan(None)).await.unwrap() && !at.exists());
    assert!(workspace.take_back(&plan(None)).await.unwrap(), "nothing is there");
    std::fs::write(&at, "someone else's").unwrap();
    assert!(!workspace.take_back(&plan(None)).await.unwrap() && at.exists());
    std::fs::write(&at, "new").unwrap();
    assert!(!workspace.take_back(&plan(Some("old"))).await.unwrap() && at.exists());
    assert!(workspace.take_back(&plan(Some("new"))).await.unwrap() && at.exists(), "it was there before");
}

#[tokio::test]
async fn a_panic_in_offloaded_work_reaches_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let workspace = Arc::new(Workspace::open(dir.path()).unwrap());
    let task = tokio::spawn(async move { workspace.offload(|| -> Result<(), Refusal> { panic!("on purpose") }).await });
    assert!(task.await.unwrap_err().is_panic());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn text_read_in_parts_equals_the_written_text(
        text in "([a-zé]{0,8}\n?){0,12}",
        first in 0u64..8,
        count in prop::option::of(0u64..8),
        max_bytes in 0usize..64,
    ) {
        let (_dir, workspace) = new_workspace();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            workspace.write_atomic(&path("shared/t"), text.as_bytes()).await.unwrap();
            let got = workspace.read_text(&path("shared/t"), Lines { first, skip: 0, count, max_bytes }).await.unwrap();
            let skip = usize::try_from(first.max(1) - 1).unwrap();
            let take = count.map_or(usize::MAX, |count| usize::try_from(count).unwrap());
            let wanted: String = text.split_inclusive('\n').skip(skip).take(take).collect();
            assert_eq!(got.content, ghost_domain::text::prefix_bytes(&wanted, max_bytes));
            assert!(got.truncated || wanted.len() == got.content.len());
        });
    }
}
