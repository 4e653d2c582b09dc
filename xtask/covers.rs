//! Which tests prove which requirement. `cargo xtask covers` prints it from the comments `// covers: ID, ID` in the sources.
//! `cargo xtask covers --check` fails if a comment names an unknown id, or if a `covers` comment is not above a function.
//!
//! A comment directly above a function or its attributes applies to that function. A comment at the
//! top of a file applies to the whole file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Path of the catalogue, relative to the root of the workspace.
const CATALOGUE: &str = "docs/requirements.md";

/// Directories whose comments are read, relative to the root of the workspace.
const SOURCES: [&str; 5] = ["benches", "ghostctl", "proto", "src", "tests"];

/// The tests of each id: function names by file. A file without names stands for all its tests.
type Covers = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Prints each requirement with its state and its tests, or with `check` nothing. Returns the problems found.
pub(crate) fn run(root: &Path, check: bool) -> io::Result<Vec<String>> {
    let catalogue = fs::read_to_string(root.join(CATALOGUE))?;
    let known: BTreeSet<&str> = catalogue.lines().filter_map(row_id).collect();
    let (mut covers, mut problems) = (Covers::new(), Vec::new());
    for dir in SOURCES {
        walk(&root.join(dir), &mut |path| {
            let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
            problems.extend(scan(&name, &fs::read_to_string(path)?, &known, &mut covers));
            Ok(())
        })?;
    }
    if !check {
        io::stdout().lock().write_all(printed(&catalogue, &covers).as_bytes())?;
    }
    Ok(problems)
}

/// Calls `each` for the Rust and proto files under `dir`, in order of their paths.
fn walk(dir: &Path, each: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            walk(&path, each)?;
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "proto") {
            each(&path)?;
        }
    }
    Ok(())
}

/// Adds the `covers` comments of one file. Returns its problems.
fn scan(file: &str, text: &str, known: &BTreeSet<&str>, covers: &mut Covers) -> Vec<String> {
    let prefixes: BTreeSet<&str> = known.iter().filter_map(|id| id.split('-').next()).collect();
    let (mut problems, mut waiting, mut top) = (Vec::new(), Vec::new(), true);
    // An extra empty line ends a comment in the last line.
    for (at, line) in text.lines().chain([""]).enumerate() {
        let line = line.trim_start();
        let location = format!("{file}:{}", at + 1);
        if let Some(list) = line.strip_prefix("// covers:") {
            for id in list.split(',').map(str::trim) {
                if known.contains(id) {
                    waiting.push(id);
                } else {
                    problems.push(format!("{location}: `{id}` is not in {CATALOGUE}"));
                }
            }
            continue;
        }
        for id in comment(line).into_iter().flat_map(ids) {
            if !known.contains(id.as_str()) && id.split('-').next().is_some_and(|prefix| prefixes.contains(prefix)) {
                problems.push(format!("{location}: the comment names `{id}`, which is not in {CATALOGUE}"));
            }
        }
        if line.starts_with("//") || (line.starts_with('#') && !line.starts_with("#!")) {
            continue;
        }
        let name = function(line);
        if !waiting.is_empty() && name.is_none() && !top {
            problems.push(format!("{location}: the `covers` comment above is not above a function"));
        }
        for id in waiting.drain(..).filter(|_| name.is_some() || top) {
            covers
                .entry(id.to_owned())
                .or_default()
                .entry(file.to_owned())
                .or_default()
                .extend(name.map(str::to_owned));
        }
        top = top && (line.is_empty() || line.starts_with("#!"));
    }
    problems
}

/// The text of the comment in a line.
fn comment(line: &str) -> Option<&str> {
    line.split_once("//").filter(|(before, _)| before.is_empty() || before.ends_with(' ')).map(|(_, comment)| comment)
}

/// The name of the function that a line declares, or of a test in a new world.
fn function(line: &str) -> Option<&str> {
    if let Some(test) = line.strip_prefix("world_test!(") {
        return test.split(',').next();
    }
    let (before, rest) = line.split_once("fn ")?;
    let declared = before.split_whitespace().all(|word| word.starts_with("pub") || word == "async" || word == "const");
    declared.then(|| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()).flatten()
}

