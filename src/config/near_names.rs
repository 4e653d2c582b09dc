//! Files whose names are nearly those that a world reads: such a file says something, and nothing of it would hold.
//!
//! Must never: take up a name that is somebody's own, such as README.md.

use std::collections::BTreeSet;
use std::path::Path;

use ghost_domain::text::nearest_within;

use crate::files::{ARCHETYPES, DIR_ENTRIES_MAX, WORLD_FILE, first_line};
use crate::problem::{Problem, Severity};
use crate::report::{FileReport, Report};

/// Files with an older name; if both are there, the older one is appended.
pub(crate) const OLDER: [(&str, &str); 3] = [("agent.md", "AGENTS.md"), ("soul.md", "SOUL.md"), ("user.md", "USER.md")];

/// The directories that a world's directory may hold.
const DIRECTORIES: [&str; 3] = [ARCHETYPES, "knowledge", "skills"];

/// What world files are also called elsewhere.
const WORLD_FILES_ELSEWHERE: [&str; 4] = ["config.yaml", "config.yml", "world.yaml", "world.yml"];

/// Endings that a markdown file is given by mistake.
const OTHER_ENDINGS: [&str; 6] = ["markdown", "mdown", "mdx", "txt", "yaml", "yml"];

/// What a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'d> {
    /// An archetype's.
    Archetype {
        /// Where it is.
        dir: &'d Path,
    },
    /// The world's own.
    World {
        /// Where it is.
        dir: &'d Path,
    },
}

/// The names in a directory that may hold anything besides what is read from it: what cannot be listed, or has no name
/// that is text, is not meant to be one of ours.
pub fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().take(DIR_ENTRIES_MAX);
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Reports the files among `names` that nothing reads although their names are nearly one of `known`: an error if only
/// upper and lower case differ, else a warning.
pub fn report<'n, 'r>(
    names: impl Iterator<Item = &'n str>,
    known: &[&str],
    wanted: Wanted<'_>,
    at: &dyn Fn(&str) -> FileReport<'r>,
) {
    let (of, dir) = match wanted {
        Wanted::Archetype { dir } => ("An archetype's files are", dir),
        Wanted::World { dir } => ("The world's markdown files are", dir),
    };
    for name in names.filter(|name| !known.contains(name)) {
        if let Some(meant) = known.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            let meant = OLDER.iter().find(|(_, old)| old == meant).map_or(meant, |(new, _)| new);
            let message = format!("the file is not read: its name is not `{meant}` in every letter");
            at(name).error(first_line(&dir.join(name)), "", message, format!("rename it to `{meant}`"));
        } else if let Some(meant) = meant(name, known) {
            let hint = format!("did you mean `{meant}`? {of}: {}", known.join(", "));
            at(name).warn(first_line(&dir.join(name)), "", "the file is not read: nothing has this name", hint);
        }
    }
}

/// Reports that the file `name` was meant to be `meant`, which is not there, and that the world must not start without it.
pub fn report_as_error(name: &str, meant: &str, file: &FileReport<'_>) {
    let (message, hint) = if meant.eq_ignore_ascii_case(name) {
        let message = format!("the file is not read: its name is not `{meant}` in every letter");
        (message, format!("rename it to `{meant}`"))
    } else {
        let hint = format!("did you mean `{meant}`? Rename it, or take it away: nothing that it says would hold");
        ("the file is not read: nothing has this name".to_owned(), hint)
    };
    file.error(1, "", message, hint);
}

/// The file among `names` that was probably meant to be `wanted`, which is not there; `known` are the names that mean something.
pub fn meant_file<'n>(wanted: &str, known: &[&str], names: &'n BTreeSet<String>) -> Option<&'n String> {
    let others = || names.iter().filter(|name| !known.contains(&name.as_str()));
    let same = others().find(|name| name.eq_ignore_ascii_case(wanted));
    same.or_else(|| others().find(|name| meant(name, known) == Some(wanted)))
}

/// The directory in `dir` that was probably meant to be called `wanted`, which is not there.
#[must_use]
pub fn meant_directory(dir: &Path, wanted: &str) -> Option<String> {
    let names = names_in(dir);
    let others = names.iter().map(String::as_str).filter(|name| !DIRECTORIES.contains(name) && dir.join(name).is_dir());
    near_directory(wanted, others).map(str::to_owned)
}

fn near_directory<'n>(name: &str, others: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    nearest_within(name, others, if name.len() < 8 { 1 } else { 2 })
}

/// Reports the directories of a world that nothing reads although their names are nearly one of those that are read: an
/// error if only upper and lower case differ, else a warning. `shown` is `dir` as it is named in messages.
pub fn report_directories(dir: &Path, shown: &Path, report: &Report) {
    let here = |name: &&str| dir.join(name).symlink_metadata().is_ok();
    for name in names_in(dir).iter().filter(|name| !DIRECTORIES.contains(&name.as_str()) && dir.join(name).is_dir()) {
        let Some(meant) = near_directory(name, DIRECTORIES.into_iter()) else { continue };
        // One that has no other is named where its absence is told.
        if meant != ARCHETYPES || here(&ARCHETYPES) {
            report.push(misnamed_directory(&shown.join(name), meant));
        }
    }
}

