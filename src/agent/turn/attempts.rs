//! The attempts of one call of a model: which model is asked next, after which pause and with which remedy, and when
//! nothing more is tried. A pure type, so that tests can try every failure.
//!
//! In a round, all models that may be asked are asked one after another. The errors decide whether the turn waits for the
//! next round, ends, or is treated as faulty itself.
//!
//! This type must never wait, read a clock or call a model. Its caller does what it decides, and journals it.

use std::collections::BTreeSet;
use std::time::Duration;

use ghost_config::plan::ProviderPlan;
use ghost_domain::Refusal;
use ghost_provider::{ErrorKind, Next, ProviderError, Rest, decide, may_be_too_long};

use crate::transcript::Failure;

/// Failed rounds while the same model answers other turns, after which the turn itself is treated
/// as faulty.
const ALONE_MAX: u32 = 5;
/// Longest pause after such a round, for each such round so far.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A model that may be asked.
pub(super) trait Candidate {
    /// Its name.
    fn model(&self) -> &str;
    /// The name of its provider.
    fn provider(&self) -> &str;
    /// The plan of its provider.
    fn plan(&self) -> &ProviderPlan;
}

/// The conversation of a request that failed. It is asked only what matters for the failure, because the answers take
/// time.
pub(super) trait Sent {
    /// Whether it carries opaque state of a provider.
    fn has_state(&self) -> bool;
    /// Whether it shows images.
    fn shows_images(&self) -> bool;
    /// Whether it is long for its model.
    fn is_long(&self) -> bool;
    /// The size to which it can be shortened, in bytes.
    fn shorter(&self) -> Option<usize>;
}

/// A change of the conversation after a failure, before the same model is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The conversation is shortened to this many bytes.
    Shorten(usize),
    /// The opaque state of earlier answers is dropped.
    DropState,
    /// The images so far are left out.
    DropImages,
}

/// What is known of a failure beside its error.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The refusal that ends the turn, if it has used its time.
    pub(super) out_of_time: Option<Refusal>,
    /// Whether the turn's own work used that time. A turn that lost it to failed attempts has not reached its limit.
    pub(super) own_work: bool,
    /// Whether the call had so little time that its time-out says nothing about the model.
    pub(super) cut_short: bool,
    /// Any random number.
    pub(super) jitter: u64,
}

/// What a failure means, before the caller has reported it.
#[derive(Debug)]
pub(super) struct Verdict {
    facts: Facts,
    next: Next,
    /// The model to fall back to; the number of models if there is none.
    fallback: usize,
    transient: bool,
    /// The remedy to journal with the failure.
    pub(super) remedy: Option<Remedy>,
}

impl Verdict {
    /// Whether the failure looks permanent and nothing helps. It is the model's fault if other agents get it too.
    pub(super) fn is_final(&self) -> bool {
        !self.transient && self.remedy.is_none() && !matches!(self.next, Next::Retry(_))
    }

    /// Makes the failure the model's fault.
    pub(super) fn blame_model(&mut self) {
        self.transient = true;
    }

    /// Whether the failure counts against the model.
    pub(super) fn is_of_model(&self) -> bool {
        self.transient && !self.facts.cut_short
    }
}

/// What follows from a failure.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Ask the model at [`Attempts::at`], or the first one after it that is not down.
    Ask,
    /// Ask the same model after this pause.
    Retry(Duration),
    /// Ask the same model after this remedy.
    Remedy(Remedy),
    /// Ask a fall-back, which is now at [`Attempts::at`]. With `down`, the failed model counts as down.
    FallBack { down: bool },
    /// Begin the next round. With `down`, the failed model counts as down.
    NextRound { down: bool },
    /// End the turn: its time is used up.
    OutOfTime(Refusal),
    /// End the turn: no model can answer it.
    GiveUp,
}

/// How a round ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RoundEnd {
    /// The next one may begin.
    Next,
    /// The same model answers others: the next one may begin after this pause.
    Pause(Duration),
    /// The turn is treated as faulty: the same model has answered others too often.
    Faulty,
}

/// The attempts of one call.
#[derive(Debug)]
pub(super) struct Attempts {
    /// Number of models.
    models: usize,
    /// Index of the model that is asked.
    at: usize,
    /// Its failed attempts.
    failed: u32,
    /// Indexes of models that have refused this conversation permanently.
    refused: BTreeSet<usize>,
    /// The last model that failed, and its error.
    last: Option<(usize, ProviderError)>,
    /// Whether the conversation was shortened for an error that does not name a cause.
    guessed: bool,
    round: Round,
}

