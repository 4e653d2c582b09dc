//! The loop guard: a call that keeps giving the same outcome, and looking again and again at what does not change, is warned
//! of, then blocked, then ends the turn (TOOL-21). Pure, and rebuilt from the journal after a crash.

use std::collections::{BTreeMap, VecDeque};

use ghost_domain::journal::{CallOutcome, JournalRow, Step};
use ghost_domain::transcript::Block;
use ghost_domain::{Code, Limits, Refusal};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Calls that the guard remembers; more if the limits look further back.
const WINDOW: u32 = 30;
/// A warning is repeated after this many further repetitions.
const WARN_AGAIN: u32 = 5;

/// The bounds that its refusals name.
const BLOCK: &str = "loop_block";
const STOP: &str = "loop_stop";

/// A digest of a call or of an outcome.
pub type Digest = [u8; 32];

/// What the guard needs to know of the tool that is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nature {
    /// Whether the call only looks: it changes nothing by itself, so that looking again at the same is no progress.
    pub looks: bool,
    /// Members of its outcome, at whatever depth, that pass by themselves and tell one outcome from another no more than the
    /// time of day does.
    pub passing: &'static [&'static str],
}

/// A call, as the guard sees it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The tool, by its canonical name.
    pub tool: &'a str,
    /// The arguments, as the model wrote them.
    pub arguments: &'a Value,
    /// See [`Nature`].
    pub nature: Nature,
}

/// What the guard says.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Words for the model.
    Warn(String),
    /// The call must not run any more; the refusal is its result.
    Block(Refusal),
    /// The turn must end.
    Stop(Refusal),
}

/// A call that the guard remembers.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    call: Digest,
    /// What it looked at, if it only looked.
    looked_at: Option<Digest>,
    outcome: Digest,
}

/// Answers in a row that only looked, and saw nothing new after the first of them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Poll {
    answers: u32,
    /// The answer that was counted last.
    last: u64,
}

/// The guard of one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopGuard {
    warn: u32,
    block: u32,
    stop: u32,
    window: usize,
    recent: VecDeque<Seen>,
    /// Answers of the model so far.
    answers: u64,
    poll: Poll,
}

