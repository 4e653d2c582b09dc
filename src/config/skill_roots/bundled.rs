//! Finds the skills that Ghost brings: in the directory of `GHOST_BUNDLED_SKILLS_DIR`, else beside the program, in
//! `share/ghost/skills` of its prefix, or in `toolbox/core/skills` of the source tree in which it was built.
//!
//! This module must never look in the current directory, or take a directory above the program that others own: what is there
//! may be anybody's.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::substitute::Env;

/// The variable that names the directory.
pub const VARIABLE: &str = "GHOST_BUNDLED_SKILLS_DIR";

/// The directories in which a source tree is looked for: `target/debug` and those above it, up to
/// `TREE/target/TRIPLE/debug`.
const TREE_LEVELS: usize = 4;

/// The directory with the skills that Ghost brings, if there is one. `user` is the id of the daemon's user.
pub fn directory(env: Env<'_>, program: Option<&Path>, user: u32) -> Option<PathBuf> {
    if let Some(named) = env(VARIABLE).filter(|path| !path.is_empty()) {
        return Some(PathBuf::from(named)).filter(|path| path.is_dir());
    }
    let beside = program?.parent()?;
    let prefix = beside.parent().map(|prefix| prefix.join("share/ghost/skills"));
    // Programs may lie below a directory like /tmp, in which anybody may put a `toolbox`.
    let trusted = |path: &PathBuf| path.metadata().is_ok_and(|facts| [0, user].contains(&facts.uid()));
    let above = beside.ancestors().take(TREE_LEVELS).map(|dir| dir.join("toolbox/core/skills")).filter(trusted);
    std::iter::once(beside.join("skills")).chain(prefix).chain(above).find(|path| path.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn what_others_put_above_the_program_is_not_taken() {
        let root = tempfile::tempdir().unwrap();
        let skills = root.path().join("toolbox/core/skills");
        std::fs::create_dir_all(&skills).unwrap();
        let found = |program: &str, user| directory(&|_| None, Some(&root.path().join(program)), user);
        assert_eq!(found("target/x/debug/ghostd", user()), Some(skills.clone()));
        assert_eq!(found("a/b/c/d/ghostd", user()), None, "too far above");
        // Root may give the directory away; what root owns is trusted by all.
        let owner = if user() == 0 { 12_345 } else { user() };
        std::os::unix::fs::chown(&skills, Some(owner), None).unwrap();
        assert_eq!(found("target/debug/ghostd", owner + 1), None, "it belongs to another user");
    }

    // covers: SKILL-12
    #[test]
    fn they_are_found_by_the_variable_and_from_the_program() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let program = at("a/bin/ghostd");
        let found = |named: Option<&Path>| {
            let env = |name: &str| (name == VARIABLE).then(|| named.map(|path| path.display().to_string())).flatten();
            directory(&env, Some(&program), user())
        };
        assert_eq!(found(None), None);
        for path in ["toolbox/core/skills", "a/share/ghost/skills", "a/bin/skills"] {
            std::fs::create_dir_all(at(path)).unwrap();
            assert_eq!(found(None), Some(at(path)));
        }
        assert_eq!(found(Some(root.path())), Some(root.path().to_owned()));
        assert_eq!(found(Some(&at("none"))), None);
    }
}
