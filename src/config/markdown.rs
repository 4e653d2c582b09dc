//! Parses a `config.md`: headings, `key: value` lines and list items, each with its line.
//! `archetype_config` interprets the sections.
//!
//! The parser must never recurse, or drop a line without a report.

/// One `## Section`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The heading as written.
    pub heading: String,
    /// The heading in lower case with single spaces, for comparisons.
    pub key: String,
    /// The line of the heading, from 1.
    pub line: usize,
    /// The lines under the heading, parsed.
    pub items: Vec<Item>,
    /// The lines under it as written, comments included.
    pub raw: Vec<String>,
}

/// One line of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The line, from 1.
    pub line: usize,
    /// The kind of the line.
    pub kind: ItemKind,
}

/// The kind of a line in a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// `key: value`, the key in lower case.
    Pair(String, Written),
    /// A list item, without its marker and backticks.
    Bullet(String),
    /// Any other line.
    Prose(String),
}

/// The value of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The value without quotes and backticks. May be empty.
    pub text: String,
    /// Whether the value is in quotes, and so always text.
    pub quoted: bool,
}

impl Section {
    /// Whether the section has at least one item and contains only pairs and list items.
    #[must_use]
    pub fn is_structured(&self) -> bool {
        !self.items.is_empty() && self.items.iter().all(|item| !matches!(item.kind, ItemKind::Prose(_)))
    }
}

/// A parsed file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The lines before the first section, parsed.
    pub before: Vec<Item>,
    /// The same lines as written, comments included.
    pub before_raw: Vec<String>,
    /// The sections.
    pub sections: Vec<Section>,
    /// The line of a comment that is not closed. Nothing after it was read.
    pub unclosed: Option<usize>,
}

/// Splits `text` into sections and the lines before them. Comments (`<!-- -->`) are removed first,
/// also across lines; a comment that is not closed reaches to the end of the file. Fence lines
/// (three backticks) are skipped, but lines between fences are read.
#[must_use]
pub fn sections(text: &str) -> Parsed {
    let (bare, unclosed) = without_comments(text);
    let mut before = Vec::new();
    let mut before_raw = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    for (at, (line, raw)) in bare.lines().zip(text.lines()).enumerate() {
        let trimmed = line.trim();
        if let Some(heading) = heading(trimmed) {
            let key = key_of(heading);
            let (items, raw) = (Vec::new(), Vec::new());
            sections.push(Section { heading: heading.to_owned(), key, line: at + 1, items, raw });
            continue;
        }
        let (raws, items) = match sections.last_mut() {
            Some(section) => (&mut section.raw, &mut section.items),
            None => (&mut before_raw, &mut before),
        };
        raws.push(raw.to_owned());
        if !(trimmed.is_empty() || trimmed.starts_with("```") || is_rule(trimmed)) {
            items.push(Item { line: at + 1, kind: item(trimmed) });
        }
    }
    Parsed { before, before_raw, sections, unclosed }
}

