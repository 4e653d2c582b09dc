//! Finds files and directories with misspelt names. Ghost does not read them.
//!
//! This module must never report a name with a purpose of its own, such as README.md.

use std::path::Path;

use ghost_domain::text::nearest_within;

use crate::files::{ARCHETYPES, DIR_ENTRIES_MAX, WORLD_FILE, first_line};
use crate::report::Report;

/// The names that must exist. If one is missing, an error says so and names the misspelt one.
const REQUIRED: [&str; 4] = [WORLD_FILE, ARCHETYPES, "soul.md", "goal.md"];

/// The name in `dir` that is probably a misspelling of `wanted`, which is missing.
#[must_use]
pub fn misspelt(dir: &Path, wanted: &str) -> Option<String> {
    names_in(dir).into_iter().find(|name| is_near(name, wanted))
}

/// Reports each name in `dir` that is probably a misspelling of one of `known`. It is an error if
/// that file is missing: its rules would silently not apply. Else it is a warning. Names in `others`
/// are omitted. `shown` is `dir` as messages name it.
pub fn report(dir: &Path, shown: &Path, known: &[&str], others: &[&str], report: &Report) {
    let names = names_in(dir);
    let exists = |wanted: &str| names.iter().any(|name| name == wanted);
    for name in names.iter().filter(|name| !known.contains(&name.as_str()) && !others.contains(&name.as_str())) {
        let Some(meant) = known.iter().find(|known| is_near(name, known)) else { continue };
        let (file, line) = (report.file(shown.join(name)), first_line(&dir.join(name)));
        let (message, hint) = ("it is not read: its name is unknown", format!("did you mean `{meant}`? Rename it"));
        match exists(meant) {
            true => file.warn(line, "", message, hint),
            // The error about the missing file names this one, unless a file with an older name is used.
            false if REQUIRED.contains(meant) && !others.iter().any(|other| exists(other) && is_near(other, meant)) => {
            }
            false => file.error(line, "", message, hint),
        }
    }
}

/// Whether the names differ in at most one letter, or two if `known` is long, or only in the
/// extension. Case makes no difference.
fn is_near(name: &str, known: &str) -> bool {
    nearest_within(name, [known], if known.len() < 9 { 1 } else { 2 }).is_some() || differs_in_extension(name, known)
}

/// Whether `name` is `known` with another extension, a second one or none. A configuration that is
/// written as YAML, or whose name is spelt out, would silently not apply.
fn differs_in_extension(name: &str, known: &str) -> bool {
    let Some(known_stem) = known.strip_suffix(".md") else { return false };
    let name = name.to_ascii_lowercase();
    let (stem, extension) = name.split_once('.').unwrap_or((&name, ""));
    if known == "config.md" {
        return ["config", "configuration"].contains(&stem);
    }
    let is_text = ["", "markdown", "mdown", "mdx", "txt"].contains(&extension) || extension.starts_with("md.");
    stem.eq_ignore_ascii_case(known_stem) && is_text
}

/// The names in a directory, without hidden files and backups of editors. Entries that cannot be
/// listed and names that are not UTF-8 are omitted: they cannot be misspelt names.
fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().take(DIR_ENTRIES_MAX);
    let mut names: Vec<String> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.retain(|name| !name.starts_with('.') && !name.ends_with('~'));
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Severity;

    #[test]
    fn misspelt_names_are_found_and_other_names_are_left_alone() {
        let known = ["soul.md", "goal.md", "user.md", "agent.md", "config.md", "HEARTBEAT.md", "laws.md", "tools.md"];
        for (name, meant) in [
            ("Config.md", "config.md"),
            ("confg.md", "config.md"),
            ("conf.md", "config.md"),
            ("Agents.md", "agent.md"),
            ("cofnig.md", "config.md"),
            ("goals.md", "goal.md"),
            ("heart-beat.md", "HEARTBEAT.md"),
            ("law.md", "laws.md"),
            ("config.yaml", "config.md"),
            ("Config.txt", "config.md"),
            ("configuration.md", "config.md"),
            ("laws.markdown", "laws.md"),
            ("laws", "laws.md"),
            ("config.md.txt", "config.md"),
            ("config.md.bak", "config.md"),
            ("config", "config.md"),
        ] {
            assert_eq!(known.into_iter().find(|known| is_near(name, known)), Some(meant), "{name}");
        }
        for name in [
            "README.md",
            "logs.md",
            "maps.md",
            "notes.md",
            "TODO.md",
            "CHANGELOG.md",
            "history.md",
            "agenda.md",
            "agency.md",
            "goalkeeper.md",
            "usermanual.md",
            "lawsuit.md",
            "tools.yaml",
            "x",
            "a.md",
        ] {
            assert_eq!(known.into_iter().find(|known| is_near(name, known)), None, "{name}");
        }
    }

    #[test]
    fn a_misspelt_name_is_an_error_while_the_right_one_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        for name in [".laws.md", "laws.md~", "law.md", "Config.md", "AGENTS.md", "souls.md"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let found = || {
            let all = Report::default();
            let known = ["laws.md", "config.md", "agent.md", "soul.md"];
            report(dir.path(), Path::new("w"), &known, &["AGENTS.md"], &all);
            let problems = all.finish().0;
            problems.into_iter().map(|problem| (problem.severity, problem.file, problem.line)).collect::<Vec<_>>()
        };
        let (config, law) = (Path::new("w/Config.md").to_owned(), Path::new("w/law.md").to_owned());
        assert_eq!(found(), [(Severity::Error, config.clone(), 1), (Severity::Error, law.clone(), 1)]);
        assert_eq!(misspelt(dir.path(), "soul.md").as_deref(), Some("souls.md"));
        std::fs::write(dir.path().join("laws.md"), "x").unwrap();
        assert_eq!(found(), [(Severity::Error, config, 1), (Severity::Warning, law, 1)]);
    }
}
