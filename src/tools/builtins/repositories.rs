//! Which places of the workspace and which repositories a command line would use, whether git runs nothing but itself there
//! (a `.git/config` is code that whoever may write it chooses), and who commits.
//!
//! It must never find fewer places than the line has: a place that is known only when the line runs is a reason by itself.

use ghost_config::plan::Plan;
use ghost_domain::text::clip;
use ghost_domain::write_acl::is_git_place;
use ghost_domain::{AgentId, refusal};
use ghost_operations::Result;
use ghost_policy::{JudgedCommand, Judgement, TierName};

use crate::context::{Caller, WorldServices};
use crate::workspace::{GitLook, GitPlaces};

/// Programs that write none of the files that they name, if the policy lets them run.
const READERS: [&str; 14] =
    ["ls", "cat", "head", "tail", "grep", "rg", "find", "fd", "wc", "stat", "tree", "file", "diff", "du"];

/// What git would find for the line in this directory; `None` if the line has no git.
///
/// # Errors
/// `Unavailable` if nothing can be looked at.
pub(super) async fn look(
    services: &WorldServices,
    caller: &Caller,
    judgement: &Judgement,
    dir: &str,
) -> Result<Option<GitLook>> {
    if judgement.git.is_empty() {
        return Ok(None);
    }
    let seen_at = services.sandbox().map(|sandbox| sandbox.workspace_path()).unwrap_or_default();
    let places = match places(caller, judgement, dir, seen_at) {
        Ok(places) => places,
        Err(why) => return Ok(Some(GitLook { foreign: Some(why), ..GitLook::default() })),
    };
    services.workspace.look_at_repositories(places).await.map(Some)
}

/// Why a line that the policy allows needs an approval all the same: its git may run what a repository names. An agent
/// that may run anything needs none.
///
/// # Errors
/// Those of [`look`].
pub(super) async fn need(
    services: &WorldServices,
    caller: &Caller,
    judgement: &Judgement,
    dir: &str,
) -> Result<Option<String>> {
    let found = look(services, caller, judgement, dir).await?;
    Ok(found.and_then(|found| reason(&services.plan(), caller, judgement, &found)))
}

/// As [`need`], for what was found.
pub(super) fn reason(plan: &Plan, caller: &Caller, judgement: &Judgement, found: &GitLook) -> Option<String> {
    if is_unrestricted(plan, caller) || !judgement.git.iter().any(|git| git.allowed) {
        return None;
    }
    found.foreign.as_ref().map(|why| format!("git may run other programs here: {why}"))
}

/// Subcommands of git that run hooks elsewhere.
const HOOKED: [&str; 11] =
    ["commit", "merge", "push", "checkout", "switch", "rebase", "cherry-pick", "revert", "pull", "am", "worktree"];

/// What the agent is told if the repository has hooks that such a line would run elsewhere: Ghost switches them off.
pub(super) fn note_on_hooks(judgement: &Judgement, found: &GitLook) -> Option<String> {
    let is_hooked = |word: &String| HOOKED.contains(&word.as_str());
    let mut git = judgement.commands.iter().filter(|command| command.name == "git");
    let hooks = (!found.hooks.is_empty()).then(|| clip(&found.hooks.join(", "), 200))?;
    git.any(|command| command.argv.iter().flatten().any(is_hooked)).then(|| {
        format!("git runs no hooks in the sandbox; this repository has {hooks}: run what they check by yourself")
    })
}

/// Whether the agent may run anything without asking.
fn is_unrestricted(plan: &Plan, caller: &Caller) -> bool {
    let groups: Vec<&str> = caller.groups.iter().map(String::as_str).collect();
    plan.cli_policy.is_unrestricted(&groups)
}

fn places(caller: &Caller, judgement: &Judgement, dir: &str, seen_at: String) -> Result<GitPlaces, String> {
    let commands = &judgement.commands;
    let is_move = |command: &&JudgedCommand| matches!(command.name.as_str(), "cd" | "pushd" | "popd");
    if commands.iter().filter(is_move).any(|command| command.argv.iter().any(Option::is_none)) {
        return Err("the directory of git is known only when the line runs".to_owned());
    }
    let mut bases = bases(&seen_at, dir, commands).map_err(|refusal| refusal.message)?;
    // `cd` alone.
    bases.push(caller.agent_id.home());
    let mut dirs = Vec::with_capacity(judgement.git.len());
    for git in &judgement.git {
        let Some(steps) = &git.dirs else {
            return Err("the repository of git is known only when the line runs".to_owned());
        };
        let mut here = Vec::with_capacity(bases.len());
        for base in &bases {
            let mut at = base.clone();
            for step in steps {
                // Links count here: `..` behind one leads elsewhere than the text says.
                at = match step.starts_with('/') {
                    true => below(&seen_at, "", step).ok_or_else(|| format!("`{step}` is outside the workspace"))?,
                    false if at.is_empty() => step.clone(),
                    false => format!("{at}/{step}"),
                };
            }
            here.push(at);
        }
        dirs.push(here);
    }
    let others = || commands.iter().filter(|command| command.name != "git" && command.tier != TierName::Shell);
    let inside = |word: &&String| word.split('/').any(is_git_place);
    let writers = others().filter(|command| !READERS.contains(&command.name.as_str()));
    if let Some(word) = writers.flat_map(|command| command.argv.iter().flatten()).find(inside) {
        return Err(format!("the line may change `{}` before git reads it", clip(word, 80)));
    }
    let git = commands.iter().filter(|command| command.name == "git");
    if let Some(word) = git.flat_map(|command| command.argv.iter().flatten()).find(|word| enters_submodules(word)) {
        return Err(format!("`{}` lets git work in submodules, with the configuration of each", clip(word, 80)));
    }
    let written = judgement.files.iter().flat_map(|file| bases.iter().filter_map(|base| below(&seen_at, base, file)));
    let written = written.collect();
    Ok(GitPlaces { dirs, written, may_make: others().next().is_some(), seen_at })
}

