//! Write rules: where in the shared workspace an agent may write. They
//! work on the text of a path. Against symbolic links that leave the workspace, `ghost-tools` opens
//! files through a capability handle.

use crate::ids::AgentId;
use crate::ids::DROIDS;
use crate::refusal::{Refusal, refusal};

/// Longest path in bytes.
pub const PATH_MAX: usize = 1_024;
/// The prefix of temporary files. Agents cannot use names with this prefix.
pub const TEMP_PREFIX: &str = ".ghost-tmp-";
/// The file in the root of a workspace that says to which world it belongs. The daemon writes it; agents cannot see it.
pub const MARK: &str = ".ghost-world";

/// Whether agents cannot see or use a file of this name.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(TEMP_PREFIX) || name == MARK
}

/// Whether a part of a path names git's own directory or the file in its place, also where a file system does not count
/// case, trailing dots or invisible characters, or knows short names. What is in there decides which programs git runs, so
/// only git writes it.
pub fn is_git_place(part: &str) -> bool {
    let is_seen = |c: &char| !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let plain: String = part.chars().filter(is_seen).collect();
    let plain = plain.trim_end_matches(['.', ' ']);
    plain.eq_ignore_ascii_case(".git") || plain.eq_ignore_ascii_case("git~1")
}

/// A path relative to the workspace root: components joined by `/`, never absolute, without `.` or
/// `..`. Only the root itself is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkspacePath(String);

impl WorkspacePath {
    /// Checks and normalises `text`. The root (the empty path) is accepted only with `allow_root`.
    ///
    /// # Errors
    /// `PathDenied` with the reason.
    pub fn parse(text: &str, allow_root: bool) -> Result<Self, Refusal> {
        let denied = |why: &str| {
            Err(refusal!(PathDenied, "path `{}` {why}", crate::text::shown(text, 120))
                .hint("give a path relative to the workspace, for example output/reports/today.md"))
        };
        if text.len() > PATH_MAX {
            return denied("is longer than 1,024 bytes");
        }
        if text.contains('\0') || text.contains('\\') {
            return denied("contains a NUL byte or a backslash");
        }
        if text.chars().any(char::is_control) {
            return denied("contains a control character");
        }
        if text.chars().any(crate::text::is_bidi) {
            return denied("contains a bidirectional control character");
        }
        if text.starts_with('/') {
            return denied("is absolute");
        }
        // Refused even if the path stays inside the workspace: a path in the ledger should be
        // readable as it is.
        if text.split('/').any(|part| part == "..") {
            return denied("contains `..`");
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.is_empty() && !allow_root {
            return denied("names no file");
        }
        if parts.iter().any(|part| part.len() > 255) {
            return denied("has a component longer than 255 bytes");
        }
        Ok(Self(parts.join("/")))
    }

    /// The path as text, without a leading or trailing slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// This path inside `base`.
    pub fn under(&self, base: &str) -> Self {
        let base = base.trim_end_matches('/');
        match (base.is_empty(), self.0.is_empty()) {
            (true, _) => self.clone(),
            (false, true) => Self(base.to_owned()),
            (false, false) => Self(format!("{base}/{}", self.0)),
        }
    }
}

/// The prefixes under which one agent may write. Each ends in `/` and matches whole components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteAcl {
    prefixes: Vec<String>,
}

impl WriteAcl {
    /// The default: the agent's own directory.
    pub fn own_directory(agent: &AgentId) -> Self {
        Self { prefixes: vec![format!("{}/", agent.home())] }
    }

