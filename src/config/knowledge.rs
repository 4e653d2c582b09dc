//! Reads the knowledge entries that a world brings: `knowledge/*.md` except `README.md`. Each file
//! has a head between two `---` lines, with `id`, `title`, `readers`, `writers` and `tags`, and the
//! text below it.
//!
//! This module must never write to the store. It must never accept a file in part.

use std::collections::BTreeMap;
use std::path::Path;

use ghost_domain::knowledge::grantees;
use ghost_domain::knowledge::{check_content, check_entry_id, check_tags, check_title};
use ghost_domain::{Grantee, KnowledgeSeed, Limits, Refusal};

use crate::comment;
use crate::files::{first_line, names_in, read_text};
use crate::grantees::People;
use crate::node::Node;
use crate::problem::Hint;
use crate::reader::{Field, Map};
use crate::report::{FileReport, Report};
use crate::yaml;

/// The largest size of a file's head, in bytes.
const HEAD_MAX: usize = 64 * 1024;

/// Reads every entry under `dir/knowledge`. A world without that directory has no entries. `shown`
/// is `dir` as messages name it.
pub fn seeds(dir: &Path, shown: &Path, people: &People<'_>, limits: &Limits, report: &Report) -> Vec<KnowledgeSeed> {
    let (real, shown) = (dir.join("knowledge"), shown.join("knowledge"));
    let whole = report.file(&shown);
    // A dangling link is a mistake, not an absent directory.
    if real.symlink_metadata().is_err() {
        return Vec::new();
    }
    if crate::files::directory_within(&real, dir).is_none() {
        whole.error(first_line(&real), "", "it is not a directory within the world", "make it one, or remove it");
        return Vec::new();
    }
    let mut found: BTreeMap<String, (String, KnowledgeSeed)> = BTreeMap::new();
    for name in names_in(&real, &whole) {
        // A README is for people.
        if name.starts_with('.') || name.eq_ignore_ascii_case("readme.md") {
            continue;
        }
        let file = report.file(shown.join(&name));
        if !name.ends_with(".md") {
            file.warn(first_line(&real.join(&name)), "", "nothing reads this", "entries of knowledge are *.md files");
            continue;
        }
        let Some(text) = read_text(&real.join(&name), dir, u64::from(limits.knowledge_bytes) + HEAD_MAX as u64, &file)
        else {
            continue;
        };
        let Some((line, seed)) = seed(&text, people, limits, &file) else { continue };
        if let Some((first, _)) = found.get(&seed.entry_id) {
            let hint = format!("knowledge/{first} has it too; ids are unique in a world");
            file.error(line, "id", format!("a second entry is called `{}`", seed.entry_id), hint);
            continue;
        }
        found.insert(seed.entry_id.clone(), (name, seed));
    }
    if found.len() > limits.knowledge_entries_max as usize {
        let message = format!(
            "{} entries are in the directory; limits.knowledge_entries_max is {}",
            found.len(),
            limits.knowledge_entries_max
        );
        whole.error(0, "", message, "raise the limit, or put entries together");
    }
    found.into_values().map(|(_, seed)| seed).collect()
}

/// Reads one file. Returns the entry and the line of its id.
fn seed(text: &str, people: &People<'_>, limits: &Limits, file: &FileReport<'_>) -> Option<(usize, KnowledgeSeed)> {
    let Some((head, body)) = split(text) else {
        let hint = "begin the file with `---`, `id: …`, `title: …` and `---`, each on a line of its own";
        file.error(1, "", "the file has no head between two lines `---`", hint);
        return None;
    };
    if head.len() > HEAD_MAX {
        file.error(1, "", format!("the head has more than {HEAD_MAX} bytes"), "shorten it");
        return None;
    }
    // Agents read the head, so it must not contain values of environment variables.
    let node = yaml::parse(&head, file, &|_| None)?;
    let lines: Vec<&str> = head.lines().collect();
    if let Some(at) = lines.iter().position(|line| line.starts_with("title:"))
        && let Some(comment) = comment::in_text(&lines[at..=at])
    {
        file.warn(at + 1, "title", comment.message, comment.hint);
    }
    let text_line = (head.lines().count() + 2).min(text.lines().count());
    entry(&node, (text_line, body), people, limits, file)
}

