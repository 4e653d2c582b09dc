//! Reads the head of a SKILL.md: the keys between two lines `---`. Skills are written for many programs, so
//! the head is read leniently: each key is parsed by itself, and a fault costs at most its own key. Every fault is kept, so
//! that `ghostd check` can report it.
//!
//! This module must never refuse a skill because of its head.

use std::borrow::Cow;
use std::path::Path;

use ghost_domain::text::{clip, nearest, one_line};

use crate::comment;
use crate::node::{Node, Value};
use crate::reader::{is_free, is_name};
use crate::report::Report;
use crate::yaml::{self, Bounds};

/// Maximum characters of a description.
pub const DESCRIPTION_MAX: usize = 1_024;
/// Maximum faults of a SKILL.md. One more says that there are others.
const FAULTS_MAX: usize = 20;
/// Maximum bytes of a head.
const HEAD_BYTES: usize = 32_768;
/// Keys that Ghost reads, and keys of the common format.
const KEYS: [&str; 13] = [
    "name",
    "description",
    "disable-model-invocation",
    "metadata",
    "license",
    "compatibility",
    "allowed-tools",
    "homepage",
    "user-invocable",
    "command-dispatch",
    "command-tool",
    "command-arg-mode",
    "version",
];
/// Keys of `metadata` under which programs keep what a skill needs. The first one that is present counts.
const PROGRAMS: [&str; 3] = ["ghost", "openclaw", "clawdbot"];

/// What is wrong with a SKILL.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The key; empty for the file.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// What a skill needs of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Whether all others but `os` are ignored.
    pub always: bool,
    /// Operating systems, one of which is needed; empty for any.
    pub os: Vec<String>,
    /// Programs, all of which are needed.
    pub bins: Vec<String>,
    /// Programs, one of which is needed.
    pub any_bins: Vec<String>,
    /// Environment variables, all of which are needed.
    pub env: Vec<String>,
    /// Settings of another program, all of which are needed.
    pub config: Vec<String>,
}

/// A SKILL.md, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The name of the skill.
    pub name: String,
    /// The description, on one line; the first heading if the head has none.
    pub description: String,
    /// Whether models may load it on their own: not `disable-model-invocation`.
    pub for_models: bool,
    /// What it needs.
    pub requirements: Requirements,
    /// The manifest of a toolbox, in the skill's directory.
    pub toolbox: Option<String>,
    /// The text after the head.
    pub body: String,
    /// The line of the file at which the text begins, from 1.
    pub body_line: usize,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, line: usize, field: &str, message: impl Into<String>, hint: impl Into<String>) {
        self.0.push(Fault { line, field: field.to_owned(), message: message.into(), hint: hint.into() });
    }
}

impl Faults {
    /// The first faults by line, so that one skill does not hide the problems of a world.
    fn first(self) -> Vec<Fault> {
        let mut faults = self.0;
        faults.sort_by_key(|fault| fault.line);
        if let Some(next) = faults.get(FAULTS_MAX) {
            let message = format!("{} more faults are not shown", faults.len() - FAULTS_MAX);
            let hint = "correct those above first".to_owned();
            let more = Fault { line: next.line, field: String::new(), message, hint };
            faults.truncate(FAULTS_MAX);
            faults.push(more);
        }
        faults
    }
}

/// Reads a SKILL.md in the directory `folder`.
#[must_use]
pub fn read(text: &str, folder: &str) -> Head {
    let mut faults = Faults::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = if text.contains('\r') { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) };
    let lines: Vec<&str> = text.split('\n').collect();
    let (keys, body_at) = split(&lines, &mut faults);
    let keys = read_keys(&keys, &mut faults);
    let has_head = body_at > 0;
    let body_at = body_at + lines[body_at..].iter().take_while(|line| line.trim().is_empty()).count();
    let body = lines.get(body_at..).unwrap_or_default().join("\n");
    let heading = body.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    if body.trim().is_empty() {
        faults.add(1, "", "the skill has no text", "say below the head how to do the work");
    }
    let find = |name: &str| keys.iter().find(|key| key.name == name);
    let name = name(find("name"), folder, has_head, &mut faults);
    let description = description(find("description"), heading, has_head, &mut faults);
    let for_models = !find("disable-model-invocation").is_some_and(|key| flag(key, &mut faults));
    let (requirements, toolbox) = find("metadata").map(|key| metadata(key, &mut faults)).unwrap_or_default();
    let faults = faults.first();
    Head { name, description, for_models, requirements, toolbox, body, body_line: body_at + 1, faults }
}