    /// Rules from configuration. Each prefix must be a workspace path that ends in `/`.
    ///
    /// # Errors
    /// `InvalidArguments` or `PathDenied` for a prefix that is not such a path.
    pub fn new(prefixes: &[String]) -> Result<Self, Refusal> {
        let mut checked = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            if !prefix.ends_with('/') {
                return Err(refusal!(InvalidArguments, "write prefix `{prefix}` does not end in `/`")
                    .hint(format!("write `{prefix}/`: a prefix means a whole directory")));
            }
            let path = WorkspacePath::parse(prefix, false)?;
            let is_daemons = |part: &str| is_reserved(&part.to_ascii_lowercase());
            if path.as_str().split('/').any(|part| is_daemons(part) || is_git_place(part)) {
                return Err(refusal!(
                    PathDenied,
                    "write prefix `{prefix}` is reserved: for the daemon itself, or for git"
                )
                .hint("give the directory that agents work in, for example output/reports/"));
            }
            checked.push(format!("{}/", path.as_str()));
        }
        checked.sort();
        checked.dedup();
        Ok(Self { prefixes: checked })
    }

    /// The rules of one agent from configuration. Like [`new`](Self::new), but no prefix may
    /// include another agent's directory.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new), and `InvalidArguments` for such a prefix.
    pub fn of(agent: &AgentId, prefixes: &[String]) -> Result<Self, Refusal> {
        let acl = Self::new(prefixes)?;
        match acl.prefixes.iter().find(|prefix| is_foreign(agent, prefix)) {
            None => Ok(acl),
            Some(prefix) => {
                Err(refusal!(InvalidArguments, "write prefix `{prefix}` includes another agent's directory").hint(
                    format!(
                        "of agents' own directories only `{}/` is for {agent}; send another agent a message instead",
                        agent.home()
                    ),
                ))
            }
        }
    }

    /// The prefixes, sorted.
    pub fn prefixes(&self) -> &[String] {
        &self.prefixes
    }

    /// These rules and the directories of grants. `more` must be checked prefixes.
    pub fn with(&self, more: impl IntoIterator<Item = String>) -> Self {
        let mut prefixes: Vec<String> = self.prefixes.iter().cloned().chain(more).collect();
        prefixes.sort();
        prefixes.dedup();
        Self { prefixes }
    }

    /// Checks that `agent` may write the file at `path`.
    ///
    /// # Errors
    /// `PathDenied` if it may not.
    pub fn check(&self, agent: &AgentId, path: &WorkspacePath) -> Result<(), Refusal> {
        // Checked first, because the other agent may have been created after the prefixes were
        // written.
        if is_foreign(agent, path.as_str()) {
            return Err(refusal!(PathDenied, "{agent} may not write `{}`: it is another agent's", path.as_str())
                .hint("send that agent a message instead"));
        }
        if path.as_str().split('/').any(is_git_place) {
            return Err(in_repository(path));
        }
        // `output` does not match `output/`: a directory is not a file in itself.
        if self.prefixes.iter().any(|prefix| path.as_str().starts_with(prefix.as_str())) {
            return Ok(());
        }
        Err(refusal!(PathDenied, "{agent} may not write `{}`", path.as_str())
            .hint(format!("{agent} may write under: {}", self.prefixes.join(", "))))
    }
}

/// The refusal for a file of git's own.
pub fn in_repository(path: &WorkspacePath) -> Refusal {
    let shown = crate::text::clip(path.as_str(), 120);
    refusal!(PathDenied, "`{shown}` is a file of git's own, which only git itself writes")
        .hint("change a repository with git, if you may run it")
}

/// The directory that contains the agents' own directories.
const AGENTS: &str = "agents";

