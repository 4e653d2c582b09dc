//! The loop guard: the same call that keeps giving the same outcome is warned of, then blocked, then ends the turn
//! (TOOL-21). Pure, and rebuilt from the journal after a crash.

use std::collections::{BTreeMap, VecDeque};

use ghost_domain::journal::{CallOutcome, JournalRow, Step};
use ghost_domain::transcript::Block;
use ghost_domain::{Code, Limits, Refusal};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Calls that the guard remembers; more if the limits look further back.
const WINDOW: u32 = 30;
/// A warning is repeated after this many further repetitions.
const WARN_AGAIN: u32 = 5;

/// A digest of a call or of an outcome.
pub type Digest = [u8; 32];

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

/// The guard of one turn.
#[derive(Clone, Debug)]
pub struct LoopGuard {
    warn: u32,
    block: u32,
    stop: u32,
    window: usize,
    recent: VecDeque<(Digest, Digest)>,
}

impl LoopGuard {
    /// A guard with the world's bounds. A bound below the one before it counts as equal to that.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        let warn = limits.loop_warn.max(2);
        let block = limits.loop_block.max(warn);
        let stop = limits.loop_stop.max(block);
        let window = usize::try_from(stop.max(WINDOW)).unwrap_or(usize::MAX);
        Self { warn, block, stop, window, recent: VecDeque::new() }
    }

    /// A guard that has seen what the journal of a turn holds.
    #[must_use]
    pub fn replay(limits: &Limits, rows: &[JournalRow]) -> Self {
        let mut guard = Self::new(limits);
        let mut arguments: BTreeMap<&str, &Value> = BTreeMap::new();
        for row in rows {
            match &row.step {
                Step::ModelAnswered { blocks, .. } => {
                    for block in blocks {
                        if let Block::ToolCall { id, arguments: given, .. } = block {
                            arguments.insert(id, given);
                        }
                    }
                }
                Step::CallFinished { id, tool, outcome, .. } => {
                    let given = arguments.get(id.as_str()).copied().unwrap_or(&Value::Null);
                    if outcome.refusal.as_ref().is_some_and(|refusal| refusal.code == Code::LoopGuard) {
                        let _ = guard.before(tool, given);
                    } else {
                        let _ = guard.observe(tool, given, digest_of(outcome));
                    }
                }
                _ => {}
            }
        }
        guard
    }

    /// Asks before a call runs. A call that is blocked counts as one more repetition, so that a model that will not let
    /// go of it comes to the end.
    pub fn before(&mut self, tool: &str, arguments: &Value) -> Verdict {
        let call = call_digest(tool, arguments);
        let Some(outcome) = self.recent.iter().rev().find(|(other, _)| *other == call).map(|(_, outcome)| *outcome)
        else {
            return Verdict::Fine;
        };
        if self.repeats(call, outcome).max(self.next_swing(call)) < self.block {
            return Verdict::Fine;
        }
        self.push(call, outcome);
        self.judge(tool, call, outcome)
    }

    /// Takes note of what a call gave. A verdict of [`Verdict::Block`] means that the next such call will not run.
    pub fn observe(&mut self, tool: &str, arguments: &Value, outcome: Digest) -> Verdict {
        let call = call_digest(tool, arguments);
        self.push(call, outcome);
        self.judge(tool, call, outcome)
    }

    fn push(&mut self, call: Digest, outcome: Digest) {
        while self.recent.len() >= self.window {
            self.recent.pop_front();
        }
        self.recent.push_back((call, outcome));
    }

    fn judge(&self, tool: &str, call: Digest, outcome: Digest) -> Verdict {
        let (same, swing) = (self.repeats(call, outcome), self.swing());
        let count = same.max(swing);
        let what = if same >= swing {
            format!("{tool} was called {same} times with the same arguments and gave the same result each time")
        } else {
            format!("{tool} and another call have taken turns {swing} times without any change")
        };
        let refusal = |hint: &str| Refusal::new(Code::LoopGuard, what.clone()).hint(hint);
        if count >= self.stop {
            Verdict::Stop(refusal("the turn was ended"))
        } else if count >= self.block {
            Verdict::Block(refusal(
                "it is not run again in this turn: do something else, or say what stands in the way",
            ))
        } else if count >= self.warn && (count - self.warn).is_multiple_of(WARN_AGAIN) {
            Verdict::Warn(format!("{what}. Repeating it will not help: try another way, or finish."))
        } else {
            Verdict::Fine
        }
    }

    fn repeats(&self, call: Digest, outcome: Digest) -> u32 {
        count(self.recent.iter().filter(|seen| **seen == (call, outcome)).count())
    }

    /// How long the tail is in which two calls take turns, each with an outcome that does not change.
    fn swing(&self) -> u32 {
        self.swing_from(self.recent.len())
    }

    /// The same, if `call` were the next one to swing.
    fn next_swing(&self, call: Digest) -> u32 {
        let swings = self.recent.len() >= 2 && self.recent[self.recent.len() - 2].0 == call;
        if swings { self.swing() } else { 0 }
    }

    fn swing_from(&self, end: usize) -> u32 {
        if end < 3 || self.recent[end - 1].0 == self.recent[end - 2].0 {
            return 0;
        }
        let tail = (2..end).take_while(|back| self.recent[end - 1 - back] == self.recent[end + 1 - back]).count();
        if tail == 0 { 0 } else { count(tail + 2) }
    }
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// What tells one outcome from another.
#[must_use]
pub fn digest_of(outcome: &CallOutcome) -> Digest {
    let mut hasher = Sha256::new();
    feed(&mut hasher, &outcome.content);
    if let Some(refusal) = &outcome.refusal {
        hasher.update(refusal.code.as_str());
        hasher.update([0]);
        hasher.update(&refusal.message);
    }
    hasher.finalize().into()
}

fn call_digest(tool: &str, arguments: &Value) -> Digest {
    let mut hasher = Sha256::new();
    hasher.update(tool);
    hasher.update([0]);
    feed(&mut hasher, arguments);
    hasher.finalize().into()
}

/// Two objects that differ in the order of their members only are the same.
fn feed(hasher: &mut Sha256, value: &Value) {
    match value {
        Value::Object(map) => {
            hasher.update(b"{");
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            for (key, item) in sorted {
                hasher.update((key.len() as u64).to_le_bytes());
                hasher.update(key);
                feed(hasher, item);
            }
            hasher.update(b"}");
        }
        Value::Array(items) => {
            hasher.update(b"[");
            items.iter().for_each(|item| feed(hasher, item));
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
