//! The loop guard. It detects a call that keeps giving the same outcome, and repeated
//! reads of data that does not change. It first warns, then blocks the call, then ends the turn. It
//! is pure, and is rebuilt from the journal after a crash.

use std::collections::{BTreeMap, VecDeque};

use ghost_domain::journal::{CallOutcome, JournalRow, Step};
use ghost_domain::transcript::Block;
use ghost_domain::{Code, Limits, Refusal};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The number of calls that the guard remembers. A limit above it raises the number.
const WINDOW: u32 = 30;
/// A warning is repeated after this many more repetitions.
const WARN_AGAIN: u32 = 5;

/// The limits that its refusals name.
const BLOCK: &str = "loop_block";
const STOP: &str = "loop_stop";

/// A digest of a call or of an outcome.
pub type Digest = [u8; 32];

/// The properties of a tool that matter to the guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nature {
    /// Whether the call only reads. A repeated read of unchanged data is no progress.
    pub looks: bool,
    /// Members of its outcome, at any depth, that change on their own, such as the time of day.
    /// They are ignored when outcomes are compared.
    pub passing: &'static [&'static str],
}

/// A call, for the guard.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The tool's canonical name.
    pub tool: &'a str,
    /// The arguments as the model wrote them.
    pub arguments: &'a Value,
    /// See [`Nature`].
    pub nature: Nature,
}

/// The guard's decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// No loop was detected.
    Fine,
    /// A warning for the model.
    Warn(String),
    /// The call must not run. The refusal is its result.
    Block(Refusal),
    /// The turn must end.
    Stop(Refusal),
}

/// A call that the guard remembers.
#[derive(Clone, Debug, PartialEq)]
struct PastCall {
    call: Digest,
    /// A digest of the data that the call read, if it only read.
    looked_at: Option<Digest>,
    outcome: Digest,
}

/// The number of answers in a row that only read and found nothing new after the first.
#[derive(Clone, Debug, Default, PartialEq)]
struct Poll {
    answers: u32,
    /// The number of the answer that was counted last.
    last: u64,
}

/// The guard of one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopGuard {
    warn: u32,
    block: u32,
    stop: u32,
    window: usize,
    recent: VecDeque<PastCall>,
    /// The number of model answers so far.
    answers: u64,
    poll: Poll,
}

impl LoopGuard {
    /// A guard with the world's limits. A limit lower than the one before it is raised to that one.
    pub fn new(limits: &Limits) -> Self {
        let warn = limits.loop_warn.max(2);
        let block = limits.loop_block.max(warn);
        let stop = limits.loop_stop.max(block);
        let window = usize::try_from(stop.max(WINDOW)).unwrap_or(usize::MAX);
        Self { warn, block, stop, window, recent: VecDeque::new(), answers: 0, poll: Poll::default() }
    }

    /// Rebuilds the guard from the journal of a turn. `nature` returns the properties of a call by
    /// the name that the model used.
    pub fn replay(limits: &Limits, rows: &[JournalRow], nature: &dyn Fn(&str, &Value) -> Nature) -> Self {
        let mut guard = Self::new(limits);
        let mut calls: BTreeMap<&str, (&str, &Value)> = BTreeMap::new();
        for row in rows {
            match &row.step {
                Step::ModelAnswered { blocks, .. } => {
                    guard.answered();
                    for block in blocks {
                        if let Block::ToolCall { id, name, arguments } = block {
                            calls.insert(id, (name, arguments));
                        }
                    }
                }
                Step::CallFinished { id, tool, outcome, .. } => {
                    let (name, arguments) = calls.get(id.as_str()).copied().unwrap_or((tool, &Value::Null));
                    let call = Call { tool, arguments, nature: nature(name, arguments) };
                    if outcome.refusal.as_ref().is_some_and(is_own) {
                        let _ = guard.before(call);
                    } else {
                        let _ = guard.observe(call, outcome);
                    }
                }
                _ => {}
            }
        }
        guard
    }

