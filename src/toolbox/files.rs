//! The copies of workspaces: lists them, reads files, and makes changes. No request reaches outside the copy of its world, or
//! holds more of the machine than its bounds.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use ghost_domain::text::shown;
use ghost_domain::{Code, Refusal};
use ghost_sandbox::remote::node::{Node, digest, is_plain};
use ghost_sandbox::remote::protocol;
use ghost_sandbox::remote::protocol::{
    BYTES_MAX, Change, Content, Data, ENTRIES_MAX, FILES_MAX, LINE_MAX, Lines, Read, What, Write, Written,
};
use ghost_sandbox::remote::tree::{Incoming, Tree, TreeError};
use ghost_sandbox::within;
use tokio::sync::mpsc;

use crate::requests::{invalid, lines, next_line, parsed};
use crate::worlds::{World, Worlds};

/// Lines that may wait for the client, and changes that may wait for the disk.
const QUEUE: usize = 16;
/// How long a client may be silent while it sends.
const IDLE: Duration = Duration::from_secs(60);
/// Skipped changes that are reported.
const SKIPPED_MAX: usize = 1_000;
/// Changes of one request: each entry may go and come.
const CHANGES_MAX: usize = 2 * ENTRIES_MAX;

/// Answers `POST /workspace/read`.
///
/// # Errors
/// If the request is not valid, or the copy cannot be listed.
pub(crate) async fn read(worlds: &Arc<Worlds>, request: Read) -> Result<Response, Refusal> {
    let world = worlds.world(&request.world).await?;
    let (to, from) = mpsc::channel::<Bytes>(QUEUE);
    match request.what {
        What::List { scope, known } => list(worlds, world, scope, known, to).await?,
        What::Files(files) => {
            if files.len() > FILES_MAX || !files.iter().all(|(path, _)| is_plain(path)) {
                return Err(invalid("there are too many files, or one is not of the workspace"));
            }
            tokio::task::spawn_blocking(move || send_files(&world.tree, &files, &to));
        }
    }
    Ok(lines(from))
}

fn disk(why: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("the copy of the workspace {why}"))
        .hint("an operator must look at the server's disk")
}

