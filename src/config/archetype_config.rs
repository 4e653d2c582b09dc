//! Interprets the sections of a `config.md`. `markdown` parses the
//! file; values go through the same typed readers as `world-config.yaml`.
//!
//! A line of a known section must never be ignored.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::Reactions;
use ghost_domain::text::clip;
use ghost_domain::tool_catalogue::{self, Profile};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::extra_tools::ExtraTools;
use crate::headings;
use crate::heartbeat::HeartbeatBlock;
use crate::kinds::Zone;
use crate::markdown::{ItemKind, Parsed, Section, other_heading};
use crate::plan::{AccessSection, ArchetypeConfig, ToolboxRef};
use crate::reader::{Field, is_free};
use crate::report::{FileReport, did_you_mean};
use crate::toolbox::{Toolbox, check_reference};
use crate::typed::{self, Read as Typed};
use crate::world_file::agents::Overrides;
use crate::yaml::{Key, Node, Value};

/// World-file keys that people write into a `config.md`, with the hint for each.
const ELSEWHERE: [(&str, &str); 4] = [
    ("usd_per_day", "write `daily_cost_usd` under `## Limits`"),
    ("tokens_per_day", "write it into the world file: `budgets: { agent: { <id>: { tokens_per_day: … } } }`"),
    ("tokens", "write it into the world file: `budgets: { agent: { <id>: { tokens: … } } }`"),
    ("usd", "write it into the world file: `budgets: { agent: { <id>: { usd: … } } }`"),
];

/// The names that a `config.md` may refer to.
pub struct Known<'a> {
    /// Privilege groups of the world.
    pub groups: BTreeSet<&'a str>,
    /// Tools of toolboxes and skills.
    pub extra: &'a ExtraTools,
    /// Toolboxes that the world lists, by source.
    pub toolboxes: &'a BTreeMap<String, Toolbox>,
    /// Skills of the world.
    pub skills: &'a BTreeSet<String>,
    /// Whether the lists are complete. They are incomplete if `world-config.yaml` cannot be read;
    /// unknown names are then not reported.
    pub whole: bool,
}

/// An archetype's configuration, with the line numbers that later checks report.
#[derive(Debug, Default)]
pub struct Read {
    /// The configuration as read.
    pub config: ArchetypeConfig,
    /// The line numbers of settings that are checked later.
    pub lines: Lines,
}

/// Line numbers of settings that are checked later. 0 means that the setting is absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lines {
    /// The line of the heading `## LLM`.
    pub llm: usize,
    /// The line of `provider`.
    pub provider: usize,
    /// The line of `model`.
    pub model: usize,
    /// The line of `fallback_models`.
    pub fallbacks: usize,
    /// The line of `temperature`.
    pub temperature: usize,
    /// The line of `max_tokens`.
    pub max_tokens: usize,
    /// The line of `thinking`.
    pub thinking: usize,
    /// The line of the heading `## Limits`.
    pub limits: usize,
}

/// Reads one `config.md`. Also reports text outside its sections, because nothing reads it.
pub fn read(parsed: &Parsed, known: &Known<'_>, file: &FileReport<'_>) -> Read {
    headings::before(&parsed.before, file);
    headings::unclosed(parsed.unclosed, file);
    read_sections(&parsed.sections, known, file)
}

fn read_sections(sections: &[Section], known: &Known<'_>, file: &FileReport<'_>) -> Read {
    let mut read = Read::default();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut toolbox_tools = BTreeSet::new();
    for section in sections {
        if let Some(first) = seen.insert(&section.key, section.line)
            && section.key != "toolbox"
        {
            let message = format!("the section `## {}` is repeated", clip(&section.heading, 60));
            file.error(section.line, "", message, format!("it is already on line {first}; keep one"));
            continue;
        }
        one_section(section, known, file, &mut read, &mut toolbox_tools);
    }
    if let (Some(_), Some(line)) = (&read.config.access, seen.get("tools"))
        && read.config.legacy_tools.take().is_some()
    {
        let message = "`## Tools` is not read, because `## Tool Access` decides";
        file.warn(*line, "Tools", message, "move its tools there, or remove the section");
    }
    if let Some(list) = &mut read.config.legacy_tools {
        // The old list selects built-in tools only. Toolbox tools were always declared separately.
        list.extend(toolbox_tools.iter().cloned());
    }
    read.config.toolbox_tools = toolbox_tools;
    read
}

