//! What the sections of a `config.md` mean (ARCH-02..07, ACC-04, ACC-07): the shape comes from `markdown`, the values go
//! through the same typed readers as the world file.
//!
//! Must never: ignore a line of a section that it knows.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::text::clip;
use ghost_domain::tool_catalogue::{self, Profile};

use crate::access::ExtraTools;
use crate::heartbeat;
use crate::markdown::{Item, ItemKind, Parsed, Section, other_heading};
use crate::plan::{AccessSection, ArchetypeConfig, ToolboxRef};
use crate::reader::{Field, Map};
use crate::report::{FileReport, did_you_mean};
use crate::toolbox::{Toolbox, check_reference};
use crate::world_file::agents::agent_limits;
use crate::world_file::llm::read_model;
use crate::world_file::{channels, money};
use crate::yaml::{Key, Node, Value};

/// The sections that are known, as they are compared.
pub const SECTIONS: [&str; 9] =
    ["llm", "limits", "tool access", "toolbox", "skills", "tools", "heartbeat", "prompt", "channels"];

/// What a `config.md` may refer to.
pub struct Known<'a> {
    /// Group names with the tools in them.
    pub groups: BTreeSet<&'a str>,
    /// Tools of toolboxes and skills.
    pub extra: &'a ExtraTools,
    /// Toolboxes that the world lists, by source.
    pub toolboxes: &'a BTreeMap<String, Toolbox>,
    /// Skills.
    pub skills: &'a BTreeSet<String>,
    /// Whether that is all there is: if the world file cannot be read, what it would define is not asked for.
    pub whole: bool,
}

/// An archetype's configuration, and where what must still be checked stands.
#[derive(Debug, Default)]
pub struct Read {
    /// The configuration.
    pub config: ArchetypeConfig,
    /// The line of `provider`; 0 if there is none.
    pub provider_line: usize,
    /// The line of `fallback_models`; 0 if there is none.
    pub fallback_line: usize,
    /// The line of `## LLM`; 0 if there is none.
    pub llm_line: usize,
    /// The line of `## Limits`; 0 if there is none.
    pub limits_line: usize,
}

/// Reads one `config.md`: its sections, and what stands outside of them where nothing would read it.
pub fn read(parsed: &Parsed, known: &Known<'_>, file: &FileReport<'_>) -> Read {
    before(&parsed.before, file);
    unclosed(parsed.unclosed, file);
    read_sections(&parsed.sections, known, file)
}

/// Reports a comment without an end: it hides everything after it.
pub fn unclosed(line: Option<usize>, file: &FileReport<'_>) {
    if let Some(line) = line {
        let message = "the comment that begins here has no end, so that nothing after it is read";
        file.error(line, "", message, Some("write `-->` where it ends".to_owned()));
    }
}

/// What stands before the first section: a title and notes. Whatever looks like configuration would be lost there.
fn before(items: &[Item], file: &FileReport<'_>) {
    let mut titled = false;
    for Item { line, kind } in items {
        let told = match kind {
            ItemKind::Pair(key, _) => format!("`{}:`", clip(key, 60)),
            ItemKind::Bullet(word) => format!("the list item `{}`", clip(word, 60)),
            ItemKind::Prose(text) => {
                match other_heading(text) {
                    Some((1, key)) if !titled && section_of(&key).is_none() => titled = true,
                    Some((_, key)) => no_section(*line, text, &key, file),
                    None => {}
                }
                continue;
            }
        };
        let hint = "put it under the `## Section` that it belongs to; put notes between <!-- and -->".to_owned();
        file.error(*line, "", format!("{told} stands before the first section, where nothing reads it"), Some(hint));
    }
}

/// The known section that a heading in lower case means, whatever stands between its words.
fn section_of(key: &str) -> Option<&'static str> {
    let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    SECTIONS.into_iter().find(|section| plain(section) == plain(key))
}

