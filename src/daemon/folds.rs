//! Folds repeats: what an agent does again and again is one sentence with a count.
//!
//! A sentence must never be lost: what is held back is counted, and the count is given out in the end.

use std::collections::BTreeMap;
use std::time::Duration;

use ghost_domain::Timestamp;

use crate::narration::Sentence;

/// How long repeats are only counted.
const HELD_MAX: Duration = Duration::from_secs(10);
/// Maximum number of agents and people whose last sentence is remembered.
const REMEMBERED: usize = 4_096;

/// The last sentence of each agent and person, and how often it was repeated since it was printed.
#[derive(Debug, Default)]
pub(crate) struct Folds {
    last: BTreeMap<String, Last>,
}

#[derive(Debug)]
struct Last {
    sentence: Sentence,
    /// When it was printed, or its count was.
    printed: Timestamp,
    /// Repeats that were not printed.
    held: u32,
}

impl Last {
    /// The sentence with the count of the repeats that were held back, if there are any.
    fn counted(&mut self) -> Option<Sentence> {
        let held = std::mem::take(&mut self.held);
        let times = if held == 1 { "once more".to_owned() } else { format!("{held} more times") };
        self.printed = self.sentence.at;
        let what = format!("{} ({times})", self.sentence.what);
        (held > 0).then(|| Sentence { what, ..self.sentence.clone() })
    }
}

impl Folds {
    /// The sentences to print now that `sentence` has come. A repeat is held back for some seconds.
    pub(crate) fn take(&mut self, sentence: Sentence) -> Vec<Sentence> {
        let mut out = self.due(sentence.at);
        let is_same = |last: &Last| (&last.sentence.what, &last.sentence.words) == (&sentence.what, &sentence.words);
        if let Some(last) = self.last.get_mut(&sentence.who).filter(|last| is_same(last)) {
            last.sentence.at = sentence.at;
            last.held = last.held.saturating_add(1);
            return out;
        }
        if self.last.len() >= REMEMBERED {
            out.extend(self.rest());
            self.last.clear();
        }
        let last = Last { printed: sentence.at, held: 0, sentence: sentence.clone() };
        let before = self.last.insert(sentence.who.clone(), last);
        out.extend(before.and_then(|mut before| before.counted()));
        out.push(sentence);
        out
    }

    /// The counts that have been held back for long enough.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<Sentence> {
        let due = self.last.values_mut().filter(|last| last.held > 0 && now.since(last.printed) >= HELD_MAX);
        due.filter_map(Last::counted).collect()
    }

    /// All counts that are held back: something else is printed now.
    pub(crate) fn rest(&mut self) -> Vec<Sentence> {
        self.last.values_mut().filter_map(Last::counted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::narration::Tone;

    fn says(seconds: i64, who: &str, what: &str) -> Sentence {
        Sentence { at: Timestamp(seconds * 1_000), who: who.into(), what: what.into(), words: None, tone: Tone::Plain }
    }

    fn what(sentences: &[Sentence]) -> Vec<String> {
        sentences.iter().map(|sentence| format!("{} {}", sentence.who, sentence.what)).collect()
    }

    #[test]
    fn repeats_are_one_sentence_with_a_count() {
        let mut folds = Folds::default();
        let mut out = folds.take(says(0, "ann", "writes a.md"));
        // Another agent's work between them does not matter.
        out.extend(folds.take(says(0, "bob", "writes b.md")));
        for _ in 0..33 {
            out.extend(folds.take(says(1, "ann", "writes a.md")));
        }
        out.extend(folds.take(says(2, "ann", "writes c.md")));
        let wanted = ["ann writes a.md", "bob writes b.md", "ann writes a.md (33 more times)", "ann writes c.md"];
        assert_eq!(what(&out), wanted);
        assert!(folds.rest().is_empty());
    }

    #[test]
    fn a_count_is_given_out_after_some_seconds_and_at_the_end() {
        let mut folds = Folds::default();
        folds.take(says(0, "ann", "writes a.md"));
        assert!(folds.take(says(3, "ann", "writes a.md")).is_empty());
        assert!(folds.due(Timestamp(9_000)).is_empty());
        assert_eq!(what(&folds.due(Timestamp(10_000))), ["ann writes a.md (once more)"]);
        assert!(folds.due(Timestamp(60_000)).is_empty(), "nothing was held back since");
        folds.take(says(61, "ann", "writes a.md"));
        assert_eq!(what(&folds.rest()), ["ann writes a.md (once more)"]);
        assert!(folds.rest().is_empty());
    }
}