fn key_of(heading: &str) -> String {
    heading.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The level and the text (lower case, single spaces) of a heading that does not begin a section:
/// `# Title`, `### Detail`.
#[must_use]
pub fn other_heading(line: &str) -> Option<(usize, String)> {
    let level = line.bytes().take_while(|b| *b == b'#').count();
    let rest = &line[level..];
    let is_one = level > 0 && level != 2 && (rest.is_empty() || rest.starts_with([' ', '\t']));
    is_one.then(|| (level, key_of(rest.trim().trim_end_matches('#'))))
}

/// The text of a second-level heading, which begins a section.
fn heading(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("##")?;
    (!rest.starts_with('#')).then(|| rest.trim().trim_end_matches('#').trim())
}

fn is_rule(line: &str) -> bool {
    line.len() >= 3 && (line.bytes().all(|b| b == b'-') || line.bytes().all(|b| b == b'*'))
}

fn item(line: &str) -> ItemKind {
    let bullet = line.strip_prefix(['-', '*', '+']).filter(|rest| rest.starts_with([' ', '\t']) || rest.is_empty());
    match bullet {
        Some(rest) => match pair(rest.trim()) {
            // `- provider: scripted` means the same as `provider: scripted`. `group:fs` is a word,
            // not a pair.
            Some((key, value)) => ItemKind::Pair(key, value),
            None => ItemKind::Bullet(strip(without_note(rest))),
        },
        None => match pair(line) {
            Some((key, value)) => ItemKind::Pair(key, value),
            None => ItemKind::Prose(line.to_owned()),
        },
    }
}

/// Parses `key: value`. The key is one word of letters, digits, `_` and `-`; a space or nothing
/// follows the colon.
fn pair(line: &str) -> Option<(String, Written)> {
    let line = line.trim_start_matches("**").replacen(":**", ":", 1).replacen("**:", ":", 1);
    let (key, value) = line.split_once(':')?;
    let key = strip(key);
    let word =
        !key.is_empty() && key.len() <= 64 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if !word || !(value.is_empty() || value.starts_with([' ', '\t'])) {
        return None;
    }
    let value = without_note(value);
    let written =
        Written { text: strip(value), quoted: ['"', '\''].into_iter().any(|mark| within(value.trim(), mark)) };
    Some((key.to_lowercase().replace('-', "_"), written))
}

/// Removes a trailing ` # note`.
fn without_note(text: &str) -> &str {
    text.find(" #").map_or(text, |at| &text[..at])
}

/// Whether `text` begins and ends with `mark`.
fn within(text: &str, mark: char) -> bool {
    text.len() >= 2 && text.starts_with(mark) && text.ends_with(mark)
}

fn strip(text: &str) -> String {
    let text = text.trim();
    let inner =
        if ['`', '"', '\''].into_iter().any(|mark| within(text, mark)) { &text[1..text.len() - 1] } else { text };
    inner.trim().to_owned()
}

/// Removes every comment but keeps its line breaks. Also returns the line of a comment that is not
/// closed.
fn without_comments(text: &str) -> (String, Option<usize>) {
    let mut out = String::with_capacity(text.len());
    let mut unclosed = None;
    let mut rest = text;
    while let Some(at) = rest.find("<!--") {
        out.push_str(&rest[..at]);
        let (comment, after) = match rest[at..].find("-->") {
            Some(end) => rest[at..].split_at(end + 3),
            None => {
                unclosed = Some(out.matches('\n').count() + 1);
                (&rest[at..], "")
            }
        };
        out.extend(comment.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    out.push_str(rest);
    (out, unclosed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair_of(key: &str, value: &str) -> ItemKind {
        ItemKind::Pair(key.to_owned(), Written { text: value.to_owned(), quoted: false })
    }

    // covers: ARCH-02, ARCH-04, ARCH-05
    #[test]
    fn sections_pairs_and_items_are_parsed() {
        let text = "# chora\n\nnotes\n## Tool Access\nprivilege_groups: manager, communicator\n- workspace.write\n- \
                    tool.browser\n## Toolbox\nsource: toolbox/devtools/toolbox.yaml\n- repo-git\n";
        let Parsed { before, before_raw, sections, unclosed } = sections(text);
        assert_eq!((before_raw.len(), unclosed), (3, None));
        let prose = |line, text: &str| Item { line, kind: ItemKind::Prose(text.to_owned()) };
        assert_eq!(before, [prose(1, "# chora"), prose(3, "notes")]);
        assert_eq!(
            sections.iter().map(|s| (s.key.as_str(), s.line)).collect::<Vec<_>>(),
            [("tool access", 4), ("toolbox", 8)]
        );
        let kinds: Vec<ItemKind> = sections[0].items.iter().map(|item| item.kind.clone()).collect();
        assert_eq!(
            kinds,
            [
                pair_of("privilege_groups", "manager, communicator"),
                ItemKind::Bullet("workspace.write".into()),
                ItemKind::Bullet("tool.browser".into())
            ]
        );
        assert_eq!(sections[1].items[0].kind, pair_of("source", "toolbox/devtools/toolbox.yaml"));
    }

    // covers: ARCH-07
    #[test]
    fn variant_notations_are_accepted() {
        let text = "##  TOOL   access ##\r\n* `tool.cli`  # why\r\n<!-- - tool.python\n- tool.fetch -->\n- group:fs\n\
                    **Profile**: `coding`\n---\n```\n- a\n```\nsome words\n";
        let sections = sections(text).sections;
        assert_eq!(sections[0].key, "tool access");
        let items: Vec<(usize, ItemKind)> = sections[0].items.iter().map(|i| (i.line, i.kind.clone())).collect();
        assert_eq!(
            items,
            [
                (2, ItemKind::Bullet("tool.cli".into())),
                (5, ItemKind::Bullet("group:fs".into())),
                (6, pair_of("profile", "coding")),
                (9, ItemKind::Bullet("a".into())),
                (11, ItemKind::Prose("some words".into())),
            ]
        );
    }

    #[test]
    fn quotes_and_backticks_differ() {
        let parsed = sections("## LLM\na: '5' # five\nb: \"x\"\nc: `5`\nd: 5'\ne: '\n");
        let written = parsed.sections[0].items.iter().map(|item| match &item.kind {
            ItemKind::Pair(_, written) => (written.text.as_str(), written.quoted),
            kind => panic!("{kind:?}"),
        });
        let expected = [("5", true), ("x", true), ("5", false), ("5'", false), ("'", false)];
        assert_eq!(written.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn other_headings_are_not_sections() {
        assert_eq!(other_heading("#  Tool  Access #"), Some((1, "tool access".to_owned())));
        assert_eq!(other_heading("### LLM"), Some((3, "llm".to_owned())));
        assert_eq!((other_heading("## LLM"), other_heading("#LLM"), other_heading("LLM")), (None, None, None));
        let parsed = sections("## LLM\nmodel: a <!-- b -->\n\n<!-- c\n## Tool Access\n- x\n");
        assert_eq!((parsed.unclosed, parsed.sections.len()), (Some(4), 1));
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic_and_line_numbers_are_in_range(text in "[#a:`*<!\\-> \n\r|é]{0,200}") {
            let count = text.lines().count();
            let parsed = sections(&text);
            prop_assert!(parsed.unclosed.is_none_or(|line| (1..=count.max(1)).contains(&line)));
            for section in parsed.sections {
                prop_assert!(section.line <= count);
                prop_assert!(section.items.iter().all(|item| item.line > section.line && item.line <= count));
            }
        }
    }
}