/// The lines of the head with their numbers, and the index of the first line after it; 0 without a head.
fn split<'t>(lines: &[&'t str], faults: &mut Faults) -> (Vec<(usize, &'t str)>, usize) {
    let first = lines.iter().position(|line| !line.trim().is_empty()).unwrap_or(0);
    let is_fence = |line: &str| line.trim_end() == "---";
    if !lines.get(first).is_some_and(|line| is_fence(line)) {
        let hint = "write `name` and `description` between two lines `---`";
        faults.add(1, "", "there is no frontmatter; the skill is known by its folder's name", hint);
        return (Vec::new(), 0);
    }
    if first > 0 {
        faults.add(1, "", "there are empty lines before the frontmatter", "let the file begin with `---`");
    }
    let head = first + 1;
    let end = lines[head..].iter().position(|line| is_fence(line) || line.trim_end() == "...").map(|at| head + at);
    let (end, next) = match end {
        Some(end) => (end, end + 1),
        None => {
            let hint = "write `---` after the last key";
            faults.add(first + 1, "", "the frontmatter begins with `---` and has no end", hint);
            let is_text = |line: &&str| line.trim().is_empty() || line.starts_with('#');
            let end = lines[head..].iter().position(is_text).map_or(lines.len(), |at| head + at);
            (end, end)
        }
    };
    let mut bytes = 0;
    let keys: Vec<(usize, &str)> = (head..end)
        .map(|at| (at + 1, lines[at]))
        .take_while(|(_, line)| {
            bytes += line.len() + 1;
            bytes <= HEAD_BYTES
        })
        .collect();
    if keys.len() < end - head {
        let message = format!("the frontmatter has more than {HEAD_BYTES} bytes; the rest is ignored");
        faults.add(head + 1 + keys.len(), "", message, "move long texts below the second `---`");
    }
    (keys, next.min(lines.len()))
}

/// A key of the head with its value.
struct Entry {
    name: String,
    line: usize,
    value: Node,
}

/// Parses each key by itself.
fn read_keys(lines: &[(usize, &str)], faults: &mut Faults) -> Vec<Entry> {
    let mut blocks: Vec<(usize, String, Vec<&str>)> = Vec::new();
    for (number, line) in lines {
        match (key_of(line), blocks.last_mut()) {
            (Some(key), _) => blocks.push((*number, key.to_owned(), vec![line])),
            (None, Some((_, _, block))) => block.push(line),
            (None, None) if line.trim().is_empty() || line.starts_with('#') => {}
            (None, None) => faults.add(*number, "", "this line is not a key", "write `name: value`"),
        }
    }
    let mut entries: Vec<Entry> = Vec::new();
    for (line, name, block) in blocks {
        if entries.iter().any(|entry| entry.name == name) {
            faults.add(line, &clip(&name, 60), "this key is there twice; the first counts", "remove one of them");
            continue;
        }
        if !KEYS.contains(&name.as_str()) && !is_free(&name) {
            let shown = clip(&name, 60);
            let near = nearest(&name, KEYS).map(|near| format!("did you mean `{near}`?"));
            let hint = near.unwrap_or_else(|| "put keys of your own under `metadata`".to_owned());
            faults.add(line, &shown, format!("nothing reads `{shown}`"), hint);
            continue;
        }
        let value = value_of(&name, line, &block, faults);
        if name == "description"
            && matches!(value.value, Value::Scalar { plain: true, .. })
            && let Some(comment) = comment::in_text(&block)
        {
            faults.add(line + comment.line, &name, comment.message, comment.hint);
        }
        entries.push(Entry { name, line, value });
    }
    entries
}

/// Whether a line could be a key with a value, in YAML.
fn has_colon(line: &str) -> bool {
    line.trim_end().ends_with(':') || line.contains(": ") || line.contains(":\t")
}

/// The key at the beginning of a line.
fn key_of(line: &str) -> Option<&str> {
    let (key, rest) = line.split_once(':')?;
    let key = key.trim_end().trim_matches(['"', '\'']);
    let valid = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let is_key = !key.is_empty() && key.len() <= 64 && key.bytes().all(valid) && !key.starts_with('-');
    (is_key && (rest.is_empty() || rest.starts_with([' ', '\t']))).then_some(key)
}

/// The value of a block of lines: as YAML, else as it is written.
fn value_of(name: &str, line: usize, block: &[&str], faults: &mut Faults) -> Node {
    let text = block.join("\n");
    let reason = match parse(name, &text) {
        Ok(value) => return value,
        Err(reason) => reason,
    };
    // A key that is written in another way does not cost the key before it.
    let other = |line: &&str| !line.starts_with([' ', '\t', '#', '-']) && has_colon(line);
    if let Some(at) = block.iter().skip(1).position(other) {
        faults.add(
            line + 1 + at,
            "",
            "this line and what belongs to it is ignored",
            "a key has letters, digits, `.`, `_` and `-`",
        );
        return value_of(name, line, &block[..=at], faults);
    }
    faults.add(line, name, "the value is read as it is written", reason);
    if text.contains('\t')
        && let Ok(value) = parse(name, &text.replace('\t', "  "))
    {
        return value;
    }
    let mut raw = text.split_once(':').map(|(_, rest)| rest.trim()).unwrap_or_default();
    raw = raw.trim_start_matches(['|', '>']);
    let raw = one_line(raw);
    // A text may begin and end with quoted words.
    let quote = |c: char| {
        let inner = raw.strip_prefix(c).and_then(|rest| rest.strip_suffix(c)).map(|inner| inner.matches(c).count());
        inner.is_some_and(|count| count == 0 || count % 2 == 1)
    };
    let raw = if quote('"') || quote('\'') { raw[1..raw.len() - 1].to_owned() } else { raw.clone() };
    Node { line, value: Value::Scalar { shown: raw.clone(), text: raw, plain: false, literal: false, unset: false } }
}

/// The value of the one key in `text`, or why it is not YAML.
fn parse(name: &str, text: &str) -> Result<Node, String> {
    let report = Report::default();
    let file = report.file(Path::new("SKILL.md"));
    let node = yaml::parse_within(text, &file, None, Bounds { aliases: true, ..Bounds::CONFIGURATION });
    let problem = report.finish().0.into_iter().next();
    match (node, problem) {
        (_, Some(problem)) => Err(format!("{}: {}", problem.message, problem.hint)),
        (Some(Node { value: Value::Map(mut pairs), .. }), None) if pairs.len() == 1 => {
            pairs.pop().map(|(_, value)| value).ok_or_else(String::new)
        }
        _ => Err(format!("write one value for `{name}`")),
    }
}

/// A name that access rules and paths may hold, made of `text`.
fn slug(text: &str) -> Option<String> {
    let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { ' ' }).collect();
    let joined = plain.split_whitespace().collect::<Vec<_>>().join("-");
    let name: String = joined.trim_start_matches(['_', '-']).chars().take(64).collect();
    is_name(&name).then_some(name)
}