/// Reads one section into `read`. Adds the full names of its toolbox tools to `toolbox_tools`.
fn one_section(
    section: &Section,
    known: &Known<'_>,
    file: &FileReport<'_>,
    read: &mut Read,
    toolbox_tools: &mut BTreeSet<String>,
) {
    match section.key.as_str() {
        "llm" => {
            read.lines.llm = section.line;
            pairs::<Overrides>(section, &Overrides::MODEL, file, |found| {
                let line = |place: Option<&Field<'_>>| place.map_or(0, Field::line);
                read.lines.provider = line(found.provider.as_ref().map(|provider| found.at(provider)));
                read.lines.model = line(found.model.as_ref().map(|model| found.at(model)));
                read.lines.fallbacks = line(found.fallback_models.first().map(|model| found.at(model)));
                for (key, field) in found.settings(found) {
                    match key {
                        "temperature" => read.lines.temperature = field.line(),
                        "max_tokens" => read.lines.max_tokens = field.line(),
                        _ => read.lines.thinking = field.line(),
                    }
                }
                read.config.model = found.choice();
            });
        }
        "limits" => pairs::<Overrides>(section, &Overrides::LIMITS, file, |found| {
            read.lines.limits = section.line;
            read.config.limits = found.limits(found);
            read.config.daily_money = found.daily_cost_usd.as_ref().map(|usd| usd.value.0);
        }),
        "tool access" => read.config.access = Some(tool_access(section, known, file)),
        "toolbox" => toolbox(section, known, file, &mut read.config, toolbox_tools),
        "skills" => read.config.skills = Some(skills(section, known, file)),
        "tools" => read.config.legacy_tools = Some(words(section, "Tools", known, file)),
        "heartbeat" => pairs::<HeartbeatBlock>(section, &HeartbeatBlock::KEYS, file, |found| {
            read.config.heartbeat = Some(found.value.clone());
        }),
        "channels" => pairs::<ChannelsSection>(section, &["reactions"], file, |found| {
            read.config.reactions = found.reactions;
        }),
        "prompt" => pairs::<PromptSection>(section, &["mode", "timezone"], file, |found| {
            if found.mode.is_some_and(|mode| !matches!(mode, PromptMode::Full)) {
                file.warn(section.line, "Prompt.mode", "nothing uses this yet", "write `full`, which is what is done");
            }
            read.config.timezone = found.timezone.as_ref().map(|zone| zone.0.clone());
        }),
        _ => headings::unread(section, file),
    }
}

/// `## Channels`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ChannelsSection {
    /// How often agents may react with an emoji. The default is `channels.reactions`.
    reactions: Option<Reactions>,
}

/// `## Prompt`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PromptSection {
    /// Has no effect yet. The default is `full`.
    mode: Option<PromptMode>,
    /// The time zone that the stable part of the prompt names. Without it, the prompt names none.
    timezone: Option<Zone>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum PromptMode {
    Full,
    Minimal,
    None,
}

