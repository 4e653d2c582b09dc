//! Collects what an agent does: the files it reads and changes, and the commands it runs. It never holds more than its
//! bounds, however long a run is.

use std::collections::{HashMap, VecDeque};

use crate::text::one_line;

/// How many paths and commands are kept each. The rest is only counted.
const MAX_KEPT: usize = 1024;

/// The longest path that is kept, in characters.
const PATH_CHARS: usize = 200;

/// The longest command that is kept, in characters.
const COMMAND_CHARS: usize = 120;

/// Calls of tools that are open at the same time. Of an older one, a failure is not noticed.
pub const CALLS_MAX: usize = 64;

/// The longest id of a call, in bytes. Ids are opaque, and some contain a line break. A call with a longer one is not
/// followed.
pub const CALL_ID_MAX: usize = 256;

/// Effects of open calls that are followed.
const MAX_OPEN: usize = 4 * CALLS_MAX;

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It reads a file.
    Read,
    /// It writes a file.
    Write,
    /// It deletes a file.
    Delete,
    /// It runs a command.
    Run,
}

/// The files and commands of a run.
#[derive(Debug, Default)]
pub struct Collector {
    folders: Vec<String>,
    files: HashMap<String, Kept>,
    commands: HashMap<String, Kept>,
    /// Effects that count until their call fails.
    open: VecDeque<Open>,
    /// Commands that were not allowed. Some agents ask about a call under another id.
    refused: VecDeque<String>,
    more_read: usize,
    more_written: usize,
    more_commands: usize,
}

/// What happened to a file, or how often a command ran.
#[derive(Debug, Default)]
struct Kept {
    order: usize,
    reads: u32,
    /// Writes of a file, or runs of a command.
    acts: u32,
    deleted: bool,
    /// Writes of calls that were cut.
    cut: u32,
}

#[derive(Debug)]
struct Open {
    id: String,
    what: String,
    effect: Effect,
}

impl Collector {
    /// Shows paths below `folder` relative to it.
    #[must_use]
    pub fn new(folder: &str) -> Self {
        let mut collector = Self::default();
        collector.below(folder);
        collector
    }

    /// Shows paths below `folder` relative to it. The first folder that contains a path counts.
    pub fn below(&mut self, folder: &str) {
        let folder = folder.trim_end_matches('/');
        // Two folders at most: the one of the call, and the one that the agent reports.
        if !folder.is_empty() && folder.len() <= 4096 && self.folders.len() < 2 {
            self.folders.push(folder.to_owned());
        }
    }

    /// `path` as it is shown.
    #[must_use]
    pub fn shown(&self, path: &str) -> String {
        let below = |folder: &String| {
            let rest = path.strip_prefix(folder.as_str())?;
            if rest.is_empty() { Some(".") } else { Some(rest.strip_prefix('/')?.trim_start_matches('/')) }
        };
        let short = self.folders.iter().find_map(below).unwrap_or(path);
        one_line(short.strip_prefix("./").unwrap_or(short), PATH_CHARS)
    }

    /// Adds the effect of the call `id` on a path or with a command. The same one of the same call counts once.
    pub fn add(&mut self, effect: Effect, id: Option<&str>, what: &str) {
        let what = if effect == Effect::Run { one_line(what, COMMAND_CHARS) } else { self.shown(what) };
        self.add_shown(effect, id, what);
    }

    /// The same for a path or command as it is shown.
    pub(crate) fn add_shown(&mut self, effect: Effect, id: Option<&str>, what: String) {
        let known = |open: &Open| Some(open.id.as_str()) == id && open.what == what && open.effect == effect;
        if what.is_empty() || self.open.iter().any(known) {
            return;
        }
        self.count(effect, &what);
        if let Some(id) = id.filter(|id| id.len() <= CALL_ID_MAX) {
            if self.open.len() == MAX_OPEN {
                self.open.pop_front();
            }
            self.open.push_back(Open { id: id.to_owned(), what, effect });
        }
    }

    /// What is kept of this kind, and the number of what is not.
    fn place(&mut self, effect: Effect) -> (&mut HashMap<String, Kept>, &mut usize) {
        match effect {
            Effect::Read => (&mut self.files, &mut self.more_read),
            Effect::Write | Effect::Delete => (&mut self.files, &mut self.more_written),
            Effect::Run => (&mut self.commands, &mut self.more_commands),
        }
    }