/// A name for a folder without a letter or digit that a name may hold, so that two such folders have two names.
fn by_code_points(folder: &str) -> String {
    let mut name = "skill".to_owned();
    for c in folder.chars() {
        let next = format!("-{:x}", u32::from(c));
        if name.len() + next.len() > 64 {
            break;
        }
        name.push_str(&next);
    }
    name
}

fn name(key: Option<&Entry>, folder: &str, has_head: bool, faults: &mut Faults) -> String {
    let by_folder = || {
        if is_name(folder) { folder.to_owned() } else { slug(folder).unwrap_or_else(|| by_code_points(folder)) }
    };
    let Some(key) = key else {
        if has_head {
            faults.add(1, "name", "`name` is missing", "without one, the skill is known by its folder's name");
        }
        return by_folder();
    };
    let text = key.value.text().unwrap_or_default().trim();
    if !is_name(text) {
        let name = slug(text).unwrap_or_else(by_folder);
        let hint = "use 1 to 64 lower-case letters, digits and hyphens, starting with a letter or a digit";
        let message = format!("this is not a name for a skill; it is known as `{name}`");
        faults.add(key.line, "name", message, hint);
        return name;
    }
    if text != text.to_ascii_lowercase() || text.contains(['_', '.']) || text.contains("--") || text.ends_with('-') {
        let hint = "other programs take only lower-case letters, digits and single hyphens";
        faults.add(key.line, "name", format!("`{text}` is an unusual name for a skill"), hint);
    } else if text != folder {
        let hint = format!("other programs take only a skill whose folder has its name: rename it `{text}`");
        faults.add(key.line, "name", format!("the skill is called `{text}`, its folder `{}`", clip(folder, 80)), hint);
    }
    text.to_owned()
}

