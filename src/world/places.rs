//! Places: how many agents may be awake at once (`limits.awake_max`), and who waits for one, in order. People go before
//! machines, within a share. A pure type; the directory holds it under a lock.
//!
//! Mail never depends on it: an agent that waits here has its mail in the store, and after a restart it is woken again.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::AgentId;
use ghost_domain::fair_queue::{Class, FairQueue};

/// The agents that are awake, and those that wait.
#[derive(Debug)]
pub(crate) struct Places {
    max: usize,
    taken: BTreeSet<AgentId>,
    queue: FairQueue<AgentId>,
    /// Who waits, and in which class. An entry of the other class is out of date.
    waiting: BTreeMap<AgentId, Class>,
    /// Agents that gave their place away because they wait for a model or a budget.
    away: usize,
    /// Whether the queue has had its first member since [`take_begun`](Self::take_begun).
    begun: bool,
}

impl Places {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            taken: BTreeSet::new(),
            queue: FairQueue::default(),
            waiting: BTreeMap::new(),
            away: 0,
            begun: false,
        }
    }

    /// Sets the number of places. Agents that are awake stay so.
    pub(crate) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Takes a place for the agent, or puts it at the end of its queue. Returns whether it may be woken now.
    pub(crate) fn enter(&mut self, agent_id: &AgentId, class: Class) -> bool {
        if self.taken.contains(agent_id) {
            return true;
        }
        if self.waiting.is_empty() && self.taken.len() < self.max {
            self.taken.insert(agent_id.clone());
            return true;
        }
        if !self.waiting.contains_key(agent_id) {
            self.begun |= self.waiting.is_empty();
            self.waiting.insert(agent_id.clone(), class);
            self.queue.push(class, agent_id.clone());
        } else if class == Class::Person {
            self.promote(agent_id);
        }
        false
    }

    /// Lets an agent that waits in the machines' queue wait in that of people.
    pub(crate) fn promote(&mut self, agent_id: &AgentId) {
        if let Some(class) = self.waiting.get_mut(agent_id).filter(|class| **class == Class::Machine) {
            *class = Class::Person;
            self.queue.push(Class::Person, agent_id.clone());
        }
    }

    /// Takes a place even if there is none: the agent works already.
    pub(crate) fn force(&mut self, agent_id: &AgentId) {
        self.taken.insert(agent_id.clone());
    }

    /// Frees the place of an agent that waits for a model or a budget, if fewer than `max` agents have done so: an outage
    /// must not wake a whole world. Returns whether it did; then [`come_back`](Self::come_back) must follow.
    pub(crate) fn go_away(&mut self, agent_id: &AgentId) -> bool {
        let may = self.away < self.max;
        if may {
            self.away += 1;
            self.leave(agent_id);
        }
        may
    }

    /// Ends the wait of an agent that went away. It does not take a place.
    pub(crate) fn come_back(&mut self) {
        self.away = self.away.saturating_sub(1);
    }

    /// Frees the agent's place.
    pub(crate) fn leave(&mut self, agent_id: &AgentId) {
        self.taken.remove(agent_id);
    }

    /// Gives a free place to the agent whose turn it is.
    pub(crate) fn next(&mut self) -> Option<AgentId> {
        if self.taken.len() >= self.max {
            return None;
        }
        self.queue.discard(|class, agent_id| self.waiting.get(agent_id) != Some(&class));
        let agent_id = self.queue.pop()?;
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

    /// Number of agents that hold a place, and of places.
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.taken.len(), self.max)
    }

    /// Number of agents that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ghost_domain::fair_queue::Class::{Machine, Person};
    use proptest::prelude::*;

    fn id(n: u8) -> AgentId {
        format!("a{n}").parse().unwrap()
    }

    #[test]
    fn those_who_wait_come_in_their_order_and_nobody_overtakes_them() {
        let mut places = Places::new(2);
        assert!(places.enter(&id(1), Machine) && places.enter(&id(2), Machine) && places.enter(&id(2), Machine));
        assert!(!places.enter(&id(3), Machine) && !places.enter(&id(4), Machine) && !places.enter(&id(3), Machine));
        places.leave(&id(1));
        assert!(!places.enter(&id(5), Machine), "a place is free, but others wait for it");
        assert_eq!((places.next(), places.next()), (Some(id(3)), None));
        places.force(&id(6));
        places.leave(&id(2));
        assert_eq!(places.next(), None, "one more than the bound worked already");
        places.set_max(9);
        assert_eq!((places.next(), places.next(), places.next()), (Some(id(4)), Some(id(5)), None));
        assert_eq!(places.waiting(), 0);
    }

    #[test]
    fn no_more_agents_go_away_than_there_are_places() {
        let mut places = Places::new(2);
        for n in 0..2 {
            assert!(places.enter(&id(n), Machine) && places.go_away(&id(n)));
        }
        assert!(places.enter(&id(2), Machine) && !places.go_away(&id(2)));
        places.come_back();
        assert!(places.go_away(&id(2)) && places.held().0 == 0);
    }

    #[test]
    fn people_go_first_within_their_share() {
        let mut places = Places::new(1);
        assert!(places.enter(&id(0), Machine));
        for n in 1..5 {
            places.enter(&id(n), Machine);
        }
        for n in 10..14 {
            places.enter(&id(n), Person);
        }
        // A person writes to one of those that wait for machines.
        places.enter(&id(4), Person);
        places.leave(&id(0));
        let mut order = Vec::new();
        while let Some(next) = places.next() {
            places.leave(&next);
            order.push(next);
        }
        assert_eq!(order, [10, 11, 12, 1, 13, 4, 2, 3].map(id));
        assert_eq!(places.waiting(), 0);
    }

    #[test]
    fn people_alone_may_come_without_end() {
        let mut places = Places::new(1);
        assert!(places.enter(&id(0), Person));
        for _ in 0..1_000 {
            assert!(!places.enter(&id(1), Person));
            places.leave(&id(0));
            assert_eq!(places.next(), Some(id(1)));
            assert!(!places.enter(&id(0), Person));
            places.leave(&id(1));
            assert_eq!(places.next(), Some(id(0)));
        }
    }

    proptest! {
        #[test]
        fn whoever_enters_gets_a_place_in_the_end(steps in prop::collection::vec((0_u8..4, 0_u8..12), 1..200)) {
            let mut places = Places::new(3);
            let mut asked = BTreeSet::new();
            for (what, n) in steps {
                match what {
                    0 | 1 => {
                        asked.insert(id(n));
                        if places.enter(&id(n), if what == 0 { Machine } else { Person }) { asked.remove(&id(n)); }
                    }
                    2 => places.leave(&id(n)),
                    _ => { if let Some(next) = places.next() { prop_assert!(asked.remove(&next)); } }
                }
                prop_assert!(places.taken.len() <= 3);
                prop_assert_eq!(places.waiting.keys().cloned().collect::<BTreeSet<_>>(), asked.clone());
            }
            for n in 0..12 { places.leave(&id(n)); }
            while places.waiting() > 0 {
                let next = places.next().unwrap();
                asked.remove(&next);
                places.leave(&next);
            }
            prop_assert!(asked.is_empty() && places.next().is_none() && places.queue.is_empty());
        }
    }
}
