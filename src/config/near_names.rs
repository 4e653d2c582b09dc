//! Finds files and directories with misspelt names. Their content would be ignored without notice.
//!
//! Must never: report a name with a purpose of its own, such as README.md.

use std::collections::BTreeSet;
use std::path::Path;

use ghost_domain::text::nearest_within;

use crate::files::{ARCHETYPES, DIR_ENTRIES_MAX, WORLD_FILE, first_line};
use crate::problem::{Problem, Severity};
use crate::report::{FileReport, Report};

/// Files with an older name. If both exist, the text of the older one is appended.
pub(crate) const OLDER: [(&str, &str); 3] = [("agent.md", "AGENTS.md"), ("soul.md", "SOUL.md"), ("user.md", "USER.md")];

/// The directories that a world reads.
const DIRECTORIES: [&str; 3] = [ARCHETYPES, "knowledge", "skills"];

/// Names of world files in other versions.
const WORLD_FILES_ELSEWHERE: [&str; 4] = ["config.yaml", "config.yml", "world.yaml", "world.yml"];

/// Wrong extensions of markdown files.
const OTHER_ENDINGS: [&str; 6] = ["markdown", "mdown", "mdx", "txt", "yaml", "yml"];

/// The kind of a directory, for hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted<'d> {
    /// An archetype's directory.
    Archetype {
        /// The path of the directory.
        dir: &'d Path,
    },
    /// The world's directory.
    World {
        /// The path of the directory.
        dir: &'d Path,
    },
}

/// The names in a directory. Entries that cannot be listed and names that are not UTF-8 are left
/// out: they cannot be misspelt names.
pub fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().take(DIR_ENTRIES_MAX);
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Reports the files among `names` that are not read and whose names are similar to one of `known`.
/// It is an error if only upper and lower case differ, otherwise a warning.
pub fn report<'n, 'r>(
    names: impl Iterator<Item = &'n str>,
    known: &[&str],
    wanted: Wanted<'_>,
    at: &dyn Fn(&str) -> FileReport<'r>,
) {
    let (list_of, dir) = match wanted {
        Wanted::Archetype { dir } => ("An archetype's files are", dir),
        Wanted::World { dir } => ("The world's markdown files are", dir),
    };
    for name in names.filter(|name| !known.contains(name)) {
        if let Some(meant) = known.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            let meant = OLDER.iter().find(|(_, old)| old == meant).map_or(meant, |(new, _)| new);
            let message = format!("the file is not read: its name differs in case from `{meant}`");
            at(name).error(first_line(&dir.join(name)), "", message, format!("rename it to `{meant}`"));
        } else if let Some(meant) = meant(name, known) {
            let hint = format!("did you mean `{meant}`? {list_of}: {}", known.join(", "));
            at(name).warn(first_line(&dir.join(name)), "", "the file is not read: its name is unknown", hint);
        }
    }
}

/// Reports the file `name` as a misspelt `meant`. This is an error: the file `meant` is missing,
/// and the world must not start without it.
pub fn report_as_error(name: &str, meant: &str, file: &FileReport<'_>) {
    let (message, hint) = if meant.eq_ignore_ascii_case(name) {
        let message = format!("the file is not read: its name differs in case from `{meant}`");
        (message, format!("rename it to `{meant}`"))
    } else {
        let hint = format!("did you mean `{meant}`? Rename it, or remove it: its content would have no effect");
        ("the file is not read: its name is unknown".to_owned(), hint)
    };
    file.error(1, "", message, hint);
}

/// The file among `names` that is probably a misspelt `wanted`. `known` are the names that are
/// read.
pub fn meant_file<'n>(wanted: &str, known: &[&str], names: &'n BTreeSet<String>) -> Option<&'n String> {
    let others = || names.iter().filter(|name| !known.contains(&name.as_str()));
    let same = others().find(|name| name.eq_ignore_ascii_case(wanted));
    same.or_else(|| others().find(|name| meant(name, known) == Some(wanted)))
}