    fn count(&mut self, effect: Effect, what: &str) {
        let (all, more) = self.place(effect);
        let order = all.len();
        if order >= MAX_KEPT && !all.contains_key(what) {
            *more = more.saturating_add(1);
            return;
        }
        let kept = all.entry(what.to_owned()).or_insert_with(|| Kept { order, ..Kept::default() });
        if effect == Effect::Read {
            kept.reads = kept.reads.saturating_add(1);
        } else {
            kept.acts = kept.acts.saturating_add(1);
            kept.deleted = effect == Effect::Delete;
        }
    }

    /// Ends the call `id`. If it failed, its files were neither read nor written; its command did run, unless the
    /// same command was not allowed before.
    pub fn ended(&mut self, id: &str, failed: bool) {
        for Open { what, effect, .. } in self.close(id).into_iter().filter(|_| failed) {
            let refused = self.refused.iter().position(|command| effect == Effect::Run && *command == what);
            if effect != Effect::Run || refused.and_then(|at| self.refused.remove(at)).is_some() {
                self.undo(effect, &what);
            }
        }
    }

    /// Takes the call `id` back: it was not allowed, so nothing of it happened.
    pub fn taken_back(&mut self, id: &str) {
        for Open { what, effect, .. } in self.close(id) {
            self.undo(effect, &what);
            if effect == Effect::Run {
                if self.refused.len() == CALLS_MAX {
                    self.refused.pop_front();
                }
                self.refused.push_back(what);
            }
        }
    }

    /// Takes out what is open of the call `id`.
    fn close(&mut self, id: &str) -> VecDeque<Open> {
        let (closed, open) = std::mem::take(&mut self.open).into_iter().partition(|open| open.id == id);
        self.open = open;
        closed
    }

    fn undo(&mut self, effect: Effect, what: &str) {
        let (all, more) = self.place(effect);
        // What is not there had no room.
        let Some(kept) = all.get_mut(what) else { return *more = more.saturating_sub(1) };
        let times = if effect == Effect::Read { &mut kept.reads } else { &mut kept.acts };
        *times = times.saturating_sub(1);
        kept.deleted &= effect != Effect::Delete;
    }

    /// The run was cut: of its open calls it is not known whether they wrote.
    pub fn cut(&mut self) {
        for open in self.open.iter().filter(|open| matches!(open.effect, Effect::Write | Effect::Delete)) {
            if let Some(file) = self.files.get_mut(&open.what) {
                file.cut = file.cut.saturating_add(1);
            }
        }
    }

    /// What is known so far.
    #[must_use]
    pub fn manifest(&self) -> Manifest {
        Manifest {
            read: list(&self.files, |file| file.acts == 0 && file.reads > 0),
            written: list(&self.files, |file| file.acts > 0),
            commands: list(&self.commands, |command| command.acts > 0),
            more_read: self.more_read,
            more_written: self.more_written,
            more_commands: self.more_commands,
        }
    }

    /// An upper bound of the bytes that are held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let open = self.open.iter().map(|open| open.id.len() + open.what.len());
        let refused = self.refused.iter().map(String::len);
        self.files.keys().chain(self.commands.keys()).map(String::len).chain(open).chain(refused).sum()
    }
}

fn list(all: &HashMap<String, Kept>, wanted: impl Fn(&Kept) -> bool) -> Vec<String> {
    let mut listed: Vec<_> = all.iter().filter(|(_, kept)| wanted(kept)).collect();
    listed.sort_unstable_by_key(|(_, kept)| kept.order);
    let shown = |(what, kept): (&String, &Kept)| match (kept.acts > 0 && kept.cut >= kept.acts, kept.deleted) {
        (true, _) => format!("{what} (begun)"),
        (false, true) => format!("{what} (deleted)"),
        (false, false) => what.clone(),
    };
    listed.into_iter().map(shown).collect()
}

/// Files and commands of a run, in the order in which they came first. Nothing is listed twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Files that were read and not written. Paths below the directory of the session are relative to it.
    pub read: Vec<String>,
    /// Files that were written. A deleted one ends in ` (deleted)`, one of which only the
    /// beginning is known in ` (begun)`.
    pub written: Vec<String>,
    /// Commands, each on one line of at most 120 characters.
    pub commands: Vec<String>,
    /// Files that were read and are not listed.
    pub more_read: usize,
    /// Files that were written and are not listed.
    pub more_written: usize,
    /// Commands that are not listed.
    pub more_commands: usize,
}

