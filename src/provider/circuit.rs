//! The circuit breaker of one model at one provider: whether its calls work, and when to try again
//! (see Nygard, "Release It!"). A pure type, so that property tests and the simulation can drive
//! it. Its times are instants of a clock that never jumps. It allows one probe at a time.

use std::time::Duration;

use ghost_domain::{AgentId, Timestamp};

use crate::error::{ErrorKind, ProviderError};

/// The first pause after a model has gone down.
const PROBE_MIN: Duration = Duration::from_secs(1);
/// The longest pause between two probes, unless the provider asks for more.
const PROBE_MAX: Duration = Duration::from_secs(60);
/// The longest pause that a provider may ask for.
const ASKED_MAX: Duration = Duration::from_secs(3_600);

/// The answer to a caller that wants to call the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// The model works: call it.
    Go,
    /// The model is down and this caller probes it. The caller must report the result.
    Probe,
    /// The model is down: ask again at this time, or when the state changes. `None` while a probe
    /// is running.
    Wait(Option<Timestamp>),
}

/// When a model went down, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Time of the failure that opened the circuit.
    pub since: Timestamp,
    /// Text of the last failure.
    pub reason: String,
    /// Kind of the last failure.
    pub kind: ErrorKind,
    /// Time of the next probe.
    pub probe_at: Timestamp,
    /// Number of failed probes.
    pub probes: u32,
}

/// The state of one model.
#[derive(Clone, Debug, Default)]
pub struct Circuit {
    /// Failures since the last success, while the circuit is closed.
    failures: u32,
    /// Total number of answers. A caller compares it with an earlier number to see whether other
    /// calls were answered.
    answers: u64,
    outage: Option<Outage>,
    probing: bool,
    /// The refusal that the model gave last, since its last answer.
    refusal: Option<Refusal>,
}

/// A refusal that looks permanent.
#[derive(Clone, Debug)]
struct Refusal {
    kind: ErrorKind,
    /// Its text without words that differ from call to call.
    text: String,
    /// The agent that got it first.
    first: AgentId,
    /// Whether another agent got it too.
    shared: bool,
}

impl Circuit {
    /// Whether a caller may call the model now.
    pub fn admit(&mut self, now: Timestamp) -> Admit {
        let Some(outage) = &self.outage else { return Admit::Go };
        if self.probing {
            return Admit::Wait(None);
        }
        if now < outage.probe_at {
            return Admit::Wait(Some(outage.probe_at));
        }
        self.probing = true;
        Admit::Probe
    }

    /// Whether the model is down.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.outage.is_some()
    }

    /// The outage, if the model is down.
    #[must_use]
    pub fn outage(&self) -> Option<&Outage> {
        self.outage.as_ref()
    }

    /// Total number of answers.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// Records that a call was answered. Returns the outage that this ends.
    pub fn answered(&mut self) -> Option<Outage> {
        self.answers += 1;
        self.failures = 0;
        self.probing = false;
        self.refusal = None;
        self.outage.take()
    }

    /// Records that the model refused a call of `agent_id` in a way that looks permanent. Returns whether the refusal is
    /// the model's and not the request's: another agent got the same one, and nobody an answer since. Then the caller
    /// reports a failure. Otherwise the call counts as a probe without a result.
    ///
    /// A conversation that is too long is always the request's.
    pub fn refused(&mut self, agent_id: &AgentId, error: &ProviderError) -> bool {
        let text = signature(&error.message);
        let known = self.refusal.as_mut().filter(|known| known.kind == error.kind && known.text == text);
        let Some(known) = known.filter(|_| error.kind != ErrorKind::ContextTooLong) else {
            let first = agent_id.clone();
            self.refusal = Some(Refusal { kind: error.kind, text, first, shared: false });
            return false;
        };
        known.shared |= known.first != *agent_id;
        known.shared
    }

    /// Records that a call failed for a transient cause; `probe` says whether the call was the
    /// probe. The model goes down after `limit` failures in a row, or at once if the provider asked
    /// for a pause longer than `retry_cap`. Returns the outage that begins.
    pub fn failed(
        &mut self,
        now: Timestamp,
        probe: bool,
        error: &ProviderError,
        (limit, retry_cap): (u32, Duration),
    ) -> Option<Outage> {
        let asked = error.retry_after;
        if let Some(outage) = &mut self.outage {
            // The failure of a call that began before the model went down carries no new
            // information.
            if probe {
                self.probing = false;
                outage.probes = outage.probes.saturating_add(1);
                (outage.reason, outage.kind) = (error.to_string(), error.kind);
                outage.probe_at = now.plus(pause(outage.probes, asked));
            }
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < limit && asked.is_none_or(|asked| asked <= retry_cap) {
            return None;
        }
        self.open(now, error)
    }

    /// Marks the model as down. Returns the outage, unless the model was down already.
    pub fn open(&mut self, now: Timestamp, error: &ProviderError) -> Option<Outage> {
        if self.outage.is_some() {
            return None;
        }
        self.failures = 0;
        self.probing = false;
        let probe_at = now.plus(pause(0, error.retry_after));
        let outage = Outage { since: now, reason: error.to_string(), kind: error.kind, probe_at, probes: 0 };
        self.outage = Some(outage.clone());
        Some(outage)
    }

    /// Ends a probe that has no result: its turn was cancelled, or its budget did not suffice.
    pub fn end_probe(&mut self) {
        self.probing = false;
    }

    /// Makes the next probe due at once, because an operator or the world asked for it.
    pub fn probe_now(&mut self, now: Timestamp) {
        if let Some(outage) = &mut self.outage {
            outage.probe_at = outage.probe_at.min(now);
        }
    }
}

