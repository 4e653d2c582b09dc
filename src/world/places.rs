//! Places: how many agents may be awake at once (`limits.awake_max`), and who waits for one, in order. A pure type; the
//! directory holds it under a lock.
//!
//! Mail never depends on it: an agent that waits here has its mail in the store, and after a restart it is woken again.

use std::collections::{BTreeSet, VecDeque};

use ghost_domain::AgentId;

/// The agents that are awake, and those that wait.
#[derive(Debug)]
pub(crate) struct Places {
    max: usize,
    taken: BTreeSet<AgentId>,
    queue: VecDeque<AgentId>,
    waiting: BTreeSet<AgentId>,
    /// Whether the queue has had its first member since [`take_begun`](Self::take_begun).
    begun: bool,
}

impl Places {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, taken: BTreeSet::new(), queue: VecDeque::new(), waiting: BTreeSet::new(), begun: false }
    }

    /// Sets the number of places. Agents that are awake stay so.
    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Takes a place for the agent, or puts it at the end of the queue. Returns whether it may be woken now.
    pub(crate) fn enter(&mut self, agent_id: &AgentId) -> bool {
        if self.taken.contains(agent_id) {
            return true;
        }
        if self.queue.is_empty() && self.taken.len() < self.max {
            self.taken.insert(agent_id.clone());
            return true;
        }
        if self.waiting.insert(agent_id.clone()) {
            self.begun |= self.queue.is_empty();
            self.queue.push_back(agent_id.clone());
        }
        false
    }

    /// Takes a place even if there is none: the agent works already.
    pub(crate) fn force(&mut self, agent_id: &AgentId) {
        self.taken.insert(agent_id.clone());
    }

    /// Frees the agent's place.
    pub(crate) fn leave(&mut self, agent_id: &AgentId) {
        self.taken.remove(agent_id);
    }

    /// Gives a free place to the agent that has waited longest.
    pub(crate) fn next(&mut self) -> Option<AgentId> {
        if self.taken.len() >= self.max {
            return None;
        }
        let agent_id = self.queue.pop_front()?;
        self.waiting.remove(&agent_id);
        self.taken.insert(agent_id.clone());
        Some(agent_id)
    }

    /// Whether agents have begun to wait since the last [`take_begun`](Self::take_begun).
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// Returns [`has_begun`](Self::has_begun) and resets it.
    pub(crate) fn take_begun(&mut self) -> bool {
        std::mem::take(&mut self.begun)
    }

    /// Number of agents that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(n: u8) -> AgentId {
        format!("a{n}").parse().unwrap()
    }

    #[test]
    fn those_who_wait_come_in_their_order_and_nobody_overtakes_them() {
        let mut places = Places::new(2);
        assert!(places.enter(&id(1)) && places.enter(&id(2)) && places.enter(&id(2)));
        assert!(!places.enter(&id(3)) && !places.enter(&id(4)) && !places.enter(&id(3)));
        places.leave(&id(1));
        assert!(!places.enter(&id(5)), "a place is free, but others wait for it");
        assert_eq!((places.next(), places.next()), (Some(id(3)), None));
        places.force(&id(6));
        places.leave(&id(2));
        assert_eq!(places.next(), None, "one more than the bound worked already");
        places.set_max(9);
        assert_eq!((places.next(), places.next(), places.next()), (Some(id(4)), Some(id(5)), None));
        assert_eq!(places.waiting(), 0);
    }

    proptest! {
        #[test]
        fn whoever_enters_gets_a_place_in_the_end(steps in prop::collection::vec((0_u8..3, 0_u8..12), 1..200)) {
            let mut places = Places::new(3);
            let mut asked = BTreeSet::new();
            for (what, n) in steps {
                match what {
                    0 => {
                        asked.insert(id(n));
                        if places.enter(&id(n)) { asked.remove(&id(n)); }
                    }
                    1 => places.leave(&id(n)),
                    _ => { if let Some(next) = places.next() { prop_assert!(asked.remove(&next)); } }
                }
                prop_assert!(places.taken.len() <= 3);
                prop_assert_eq!(places.queue.iter().cloned().collect::<BTreeSet<_>>(), places.waiting.clone());
            }
            for n in 0..12 { places.leave(&id(n)); }
            while places.waiting() > 0 {
                let next = places.next().unwrap();
                asked.remove(&next);
                places.leave(&next);
            }
            prop_assert!(asked.is_empty());
        }
    }
}
