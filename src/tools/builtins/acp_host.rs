//! What an agent that speaks ACP gets from Ghost: files and commands in the sandbox of the agent that called it, and the
//! answers of an operator.
//!
//! The words of the program must never decide where it may write or what it may run: only the sandbox does.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ghost_acp::{
    ANSWER_MAX, Action, Capabilities, Host, HostError, Permission, PermissionAsk, SessionId, Terminal, TerminalCommand,
    TerminalExit, TerminalOutput, Update, Usage,
};
use ghost_domain::{ApprovalPlan, ApprovalStatus, Code, Money};
use ghost_sandbox::{Command, End, Finished, Sandbox};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::context::CallContext;
use crate::processes::{Guard, LOG_MAX, NewProcess, ProcessState};

/// How long the sandbox may take to read or write a file.
const FILE_TIME: Duration = Duration::from_secs(60);
/// Exit code of the scripts below for a file that is not there.
const ABSENT: i32 = 44;
/// Prints a file. Arguments: the path.
const READ: &str = "test -e \"$1\" || exit 44; exec cat -- \"$1\"";
/// Prints lines of a file. Arguments: the path, the first line, the number of lines.
const READ_LINES: &str = "test -e \"$1\" || exit 44; tail -n \"+$2\" -- \"$1\" | head -n \"$3\"";
/// Writes its input to a file, as a whole or not at all: never into a directory that has its name. Arguments: the path.
const WRITE: &str = "\
if test -d \"$1\"; then echo 'it is a directory' >&2; exit 1; fi
d=$(dirname -- \"$1\") && mkdir -p -- \"$d\" && t=$(mktemp -- \"$d/.ghost-XXXXXX\") || exit 1
trap 'rm -f -- \"$t\"' EXIT
cat >\"$t\" && { if test -e \"$1\"; then chmod --reference=\"$1\" -- \"$t\"; else chmod 644 -- \"$t\"; fi; } && mv -fT -- \"$t\" \"$1\"";

/// What an agent says that its run has cost, in US dollars; `None` if it is no amount.
pub(super) fn money(usd: f64) -> Option<Money> {
    Money::from_usd(usd).ok()
}

/// The host of one run.
pub(super) struct AcpHost {
    call: CallContext,
    sandbox: Arc<dyn Sandbox>,
    tool: String,
    /// What the commands of the agent have in common with its own process: its caller, its directory and its write rules.
    like: Command,
    ends_at: Instant,
    /// What the run may cost.
    most: Option<Money>,
    stop: CancellationToken,
}

impl AcpHost {
    pub(super) fn new(
        call: &CallContext,
        sandbox: &Arc<dyn Sandbox>,
        tool: &str,
        like: &Command,
        timeout: Duration,
        stop: CancellationToken,
    ) -> Self {
        Self {
            call: call.clone(),
            sandbox: Arc::clone(sandbox),
            tool: tool.to_owned(),
            like: Command { stdin: Vec::new(), feed: None, drain: None, env: Vec::new(), ..like.clone() },
            ends_at: Instant::now() + timeout,
            most: call.services.plan().coding.run_budget,
            stop,
        }
    }

    fn left(&self) -> Duration {
        self.ends_at.saturating_duration_since(Instant::now())
    }

    /// Runs one of the scripts above.
    async fn script(&self, script: &str, arguments: &[&str], stdin: Vec<u8>) -> Result<Finished, HostError> {
        let mut argv: Vec<String> = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
        argv.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let (timeout, stdout_limit) = (FILE_TIME.min(self.left()), ANSWER_MAX + 1);
        let command = Command { argv, stdin, timeout, stdout_limit, ..self.like.clone() };
        self.sandbox.run(command, &|_| {}).await.map_err(|refusal| HostError::Failed(refusal.message))
    }

    /// A directory of the workspace as the agent names it.
    fn dir(&self, path: &str) -> Result<String, HostError> {
        let workspace = self.sandbox.workspace_path();
        let inside = path.strip_prefix(&workspace).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let inside = inside.filter(|rest| rest.split('/').all(|part| part != ".."));
        let inside = inside.ok_or_else(|| HostError::Refused(format!("`{path}` is not below {workspace}")))?;
        Ok(inside.trim_matches('/').to_owned())
    }

    /// What an operator sees of a question.
    fn plan(&self, ask: &PermissionAsk) -> ApprovalPlan {
        let input = ask.raw_input.as_ref().map(|text| match serde_json::from_str::<Value>(text) {
            Ok(input) if !ask.raw_input_cut => input,
            _ => Value::String(text.clone()),
        });
        let mut arguments = json!({ "asks": ask.title, "kind": word(ask.kind) });
        if !ask.locations.is_empty() {
            arguments["files"] = json!(ask.locations);
        }
        if let Some(input) = input {
            arguments["input"] = input;
        }
        if ask.raw_input_cut {
            arguments["input_cut"] = json!(true);
        }
        ApprovalPlan {
            tool: self.tool.clone(),
            arguments,
            dir: Some(self.like.dir.clone()),
            sandbox: Some(self.sandbox.identity()),
            ..ApprovalPlan::default()
        }
    }
}

/// The error of a script that did not succeed.
fn failed(path: &str, done: &Finished) -> HostError {
    match done.end {
        End::Exited(ABSENT) => HostError::NotFound(path.to_owned()),
        _ => HostError::Failed(format!("`{path}`: {} {}", done.end.status(), done.stderr.text.trim())),
    }
}

#[async_trait]
impl Host for AcpHost {
    fn capabilities(&self) -> Capabilities {
        Capabilities { read_text: true, write_text: true, terminal: true }
    }

    async fn permission(&self, ask: PermissionAsk) -> Permission {
        let (tool, title) = (&self.tool, &ask.title);
        self.call.progress(&format!("{tool} asks an operator: {title}"));
        let reason = format!("{tool} asks in the middle of its run: {title}");
        match self.call.ask_operator(self.plan(&ask), reason, self.left()).await {
            Ok(approval) => match approval.status {
                ApprovalStatus::Approved => Permission::AllowOnce,
                ApprovalStatus::Cancelled => Permission::Cancelled,
                ApprovalStatus::Denied | ApprovalStatus::Expired | ApprovalStatus::Pending => Permission::RejectOnce,
            },
            Err(refusal) => {
                tracing::warn!(%refusal, tool, "a question of a coding agent reached no operator");
                self.call.progress(&format!("no operator could be asked: {}", refusal.message));
                if refusal.code == Code::RateLimited { Permission::RejectOnce } else { Permission::Cancelled }
            }
        }
    }

    async fn read_text(&self, path: &str, line: Option<u32>, limit: Option<u32>) -> Result<String, HostError> {
        let done = match (line, limit) {
            (None, None) => self.script(READ, &[path], Vec::new()).await?,
            (line, limit) => {
                let (first, lines) = (line.unwrap_or(1).max(1).to_string(), limit.unwrap_or(u32::MAX).to_string());
                self.script(READ_LINES, &[path, &first, &lines], Vec::new()).await?
            }
        };
        if done.end != End::Exited(0) {
            return Err(failed(path, &done));
        }
        if done.stdout.truncated || done.stdout.text.len() > ANSWER_MAX {
            return Err(HostError::Failed(format!(
                "`{path}` has more than {ANSWER_MAX} bytes; read some of its lines"
            )));
        }
        Ok(done.stdout.text)
    }

    async fn write_text(&self, path: &str, content: String) -> Result<(), HostError> {
        let done = self.script(WRITE, &[path], content.into_bytes()).await?;
        if done.end == End::Exited(0) { Ok(()) } else { Err(failed(path, &done)) }
    }

    async fn terminal(&self, asked: TerminalCommand) -> Result<Box<dyn Terminal>, HostError> {
        let dir = match &asked.cwd {
            Some(path) => self.dir(path)?,
            None => self.like.dir.clone(),
        };
        let argv = match asked.args.is_empty() {
            true => ["sh", "-c", &asked.command].map(str::to_owned).to_vec(),
            false => std::iter::once(asked.command.clone()).chain(asked.args.iter().cloned()).collect(),
        };
        let line = argv.join(" ");
        let command = Command { argv, dir, env: asked.env, timeout: self.left(), ..self.like.clone() };
        let ctx = &self.call.services.ctx;
        let new = NewProcess { command, line };
        let boot = || ctx.id().simple().to_string().split_off(24);
        let guard = self.call.services.processes.start(&self.sandbox, &ctx.ports.clock, boot, new, |_| {});
        Ok(Box::new(AcpTerminal { guard, limit: asked.output_byte_limit.min(LOG_MAX) }))
    }

    async fn session(&self, id: &SessionId) {
        // Without the record, a crash leaves the outcome unknown, which is said then.
        if let Err(refusal) = self.call.record_session(&id.0).await {
            tracing::warn!(%refusal, tool = self.tool, "the session of a coding agent could not be recorded");
        }
    }

    fn progress(&self, update: Update) {
        self.call.progress(&update.text);
    }

    fn usage(&self, usage: Usage) {
        let told = usage.cost.filter(|cost| cost.currency == "USD").and_then(|cost| money(cost.amount));
        if let (Some(told), Some(most)) = (told, self.most)
            && told > most
        {
            self.call.progress(&format!("{} has cost {told}, more than its {most}: it is stopped", self.tool));
            self.stop.cancel();
        }
    }
}

fn word(action: Action) -> &'static str {
    match action {
        Action::Read => "read",
        Action::Edit => "edit",
        Action::Delete => "delete",
        Action::Move => "move",
        Action::Search => "search",
        Action::Execute => "execute",
        Action::Think => "think",
        Action::Fetch => "fetch",
        Action::SwitchMode => "switch_mode",
        Action::Other => "other",
    }
}

