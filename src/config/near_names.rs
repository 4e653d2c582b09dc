//! Files whose names are nearly those that a world reads: such a file says something, and nothing of it would hold.
//!
//! Must never: take up a name that is somebody's own, such as README.md.

use std::collections::BTreeSet;
use std::path::Path;

use ghost_domain::text::nearest_within;

use crate::archetype::OLDER;
use crate::files::DIR_ENTRIES_MAX;
use crate::report::FileReport;

/// Endings that a markdown file is given by mistake.
const OTHER_ENDINGS: [&str; 6] = ["markdown", "mdown", "mdx", "txt", "yaml", "yml"];

/// What a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// An archetype's.
    Archetype,
    /// The world's own.
    World,
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
    wanted: Wanted,
    at: &dyn Fn(&str) -> FileReport<'r>,
) {
    let of = match wanted {
        Wanted::Archetype => "An archetype's files are",
        Wanted::World => "The world's markdown files are",
    };
    for name in names.filter(|name| !known.contains(name)) {
        if let Some(meant) = known.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            let meant = OLDER.iter().find(|(_, old)| old == meant).map_or(meant, |(new, _)| new);
            let hint = format!("rename it to `{meant}`");
            at(name).error(
                0,
                "",
                format!("the file is not read: its name is not `{meant}` in every letter"),
                Some(hint),
            );
        } else if let Some(meant) = meant(name, known) {
            let hint = format!("did you mean `{meant}`? {of}: {}", known.join(", "));
            at(name).warn(0, "", "the file is not read: nothing has this name", Some(hint));
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