/// The directory in `dir` that is probably a misspelt `wanted`.
#[must_use]
pub fn meant_directory(dir: &Path, wanted: &str) -> Option<String> {
    let names = names_in(dir);
    let others = names.iter().map(String::as_str).filter(|name| !DIRECTORIES.contains(name) && dir.join(name).is_dir());
    near_directory(wanted, others).map(str::to_owned)
}

fn near_directory<'n>(name: &str, others: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    nearest_within(name, others, if name.len() < 8 { 1 } else { 2 })
}

/// Reports the directories of a world whose names are similar to one that is read. It is an error
/// if only upper and lower case differ, otherwise a warning. `shown` is `dir` as messages name it.
pub fn report_directories(dir: &Path, shown: &Path, report: &Report) {
    let exists = |name: &&str| dir.join(name).symlink_metadata().is_ok();
    for name in names_in(dir).iter().filter(|name| !DIRECTORIES.contains(&name.as_str()) && dir.join(name).is_dir()) {
        let Some(meant) = near_directory(name, DIRECTORIES.into_iter()) else { continue };
        // If `archetype` is missing, the report of that names the misspelt directory.
        if meant != ARCHETYPES || exists(&ARCHETYPES) {
            report.push(misnamed_directory(&shown.join(name), meant));
        }
    }
}

/// The problem of the directory `shown`, which is probably a misspelt `meant`. It is an error if
/// only upper and lower case differ, otherwise a warning.
#[must_use]
pub fn misnamed_directory(shown: &Path, meant: &str) -> Problem {
    let same = shown.file_name().is_some_and(|name| name.eq_ignore_ascii_case(meant));
    let (severity, message, hint) = if same {
        let message = format!("the directory is not read: its name differs in case from `{meant}`");
        (Severity::Error, message, format!("rename it to `{meant}`"))
    } else {
        let message = "the directory is not read: its name is unknown".to_owned();
        (Severity::Warning, message, format!("did you mean `{meant}`? Rename it"))
    };
    let (file, field, hint) = (shown.to_owned(), String::new(), hint.into());
    Problem { severity, file, line: 0, field, message, hint }
}

/// The file in `dir` that is probably a misspelt world file.
#[must_use]
pub fn meant_world_file(dir: &Path) -> Option<String> {
    let names = names_in(dir);
    let files = || names.iter().map(String::as_str).filter(|name| dir.join(name).is_file());
    let near = nearest_within(WORLD_FILE, files(), 4);
    near.or_else(|| files().find(|name| WORLD_FILES_ELSEWHERE.contains(name))).map(str::to_owned)
}

/// Reports files beside the world file whose names differ from it only in extension, case or `_`
/// for `-`.
pub fn report_world_files(dir: &Path, shown: &Path, report: &Report) {
    for name in names_in(dir).iter().filter(|name| *name != WORLD_FILE && dir.join(name).is_file()) {
        let plain = name.to_ascii_lowercase().replace('_', "-");
        if plain == WORLD_FILE || plain == "world-config.yml" {
            let message = format!("the file is not read: the world file is `{WORLD_FILE}`");
            report.file(shown.join(name)).warn(1, "", message, "move its content there, and remove it");
        }
    }
}

/// The known name that `name` is probably a misspelling of.
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
        // Accept a shortened name, a name with an `s` too many, and `configuration` for `config`.
        // `lawsuit` is none of these.
        cut(&known, &stem) || stem.strip_suffix('s') == Some(&*known) || (known == "config" && stem == "configuration")
    };
    // In a short name allow one wrong letter only: `logs` is not `laws`.
    let limit = if stem.len() < 8 { 1 } else { 2 };
    let current = known.iter().filter(|known| OLDER.iter().all(|(_, old)| old != *known)).map(|known| stem_of(known));
    let near = nearest_within(&stem, current, limit);
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
    fn misspelt_names_are_found_and_other_names_are_left_alone() {
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
