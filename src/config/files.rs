//! Reads the files of a world safely: regular UTF-8 files of limited size that lie within the
//! world.
//!
//! A read must never follow a symbolic link out of the directory, or block on a file that is not
//! regular.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::report::FileReport;

/// The file name of the world file.
pub const WORLD_FILE: &str = "world-config.yaml";

/// The directory with the world's archetypes.
pub const ARCHETYPES: &str = "archetype";

/// The largest size of a markdown file, in bytes.
pub const MARKDOWN_MAX: u64 = 64 * 1024;

/// The largest number of entries of a directory that are read.
pub const DIR_ENTRIES_MAX: usize = 4_096;

/// The hint for a file or directory that cannot be read.
#[must_use]
pub fn unreadable(error: &std::io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "check that it exists, and that a symbolic link has a target",
        ErrorKind::PermissionDenied => "let the user that runs ghostd read it (`chmod`, `chown`)",
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => {
            "check that no file is in place of a directory, or the reverse"
        }
        _ => "check that its disk is readable",
    }
}

/// The line for a problem with the whole of `path`: 1 for a regular file, 0 (no line) otherwise.
#[must_use]
pub fn first_line(path: &Path) -> usize {
    usize::from(path.is_file())
}

/// The reason why a file's text cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The line of the problem; see [`Problem::line`](crate::Problem::line).
    pub line: usize,
    /// The text that describes the problem. It contains none of the file's content.
    pub message: String,
    /// The hint.
    pub hint: &'static str,
}

impl Unread {
    fn whole(message: impl Into<String>, hint: &'static str) -> Self {
        Self { line: 0, message: message.into(), hint }
    }

    fn failed(error: &std::io::Error) -> Self {
        Self::whole(format!("cannot be read: {error}"), unreadable(error))
    }
}

/// Reads `path`, which must be a regular file of at most `max` bytes within `root` (a canonical
/// path). A byte order mark is removed. Does not block on pipes, and reads at most `max` + 1 bytes
/// of a file that grows.
///
/// # Errors
///
/// The problem and a hint.
pub fn text_of(path: &Path, root: &Path, max: u64) -> Result<String, Unread> {
    read_of(path, root, max).map_err(|unread| Unread { line: unread.line.max(first_line(path)), ..unread })
}

fn read_of(path: &Path, root: &Path, max: u64) -> Result<String, Unread> {
    let real = path.canonicalize().map_err(|error| Unread::failed(&error))?;
    if !real.starts_with(root) {
        let message = "it is a symbolic link that leaves the world's directory";
        return Err(Unread::whole(message, "copy the file into the directory"));
    }
    let mut bytes = Vec::new();
    let file = regular(&real).map_err(|error| Unread::failed(&error))?;
    let file = file.ok_or_else(|| Unread::whole("it is not a regular file", "replace it with a text file"))?;
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| Unread::failed(&error))?;
    if bytes.len() as u64 > max {
        return Err(Unread::whole(format!("the file is larger than {max} bytes"), "shorten it, or split it up"));
    }
    let line_of = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
    if is_utf16(&bytes) {
        let message = "the file is UTF-16".to_owned();
        return Err(Unread { line: 1, message, hint: "save it as UTF-8" });
    }
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        let (line, message) = (line_of(&bytes[..at]), "there is a NUL byte here".to_owned());
        return Err(Unread { line, message, hint: "remove it, and save the file as UTF-8" });
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)),
        Err(error) => {
            let line = line_of(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
            Err(Unread { line, message: "the file is not UTF-8 here".to_owned(), hint: "save it as UTF-8" })
        }
    }
}

/// Whether a file is UTF-16: it begins with that byte order mark, or every second byte of its beginning is NUL, as in a
/// text of Latin letters.
pub(crate) fn is_utf16(bytes: &[u8]) -> bool {
    let begin = bytes.get(..bytes.len().min(64)).unwrap_or_default();
    let nul_at = |offset: usize| begin.iter().skip(offset).step_by(2).filter(|byte| **byte == 0).count();
    let most = begin.len() / 2 * 3 / 4;
    begin.starts_with(&[0xff, 0xfe])
        || begin.starts_with(&[0xfe, 0xff])
        || (begin.len() >= 4 && ((nul_at(1) > most && nul_at(0) == 0) || (nul_at(0) > most && nul_at(1) == 0)))
}

