//! The summary of an outcome.

use crate::outcome::{End, Outcome, Stop, StopReason};
use ghost_coding::text::one_line;
use ghost_coding::{Summary, summarize};

impl Outcome {
    /// The summary for a model in at most `max_bytes`. `agent` is the agent's name, and `stderr_tail` the end of its
    /// error output, which is shown if the run did not end well.
    #[must_use]
    pub fn compact(&self, agent: &str, stderr_tail: &str, max_bytes: usize) -> String {
        summarize(&self.summary(agent, stderr_tail), max_bytes)
    }

    /// What the summary is made of.
    #[must_use]
    pub fn summary(&self, agent: &str, stderr_tail: &str) -> Summary {
        let (verdict, reason, ended, error) = self.words();
        let went_well = verdict == "done";
        let errors = [error.as_deref().unwrap_or_default(), stderr_tail.trim()];
        let errors = errors.into_iter().filter(|text| !went_well && !text.is_empty()).collect::<Vec<_>>().join("\n");
        let tokens = self.work.usage.as_ref().and_then(|usage| usage.tokens);
        Summary {
            agent: one_line(agent, 60),
            verdict,
            reason,
            duration_ms: Some(u64::try_from(self.work.duration.as_millis()).unwrap_or(u64::MAX)),
            output_tokens: tokens.map(|tokens| tokens.output),
            ended,
            manifest: self.work.manifest.clone(),
            warnings: self.work.doubts.warnings(),
            errors,
            is_result: matches!(self.end, End::Finished { .. } | End::Refused),
            text: self.work.text.clone(),
        }
    }

    /// Whether the run did not end well: only an agent that considers its task done has not failed. What an operator
    /// denied is in the summary, and is no failure of the run.
    #[must_use]
    pub fn failed(&self) -> bool {
        !matches!(self.words().0, "done" | "incomplete") || self.work.doubts.was_stopped()
    }

    fn words(&self) -> Words {
        let (verdict, reason, ended, error) = words(&self.end);
        let doubt = self.work.doubts.reason();
        let verdict = if verdict == "done" && doubt.is_some() { "incomplete" } else { verdict };
        let reasons: Vec<String> = [reason, doubt].into_iter().flatten().collect();
        (verdict, (!reasons.is_empty()).then(|| reasons.join("; ")), ended, error)
    }
}

/// The verdict, its reason, how the run ended as seen from outside, and the error.
type Words = (&'static str, Option<String>, Option<String>, Option<String>);

fn words(end: &End) -> Words {
    let some = |text: &str| Some(text.to_owned());
    match end {
        End::Finished { stop_reason: StopReason::EndTurn } => ("done", None, None, None),
        End::Finished { stop_reason: StopReason::MaxTokens } => ("failed", some("max_tokens"), None, None),
        End::Finished { stop_reason: StopReason::MaxTurnRequests } => ("failed", some("max_turn_requests"), None, None),
        End::Finished { stop_reason: StopReason::Other(reason) } => ("failed", Some(reason.clone()), None, None),
        End::Refused => ("failed", some("refused"), None, None),
        End::Cancelled { stop } => ("no result", None, Some(format!("cancelled{}", still(*stop))), None),
        End::TimedOut { stop } => ("no result", None, Some(format!("stopped at its time limit{}", still(*stop))), None),
        End::Died { why } => ("no result", None, None, Some(why.to_string())),
        End::StartFailed { why } => ("failed", some("it did not start"), None, Some(why.to_string())),
        End::CannotResume { why } => ("failed", some("its session cannot be continued"), None, Some(why.to_string())),
    }
}

fn still(stop: Stop) -> &'static str {
    match stop {
        Stop::Itself | Stop::Confirmed | Stop::NothingRan => "",
        Stop::TooLate => " after it had answered",
        Stop::Unconfirmed => " without an answer",
    }
}
