//! Rounds of attempts. In a round, all models that may be asked are asked one after another. The
//! errors decide whether the turn waits for the next round, ends, or is treated as faulty itself.
//!
//! This module must never call a model.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::ProviderKind;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::model_facts::ModelFacts;
use ghost_domain::{Code, Price, Refusal};
use ghost_provider::{Entry, ErrorKind, Outage, ProviderError};
use serde_json::json;

use super::runner::Runner;

/// Failed rounds while the same model answers other turns, after which the turn itself is treated
/// as faulty.
const ALONE_MAX: u32 = 5;
/// Longest pause after such a round, for each such round so far.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// One round of attempts.
pub(super) struct Round {
    /// Work time of the turn before the round.
    pub(super) worked: Duration,
    /// Indexes of models that have refused this conversation permanently.
    pub(super) refused: BTreeSet<usize>,
    /// Indexes of fall-backs that do not fit a budget, while the turn waits for another model.
    unaffordable: BTreeSet<usize>,
    /// The count of limit changes when the first unaffordable fall-back was found.
    limit_changes: u64,
    /// The last model that failed, and its error.
    pub(super) outage: Option<(usize, ProviderError)>,
    /// Whether any model failed for a transient cause.
    pub(super) transient: bool,
    /// The number of answers of each model when the round began.
    answers: Vec<u64>,
    /// Whether a model that failed this turn has answered others in this round.
    pub(super) alone: bool,
}

impl Round {
    pub(super) fn new(worked: Duration, choices: &[Choice]) -> Self {
        let answers = choices.iter().map(|choice| choice.entry.breaker.answers(&choice.model)).collect();
        Self {
            worked,
            refused: BTreeSet::new(),
            unaffordable: BTreeSet::new(),
            limit_changes: 0,
            outage: None,
            transient: false,
            answers,
            alone: false,
        }
    }

    /// Whether a model may be asked in this round.
    pub(super) fn may_ask(&self, index: usize) -> bool {
        !self.refused.contains(&index) && !self.unaffordable.contains(&index)
    }

    /// Whether there is a model other than `index` to wait for.
    pub(super) fn has_another(&self, choices: &[Choice], index: usize) -> bool {
        (0..choices.len()).any(|other| other != index && self.may_ask(other))
    }

    /// Records a fall-back that does not fit a budget; `limit_changes` was read before the budget.
    pub(super) fn cannot_afford(&mut self, index: usize, limit_changes: u64) {
        if self.unaffordable.is_empty() {
            self.limit_changes = limit_changes;
        }
        self.unaffordable.insert(index);
    }

    /// Allows the unaffordable fall-backs again, if a limit was set since.
    pub(super) fn recheck_budgets(&mut self, limit_changes: u64) {
        if limit_changes != self.limit_changes {
            self.unaffordable.clear();
        }
    }

    /// Records that a model has refused this conversation permanently. Fall-backs that did not fit
    /// a budget may be needed after all.
    pub(super) fn mark_refused(&mut self, index: usize) {
        self.refused.insert(index);
        self.unaffordable.clear();
    }

    /// Records a failure. It can be the turn's fault if the model answers others.
    pub(super) fn record_failure(&mut self, choices: &[Choice], index: usize, kind: ErrorKind) {
        let of_the_turn = kind.may_be_of_the_request();
        let (choice, before) = (&choices[index], self.answers.get(index).copied().unwrap_or_default());
        self.alone |= of_the_turn && choice.entry.breaker.answers(&choice.model) > before;
    }
}

/// The hint when no model has answered.
const UNANSWERED: &str = "see `ghostctl events --kind model.failed`, then `ghostctl turn retry --failed`";

/// A model of a provider that the turn may ask.
pub(super) struct Choice {
    pub(super) entry: Arc<Entry>,
    pub(super) model: String,
    pub(super) price: Option<Price>,
    pub(super) facts: Arc<ModelFacts>,
}

impl Choice {
    /// Whether the model answers from a file of this world. What it refuses once, it refuses always.
    pub(super) fn answers_here(&self) -> bool {
        matches!(self.entry.plan.kind, ProviderKind::Scripted | ProviderKind::Recorded)
    }
}