/// One round of attempts.
#[derive(Debug, Default)]
struct Round {
    /// Indexes of fall-backs that do not fit a budget, while the turn waits for another model.
    unaffordable: BTreeSet<usize>,
    /// The count of limit changes when the first unaffordable fall-back was found.
    limit_changes: u64,
    /// Whether any model failed for a transient cause.
    transient: bool,
    /// The number of answers of each model when the round began.
    answers: Vec<u64>,
    /// Whether a model that failed this turn has answered others in this round.
    alone: bool,
}

impl Attempts {
    /// The attempts of a call that has failed so often before a restart. Those count; otherwise a daemon that keeps dying
    /// would ask for ever. `answers` are the numbers of answers of the models so far.
    ///
    /// # Errors
    /// The model and its failures, if all attempts have failed for permanent causes, and the end of the turn was not
    /// recorded.
    pub(super) fn resume(
        models: &[impl Candidate],
        failures: &[Failure],
        answers: Vec<u64>,
    ) -> Result<Self, (usize, u32)> {
        let (mut at, mut failed) = (0, 0);
        for failure in failures {
            if let Some(position) = models.iter().position(|model| model.model() == failure.model)
                && position >= at
            {
                failed = if position == at { failed + 1 } else { 1 };
                at = position;
            }
        }
        if failed >= models[at].plan().attempts {
            (at, failed) = match failures.iter().any(|failure| failure.transient) {
                _ if at + 1 < models.len() => (at + 1, 0),
                true => (0, 0),
                false => return Err((at, failed)),
            };
        }
        let round = Round { answers, ..Round::default() };
        Ok(Self { models: models.len(), at, failed, refused: BTreeSet::new(), last: None, guessed: false, round })
    }

    /// Index of the model that is asked.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The last model that failed, and its error. After a restart, only the events have details.
    pub(super) fn last(&self) -> Option<(usize, &ProviderError)> {
        self.last.as_ref().map(|(at, error)| (*at, error))
    }

    /// Whether a model may be asked in this round.
    pub(super) fn may_ask(&self, index: usize) -> bool {
        !self.refused.contains(&index) && !self.round.unaffordable.contains(&index)
    }

    /// Whether all models have refused this conversation permanently.
    pub(super) fn all_refused(&self) -> bool {
        (0..self.models).all(|index| self.refused.contains(&index))
    }

    /// Whether the model that is asked is a fall-back, and there is another to wait for.
    pub(super) fn has_another(&self) -> bool {
        self.at > 0 && (0..self.models).any(|other| other != self.at && self.may_ask(other))
    }

    /// The gate has let this model through. Those before it are down; they may answer in the next round.
    pub(super) fn opened(&mut self, index: usize) {
        if index != self.at {
            self.round.transient |= (self.at..index).any(|before| self.may_ask(before));
            self.begin_at(index);
        }
    }

    /// Begins again with the first model, because what a call may cost has changed.
    pub(super) fn restart(&mut self) {
        self.begin_at(0);
    }

    fn begin_at(&mut self, index: usize) {
        (self.at, self.failed) = (index, 0);
    }

    /// Leaves out a fall-back that does not fit a budget; `limit_changes` was read before the budget.
    pub(super) fn cannot_afford(&mut self, limit_changes: u64) {
        if self.round.unaffordable.is_empty() {
            self.round.limit_changes = limit_changes;
        }
        self.round.unaffordable.insert(self.at);
        self.restart();
    }

    /// Allows the unaffordable fall-backs again, if a limit was set since.
    pub(super) fn recheck_budgets(&mut self, limit_changes: u64) {
        if limit_changes != self.round.limit_changes {
            self.round.unaffordable.clear();
        }
    }

    /// The model that refused the conversation as too long, if only the fall-back that is asked was left.
    pub(super) fn too_long_for(&self) -> Option<usize> {
        let (of, error) = self.last()?;
        (self.at + 1 == self.models && error.kind == ErrorKind::ContextTooLong).then_some(of)
    }

    /// Passes over the fall-back that is asked, because it has no price. With `shortened_for`, the conversation was shortened
    /// for that model instead.
    pub(super) fn pass_over(&mut self, shortened_for: Option<usize>) -> Step {
        self.refused.insert(self.at);
        self.begin_at(self.at + 1);
        if let Some(of) = shortened_for {
            self.refused.remove(&of);
            self.at = of;
        }
        match self.at < self.models {
            true => Step::Ask,
            false if self.round.transient => Step::NextRound { down: false },
            false => Step::GiveUp,
        }
    }