/// A refusal's text without the words that differ from call to call, such as ids, positions and counts.
fn signature(message: &str) -> String {
    let same = message.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    same.collect::<Vec<_>>().join(" ")
}

/// The pause before the next probe: it doubles up to a minute, or is longer if the provider asked
/// for it, up to an hour.
fn pause(probes: u32, asked: Option<Duration>) -> Duration {
    let own = PROBE_MIN.saturating_mul(1_u32.checked_shl(probes).unwrap_or(u32::MAX)).min(PROBE_MAX);
    asked.map_or(own, |asked| asked.min(ASKED_MAX).max(own))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: (u32, Duration) = (3, Duration::from_secs(30));

    fn down(reason: &str, asked: Option<Duration>) -> ProviderError {
        ProviderError::new(ErrorKind::Server, reason).retry_after(asked)
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000)
    }

    #[test]
    fn failures_in_a_row_open_the_circuit_and_an_answer_closes_it() {
        let mut circuit = Circuit::default();
        assert_eq!(circuit.failed(at(0), false, &down("refused", None), BOUNDS), None);
        assert_eq!(circuit.failed(at(0), false, &down("refused", None), BOUNDS), None);
        circuit.answered();
        for _ in 0..2 {
            assert_eq!(circuit.failed(at(1), false, &down("refused", None), BOUNDS), None);
        }
        let outage = circuit.failed(at(2), false, &down("refused", None), BOUNDS).expect("three in a row");
        assert_eq!((outage.since, outage.probe_at), (at(2), at(3)));
        assert_eq!(circuit.admit(at(2)), Admit::Wait(Some(at(3))));
        assert_eq!(circuit.admit(at(3)), Admit::Probe);
        assert_eq!(circuit.admit(at(9)), Admit::Wait(None), "one probe at a time");
        assert_eq!(circuit.failed(at(4), true, &down("503", None), BOUNDS), None);
        assert_eq!(
            circuit.outage().map(|outage| (outage.probe_at, outage.reason.as_str())),
            Some((at(6), "server: 503"))
        );
        assert_eq!(circuit.admit(at(6)), Admit::Probe);
        assert_eq!(circuit.answered().map(|outage| outage.since), Some(at(2)));
        assert_eq!(circuit.admit(at(6)), Admit::Go);
    }

    #[test]
    fn pauses_double_to_a_minute_and_requested_pauses_are_capped_at_an_hour() {
        let mut circuit = Circuit::default();
        circuit.open(at(0), &down("down", None));
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let due = circuit.outage().unwrap().probe_at;
            pauses.push(due.since(now).as_secs());
            now = due;
            assert_eq!(circuit.admit(now), Admit::Probe);
            circuit.failed(now, true, &down("down", None), BOUNDS);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        let mut asked = Circuit::default();
        let long = Some(Duration::from_secs(600));
        let outage = asked.failed(at(0), false, &down("429", long), BOUNDS).expect("longer than the retry cap");
        assert_eq!(outage.probe_at, at(600));
        assert_eq!(asked.open(at(1), &down("again", None)), None, "it is down already");
        let day = Some(Duration::from_secs(86_400));
        let mut other = Circuit::default();
        assert_eq!(
            other.failed(at(0), false, &down("429", day), BOUNDS).map(|outage| outage.probe_at),
            Some(at(3_600))
        );
    }

    #[test]
    fn an_older_call_neither_prolongs_an_outage_nor_ends_a_probe() {
        let mut circuit = Circuit::default();
        circuit.open(at(0), &down("down", None));
        assert_eq!(circuit.admit(at(1)), Admit::Probe);
        circuit.failed(at(1), false, &down("late", None), BOUNDS);
        assert_eq!(circuit.admit(at(2)), Admit::Wait(None));
        assert_eq!(circuit.outage().unwrap().reason, "server: down");
        circuit.end_probe();
        assert_eq!(circuit.admit(at(2)), Admit::Probe);
        circuit.end_probe();
        circuit.failed(at(2), true, &down("down", None), BOUNDS);
        circuit.probe_now(at(2));
        assert_eq!(circuit.admit(at(2)), Admit::Probe);
    }

    #[test]
    fn a_refusal_that_two_agents_get_is_the_models_until_it_answers() {
        let agent = |id: &str| id.parse::<AgentId>().unwrap();
        let error = |kind, text: &str| ProviderError::new(kind, text);
        let bad = |position: u32| {
            error(ErrorKind::BadRequest, &format!("HTTP 400: messages.{position}: no such field (req_{position}7f)"))
        };
        let mut circuit = Circuit::default();
        assert!(!circuit.refused(&agent("ada"), &bad(1)));
        assert!(!circuit.refused(&agent("ada"), &bad(2)), "its own mail may be wrong twice");
        assert!(circuit.refused(&agent("bob"), &bad(3)));
        assert!(circuit.refused(&agent("ada"), &bad(4)), "and now for the first one too");
        assert!(!circuit.refused(&agent("bob"), &error(ErrorKind::BadRequest, "HTTP 400: no such voice")));
        assert!(!circuit.refused(&agent("ada"), &error(ErrorKind::StaleState, "HTTP 400: no such voice")));
        circuit.refused(&agent("ada"), &bad(5));
        circuit.answered();
        assert!(!circuit.refused(&agent("bob"), &bad(6)), "the model has answered since");
        for id in ["ada", "bob", "cyd"] {
            assert!(!circuit.refused(&agent(id), &error(ErrorKind::ContextTooLong, "HTTP 413: too long")));
        }
    }

    proptest! {
        #[test]
        fn at_most_one_probe_runs_and_callers_are_never_blocked_for_ever(steps in prop::collection::vec((0..6_u8, 0..90_i64), 1..200)) {
            let (mut circuit, mut now, mut out) = (Circuit::default(), at(0), false);
            for (step, seconds) in steps {
                now = now.plus(Duration::from_secs(seconds.unsigned_abs()));
                match step {
                    0 => match circuit.admit(now) {
                        Admit::Probe => { prop_assert!(!out); out = true; }
                        Admit::Wait(Some(until)) => prop_assert!(until > now && until <= now.plus(ASKED_MAX)),
                        Admit::Wait(None) => prop_assert!(out),
                        Admit::Go => prop_assert!(!circuit.is_down()),
                    },
                    1 => { circuit.answered(); out = false; }
                    2 => { circuit.failed(now, out, &down("x", None), BOUNDS); out = false; }
                    3 => { circuit.failed(now, false, &down("x", Some(Duration::from_secs(40))), BOUNDS); }
                    4 if out => { circuit.end_probe(); out = false; }
                    _ => circuit.probe_now(now),
                }
            }
            if out { circuit.end_probe(); }
            let later = now.plus(ASKED_MAX);
            prop_assert!(matches!(circuit.admit(later), Admit::Go | Admit::Probe));
        }
    }
}
