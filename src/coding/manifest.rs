//! What an agent did: the files it read and changed, and the commands it ran (DEV-14, DEV-18).

use std::collections::{HashMap, VecDeque};

use crate::text::one_line;
use crate::tools::Kind;

/// How many paths and commands are kept each. The rest is only counted.
const MAX_KEPT: usize = 1024;

/// The longest path that is kept, in characters.
const PATH_CHARS: usize = 200;

/// The longest command that is kept, in characters.
const COMMAND_CHARS: usize = 120;

/// How many calls can be open at the same time. Of an older one, a failure is not noticed.
const MAX_OPEN: usize = 64;

/// The longest id of a call. Ids are opaque, and some contain a line break.
const MAX_ID: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Manifest {
    folders: Vec<String>,
    files: HashMap<String, File>,
    commands: HashMap<String, usize>,
    /// Calls whose effects count until they fail.
    open: VecDeque<Open>,
    pub(crate) more_read: usize,
    pub(crate) more_written: usize,
    pub(crate) more_commands: usize,
}

/// What happened to a file.
#[derive(Debug, Default)]
struct File {
    order: usize,
    reads: u32,
    writes: u32,
    deleted: bool,
}

#[derive(Debug)]
struct Open {
    id: String,
    path: String,
    kind: Kind,
}

impl Manifest {
    /// Shows paths below `folder` relative to it. The first folder that contains a path counts.
    pub(crate) fn below(&mut self, folder: &str) {
        let folder = folder.trim_end_matches('/');
        // Two folders at most: the one of the call, and the one that the agent reports.
        if !folder.is_empty() && folder.len() <= 4096 && self.folders.len() < 2 {
            self.folders.push(folder.to_owned());
        }
    }

    /// `path` as it is shown.
    pub(crate) fn shown(&self, path: &str) -> String {
        let below = |folder: &String| {
            let rest = path.strip_prefix(folder.as_str())?;
            if rest.is_empty() { Some(".") } else { Some(rest.strip_prefix('/')?.trim_start_matches('/')) }
        };
        let short = self.folders.iter().find_map(below).unwrap_or(path);
        one_line(short.strip_prefix("./").unwrap_or(short), PATH_CHARS)
    }

    /// Adds the call `id` for a file. A call that begins twice counts once.
    pub(crate) fn file(&mut self, kind: Kind, id: Option<&str>, path: &str) {
        let path = self.shown(path);
        if path.is_empty() || id.is_some_and(|id| self.open.iter().any(|open| open.id == id)) {
            return;
        }
        let order = self.files.len();
        if order >= MAX_KEPT && !self.files.contains_key(&path) {
            let more = if kind == Kind::Read { &mut self.more_read } else { &mut self.more_written };
            *more = more.saturating_add(1);
            return;
        }
        if let Some(id) = id.filter(|id| id.len() <= MAX_ID) {
            if self.open.len() == MAX_OPEN {
                self.open.pop_front();
            }
            self.open.push_back(Open { id: id.to_owned(), path: path.clone(), kind });
        }
        let file = self.files.entry(path).or_insert_with(|| File { order, ..File::default() });
        match kind {
            Kind::Read => file.reads = file.reads.saturating_add(1),
            _ => file.writes = file.writes.saturating_add(1),
        }
        if kind != Kind::Read {
            file.deleted = kind == Kind::Delete;
        }
    }

    /// Adds a command.
    pub(crate) fn command(&mut self, command: &str) {
        let command = one_line(command, COMMAND_CHARS);
        let order = self.commands.len();
        if command.is_empty() || self.commands.contains_key(&command) {
            return;
        }
        if order >= MAX_KEPT {
            self.more_commands = self.more_commands.saturating_add(1);
        } else {
            self.commands.insert(command, order);
        }
    }

