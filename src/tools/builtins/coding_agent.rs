//! The run of a coding agent as one call of a tool. A command whose stream of events becomes progress for people and a short
//! result for the model; or an agent that speaks ACP, with its process, its time, its money, and its continuation after a
//! crash. Whatever such an agent does outside its own process must go through [`AcpHost`].
//!
//! Nothing here may grow with the stream: a run prints what it likes.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use ghost_acp::{self as acp, CannotResume, Outcome, Session, SessionId, Streams, Task, Timeouts};
use ghost_coding::{Compactor, Exit, Format};
use ghost_domain::{Code, Money};
use ghost_sandbox::{Capture, Command, Drain, End, Finished, Sandbox};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::acp_host::{AcpHost, money};
use super::common::*;
use crate::piped::PipedProcess;

/// Characters of error output that the result of a failed run may show.
const ERRORS: usize = 2_000;

/// Runs `command` and reads its stream. Paths below `folder` are shown relative to it. `None` as the first part if the
/// stream had nothing of use; then the run has its output as text.
///
/// # Errors
/// Those of [`Sandbox::run`].
pub(super) async fn run(
    call: &CallContext,
    sandbox: &dyn Sandbox,
    command: Command,
    format: Format,
    folder: String,
) -> Result<(Option<Output>, Finished)> {
    let drain = Drain::default();
    let mut capture = Capture::new(command.stdout_limit);
    let mut compactor = Compactor::new(format, Some(folder));
    let command = Command { drain: Some(drain.clone()), ..command };
    let mut drained = false;
    let mut take = |bytes: &[u8]| {
        drained = true;
        capture.push(bytes);
        for note in compactor.push(bytes) {
            call.progress(&note);
        }
    };
    let mut done = {
        let mut running = sandbox.run(command, &|_| {});
        let mut is_open = true;
        loop {
            tokio::select! {
                biased;
                piece = drain.next(), if is_open => match piece {
                    Some(bytes) => take(&bytes),
                    None => is_open = false,
                },
                done = &mut running => break done?,
            }
        }
    };
    // What came last is there when the command has ended.
    while let Some(Some(bytes)) = drain.next().now_or_never() {
        take(&bytes);
    }
    // A sandbox on another machine has the output in its answer.
    if drained {
        done.stdout = capture.finish(0);
    } else {
        compactor.push(done.stdout.text.as_bytes());
    }
    let exit = Exit {
        code: match done.end {
            End::Exited(code) => Some(code),
            _ => None,
        },
        timed_out: done.end == End::Deadline,
        duration_ms: u64::try_from(done.duration.as_millis()).ok(),
    };
    let errors: String = {
        let all = &done.stderr.text;
        let skip = all.chars().count().saturating_sub(ERRORS);
        all.chars().skip(skip).collect()
    };
    let output = compactor.finish(&exit, &errors).map(|compact| Output {
        content: Value::String(compact.text),
        failed: match done.end {
            End::Deadline => Some(Code::Timeout),
            _ => compact.failed.then_some(Code::ExecFailed),
        },
        cost: compact.cost_usd.and_then(money),
        ..Output::default()
    });
    Ok((output, done))
}

/// Bytes of the result.
const RESULT: usize = 2_048;
/// How long an agent may take until its session is there.
const START: Duration = Duration::from_secs(60);
/// How long a run waits for the last words of its process.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long an agent may take to stop.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// One call for an agent.
pub(super) struct AcpRun<'r> {
    pub(super) call: &'r CallContext,
    pub(super) sandbox: &'r Arc<dyn Sandbox>,
    /// The name of the tool, which stands for the agent.
    pub(super) tool: String,
    /// The agent's process. Its directory is that of the session.
    pub(super) command: Command,
    pub(super) task: String,
    /// How long all of it may take.
    pub(super) timeout: Duration,
}

