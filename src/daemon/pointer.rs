//! The pointer of a running world: a small file under the state directory with the world's endpoint. Clients look
//! there for worlds whose data or socket is elsewhere.
//!
//! The daemon holds a lock on the file, so a client can tell the file of a killed daemon from that of a running one.
//! A pointer must never be needed for the world to run, and must never contain a secret.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::data_dir::{SOCKET, state_dir};
use crate::loading::Env;

/// The directory of the pointers, in the state directory. `ghostctl/worlds.rs` reads it.
const RUNNING: &str = ".running";
/// The end of the name of a pointer. Other names are files that are being written.
const EXTENSION: &str = "json";
/// Largest pointer that is read, in bytes.
const BYTES_MAX: u64 = 16 * 1024;

/// The pointer of this daemon. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Pointer {
    file: File,
    path: PathBuf,
}

impl Pointer {
    /// Writes the pointer, if clients would not find the world without it. An error is only logged: the world runs,
    /// and `--endpoint` reaches it.
    pub(crate) fn place(world_id: &str, data_dir: &Path, endpoints: &[String], env: Env<'_>) -> Option<Self> {
        let unfound = "clients find this world only with --endpoint";
        let Some(state) = state_dir(env) else {
            tracing::warn!("neither GHOST_STATE_DIR nor HOME is set: {unfound}");
            return None;
        };
        let path = state.join(RUNNING).join(name(world_id, data_dir));
        let default = format!("unix:{}", data_dir.join(SOCKET).display());
        if state.join(world_id).canonicalize().is_ok_and(|dir| dir == data_dir) && endpoints.contains(&default) {
            // A daemon with the same data that listened elsewhere may have been killed.
            drop(std::fs::remove_file(path));
            return None;
        }
        let endpoint = endpoint(endpoints)?;
        let Some(data) = data_dir.to_str() else {
            tracing::warn!(path = %data_dir.display(), "the path of the data directory is not UTF-8: {unfound}");
            return None;
        };
        let text = json!({ "world": world_id, "endpoint": endpoint, "data_dir": data });
        match write(&path, &text) {
            Ok(file) => Some(Self { file, path }),
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the file could not be written: {unfound}");
                None
            }
        }
    }
}

impl Drop for Pointer {
    fn drop(&mut self) {
        let same = |ours: std::fs::Metadata| {
            self.path.symlink_metadata().is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()))
        };
        if self.file.metadata().is_ok_and(same)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "the file could not be removed; clients ignore it");
        }
    }
}

/// The name of a pointer. Two worlds with the same id have different data directories.
fn name(world_id: &str, data_dir: &Path) -> String {
    let hash = Sha256::digest(data_dir.as_os_str().as_encoded_bytes());
    format!("{world_id}-{}.{EXTENSION}", hex::encode(&hash[..8]))
}

/// The endpoint for clients on this machine: a socket, if there is one.
fn endpoint(endpoints: &[String]) -> Option<String> {
    let socket = endpoints.iter().find_map(|text| text.strip_prefix("unix:"));
    if let Some(path) = socket {
        let path = std::path::absolute(path).ok()?;
        return Some(format!("unix:{}", path.display()));
    }
    endpoints.iter().find_map(|text| {
        let (scheme, address) = text.split_once("://").filter(|(scheme, _)| ["http", "https"].contains(scheme))?;
        let mut address: SocketAddr = address.parse().ok()?;
        if address.ip().is_unspecified() {
            // Every address of this machine: clients here use the loopback.
            let loopback =
                if address.is_ipv4() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) };
            address.set_ip(loopback);
        }
        Some(format!("{scheme}://{address}"))
    })
}

/// Writes a pointer, locked, with an atomic rename.
fn write(path: &Path, text: &Value) -> std::io::Result<File> {
    let dir = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    sweep(dir);
    // Only one daemon uses the data directory, so only one writes this name.
    let new = path.with_extension("new");
    drop(std::fs::remove_file(&new));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let written = flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(std::io::Error::from)
        .and_then(|()| writeln!(file, "{text}"))
        .and_then(|()| std::fs::rename(&new, path));
    match written {
        Ok(()) => Ok(file),
        Err(error) => {
            drop(std::fs::remove_file(&new));
            Err(error)
        }
    }
}

/// Removes pointers whose data directory no longer exists, so that killed daemons leave a bounded number of files.
fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let small = entry.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= BYTES_MAX);
        let text = if small { std::fs::read(&path).unwrap_or_default() } else { continue };
        let Ok(value) = serde_json::from_slice::<Value>(&text) else { continue };
        let gone = value["data_dir"].as_str().is_some_and(|dir| {
            Path::new(dir).symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        });
        if gone {
            drop(std::fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: WORLD-10
    #[test]
    fn a_world_that_clients_would_not_find_gets_a_pointer_until_it_stops() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        let (state, data) = (root.join("state"), root.join("srv/desk"));
        let default = state.join("desk");
        for dir in [&data, &default] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let env = |name: &str| (name == "GHOST_STATE_DIR").then(|| state.display().to_string());
        let place = |data: &Path, endpoints: &[String]| Pointer::place("desk", data, endpoints, &env);
        let socket = |dir: &Path| format!("unix:{}", dir.join(SOCKET).display());
        let read = |pointer: &Pointer| serde_json::from_slice::<Value>(&std::fs::read(&pointer.path).unwrap()).unwrap();

        let pointer = place(&data, &["REST http://127.0.0.1:1".into(), socket(&data)]).unwrap();
        assert_eq!(read(&pointer), json!({ "world": "desk", "endpoint": socket(&data), "data_dir": data }));
        assert_eq!(std::fs::metadata(&pointer.path).unwrap().mode() & 0o777, 0o600);
        let other = File::open(&pointer.path).unwrap();
        assert!(flock(&other, FlockOperation::NonBlockingLockShared).is_err(), "the daemon holds the lock");
        // A second world with the same id has a pointer of its own.
        let second = place(&default, &["http://0.0.0.0:7070".into()]).unwrap();
        assert_eq!(read(&second)["endpoint"], "http://127.0.0.1:7070");
        assert_ne!(second.path, pointer.path);
        let path = pointer.path.clone();
        drop(pointer);
        assert!(!path.exists() && second.path.exists());

        // A daemon was killed. The next one on its data with the default socket needs no pointer, and removes it.
        let path = second.path.clone();
        std::mem::forget(second);
        assert!(place(&default, &[socket(&default)]).is_none());
        assert!(!path.exists());
        // Pointers to data that is gone are removed.
        let stale = place(&data, &[socket(&data)]).unwrap();
        let path = stale.path.clone();
        std::mem::forget(stale);
        std::fs::remove_dir_all(&data).unwrap();
        let last = place(&root, &["https://[::]:7070".into()]).unwrap();
        assert_eq!(read(&last)["endpoint"], "https://[::1]:7070");
        assert!(!path.exists());
        drop(last);

        // A state directory that cannot be written is no reason to fail.
        std::fs::remove_dir_all(state.join(RUNNING)).unwrap();
        std::fs::write(state.join(RUNNING), "").unwrap();
        assert!(place(&root, &[socket(&root)]).is_none());
        assert!(Pointer::place("desk", &root, &[socket(&root)], &|_| None).is_none());
    }
}
