//! Finds the skills that Ghost brings (SKILL-12): in the directory of `GHOST_BUNDLED_SKILLS_DIR`, else beside the program, in
//! `share/ghost/skills` of its prefix, or in `toolbox/core/skills` of a directory above it.
//!
//! This module must never look in the current directory: what is there may be anybody's.

use std::path::{Path, PathBuf};

use crate::substitute::Env;

/// The variable that names the directory.
pub const VARIABLE: &str = "GHOST_BUNDLED_SKILLS_DIR";

/// The directory with the skills that Ghost brings, if there is one.
pub fn directory(env: Env<'_>, program: Option<&Path>) -> Option<PathBuf> {
    if let Some(named) = env(VARIABLE).filter(|path| !path.is_empty()) {
        return Some(PathBuf::from(named)).filter(|path| path.is_dir());
    }
    let beside = program?.parent()?;
    let prefix = beside.parent().map(|prefix| prefix.join("share/ghost/skills"));
    let above = beside.ancestors().map(|dir| dir.join("toolbox/core/skills"));
    std::iter::once(beside.join("skills")).chain(prefix).chain(above).find(|path| path.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: SKILL-12
    #[test]
    fn they_are_found_by_the_variable_and_from_the_program() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let program = at("a/bin/ghostd");
        let found = |named: Option<&Path>| {
            let env = |name: &str| (name == VARIABLE).then(|| named.map(|path| path.display().to_string())).flatten();
            directory(&env, Some(&program))
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
