//! Writes several files together: all, or none.
//!
//! A crash in the middle may leave a part of them. The hashes of the plans, which the journal has, tell which.

use std::io::Write;

use cap_std::fs::Dir;
use ghost_domain::journal::FilePlan;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Refusal};

use super::files::{self, Staged};

/// A file of a plan, with its new content; `None` removes it.
#[derive(Clone, Debug)]
pub struct FileWrite {
    /// The path with the hashes before and after.
    pub plan: FilePlan,
    /// The new content.
    pub bytes: Option<Vec<u8>>,
}

/// A change that is ready to be made.
enum Ready<'p> {
    Write(Staged<'p>),
    Remove,
}

/// Carries out the writes. No path may be in two of them.
pub(super) fn carry_out(root: &Dir, paths: &[WorkspacePath], writes: &[FileWrite]) -> Result<(), Refusal> {
    let all = || paths.iter().zip(writes);
    for (path, write) in all() {
        if files::hash(root, path)? != write.plan.before {
            return Err(Refusal::new(Code::Conflict, format!("`{}` was changed meanwhile", path.as_str()))
                .hint("nothing was written; read the file again and repeat the change"));
        }
    }
    // One write is atomic by itself.
    let undoable = writes.len() > 1;
    let mut ready = Vec::with_capacity(writes.len());
    for (path, write) in all() {
        let old = match &write.plan.before {
            Some(_) if undoable => Some(files::read(root, path, files::SCAN_MAX)?),
            _ => None,
        };
        let step = match &write.bytes {
            Some(bytes) => Ready::Write(files::stage(root, path, |file| file.write_all(bytes))?),
            None => Ready::Remove,
        };
        ready.push((path, write, old, step));
    }
    let mut made: Vec<Made<'_>> = Vec::with_capacity(ready.len());
    for (path, write, old, step) in ready {
        let done = match step {
            Ready::Write(staged) => staged.place(),
            Ready::Remove => files::remove(root, path),
        };
        made.push(Made { path, write, old });
        if let Err(refusal) = done {
            return Err(if undoable { undo(root, &made, refusal) } else { refusal });
        }
        #[cfg(feature = "testing")]
        fault::placed(made.len());
    }
    Ok(())
}

/// A change that was made.
struct Made<'p> {
    path: &'p WorkspacePath,
    write: &'p FileWrite,
    /// The content before.
    old: Option<Vec<u8>>,
}

/// Takes back the changes that were made; the last one failed. Returns the refusal for the caller.
fn undo(root: &Dir, made: &[Made<'_>], refusal: Refusal) -> Refusal {
    let mut left = Vec::new();
    for (at, Made { path, write, old }) in made.iter().enumerate().rev() {
        let is_back = match files::hash(root, path) {
            Ok(found) if found == write.plan.before => true,
            Ok(found) if found == write.plan.after => match old {
                Some(old) => files::write_atomic(root, path, old).is_ok(),
                None => files::remove(root, path).is_ok(),
            },
            // The one that failed was not put over what is there; whatever became of the others is not ours.
            _ => at + 1 == made.len(),
        };
        if !is_back {
            left.push(path.as_str());
        }
    }
    if left.is_empty() {
        return refusal;
    }
    Refusal::new(Code::OutcomeUnknown, format!("{}; these could not be put back: {}", refusal.message, left.join(", ")))
        .hint("read these files before you go on; the others are as they were")
}

/// A fault for tests: the process ends as if it were killed.
#[cfg(feature = "testing")]
pub mod fault {
    use std::sync::OnceLock;

    static AFTER: OnceLock<Box<dyn Fn(usize) + Send + Sync>> = OnceLock::new();

    /// Calls `then` after each file of a plan that is in its place, with the number of files so far. Only the first
    /// call has an effect.
    pub fn after_each(then: impl Fn(usize) + Send + Sync + 'static) {
        let _ = AFTER.set(Box::new(then));
    }

    pub(super) fn placed(files: usize) {
        if let Some(then) = AFTER.get() {
            then(files);
        }
    }
}
