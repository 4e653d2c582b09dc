//! Snippets: texts that several prompts of a world share. A line `@snippets/NAME.md` in a markdown file of the
//! world stands for the text of that file in the world's directory `snippets`.
//!
//! A snippet must never contain another one: what a prompt says must be visible in two files.

use std::path::Path;

use crate::files::{MARKDOWN_MAX, is_plain_relative, names_in, read_text};
use crate::report::{FileReport, did_you_mean};

/// The directory of a world's snippets.
pub const SNIPPETS: &str = "snippets";

/// Largest size of a text with its snippets, in bytes.
const EXPANDED_MAX: usize = 4 * MARKDOWN_MAX as usize;

/// The name of the snippet that a line stands for.
fn named(line: &str) -> Option<&str> {
    let name = line.trim_end().strip_prefix('@')?.strip_prefix(SNIPPETS)?.strip_prefix('/')?;
    (name.ends_with(".md") && !name.contains(char::is_whitespace)).then_some(name)
}

/// `text` with its snippets. `root` is the world's directory (a canonical path); problems are reported at the line of
/// `file`.
pub fn expanded(text: String, root: &Path, file: &FileReport<'_>) -> String {
    if !text.contains("@snippet") {
        return text;
    }
    let dir = root.join(SNIPPETS);
    let mut whole = String::with_capacity(text.len());
    for (at, line) in text.lines().enumerate() {
        match named(line) {
            None => {
                warn_of_slip(line, at + 1, file);
                whole.push_str(line);
            }
            Some(name) => whole.push_str(&one(&dir, root, name, file, at + 1)),
        }
        whole.push('\n');
    }
    if whole.len() > EXPANDED_MAX {
        let message = format!("with its snippets the text has {} bytes; at most {EXPANDED_MAX} are read", whole.len());
        file.error(1, "", message, "use fewer or shorter snippets");
        return text;
    }
    whole
}

/// Warns of a line that looks like a snippet and is none: the text would be missing from a prompt without a word.
fn warn_of_slip(line: &str, at: usize, file: &FileReport<'_>) {
    if line.trim_start().starts_with("@snippet") {
        let hint = "write `@snippets/NAME.md` at the beginning of a line of its own; a snippet holds no further ones";
        file.warn(at, "", "this line is taken as text, not as a snippet", hint);
    }
}

fn one(dir: &Path, root: &Path, name: &str, file: &FileReport<'_>, line: usize) -> String {
    let is_name = is_plain_relative(name) && !name.contains('/');
    let path = dir.join(name);
    if is_name && path.symlink_metadata().is_ok() {
        let shown = file.whole().file(Path::new(SNIPPETS).join(name));
        let text = read_text(&path, root, MARKDOWN_MAX, &shown).unwrap_or_default();
        text.lines().enumerate().for_each(|(at, line)| warn_of_slip(line, at + 1, &shown));
        return text.trim_end().to_owned();
    }
    let names = if is_name && dir.is_dir() { names_in(dir, file) } else { Default::default() };
    let hint = did_you_mean(name, names.iter().map(String::as_str), "write the file, or remove this line");
    file.error(line, "", format!("there is no snippet `{SNIPPETS}/{name}` in the world's directory"), hint);
    String::new()
}