impl Runner {
    /// The model at which the turn begins, and how many attempts with it have failed. A resumed
    /// turn continues to count; otherwise a daemon that keeps dying would ask for ever.
    ///
    /// # Errors
    /// When all attempts have failed for permanent causes, and the end of the turn was not
    /// recorded.
    pub(super) fn attempts_made(&self, choices: &[Choice]) -> Result<(usize, u32), Refusal> {
        let (mut index, mut failed) = (0, 0);
        for failure in &self.failures {
            if let Some(position) = choices.iter().position(|choice| choice.model == failure.model)
                && position >= index
            {
                failed = if position == index { failed + 1 } else { 1 };
                index = position;
            }
        }
        if failed < choices[index].entry.plan.attempts {
            return Ok((index, failed));
        }
        if index + 1 < choices.len() {
            return Ok((index + 1, 0));
        }
        if self.failures.iter().any(|failure| failure.transient) {
            return Ok((0, 0));
        }
        Err(unanswered(&format!("{} has failed {failed} times in this turn", choices[index].model)))
    }

    /// Handles a model whose attempts have all failed. The model is marked as down until a probe
    /// succeeds, unless it answers other turns.
    pub(super) async fn exhausted(&self, choice: &Choice, error: &ProviderError, round: &Round) -> Result<(), Refusal> {
        if round.alone {
            return Ok(());
        }
        self.is_down(choice, choice.entry.breaker.open(&choice.model, error)).await
    }

    /// Ends a round in which every model that could be asked failed, at least one for a transient
    /// cause. The turn's work time excludes the time of the round. Returns a refusal if the turn is
    /// treated as faulty.
    pub(super) async fn next_round(
        &mut self,
        choices: &[Choice],
        round: &mut Round,
    ) -> Result<Option<Refusal>, Refusal> {
        self.worked = round.worked;
        let (refused, alone) = (std::mem::take(&mut round.refused), round.alone);
        let outage = std::mem::replace(round, Round { refused, ..Round::new(self.worked, choices) }).outage;
        round.outage.clone_from(&outage);
        let Some((last, error)) = outage.filter(|_| alone) else { return Ok(None) };
        self.alone += 1;
        if self.alone >= ALONE_MAX {
            let why = format!(
                "{} has failed this turn in {} rounds while it answered others: {}",
                choices[last].model, self.alone, error.message
            );
            return Ok(Some(unanswered(&why)));
        }
        let pause = choices[last].entry.plan.retry_cap.min(PAUSE_MAX).saturating_mul(self.alone);
        let reason = format!("{} fails this turn and answers others: {error}", choices[last].model);
        self.wait_before_retry(&choices[last], &reason, pause).await?;
        Ok(None)
    }

    /// Writes the event that a model is down, if its outage has just begun.
    pub(super) async fn is_down(&self, choice: &Choice, began: Option<Outage>) -> Result<(), Refusal> {
        let Some(outage) = began else { return Ok(()) };
        let payload = json!({
            "provider": choice.entry.name, "model": choice.model, "reason": outage.reason,
            "probe_at": outage.probe_at.0,
        });
        self.write_event(NewEvent::new(EventKind::ProviderDown, payload)).await
    }

    /// Writes the event that a model answers again, if it was down.
    pub(super) async fn is_up(&self, choice: &Choice, ended: Option<Outage>) -> Result<(), Refusal> {
        let Some(outage) = ended else { return Ok(()) };
        let payload = json!({
            "provider": choice.entry.name, "model": choice.model, "since": outage.since.0, "probes": outage.probes,
        });
        self.write_event(NewEvent::new(EventKind::ProviderUp, payload)).await
    }

    async fn write_event(&self, event: NewEvent) -> Result<(), Refusal> {
        let ctx = self.engine.services.ctx.clone();
        self.write_with_retry(move |w| ctx.emit(w, event)).await
    }
}

/// The refusal with which a turn ends when no model has answered.
pub(super) fn unanswered(why: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("no model answered: {why}")).hint(UNANSWERED)
}
