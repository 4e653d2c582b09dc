//! What a command would run, for its approval: its argv, directory, variables and sandbox, and the content of
//! the workspace files that it names, so that a script cannot change between the answer and the run.
//!
//! What a program opens on its own is not bound. So an approval can hold for later calls only if the policy knows each
//! program of the line to run nothing else, every shell script of it as well, and git finds a plain repository. It must
//! never bind less than what runs and say nothing.

use std::collections::BTreeSet;

use async_trait::async_trait;
use ghost_config::plan::Plan;
use ghost_domain::text::clip;
use ghost_domain::{ApprovalPlan, BoundFile, Code, WorkspacePath, refusal};
use ghost_operations::Result;
use ghost_policy::{Action, Judgement, Script};
use serde_json::Value;

use super::commands::{CliParams, PythonParams, bash_argv, directory, judged, python_argv};
use super::repositories::{self, bases, below};
use crate::context::{CallContext, Caller, WorldServices};
use crate::parameters::parse;
use crate::tool::{Approvable, Need};

/// Files that one command may name.
const FILES_MAX: usize = 64;
/// Bytes of a script that is judged.
const SCRIPT_BYTES: u64 = 32 * 1024;
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

    async fn closer(&self, services: &WorldServices, caller: &Caller, arguments: &Value) -> Result<Option<String>> {
        // What does not fit the parameters is refused when the call runs.
        let Ok(params) = parse::<CliParams>(arguments.clone()) else { return Ok(None) };
        let judgement = judged(&services.plan(), caller, &params.command);
        let Ok(dir) = directory(caller, params.cwd.as_deref()) else { return Ok(None) };
        match judgement.action {
            Action::Allow => repositories::need(services, caller, &judgement, &dir).await,
            Action::Ask | Action::Deny => Ok(None),
        }
    }

    async fn plan(&self, call: &CallContext, arguments: &Value) -> Result<ApprovalPlan> {
        let params: CliParams = parse(arguments.clone())?;
        let judgement = judged(&call.services.plan(), &call.caller, &params.command);
        let dir = directory(&call.caller, params.cwd.as_deref())?;
        let root = workspace_path(call);
        let bases = bases(&root, &dir, &judgement.commands)?;
        let mut words: BTreeSet<String> = judgement.files.iter().cloned().collect();
        for command in &judgement.commands {
            words.extend(command.argv.iter().flatten().cloned());
            words.insert(command.name.clone());
        }
        let once_only = match elsewhere(&root, &judgement).or_else(|| several(&judgement)) {
            Some(why) => Some(why),
            None => {
                let mut lines = vec![judgement];
                match scripts(call, &bases, &mut lines).await? {
                    Some(why) => Some(why),
                    None => settings(call, &lines, (&dir, &bases), &mut words).await?,
                }
            }
        };
        let (argv, env) = (bash_argv(&params.command), params.env);
        let files = bound_files(call, &bases, words).await?;
        let plan = ApprovalPlan { argv, env, files, once_only, ..of_command(call, "tool.cli", arguments, dir) };
        Ok(plan)
    }
}

/// Why the line can be approved once only, by its words alone.
fn elsewhere(root: &str, judgement: &Judgement) -> Option<String> {
    let word = judgement.commands.iter().flat_map(|command| command.argv.iter().flatten());
    let outside = word.into_iter().find(|word| is_elsewhere(root, word));
    let unbound = judgement.unbound.as_ref().map(ToString::to_string);
    unbound.or_else(|| outside.map(|word| format!("`{}` is outside the workspace", clip(word, 80))))
}

/// Programs that only run the command in their arguments.
const WRAPPERS: [&str; 9] = ["env", "timeout", "nice", "nohup", "stdbuf", "setsid", "time", "command", "exec"];

/// Why a line with a script or git can be approved once only: another of its commands may change what they read after it was
/// bound.
fn several(judgement: &Judgement) -> Option<String> {
    let is_main = |name: &str| !matches!(name, "cd" | "pushd" | "popd" | "true" | "echo") && !WRAPPERS.contains(&name);
    let main = judgement.commands.iter().filter(|command| is_main(&command.name)).count();
    let bound = !judgement.scripts.is_empty() || !judgement.git.is_empty();
    (bound && main > 1).then(|| "another command of the line may change what its script or git reads".to_owned())
}

