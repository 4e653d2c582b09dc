//! Listing all agents does not block the store's writer.

use std::sync::atomic::Ordering;

use ghost_domain::testing::ManualClock;
use ghost_domain::{Agent, AgentKind, Timestamp};
use ghost_tools::AgentControl;

use crate::Directory;
use crate::directory::AT_ONCE;

fn agent(n: usize) -> Agent {
    Agent::new(format!("a{n:05}").parse().unwrap(), "worker", AgentKind::Dynamic, Timestamp(1))
}

#[test]
fn listing_all_agents_releases_the_lock_in_between() {
    let directory = Directory::new(ManualClock::at(1));
    let many = AT_ONCE * 4 + 1;
    for n in 0..many {
        directory.record(&agent(n));
    }
    let cards = directory.cards();
    assert_eq!(directory.parts.load(Ordering::Relaxed), 5);
    let ids: Vec<String> = cards.iter().map(|card| card.agent_id.to_string()).collect();
    let all: Vec<String> = (0..many).map(|n| format!("a{n:05}")).collect();
    assert_eq!(ids, all, "everyone, once, in order");
    assert_eq!(directory.activities().len(), many);
}

#[test]
fn a_page_of_agents_reads_what_it_shows() {
    let directory = Directory::new(ManualClock::at(1));
    (0..AT_ONCE * 4).for_each(|n| drop(directory.record(&agent(n))));
    let seen = std::cell::Cell::new(0);
    let page = |after: Option<&str>, most| -> Vec<String> {
        let wanted = |_, _: &str| {
            seen.set(seen.get() + 1);
            true
        };
        let cards = directory.cards_after(after.map(|id| id.parse().unwrap()), most, wanted);
        cards.iter().map(|card| card.agent_id.to_string()).collect()
    };
    assert_eq!(page(Some("a00300"), 3), ["a00301", "a00302", "a00303"]);
    assert_eq!(seen.get(), 3, "no other agent was looked at");
    assert_eq!(page(None, AT_ONCE + 1).len(), AT_ONCE + 1);
    assert!(page(Some("b"), 3).is_empty());
}