/// Reads one entry: its head, and the text below it with the text's first line.
fn entry(
    node: &Node,
    (text_line, body): (usize, &str),
    people: &People<'_>,
    limits: &Limits,
    file: &FileReport<'_>,
) -> Option<(usize, KnowledgeSeed)> {
    let root = Field::root(node, file);
    let map = root.map()?;
    let id = required(&map, "id", file).and_then(|field| {
        let text = field.text(1_024)?;
        checked_value(&field, check_entry_id(text))?;
        Some((field.line(), text.to_owned()))
    });
    let title = required(&map, "title", file).and_then(|field| {
        let text = field.text(4_096)?;
        checked_value(&field, check_title(text))?;
        Some(text.to_owned())
    });
    let readers = people_of(&map, "readers", people).unwrap_or(Some(vec![Grantee::Everyone]));
    let writers = people_of(&map, "writers", people).unwrap_or(Some(Vec::new()));
    let tags = map.get("tags").map_or(Some(Vec::new()), |field| {
        let tags: Vec<String> = words(&field).into_iter().map(|(_, text)| text).collect();
        checked_value(&field, check_tags(&tags)).map(|()| tags)
    });
    map.finish(&[("entry_id", "write `id`"), ("name", "write `title`"), ("content", "the text goes below the head")]);
    let content = body.trim_matches(['\n', '\r']).to_owned();
    if let Err(refusal) = check_content(&content, limits.knowledge_bytes) {
        let hint = Hint::of(refusal.hint, "write the text of the entry below the head");
        file.error(text_line, "", refusal.message, hint);
        return None;
    }
    let (line, entry_id) = id?;
    Some((line, KnowledgeSeed { entry_id, title: title?, content, tags: tags?, readers: readers?, writers: writers? }))
}

/// Splits the file into head and text. The head gets an empty first line, so that its line numbers
/// are those of the file.
fn split(text: &str) -> Option<(String, &str)> {
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().filter(|line| line.trim_end() == "---")?;
    let mut end = first.len();
    for line in lines {
        if line.trim_end() == "---" {
            return Some((format!("\n{}", &text[first.len()..end]), &text[end + line.len()..]));
        }
        end += line.len();
    }
    None
}

fn required<'n>(map: &Map<'n>, key: &'static str, file: &FileReport<'_>) -> Option<Field<'n>> {
    let found = map.get(key);
    if found.is_none() {
        file.error(1, key, format!("the head has no `{key}`"), format!("write `{key}: …` into it"));
    }
    found
}

/// `None` if the key is absent; `Some(None)` if its value was wrong and has been reported.
fn people_of(map: &Map<'_>, key: &'static str, people: &People<'_>) -> Option<Option<Vec<Grantee>>> {
    let field = map.get(key)?;
    let mut valid = true;
    let mut texts = Vec::new();
    for (field, text) in words(&field) {
        let one = checked_value(&field, grantees(key, std::slice::from_ref(&text)));
        for grantee in one.iter().flatten() {
            if let Some(refusal) = people.problem(grantee) {
                valid &= checked_value(&field, Err::<(), _>(refusal)).is_some();
            }
            if let Grantee::Agent(agent_id) = grantee
                && people.agents.as_ref().is_some_and(|agents| !agents.contains(agent_id))
            {
                let hint = "it has access once an agent of that id is created";
                field.warn(format!("the world file names no agent `{agent_id}`"), hint);
            }
        }
        valid &= one.is_some();
        texts.push(text);
    }
    Some(if valid { checked_value(&field, grantees(key, &texts)) } else { None })
}

/// The texts of a list, or of one line separated by commas.
fn words<'n>(field: &Field<'n>) -> Vec<(Field<'n>, String)> {
    if !field.is_single() {
        return field.texts(1_024).into_iter().map(|(field, text)| (field, text.trim().to_owned())).collect();
    }
    let line = field.text(16_384).unwrap_or_default();
    line.split(',').map(|word| (field.clone(), word.trim().to_owned())).collect()
}

fn checked_value<T>(field: &Field<'_>, checked: Result<T, Refusal>) -> Option<T> {
    match checked {
        Ok(value) => Some(value),
        Err(refusal) => {
            field.refused(refusal, "see docs/configuration.md#knowledge-files");
            None
        }
    }
}

#[cfg(test)]
#[path = "knowledge_tests.rs"]
mod tests;