    /// Ends the call `id`. If it failed, for example because it was not allowed, its file was
    /// neither read nor written.
    pub(crate) fn ended(&mut self, id: &str, failed: bool) {
        let Some(at) = self.open.iter().position(|open| open.id == id) else { return };
        let Some(open) = self.open.remove(at).filter(|_| failed) else { return };
        let Some(file) = self.files.get_mut(&open.path) else { return };
        match open.kind {
            Kind::Read => file.reads = file.reads.saturating_sub(1),
            _ => file.writes = file.writes.saturating_sub(1),
        }
        if open.kind == Kind::Delete {
            file.deleted = false;
        }
    }

    /// The files that were read and not written, in the order in which they were first seen.
    pub(crate) fn read(&self) -> Vec<String> {
        self.list(|file| file.writes == 0 && file.reads > 0)
    }

    /// The files that were written, in the order in which they were first seen.
    pub(crate) fn written(&self) -> Vec<String> {
        self.list(|file| file.writes > 0)
    }

    fn list(&self, wanted: impl Fn(&File) -> bool) -> Vec<String> {
        let mut files: Vec<_> = self.files.iter().filter(|(_, file)| wanted(file)).collect();
        files.sort_unstable_by_key(|(_, file)| file.order);
        files
            .into_iter()
            .map(|(path, file)| if file.deleted { format!("{path} (deleted)") } else { path.clone() })
            .collect()
    }

    /// The commands, in the order in which they were first run.
    pub(crate) fn commands(&self) -> Vec<String> {
        let mut commands: Vec<_> = self.commands.iter().collect();
        commands.sort_unstable_by_key(|(_, order)| **order);
        commands.into_iter().map(|(command, _)| command.clone()).collect()
    }

    /// An upper bound of the bytes that are held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let open = self.open.iter().map(|open| open.id.len() + open.path.len());
        self.files.keys().chain(self.commands.keys()).map(String::len).chain(open).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_read_and_written_is_listed_as_written() {
        let mut manifest = Manifest::default();
        manifest.below("/w/repo/");
        manifest.below("/real/repo");
        for path in ["/w/repo/a.rs", "./b.rs", "/w/repository/x", "/real/repo//c.rs", "/w/repo", "a.rs", ""] {
            manifest.file(Kind::Read, None, path);
        }
        manifest.file(Kind::Write, None, "/w/repo/b.rs");
        manifest.file(Kind::Delete, None, "old\n\u{1b}[2Jname");
        assert_eq!(manifest.read(), ["a.rs", "/w/repository/x", "c.rs", "."]);
        assert_eq!(manifest.written(), ["b.rs", "old name (deleted)"]);
    }

    #[test]
    fn a_failed_call_is_taken_back() {
        let mut manifest = Manifest::default();
        manifest.file(Kind::Write, Some("1\nx"), "a");
        manifest.file(Kind::Write, Some("1\nx"), "a");
        manifest.file(Kind::Read, Some("2"), "a");
        manifest.file(Kind::Delete, Some("3"), "b");
        manifest.file(Kind::Write, Some("4"), "c");
        manifest.ended("1\nx", true);
        manifest.ended("1\nx", true);
        manifest.ended("3", true);
        manifest.ended("4", false);
        manifest.ended("4", true);
        manifest.ended("unknown", true);
        assert_eq!((manifest.read(), manifest.written()), (vec!["a".to_owned()], vec!["c".to_owned()]));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_rest_is_counted() {
        let mut manifest = Manifest::default();
        for n in 0..MAX_KEPT + 7 {
            let long = format!("{n}{}", "x".repeat(5_000));
            manifest.file(Kind::Read, Some(&long), &long);
            manifest.file(Kind::Write, Some(&n.to_string()), "same");
            manifest.command(&long);
        }
        assert_eq!((manifest.read().len(), manifest.written()), (MAX_KEPT - 1, vec!["same".to_owned()]));
        assert_eq!((manifest.more_read, manifest.more_written, manifest.more_commands), (8, 0, 7));
        assert!(manifest.held() < 500_000, "{}", manifest.held());
        assert!(manifest.open.len() <= MAX_OPEN && manifest.open.iter().all(|open| open.id.len() <= MAX_ID));
        assert_eq!(manifest.commands().len(), MAX_KEPT);
        assert!(manifest.commands()[3].starts_with('3'));
    }
}
