//! Maps errors of the operating system to refusals.

use std::io;

use ghost_domain::text::clip;
use ghost_domain::{Code, Refusal};
use rustix::io::Errno;
use serde_json::json;

/// The detail of a refusal that names the resource that the system has run out of.
const OUT_OF: &str = "out_of";

/// Whether a write failed because the system had no room for it: space, quota or file descriptors. That passes, and
/// is nothing that the model which asked for the write could change.
#[must_use]
pub fn is_out_of_room(refusal: &Refusal) -> bool {
    refusal.details.as_ref().is_some_and(|details| details.get(OUT_OF).is_some())
}

/// The refusal for `error`, which occurred while doing `doing` (for example "read") to `path`.
pub(crate) fn io_refusal(doing: &str, path: &str, error: &io::Error) -> Refusal {
    let shown = clip(if path.is_empty() { "." } else { path }, 120);
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match (error.kind(), errno) {
        (io::ErrorKind::NotFound, _) => {
            Refusal::new(Code::NotFound, format!("there is no `{shown}`")).hint("workspace.list shows what there is")
        }
        (_, Some(Errno::NOTDIR | Errno::LOOP | Errno::MLINK)) => in_the_way(path, "a file or a symbolic link"),
        (_, Some(Errno::ISDIR)) => in_the_way(path, "a directory"),
        // The capability handle returns this for a link that leads out of the root.
        (io::ErrorKind::PermissionDenied, None) => {
            Refusal::new(Code::PathDenied, format!("cannot {doing} `{shown}`: it leads out of the workspace"))
                .hint("give a path inside the workspace that passes no symbolic link")
        }
        (io::ErrorKind::PermissionDenied, Some(_)) => {
            Refusal::new(Code::PathDenied, format!("cannot {doing} `{shown}`: the system denies access to it"))
                .hint("choose another path, or ask an operator to check the permissions of the data directory")
        }
        (_, Some(Errno::XDEV)) => in_the_way(path, "another file system"),
        (_, Some(Errno::NOSPC | Errno::DQUOT)) => {
            Refusal::new(Code::Unavailable, format!("cannot {doing} `{shown}`: the disk is full"))
                .hint("nothing was changed; an operator must free some space first")
                .details(json!({ OUT_OF: "space" }))
        }
        (_, Some(Errno::FBIG)) => Refusal::new(
            Code::TooLarge,
            format!("cannot {doing} `{shown}`: the file would be larger than the system allows"),
        )
        .hint("nothing was changed; write a smaller file"),
        (_, Some(Errno::ROFS)) => {
            Refusal::new(Code::Unavailable, format!("cannot {doing} `{shown}`: the disk is read-only"))
                .hint("nothing was changed; an operator must make the data directory writable")
        }
        (_, Some(Errno::MFILE | Errno::NFILE)) => {
            Refusal::new(Code::Unavailable, format!("cannot {doing} `{shown}`: the daemon has too many files open"))
                .hint("try again in a moment; an operator can raise the limit of open files (`ulimit -n`) of ghostd")
                .details(json!({ OUT_OF: "descriptors" }))
        }
        (_, Some(Errno::NAMETOOLONG)) => {
            Refusal::new(Code::PathDenied, format!("cannot {doing} `{shown}`: the name is too long"))
                .hint("choose a shorter name")
        }
        _ => Refusal::new(Code::Unavailable, format!("cannot {doing} `{shown}`: {error}"))
            .hint("nothing was changed; try again, or tell an operator"),
    }
}

/// The refusal for a path at which something of the wrong type is found.
pub(super) fn in_the_way(path: &str, what: &str) -> Refusal {
    Refusal::new(Code::PathDenied, format!("`{}` cannot be used: {what} is in the way", clip(path, 120)))
        .hint("choose another path; writes pass directories only and replace regular files only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_by_itself_is_no_affair_of_the_model() {
        let refusal = |errno: Errno| io_refusal("write", "a.md", &io::Error::from_raw_os_error(errno.raw_os_error()));
        for errno in [Errno::NOSPC, Errno::DQUOT, Errno::MFILE, Errno::NFILE] {
            assert!(is_out_of_room(&refusal(errno)), "{errno:?}");
        }
        for errno in [Errno::FBIG, Errno::ROFS, Errno::ACCESS, Errno::NOENT, Errno::IO] {
            assert!(!is_out_of_room(&refusal(errno)), "{errno:?}");
        }
        assert!(refusal(Errno::MFILE).hint.is_some_and(|hint| hint.contains("ulimit -n")));
    }
}
