//! The bytes that a command occupies.

use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::kernel::*;
use super::numbers::nr;
use super::request::{Exec, access};

/// Whether a command may make entries in a folder: by the effective identity, as its calls are judged.
fn may_add_to(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return true };
    // The path is absolute, so no directory goes before it. W_OK | X_OK, and AT_EACCESS.
    sys!(nr::FACCESSAT2, 0, path.as_ptr() as usize, 3, 0x200).is_ok()
}

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
    let is_foreign = |folder: &Path| fs::symlink_metadata(folder).is_ok_and(|data| data.uid() != own);
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
                // A folder of somebody else that it may not write to cannot grow by this command.
                Err(_) if is_foreign(&folder) && !may_add_to(&folder) => continue,
                Err(_) => return None,
            };
            let closed = |error: &io::Error| error.raw_os_error() == Some(EACCES) && is_foreign(&folder);
            for entry in entries {
                match entry.and_then(|entry| entry.metadata().map(|data| (entry, data))) {
                    Ok((entry, data)) if data.dev() == device => {
                        add(&data);
                        if data.is_dir() {
                            folders.push(entry.path());
                        }
                    }
                    // It sees the names of somebody else's folder, but may not pass through it.
                    Err(error) if closed(&error) => break,
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
