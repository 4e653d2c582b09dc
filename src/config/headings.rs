//! The headings of a `config.md`: the known sections, and reports about text outside the known
//! sections.
//!
//! The content of a section must never be interpreted here.

use ghost_domain::text::{clip, nearest};

use crate::markdown::{Item, ItemKind, Section, other_heading};
use crate::report::FileReport;

/// The known sections, in lower case.
pub const SECTIONS: [&str; 9] =
    ["llm", "limits", "tool access", "toolbox", "skills", "tools", "heartbeat", "prompt", "channels"];

/// The heading of a known section as the documentation writes it.
fn titled(section: &str) -> String {
    let word = |word: &str| match word {
        "llm" => "LLM".to_owned(),
        _ => word[..1].to_uppercase() + &word[1..],
    };
    format!("## {}", section.split(' ').map(word).collect::<Vec<_>>().join(" "))
}

/// Reports a comment that is not closed: it hides everything after it.
pub fn unclosed(line: Option<usize>, file: &FileReport<'_>) {
    if let Some(line) = line {
        let message = "the comment that begins here is not closed, so nothing after it is read";
        file.error(line, "", message, "write `-->` where it ends");
    }
}

/// Checks the text before the first section. A title and prose are allowed. Configuration there is
/// reported, because it would have no effect.
pub fn before(items: &[Item], file: &FileReport<'_>) {
    let mut titled = false;
    for Item { line, kind } in items {
        let found = match kind {
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
        let hint = "put it under the `## Section` that it belongs to; put notes between <!-- and -->";
        file.error(*line, "", format!("{found} is before the first section, so it is not read"), hint);
    }
}

/// The known section whose letters and digits equal those of `key`.
fn section_of(key: &str) -> Option<&'static str> {
    let plain = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    SECTIONS.into_iter().find(|section| plain(section) == plain(key))
}

/// Reports a heading of the wrong level or format.
pub fn no_section(line: usize, text: &str, key: &str, file: &FileReport<'_>) {
    let hint = match section_of(key).or_else(|| nearest(key, SECTIONS)) {
        Some(near) => format!("did you mean `{}`? Sections begin with two `#`", titled(near)),
        None => "sections begin with two `#`; put notes between <!-- and -->".to_owned(),
    };
    file.error(line, "", format!("`{}` does not begin a section", clip(text, 60)), hint);
}

/// Reports an unknown section. A misspelt section is an error, because its settings would be lost; any other
/// unknown section is a warning.
pub fn unread(section: &Section, file: &FileReport<'_>) {
    let suggestion = section_of(&section.key).or_else(|| nearest(&section.key, SECTIONS));
    let message = format!("the section `## {}` is not read", clip(&section.heading, 60));
    match suggestion {
        Some(suggestion) => file.error(section.line, "", message, format!("did you mean `{}`?", titled(suggestion))),
        None => file.warn(section.line, "", message, format!("known: {}", SECTIONS.map(titled).join(", "))),
    }
    // A heading of the wrong level may begin a known section within it.
    for Item { line, kind } in &section.items {
        if let ItemKind::Prose(text) = kind
            && let Some((_, key)) = other_heading(text)
            && section_of(&key).is_some()
        {
            no_section(*line, text, &key, file);
        }
    }
}