    /// Records that the model has answered. Later calls belong to the next answer.
    pub fn answered(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    /// Checks a call before it runs. A blocked call is counted as one more repetition, so that a
    /// model that keeps repeating it reaches the limit that ends the turn.
    pub fn before(&mut self, call: Call<'_>) -> Verdict {
        let (digest, looked_at) = (call_digest(&call), looked_at(&call));
        let same = self.recent.iter().rev().find(|seen| seen.call == digest).map(|seen| seen.outcome);
        let looked = self.recent.iter().rev().find(|seen| seen.looked_at == looked_at).map(|seen| seen.outcome);
        let polls = looked_at.is_some() && looked.is_some() && self.poll.answers >= self.block;
        let loops =
            same.is_some_and(|outcome| self.repeats(digest, outcome).max(self.next_alternations(digest)) >= self.block);
        let Some(outcome) = same.filter(|_| loops).or(looked.filter(|_| polls)) else { return Verdict::Fine };
        self.push(PastCall { call: digest, looked_at, outcome });
        self.judge(call.tool, digest, outcome, polls)
    }

    /// Records the outcome of a call. [`Verdict::Block`] means that the next such call will not
    /// run.
    pub fn observe(&mut self, call: Call<'_>, outcome: &CallOutcome) -> Verdict {
        let (digest, outcome) = (call_digest(&call), digest_of(outcome, call.nature.passing));
        let counted = self.push(PastCall { call: digest, looked_at: looked_at(&call), outcome });
        self.judge(call.tool, digest, outcome, counted)
    }

    /// Remembers a call. Returns whether it is the first call of its answer that is counted as a
    /// poll.
    fn push(&mut self, seen: PastCall) -> bool {
        let looks = seen.looked_at.is_some();
        let stale =
            looks && self.recent.iter().any(|other| (other.looked_at, other.outcome) == (seen.looked_at, seen.outcome));
        while self.recent.len() >= self.window {
            self.recent.pop_front();
        }
        self.recent.push_back(seen);
        let answers = match (stale, looks) {
            (true, _) if self.poll.answers > 0 && self.poll.last == self.answers => return false,
            (true, _) => self.poll.answers.saturating_add(1),
            (false, true) => 1,
            (false, false) => 0,
        };
        self.poll = Poll { answers, last: self.answers };
        true
    }

    /// Decides by the number of repetitions. `polls` says whether answers that only read are
    /// counted too, each once.
    fn judge(&self, tool: &str, call: Digest, outcome: Digest, polls: bool) -> Verdict {
        let (same, alternations, poll) =
            (self.repeats(call, outcome), self.alternations(), if polls { self.poll.answers } else { 0 });
        let count = same.max(alternations).max(poll);
        let description = if same == count {
            format!("{tool} was called {same} times with the same arguments and gave the same result each time")
        } else if alternations == count {
            format!("{tool} and another call have taken turns {alternations} times without any change")
        } else {
            format!("{poll} answers in a row have only read, the last with {tool}, and nothing has changed")
        };
        let refusal = |limit: &str, value: u32, hint: &str| {
            let details = json!({ "limit": limit, "value": value });
            Refusal::new(Code::LoopGuard, description.clone()).hint(hint).details(details)
        };
        if count >= self.stop {
            Verdict::Stop(refusal(STOP, self.stop, "the turn was ended"))
        } else if count >= self.block {
            let hint = if poll > same.max(alternations) {
                "it does not run again until you do something else: do that, or end your turn; new mail wakes you"
            } else {
                "it does not run again in this turn: do something else, or say what prevents you"
            };
            Verdict::Block(refusal(BLOCK, self.block, hint))
        } else if count >= self.warn && (count - self.warn).is_multiple_of(WARN_AGAIN) {
            Verdict::Warn(format!("{description}. Repeating it will not help: try another way, or finish."))
        } else {
            Verdict::Fine
        }
    }

    fn repeats(&self, call: Digest, outcome: Digest) -> u32 {
        count(self.recent.iter().filter(|seen| (seen.call, seen.outcome) == (call, outcome)).count())
    }

    /// The length of the alternating tail if `call` were the next of the two.
    fn next_alternations(&self, call: Digest) -> u32 {
        let alternates = self.recent.len() >= 2 && self.recent[self.recent.len() - 2].call == call;
        if alternates { self.alternations() } else { 0 }
    }

    /// The length of the tail in which two calls alternate, each with an unchanged outcome.
    fn alternations(&self) -> u32 {
        let end = self.recent.len();
        if end < 3 || self.recent[end - 1].call == self.recent[end - 2].call {
            return 0;
        }
        let tail = (2..end).take_while(|back| self.recent[end - 1 - back] == self.recent[end + 1 - back]).count();
        if tail == 0 { 0 } else { count(tail + 2) }
    }
}

/// Whether this refusal comes from the loop guard, which counted it when it refused. Other limits
/// use the same code; repeating a call that they refuse is a loop like any other.
pub fn is_own(refusal: &Refusal) -> bool {
    let limit = refusal.details.as_ref().and_then(|details| details["limit"].as_str());
    refusal.code == Code::LoopGuard && matches!(limit, Some(BLOCK | STOP))
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A digest of an outcome, without the members that change on their own.
fn digest_of(outcome: &CallOutcome, passing: &[&str]) -> Digest {
    let mut hasher = Sha256::new();
    hash_value(&mut hasher, &outcome.content, &|name, _| !passing.contains(&name));
    for image in outcome.images.iter() {
        hasher.update(&image.sha256);
    }
    if let Some(refusal) = &outcome.refusal {
        hasher.update(refusal.code.as_str());
        hasher.update([0]);
        hasher.update(&refusal.message);
    }
    hasher.finalize().into()
}

fn call_digest(call: &Call<'_>) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update(call.tool);
    hasher.update([0]);
    hash_value(&mut hasher, call.arguments, &|_, _| true);
    hasher.finalize().into()
}

/// A digest that identifies the data which a reading call reads: the tool and its text arguments.
/// Numbers and booleans only select the amount that is shown, so they are ignored.
fn looked_at(call: &Call<'_>) -> Option<Digest> {
    call.nature.looks.then(|| {
        let mut hasher = Sha256::new();
        hasher.update(call.tool);
        hasher.update([0]);
        hash_value(&mut hasher, call.arguments, &|_, value| {
            !(value.is_number() || value.is_boolean() || value.is_null())
        });
        hasher.finalize().into()
    })
}

/// Hashes a value. Objects that differ only in the order of their members are equal. Members for
/// which `counts` returns false are ignored.
fn hash_value(hasher: &mut Sha256, value: &Value, counts: &dyn Fn(&str, &Value) -> bool) {
    match value {
        Value::Object(map) => {
            hasher.update(b"{");
            let sorted: BTreeMap<&String, &Value> = map.iter().filter(|(key, item)| counts(key, item)).collect();
            for (key, item) in sorted {
                hasher.update((key.len() as u64).to_le_bytes());
                hasher.update(key);
                hash_value(hasher, item, counts);
            }
            hasher.update(b"}");
        }
        Value::Array(items) => {
            hasher.update(b"[");
            items.iter().for_each(|item| hash_value(hasher, item, counts));
            hasher.update(b"]");
        }
        Value::String(text) => {
            hasher.update(b"s");
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
        other => {
            hasher.update(other.to_string());
            hasher.update(b";");
        }
    }
}

#[cfg(test)]
#[path = "loop_guard_tests.rs"]
mod tests;