/// Words that look like an id: `CHAT-04`, `BI-10a`, and both ends of `CHAT-01..15`.
fn ids(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.');
    for word in words {
        let Some((prefix, numbers)) = word.trim_end_matches('.').split_once('-') else { continue };
        if prefix.len() < 2 || !prefix.chars().all(|c| c.is_ascii_uppercase()) {
            continue;
        }
        for number in numbers.split("..") {
            let digits = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
            if digits.len() == 2 && digits.chars().all(|c| c.is_ascii_digit()) && number.len() <= 3 {
                found.push(format!("{prefix}-{number}"));
            }
        }
    }
    found
}

/// The id in a row of the catalogue.
fn row_id(line: &str) -> Option<&str> {
    let id = line.strip_prefix("| ")?.split(" |").next()?;
    (ids(id) == [id]).then_some(id)
}

/// One line for each requirement: its id, its state, and its tests.
fn printed(catalogue: &str, covers: &Covers) -> String {
    let rows = catalogue.lines().filter_map(|line| {
        let (id, state) = (row_id(line)?, line.strip_suffix('|')?.rsplit('|').next()?.trim());
        let tests = covers.get(id).into_iter().flatten().map(|(file, names)| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if names.is_empty() { file.clone() } else { format!("{file}: {}", names.join(", ")) }
        });
        Some(format!("{id} ({state}): {}\n", tests.collect::<Vec<_>>().join("; ")))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> (Covers, Vec<String>) {
        let mut covers = Covers::new();
        let problems = scan("a.rs", text, &BTreeSet::from(["CHAT-04", "CHAT-15", "BI-10a"]), &mut covers);
        (covers, problems)
    }

    #[test]
    fn a_comment_counts_for_the_function_below_it_or_for_the_file() {
        let text = "//! Doc.\n// covers: BI-10a\n\nuse a;\n\n// covers: CHAT-04, CHAT-15\n/// Doc.\n#[tokio::test]\nasync fn \
                    it_holds() {\n";
        let (covers, problems) = scanned(text);
        assert_eq!(problems, Vec::<String>::new());
        let catalogue =
            "| CHAT-04 | a \\| b | built |\n| BI-10a | c | partly |\n| x | y |\n| CHAT-15 | d | planned |\n";
        let tests = "CHAT-04 (built): a.rs: it_holds\nBI-10a (partly): a.rs\nCHAT-15 (planned): a.rs: it_holds\n";
        assert_eq!(printed(catalogue, &covers), tests);
        assert_eq!(printed(catalogue, &Covers::new()).lines().next(), Some("CHAT-04 (built): "));
    }

    #[test]
    fn unknown_ids_and_misplaced_comments_are_problems() {
        let (_, problems) = scanned("fn a() {}\n// covers: CHAT-05\nfn b() {}\n");
        assert!(problems[0].starts_with("a.rs:2: `CHAT-05`"), "{problems:?}");
        let (covers, problems) = scanned("fn a() {}\n// covers: CHAT-04\nlet a = 1;\n");
        assert!(problems[0].starts_with("a.rs:3: the `covers`") && covers.is_empty(), "{problems:?}");
        let (_, problems) = scanned("fn a() {} // see CHAT-01..15, UTF-16 and \"CHAT-99\"\n/// CHAT-16.\nfn b() {}\n");
        assert_eq!(problems.len(), 3, "{problems:?}");
    }

    #[test]
    fn ids_and_functions_are_found_in_text() {
        assert_eq!(ids("(ACL-01..03, BI-10a; SHA-256) MSG-02."), ["ACL-01", "ACL-03", "BI-10a", "MSG-02"]);
        assert_eq!(function("pub(super) async fn a_b(w: &mut W) {"), Some("a_b"));
        assert_eq!(function("let f = |g: fn (u32)| g;"), None);
    }
}
