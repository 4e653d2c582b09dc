//! Moves entries between ghostd's copy of a workspace and the server's. The server chooses no path and no size here: it sends the
//! files that were asked for, in their order, or nothing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ghost_domain::{Code, Refusal};
use tokio::sync::mpsc;

use super::exchange::{Server, unavailable};
use super::node::{Change, Node};
use super::protocol::{Content, Data, FILES_MAX, LINE_MAX, Read, VERSION, What, Write, Written};
use super::tree::{Incoming, Tree};
use super::{node, protocol};

/// How long the server may need to take all that is sent.
const SEND_MAX: Duration = Duration::from_secs(600);
/// Pieces that may wait.
const QUEUE: usize = 16;
/// Bytes of a file's name.
const NAME_MAX: usize = 255;

/// What became of each.
type Done<T> = Vec<(T, Result<(), String>)>;

/// A file that is to be brought here.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    path: String,
    sha256: String,
    size: u64,
    executable: bool,
    /// What is in its place here.
    was: Option<Node>,
    /// The name that it gets instead of its own.
    name: Option<String>,
}

impl Want {
    /// A file that replaces what is here. `None` if the change makes no file.
    pub(crate) fn in_place(change: Change) -> Option<Self> {
        let Some(Node::File { sha256, size, executable }) = change.to else { return None };
        Some(Self { path: change.path, sha256, size, executable, was: change.from, name: None })
    }

    /// A file that is saved beside the one that is here.
    pub(crate) fn beside(path: &str, file: &Node) -> Self {
        let (sha256, size, executable) = match file {
            Node::File { sha256, size, executable } => (sha256.clone(), *size, *executable),
            // The merge makes files only.
            _ => (String::new(), 0, false),
        };
        let name = path.rsplit('/').next().unwrap_or(path);
        let suffix = format!(".remote-{}", sha256.get(..8).unwrap_or_default());
        let kept = (0..=NAME_MAX - suffix.len()).rev().find_map(|end| name.get(..end)).unwrap_or_default();
        let name = Some(format!("{kept}{suffix}"));
        Self { path: path.to_owned(), sha256, size, executable, was: None, name }
    }

    /// Where it goes.
    pub(crate) fn target(&self) -> String {
        match (&self.name, node::parent(&self.path)) {
            (None, _) => self.path.clone(),
            (Some(name), "") => name.clone(),
            (Some(name), dir) => format!("{dir}/{name}"),
        }
    }

    /// The bytes by which it makes the workspace larger.
    pub(crate) fn growth(&self) -> u64 {
        self.size.saturating_sub(self.was.as_ref().map_or(0, Node::size))
    }

    /// What it changes here.
    pub(crate) fn change(self) -> Change {
        let to = Node::File { sha256: self.sha256.clone(), size: self.size, executable: self.executable };
        Change { path: self.target(), from: self.was, to: Some(to) }
    }
}

/// Runs blocking work.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    finished(tokio::task::spawn_blocking(work)).await
}

async fn finished<T>(work: tokio::task::JoinHandle<T>) -> Result<T, Refusal> {
    work.await.map_err(|error| Refusal::new(Code::Internal, format!("work on the workspace's files failed: {error}")))
}