/// Reports a heading that begins no section, although it may have been meant to.
fn no_section(line: usize, text: &str, key: &str, file: &FileReport<'_>) {
    let hint = match section_of(key).or_else(|| ghost_domain::text::nearest(key, SECTIONS)) {
        Some(near) => format!("did you mean `## {near}`? Sections begin with two `#`"),
        None => "sections begin with two `#`; put notes between <!-- and -->".to_owned(),
    };
    file.error(line, "", format!("`{}` begins no section", clip(text, 60)), Some(hint));
}

fn read_sections(sections: &[Section], known: &Known<'_>, file: &FileReport<'_>) -> Read {
    let mut read = Read::default();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut toolbox_tools = BTreeSet::new();
    for section in sections {
        if let Some(first) = seen.insert(&section.key, section.line)
            && section.key != "toolbox"
        {
            let message = format!("the section `## {}` stands here a second time", clip(&section.heading, 60));
            file.error(section.line, "", message, Some(format!("it is already on line {first}; keep one")));
            // What is wrong in it is told all the same; what it says counts for nothing.
            if SECTIONS.contains(&section.key.as_str()) {
                one_section(section, known, file, &mut Read::default(), &mut BTreeSet::new());
            }
            continue;
        }
        one_section(section, known, file, &mut read, &mut toolbox_tools);
    }
    if let (Some(_), Some(line)) = (&read.config.access, seen.get("tools"))
        && read.config.legacy_tools.take().is_some()
    {
        let message = "`## Tools` is not read, because `## Tool Access` decides";
        file.warn(*line, "Tools", message, Some("move its tools there, or remove the section".to_owned()));
    }
    if let Some(list) = &mut read.config.legacy_tools {
        // The old list says which built-ins there are; toolboxes were always declared beside it.
        list.extend(toolbox_tools);
    }
    read
}

/// Reads one section into `read`, and the full names of its toolbox's tools into `toolbox_tools`.
fn one_section(
    section: &Section,
    known: &Known<'_>,
    file: &FileReport<'_>,
    read: &mut Read,
    toolbox_tools: &mut BTreeSet<String>,
) {
    match section.key.as_str() {
        "llm" => {
            read.llm_line = section.line;
            pairs(section, &["fallback_models"], file, |map| {
                let entry = read_model(map);
                read.provider_line = entry.provider.as_ref().map_or(0, Field::line);
                read.fallback_line = map.get("fallback_models").map_or(0, |field| field.line());
                read.config.model = entry.choice;
            });
        }
        "limits" => pairs(section, &[], file, |map| {
            read.limits_line = section.line;
            read.config.limits = agent_limits(map);
            read.config.daily_money = map.get("daily_cost_usd").and_then(|field| money(&field));
        }),
        "tool access" => read.config.access = Some(tool_access(section, known, file)),
        "toolbox" => toolbox(section, known, file, &mut read.config, toolbox_tools),
        "skills" => read.config.skills = Some(skills(section, known, file)),
        "tools" => read.config.legacy_tools = Some(words(section, "Tools", known, file)),
        "heartbeat" => pairs(section, &[], file, |map| read.config.heartbeat = Some(heartbeat::keys(map))),
        "channels" => pairs(section, &[], file, |map| {
            read.config.reactions = map.get("reactions").and_then(|field| channels::level(&field));
        }),
        "prompt" => pairs(section, &[], file, |map| {
            if map.get("mode").and_then(|field| field.choice(&["full", "minimal", "none"])).is_some_and(|m| m != "full")
            {
                file.warn(section.line, "Prompt.mode", "nothing uses this yet", None);
            }
            read.config.timezone = map.get("timezone").and_then(|field| heartbeat::timezone(&field));
        }),
        _ => {
            let hint = did_you_mean(&section.key, SECTIONS.iter().copied());
            let message = format!("the section `## {}` is not read", clip(&section.heading, 60));
            file.warn(section.line, "", message, hint);
            // A section that is known may begin in it, under a heading of another level.
            for Item { line, kind } in &section.items {
                if let ItemKind::Prose(text) = kind
                    && let Some((_, key)) = other_heading(text)
                    && section_of(&key).is_some()
                {
                    no_section(*line, text, &key, file);
                }
            }
        }
    }
}