/// Whether a path or prefix is in the own directory of another agent or droid, or above several.
pub fn is_foreign(agent: &AgentId, path: &str) -> bool {
    let mut parts = path.split('/');
    // The comparison ignores case, because some file systems do.
    let is_home = |first: &str| first.eq_ignore_ascii_case(AGENTS) || first.eq_ignore_ascii_case(DROIDS);
    parts.next().is_some_and(is_home)
        && !path.strip_prefix(&agent.home()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Code;
    use proptest::prelude::*;

    fn acl(prefixes: &[&str]) -> WriteAcl {
        WriteAcl::new(&prefixes.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    // covers: ACL-01, ACL-08, TEST-03
    #[test]
    fn prefixes_match_whole_components() {
        let (acl, chora) = (acl(&["output/", "agents/chora/"]), "chora".parse().unwrap());
        for (path, allowed) in [
            ("output/a.md", true),
            ("output/x/y.md", true),
            ("outputs/a.md", false),
            ("output", false),
            ("agents/chora/n.md", true),
            ("agents/chora2/n.md", false),
            ("./output//a.md", true),
        ] {
            let path = WorkspacePath::parse(path, false).unwrap();
            assert_eq!(acl.check(&chora, &path).is_ok(), allowed, "{path:?}");
        }
    }

    // covers: ACL-03
    #[test]
    fn an_agent_cannot_write_in_another_agents_directory() {
        let chora: AgentId = "chora".parse().unwrap();
        let of = |prefix: &str| WriteAcl::of(&chora, &[prefix.to_owned()]);
        for good in ["agents/chora/", "agents/chora/notes/", "output/", "output/agents/mux/"] {
            assert!(of(good).is_ok(), "{good}");
        }
        for bad in ["agents/", "agents/mux/", "agents/chora2/", "./agents//mux/", "Agents/chora2/"] {
            assert!(of(bad).unwrap_err().hint.is_some_and(|hint| hint.contains("for chora;")), "{bad}");
        }
        // The check also holds for rules that were made before the other agent existed.
        let wide = acl(&["agents/", "output/"]);
        for (path, allowed) in [
            ("agents/chora/n.md", true),
            ("agents/late-1/n.md", false),
            ("agents/late-1", false),
            ("AGENTS/late-1/n.md", false),
            ("output/agents/late-1/n.md", true),
        ] {
            let path = WorkspacePath::parse(path, false).unwrap();
            assert_eq!(wide.check(&chora, &path).is_ok(), allowed, "{path:?}");
        }
    }

    // covers: ACL-01
    #[test]
    fn what_decides_what_git_runs_is_nobodys_to_write() {
        let (acl, ada): (WriteAcl, AgentId) = (acl(&["agents/ada/", "output/"]), "ada".parse().unwrap());
        for bad in [
            "agents/ada/.git/config",
            "agents/ada/r/.git",
            "agents/ada/r/.git/hooks/pre-commit",
            "agents/ada/r/.git/worktrees/x/config.worktree",
            "agents/ada/r/.git/modules/x/config",
            "output/.GIT/config",
            "output/.Git./x",
            "output/.git /x",
            "output/git~1/x",
            "output/.gi\u{200b}t/config",
            "output/a/b/c/d/e/f/.git/info/attributes",
        ] {
            let path = WorkspacePath::parse(bad, false).unwrap();
            assert_eq!(acl.check(&ada, &path).unwrap_err().code, Code::PathDenied, "{bad}");
        }
        for good in
            ["output/.gitignore", "output/.gitattributes", "output/git/config", "output/x.git.md", "output/a.git"]
        {
            assert!(acl.check(&ada, &WorkspacePath::parse(good, false).unwrap()).is_ok(), "{good}");
        }
    }

    // covers: ACL-04
    #[test]
    fn reserved_places_are_no_prefixes() {
        for bad in
            [".ghost-world/", "output/.ghost-world/", ".Ghost-World/x/", ".ghost-tmp-1/", "output/.git/", ".git/hooks/"]
        {
            assert_eq!(WriteAcl::new(&[bad.to_owned()]).unwrap_err().code, Code::PathDenied, "{bad}");
        }
    }

    // covers: ACL-07, TEST-03
    #[test]
    fn paths_that_leave_the_workspace_or_deceive_are_refused() {
        let long = "a/".repeat(600);
        for bad in
            ["../x", "a/../b", "/etc/passwd", "a\\b", "a\0b", "", ".", "a/..", long.as_str(), "a\nb", "a\u{202e}b"]
        {
            assert!(WorkspacePath::parse(bad, false).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_parsed_path_is_clean(text in "[a-z./ \\\\]{0,40}") {
            if let Ok(path) = WorkspacePath::parse(&text, false) {
                prop_assert!(!path.as_str().starts_with('/') && !path.as_str().ends_with('/'));
                prop_assert!(path.as_str().split('/').all(|p| !p.is_empty() && p != "." && p != ".."));
                prop_assert_eq!(WorkspacePath::parse(path.as_str(), false).unwrap(), path);
            }
        }

        #[test]
        fn nothing_outside_the_prefixes_is_allowed(text in "[a-z./]{1,40}") {
            let (acl, agent) = (acl(&["output/reports/"]), "a".parse().unwrap());
            if let Ok(path) = WorkspacePath::parse(&text, false) && acl.check(&agent, &path).is_ok() {
                prop_assert!(path.as_str().starts_with("output/reports/"));
            }
        }
    }
}