/// Reads a section of `key: value` lines that may have `keys`. The value of `fallback_models` is split at commas.
fn pairs<T: for<'n> Deserialize<'n>>(
    section: &Section,
    keys: &'static [&'static str],
    file: &FileReport<'_>,
    take: impl FnOnce(&Typed<'_, T>),
) {
    let mut found: Vec<(Key, Node)> = Vec::new();
    for item in &section.items {
        match &item.kind {
            ItemKind::Pair(key, value) => {
                let path = format!("{}.{key}", section.heading);
                if let Some((first, _)) = found.iter().find(|(found, _)| found.text == *key) {
                    let hint = format!("it is already on line {}; keep one", first.line);
                    file.error(item.line, &section.heading, format!("the key `{key}` is repeated"), hint);
                    continue;
                }
                if !keys.contains(&key.as_str()) && !is_free(key) {
                    let elsewhere = ELSEWHERE.iter().find(|(name, _)| name == key && section.key == "limits");
                    match elsewhere {
                        Some((_, hint)) => file.no_key(item.line, &path, key, *hint),
                        None => file.unknown_key(item.line, &path, key, keys.iter().copied()),
                    }
                    continue;
                }
                let node = if key == "fallback_models" {
                    let items = comma_list(&value.text).map(|text| scalar(item.line, text, false)).collect();
                    Node { line: item.line, value: Value::List(items) }
                } else {
                    scalar(item.line, &value.text, value.quoted)
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
    // The heading is the first part of every path, so that a problem names `LLM.provider`.
    if let Some(read) = Field::root(&node, file).get(&section.heading).and_then(|field| typed::read(&field, &[])) {
        take(&read);
    }
}

fn scalar(line: usize, text: &str, quoted: bool) -> Node {
    let (text, shown) = (text.to_owned(), text.to_owned());
    Node { line, value: Value::Scalar { text, shown, plain: !quoted, literal: false, unset: false } }
}

fn comma_list(value: &str) -> impl Iterator<Item = &str> {
    let value = value.trim().trim_start_matches('[').trim_end_matches(']');
    value.split(',').map(|part| part.trim().trim_matches(['`', '"', '\''])).filter(|part| !part.is_empty())
}

fn stray(section: &Section, line: usize, text: &str, file: &FileReport<'_>) {
    if let Some((_, key)) = other_heading(text) {
        return headings::no_section(line, text, &key, file);
    }
    file.error(
        line,
        &section.heading,
        format!("`{}` cannot be read here", clip(text, 60)),
        "write `key: value` or a list item where one belongs; put notes between <!-- and -->",
    );
}

fn tool_access(section: &Section, known: &Known<'_>, file: &FileReport<'_>) -> AccessSection {
    let mut access = AccessSection::default();
    let mut seen = BTreeSet::new();
    let path = |key: &str| format!("{}.{key}", section.heading);
    for item in &section.items {
        let (key, value) = match &item.kind {
            ItemKind::Pair(key, value) => (key.as_str(), &value.text),
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
            let message = format!("the key `{key}` is repeated");
            let hint = if key == "profile" { "keep one" } else { "write all of it behind one, with commas between" };
            file.error(item.line, &path(key), message, hint);
            continue;
        }
        // A list below the key is a list of tools that the agent gets. Below `deny:` it would grant
        // what it was meant to deny.
        if matches!(key, "privilege_groups" | "deny") && value.trim().is_empty() {
            let message = format!("`{key}` has no value; the list items of this section are tools that the agent gets");
            let hint = "write the names behind the colon, with commas between, or remove the key";
            file.error(item.line, &path(key), message, hint);
            continue;
        }
        match key {
            "privilege_groups" => {
                for group in comma_list(value) {
                    if known.groups.contains(group) || !known.whole {
                        access.groups.insert(group.to_owned());
                    } else {
                        let message = format!("there is no privilege group `{}`", clip(group, 80));
                        let otherwise = "groups are defined under `tool_privileges` in the world file";
                        let hint = did_you_mean(group, known.groups.iter().copied(), otherwise);
                        file.error(item.line, &path(key), message, hint);
                    }
                }
            }
            "profile" => match Profile::NAMES.iter().find(|name| **name == value.to_lowercase()) {
                Some(name) => access.profile = Some((*name).to_owned()),
                None => {
                    let message = format!("there is no profile `{}`", clip(value, 80));
                    let hint = did_you_mean(value, Profile::NAMES.iter().copied(), "omit it");
                    file.error(item.line, &path(key), message, hint);
                }
            },
            "deny" => {
                for word in comma_list(value) {
                    let tools = tool(word, item.line, &path(key), known, file);
                    let always = |name: &String| tool_catalogue::entry(name).is_some_and(|entry| entry.always_on);
                    if !tools.is_empty() && tools.iter().all(always) {
                        let message = format!("`{}` is always on and cannot be denied", clip(word, 80));
                        file.error(item.line, &path(key), message, "remove it: every agent has it");
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

/// The tools that `word` stands for. Reports an error if no tool matches.
pub fn tool(word: &str, line: usize, path: &str, known: &Known<'_>, file: &FileReport<'_>) -> BTreeSet<String> {
    if word.is_empty() {
        file.error(line, path, "an item of this list is empty", "name a tool, or remove the `-`");
        return BTreeSet::new();
    }
    let tools = known.extra.expand(word);
    if tools.is_empty() && known.whole {
        file.error(line, path, format!("there is no tool `{}`", clip(word, 80)), known.extra.hint(word));
    }
    tools
}

fn words(section: &Section, path: &str, known: &Known<'_>, file: &FileReport<'_>) -> Vec<String> {
    let mut found = BTreeSet::new();
    for item in &section.items {
        match &item.kind {
            ItemKind::Bullet(word) => found.extend(tool(word, item.line, path, known, file)),
            ItemKind::Pair(key, _) => no_keys(path, item.line, key, "tool", file),
            ItemKind::Prose(text) => stray(section, item.line, text, file),
        }
    }
    found.into_iter().collect()
}

/// Reports a key in a section that is a list of `what`.
fn no_keys(path: &str, line: usize, key: &str, what: &str, file: &FileReport<'_>) {
    let message = format!("there is no key `{}` here", clip(key, 60));
    file.error(line, &format!("{path}.{key}"), message, format!("write each {what} on a line of its own after `- `"));
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
                let otherwise = "a skill is a directory under `skills` with a SKILL.md in it";
                let hint = did_you_mean(name, known.skills.iter().map(String::as_str), otherwise);
                file.error(item.line, "Skills", message, hint);
            }
            ItemKind::Pair(key, _) => no_keys("Skills", item.line, key, "skill", file),
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
            ItemKind::Pair(key, value) if key == "source" && source.is_none() => {
                source = Some((&value.text, item.line))
            }
            ItemKind::Pair(key, _) if key == "source" => {
                let hint = "write one `## Toolbox` section for each";
                file.error(item.line, "Toolbox.source", "a second source in one section", hint);
            }
            ItemKind::Pair(key, _) => {
                file.unknown_key(item.line, &format!("Toolbox.{key}"), key, std::iter::once("source"));
            }
            ItemKind::Bullet(name) => wanted.push((item.line, name.clone())),
            ItemKind::Prose(text) => stray(section, item.line, text, file),
        }
    }
    let Some((source, line)) = source.filter(|(source, _)| !source.is_empty()) else {
        let hint = "write `source: toolbox/<box>/toolbox.yaml`";
        file.error(section.line, "Toolbox.source", "the section has no `source`", hint);
        return;
    };
    if wanted.is_empty() {
        let message = "no tool of this toolbox is named, so none is used";
        file.warn(section.line, "Toolbox", message, "list those that are wanted, each after `- `");
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
