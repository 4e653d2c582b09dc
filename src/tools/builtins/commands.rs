//! The tools that run commands in the world's sandbox. The command policy judges a shell line before it
//! runs; the sandbox keeps it inside, whatever it does.

use std::sync::Mutex;
use std::time::Duration;

use ghost_config::plan::{Plan, SandboxKind};
use ghost_domain::ids::GrantId;
use ghost_domain::{Code, Timestamp};
use ghost_operations::grants;
use ghost_policy::{Action, Judgement, judge};
use ghost_sandbox::{Command, End, Feed, Finished};

use super::common::*;
use super::repositories::{self, git_identity};
use crate::context::{Caller, Writable};
use crate::manifest::Before;
use crate::processes::{NewProcess, ProcessState};

/// Progress is shown at most so often.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);
/// A command that runs longer goes on in the background.
const YIELD: Duration = Duration::from_secs(10);
/// Characters of one piece of progress.
const PROGRESS_CHARS: usize = 200;

params! {
    pub(super) struct CliParams {
        /// The command line, for bash.
        pub(super) command: String,
        /// The directory to run it in, relative to the workspace; your own directory if absent.
        pub(super) cwd: Option<String>,
        /// Milliseconds after which it is killed.
        timeout_ms: Option<u64>,
        /// Variables, by name.
        #[serde(default)]
        pub(super) env: std::collections::BTreeMap<String, String>,
        /// Where it runs; the sandbox if absent.
        host: Option<CommandHost>,
        /// Whether it runs on after this call; tool.process then shows its output. Its standard input stays open.
        #[serde(default)]
        background: bool,
        /// Milliseconds after which it goes on in the background, if you have tool.process.
        yield_ms: Option<u64>,
    }
}

// Places for commands. Comments on the variants would make the schema larger.
#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum CommandHost {
    Sandbox,
    Host,
    Remote,
}

params! {
    pub(super) struct PythonParams {
        /// The Python 3 source.
        code: String,
        /// The arguments: sys.argv[1:].
        #[serde(default)]
        pub(super) args: Vec<String>,
        /// The directory to run it in, relative to the workspace; your own directory if absent.
        pub(super) cwd: Option<String>,
        /// Milliseconds after which it is killed.
        timeout_ms: Option<u64>,
    }
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
    /// The line, for lists.
    line: String,
    /// Whether the call waits for the end.
    waits: Waits,
}

/// How long a call waits for its command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waits {
    /// Until it has ended.
    ToTheEnd,
    /// So long; then it goes on in the background.
    Until(Duration),
    /// Not at all.
    Never,
}

/// Runs a command for the caller and shows its output.
async fn run(call: &CallContext, request: Request) -> Result<Output> {
    let Some(sandbox) = call.services.sandbox() else {
        return Err(refusal!(Unavailable, "this world has no sandbox").hint("do it without commands"));
    };
    let plan = &call.services.plan().sandbox;
    let dir = directory(&call.caller, request.cwd.as_deref())?;
    let (default, most) = match request.waits {
        Waits::Never => (plan.background_timeout, plan.background_timeout),
        Waits::ToTheEnd | Waits::Until(_) => (plan.default_timeout, plan.max_timeout),
    };
    let most = request.timeout_max_ms.map_or(most, |ms| most.min(Duration::from_millis(ms)));
    let timeout = request.timeout_ms.map_or(default, Duration::from_millis).min(most);
    let processes = &call.services.processes;
    let (agent_id, most_kept) = (&call.caller.agent_id, call.services.ctx.limits().processes_per_agent);
    if request.waits == Waits::Never && !processes.has_room(agent_id, most_kept) {
        return Err(no_room(most_kept));
    }
    // Read for each command, so that a new grant holds from the next one and a revoked one for no more. A background
    // command could outlive a grant, so it gets none.
    let writable = match request.waits {
        Waits::Never => Writable { prefixes: call.caller.write_acl.prefixes().to_vec(), grants: Vec::new() },
        Waits::ToTheEnd | Waits::Until(_) => call.writable().await?,
    };
    let before = Before::look(call, &writable.prefixes).await;
    let mut env = git_identity(&call.services.plan(), &call.caller.agent_id, request.env.iter().map(|(name, _)| name));
    env.extend(request.env);
    let command = Command {
        agent_id: call.caller.agent_id.clone(),
        conversation_id: call.conversation_id,
        argv: request.argv,
        dir: dir.clone(),
        env,
        stdin: request.stdin,
        // What an approved command reads was not shown to the operator.
        feed: (request.waits == Waits::Never && !call.approved).then(Feed::default),
        drain: None,
        toolbox: None,
        timeout,
        writable: writable.prefixes,
        stdout_limit: plan.stdout_limit,
        stderr_limit: plan.stderr_limit,
    };
    let progress = progress_of(call);
    let wait = match request.waits {
        Waits::ToTheEnd => {
            let done = sandbox.run(command, &progress).await?;
            return Ok(indexed(call, result(&done, &dir, timeout), before, writable.grants).await);
        }
        Waits::Until(wait) => wait,
        Waits::Never => Duration::ZERO,
    };
    let ctx = &call.services.ctx;
    // The end of an id is random; its beginning is the time, which a restart within the same minute repeats.
    let boot = || ctx.id().simple().to_string().split_off(24);
    let new = NewProcess { command, line: request.line };
    let guard = processes.start(sandbox, &ctx.ports.clock, boot, new, progress);
    let process = guard.process().cloned();
    if let Some(process) = process.filter(|_| request.waits != Waits::Never) {
        let mut ended = tokio::select! {
            biased;
            ended = process.ended() => Some(ended),
            () = ctx.ports.clock.sleep(wait) => None,
        };
        if ended.is_none() && !(processes.has_room(agent_id, most_kept) && writable.grants.is_empty()) {
            ended = Some(process.ended().await);
        }
        match ended {
            None => {}
            Some(ProcessState::Ended(done)) => {
                return Ok(indexed(call, result(&done, &dir, timeout), before, writable.grants).await);
            }
            Some(ProcessState::Lost(refusal)) => return Err(refusal),
            Some(ProcessState::Running | ProcessState::Killed) => {
                return Err(refusal!(Cancelled, "the command was killed").hint("check what it did"));
            }
        }
    }
    let process = processes.keep(guard, most_kept).ok_or_else(|| no_room(most_kept))?;
    let so_far = process.poll(&*ctx.ports.clock, Duration::ZERO, plan.stdout_limit).await;
    let content = without_nulls(json!({
        "status": "running", "session_id": process.session_id, "cwd": shown(&dir),
        "output": (!so_far.text.is_empty()).then_some(so_far.text),
        "ends_within_ms": u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    }));
    Ok(indexed(call, content.into(), before, writable.grants).await)
}

