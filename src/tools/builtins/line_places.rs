//! Which directories and files of the workspace the words of a command line may name.
//!
//! It works on text alone and must never touch a disk.

use ghost_domain::{Code, Refusal};
use ghost_policy::JudgedCommand;

/// Directories that a line may change to.
const BASES_MAX: usize = 32;

/// The directories in which the line may name files: it may change its directory before, more than once.
pub(super) fn bases(root: &str, dir: &str, commands: &[JudgedCommand]) -> Result<Vec<String>, Refusal> {
    let mut bases = vec![dir.to_owned(), String::new()];
    for command in commands.iter().filter(|command| matches!(command.name.as_str(), "cd" | "pushd")) {
        let targets: Vec<&String> = command.argv.iter().flatten().skip(1).collect();
        let further: Vec<String> =
            bases.iter().flat_map(|base| targets.iter().filter_map(|target| below(root, base, target))).collect();
        bases.extend(further);
        bases.sort();
        bases.dedup();
        if bases.len() > BASES_MAX {
            return Err(Refusal::new(Code::TooLarge, "the line changes its directory too often to be approved")
                .hint("give cwd instead, or split it into several calls"));
        }
    }
    Ok(bases)
}

/// A word as a path relative to the workspace, if it could name something there.
pub(super) fn below(root: &str, base: &str, word: &str) -> Option<String> {
    let word = match word.strip_prefix(root) {
        Some(rest) if !root.is_empty() && (rest.is_empty() || rest.starts_with('/')) => rest.trim_start_matches('/'),
        _ if word.starts_with('/') => return None,
        _ => return join(base, word),
    };
    join("", word)
}

/// Joins two paths without touching a disk. `None` if the result leaves the workspace.
fn join(base: &str, word: &str) -> Option<String> {
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in word.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_paths_of_the_workspace_or_none() {
        for (base, word, path) in [
            ("agents/ada", "x.sh", Some("agents/ada/x.sh")),
            ("agents/ada", "./a//x.sh", Some("agents/ada/a/x.sh")),
            ("agents/ada", "../bob/x.sh", Some("agents/bob/x.sh")),
            ("agents/ada", "../../../etc/passwd", None),
            ("agents/ada", "/w/s/output/x", Some("output/x")),
            ("agents/ada", "/w/sx/output", None),
            ("agents/ada", "/etc/passwd", None),
            ("", "x", Some("x")),
        ] {
            assert_eq!(below("/w/s", base, word).as_deref(), path, "{base} {word}");
        }
    }
}
