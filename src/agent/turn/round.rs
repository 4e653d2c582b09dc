//! Rounds of attempts: a round asks every model that may be asked. What they failed for decides whether the turn waits for the
//! next round, ends, or is itself at fault (DESIGN.md section 2, "Transient causes").
//!
//! Must never: make a call.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::model_facts::ModelFacts;
use ghost_domain::{Code, Price, Refusal};
use ghost_provider::{Entry, ErrorKind, Outage, ProviderError};
use serde_json::json;

use super::runner::Runner;

/// Rounds of attempts that may fail while the same model answers others, before the turn counts as the fault.
const ALONE_MAX: u32 = 5;
/// The longest pause between two such rounds, for each that there was.
const REST_MOST: Duration = Duration::from_secs(60);

/// A round of attempts: over every model that may be asked.
pub(super) struct Round {
    /// What the turn had worked before it.
    pub(super) worked: Duration,
    /// Models that have refused this conversation for good.
    pub(super) refused: BTreeSet<usize>,
    /// Fall-backs that a budget has no room for, while another model is waited for.
    unaffordable: BTreeSet<usize>,
    /// How often a limit had been set when the first of them was found.
    raises: u64,
    /// Why the last model that was asked did not answer, and which it was.
    pub(super) outage: Option<(usize, ProviderError)>,
    /// Whether any failed for a cause that may pass.
    pub(super) transient: bool,
    /// How often each model had answered when the round before this one ended.
    answers: Vec<u64>,
    /// Whether a model that failed for no reason of its own has answered others since then.
    pub(super) alone: bool,
}

impl Round {
    pub(super) fn new(worked: Duration, choices: &[Choice]) -> Self {
        let answers = choices.iter().map(|choice| choice.entry.breaker.answers(&choice.model)).collect();
        Self {
            worked,
            refused: BTreeSet::new(),
            unaffordable: BTreeSet::new(),
            raises: 0,
            outage: None,
            transient: false,
            answers,
            alone: false,
        }
    }

    /// Whether a model may be asked in this round.
    pub(super) fn may_ask(&self, at: usize) -> bool {
        !self.refused.contains(&at) && !self.unaffordable.contains(&at)
    }

    /// Whether there is another model than `at` to wait for.
    pub(super) fn has_another(&self, choices: &[Choice], at: usize) -> bool {
        (0..choices.len()).any(|other| other != at && self.may_ask(other))
    }

    /// Notes a fall-back that a budget had no room for, when a limit had been set so often.
    pub(super) fn cannot_afford(&mut self, at: usize, raises: u64) {
        if self.unaffordable.is_empty() {
            self.raises = raises;
        }
        self.unaffordable.insert(at);
    }

    /// Has those tried again that there was no room for, if a limit was set since.
    pub(super) fn limits_are(&mut self, raises: u64) {
        if raises != self.raises {
            self.unaffordable.clear();
        }
    }

    /// A model has refused this conversation for good: what was passed over for its price is wanted after all.
    pub(super) fn refuses(&mut self, at: usize) {
        self.refused.insert(at);
        self.unaffordable.clear();
    }

    /// Notes a failure. What a provider says of its load or of our key is no fault of the turn, whomever else it answers.
    pub(super) fn fails(&mut self, choices: &[Choice], at: usize, kind: ErrorKind) {
        let of_the_turn = matches!(kind, ErrorKind::Server | ErrorKind::Timeout | ErrorKind::BrokenStream);
        let (choice, before) = (&choices[at], self.answers.get(at).copied().unwrap_or_default());
        self.alone |= of_the_turn && choice.entry.breaker.answers(&choice.model) > before;
    }
}

/// What to do when no model has answered.
const UNANSWERED: &str =
    "see `ghostctl events --kind model.failed`; the mail of this turn is not tried again by itself";

/// A model at a provider.
pub(super) struct Choice {
    pub(super) entry: Arc<Entry>,
    pub(super) model: String,
    pub(super) price: Option<Price>,
    pub(super) facts: Arc<ModelFacts>,
}

