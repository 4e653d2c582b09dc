//! A queue that puts people before machines, within a share: neither class waits for ever. Within a class the order is
//! that of arrival.

use std::collections::VecDeque;

/// How many in a row are people while machines wait.
const PEOPLE_IN_A_ROW: u32 = 3;

/// For whom something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// No person waits for it: agents among themselves, timers, jobs, the system.
    Machine,
    /// A person waits for it: an operator, or someone in a conversation.
    Person,
}

/// The queue.
#[derive(Debug)]
pub struct FairQueue<T> {
    people: VecDeque<T>,
    machines: VecDeque<T>,
    people_in_a_row: u32,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { people: VecDeque::new(), machines: VecDeque::new(), people_in_a_row: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Puts `item` at the end of its class.
    pub fn push(&mut self, class: Class, item: T) {
        match class {
            Class::Person => self.people.push_back(item),
            Class::Machine => self.machines.push_back(item),
        }
    }

    /// Takes the item whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let machines_turn = self.people_in_a_row >= PEOPLE_IN_A_ROW && !self.machines.is_empty();
        let person = if machines_turn { None } else { self.people.pop_front() };
        self.people_in_a_row = if person.is_some() { self.people_in_a_row.saturating_add(1) } else { 0 };
        person.or_else(|| self.machines.pop_front())
    }

    /// Takes the first item for which `is_it` is true out of the queue.
    pub fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        [&mut self.people, &mut self.machines]
            .into_iter()
            .find_map(|queue| queue.iter().position(&is_it).and_then(|at| queue.remove(at)))
    }

    /// Drops the first items of each class as long as they are `stale`.
    pub fn discard(&mut self, stale: impl Fn(Class, &T) -> bool) {
        for (class, queue) in [(Class::Person, &mut self.people), (Class::Machine, &mut self.machines)] {
            while queue.front().is_some_and(|item| stale(class, item)) {
                queue.pop_front();
            }
        }
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.people.is_empty() && self.machines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Class::{Machine, Person};
    use super::*;

    #[test]
    fn people_go_first_within_their_share() {
        let mut queue = FairQueue::default();
        (1..4).for_each(|n| queue.push(Machine, n));
        (10..18).for_each(|n| queue.push(Person, n));
        assert_eq!((queue.remove(|n| *n == 14), queue.remove(|n| *n == 99)), (Some(14), None));
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [10, 11, 12, 1, 13, 15, 16, 2, 17, 3]);
        assert!(queue.is_empty());
    }
}