/// Adds to the result of a command what it changed under `output/`, and the grants that it ran with. What a background
/// command changes later is indexed by `ghostctl artifact rebuild`.
pub(super) async fn indexed(call: &CallContext, mut output: Output, before: Before, used: Vec<GrantId>) -> Output {
    for grant_id in used {
        output.events.push(grants::used(&call.caller.agent_id, call.turn_id, call.call_id, grant_id, None));
    }
    before.into_output(call, &mut output).await;
    output
}

fn no_room(most: u32) -> Refusal {
    refusal!(RateLimited, "you have {most} background commands, which is the limit")
        .hint("nothing runs on; kill one that you do not need with tool.process, or wait for its end")
}

/// Shows the last line of the output now and then.
pub(super) fn progress_of(call: &CallContext) -> impl Fn(&[u8]) + Send + Sync + 'static {
    let (call, shown_at) = (call.clone(), Mutex::new(Timestamp(i64::MIN)));
    move |piece: &[u8]| {
        let now = call.services.ctx.ports.clock.steady();
        // A poisoned lock means that another piece panicked; the next one may be shown.
        let mut last = shown_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if now.since(*last) >= PROGRESS_EVERY {
            *last = now;
            let text = String::from_utf8_lossy(piece);
            let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            call.progress(&clip(line, PROGRESS_CHARS));
        }
    }
}

/// Judges a line for an agent.
pub(super) fn judged(plan: &Plan, caller: &Caller, line: &str) -> Judgement {
    let groups: Vec<&str> = caller.groups.iter().map(String::as_str).collect();
    judge(&plan.cli_policy, &groups, line)
}

/// The directory of a command of an agent, relative to the workspace.
pub(super) fn directory(caller: &Caller, cwd: Option<&str>) -> Result<String> {
    match cwd {
        None => Ok(caller.agent_id.home()),
        Some(text) => Ok(WorkspacePath::parse(text, true)?.as_str().to_owned()),
    }
}

/// Exactly what runs for a command line.
pub(super) fn bash_argv(line: &str) -> Vec<String> {
    ["/bin/bash", "--norc", "--noprofile", "-c", line].map(str::to_owned).to_vec()
}

/// Exactly what runs for Python code, which goes through standard input.
pub(super) fn python_argv(args: Vec<String>) -> Vec<String> {
    let mut argv = vec!["python3".to_owned(), "-I".to_owned(), "-".to_owned()];
    argv.extend(args);
    argv
}

/// A directory as results show it.
pub(super) fn shown(dir: &str) -> &str {
    if dir.is_empty() { "." } else { dir }
}

/// The exit code or the signal of a command that ended by itself.
pub(super) fn ended_as(done: &Finished) -> (Option<i32>, Option<u8>) {
    match done.end {
        End::Exited(code) => (Some(code), None),
        End::Signal(number) => (None, Some(number)),
        _ => (None, None),
    }
}