impl Runner {
    /// At which model a turn begins, and how many attempts of it were made: a resumed turn does not begin them anew, or a daemon
    /// that keeps dying would ask for ever.
    ///
    /// # Errors
    /// When all were made, for a cause that does not pass, and what would have ended the turn was not recorded.
    pub(super) fn attempts_made(&self, choices: &[Choice]) -> Result<(usize, u32), Refusal> {
        let (mut at, mut failed) = (0, 0);
        for failure in &self.failures {
            if let Some(position) = choices.iter().position(|choice| choice.model == failure.model)
                && position >= at
            {
                failed = if position == at { failed + 1 } else { 1 };
                at = position;
            }
        }
        if failed < choices[at].entry.plan.attempts {
            return Ok((at, failed));
        }
        if at + 1 < choices.len() {
            return Ok((at + 1, 0));
        }
        if self.failures.iter().any(|failure| failure.transient) {
            return Ok((0, 0));
        }
        Err(unanswered(&format!("{} has failed {failed} times in this turn", choices[at].model)))
    }

    /// All attempts of a model were made: nobody asks it before a probe says that it answers, unless it answers others.
    pub(super) async fn exhausted(&self, choice: &Choice, error: &ProviderError, round: &Round) -> Result<(), Refusal> {
        if round.alone {
            return Ok(());
        }
        self.is_down(choice, choice.entry.breaker.open(&choice.model, error)).await
    }

    /// Ends a round in which every model failed that could be asked, at least one for a cause that may pass. The time that it
    /// took is not the turn's.
    pub(super) async fn next_round(
        &mut self,
        choices: &[Choice],
        round: &mut Round,
    ) -> Result<Option<Refusal>, Refusal> {
        self.worked = round.worked;
        let (refused, alone) = (std::mem::take(&mut round.refused), round.alone);
        let outage = std::mem::replace(round, Round { refused, ..Round::new(self.worked, choices) }).outage;
        round.outage.clone_from(&outage);
        let Some((of, error)) = outage.filter(|_| alone) else { return Ok(None) };
        self.alone += 1;
        if self.alone >= ALONE_MAX {
            let why = format!(
                "{} has failed this turn in {} rounds while it answered others: {}",
                choices[of].model, self.alone, error.message
            );
            return Ok(Some(unanswered(&why)));
        }
        let pause = choices[of].entry.plan.retry_cap.min(REST_MOST).saturating_mul(self.alone);
        let reason = format!("{} fails this turn and answers others: {error}", choices[of].model);
        self.rest(&choices[of], &reason, pause).await?;
        Ok(None)
    }

    /// Says that a model is down, if it is so from now on.
    pub(super) async fn is_down(&self, choice: &Choice, began: Option<Outage>) -> Result<(), Refusal> {
        let Some(outage) = began else { return Ok(()) };
        let payload = json!({
            "provider": choice.entry.name, "model": choice.model, "reason": outage.reason,
            "probe_at": outage.probe_at.0,
        });
        self.tell(NewEvent::new(EventKind::ProviderDown, payload)).await
    }

    /// Says that a model answers again, if it was down.
    pub(super) async fn is_up(&self, choice: &Choice, ended: Option<Outage>) -> Result<(), Refusal> {
        let Some(outage) = ended else { return Ok(()) };
        let payload = json!({
            "provider": choice.entry.name, "model": choice.model, "since": outage.since.0, "probes": outage.probes,
        });
        self.tell(NewEvent::new(EventKind::ProviderUp, payload)).await
    }

    async fn tell(&self, event: NewEvent) -> Result<(), Refusal> {
        let ctx = self.engine.services.ctx.clone();
        self.keep(move |w| Box::pin(async move { ctx.emit(w, event).await })).await
    }
}

/// What a turn ends with when no model answered.
pub(super) fn unanswered(why: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("no model answered: {why}")).hint(UNANSWERED)
}
