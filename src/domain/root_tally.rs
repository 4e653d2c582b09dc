//! Counts the work of one root in which agents act on one another, so that it can be limited
//! (promise 7 in `docs/design.md`). The limits are `limits.root_messages_max`, `root_spawns_max`,
//! `root_turns_max`, `echoes_max` and `reply_rounds_max`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, RootId};
use crate::macros::record;
use crate::time::Timestamp;

/// Maximum short texts, pairs of agents and askers that one root remembers.
const ECHOES_KEPT: usize = 256;
/// Longest text in bytes that is counted as an echo. A longer repeated text may be real work.
const ECHO_BYTES: usize = 240;

/// Maximum reports of limits between two agents that one root remembers. Further limits are not
/// reported.
const REPORTS_KEPT: usize = 256;

record! {
    /// The counts of one root. Messages from outside (hop 0) are not counted: they have limits of their
    /// own, and a root without further work needs no row.
    pub struct RootTally {
        /// Id of the root.
        pub root_id: RootId,
        /// Number of messages that the root's turns sent to agents and chat channels.
        pub messages: u64 = 0,
        /// Number of turns that took such mail.
        pub turns: u64 = 0,
        /// Number of agents that the root's turns created.
        pub spawns: u32 = 0,
        /// How often one agent sent the same short text to another. The key is a digest of sender,
        /// receiver and text.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub echoes: BTreeMap<String, u32> = BTreeMap::new(),
        /// The highest count in `echoes` for each pair. The key is a digest of sender and receiver.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub loudest: BTreeMap<String, u32> = BTreeMap::new(),
        /// For each agent: which agent it asked last, and how often in a row.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        pub rounds: BTreeMap<AgentId, Rounds> = BTreeMap::new(),
        /// The limits that were reported as reached, with their values at that time. The key is the
        /// limit's name; for a limit between two agents also both ids.
        #[serde(default, rename = "told", skip_serializing_if = "BTreeMap::is_empty")]
        pub reported: BTreeMap<String, u64> = BTreeMap::new(),
        /// When a count last changed.
        pub updated_at: Timestamp = now,
    }

    /// A tally without counts.
    pub fn new(root_id: RootId, now: Timestamp)
}

/// How often in a row an agent asked the same other agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounds {
    /// The agent that was asked.
    pub with: AgentId,
    /// Number of asks in a row.
    pub count: u32,
    /// Whether the asked agent has ended the exchange.
    pub over: bool,
}

impl RootTally {
    /// Counts a text from one agent to another. Returns how often short texts have gone back and
    /// forth: the number of times that this text was sent, but at most one more than the highest
    /// count in the other direction. So repetition in one direction is not an echo: an agent may
    /// send the same report about several subjects. Returns 0 for a long text.
    pub fn echo(&mut self, from: &AgentId, to: &AgentId, text: &str) -> u32 {
        if text.len() > ECHO_BYTES {
            return 0;
        }
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase);
        let words: Vec<String> = words.collect();
        let sent = count(&mut self.echoes, digest(from, to, &words));
        let highest = self.loudest.entry(digest(from, to, &[])).or_insert(0);
        *highest = sent.max(*highest);
        // One more than the other direction, so that the two agents reach the limit one after the
        // other.
        let back = self.loudest.get(&digest(to, from, &[])).copied().unwrap_or(0);
        trim(&mut self.loudest);
        sent.min(back.saturating_add(1))
    }

    /// Counts that `from` asks `to`. If `from` asked another agent in between, the count starts
    /// again.
    pub fn asked(&mut self, from: &AgentId, to: &AgentId) -> &Rounds {
        while self.rounds.len() >= ECHOES_KEPT && !self.rounds.contains_key(from) {
            let fewest = self.rounds.iter().min_by_key(|(_, rounds)| rounds.count).map(|(id, _)| id.clone());
            self.rounds.retain(|id, _| Some(id) != fewest.as_ref());
        }
        let none = || Rounds { with: to.clone(), count: 0, over: false };
        let rounds = self.rounds.entry(from.clone()).or_insert_with(none);
        if rounds.with != *to {
            *rounds = none();
        }
        rounds.count = rounds.count.saturating_add(1);
        rounds
    }

    /// Whether to report that a limit of the root, or a limit `between` two agents, is reached. It
    /// is reported once for each value of the limit. Records that it was reported.
    pub fn report_once(&mut self, limit: &str, between: Option<(&str, &str)>, value: u64) -> bool {
        let key = between.map_or_else(|| limit.to_owned(), |(from, to)| format!("{limit} {from} {to}"));
        let room = between.is_none() || self.reported.len() < REPORTS_KEPT || self.reported.contains_key(&key);
        room && self.reported.insert(key, value) != Some(value)
    }

    /// Records that `to` has ended the exchange in which `from` asks it.
    pub fn ended(&mut self, from: &AgentId, to: &AgentId) {
        if let Some(rounds) = self.rounds.get_mut(from).filter(|rounds| rounds.with == *to) {
            rounds.over = true;
        }
    }
}