/// A command that the agent runs. Dropping it kills the command.
struct AcpTerminal {
    guard: Guard,
    /// Bytes of output that the agent gets.
    limit: usize,
}

#[async_trait]
impl Terminal for AcpTerminal {
    async fn output(&self) -> TerminalOutput {
        let Some(process) = self.guard.process() else { return TerminalOutput::default() };
        let state = process.state();
        let from = process.bytes().saturating_sub(self.limit as u64);
        let piece = process.read(from, self.limit);
        TerminalOutput { output: piece.text, truncated: piece.offset > 0, exit: exit(&state) }
    }

    async fn wait(&self) -> TerminalExit {
        match self.guard.process() {
            Some(process) => exit(&process.ended().await).unwrap_or_default(),
            None => TerminalExit::default(),
        }
    }

    async fn kill(&self) {
        if let Some(process) = self.guard.process() {
            process.kill();
        }
    }

    async fn release(&self) {
        self.kill().await;
    }
}

/// How a command ended; `None` while it runs.
fn exit(state: &ProcessState) -> Option<TerminalExit> {
    let signal = |name: &str| Some(TerminalExit { code: None, signal: Some(name.to_owned()) });
    match state {
        ProcessState::Running => None,
        ProcessState::Killed => signal("SIGKILL"),
        ProcessState::Lost(_) => Some(TerminalExit::default()),
        ProcessState::Ended(done) => match done.end {
            End::Exited(code) => Some(TerminalExit { code: u32::try_from(code).ok(), signal: None }),
            End::Signal(number) => signal(&format!("signal {number}")),
            other => signal(other.status()),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs a script as the sandbox does. Returns its exit code and its output.
    #[allow(clippy::disallowed_methods, reason = "the shell itself is under test, in an empty directory")]
    fn run(dir: &Path, script: &str, arguments: &[&str], input: &str) -> (Option<i32>, String) {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).args(arguments).current_dir(dir);
        let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        // A script that fails early does not read it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let done = child.wait_with_output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    }

    /// The names in a directory, in order.
    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_written_at_its_path_or_nowhere() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path();
        std::fs::create_dir_all(dir.join("folder/inner")).unwrap();
        std::fs::write(dir.join("old"), "old").unwrap();
        let link = |target: &str, at: &str| std::os::unix::fs::symlink(target, dir.join(at)).unwrap();
        link("folder", "to-folder");
        link("old", "to-old");
        link("nowhere/file", "dangling");
        for path in ["folder", "folder/", "to-folder", "to-folder/", ".", "..", "/", "", "old/x", "new/", "folder/."] {
            let (code, _) = run(dir, WRITE, &[path], "lost");
            assert_ne!(code, Some(0), "{path}");
        }
        assert_eq!(names(&dir.join("folder")), ["inner"], "nothing went into a directory");
        for path in ["old", "to-old", "dangling", "-n", "--help", "$(touch evil)", "a b/'c\n", "*"] {
            assert_eq!(run(dir, WRITE, &[path], "new\n").0, Some(0), "{path}");
            assert_eq!(run(dir, READ, &[path], ""), (Some(0), "new\n".to_owned()), "{path}");
            assert_eq!(run(dir, READ_LINES, &[path, "1", "1"], ""), (Some(0), "new\n".to_owned()), "{path}");
        }
        assert!(names(dir).iter().all(|name| !name.starts_with(".ghost-") && name != "evil"), "{:?}", names(dir));
        assert_eq!(run(dir, READ, &["none"], "").0, Some(ABSENT));
        assert_eq!(run(dir, READ, &[""], "").0, Some(ABSENT));
    }
}
