//! The run of a coding agent: a command whose stream of events becomes progress for people and a short result for the model
//! (DEV-13..17).
//!
//! Nothing here may grow with the stream: a run prints what it likes.

use futures_util::FutureExt as _;
use ghost_coding::{Compactor, Exit, Format};
use ghost_domain::{Code, Money, Refusal};
use ghost_sandbox::{Capture, Command, Drain, End, Finished, Sandbox};
use serde_json::Value;

use crate::context::CallContext;
use crate::effect::Output;

/// Characters of error output that the result of a failed run may show.
const ERRORS: usize = 2_000;

/// What an agent says that its run has cost, in US dollars; `None` if it is no amount.
pub(super) fn money(usd: f64) -> Option<Money> {
    Money::from_usd(usd).ok()
}

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
) -> Result<(Option<Output>, Finished), Refusal> {
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