/// What is wrong with the directory `shown`, which was probably meant to be called `meant`: an error if only upper and lower case
/// differ, else a warning.
#[must_use]
pub fn misnamed_directory(shown: &Path, meant: &str) -> Problem {
    let same = shown.file_name().is_some_and(|name| name.eq_ignore_ascii_case(meant));
    let (severity, message, hint) = if same {
        let message = format!("the directory is not read: its name is not `{meant}` in every letter");
        (Severity::Error, message, format!("rename it to `{meant}`"))
    } else {
        let message = "the directory is not read: nothing has this name".to_owned();
        (Severity::Warning, message, format!("did you mean `{meant}`? Rename it"))
    };
    let (file, field, hint) = (shown.to_owned(), String::new(), hint.into());
    Problem { severity, file, line: 0, field, message, hint }
}

/// The file in `dir` that was probably meant to be the world file, which is not there.
#[must_use]
pub fn meant_world_file(dir: &Path) -> Option<String> {
    let names = names_in(dir);
    let files = || names.iter().map(String::as_str).filter(|name| dir.join(name).is_file());
    let near = nearest_within(WORLD_FILE, files(), 4);
    near.or_else(|| files().find(|name| WORLD_FILES_ELSEWHERE.contains(name))).map(str::to_owned)
}

/// Reports files that are the world file but for their ending or the case of their letters, beside one that is read.
pub fn report_world_files(dir: &Path, shown: &Path, report: &Report) {
    for name in names_in(dir).iter().filter(|name| *name != WORLD_FILE && dir.join(name).is_file()) {
        let plain = name.to_ascii_lowercase().replace('_', "-");
        if plain == WORLD_FILE || plain == "world-config.yml" {
            let message = format!("the file is not read: the world file is `{WORLD_FILE}`");
            report.file(shown.join(name)).warn(1, "", message, "move what it says there, and take it away");
        }
    }
}

/// The known name that `name` was probably meant to be.
fn meant<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let (stem, ending) = name.rsplit_once('.')?;
    let (stem, ending) = (stem.to_ascii_lowercase(), ending.to_ascii_lowercase());
    let stem_of = |known: &'k str| known.rsplit_once('.').map_or(known, |(stem, _)| stem);
    let is = |known: &&&'k str| stem_of(known).eq_ignore_ascii_case(&stem);
    if OTHER_ENDINGS.contains(&ending.as_str()) && !(stem == "tools" && matches!(&*ending, "yaml" | "yml")) {
        return known.iter().find(is).copied();
    }
    if ending != "md" {
        return None;
    }
    let longer = |known: &&&'k str| {
        let known = stem_of(known).to_ascii_lowercase();
        let cut = |long: &str, short: &str| {
            short.len() >= 3
                && long.strip_prefix(short).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_alphabetic()))
        };
        // A name cut short, one with an `s` too many, and what config.md is often called; `lawsuit` is somebody's own.
        cut(&known, &stem) || stem.strip_suffix('s') == Some(&*known) || (known == "config" && stem == "configuration")
    };
    // Half of a short name is no slip: `logs` is not `laws`.
    let limit = if stem.len() < 8 { 1 } else { 2 };
    let today = known.iter().filter(|known| OLDER.iter().all(|(_, old)| old != *known)).map(|known| stem_of(known));
    let near = nearest_within(&stem, today, limit);
    near.and_then(|near| known.iter().find(|known| stem_of(known) == near))
        .or_else(|| known.iter().find(longer))
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHETYPE: [&str; 7] =
        ["soul.md", "goal.md", "user.md", "agent.md", "config.md", "HEARTBEAT.md", "AGENTS.md"];

    #[test]
    fn slips_are_told_from_names_of_ones_own() {
        for (name, known) in [
            ("conf.md", "config.md"),
            ("configuration.md", "config.md"),
            ("confg.md", "config.md"),
            ("config.yaml", "config.md"),
            ("Config.txt", "config.md"),
            ("goals.md", "goal.md"),
            ("users.md", "user.md"),
            ("heart-beat.md", "HEARTBEAT.md"),
        ] {
            assert_eq!(meant(name, &ARCHETYPE), Some(known), "{name}");
        }
        for name in [
            "README.md",
            "logs.md",
            "notes.md",
            "NOTES.md",
            "TODO.md",
            "CHANGELOG.md",
            "history.md",
            "agenda.md",
            "agency.md",
            "goalkeeper.md",
            "usermanual.md",
            "config.md.bak",
            "x",
            "a.md",
        ] {
            assert_eq!(meant(name, &ARCHETYPE), None, "{name}");
        }
        assert_eq!(meant("law.md", &["laws.md", "tools.md"]), Some("laws.md"));
        for name in ["README.md", "logs.md", "maps.md", "lawsuit.md", "tools.yaml"] {
            assert_eq!(meant(name, &["laws.md", "tools.md"]), None, "{name}");
        }
    }
}
