//! What a root has set going, counted where agents act on one another, and when that is too much (promise 7). The bounds
//! are `limits.root_messages_max`, `root_spawns_max`, `root_turns_max`, `echoes_max` and `reply_rounds_max`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, RootId};
use crate::time::Timestamp;

/// Short texts of one root that are remembered, to notice when they go round.
const ECHOES_KEPT: usize = 256;
/// Bytes up to which a text may be a politeness; longer ones carry something, even when they repeat.
const ECHO_BYTES: usize = 240;

/// Tellings of bounds between two agents that one root remembers; beyond that they are not told any more.
const TOLD_KEPT: usize = 256;

/// The counts of one root. What arrives from outside (hop 0) is not counted: it has bounds of its own, and a root that
/// nothing follows from leaves no row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RootTally {
    /// The root.
    pub root_id: RootId,
    /// Pieces of mail and posts that turns of it sent.
    pub messages: u64,
    /// Turns that took such mail.
    pub turns: u64,
    /// Agents that turns of it created.
    pub spawns: u32,
    /// How often the same short words went from one agent to another, by a digest of the three.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub echoes: BTreeMap<String, u32>,
    /// The highest of those counts from one agent to another, by a digest of the two.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub loudest: BTreeMap<String, u32>,
    /// Whom each agent asked last, and how often in a row.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rounds: BTreeMap<AgentId, Rounds>,
    /// The bounds that were told of as reached, with their values then: those of the root by name, those between two agents
    /// by name and both.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub told: BTreeMap<String, u64>,
    /// When it last counted something.
    pub updated_at: Timestamp,
}

/// How often in a row an agent asked the same other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rounds {
    /// The other.
    pub with: AgentId,
    /// How often.
    pub count: u32,
    /// Whether the other has ended the exchange.
    pub over: bool,
}

impl RootTally {
    /// Nothing yet.
    #[must_use]
    pub fn new(root_id: RootId, now: Timestamp) -> Self {
        Self {
            root_id,
            messages: 0,
            turns: 0,
            spawns: 0,
            echoes: BTreeMap::new(),
            loudest: BTreeMap::new(),
            rounds: BTreeMap::new(),
            told: BTreeMap::new(),
            updated_at: now,
        }
    }

    /// Counts a text from one agent to another. Gives how often these words have gone back and forth: as often as this one
    /// was said, this time included, and the other has said some words of its own. Who repeats himself to one who does not is
    /// no echo: he may have the same to report of several things. 0 if the text is too long to be a politeness.
    pub fn echo(&mut self, from: &AgentId, to: &AgentId, text: &str) -> u32 {
        if text.len() > ECHO_BYTES {
            return 0;
        }
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase);
        let words: Vec<String> = words.collect();
        let said = count(&mut self.echoes, digest(from, to, &words));
        let way = self.loudest.entry(digest(from, to, &[])).or_insert(0);
        *way = said.max(*way);
        // The way back counts one more, so that the two are told of the bound one after the other.
        let back = self.loudest.get(&digest(to, from, &[])).copied().unwrap_or(0);
        trim(&mut self.loudest);
        said.min(back.saturating_add(1))
    }
}

impl RootTally {
    /// Counts that `from` asks `to`. Who asks another in between begins anew, so that asking in turn is no loop.
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

    /// Whether it is to be told that a bound of the root, or one `between` two agents, is reached: once while it has this
    /// value. Notes that it is.
    pub fn tell(&mut self, limit: &str, between: Option<(&str, &str)>, most: u64) -> bool {
        let key = between.map_or_else(|| limit.to_owned(), |(from, to)| format!("{limit} {from} {to}"));
        let room = between.is_none() || self.told.len() < TOLD_KEPT || self.told.contains_key(&key);
        room && self.told.insert(key, most) != Some(most)
    }

    /// Notes that `to` has ended the exchange in which `from` asks it.
    pub fn ended(&mut self, from: &AgentId, to: &AgentId) {
        if let Some(rounds) = self.rounds.get_mut(from).filter(|rounds| rounds.with == *to) {
            rounds.over = true;
        }
    }
}

/// Counts a key. The rarest go first when there are too many: a loop is not rare.
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

/// FNV-1a, 64 bits: two texts that meet by chance would have to do so between the same two agents in one root.
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
    fn words_that_go_back_and_forth_are_counted() {
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
    fn reports_to_one_who_only_listens_are_no_echo() {
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
    fn a_bound_is_told_once_while_it_has_a_value() {
        let mut tally = tally();
        let mut tell = |between, most| tally.tell("echoes_max", between, most);
        assert!(tell(Some(("a", "b")), 3) && tell(Some(("b", "a")), 3) && tell(None, 3));
        assert!(!tell(Some(("a", "b")), 3) && !tell(None, 3));
        assert!(tell(None, 4) && !tell(None, 4));
        for n in 0..600 {
            tally.tell("echoes_max", Some(("a", &format!("n{n}"))), 3);
        }
        assert!(tally.told.len() <= TOLD_KEPT);
        assert!(tally.tell("hops_max", None, 32), "what the whole root has reached is told in any case");
    }

    proptest! {
        #[test]
        fn a_loop_is_noticed_among_any_noise(noise in prop::collection::vec("[a-z]{1,8}", 0..600)) {
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