async fn list(
    worlds: &Arc<Worlds>,
    world: Arc<World>,
    scope: String,
    known: Option<String>,
    to: mpsc::Sender<Bytes>,
) -> Result<(), Refusal> {
    if !(scope.is_empty() || is_plain(&scope)) {
        return Err(invalid("the directory is not one of the workspace"));
    }
    let (busy, now) = (world.busy.all(), worlds.clock().now().0);
    let (of, below) = (Arc::clone(&world), scope.clone());
    let listed = tokio::task::spawn_blocking(move || {
        // The flag says whether the copy is too large.
        of.tree.prepare(&below).map_err(|error| (false, error.to_string()))?;
        let mut hashes = of.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = of.tree.list(&below, &mut hashes, &busy, now);
        listed.map_err(|error| (!matches!(error, TreeError::Io { .. }), error.to_string()))
    });
    let listed = listed.await.map_err(|error| Refusal::new(Code::Internal, format!("a list panicked: {error}")))?;
    let (nodes, _) = match listed {
        Ok(listed) => listed,
        Err((false, why)) => return Err(disk(&format!("cannot be listed: {}", shown(&why, 300)))),
        Err((true, why)) => {
            worlds.begin_anew(&world).await.map_err(|error| disk(&format!("cannot begin anew: {error}")))?;
            return Err(Refusal::new(Code::TooLarge, format!("the copy on the toolbox server was dropped: {why}"))
                .hint(
                    "files that commands wrote and that were not brought back yet are lost; try again, and write less",
                ));
        }
    };
    let same = known.is_some_and(|known| known == digest(nodes.iter()));
    let epoch = world.epoch.clone();
    tokio::spawn(async move {
        let entries = nodes.into_iter().filter(|_| !same).map(|(path, node)| Content::Entry(path, node));
        for line in std::iter::once(Content::List { epoch, same }).chain(entries).chain(std::iter::once(Content::End)) {
            // A client that is gone needs no more.
            let Ok(line) = protocol::line(&line) else { return };
            if to.send(line.into()).await.is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Sends files, as long as the client reads.
fn send_files(tree: &Tree, files: &[(String, u64)], to: &mpsc::Sender<Bytes>) {
    let tell = |content: &Content| {
        let line = protocol::line(content).ok()?;
        to.blocking_send(line.into()).ok()
    };
    let send = |path: &String, size: u64| {
        let Ok(Some(pieces)) = tree.pieces(path, size) else { return tell(&Content::Gone(path.clone())) };
        tell(&Content::File { path: path.clone(), size })?;
        for piece in pieces {
            match piece {
                Ok(piece) => tell(&Content::Data(Data(piece)))?,
                Err(_) => return tell(&Content::Gone(path.clone())),
            }
        }
        Some(())
    };
    if files.iter().try_for_each(|(path, size)| send(path, *size)).is_some() {
        tell(&Content::End);
    }
}

/// Answers `POST /workspace/write`.
///
/// # Errors
/// If the request is not valid, breaks off, or is too large. Then every file is whole.
pub(crate) async fn write(worlds: &Arc<Worlds>, body: Body) -> Result<Written, Refusal> {
    let mut lines = Lines::new(body.into_data_stream());
    let clock = &**worlds.clock();
    let end = "it has no end";
    let head: Write = parsed(&next_line(&mut lines, LINE_MAX, (clock, IDLE), end).await?)?;
    let world = worlds.world(&head.world).await?;
    let (changes, queue) = mpsc::channel(QUEUE);
    let making = tokio::task::spawn_blocking(move || make(&world.tree, queue));
    let received = async {
        let (mut bytes, mut count) = (0_u64, 0_usize);
        loop {
            let line = next_line(&mut lines, LINE_MAX, (clock, IDLE), end).await?;
            let change: Change = serde_json::from_slice(&line).map_err(invalid)?;
            match &change {
                // What follows is read to its end, so that the connection can be used again.
                Change::End => {
                    let rest = within(clock, IDLE, lines.next(0)).await.ok_or_else(|| invalid(end))?;
                    return if matches!(rest, Ok(None)) { Ok(()) } else { Err(invalid("something follows its end")) };
                }
                Change::Data(piece) => bytes = bytes.saturating_add(piece.0.len() as u64),
                _ => count += 1,
            }
            if bytes > BYTES_MAX || count > CHANGES_MAX {
                return Err(Refusal::new(Code::TooLarge, "the workspace is too large").hint("send less of it"));
            }
            // The maker ends early only if it panics, and its result says so.
            changes.send(change).await.map_err(|_| Refusal::new(Code::Internal, "the changes could not be made"))?;
        }
    }
    .await;
    drop(changes);
    let skipped = making.await.map_err(|error| Refusal::new(Code::Internal, format!("a change panicked: {error}")))?;
    received?;
    if skipped.len() > SKIPPED_MAX {
        let what =
            format!("{} changes could not be made, such as that of `{}`", skipped.len(), shown(&skipped[0].0, 200));
        return Err(Refusal::new(Code::Unavailable, what).hint("an operator must look at the server's disk"));
    }
    Ok(Written { skipped })
}

/// A file that is being received.
struct Receiving {
    path: String,
    sha256: String,
    was: Option<Node>,
    incoming: io::Result<Incoming>,
    left: u64,
}

impl Receiving {
    fn add(&mut self, bytes: &[u8]) {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.unwrap_or(0);
        let Ok(file) = &mut self.incoming else { return };
        // More than was announced is an error of the file, too.
        if let Err(error) = file.write(bytes) {
            self.incoming = Err(error);
        }
    }

    fn finish(self) -> (String, io::Result<bool>) {
        let done = self.incoming.and_then(|file| file.finish(&self.sha256, self.was.as_ref(), None));
        (self.path, done)
    }
}

/// Makes changes, one after another. Returns those that were not made, with the reason.
fn make(tree: &Tree, mut queue: mpsc::Receiver<Change>) -> Vec<(String, String)> {
    let mut skipped = Vec::new();
    let mut skip = |(path, done): (String, io::Result<bool>)| match done {
        Ok(true) => {}
        Ok(false) => skipped.push((path, "something else is there".to_owned())),
        Err(error) => skipped.push((path, error.to_string())),
    };
    let mut current: Option<Receiving> = None;
    while let Some(change) = queue.blocking_recv() {
        match change {
            Change::Data(Data(bytes)) => {
                if let Some(receiving) = &mut current {
                    receiving.add(&bytes);
                }
            }
            Change::Drop => current = None,
            Change::End => {}
            Change::Remove { path, was } => {
                let done = tree.remove(&path, &was);
                skip((path, done));
            }
            Change::Dir { path, was } => {
                let done = tree.make_dir(&path, was.as_ref());
                skip((path, done));
            }
            Change::Link { path, target, was } => {
                let done = tree.make_link(&path, &target, was.as_ref());
                skip((path, done));
            }
            Change::File { path, node: Node::File { sha256, size, executable }, was } => {
                let incoming = tree.receive(&path, size, executable);
                // The one before it did not get all its content.
                current
                    .replace(Receiving { path, sha256, was, incoming, left: size })
                    .map(Receiving::finish)
                    .map(&mut skip);
            }
            Change::File { path, .. } => skip((path, Err(io::ErrorKind::InvalidInput.into()))),
        }
        if let Some(receiving) = current.take_if(|receiving| receiving.left == 0) {
            skip(receiving.finish());
        }
    }
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(tree: &Tree, changes: Vec<Change>) -> Vec<String> {
        let (sender, queue) = mpsc::channel(changes.len().max(1));
        changes.into_iter().for_each(|change| sender.try_send(change).unwrap());
        drop(sender);
        make(tree, queue).into_iter().map(|(path, _)| path).collect()
    }

    fn file(path: &str, sha256: &str, size: u64) -> Change {
        let node = Node::File { sha256: sha256.into(), size, executable: false };
        Change::File { path: path.into(), node, was: None }
    }

    // covers: TBX-07
    #[test]
    fn changes_are_made_whole_or_reported() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let data = |text: &str| Change::Data(Data(text.as_bytes().to_vec()));
        assert_eq!(hex::encode([0xba, 0x78]), abc[..4]);
        let skipped = made(
            &tree,
            vec![
                Change::Dir { path: "d".into(), was: None },
                file("d/empty", empty, 0),
                file("d/abc", abc, 3),
                data("a"),
                data("bc"),
                file("d/wrong", abc, 3),
                data("abd"),
                file("d/long", abc, 3),
                data("abcd"),
                file("d/short", abc, 3),
                data("ab"),
                file("d/dropped", abc, 3),
                data("a"),
                Change::Drop,
                file("none/f", abc, 3),
                data("abc"),
                file("../out", abc, 3),
                data("abc"),
                Change::Remove { path: "d/abc".into(), was: Node::Dir },
                Change::End,
            ],
        );
        assert_eq!(skipped, ["d/wrong", "d/long", "d/short", "none/f", "../out", "d/abc"]);
        let mut names: Vec<_> =
            std::fs::read_dir(dir.path().join("d")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["abc", "empty"]);
        // A request that breaks off leaves nothing half.
        assert_eq!(made(&tree, vec![file("d/half", abc, 3), data("ab")]), Vec::<String>::new());
        assert_eq!(std::fs::read_dir(dir.path().join("d")).unwrap().count(), 2);
    }
}
