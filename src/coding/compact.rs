//! The summary of a run (DEV-15, DEV-18, DEV-21).

use crate::format::Format;
use crate::run::Run;
use crate::summary::{self, Summary};
use crate::usage::Usage;

/// How a run ended, as seen from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    /// The exit code; `None` if a signal ended the run.
    pub code: Option<i32>,
    /// Whether the run was stopped because it took too long.
    pub timed_out: bool,
    /// How long it took. Used if the agent does not report its duration.
    pub duration_ms: Option<u64>,
}

impl Exit {
    /// The exit of a run that ended with `code`.
    #[must_use]
    pub fn with_code(code: i32) -> Self {
        Self { code: Some(code), ..Self::default() }
    }

    fn is_ok(self) -> bool {
        self.code == Some(0) && !self.timed_out
    }

    fn shown(self) -> String {
        match self.code {
            _ if self.timed_out => "stopped at its time limit".to_owned(),
            Some(code) => format!("exit code {code}"),
            None => "stopped by a signal".to_owned(),
        }
    }
}

/// The summary of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Compact {
    /// The summary for a model.
    pub text: String,
    /// Whether the run failed: it says so, or its exit does, or something speaks against it being done.
    pub failed: bool,
    /// The tokens of the run, if it reports them.
    pub usage: Option<Usage>,
    /// The id with which the run can be continued.
    pub session_id: Option<String>,
    /// How long the run took, in milliseconds.
    pub duration_ms: Option<u64>,
    /// What the run cost in US dollars, if the agent tells it.
    pub cost_usd: Option<f64>,
}

/// The summary of `run` in at most `max` bytes. `None` if it has nothing of use.
pub(crate) fn compact(run: &Run, format: Format, exit: &Exit, stderr: &str, max: usize) -> Option<Compact> {
    let manifest = run.done.manifest();
    let listed = !manifest.is_empty();
    // Of a run that failed, the exit code and the error output are more than nothing.
    let useful = run.end.is_some() || listed || (run.known && (!exit.is_ok() || !run.message.is_empty()));
    if !useful {
        return None;
    }
    let duration_ms = run.duration_ms.or(exit.duration_ms);
    let (end, doubt) = (run.end.as_ref(), run.doubts.reason());
    // An error that is the result is not said twice.
    let shown = doubt.clone().filter(|doubt| !last_text(run).contains(doubt));
    let reasons = [end.and_then(|end| end.reason.clone()), shown];
    let reason = Some(reasons.into_iter().flatten().collect::<Vec<_>>().join("; "));
    let summary = Summary {
        agent: format.agent().to_owned(),
        verdict: match end {
            None => "no result",
            Some(end) if end.failed => "failed",
            Some(_) if doubt.is_some() => "incomplete",
            Some(_) => "done",
        },
        reason: reason.filter(|reason| !reason.is_empty()),
        duration_ms,
        output_tokens: run.usage.map(|usage| usage.output),
        ended: (!exit.is_ok()).then(|| exit.shown()),
        manifest,
        warnings: run.doubts.warnings(),
        errors: if exit.is_ok() { String::new() } else { stderr.to_owned() },
        is_result: end.is_some(),
        text: last_text(run).to_owned(),
    };
    let text = summary::compact(&summary, max);
    let failed = end.is_some_and(|end| end.failed) || doubt.is_some() || !exit.is_ok();
    Some(Compact {
        text,
        failed,
        usage: run.usage,
        session_id: run.session_id.clone(),
        duration_ms,
        cost_usd: run.cost_usd,
    })
}

/// The result. If there is none, the last message stands for it.
fn last_text(run: &Run) -> &str {
    let text = run.end.as_ref().and_then(|end| end.text.as_ref());
    text.or(run.error.as_ref().filter(|_| run.end.is_none() && run.message.is_empty())).unwrap_or(&run.message)
}
