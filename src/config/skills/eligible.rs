//! Whether this machine has what a skill needs.
//!
//! This module must never run a program.

use std::path::Path;

use super::head::Requirements;
use crate::substitute::Env;

impl Requirements {
    /// What is missing on this machine, in words; empty if the skill can be used.
    #[must_use]
    pub fn missing(&self, env: Env<'_>) -> Vec<String> {
        // Other programs call this system `linux` and macOS `darwin`.
        let os = if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS };
        let mut missing = Vec::new();
        if !self.os.is_empty() && !self.os.iter().any(|name| name.eq_ignore_ascii_case(os)) {
            missing.push(format!("the operating system {}", self.os.join(" or ")));
        }
        if self.always {
            return missing;
        }
        let path = env("PATH").unwrap_or_default();
        let has = |bin: &String| is_on_path(&path, bin);
        missing.extend(self.bins.iter().filter(|bin| !has(bin)).map(|bin| format!("the program `{bin}`")));
        if !self.any_bins.is_empty() && !self.any_bins.iter().any(has) {
            missing.push(format!("one of the programs {}", self.any_bins.join(", ")));
        }
        let is_set = |name: &String| env(name).is_some_and(|value| !value.is_empty());
        missing.extend(self.env.iter().filter(|name| !is_set(name)).map(|name| format!("the variable `{name}`")));
        missing.extend(self.config.iter().map(|name| format!("the setting `{name}`, which Ghost does not have")));
        missing
    }
}

fn is_on_path(path: &str, bin: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let is_program =
        |file: &Path| file.metadata().is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0);
    let is_plain = !bin.is_empty() && !bin.contains(['/', '\0']) && bin != ".." && bin != ".";
    is_plain && std::env::split_paths(path).any(|dir| is_program(&dir.join(bin)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: SKILL-21
    #[test]
    fn what_is_missing_is_named() {
        let env = |name: &str| match name {
            "PATH" => Some("/usr/bin:/bin".to_owned()),
            "KEY" => Some("k".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let count = |needs: Requirements| needs.missing(&env).len();
        assert_eq!(count(Requirements::default()), 0);
        assert_eq!(count(Requirements { bins: list(&["sh", "no-such"]), ..Default::default() }), 1);
        assert_eq!(count(Requirements { bins: list(&["../bin/sh", "bin", ""]), ..Default::default() }), 3);
        assert_eq!(count(Requirements { any_bins: list(&["no-such", "sh"]), ..Default::default() }), 0);
        assert_eq!(count(Requirements { any_bins: list(&["no-such"]), ..Default::default() }), 1);
        assert_eq!(count(Requirements { env: list(&["KEY", "EMPTY", "NONE"]), ..Default::default() }), 2);
        assert_eq!(count(Requirements { config: list(&["a.b"]), ..Default::default() }), 1);
        assert_eq!(count(Requirements { always: true, bins: list(&["no-such"]), ..Default::default() }), 0);
        let elsewhere = Requirements { always: true, os: list(&["plan9"]), ..Default::default() };
        assert_eq!(count(elsewhere), 1);
    }
}
