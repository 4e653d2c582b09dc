//! What an actor shares with the task that works for it: the turn under way, how fast turns were opened, and what the next one
//! need not read anew.
//!
//! Must never: hold what the store does not know. All of it may be gone after a crash.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_domain::{Activity, Timestamp, Turn, TurnId};
use tokio::sync::Notify;

const MINUTE: Duration = Duration::from_secs(60);

/// The turns of one minute (`limits.agent_turns_per_minute`).
#[derive(Default)]
struct Pace {
    began: Timestamp,
    opened: u32,
    told: bool,
    waits: bool,
}

/// What is known of an agent's next turn before it is opened.
#[derive(Clone)]
pub(super) struct Room {
    /// Bytes of mail that it has room for.
    pub(super) bytes: usize,
    /// The models that it may ask, in order: provider and model.
    pub(super) models: Arc<[(String, String)]>,
}

/// What an actor shares with the task that works for it.
#[derive(Default)]
pub struct AgentSession {
    /// Rings when an ask of this agent's has been closed.
    pub bell: Notify,
    current: Mutex<Option<TurnId>>,
    /// Whether no turn of the agent's own can be open, because this actor has ended its last one.
    settled: AtomicBool,
    /// Whether a turn that was aside may go on now.
    ready: AtomicBool,
    /// See [`AgentSession::room`].
    room: Mutex<Option<(Weak<Plan>, Room)>>,
    /// Rings when a parked turn is to be tried again at once.
    pub(super) again: Notify,
    /// Which wait for a model that is down or for a budget the agent is at, if it is at one: nothing is lost by letting that go.
    parked: AtomicU64,
    /// Waits so far.
    waits: AtomicU64,
    pace: Mutex<Pace>,
    /// Whether the turn is to be left where it next stands: its agent is restarted, and has done nothing wrong.
    yields: AtomicBool,
    /// Whether it was.
    left: AtomicBool,
    /// Whether a model or a tool is at work that would have to be paid or done again if it were cut off.
    busy: AtomicBool,
    /// What the agent's next prompt recalls, so that it is not read for every turn of a busy agent.
    recent: Mutex<Option<Vec<Arc<Turn>>>>,
}

impl AgentSession {
    /// The turn under way.
    #[must_use]
    pub fn current(&self) -> Option<TurnId> {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the turn under way to stop at its next step, which its journal then has. False if nothing is under way that such
    /// patience would save.
    pub(crate) fn ask_to_yield(&self) -> bool {
        self.yields.store(true, Ordering::Release);
        self.busy.load(Ordering::Acquire)
    }

    /// Whether no other turn is to be opened.
    pub(super) fn yields(&self) -> bool {
        self.yields.load(Ordering::Acquire)
    }

    /// Whether the turn is to be left here; it is then.
    pub(super) fn leaves(&self) -> bool {
        let yields = self.yields();
        if yields {
            self.left.store(true, Ordering::Release);
        }
        yields
    }

    /// Whether the turn was left open.
    pub(super) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    pub(super) fn shows(&self, activity: Activity) {
        self.busy.store(matches!(activity, Activity::Thinking | Activity::Acting), Ordering::Release);
    }

    pub(super) fn is_settled(&self) -> bool {
        // Asked for while a turn was under way, whose end settles.
        !self.ready.swap(false, Ordering::AcqRel) && self.settled.load(Ordering::Acquire)
    }

    /// What the agent's next turn has room for and whom it may ask, once a turn of its under this plan has told: what it is and
    /// whether it can run at all are then known, too.
    pub(super) fn room(&self, plan: &Arc<Plan>) -> Option<Room> {
        let known = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(plan))).map(|(_, room)| room.clone())
    }

    pub(super) fn set_room(&self, plan: &Arc<Plan>, room: Room) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = Some((Arc::downgrade(plan), room));
    }

    pub(super) fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }

    /// How long the agent must wait before it may open another turn, if it has opened `most` within a minute; and whether
    /// that is to be told, which is so once for each such minute.
    pub(super) fn pace(&self, now: Timestamp, most: u32) -> Option<(Duration, bool)> {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let end = pace.began.plus(MINUTE);
        if now >= end || now < pace.began {
            *pace = Pace { began: now, ..Pace::default() };
            return None;
        }
        if pace.opened < most {
            return None;
        }
        let tell = !std::mem::replace(&mut pace.told, true);
        pace.waits = true;
        Some((end.since(now), tell))
    }

    pub(super) fn paced(&self) {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).waits = false;
    }

    /// Whether the agent only waits for its next turn: nothing is lost by letting that wait go.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.parked.load(Ordering::Acquire) > 0 || self.pace.lock().unwrap_or_else(PoisonError::into_inner).waits
    }

    /// Has whatever waits look again, and the next look ask the store for an open turn.
    pub(crate) fn retry(&self) {
        self.settled.store(false, Ordering::Release);
        self.ready.store(true, Ordering::Release);
        self.again.notify_waiters();
    }

    /// Begins a wait, and gives its number.
    pub(super) fn parks(&self) -> u64 {
        let wait = self.waits.fetch_add(1, Ordering::AcqRel) + 1;
        self.parked.store(wait, Ordering::Release);
        wait
    }

    /// Ends a wait. Whether it was the one that the agent is at: a task that was cancelled may end after its successor began one.
    pub(super) fn goes_on(&self, wait: u64) -> bool {
        self.parked.compare_exchange(wait, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Has the next look ask the store for an open turn.
    pub(super) fn unsettle(&self) {
        self.settled.store(false, Ordering::Release);
    }

    /// The finished turns that the last look saw or that ended since, newest first. Forgotten by asking: only a turn that
    /// ends well brings them back, so that every other end makes the next look read them again.
    pub(super) fn recall(&self) -> Option<Vec<Arc<Turn>>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn remember(&self, recent: Option<Vec<Arc<Turn>>>, turn: Turn, most: u32) {
        let Some(mut recent) = recent else { return };
        recent.insert(0, Arc::new(turn));
        // Each source for itself, as they are read.
        let mut kept = std::collections::BTreeMap::<String, u32>::new();
        recent.retain(|turn| {
            let count = kept.entry(turn.source.clone()).or_insert(0);
            *count += 1;
            *count <= most
        });
        *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = Some(recent);
    }

    pub(super) fn set(&self, turn_id: Option<TurnId>) {
        if turn_id.is_some() {
            self.settled.store(false, Ordering::Release);
            self.pace.lock().unwrap_or_else(PoisonError::into_inner).opened += 1;
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = turn_id;
    }
}