/// Why the scripts of the line leave it to be approved once only. A script is bound by its content, so each of its commands
/// has to be known as well. Adds the judgements of the scripts.
async fn scripts(call: &CallContext, bases: &[String], lines: &mut Vec<Judgement>) -> Result<Option<String>> {
    let root = workspace_path(call);
    let named: Vec<Script> = lines.iter().flat_map(|line| line.scripts.clone()).collect();
    for script in named {
        let shown = clip(&script.path, 80);
        let paths: BTreeSet<String> = bases.iter().filter_map(|base| below(&root, base, &script.path)).collect();
        let mut is_there = false;
        for path in paths {
            let Ok(path) = WorkspacePath::parse(&path, false) else { continue };
            let text = match call.services.workspace.text_for_change(&path, SCRIPT_BYTES).await {
                Ok(None) => continue,
                Ok(Some(text)) => text,
                Err(refusal) if refusal.code == Code::NotFound => continue,
                Err(_) => return Ok(Some(format!("`{shown}` is no plain text of at most {SCRIPT_BYTES} bytes"))),
            };
            is_there = true;
            let Some(shell) = shell_of(&script, &text) else {
                return Ok(Some(format!("`{shown}` is no script of a shell, so what it loads is not known")));
            };
            // Its first line is a comment to the shell. Others could be a part of a word.
            let rest = if text.starts_with("#!") { text.split_once('\n').map_or("", |(_, rest)| rest) } else { &text };
            let quoted = rest.replace('\'', "'\\''");
            let inner = judged(&call.services.plan(), &call.caller, &format!("{shell} -c '{quoted}'"));
            if let Some(why) = elsewhere(&root, &inner) {
                return Ok(Some(format!("in `{shown}`: {why}")));
            }
            if !inner.scripts.is_empty() {
                return Ok(Some(format!("`{shown}` runs further scripts")));
            }
            lines.push(inner);
        }
        if !is_there {
            return Ok(Some(format!("`{shown}` is not in the workspace")));
        }
    }
    Ok(None)
}

/// The shell that reads a script; `None` if something else does.
fn shell_of(script: &Script, text: &str) -> Option<&'static str> {
    if !script.shell.is_empty() {
        return Some(script.shell);
    }
    let first = text.lines().next().unwrap_or_default();
    match first.strip_prefix("#!").map(str::trim) {
        // Bash reads what the kernel does not start.
        None => (!text.is_empty()).then_some("bash"),
        Some("/bin/sh" | "/usr/bin/sh" | "/usr/bin/env sh") => Some("sh"),
        Some("/bin/bash" | "/usr/bin/bash" | "/usr/bin/env bash") => Some("bash"),
        Some(_) => None,
    }
}

/// Why the repositories of the lines leave them to be approved once only. Adds the files that git reads to `words`.
async fn settings(
    call: &CallContext,
    lines: &[Judgement],
    (dir, bases): (&String, &[String]),
    words: &mut BTreeSet<String>,
) -> Result<Option<String>> {
    for (nth, line) in lines.iter().enumerate() {
        // A script works where the line has gone before it.
        let dirs = if nth == 0 { std::slice::from_ref(dir) } else { bases };
        for dir in dirs {
            match repositories::bound(repositories::look(&call.services, &call.caller, line, dir).await?) {
                Ok(files) => words.extend(files),
                Err(why) => return Ok(Some(why)),
            }
        }
    }
    Ok(None)
}

/// Calls of `tool.python`.
pub(super) struct PythonApproval;

#[async_trait]
impl Approvable for PythonApproval {
    fn need(&self, _: &Plan, _: &Caller, _: &Value) -> Need {
        Need::Nothing
    }

    async fn plan(&self, call: &CallContext, arguments: &Value) -> Result<ApprovalPlan> {
        let params: PythonParams = parse(arguments.clone())?;
        let dir = directory(&call.caller, params.cwd.as_deref())?;
        let words = params.args.iter().cloned().collect();
        let files = bound_files(call, &[dir.clone(), String::new()], words).await?;
        // The code is in the plan, but not what it imports, opens or starts.
        let once_only = Some("Python code may run or load what is not in it".to_owned());
        Ok(ApprovalPlan {
            argv: python_argv(params.args),
            files,
            once_only,
            ..of_command(call, "tool.python", arguments, dir)
        })
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

/// The workspace files that these words name, in order of path.
async fn bound_files(call: &CallContext, bases: &[String], words: BTreeSet<String>) -> Result<Vec<BoundFile>> {
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
            return Err(refusal!(TooLarge, "the command names more than {FILES_MAX} files of the workspace")
                .hint("split it into several calls"));
        }
    }
    // A command of the agent that still runs could change a file between the check and the run.
    if !files.is_empty()
        && let Some(running) = call.services.processes.of(&call.caller.agent_id).iter().find(|one| one.runs())
    {
        return Err(refusal!(
            Conflict,
            "{} runs in the background and could change `{}`",
            running.session_id,
            files[0].path
        )
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
}