impl AcpRun<'_> {
    /// Runs the agent, in a new session or in the one that a crash interrupted.
    ///
    /// # Errors
    /// `OutcomeUnknown` if an interrupted session cannot be continued.
    pub(super) async fn run(&self, resume: Option<&str>) -> Result<Output> {
        let began = Instant::now();
        let first = self.session(resume.map(|id| SessionId(id.to_owned())), self.timeout).await;
        if let (acp::End::StartFailed { .. }, None, Some(refusal)) = (&first.end, resume, &first.refused) {
            return Err(refusal.clone());
        }
        if let acp::End::CannotResume { why } = &first.end {
            return Err(uncertain(&self.tool, why));
        }
        let lost = match (&first.end, &first.work.session_id) {
            // Its process ended in the middle. The session is perhaps not lost.
            (acp::End::Died { .. }, Some(id)) if first.work.may_have_acted && resume.is_none() => id.clone(),
            _ => return Ok(self.output(&first, None)),
        };
        self.call.progress(&format!("{} ended in the middle of its work; its session is continued", self.tool));
        let second = self.session(Some(lost), self.timeout.saturating_sub(began.elapsed())).await;
        Ok(match &second.end {
            acp::End::CannotResume { why } => self
                .output(&first, Some(format!("Its session cannot be continued ({why}), so the outcome is uncertain."))),
            acp::End::StartFailed { why } => {
                self.output(&first, Some(format!("It did not start again ({why}), so the outcome is uncertain.")))
            }
            _ => {
                let note = "Its process had ended in the middle of the work; this is the end of the continued session.";
                self.output(&second, Some(note.to_owned()))
            }
        })
    }

    /// One process and its session.
    async fn session(&self, resume: Option<SessionId>, timeout: Duration) -> Run {
        let (output, input, process) = PipedProcess::start(Arc::clone(self.sandbox), self.command.clone());
        let workspace = self.sandbox.workspace_path();
        let cwd = match self.command.dir.as_str() {
            "" => workspace,
            dir => format!("{workspace}/{dir}"),
        };
        let prompt = match &resume {
            None => self.task.clone(),
            Some(_) => format!(
                "Continue the task that was interrupted. Look first at what is done already, and do not do it again.\n\n\
                 The task:\n{}",
                self.task
            ),
        };
        let cancel = CancellationToken::new();
        let host = AcpHost::new(self.call, self.sandbox, &self.tool, &self.command, timeout, cancel.clone());
        let task = Task {
            cwd,
            prompt,
            resume,
            timeouts: Timeouts { start: START.min(timeout), total: timeout, grace: GRACE },
        };
        let streams = Streams { output: Box::new(output), input: Box::new(input) };
        let outcome = Session::run(streams, task, Arc::new(host), cancel).await;
        if !matches!(outcome.end, acp::End::Finished { .. }) {
            // What it printed last may still be on its way.
            tokio::select! {
                biased;
                () = process.ended() => {}
                () = self.call.services.ctx.ports.clock.sleep(LAST_WORDS) => {}
            }
        }
        Run { outcome, errors: process.last_words(), refused: process.refused() }
    }

    /// The result. With a `note`, another process of the same run has worked, too.
    fn output(&self, run: &Run, note: Option<String>) -> Output {
        let cost = run.work.usage.as_ref().and_then(|usage| usage.cost.as_ref());
        let told = cost.filter(|cost| cost.currency == "USD").and_then(|cost| money(cost.amount));
        let most = self.call.services.plan().coding.run_budget;
        let over = told.zip(most).filter(|(told, most)| told > most);
        let nothing = !run.work.may_have_acted && note.is_none();
        let over_note =
            over.map(|(told, most)| format!("It was stopped: it has cost {told}, and `coding.run_budget` is {most}."));
        let notes: Vec<String> = note.into_iter().chain(over_note).collect();
        let room = RESULT.saturating_sub(notes.iter().map(|note| note.len() + 1).sum());
        let summary = run.outcome.compact(&self.tool, &run.errors, room);
        let text = notes.into_iter().chain([summary]);
        Output {
            content: Value::String(text.collect::<Vec<_>>().join("\n")),
            failed: match run.end {
                _ if over.is_some() => Some(Code::BudgetExhausted),
                acp::End::TimedOut { .. } => Some(Code::Timeout),
                _ => run.outcome.failed().then_some(Code::ExecFailed),
            },
            cost: if nothing { Some(Money(0)) } else { told },
            ..Output::default()
        }
    }
}

/// A process of the run that has ended.
struct Run {
    outcome: Outcome,
    /// What is known of the end of the process, with the end of its error output.
    errors: String,
    /// Why the sandbox did not run the process.
    refused: Option<Refusal>,
}

impl Deref for Run {
    type Target = Outcome;

    fn deref(&self) -> &Outcome {
        &self.outcome
    }
}

/// The refusal for a session that cannot be continued.
fn uncertain(tool: &str, why: &CannotResume) -> Refusal {
    let what = format!("{tool} was at work when the daemon stopped, and its session cannot be continued: {why}");
    Refusal::new(Code::OutcomeUnknown, what).hint("look at what it changed before you give it the task again")
}
