//! The bytes that a command occupies.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::kernel::*;
use super::request::{Exec, access};

/// Bytes in the writable places of a command, and in files that its processes hold open without a name. `None` if that
/// cannot be found out, which a command can bring about and which therefore counts as excess.
pub fn occupied(exec: &Exec, tree: &[i32]) -> Option<u64> {
    let (mut sum, mut linked) = (0u64, HashSet::new());
    let mut add = |data: &fs::Metadata| {
        // A name costs something too: a million empty files are no small thing.
        if data.nlink() == 1 || data.is_dir() || linked.insert((data.dev(), data.ino())) {
            sum += data.blocks() * 512 + 512;
        }
    };
    // SAFETY: cannot fail and touches no memory.
    let own = unsafe { geteuid() };
    let gone = |error: &io::Error| matches!(error.raw_os_error(), Some(ENOENT | ENOTDIR));
    for (_, path) in exec.paths.iter().filter(|(access, _)| access & access::WRITE != 0) {
        let top = PathBuf::from(OsStr::from_bytes(path.to_bytes()));
        let Ok(data) = fs::symlink_metadata(&top) else { continue };
        add(&data);
        let (device, mut folders) = (data.dev(), if data.is_dir() { vec![top] } else { Vec::new() });
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) if gone(&error) => continue,
                // A folder that was somebody else's before cannot grow by this command.
                Err(_) if fs::symlink_metadata(&folder).is_ok_and(|data| data.uid() != own) => continue,
                Err(_) => return None,
            };
            for entry in entries {
                match entry.and_then(|entry| entry.metadata().map(|data| (entry, data))) {
                    Ok((entry, data)) if data.dev() == device => {
                        add(&data);
                        if data.is_dir() {
                            folders.push(entry.path());
                        }
                    }
                    Err(error) if !gone(&error) => return None,
                    _ => {}
                }
            }
        }
    }
    for pid in tree {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(data) = fs::metadata(entry.path()) else { continue };
            if data.is_file() && data.nlink() == 0 && linked.insert((data.dev(), data.ino())) {
                sum += data.blocks() * 512;
            }
        }
    }
    Some(sum)
}
