//! What a command would run, for its approval (EXEC-10): its argv, directory, variables and sandbox, and the content of
//! the workspace files that it names, so that a script cannot change between the answer and the run.
//!
//! Files that a named program opens on its own are not bound. `docs/security.md` says so. If a word is known only when
//! the line runs, or names a file elsewhere, the approval can hold for one call only.

use std::collections::BTreeSet;

use async_trait::async_trait;
use ghost_config::plan::Plan;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{ApprovalPlan, BoundFile, Code, Refusal};
use ghost_policy::Action;
use serde_json::Value;

use super::commands::{CliParams, PythonParams, bash, directory, judged, python};
use crate::approval::{Approvable, Need};
use crate::context::{CallContext, Caller};
use crate::parameters::parse;

/// Files that one command may name.
const FILES_MAX: usize = 64;
/// Directories that a line may change to.
const BASES_MAX: usize = 32;
/// Directories whose files no agent can change.
const SYSTEM: [&str; 6] = ["/bin", "/etc", "/lib", "/opt", "/sbin", "/usr"];

/// Calls of `tool.cli`.
pub(super) struct CliApproval;

#[async_trait]
impl Approvable for CliApproval {
    fn need(&self, plan: &Plan, caller: &Caller, arguments: &Value) -> Need {
        let Some(line) = arguments.get("command").and_then(Value::as_str) else { return Need::Refused };
        let judgement = judged(plan, caller, line);
        match judgement.action {
            Action::Allow => Need::Nothing,
            Action::Ask => Need::Approval(judgement.reason.map_or_else(String::new, |reason| reason.to_string())),
            Action::Deny => Need::Refused,
        }
    }

    async fn plan(&self, call: &CallContext, arguments: &Value) -> Result<ApprovalPlan, Refusal> {
        let params: CliParams = parse(arguments.clone())?;
        let judgement = judged(&call.services.plan(), &call.caller, &params.command);
        let dir = directory(call, params.cwd.as_deref())?;
        let root = workspace_path(call);
        let mut words: BTreeSet<String> = judgement.files.into_iter().collect();
        let mut once_only = None;
        // A line may change its directory before it names a file, more than once.
        let mut bases = vec![dir.clone(), String::new()];
        for command in judgement.commands {
            let literal = command.argv.iter().flatten();
            if matches!(command.name.as_str(), "cd" | "pushd") {
                let targets: Vec<&String> = literal.clone().skip(1).collect();
                let further: Vec<String> = bases
                    .iter()
                    .flat_map(|base| targets.iter().filter_map(|target| below(&root, base, target)))
                    .collect();
                bases.extend(further);
                bases.sort();
                bases.dedup();
                if bases.len() > BASES_MAX {
                    return Err(Refusal::new(
                        Code::TooLarge,
                        "the line changes its directory too often to be approved",
                    )
                    .hint("give cwd instead, or split it into several calls"));
                }
            }
            if command.argv.iter().any(Option::is_none) {
                once_only = Some(format!("what `{}` gets is known only when it runs", command.name));
            }
            if let Some(word) = literal.clone().find(|word| is_elsewhere(&root, word)) {
                once_only = Some(format!("`{word}` is outside the workspace"));
            }
            words.extend(literal.cloned());
            words.insert(command.name);
        }
        let (argv, env) = (bash(&params.command), params.env);
        let files = bound_files(call, &bases, words).await?;
        let plan = ApprovalPlan { argv, env, files, once_only, ..of_command(call, "tool.cli", arguments, dir) };
        Ok(plan)
    }
}

/// Calls of `tool.python`.
pub(super) struct PythonApproval;

#[async_trait]
impl Approvable for PythonApproval {
    fn need(&self, _: &Plan, _: &Caller, _: &Value) -> Need {
        Need::Nothing
    }

    async fn plan(&self, call: &CallContext, arguments: &Value) -> Result<ApprovalPlan, Refusal> {
        let params: PythonParams = parse(arguments.clone())?;
        let dir = directory(call, params.cwd.as_deref())?;
        let words = params.args.iter().cloned().collect();
        let files = bound_files(call, &[dir.clone(), String::new()], words).await?;
        Ok(ApprovalPlan { argv: python(params.args), files, ..of_command(call, "tool.python", arguments, dir) })
    }
}

fn of_command(call: &CallContext, tool: &str, arguments: &Value, dir: String) -> ApprovalPlan {
    ApprovalPlan {
        tool: tool.to_owned(),
        arguments: arguments.clone(),
        dir: Some(dir),
        sandbox: call.services.sandbox().map(|sandbox| sandbox.identity()),
        ..ApprovalPlan::default()
    }
}

/// The path at which commands see the workspace; empty without a sandbox.
fn workspace_path(call: &CallContext) -> String {
    call.services.sandbox().map(|sandbox| sandbox.workspace_path()).unwrap_or_default()
}

/// Whether a word names a file that is neither in the workspace nor a part of the system.
fn is_elsewhere(root: &str, word: &str) -> bool {
    let within = |dir: &str| word.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    word.starts_with('/') && !within(root) && !SYSTEM.iter().any(|dir| within(dir))
}

/// A word as a path relative to the workspace, if it could name something there.
fn below(root: &str, base: &str, word: &str) -> Option<String> {
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

/// The workspace files that these words name, in order of path.
async fn bound_files(call: &CallContext, bases: &[String], words: BTreeSet<String>) -> Result<Vec<BoundFile>, Refusal> {
    let workspace = &call.services.workspace;
    let root = workspace_path(call);
    // `--file=x` names `x`.
    let named = words.iter().flat_map(|word| [Some(word.as_str()), word.split_once('=').map(|(_, value)| value)]);
    let paths: BTreeSet<String> = named
        .flatten()
        .flat_map(|word| bases.iter().filter_map(|base| below(&root, base, word)))
        .filter(|path| !path.is_empty())
        .collect();
    let mut files: Vec<BoundFile> = Vec::new();
    for path in paths {
        // A word that is no path of the workspace names no file there.
        let Ok(path) = WorkspacePath::parse(&path, false) else { continue };
        match workspace.hash(&path).await {
            Ok(None) => {}
            Ok(Some(sha256)) => files.push(BoundFile { path: path.as_str().to_owned(), sha256 }),
            Err(_) if workspace.list(&path, 1, None, 1).await.is_ok() => {}
            Err(refusal) if refusal.code == Code::NotFound => {}
            Err(refusal) => return Err(refusal.hint("a command that needs an approval may name plain files only")),
        }
        if files.len() > FILES_MAX {
            let what = format!("the command names more than {FILES_MAX} files of the workspace");
            return Err(Refusal::new(Code::TooLarge, what).hint("split it into several calls"));
        }
    }
    // A command of the agent that still runs could change a file between the check and the run.
    if !files.is_empty()
        && let Some(running) = call.services.processes.of(&call.caller.agent_id).iter().find(|one| one.runs())
    {
        let what = format!("{} runs in the background and could change `{}`", running.session_id, files[0].path);
        return Err(Refusal::new(Code::Conflict, what)
            .hint("kill your background commands with tool.process before a call that needs an approval"));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_that_can_change_are_noticed() {
        for (word, elsewhere) in [
            ("/usr/bin/env", false),
            ("/w/s/x", false),
            ("x/y", false),
            ("/proc/self/cwd/x", true),
            ("/usrx", true),
            ("/w/sx", true),
        ] {
            assert_eq!(is_elsewhere("/w/s", word), elsewhere, "{word}");
        }
    }

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