/// Reads a section of nothing but `key: value` lines. Values under keys in `lists` are split at commas.
fn pairs(section: &Section, lists: &[&str], file: &FileReport<'_>, read: impl FnOnce(&Map<'_>)) {
    let mut found: Vec<(Key, Node)> = Vec::new();
    for item in &section.items {
        match &item.kind {
            ItemKind::Pair(key, value) => {
                if let Some((first, _)) = found.iter().find(|(found, _)| found.text == *key) {
                    let message = format!("the key `{key}` stands here a second time");
                    file.error(
                        item.line,
                        &section.heading,
                        message,
                        Some(format!("it is already on line {}", first.line)),
                    );
                    continue;
                }
                let node = if lists.contains(&key.as_str()) {
                    let items = comma_list(value).map(|text| scalar(item.line, text)).collect();
                    Node { line: item.line, value: Value::List(items) }
                } else {
                    scalar(item.line, value)
                };
                found.push((Key { line: item.line, text: key.clone() }, node));
            }
            ItemKind::Bullet(text) | ItemKind::Prose(text) => stray(section, item.line, text, file),
        }
    }
    let node = Node {
        line: section.line,
        value: Value::Map(vec![(
            Key { line: section.line, text: section.heading.clone() },
            Node { line: section.line, value: Value::Map(found) },
        )]),
    };
    // The heading becomes the first part of every path, so that a problem says `LLM.provider`.
    if let Some(map) = Field::root(&node, file).entries().into_iter().next().and_then(|(_, field)| field.map()) {
        read(&map);
        map.finish(&[]);
    }
}

fn scalar(line: usize, text: &str) -> Node {
    Node { line, value: Value::Scalar { text: text.to_owned(), shown: text.to_owned(), plain: true, literal: false } }
}

fn comma_list(value: &str) -> impl Iterator<Item = &str> {
    let value = value.trim().trim_start_matches('[').trim_end_matches(']');
    value.split(',').map(|part| part.trim().trim_matches(['`', '"', '\''])).filter(|part| !part.is_empty())
}

fn stray(section: &Section, line: usize, text: &str, file: &FileReport<'_>) {
    if let Some((_, key)) = other_heading(text) {
        return no_section(line, text, &key, file);
    }
    file.error(
        line,
        &section.heading,
        format!("`{}` cannot be read here", clip(text, 60)),
        Some("write `key: value` or a list item where one belongs; put notes between <!-- and -->".to_owned()),
    );
}

fn tool_access(section: &Section, known: &Known<'_>, file: &FileReport<'_>) -> AccessSection {
    let mut access = AccessSection::default();
    let mut seen = BTreeSet::new();
    let path = |key: &str| format!("{}.{key}", section.heading);
    for item in &section.items {
        let (key, value) = match &item.kind {
            ItemKind::Pair(key, value) => (key.as_str(), value),
            ItemKind::Bullet(word) => {
                access.overrides.extend(tool(word, item.line, &section.heading, known, file));
                continue;
            }
            ItemKind::Prose(text) => {
                stray(section, item.line, text, file);
                continue;
            }
        };
        if !seen.insert(key) {
            file.error(item.line, &path(key), format!("the key `{key}` stands here a second time"), None);
            continue;
        }
        match key {
            "privilege_groups" => {
                for group in comma_list(value) {
                    if known.groups.contains(group) || !known.whole {
                        access.groups.insert(group.to_owned());
                    } else {
                        let message = format!("there is no privilege group `{}`", clip(group, 80));
                        let hint = did_you_mean(group, known.groups.iter().copied()).or_else(|| {
                            Some("groups are defined under `tool_privileges` in the world file".to_owned())
                        });
                        file.error(item.line, &path(key), message, hint);
                    }
                }
            }
            "profile" => match Profile::NAMES.iter().find(|name| **name == value.to_lowercase()) {
                Some(name) => access.profile = Some((*name).to_owned()),
                None => {
                    let message = format!("there is no profile `{}`", clip(value, 80));
                    file.error(item.line, &path(key), message, did_you_mean(value, Profile::NAMES.iter().copied()));
                }
            },
            "deny" => {
                for word in comma_list(value) {
                    let tools = tool(word, item.line, &path(key), known, file);
                    let always = |name: &String| tool_catalogue::entry(name).is_some_and(|entry| entry.always_on);
                    if !tools.is_empty() && tools.iter().all(always) {
                        let message = format!("`{}` is always on and cannot be denied", clip(word, 80));
                        file.error(item.line, &path(key), message, None);
                    }
                    access.denied.extend(tools);
                }
            }
            other => {
                file.unknown_key(item.line, &path(other), other, ["privilege_groups", "profile", "deny"].into_iter())
            }
        }
    }
    access
}