impl Manifest {
    /// Whether nothing is known to have happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: DEV-18
    #[test]
    fn a_file_that_is_read_and_written_is_listed_as_written() {
        let mut collector = Collector::new("/w/repo/");
        collector.below("/real/repo");
        for path in ["/w/repo/a.rs", "./b.rs", "/w/repository/x", "/real/repo//c.rs", "/w/repo", "a.rs", ""] {
            collector.add(Effect::Read, None, path);
        }
        collector.add(Effect::Write, None, "/w/repo/b.rs");
        collector.add(Effect::Delete, None, "old\n\u{1b}[2Jname");
        let manifest = collector.manifest();
        assert_eq!(manifest.read, ["a.rs", "/w/repository/x", "c.rs", "."]);
        assert_eq!(manifest.written, ["b.rs", "old name (deleted)"]);
    }

    #[test]
    fn a_failed_call_loses_its_files_and_a_refused_one_its_command_too() {
        let mut collector = Collector::new("/w");
        for (effect, what) in [(Effect::Write, "a"), (Effect::Write, "a"), (Effect::Delete, "b"), (Effect::Run, "ls")] {
            collector.add(effect, Some("1\nx"), what);
        }
        collector.add(Effect::Run, Some("2"), "rm -rf /");
        collector.add(Effect::Read, Some("3"), "a");
        collector.ended("1\nx", true);
        collector.taken_back("2");
        collector.ended("3", false);
        collector.ended("3", true);
        let manifest = collector.manifest();
        assert_eq!((manifest.read, manifest.written), (vec!["a".to_owned()], vec![]));
        assert_eq!(manifest.commands, ["ls"]);
    }

    #[test]
    fn a_command_that_was_refused_under_another_id_did_not_run() {
        let mut collector = Collector::new("");
        for call in ["real", "pending"] {
            collector.add(Effect::Run, Some(call), "echo hi");
        }
        collector.taken_back("pending");
        collector.ended("real", true);
        assert!(collector.manifest().commands.is_empty());
        collector.add(Effect::Run, Some("later"), "echo hi");
        collector.ended("later", true);
        assert_eq!(collector.manifest().commands, ["echo hi"], "this one was not refused");
    }

    #[test]
    fn a_write_of_a_call_that_was_cut_is_only_begun() {
        let mut collector = Collector::new("/w");
        collector.add(Effect::Write, Some("1"), "a");
        collector.add(Effect::Write, Some("2"), "b");
        collector.ended("2", false);
        collector.add(Effect::Write, Some("3"), "b");
        collector.add(Effect::Delete, Some("4"), "c");
        collector.cut();
        assert_eq!(collector.manifest().written, ["a (begun)", "b", "c (begun)"]);
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_rest_is_counted() {
        let mut collector = Collector::new("");
        for n in 0..MAX_KEPT + 7 {
            let long = format!("{n}{}", "x".repeat(5_000));
            collector.add(Effect::Read, Some(&long), &long);
            collector.add(Effect::Write, Some(&n.to_string()), "same");
            collector.add(Effect::Run, None, &long);
        }
        let manifest = collector.manifest();
        assert_eq!((manifest.read.len(), manifest.written), (MAX_KEPT - 1, vec!["same".to_owned()]));
        assert_eq!((manifest.more_read, manifest.more_written, manifest.more_commands), (8, 0, 7));
        collector.add(Effect::Write, Some("late"), "late");
        collector.add(Effect::Write, Some("late"), "late");
        assert_eq!(collector.manifest().more_written, 1, "the parts of one call count once");
        collector.ended("late", true);
        assert_eq!(collector.manifest().more_written, 0);
        assert!(collector.held() < 600_000, "{}", collector.held());
        assert!(collector.open.len() <= MAX_OPEN && collector.open.iter().all(|open| open.id.len() <= CALL_ID_MAX));
        assert!(manifest.commands[3].starts_with('3') && manifest.commands[3].chars().count() <= COMMAND_CHARS);
    }
}
