//! Checks of the event feed alone: its order, and that the turns of one agent never overlap.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::AgentId;
use ghost_domain::event::{Event, EventKind};
use ghost_domain::wall_clock::JUMP_MIN;

use super::tools::OutsideEvents;

/// Checks the event feed.
pub(crate) fn check(events: &[Event], outside: &OutsideEvents, wrongs: &mut Vec<String>) {
    order(events, wrongs);
    turns(events, wrongs);
    for event in events {
        match event.kind {
            EventKind::WorldSweepFound => wrongs.push(format!("the sweep found mail: {}", event.payload)),
            // Only an agent whose own tool panicked may crash.
            EventKind::AgentCrashed if event.agent_id.as_ref().is_none_or(|id| !outside.panicked.contains(id)) => {
                wrongs.push(format!("an innocent agent crashed: {:?} {}", event.agent_id, event.payload));
            }
            _ => {}
        }
    }
}

fn order(events: &[Event], wrongs: &mut Vec<String>) {
    let mut ids = BTreeSet::new();
    for (index, event) in events.iter().enumerate() {
        if usize::try_from(event.seq).ok() != Some(index + 1) {
            wrongs.push(format!("the feed has a gap: event {} has position {}", event.seq, index + 1));
            return;
        }
        if !ids.insert(event.event_id) {
            wrongs.push(format!("two events have the id {}", event.event_id));
        }
    }
    // A start cannot tell a step back that is less than a jump.
    let may_step = |before: &Event, event: &Event| match event.kind {
        EventKind::WorldClockJumped => true,
        EventKind::WorldStarted => before.ts.since(event.ts) < JUMP_MIN,
        _ => false,
    };
    if let Some(pair) = events.windows(2).find(|pair| pair[0].ts > pair[1].ts && !may_step(&pair[0], &pair[1])) {
        wrongs.push(format!("time runs backwards in the feed from {} to {}", pair[0].seq, pair[1].seq));
    }
}

fn turns(events: &[Event], wrongs: &mut Vec<String>) {
    let mut open: BTreeMap<&AgentId, &str> = BTreeMap::new();
    let mut operators: BTreeSet<&str> = BTreeSet::new();
    let mut ended: BTreeSet<&str> = BTreeSet::new();
    for event in events {
        let (Some(agent_id), Some(turn_id)) =
            (&event.agent_id, event.payload.get("turn_id").and_then(|id| id.as_str()))
        else {
            continue;
        };
        match event.kind {
            EventKind::TurnStarted if event.payload.get("source").is_some() => {
                operators.insert(turn_id);
            }
            EventKind::TurnStarted | EventKind::TurnResumed => {
                if let Some(other) = open.insert(agent_id, turn_id)
                    && other != turn_id
                {
                    wrongs.push(format!("{agent_id} begins {turn_id} while {other} is open (event {})", event.seq));
                }
                if ended.contains(turn_id) {
                    wrongs.push(format!("turn {turn_id} goes on after its end (event {})", event.seq));
                }
            }
            EventKind::TurnFinished => {
                if !ended.insert(turn_id) {
                    wrongs.push(format!("turn {turn_id} ends twice (event {})", event.seq));
                }
                if !operators.contains(turn_id) && open.remove(agent_id) != Some(turn_id) {
                    wrongs.push(format!("turn {turn_id} ends without having been open (event {})", event.seq));
                }
            }
            // A retried dead letter resumes its turn.
            EventKind::DeadLetterRetried => {
                ended.remove(turn_id);
            }
            _ => {}
        }
    }
}