fn description(key: Option<&Entry>, heading: &str, has_head: bool, faults: &mut Faults) -> String {
    const HINT: &str = "agents choose skills by it: say when this one is of use";
    let text = key.and_then(|key| match &key.value.value {
        Value::List(items) => Some(items.iter().filter_map(Node::text).collect::<Vec<_>>().join(", ")),
        _ => key.value.text().map(str::to_owned),
    });
    let text = one_line(text.as_deref().unwrap_or_default());
    match key {
        Some(key) if text.is_empty() => faults.add(key.line, "description", "the description is not text", HINT),
        Some(key) if text.chars().count() > DESCRIPTION_MAX => {
            let message = format!("the description has more than {DESCRIPTION_MAX} characters; the rest is ignored");
            faults.add(key.line, "description", message, "move details below the head");
        }
        None if has_head => faults.add(1, "description", "`description` is missing", HINT),
        Some(_) | None => {}
    }
    let text = if text.is_empty() { one_line(heading) } else { text };
    // The ellipsis counts as a character.
    if text.chars().count() > DESCRIPTION_MAX { clip(&text, DESCRIPTION_MAX - 1) } else { text }
}

fn flag(key: &Entry, faults: &mut Faults) -> bool {
    let text = key.value.text().unwrap_or_default().trim().to_ascii_lowercase();
    // More words come from an indented line below, which has its own fault.
    match text.split_whitespace().next().unwrap_or_default() {
        "true" | "yes" | "on" | "1" => true,
        "false" | "no" | "off" | "0" | "" => false,
        other => {
            let message = format!("`{}` is neither true nor false; it counts as false", clip(other, 40));
            faults.add(key.line, &key.name, message, "write true or false");
            false
        }
    }
}

/// What the skill needs, and its toolbox. The metadata may be JSON in a text.
fn metadata(key: &Entry, faults: &mut Faults) -> (Requirements, Option<String>) {
    let inner;
    let node = match key.value.text().map(str::trim).filter(|text| text.starts_with('{')) {
        Some(text) => match parse("metadata", &format!("metadata: {text}")) {
            Ok(node) => {
                inner = node;
                &inner
            }
            Err(reason) => {
                faults.add(key.line, "metadata", "the text is not JSON; it is ignored", reason);
                return Default::default();
            }
        },
        None => &key.value,
    };
    let toolbox = node.get("ghost").and_then(|ghost| ghost.get("toolbox")).and_then(Node::text).map(str::to_owned);
    let Some(own) = PROGRAMS.iter().find_map(|program| node.get(program)) else { return (Default::default(), toolbox) };
    let needs = own.get("requires");
    let list = |key: &str| needs.and_then(|needs| needs.get(key)).map(words).unwrap_or_default();
    let always = own.get("always").and_then(Node::text).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let os = own.get("os").map(words).unwrap_or_default();
    let requirements = Requirements {
        always,
        os,
        bins: list("bins"),
        any_bins: list("anyBins"),
        env: list("env"),
        config: list("config"),
    };
    (requirements, toolbox)
}

