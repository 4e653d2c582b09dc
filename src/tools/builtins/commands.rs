//! The tools that run commands in the world's sandbox (BI-10, BI-12). The command policy judges a shell line before it
//! runs; the sandbox keeps it inside, whatever it does.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::text::clip;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Code, Refusal, Timestamp};
use ghost_operations::grants;
use ghost_policy::{Action, judge};
use ghost_sandbox::{Command, End, Finished};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::common::{not_blank, without_nulls};
use crate::context::CallContext;
use crate::outputs::Before;
use crate::tool::{Output, OutsideTool};

/// Progress is shown at most so often.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// Characters of one piece of progress.
const PROGRESS_CHARS: usize = 200;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CliParams {
    /// The command line, for bash.
    command: String,
    /// The directory to run it in, relative to the workspace; your own directory if absent.
    #[serde(default)]
    cwd: Option<String>,
    /// Milliseconds after which it is killed.
    #[serde(default)]
    timeout_ms: Option<u64>,
    /// Variables, by name.
    #[serde(default)]
    env: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PythonParams {
    /// The Python 3 source.
    code: String,
    /// The arguments: sys.argv[1:].
    #[serde(default)]
    args: Vec<String>,
    /// The directory to run it in, relative to the workspace; your own directory if absent.
    #[serde(default)]
    cwd: Option<String>,
    /// Milliseconds after which it is killed.
    #[serde(default)]
    timeout_ms: Option<u64>,
}

/// What a command needs besides its words.
struct Request {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    stdin: Vec<u8>,
    cwd: Option<String>,
    timeout_ms: Option<u64>,
    /// The longest time that the command policy allows.
    timeout_max_ms: Option<u64>,
}

/// Runs a command for the caller and shows its output.
async fn run(call: &CallContext, request: Request) -> Result<Output, Refusal> {
    let Some(sandbox) = call.services.sandbox() else {
        return Err(Refusal::new(Code::Unavailable, "this world has no sandbox").hint("do it without commands"));
    };
    let plan = &call.services.plan().sandbox;
    let own = format!("agents/{}", call.caller.agent_id);
    let dir = match &request.cwd {
        None => own,
        Some(text) => WorkspacePath::parse(text, true)?.as_str().to_owned(),
    };
    let most = request.timeout_max_ms.map_or(plan.max_timeout, |ms| plan.max_timeout.min(Duration::from_millis(ms)));
    let timeout = request.timeout_ms.map_or(plan.default_timeout, Duration::from_millis).min(most);
    // Read for each command, so that a new grant holds from the next one and a revoked one for no more.
    let writable = call.writable().await?;
    let before = Before::look(call, &writable.prefixes).await;
    let command = Command {
        agent_id: call.caller.agent_id.clone(),
        argv: request.argv,
        dir: dir.clone(),
        env: request.env,
        stdin: request.stdin,
        timeout,
        writable: writable.prefixes,
        stdout_limit: plan.stdout_limit,
        stderr_limit: plan.stderr_limit,
    };
    let shown_at = Mutex::new(Timestamp(i64::MIN));
    let progress = |text: &str| {
        let now = call.services.ctx.now();
        // A poisoned lock means that another piece panicked; the next one may be shown.
        let mut last = shown_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if now.since(*last) >= PROGRESS_EVERY {
            *last = now;
            let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            call.progress(&clip(line, PROGRESS_CHARS));
        }
    };
    let done = sandbox.run(command, &progress).await?;
    let mut output = shown(&done, &dir, timeout);
    for grant_id in writable.grants {
        output.events.push(grants::used(&call.caller.agent_id, call.turn_id, call.call_id, grant_id, None));
    }
    before.into_output(call, &mut output).await;
    Ok(output)
}

fn shown(done: &Finished, dir: &str, timeout: Duration) -> Output {
    let (exit_code, signal) = match done.end {
        End::Exited(code) => (Some(code), None),
        End::Signal(number) => (None, Some(number)),
        _ => (None, None),
    };
    let error = match done.end {
        End::Exited(_) | End::Signal(_) => None,
        End::Deadline => Some(format!("Command timed out after {}ms", timeout.as_millis())),
        End::Memory => Some("the command used more memory than sandbox.memory_mb, and was killed".to_owned()),
        End::Processes => Some("the command had more processes than sandbox.pids, and was killed".to_owned()),
        End::Disk => Some("the command wrote more than sandbox.disk_mb, and was killed".to_owned()),
        End::Killed | End::Lost => Some("the command was interrupted; check what it did".to_owned()),
    };
    let truncated = done.stdout.truncated || done.stderr.truncated;
    let content = without_nulls(json!({
        "status": done.end.status(), "exit_code": exit_code, "signal": signal, "error": error,
        "stdout": done.stdout.text, "stderr": (!done.stderr.text.is_empty()).then_some(&done.stderr.text),
        "duration_ms": u64::try_from(done.duration.as_millis()).unwrap_or(u64::MAX),
        "timed_out": (done.end == End::Deadline).then_some(true), "truncated": truncated.then_some(true),
        "cwd": if dir.is_empty() { "." } else { dir },
    }));
    // The ledger counts a command that ended with an error as a failed call.
    let failed = match done.end {
        End::Exited(0) => None,
        End::Deadline => Some(Code::Timeout),
        _ => Some(Code::ExecFailed),
    };
    // The outputs are cut and marked already.
    Output { content, failed, ..Output::default() }
}

pub(super) struct Cli;

#[async_trait]
impl OutsideTool for Cli {
    type Params = CliParams;

    async fn run(&self, call: &CallContext, params: CliParams) -> Result<Output, Refusal> {
        not_blank("command", &params.command)?;
        let plan = call.services.plan();
        let groups: Vec<&str> = call.caller.groups.iter().map(String::as_str).collect();
        let judged = judge(&plan.cli_policy, &groups, &params.command);
        if judged.action != Action::Allow {
            let why = judged.reason.map_or_else(|| "the command is not allowed".to_owned(), |why| why.to_string());
            let refusal = Refusal::new(Code::PolicyDenied, why);
            return Err(match judged.action {
                Action::Ask => refusal.hint("nobody can approve commands yet; do it in another way"),
                Action::Allow | Action::Deny => refusal.hint("nothing was run"),
            });
        }
        // Variables decide what programs do, and the policy judges only the line.
        if let Some(name) = params.env.keys().find(|name| !is_plain_variable(name)) {
            return Err(Refusal::new(Code::PolicyDenied, format!("the variable `{}` may not be set", clip(name, 80)))
                .hint("variables that change what programs run or load are refused; use another name"));
        }
        let argv = ["/bin/bash", "--norc", "--noprofile", "-c", &params.command].map(str::to_owned).to_vec();
        let request = Request {
            argv,
            env: params.env.into_iter().collect(),
            stdin: Vec::new(),
            cwd: params.cwd,
            timeout_ms: params.timeout_ms,
            timeout_max_ms: judged.max_timeout_ms,
        };
        run(call, request).await
    }
}

/// Whether a variable is a name, and none that changes what programs run or load (EXEC-13).
fn is_plain_variable(name: &str) -> bool {
    let is_name = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let starts = ["LD_", "DYLD_", "GIT_", "BASH_", "PYTHON", "PERL", "RUBY", "NODE_", "JAVA_", "GCONV_", "LC_"];
    let whole = [
        "PATH",
        "HOME",
        "SHELL",
        "ENV",
        "IFS",
        "CDPATH",
        "PS4",
        "PROMPT_COMMAND",
        "SHELLOPTS",
        "BASHOPTS",
        "PAGER",
        "EDITOR",
        "VISUAL",
        "BROWSER",
        "LANG",
        "LANGUAGE",
        "TERMINFO",
        "TERMCAP",
        "LESSOPEN",
        "LESSCLOSE",
        "RIPGREP_CONFIG_PATH",
        "TAR_OPTIONS",
        "MAKEFLAGS",
        "RUSTC_WRAPPER",
        "GLOBIGNORE",
        "POSIXLY_CORRECT",
        "MANPAGER",
        "HOSTALIASES",
        "LOCPATH",
        "NLSPATH",
    ];
    let upper = name.to_ascii_uppercase();
    is_name && !whole.contains(&upper.as_str()) && !starts.iter().any(|start| upper.starts_with(start))
}

pub(super) struct Python;

#[async_trait]
impl OutsideTool for Python {
    type Params = PythonParams;

    async fn run(&self, call: &CallContext, params: PythonParams) -> Result<Output, Refusal> {
        not_blank("code", &params.code)?;
        // The code goes through standard input: it needs no file that a crash could leave, and has no limit of an argument.
        let mut argv = vec!["python3".to_owned(), "-I".to_owned(), "-".to_owned()];
        argv.extend(params.args);
        let request = Request {
            argv,
            env: Vec::new(),
            stdin: params.code.into_bytes(),
            cwd: params.cwd,
            timeout_ms: params.timeout_ms,
            timeout_max_ms: None,
        };
        run(call, request).await
    }
}

/// The longest time of a call, in seconds: more than `sandbox.max_timeout_ms` may be, so that the sandbox ends the command.
pub(super) const TIME_MAX: u32 = 86_430;

/// Names of the tools that need a sandbox.
pub const NEED_SANDBOX: [&str; 2] = ["tool.cli", "tool.python"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    // covers: EXEC-13
    #[test]
    fn variables_that_decide_what_runs_are_refused() {
        for name in
            ["PATH", "ld_preload", "LD_LIBRARY_PATH", "GIT_SSH_COMMAND", "BASH_ENV", "ENV", "A-B", "", "1A", "A=B"]
        {
            assert!(!is_plain_variable(name), "{name}");
        }
        for name in ["MODE", "_x", "RUST_LOG"] {
            assert!(is_plain_variable(name), "{name}");
        }
    }

    #[test]
    fn a_timeout_has_the_shape_that_models_know() {
        let captured = |text: &str| ghost_sandbox::Captured { text: text.into(), bytes: 0, truncated: false };
        let done = Finished {
            end: End::Deadline,
            duration: Duration::from_millis(1_000),
            cpu: Duration::ZERO,
            stdout: captured("a"),
            stderr: captured("b"),
            in_force: 0,
        };
        let shown: Value = shown(&done, "", Duration::from_millis(900)).content;
        assert_eq!((&shown["error"], &shown["stderr"]), (&json!("Command timed out after 900ms"), &json!("b")));
        assert_eq!(
            (&shown["status"], &shown["timed_out"], &shown["cwd"]),
            (&json!("timed_out"), &json!(true), &json!("."))
        );
    }
}
