//! Reads the files of an archetype, under their current or older names. Also
//! reads an old `agent.md` that contains configuration sections.
//!
//! A configuration section must never reach a prompt.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::archetype_config::{self, Known, Lines, Read};
use crate::files::{ARCHETYPES, MARKDOWN_MAX, first_line, names_in, read_text};
use crate::headings::SECTIONS;
use crate::markdown::{self, Parsed, Section};
use crate::near_names;
use crate::plan::{Archetype, Origin};
use crate::reader::{self, Field, is_name};
use crate::report::{FileReport, Report};
use crate::snippets::expanded;

/// The largest number of archetypes in a world.
pub const ARCHETYPES_MAX: usize = 200;

/// The hint for a world without archetypes.
const MAKE_ONE: &str = "make archetype/<name>/ with soul.md and goal.md";

/// Headings that occur only in configuration. If an `agent.md` has one of them and there is no
/// `config.md`, its configuration sections are read.
const CONFIGURATION: [&str; 4] = ["limits", "llm", "tool access", "toolbox"];

/// Files with an older name. If both exist, the text of the older one is appended.
const OLDER: [(&str, &str); 3] = [("agent.md", "AGENTS.md"), ("soul.md", "SOUL.md"), ("user.md", "USER.md")];

/// The files of an archetype.
const FILES: [&str; 8] =
    ["soul.md", "goal.md", "user.md", "agent.md", "config.md", "HEARTBEAT.md", "IDENTITY.md", "TOOLS.md"];

/// Files of other programs that are not read, and the place for what they say.
const NOT_READ: [(&str, &str); 2] = [
    ("MEMORY.md", "put what every agent of this archetype must know into agent.md"),
    ("BOOTSTRAP.md", "put what is to be done first into goal.md, or into the brief of a job"),
];

/// An archetype, with the line numbers that later checks report.
pub struct Loaded {
    /// The archetype as read.
    pub archetype: Arc<Archetype>,
    /// The file with its configuration.
    pub config_path: std::path::PathBuf,
    /// The lines of settings in that file.
    pub lines: Lines,
}

impl Loaded {
    /// A position in the configuration file, for a problem.
    pub fn origin(&self, line: usize, field: &str) -> Origin {
        Origin { file: self.config_path.clone(), line, field: field.to_owned() }
    }
}

/// Reads every directory under `dir/archetype`. `shown` is `dir` as messages name it.
pub fn load_all(dir: &Path, shown: &Path, known: &Known<'_>, report: &Report) -> BTreeMap<String, Loaded> {
    let (real, shown) = (dir.join(ARCHETYPES), shown.join(ARCHETYPES));
    let file = report.file(&shown);
    if !real.is_dir() {
        let hint = match near_names::misspelt(dir, ARCHETYPES) {
            Some(near) => format!("did you mean `{near}`? Rename it"),
            None => MAKE_ONE.to_owned(),
        };
        file.error(first_line(&real), "", "the world has no directory `archetype`", hint);
        return BTreeMap::new();
    }
    let mut found = BTreeMap::new();
    let mut names = names_in(&real, &file);
    names.retain(|name| !name.starts_with('.') && real.join(name).is_dir());
    if names.is_empty() {
        file.error(0, "", "there is no archetype in it", MAKE_ONE);
    }
    for name in names {
        let shown = shown.join(&name);
        let file = report.file(&shown);
        if !is_name(&name) {
            let hint = "use 1 to 64 letters, digits, `.`, `_` and `-`";
            file.error(0, "", "an archetype cannot have this name", hint);
            continue;
        }
        if found.len() == ARCHETYPES_MAX {
            let message = format!("the world has more than {ARCHETYPES_MAX} archetypes");
            file.error(0, "", message, "move unused ones out of this directory");
            break;
        }
        let directory = Directory { dir: real.join(&name), shown, root: dir, report };
        found.insert(name.clone(), directory.load(name, known));
    }
    found
}

/// Reports that `field` names an unknown archetype. If the world has no archetypes, that was
/// already reported.
pub fn no_such(field: &Field<'_>, archetypes: &BTreeMap<String, Arc<Archetype>>) {
    if !archetypes.is_empty() {
        reader::no_such(field, "archetype", archetypes.keys().map(String::as_str), MAKE_ONE);
    }
}

struct Directory<'a> {
    dir: std::path::PathBuf,
    shown: std::path::PathBuf,
    root: &'a Path,
    report: &'a Report,
}