    /// Judges a failure of the model that is asked.
    pub(super) fn judge(
        &mut self,
        models: &[impl Candidate],
        error: &ProviderError,
        facts: Facts,
        sent: &impl Sent,
    ) -> Verdict {
        self.failed += 1;
        let (at, transient) = (self.at, error.kind.is_transient());
        let left = || {
            let may_be_asked =
                |next: &usize| if transient { self.may_ask(*next) } else { !self.refused.contains(next) };
            (at + 1..models.len()).filter(may_be_asked)
        };
        let rest = Rest::after(models[at].provider(), left().map(|next| models[next].provider()));
        let mut next = decide(self.failed, error, models[at].plan(), rest, facts.jitter);
        if facts.out_of_time.is_some() && transient {
            next = Next::GiveUp;
        }
        let fallback = match next {
            Next::Fallback(skip) => left().nth(skip - 1),
            Next::Retry(_) | Next::GiveUp => None,
        };
        let remedy = if facts.out_of_time.is_some() { None } else { self.remedy(error, next, sent) };
        Verdict { facts, next, fallback: fallback.unwrap_or(models.len()), transient, remedy }
    }

    fn remedy(&mut self, error: &ProviderError, next: Next, sent: &impl Sent) -> Option<Remedy> {
        match error.kind {
            ErrorKind::ContextTooLong if next == Next::GiveUp => return sent.shorter().map(Remedy::Shorten),
            ErrorKind::StaleState if sent.has_state() => return Some(Remedy::DropState),
            // An image that looks whole can still be damaged, and must not cost the turn.
            ErrorKind::BadRequest if sent.shows_images() => return Some(Remedy::DropImages),
            _ => {}
        }
        // Some servers refuse a conversation that is too long without a word.
        if self.guessed || !may_be_too_long(error) || !sent.is_long() {
            return None;
        }
        self.guessed = true;
        sent.shorter().map(Remedy::Shorten)
    }

    /// Records that a failure was reported to its model, which has given so many answers. It can be the turn's fault if the
    /// model answers others.
    pub(super) fn reported(&mut self, kind: ErrorKind, answers: u64) {
        let before = self.round.answers.get(self.at).copied().unwrap_or_default();
        self.round.alone |= kind.may_be_of_the_request() && answers > before;
    }

    /// Decides what follows from a failure, now that it is journaled and reported. `is_down` says whether its model is down.
    pub(super) fn conclude(&mut self, verdict: Verdict, error: ProviderError, is_down: bool) -> Step {
        let Verdict { facts, next, fallback, transient, remedy } = verdict;
        if let Some(refusal) = facts.out_of_time.filter(|_| facts.own_work || !transient) {
            return Step::OutOfTime(refusal);
        }
        if let Some(remedy) = remedy {
            // It covers all failures so far.
            self.failed = 0;
            return Step::Remedy(remedy);
        }
        self.round.transient |= transient;
        if next != Next::GiveUp && transient && is_down {
            // Another model is asked, or the turn waits for the probe.
            self.last = Some((self.at, error));
            return Step::Ask;
        }
        if let Next::Retry(pause) = next {
            return Step::Retry(pause);
        }
        self.last = Some((self.at, error));
        if next == Next::GiveUp && !self.round.transient {
            return Step::GiveUp;
        }
        if !transient {
            self.refused.insert(self.at);
            // Fall-backs that did not fit a budget may be needed after all.
            self.round.unaffordable.clear();
        }
        // A model that answers other turns is not down.
        let down = transient && !self.round.alone;
        match next {
            Next::Fallback(_) => {
                self.begin_at(fallback);
                Step::FallBack { down }
            }
            Next::Retry(_) | Next::GiveUp => Step::NextRound { down: down && !facts.cut_short },
        }
    }

    /// Ends a round in which every model that could be asked failed, at least one for a transient cause. `answers` are the
    /// numbers of answers of the models so far; `alone` counts the rounds in which the same model answered others.
    pub(super) fn next_round(&mut self, models: &[impl Candidate], answers: Vec<u64>, alone: &mut u32) -> RoundEnd {
        let was_alone = std::mem::replace(&mut self.round, Round { answers, ..Round::default() }).alone;
        self.restart();
        let Some((last, _)) = self.last().filter(|_| was_alone) else { return RoundEnd::Next };
        *alone += 1;
        if *alone >= ALONE_MAX {
            return RoundEnd::Faulty;
        }
        RoundEnd::Pause(models[last].plan().retry_cap.min(PAUSE_MAX).saturating_mul(*alone))
    }
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;