pub(super) fn result(done: &Finished, dir: &str, timeout: Duration) -> Output {
    let (exit_code, signal) = ended_as(done);
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
        "cwd": shown(dir),
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

pub(super) async fn cli(call: &CallContext, params: CliParams) -> Result<Output> {
    not_blank("command", &params.command)?;
    let plan = call.services.plan();
    match params.host {
        None | Some(CommandHost::Sandbox) => {}
        Some(CommandHost::Remote) if plan.sandbox.kind == SandboxKind::Remote => {}
        Some(CommandHost::Remote) => {
            return Err(refusal!(PolicyDenied, "this world has no toolbox server").hint("leave `host` out"));
        }
        Some(CommandHost::Host) => {
            return Err(refusal!(PolicyDenied, "commands never run on the daemon's own machine")
                .hint("leave `host` out: the command then runs in the sandbox"));
        }
    }
    let judgement = judged(&plan, &call.caller, &params.command);
    let may_run = match judgement.action {
        Action::Allow => true,
        Action::Ask => call.approved,
        Action::Deny => false,
    };
    if !may_run {
        let why = judgement.reason.map_or_else(|| "the command is not allowed".to_owned(), |why| why.to_string());
        return Err(Refusal::new(Code::PolicyDenied, why).hint("nothing was run"));
    }
    // Variables decide what programs do, and the policy judges only the line.
    if let Some(name) = params.env.keys().find(|name| !is_plain_variable(name)) {
        return Err(refusal!(PolicyDenied, "the variable `{}` may not be set", clip(name, 80))
            .hint("variables that change what programs run or load are refused; use another name"));
    }
    let dir = directory(&call.caller, params.cwd.as_deref())?;
    // Looked at again: a file may have changed since the call was checked.
    let found = repositories::look(&call.services, &call.caller, &judgement, &dir).await?.unwrap_or_default();
    if !call.approved
        && let Some(why) = repositories::reason(&plan, &call.caller, &judgement, &found)
    {
        return Err(Refusal::new(Code::PolicyDenied, why)
            .hint("nothing was run; make the call again, so that an operator can approve it"));
    }
    let note = repositories::note_on_hooks(&judgement, &found);
    let request = Request {
        argv: bash_argv(&params.command),
        env: params.env.into_iter().collect(),
        stdin: Vec::new(),
        cwd: params.cwd,
        timeout_ms: params.timeout_ms,
        timeout_max_ms: judgement.max_timeout_ms,
        waits: waits(call, params.background, params.yield_ms)?,
        line: params.command,
    };
    let mut output = run(call, request).await?;
    if let (Some(note), Some(content)) = (note, output.content.as_object_mut()) {
        content.insert("note".to_owned(), json!(note));
    }
    Ok(output)
}

/// Only an agent that can reach background commands gets any.
fn waits(call: &CallContext, background: bool, yield_ms: Option<u64>) -> Result<Waits> {
    let reaches = call.tools.iter().any(|tool| tool.name == "tool.process");
    match (background, reaches) {
        (true, true) => Ok(Waits::Never),
        (true, false) => Err(refusal!(AccessDenied, "you have no tool.process to reach a background command")
            .hint("run it in the foreground, with a longer timeout_ms")),
        (false, true) => Ok(Waits::Until(yield_ms.map_or(YIELD, Duration::from_millis))),
        (false, false) => Ok(Waits::ToTheEnd),
    }
}

/// Whether a variable is a name, and none that changes what programs run or load.
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

pub(super) async fn python(call: &CallContext, params: PythonParams) -> Result<Output> {
    not_blank("code", &params.code)?;
    // Through standard input, the code needs no file that a crash could leave, and has no limit of an argument.
    let request = Request {
        argv: python_argv(params.args),
        env: Vec::new(),
        stdin: params.code.into_bytes(),
        cwd: params.cwd,
        timeout_ms: params.timeout_ms,
        timeout_max_ms: None,
        waits: Waits::ToTheEnd,
        line: "python3".to_owned(),
    };
    run(call, request).await
}

/// The longest time of a call, in seconds: more than `sandbox.max_timeout_ms` may be, so that the sandbox ends the command.
pub(super) const TIME_MAX: u32 = 86_430;

/// Names of the tools that need a sandbox.
pub const NEED_SANDBOX: [&str; 3] = ["tool.cli", "tool.process", "tool.python"];

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
        let shown: Value = result(&done, "", Duration::from_millis(900)).content;
        assert_eq!((&shown["error"], &shown["stderr"]), (&json!("Command timed out after 900ms"), &json!("b")));
        assert_eq!(
            (&shown["status"], &shown["timed_out"], &shown["cwd"]),
            (&json!("timed_out"), &json!(true), &json!("."))
        );
    }
}