/// The texts of a list, or the parts of a text between commas.
fn words(node: &Node) -> Vec<String> {
    let words: Vec<&str> = match &node.value {
        Value::List(items) => items.iter().filter_map(Node::text).collect(),
        _ => node.text().unwrap_or_default().split(',').collect(),
    };
    words.iter().map(|word| word.trim()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(head: &Head) -> Vec<(usize, &str)> {
        head.faults.iter().map(|fault| (fault.line, fault.field.as_str())).collect()
    }

    type Fixture = (&'static str, &'static str, &'static str, &'static [(usize, &'static str)]);

    /// One fixture for each fault: the text, the name, the description, and where the faults are. The folder is `one`.
    const FAULTY: [Fixture; 25] = [
        ("---\nname: one\ndescription: d\n---\nText\n", "one", "d", &[]),
        ("\u{feff}---\r\nname: one\r\ndescription: d\r\n---\r\nText\r\n", "one", "d", &[]),
        ("\n\n---\nname: one\ndescription: d\n---\nText\n", "one", "d", &[(1, "")]),
        ("# Title\nText\n", "one", "Title", &[(1, "")]),
        ("---\nname: one\ndescription: d\n\n# Title\nText\n", "one", "d", &[(1, "")]),
        (
            "---\nname: one\ndescription: Use when: it rains\n---\nText\n",
            "one",
            "Use when: it rains",
            &[(3, "description")],
        ),
        ("---\nname: one\ndescription: \"a\" and \"b\"\n---\nText\n", "one", "\"a\" and \"b\"", &[(3, "description")]),
        ("---\nname: one\ndescription: 'it's'\n---\nText\n", "one", "it's", &[(3, "description")]),
        ("---\nname: one\ndescription: \"bad \\q\"\n---\nText\n", "one", "bad \\q", &[(3, "description")]),
        ("---\nname: one\ndescription: @x and `y`\n---\nText\n", "one", "@x and `y`", &[(3, "description")]),
        ("---\nname: one\ndescription: [\n---\nText\n", "one", "[", &[(3, "description")]),
        ("---\nname: one\ndescription: a\nwrapped\n---\nText\n", "one", "a wrapped", &[(3, "description")]),
        ("---\nname: one\ndescription: Use C# and #tags\n---\nText\n", "one", "Use C# and", &[(3, "description")]),
        ("---\nname: one\ndescription: 'Use C# and #tags'\n---\nText\n", "one", "Use C# and #tags", &[]),
        ("---\nname: one\ndescription: [a, b]\n---\nText\n", "one", "a, b", &[]),
        ("---\nname: one\ndescription: >\n  folded\n  text\n---\nText\n", "one", "folded text", &[]),
        ("---\nname: one\ndescription:\n---\n# Title\n", "one", "Title", &[(3, "description")]),
        ("---\nname: one\n---\n# Title\n", "one", "Title", &[(1, "description")]),
        ("---\ndescription: d\n---\nText\n", "one", "d", &[(1, "name")]),
        ("---\nname: Two Words!\ndescription: d\n---\nText\n", "Two-Words", "d", &[(2, "name")]),
        ("---\nname: two\ndescription: d\n---\nText\n", "two", "d", &[(2, "name")]),
        ("---\nname: One\ndescription: d\n---\nText\n", "One", "d", &[(2, "name")]),
        ("---\nname: one\nname: two\ndescription: d\nmood: 1\n---\nText\n", "one", "d", &[(3, "name"), (5, "mood")]),
        ("---\nwords\nname: one\ndescription: d\n---\n", "one", "d", &[(1, ""), (2, "")]),
        ("---\nname: one\ndescription: d\nmetadata:\n\tx: [\n---\nText\n", "one", "d", &[(4, "metadata")]),
    ];

    // covers: SKILL-03, SKILL-06
    #[test]
    fn each_fault_costs_at_most_its_own_key() {
        for (text, name, description, faults) in FAULTY {
            let head = read(text, "one");
            assert_eq!((head.name.as_str(), head.description.as_str()), (name, description), "{text}");
            assert_eq!(fields(&head), faults, "{text}: {:?}", head.faults);
            assert!(head.faults.iter().all(|fault| !fault.hint.is_empty()), "{text}");
        }
        let many = format!("---\nname: one\ndescription: d\n{}---\nText\n", "a: 1\n".repeat(50));
        let faults = read(&many, "one").faults;
        let last = faults.last().unwrap();
        assert_eq!((faults.len(), faults[FAULTS_MAX - 1].line, last.line), (FAULTS_MAX + 1, 23, 24));
        assert!(last.message.contains("30"), "{}", last.message);
        let long = format!("---\nname: one\ndescription: {}\n---\nText\n", "x".repeat(2_000));
        let head = read(&long, "one");
        assert_eq!((head.description.chars().count(), fields(&head)), (DESCRIPTION_MAX, vec![(3, "description")]));
    }

    #[test]
    fn a_line_that_is_no_key_does_not_cost_the_key_before_it() {
        for (line, for_models, faults) in [
            ("Trigger Words: x", false, &[(5, "")][..]),
            ("Trigger Words: x: y", false, &[(5, "")]),
            ("Schlüssel: x\n  - y\nOther Words:", false, &[(5, "")]),
            ("  trigger: x", false, &[(4, "disable-model-invocation")]),
            ("# a note: yes", false, &[]),
        ] {
            let head = read(
                &format!("---\nname: one\ndescription: d\ndisable-model-invocation: true\n{line}\n---\nText\n"),
                "one",
            );
            assert_eq!((head.for_models, fields(&head).as_slice()), (for_models, faults), "{line}: {:?}", head.faults);
        }
        let head = read("---\nname: one\ndescription: \"a\n  My note: b\"\n---\nText\n", "one");
        assert_eq!((head.description.as_str(), head.faults), ("a My note: b", vec![]));
    }

    #[test]
    fn folders_without_a_letter_have_names_of_their_own() {
        let names = ["技能", "天気", "!"].map(|folder| read("# Text\n", folder).name);
        assert_eq!(names, ["skill-6280-80fd", "skill-5929-6c17", "skill-21"]);
        assert!(is_name(&read("# Text\n", &"技".repeat(200)).name));
    }

    #[test]
    fn the_text_begins_after_the_head() {
        let head = read("---\nname: one\n---\n\n# Title\nText\n", "one");
        assert_eq!((head.body.as_str(), head.body_line), ("# Title\nText\n", 5));
        assert_eq!(read("Text", "one").body_line, 1);
    }

    // covers: SKILL-04
    #[test]
    fn requirements_are_read_from_yaml_and_json() {
        for metadata in [
            "metadata: { openclaw: { os: [linux], requires: { bins: [jq, gh], anyBins: a, env: [KEY], config: [x.y] } } }",
            "metadata:\n  openclaw:\n    os: linux\n    requires:\n      bins: [jq, gh]\n      anyBins: [a]\n      env: KEY\n      config: x.y",
            "metadata: '{\"clawdbot\":{\"os\":[\"linux\"],\"requires\":{\"bins\":[\"jq\",\"gh\"],\"anyBins\":[\"a\"],\"env\":[\"KEY\"],\"config\":[\"x.y\"]}}}'",
            "metadata:\n  {\n    \"openclaw\":\n      {\n        \"os\": [\"linux\"],\n        \"requires\": { \"bins\": [\"jq\", \"gh\"], \"anyBins\": [\"a\"], \"env\": [\"KEY\"], \"config\": [\"x.y\"], },\n      },\n  }",
        ] {
            let head = read(&format!("---\nname: one\ndescription: d\n{metadata}\n---\nText\n"), "one");
            let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
            let wanted = Requirements {
                always: false,
                os: own(&["linux"]),
                bins: own(&["jq", "gh"]),
                any_bins: own(&["a"]),
                env: own(&["KEY"]),
                config: own(&["x.y"]),
            };
            assert_eq!((head.requirements, head.faults), (wanted, vec![]), "{metadata}");
        }
        let head = read("---\nname: one\ndescription: d\nmetadata: { ghost: { toolbox: b.yaml } }\n---\nx", "one");
        assert_eq!(head.toolbox.as_deref(), Some("b.yaml"));
    }

    proptest! {
        #[test]
        fn every_text_is_a_skill(text in "(\n)?(---\n)?[a-z:\\[\\]{}&*!#\"'|>@`\t \n-]{0,160}(---\n)?.{0,40}", folder in ".{0,80}") {
            let head = read(&text, &folder);
            prop_assert!(is_name(&head.name), "{:?}", head.name);
            prop_assert!(head.description.chars().count() <= DESCRIPTION_MAX && !head.description.contains('\n'));
        }
    }
}