/// Opens the regular file at `path`. Returns `None` for any other kind of file: opening a pipe
/// would wait for a writer, and opening a device may have side effects. The open does not block,
/// even if the file is replaced meanwhile.
///
/// # Errors
///
/// If the file cannot be examined or opened.
pub fn regular(path: &Path) -> std::io::Result<Option<File>> {
    if !std::fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Like [`text_of`], but reports the problem. A missing file is a problem.
pub fn read_text(path: &Path, root: &Path, max: u64, report: &FileReport<'_>) -> Option<String> {
    match text_of(path, root, max) {
        Ok(text) => Some(text),
        Err(Unread { line, message, hint }) => {
            report.error(line, "", message, hint);
            None
        }
    }
}

/// The names in `dir`, sorted. Names that are not UTF-8 are reported and omitted.
pub fn names_in(dir: &Path, report: &FileReport<'_>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            report.error(0, "", format!("the directory cannot be read: {error}"), unreadable(&error));
            return names;
        }
    };
    for entry in entries {
        match entry.map(|entry| entry.file_name().into_string()) {
            Ok(Ok(name)) => {
                names.insert(name);
            }
            Ok(Err(name)) => report.error(0, "", format!("the name {name:?} is not UTF-8"), "rename it"),
            Err(error) => {
                report.error(0, "", format!("the directory cannot be read: {error}"), unreadable(&error));
            }
        }
        if names.len() > DIR_ENTRIES_MAX {
            let message = format!("the directory has more than {DIR_ENTRIES_MAX} entries");
            report.error(0, "", message, "move other files elsewhere");
            break;
        }
    }
    names
}

/// Returns `path` if it is a directory within `root` (a canonical path).
pub fn directory_within(path: &Path, root: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    (real.is_dir() && real.starts_with(root)).then(|| path.to_owned())
}

/// The canonical form of a path whose last parts need not exist.
pub fn real_place(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let Some((part, mut real)) = there else { return path };
    for component in path.strip_prefix(part).unwrap_or(Path::new("")).components() {
        match component {
            std::path::Component::ParentDir => drop(real.pop()),
            std::path::Component::Normal(name) => real.push(name),
            _ => {}
        }
    }
    real
}

/// Whether a configured path is relative, without `..` and control characters, and at most 1024
/// bytes long.
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
        assert!(problem(&root.join("a"), &root, 3).contains("f:1: "));
        assert!(problem(&root.join("bad"), &root, 100).contains("f:2: "));
        assert!(problem(&root, &root, 100).contains("error: f: "));
        std::fs::write(root.join("nul"), b"one\ntwo\0\n").unwrap();
        assert!(problem(&root.join("nul"), &root, 100).contains("f:2: "));
        std::fs::write(root.join("wide"), "id: x\n".encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>())
            .unwrap();
        assert!(problem(&root.join("wide"), &root, 100).contains("UTF-16"));
        assert!(!is_utf16(b"\0\0\0\0") && !is_utf16(b"abc\0") && !is_utf16(b"") && is_utf16(b"\xff\xfea\0"));
        let (pipe, mode) = (root.join("pipe"), Mode::RUSR | Mode::WUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(problem(&pipe, &root, 100).contains("error: f: "));
        assert!(regular(Path::new("/dev/zero")).unwrap().is_none());
        assert!(problem(&root.join("none"), &root, 100).contains("error: f: "));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(outside.path().join("secret"), root.join("link")).unwrap();
            assert!(problem(&root.join("link"), &root, 100).contains("error: f"));
        }
    }

    #[test]
    fn paths_must_be_relative_and_clean() {
        assert!(is_plain_relative("a/b.yaml") && is_plain_relative("./a"));
        for bad in ["", "/a", "../a", "a/../b", "a\0b"] {
            assert!(!is_plain_relative(bad), "{bad:?}");
        }
    }
}