/// The tools that `word` stands for; none, and an error, if it stands for nothing.
pub fn tool(word: &str, line: usize, path: &str, known: &Known<'_>, file: &FileReport<'_>) -> BTreeSet<String> {
    if word.is_empty() {
        file.error(line, path, "an item of this list is empty", Some("name a tool, or take the `-` out".to_owned()));
        return BTreeSet::new();
    }
    let tools = known.extra.expand(word);
    if tools.is_empty() && known.whole {
        file.error(line, path, format!("there is no tool `{}`", clip(word, 80)), Some(known.extra.hint(word)));
    }
    tools
}

fn words(section: &Section, path: &str, known: &Known<'_>, file: &FileReport<'_>) -> Vec<String> {
    let mut found = BTreeSet::new();
    for item in &section.items {
        match &item.kind {
            ItemKind::Bullet(word) => found.extend(tool(word, item.line, path, known, file)),
            ItemKind::Pair(key, _) => file.unknown_key(item.line, &format!("{path}.{key}"), key, std::iter::empty()),
            ItemKind::Prose(text) => stray(section, item.line, text, file),
        }
    }
    found.into_iter().collect()
}

fn skills(section: &Section, known: &Known<'_>, file: &FileReport<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for item in &section.items {
        match &item.kind {
            ItemKind::Bullet(name) if known.skills.contains(name) || !known.whole => {
                found.insert(name.clone());
            }
            ItemKind::Bullet(name) => {
                let message = format!("there is no skill `{}`", clip(name, 80));
                file.error(item.line, "Skills", message, did_you_mean(name, known.skills.iter().map(String::as_str)));
            }
            ItemKind::Pair(key, _) => file.unknown_key(item.line, &format!("Skills.{key}"), key, std::iter::empty()),
            ItemKind::Prose(text) => stray(section, item.line, text, file),
        }
    }
    found
}

fn toolbox(
    section: &Section,
    known: &Known<'_>,
    file: &FileReport<'_>,
    config: &mut ArchetypeConfig,
    full: &mut BTreeSet<String>,
) {
    let mut source: Option<(&str, usize)> = None;
    let mut wanted = Vec::new();
    for item in &section.items {
        match &item.kind {
            ItemKind::Pair(key, value) if key == "source" && source.is_none() => source = Some((value, item.line)),
            ItemKind::Pair(key, _) if key == "source" => {
                let hint = "write one `## Toolbox` section for each".to_owned();
                file.error(item.line, "Toolbox.source", "a second source in one section", Some(hint));
            }
            ItemKind::Pair(key, _) => {
                file.unknown_key(item.line, &format!("Toolbox.{key}"), key, std::iter::once("source"));
            }
            ItemKind::Bullet(name) => wanted.push((item.line, name.clone())),
            ItemKind::Prose(text) => stray(section, item.line, text, file),
        }
    }
    let Some((source, line)) = source.filter(|(source, _)| !source.is_empty()) else {
        let hint = "write `source: toolbox/<box>/toolbox.yaml`".to_owned();
        file.error(section.line, "Toolbox.source", "the section has no `source`", Some(hint));
        return;
    };
    if wanted.is_empty() {
        file.warn(section.line, "Toolbox", "no tool of this toolbox is named, so none is used", None);
    }
    if known.whole {
        match check_reference(known.toolboxes, (source, line), &wanted, file) {
            Ok(names) => full.extend(names),
            Err(reason) => {
                config.refused.get_or_insert(reason);
            }
        }
    }
    let tools = wanted.into_iter().map(|(_, name)| name).collect();
    config.toolboxes.push(ToolboxRef { source: source.to_owned(), tools });
}