/// Counts a key. If there are too many keys, the rarest is removed: a loop repeats its key often.
fn count(counts: &mut BTreeMap<String, u32>, key: String) -> u32 {
    if !counts.contains_key(&key) {
        trim(counts);
    }
    let count = counts.entry(key).or_insert(0);
    *count = count.saturating_add(1);
    *count
}

fn trim(counts: &mut BTreeMap<String, u32>) {
    while counts.len() >= ECHOES_KEPT {
        let Some(rarest) = counts.iter().min_by_key(|(_, count)| **count).map(|(key, _)| key.clone()) else { return };
        counts.remove(&rarest);
    }
}

/// FNV-1a with 64 bits. A collision matters only between the same two agents in one root.
fn digest(from: &AgentId, to: &AgentId, words: &[String]) -> String {
    let mut digest: u64 = 0xcbf2_9ce4_8422_2325;
    for part in [from.as_str(), to.as_str()].into_iter().chain(words.iter().map(String::as_str)) {
        for byte in part.bytes().chain([0]) {
            digest = (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    format!("{digest:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn tally() -> RootTally {
        RootTally::new(RootId(Uuid::nil()), Timestamp(0))
    }

    fn id(name: &str) -> AgentId {
        name.parse().unwrap()
    }

    #[test]
    fn short_texts_that_go_back_and_forth_are_counted() {
        let (a, b, mut tally) = (id("a"), id("b"), tally());
        let mut counts = Vec::new();
        for _ in 0..4 {
            counts.push(tally.echo(&a, &b, "Thank you!"));
            counts.push(tally.echo(&b, &a, "thank  YOU"));
        }
        assert_eq!(counts, [1, 1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(tally.echo(&a, &b, "Thank you all"), 1);
        assert_eq!(tally.echo(&a, &b, &"long ".repeat(100)), 0);
    }

    #[test]
    fn repetition_in_one_direction_is_not_an_echo() {
        let (a, b, mut tally) = (id("a"), id("b"), tally());
        for _ in 0..50 {
            assert_eq!(tally.echo(&a, &b, "Done."), 1);
        }
    }

    #[test]
    fn asking_the_same_agent_in_a_row_is_counted_and_can_be_ended() {
        let (a, b, c, mut tally) = (id("a"), id("b"), id("c"), tally());
        assert_eq!((tally.asked(&a, &b).count, tally.asked(&a, &b).count, tally.asked(&b, &a).count), (1, 2, 1));
        tally.ended(&a, &c);
        assert!(!tally.asked(&a, &b).over);
        tally.ended(&a, &b);
        assert!(tally.asked(&a, &b).over && !tally.asked(&b, &a).over);
        assert_eq!(tally.asked(&a, &c), &Rounds { with: c.clone(), count: 1, over: false });
        for n in 0..600 {
            tally.asked(&id(&format!("n{n}")), &b);
        }
        assert!(tally.rounds.len() <= ECHOES_KEPT);
    }

    #[test]
    fn a_limit_is_reported_once_for_each_value() {
        let mut tally = tally();
        let mut report_once = |between, value| tally.report_once("echoes_max", between, value);
        assert!(report_once(Some(("a", "b")), 3) && report_once(Some(("b", "a")), 3) && report_once(None, 3));
        assert!(!report_once(Some(("a", "b")), 3) && !report_once(None, 3));
        assert!(report_once(None, 4) && !report_once(None, 4));
        for n in 0..600 {
            tally.report_once("echoes_max", Some(("a", &format!("n{n}"))), 3);
        }
        assert!(tally.reported.len() <= REPORTS_KEPT);
        assert!(tally.report_once("hops_max", None, 32), "a limit of the root itself is always reported");
    }

    proptest! {
        #[test]
        fn a_loop_is_found_among_other_texts(noise in prop::collection::vec("[a-z]{1,8}", 0..600)) {
            let (a, b, mut tally) = (id("a"), id("b"), tally());
            let mut seen = 0;
            for (at, words) in noise.iter().enumerate() {
                tally.echo(&a, &b, &format!("noise {words}"));
                if at % 10 == 0 {
                    tally.echo(&b, &a, "Thanks to you!");
                    seen = tally.echo(&a, &b, "Thanks!");
                }
            }
            prop_assert!(tally.echoes.len() <= ECHOES_KEPT && tally.loudest.len() <= ECHOES_KEPT);
            prop_assert!(noise.len() < 100 || seen >= 3);
        }
    }
}
