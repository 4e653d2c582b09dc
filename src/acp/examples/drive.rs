//! Drives an agent by hand:
//! `drive DIR PROMPT [--resume ID] [--deny] [--terminal] [--cancel SECONDS] -- PROGRAM ARGS…`.
//!
//! It offers files and allows what the agent asks for. With `--terminal` it offers terminals, and refuses each. It must
//! not be used outside a sandbox.
// An example prints, and it measures real time.
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ghost_acp::{
    Capabilities, Host, HostError, Permission, PermissionAsk, Session, SessionId, Streams, Task, Terminal,
    TerminalCommand, Timeouts, Update, Usage,
};
use tokio_util::sync::CancellationToken;

struct Open {
    permission: Permission,
    terminal: bool,
}

#[async_trait]
impl Host for Open {
    fn capabilities(&self) -> Capabilities {
        Capabilities { read_text: true, write_text: true, terminal: self.terminal }
    }

    async fn permission(&self, ask: PermissionAsk) -> Permission {
        println!("ask {ask:?}\n -> {:?}", self.permission);
        self.permission
    }

    async fn read_text(&self, path: &str, _: Option<u32>, _: Option<u32>) -> Result<String, HostError> {
        println!("host reads {path}");
        tokio::fs::read_to_string(path).await.map_err(|error| HostError::Failed(error.to_string()))
    }

    async fn write_text(&self, path: &str, content: String) -> Result<(), HostError> {
        println!("host writes {path}");
        tokio::fs::write(path, content).await.map_err(|error| HostError::Failed(error.to_string()))
    }

    async fn terminal(&self, command: TerminalCommand) -> Result<Box<dyn Terminal>, HostError> {
        println!("host is asked to run {command:?}");
        Err(HostError::Refused("terminals are only shown here".to_owned()))
    }

    async fn session(&self, id: &SessionId) {
        println!("session {id}");
    }

    fn progress(&self, update: Update) {
        println!("progress {update:?}");
    }

    fn usage(&self, usage: Usage) {
        println!("usage {usage:?}");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let cwd = args.next().ok_or("DIR is missing")?;
    let prompt = args.next().ok_or("PROMPT is missing")?;
    let (mut resume, cancel) = (None, CancellationToken::new());
    let mut host = Open { permission: Permission::AllowOnce, terminal: false };
    while let Some(arg) = args.next().filter(|arg| arg != "--") {
        match arg.as_str() {
            "--resume" => resume = args.next().map(SessionId),
            "--deny" => host.permission = Permission::RejectOnce,
            "--terminal" => host.terminal = true,
            "--cancel" => {
                let after = Duration::from_secs_f64(args.next().ok_or("SECONDS are missing")?.parse()?);
                let cancel = cancel.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    cancel.cancel();
                });
            }
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    let mut child = tokio::process::Command::new(args.next().ok_or("PROGRAM is missing")?)
        .args(args)
        .current_dir(&cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let streams = Streams {
        output: Box::new(child.stdout.take().ok_or("no output")?),
        input: Box::new(child.stdin.take().ok_or("no input")?),
    };
    let timeouts = Timeouts { total: Duration::from_secs(60), ..Timeouts::default() };
    let task = Task { cwd, prompt, resume, timeouts };
    let outcome = Session::run(streams, task, Arc::new(host), cancel).await;
    println!("{outcome:#?}\n---\n{}", outcome.compact("ACP agent", "", 2048));
    Ok(())
}
