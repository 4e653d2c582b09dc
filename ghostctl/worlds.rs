//! The worlds of this user: those with a data directory under the state directory, and those elsewhere that a running
//! daemon points to. A file that a killed daemon left is not taken for a running world.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde_json::Value;

use crate::endpoint::{Endpoint, SOCKET};
use crate::failure::Failure;

/// Files of a data directory whose world has run before. A daemon removes its socket when it stops, but not the others.
const HAS_RUN: [&str; 3] = [SOCKET, "world.id", "ghost.db"];
/// The file of a data directory with the path of the world directory. `src/daemon/data_dir.rs` writes it.
const MADE_BY: &str = "world.dir";
/// Longest path that is read from it, in bytes.
const PATH_MAX: u64 = 4_096;
/// The directory of the pointers, in the state directory. `src/daemon/pointer.rs` writes them.
const RUNNING: &str = ".running";
/// Largest pointer that is read, in bytes.
const BYTES_MAX: u64 = 16 * 1024;
/// Largest number of files in the directory of the pointers that are read.
const POINTERS_MAX: usize = 1_000;

/// A world.
#[derive(Debug)]
pub struct World {
    /// The name of its directory under the state directory, else its id.
    pub name: String,
    /// Its id, if its directory has another name.
    alias: Option<String>,
    /// Its data directory.
    pub data_dir: PathBuf,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Whether a daemon holds the lock of its pointer; `None` if it has no pointer, or that is unknown.
    held: Option<bool>,
}

/// A world that has run, and that no daemon runs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Its name.
    pub name: String,
    /// Whether it was shut down. Otherwise its daemon ended without an orderly stop.
    pub shut_down: bool,
    /// The directory of its files, if that is known.
    pub world_dir: Option<PathBuf>,
}

impl World {
    /// Whether it has this name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.alias.as_deref() == Some(name)
    }

    /// Whether a daemon runs it. The existence of a file proves nothing: files survive `kill -9`.
    pub fn runs(&self) -> bool {
        self.held.unwrap_or_else(|| self.endpoint.listens())
    }

    /// What is known of it, if no daemon runs it.
    pub fn stopped(&self) -> Stopped {
        // An orderly stop removes the socket and the pointer.
        let socket = match &self.endpoint {
            Endpoint::Unix(path) => path.exists(),
            Endpoint::Tcp { .. } => false,
        };
        Stopped { name: self.name.clone(), shut_down: !socket && self.held.is_none(), world_dir: self.world_dir() }
    }

    /// The directory of its files, if the data directory names it.
    fn world_dir(&self) -> Option<PathBuf> {
        let path = self.data_dir.join(MADE_BY);
        if !path.metadata().is_ok_and(|about| about.is_file() && about.len() <= PATH_MAX) {
            return None;
        }
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.trim_end_matches('\n');
        (line.starts_with('/') && !line.contains(char::is_control)).then(|| PathBuf::from(line))
    }

    /// Whether a daemon may run it. Unlike [`runs`](Self::runs), it connects to nothing.
    pub fn may_run(&self) -> bool {
        self.held.unwrap_or_else(|| match &self.endpoint {
            Endpoint::Unix(path) => path.exists(),
            Endpoint::Tcp { .. } => true,
        })
    }
}

/// The worlds that have run under `root`, sorted by name, then those elsewhere that a daemon there points to.
pub fn worlds(root: &Path) -> Result<Vec<World>, Failure> {
    let unreadable = |error: std::io::Error| {
        Failure::new("unavailable", format!("cannot read the state directory {}: {error}", root.display()))
            .hint("name the daemon with --endpoint, or another directory in GHOST_STATE_DIR")
    };
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut pointers = pointers(root);
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let data_dir = entry.path();
        if HAS_RUN.iter().any(|name| data_dir.join(name).exists()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let endpoint = Endpoint::Unix(data_dir.join(SOCKET));
            let mut world = World { name, alias: None, data_dir, endpoint, held: None };
            let real = world.data_dir.canonicalize().ok();
            if let Some(at) = pointers.iter().position(|pointer| Some(&pointer.data_dir) == real.as_ref()) {
                follow(&mut world, pointers.swap_remove(at));
            }
            found.push(world);
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    pointers.sort_by(|a, b| (&a.name, &a.data_dir).cmp(&(&b.name, &b.data_dir)));
    found.extend(pointers);
    Ok(found)
}

/// Takes over what a pointer says about a world under the state directory.
fn follow(world: &mut World, pointer: World) {
    // A stale pointer may be older than a daemon that uses the default socket.
    if pointer.held == Some(false) && UnixStream::connect(world.data_dir.join(SOCKET)).is_ok() {
        return;
    }
    world.alias = Some(pointer.name).filter(|name| *name != world.name);
    world.endpoint = pointer.endpoint;
    world.held = pointer.held;
}

/// The worlds that the pointers name. A file that is not a pointer is ignored.
fn pointers(root: &Path) -> Vec<World> {
    let Ok(entries) = std::fs::read_dir(root.join(RUNNING)) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let paths = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
    paths.take(POINTERS_MAX).filter_map(|path| pointer(&path)).collect()
}

fn pointer(path: &Path) -> Option<World> {
    // Opening a pipe must not block.
    let file: File =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, rustix::fs::Mode::empty())
            .ok()?
            .into();
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    (&file).take(BYTES_MAX).read_to_string(&mut text).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    let field = |name: &str| value.get(name).and_then(Value::as_str);
    let data_dir = PathBuf::from(field("data_dir")?);
    let endpoint = field("endpoint")?.parse().ok()?;
    // The daemon holds the lock for as long as it runs.
    let held = match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Some(false),
        Err(Errno::WOULDBLOCK) => Some(true),
        Err(_) => None,
    };
    Some(World { name: field("world")?.to_owned(), alias: None, data_dir, endpoint, held })
}

#[cfg(test)]
#[path = "worlds_tests.rs"]
mod tests;