impl Directory<'_> {
    fn load(&self, name: String, known: &Known<'_>) -> Loaded {
        let names = names_in(&self.dir, &self.report.file(&self.shown));
        let need = |file: &'static str| {
            let text = self.text(file, &names);
            match &text {
                None => {
                    let hint = match near_names::misspelt(&self.dir, file) {
                        Some(near) => format!("did you mean `{near}`? Rename it"),
                        None => "write the file; a sentence is enough".to_owned(),
                    };
                    self.at(file).error(0, "", "the file is missing", hint);
                }
                Some(text) if text.trim().is_empty() => {
                    self.at(file).error(1, "", "the file is empty", "a sentence is enough");
                }
                Some(_) => {}
            }
            text.unwrap_or_default()
        };
        let soul = need("soul.md");
        let goal = need("goal.md");
        near_names::report(&self.dir, &self.shown, &FILES, &OLDER.map(|(_, older)| older), self.report);
        for (file, hint) in NOT_READ.iter().filter(|(file, _)| names.contains(*file)) {
            self.at(file).warn(0, "", "the file is not read", *hint);
        }
        let own = |file: &str| names.contains(file).then(|| self.read(file));
        let soul = join([Some(soul), own("IDENTITY.md")]).unwrap_or_default();
        let user = self.text("user.md", &names).unwrap_or_default();
        let [mut agent, more] = self.parts("agent.md", &names);
        let more = join([more, own("TOOLS.md")]);
        let mut config_file = "config.md";
        let text = names.contains(config_file).then(|| self.read(config_file));
        let read = match text {
            Some(text) => archetype_config::read(&markdown::sections(&text), known, &self.at(config_file)),
            None => match agent.as_deref().and_then(split_legacy) {
                Some((prose, machine)) => {
                    agent = Some(prose);
                    config_file = "agent.md";
                    let file = self.at(config_file);
                    let line = machine.sections.first().map_or(1, |section| section.line);
                    let hint = "move these sections to config.md; a config.md, even an empty one, ends this";
                    file.warn(line, "", "its machine sections are read as configuration", hint);
                    archetype_config::read(&machine, known, &file)
                }
                None => Read::default(),
            },
        };
        let agent = join([agent, more]).unwrap_or_default();
        let mut read = read;
        read.config.heartbeat_text = self.text("HEARTBEAT.md", &names);
        Loaded {
            archetype: Arc::new(Archetype { name, soul, goal, agent, user, config: read.config }),
            config_path: self.shown.join(config_file),
            lines: read.lines,
        }
    }

    fn at(&self, file: &str) -> FileReport<'_> {
        self.report.file(self.shown.join(file))
    }

    /// The texts of `file` and of its older name, joined; `None` if neither exists.
    fn text(&self, file: &str, names: &BTreeSet<String>) -> Option<String> {
        join(self.parts(file, names))
    }

    /// The texts of `file` and of its older name, each if it exists.
    fn parts(&self, file: &str, names: &BTreeSet<String>) -> [Option<String>; 2] {
        let older = OLDER.iter().find(|(new, _)| *new == file).map(|(_, old)| *old);
        [Some(file), older].map(|name| {
            let name = name.filter(|name| names.contains(*name))?;
            Some(self.read(name))
        })
    }

    /// The text of a file that exists.
    fn read(&self, name: &str) -> String {
        let file = self.at(name);
        match read_text(&self.dir.join(name), self.root, MARKDOWN_MAX, &file) {
            // Problems of the configuration are reported by line, so it has no snippets.
            Some(text) if name == "config.md" => text,
            Some(text) => expanded(text, self.root, &file),
            None => unread(),
        }
    }
}

fn join(parts: [Option<String>; 2]) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// The text of a file that could not be read. The problem was reported, so the file must not be
/// reported as missing or empty.
fn unread() -> String {
    "(unread)".to_owned()
}

/// Splits an `agent.md` into prose and configuration sections, if it has a section that occurs only
/// in configuration. Text before the first section is prose.
fn split_legacy(text: &str) -> Option<(String, Parsed)> {
    let Parsed { before_raw, sections, unclosed, .. } = markdown::sections(text);
    if !sections.iter().any(|section| CONFIGURATION.contains(&section.key.as_str())) {
        return None;
    }
    let is_machine = |section: &Section| {
        let key = section.key.as_str();
        CONFIGURATION.contains(&key) || (SECTIONS.contains(&key) && section.is_structured())
    };
    let (machine, prose): (Vec<Section>, Vec<Section>) = sections.into_iter().partition(is_machine);
    let mut kept = before_raw;
    for section in prose {
        kept.push(format!("## {}", section.heading));
        kept.extend(section.raw);
    }
    let machine = Parsed { sections: machine, unclosed, ..Parsed::default() };
    Some((kept.join("\n").trim().to_owned(), machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: CONF-20
    #[test]
    fn an_old_agent_md_is_split() {
        let text = "# Me\nhow I work\n## Tools\n- tool.cli\n## Skills\nI am good at things\n## LLM\nmodel: m\n";
        let (prose, machine) = split_legacy(text).unwrap();
        assert_eq!(prose, "# Me\nhow I work\n## Skills\nI am good at things");
        assert_eq!(machine.sections.iter().map(|s| s.key.as_str()).collect::<Vec<_>>(), ["tools", "llm"]);
        assert_eq!(split_legacy("## Tools\nuse them well\n"), None);
    }
}
