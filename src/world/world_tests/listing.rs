//! Listing all agents does not block the store's writer.

use std::sync::atomic::Ordering;

use ghost_domain::testing::ManualClock;
use ghost_domain::{Agent, AgentKind, AgentStatus, Desired, Timestamp};
use ghost_tools::AgentControl;

use crate::Directory;
use crate::directory::AT_ONCE;

fn agent(n: usize) -> Agent {
    Agent {
        agent_id: format!("a{n:05}").parse().unwrap(),
        incarnation: 1,
        archetype: "worker".into(),
        name: "worker".into(),
        team: None,
        owner: None,
        kind: AgentKind::Dynamic,
        desired: Desired::Running,
        status: AgentStatus::Running,
        status_reason: None,
        restarts: 0,
        overrides: serde_json::Value::Null,
        node: "here".into(),
        epoch: 1,
        created_at: Timestamp(1),
        updated_at: Timestamp(1),
        started_at: None,
        last_active_at: None,
        deleted_at: None,
        paid_since: None,
        team_since: None,
        dropped: false,
        helps: None,
        let_go: false,
        stop_grace_seconds: None,
        cannot_run: false,
    }
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