fn outcome(done: io::Result<bool>) -> Result<(), String> {
    match done {
        Ok(true) => Ok(()),
        Ok(false) => Err("it changed meanwhile".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Makes changes here that need no content: removals and directories.
pub(crate) async fn change_here(tree: &Arc<Tree>, changes: Vec<Change>) -> Result<Done<Change>, Refusal> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let tree = Arc::clone(tree);
    blocking(move || {
        let make = |change: &Change| match (&change.from, &change.to) {
            (Some(from), None) => outcome(tree.remove(&change.path, from)),
            (from, Some(Node::Dir)) => outcome(tree.make_dir(&change.path, from.as_ref())),
            // Links and the like never come here.
            _ => Ok(()),
        };
        changes.into_iter().map(|change| (make(&change), change)).map(|(done, change)| (change, done)).collect()
    })
    .await
}

/// A step of receiving files.
enum Step {
    Begin(Want),
    Data(Vec<u8>),
    Finish,
    /// The server has it no more.
    Gone,
}

/// Brings files here.
pub(crate) async fn bring(
    server: &Server,
    world: &str,
    tree: &Arc<Tree>,
    wants: Vec<Want>,
) -> Result<Done<Want>, Refusal> {
    let mut all = Vec::new();
    for chunk in wants.chunks(FILES_MAX) {
        let (steps, queue) = mpsc::channel(QUEUE);
        let tree = Arc::clone(tree);
        let receiving = tokio::task::spawn_blocking(move || receive(&tree, queue));
        let received = ask(server, world, chunk, &steps).await;
        drop(steps);
        let done = finished(receiving).await;
        received?;
        all.extend(done?);
    }
    Ok(all)
}

/// Asks for files, and passes on what comes.
async fn ask(server: &Server, world: &str, wants: &[Want], steps: &mpsc::Sender<Step>) -> Result<(), Refusal> {
    let what = What::Files(wants.iter().map(|want| (want.path.clone(), want.size)).collect());
    let mut answer = server.ask("/workspace/read", &Read { version: VERSION, world: world.to_owned(), what }).await?;
    let garbled = || unavailable("sent other files than it was asked for");
    // An error of the receiver ends it early; it is reported with its result.
    let pass = |step| async move {
        steps.send(step).await.map_err(|_| Refusal::new(Code::Internal, "work on the workspace's files ended early"))
    };
    for want in wants {
        pass(Step::Begin(want.clone())).await?;
        let mut left = match answer.part(LINE_MAX).await? {
            Content::File { path, size } if path == want.path && size == want.size => size,
            // It has changed. The next round asks for what it is then.
            Content::Gone(path) if path == want.path => {
                pass(Step::Gone).await?;
                continue;
            }
            _ => return Err(garbled()),
        };
        let mut is_whole = true;
        while left > 0 {
            match answer.part(LINE_MAX).await? {
                Content::Data(Data(bytes)) if !bytes.is_empty() && bytes.len() as u64 <= left => {
                    left -= bytes.len() as u64;
                    pass(Step::Data(bytes)).await?;
                }
                Content::Gone(path) if path == want.path => {
                    is_whole = false;
                    break;
                }
                _ => return Err(garbled()),
            }
        }
        pass(if is_whole { Step::Finish } else { Step::Gone }).await?;
    }
    match answer.part(LINE_MAX).await? {
        Content::End => Ok(()),
        _ => Err(garbled()),
    }
}

/// Writes what comes. Without its last step, a file is not written.
fn receive(tree: &Tree, mut queue: mpsc::Receiver<Step>) -> Done<Want> {
    let mut done = Vec::new();
    let mut current: Option<(Want, io::Result<Incoming>)> = None;
    while let Some(step) = queue.blocking_recv() {
        match step {
            Step::Begin(want) => {
                let incoming = tree.receive(&want.path, want.size, want.executable);
                current = Some((want, incoming));
            }
            Step::Data(bytes) => {
                if let Some((_, incoming)) = &mut current
                    && let Ok(file) = incoming
                    && let Err(error) = file.write(&bytes)
                {
                    *incoming = Err(error);
                }
            }
            Step::Finish => {
                if let Some((want, incoming)) = current.take() {
                    let finished =
                        incoming.and_then(|file| file.finish(&want.sha256, want.was.as_ref(), want.name.as_deref()));
                    done.push((want, outcome(finished)));
                }
            }
            Step::Gone => {
                if let Some((want, _)) = current.take() {
                    done.push((want, outcome(Ok(false))));
                }
            }
        }
    }
    done
}

/// Sends changes to the server.
pub(crate) async fn send(
    server: &Server,
    world: &str,
    tree: &Arc<Tree>,
    changes: Vec<Change>,
) -> Result<Done<Change>, Refusal> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let (lines, body) = mpsc::channel(QUEUE);
    let head = Write { version: VERSION, world: world.to_owned() };
    let tree = Arc::clone(tree);
    let producing = tokio::task::spawn_blocking(move || {
        let made = produce(&tree, &head, &changes, &lines);
        (changes, made)
    });
    let written: Result<Written, Refusal> = server.send("/workspace/write", body, SEND_MAX).await;
    let (changes, made) = finished(producing).await?;
    let written = written?;
    // A server that answers before it was told everything has not taken it.
    let mut dropped = made.map_err(|why| unavailable(format!("did not take the workspace's files: {why}")))?;
    dropped.extend(written.skipped);
    let of = |path: &str| {
        let why = dropped.iter().find(|(of, _)| of == path).map(|(_, why)| ghost_domain::text::shown(why, 200));
        why.map_or(Ok(()), Err)
    };
    Ok(changes
        .into_iter()
        // What cannot be sent is left as it is.
        .filter(|change| change.to != Some(Node::Other))
        .map(|change| (of(&change.path), change))
        .map(|(done, change)| (change, done))
        .collect())
}

/// Writes the body of a request. Returns the files that changed meanwhile.
fn produce(
    tree: &Tree,
    head: &Write,
    changes: &[Change],
    lines: &mpsc::Sender<Bytes>,
) -> Result<Vec<(String, String)>, String> {
    let tell = |line: serde_json::Result<Vec<u8>>| -> Result<(), String> {
        let line = line.map_err(|error| error.to_string())?;
        lines.blocking_send(line.into()).map_err(|_| "it stopped reading".to_owned())
    };
    let mut dropped = Vec::new();
    tell(protocol::line(head))?;
    for change in changes {
        let (path, was) = (change.path.clone(), change.from.clone());
        match (&change.to, was) {
            (None, Some(was)) => tell(protocol::line(&protocol::Change::Remove { path, was }))?,
            (None, None) | (Some(Node::Other), _) => {}
            (Some(Node::Dir), was) => tell(protocol::line(&protocol::Change::Dir { path, was }))?,
            (Some(Node::Link { target }), was) => {
                tell(protocol::line(&protocol::Change::Link { path, target: target.clone(), was }))?;
            }
            (Some(node @ Node::File { size, .. }), was) => {
                let pieces = match tree.pieces(&path, *size) {
                    Ok(Some(pieces)) => pieces,
                    Ok(None) => {
                        dropped.push((path, "it changed meanwhile".to_owned()));
                        continue;
                    }
                    Err(error) => {
                        dropped.push((path, error.to_string()));
                        continue;
                    }
                };
                tell(protocol::line(&protocol::Change::File { path: path.clone(), node: node.clone(), was }))?;
                for piece in pieces {
                    let Ok(piece) = piece else {
                        tell(protocol::line(&protocol::Change::Drop))?;
                        dropped.push((path, "it could not be read".to_owned()));
                        break;
                    };
                    tell(protocol::line(&protocol::Change::Data(Data(piece))))?;
                }
            }
        }
    }
    tell(protocol::line(&protocol::Change::End))?;
    Ok(dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_beside_another_has_a_name_that_fits() {
        let file = Node::File { sha256: "0123456789".repeat(7), size: 3, executable: true };
        assert_eq!(Want::beside("a/b.md", &file).target(), "a/b.md.remote-01234567");
        assert_eq!(Want::beside("b", &file).target(), "b.remote-01234567");
        let long = "ä".repeat(127);
        let name = Want::beside(&long, &file).target();
        assert!(name.len() <= NAME_MAX && name.ends_with(".remote-01234567"), "{name}");
    }
}