/// Whether an option of git, or an abbreviation of it, overrides that submodules are not entered.
fn enters_submodules(word: &str) -> bool {
    let given = word.split('=').next().unwrap_or_default();
    // `git describe --dirty` looks at the working copies of submodules.
    ["--dirty", "--broken"].iter().any(|long| given.len() > 3 && long.starts_with(given))
        || given.len() > 3
            && ["--submodule", "--ignore-submodules", "--recurse-submodules"].iter().any(|long| long.starts_with(given))
}

/// The files of a look that an approval for good binds, or why there can be none.
pub(super) fn bound(found: Option<GitLook>) -> Result<Vec<String>, String> {
    match found {
        None => Ok(Vec::new()),
        Some(GitLook { foreign: Some(why), .. }) => Err(format!("git may run other programs: {why}")),
        Some(found) => Ok(found.files),
    }
}

/// Directories that a line may change to.
const BASES_MAX: usize = 32;

/// The directories in which the line may name files: it may change its directory before, more than once.
pub(super) fn bases(root: &str, dir: &str, commands: &[JudgedCommand]) -> Result<Vec<String>> {
    let mut bases = vec![dir.to_owned(), String::new()];
    for command in commands.iter().filter(|command| matches!(command.name.as_str(), "cd" | "pushd")) {
        let targets: Vec<&String> = command.argv.iter().flatten().skip(1).collect();
        let further: Vec<String> =
            bases.iter().flat_map(|base| targets.iter().filter_map(|target| below(root, base, target))).collect();
        bases.extend(further);
        bases.sort();
        bases.dedup();
        if bases.len() > BASES_MAX {
            return Err(refusal!(TooLarge, "the line changes its directory too often to be approved")
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

/// The variables of git for commands of an agent, without those in `set` and those that the sandbox of the world sets.
pub(crate) fn git_identity<'s>(
    plan: &Plan,
    agent_id: &AgentId,
    set: impl Iterator<Item = &'s String> + Clone,
) -> Vec<(String, String)> {
    let email = format!("{agent_id}@{}.invalid", plan.world_id);
    let of_world = |name: &str| {
        let passes = plan.sandbox.passthrough_env.iter().any(|passed| passed == name);
        plan.sandbox.env.contains_key(name) || (passes && std::env::var_os(name).is_some())
    };
    ["AUTHOR", "COMMITTER"]
        .into_iter()
        .flat_map(|role| {
            [(format!("GIT_{role}_NAME"), agent_id.to_string()), (format!("GIT_{role}_EMAIL"), email.clone())]
        })
        .filter(|(name, _)| !of_world(name) && !set.clone().any(|given| given == name))
        .collect()
}

#[cfg(test)]
mod line_places_tests {
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

#[cfg(test)]
mod identity_tests {
    use ghost_config::testing::WorldFiles;

    use super::*;

    // covers: SBX-06
    #[test]
    fn a_commit_names_its_agent_unless_somebody_says_otherwise() {
        let world = "world: { id: desk, name: Desk }\nagents: [{ id: ada, archetype: clerk }]\n\
            llm: { default_provider: p, default_model: m, providers: { p: { kind: openai, base_url: 'http://127.0.0.1:1' } } }\n";
        let files = WorldFiles::new(world, "");
        files.archetype("clerk", "");
        let (mut plan, ada): (Plan, AgentId) = (files.plan(), "ada".parse().unwrap());
        let of = |plan: &Plan, set: &[String]| git_identity(plan, &ada, set.iter());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (author, committer) = (pair("GIT_AUTHOR_NAME", "ada"), pair("GIT_COMMITTER_NAME", "ada"));
        let emails = ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"].map(|name| pair(name, "ada@desk.invalid"));
        assert_eq!(of(&plan, &[]), [author.clone(), emails[0].clone(), committer.clone(), emails[1].clone()]);
        assert_eq!(of(&plan, &["GIT_AUTHOR_EMAIL".into()]), [author, committer, emails[1].clone()]);
        plan.sandbox.env.insert("GIT_AUTHOR_NAME".into(), "Bot".into());
        plan.sandbox.env.insert("GIT_COMMITTER_NAME".into(), "Bot".into());
        assert_eq!(of(&plan, &[]), emails);
    }
}
