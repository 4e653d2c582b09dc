//! Reading the files of a world: regular UTF-8 files of bounded size that lie where they claim to lie.
//!
//! Must never: follow a symbolic link out of the directory that was meant, or block on something that is not a file.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::report::FileReport;

/// Most bytes of a markdown file.
pub const MARKDOWN_MAX: u64 = 64 * 1024;

/// Most entries of a directory that are looked at.
pub const DIR_ENTRIES_MAX: usize = 4_096;

/// Reads the text of `path`, which must really lie within `root` (a canonical path). Problems go into `report`; the
/// file's absence is one, unless the caller looked first.
pub fn read_text(path: &Path, root: &Path, max: u64, report: &FileReport<'_>) -> Option<String> {
    let hint = |text: &str| Some(text.to_owned());
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) => {
            report.error(0, "", format!("cannot be read: {error}"), None);
            return None;
        }
    };
    if !real.starts_with(root) {
        let message = "it is a symbolic link that leaves the world's directory";
        report.error(0, "", message, hint("copy the file into the directory"));
        return None;
    }
    let found = std::fs::metadata(&real).and_then(|meta| {
        // Opening a pipe would wait for a writer that never comes.
        if meta.is_file() { std::fs::File::open(&real).map(Some) } else { Ok(None) }
    });
    let file = match found {
        Ok(Some(file)) => file,
        Ok(None) => {
            report.error(0, "", "it is not a regular file", hint("a file is expected here"));
            return None;
        }
        Err(error) => {
            report.error(0, "", format!("cannot be read: {error}"), None);
            return None;
        }
    };
    let mut bytes = Vec::new();
    if let Err(error) = file.take(max + 1).read_to_end(&mut bytes) {
        report.error(0, "", format!("cannot be read: {error}"), None);
        return None;
    }
    if bytes.len() as u64 > max {
        report.error(0, "", format!("the file is larger than {max} bytes"), hint("shorten it, or split it up"));
        return None;
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(error) => {
            let upto = error.utf8_error().valid_up_to();
            let line = error.as_bytes()[..upto].iter().filter(|byte| **byte == b'\n').count() + 1;
            report.error(line, "", "the file is not UTF-8 here", hint("save it as UTF-8"));
            None
        }
    }
}

/// The names in `dir`, sorted; names that are not UTF-8 are reported and left out.
pub fn names_in(dir: &Path, report: &FileReport<'_>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            report.error(0, "", format!("the directory cannot be read: {error}"), None);
            return names;
        }
    };
    for entry in entries {
        match entry.map(|entry| entry.file_name().into_string()) {
            Ok(Ok(name)) => {
                names.insert(name);
            }
            Ok(Err(name)) => report.error(0, "", format!("the name {name:?} is not UTF-8"), None),
            Err(error) => report.error(0, "", format!("the directory cannot be read: {error}"), None),
        }
        if names.len() > DIR_ENTRIES_MAX {
            report.error(0, "", format!("the directory has more than {DIR_ENTRIES_MAX} entries"), None);
            break;
        }
    }
    names
}

/// The directory `path` if it is one and really lies within `root` (a canonical path).
pub fn directory_within(path: &Path, root: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    (real.is_dir() && real.starts_with(root)).then(|| path.to_owned())
}

/// Whether a path from configuration is plain: relative, without `..`, without control characters, not too long.
pub fn is_plain_relative(text: &str) -> bool {
    let path = Path::new(text);
    !text.is_empty()
        && text.len() <= 1_024
        && !text.chars().any(char::is_control)
        && path.components().all(|part| matches!(part, std::path::Component::Normal(_) | std::path::Component::CurDir))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    fn problem(path: &Path, root: &Path, max: u64) -> String {
        let report = Report::default();
        assert_eq!(read_text(path, root, max, &report.file("f")), None);
        report.finish().to_string()
    }

    #[test]
    fn only_plain_files_inside_are_read() {
        let outside = tempfile::tempdir().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        std::fs::write(root.join("a"), "\u{feff}text").unwrap();
        std::fs::write(root.join("bad"), b"ok\n\xff\xfe").unwrap();
        let report = Report::default();
        assert_eq!(read_text(&root.join("a"), &root, 100, &report.file("a")).as_deref(), Some("text"));
        assert!(report.finish().is_empty());
        assert!(problem(&root.join("a"), &root, 3).contains("larger than 3 bytes"));
        assert!(problem(&root.join("bad"), &root, 100).contains("f:2: the file is not UTF-8"));
        assert!(problem(&root, &root, 100).contains("not a regular file"));
        assert!(problem(&root.join("none"), &root, 100).contains("cannot be read"));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(outside.path().join("secret"), root.join("link")).unwrap();
            assert!(problem(&root.join("link"), &root, 100).contains("leaves the world's directory"));
        }
    }

    #[test]
    fn plain_paths() {
        assert!(is_plain_relative("a/b.yaml") && is_plain_relative("./a"));
        for bad in ["", "/a", "../a", "a/../b", "a\0b"] {
            assert!(!is_plain_relative(bad), "{bad:?}");
        }
    }
}