impl LoopGuard {
    /// A guard with the world's bounds. A bound below the one before it counts as equal to that.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        let warn = limits.loop_warn.max(2);
        let block = limits.loop_block.max(warn);
        let stop = limits.loop_stop.max(block);
        let window = usize::try_from(stop.max(WINDOW)).unwrap_or(usize::MAX);
        Self { warn, block, stop, window, recent: VecDeque::new(), answers: 0, poll: Poll::default() }
    }

    /// A guard that has seen what the journal of a turn holds. `nature` says it of a call by the name that the model used.
    #[must_use]
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

    /// Takes note that the model has answered: what it calls from here on belongs to another answer.
    pub fn answered(&mut self) {
        self.answers = self.answers.saturating_add(1);
    }

    /// Asks before a call runs. A call that is blocked counts as one more repetition, so that a model that will not let
    /// go of it comes to the end.
    pub fn before(&mut self, call: Call<'_>) -> Verdict {
        let (digest, looked_at) = (call_digest(&call), looked_at(&call));
        let same = self.recent.iter().rev().find(|seen| seen.call == digest).map(|seen| seen.outcome);
        let looked = self.recent.iter().rev().find(|seen| seen.looked_at == looked_at).map(|seen| seen.outcome);
        let polls = looked_at.is_some() && looked.is_some() && self.poll.answers >= self.block;
        let loops =
            same.is_some_and(|outcome| self.repeats(digest, outcome).max(self.next_swing(digest)) >= self.block);
        let Some(outcome) = same.filter(|_| loops).or(looked.filter(|_| polls)) else { return Verdict::Fine };
        self.push(Seen { call: digest, looked_at, outcome });
        self.judge(call.tool, digest, outcome, polls)
    }

    /// Takes note of what a call gave. A verdict of [`Verdict::Block`] means that the next such call will not run.
    pub fn observe(&mut self, call: Call<'_>, outcome: &CallOutcome) -> Verdict {
        let (digest, outcome) = (call_digest(&call), digest_of(outcome, call.nature.passing));
        let counted = self.push(Seen { call: digest, looked_at: looked_at(&call), outcome });
        self.judge(call.tool, digest, outcome, counted)
    }

    /// Remembers a call. Gives whether it is the first that says whether its answer polls.
    fn push(&mut self, seen: Seen) -> bool {
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

    /// `polls` says that the answers that only looked are to be judged as well: once for each of them.
    fn judge(&self, tool: &str, call: Digest, outcome: Digest, polls: bool) -> Verdict {
        let (same, swing, poll) =
            (self.repeats(call, outcome), self.swing(), if polls { self.poll.answers } else { 0 });
        let count = same.max(swing).max(poll);
        let what = if same == count {
            format!("{tool} was called {same} times with the same arguments and gave the same result each time")
        } else if swing == count {
            format!("{tool} and another call have taken turns {swing} times without any change")
        } else {
            format!("{poll} answers in a row have only looked, the last with {tool}, and nothing has changed")
        };
        let refusal = |limit: &str, most: u32, hint: &str| {
            let details = json!({ "limit": limit, "value": most });
            Refusal::new(Code::LoopGuard, what.clone()).hint(hint).details(details)
        };
        if count >= self.stop {
            Verdict::Stop(refusal(STOP, self.stop, "the turn was ended"))
        } else if count >= self.block {
            let hint = if poll > same.max(swing) {
                "it is not run again before something else was done: do that, or end your turn; mail wakes you when it comes"
            } else {
                "it is not run again in this turn: do something else, or say what stands in the way"
            };
            Verdict::Block(refusal(BLOCK, self.block, hint))
        } else if count >= self.warn && (count - self.warn).is_multiple_of(WARN_AGAIN) {
            Verdict::Warn(format!("{what}. Repeating it will not help: try another way, or finish."))
        } else {
            Verdict::Fine
        }
    }

    fn repeats(&self, call: Digest, outcome: Digest) -> u32 {
        count(self.recent.iter().filter(|seen| (seen.call, seen.outcome) == (call, outcome)).count())
    }

    /// How long the tail is in which two calls take turns, each with an outcome that does not change.
    fn swing(&self) -> u32 {
        self.swing_from(self.recent.len())
    }

    /// The same, if `call` were the next one to swing.
    fn next_swing(&self, call: Digest) -> u32 {
        let swings = self.recent.len() >= 2 && self.recent[self.recent.len() - 2].call == call;
        if swings { self.swing() } else { 0 }
    }

    fn swing_from(&self, end: usize) -> u32 {
        if end < 3 || self.recent[end - 1].call == self.recent[end - 2].call {
            return 0;
        }
        let tail = (2..end).take_while(|back| self.recent[end - 1 - back] == self.recent[end + 1 - back]).count();
        if tail == 0 { 0 } else { count(tail + 2) }
    }
}

/// Whether this is a refusal of a loop guard's own, which it has counted when it refused. Bounds that hold what agents do to
/// each other refuse with the same code, and going on against them is a loop like any other.
#[must_use]
pub fn is_own(refusal: &Refusal) -> bool {
    let limit = refusal.details.as_ref().and_then(|details| details["limit"].as_str());
    refusal.code == Code::LoopGuard && matches!(limit, Some(BLOCK | STOP))
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// What tells one outcome from another, but for the members that pass by themselves.
fn digest_of(outcome: &CallOutcome, passing: &[&str]) -> Digest {
    let mut hasher = Sha256::new();
    feed(&mut hasher, &outcome.content, &|name, _| !passing.contains(&name));
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
    feed(&mut hasher, call.arguments, &|_, _| true);
    hasher.finalize().into()
}

/// What a call that only looks looks at: the tool and what its arguments name. Numbers and switches only say how much of it is
/// shown, and asking for more or less of the same is asking for the same.
fn looked_at(call: &Call<'_>) -> Option<Digest> {
    call.nature.looks.then(|| {
        let mut hasher = Sha256::new();
        hasher.update(call.tool);
        hasher.update([0]);
        feed(&mut hasher, call.arguments, &|_, value| !(value.is_number() || value.is_boolean() || value.is_null()));
        hasher.finalize().into()
    })
}

/// Two objects that differ in the order of their members only are the same. Members of an object that do not count are left out.
fn feed(hasher: &mut Sha256, value: &Value, counts: &dyn Fn(&str, &Value) -> bool) {
    match value {
        Value::Object(map) => {
            hasher.update(b"{");
            let sorted: BTreeMap<&String, &Value> = map.iter().filter(|(key, item)| counts(key, item)).collect();
            for (key, item) in sorted {
                hasher.update((key.len() as u64).to_le_bytes());
                hasher.update(key);
                feed(hasher, item, counts);
            }
            hasher.update(b"}");
        }
        Value::Array(items) => {
            hasher.update(b"[");
            items.iter().for_each(|item| feed(hasher, item, counts));
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
