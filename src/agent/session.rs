//! State that an actor shares with the task that runs its agent's turns: the current turn, the rate
//! of turns, and a cache for the next turn.
//!
//! A session must never hold facts that are not in the store. A crash may lose all of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_domain::{Activity, AgentId, ConversationId, Timestamp, TurnId};
use ghost_tools::workspace::Workspace;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::log::Log;

const MINUTE: Duration = Duration::from_secs(60);

/// Counts the turns of one minute, for `limits.agent_turns_per_minute`.
#[derive(Default)]
struct Pace {
    began: Timestamp,
    opened: u32,
    reported: bool,
    waiting: bool,
}

/// The mail capacity and the models of an agent's next turn, known before the turn is opened.
#[derive(Clone)]
pub(crate) struct Room {
    /// Maximum bytes of mail in the turn.
    pub(crate) bytes: usize,
    /// The models that it may ask, in order: provider and model.
    pub(crate) models: Arc<[(String, String)]>,
}

/// The log of the session of the agent's last turn.
struct LastLog {
    conversation_id: Option<ConversationId>,
    /// The plan under which the log was read: it decides how results are shown.
    plan: Weak<Plan>,
    /// See [`Engine::log_version`](crate::Engine::log_version).
    version: u64,
    log: Log,
}

/// The waits of the agent's task for a model or a budget. The task may be cancelled during one without loss.
#[derive(Default)]
struct Waits {
    /// Number of the current one; 0 if there is none.
    current: AtomicU64,
    /// Their number so far.
    count: AtomicU64,
    /// Notified when one begins.
    begun: Notify,
}

/// State that an actor shares with the task that runs its agent's turns.
#[derive(Default)]
pub struct AgentSession {
    /// Notified when an ask that this agent made, or an approval that its call waits for, has been closed.
    pub bell: Notify,
    current: Mutex<Option<TurnId>>,
    /// Whether the agent certainly has no open turn, because this actor has ended its last one.
    no_open_turn: AtomicBool,
    /// Whether an operator or the world has asked for a retry since the last read of the agent's
    /// next work.
    ready: AtomicBool,
    /// See [`AgentSession::room`].
    room: Mutex<Option<(Weak<Plan>, Room)>>,
    /// Notified when a parked turn must be tried again at once.
    pub(crate) retry_now: Notify,
    /// Whether the agent's directories have been made since this actor began.
    has_home: AtomicBool,
    waits: Waits,
    pace: Mutex<Pace>,
    /// Whether the turn must stop at its next step, because the agent is restarted through no fault
    /// of its own.
    yield_requested: AtomicBool,
    /// Whether a model or tool call is running. A cancelled call would have to be paid for or done
    /// again.
    busy: AtomicBool,
    /// See [`AgentSession::take_log`].
    log: Mutex<Option<LastLog>>,
}

impl AgentSession {
    /// The current turn.
    pub fn current(&self) -> Option<TurnId> {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the agent's directories, once for each actor. A failure is logged only: a write makes the
    /// directories that it needs, and says what stops it.
    pub(crate) async fn make_home(&self, workspace: &Workspace, agent_id: &AgentId) {
        if self.has_home.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Err(refusal) = workspace.ensure_agent(agent_id).await {
            tracing::warn!(%agent_id, %refusal, "the agent's directories cannot be made");
        }
    }

    /// Asks the current turn to stop at its next step. Returns whether a model or tool call is
    /// running, so that the caller should wait for it.
    pub(crate) fn ask_to_yield(&self) -> bool {
        self.yield_requested.store(true, Ordering::Release);
        self.busy.load(Ordering::Acquire)
    }

    /// Whether the current turn must stop at its next step, and no other may be opened.
    pub(crate) fn must_yield(&self) -> bool {
        self.yield_requested.load(Ordering::Acquire)
    }

    pub(crate) fn set_activity(&self, activity: Activity) {
        self.busy.store(matches!(activity, Activity::Thinking | Activity::Acting), Ordering::Release);
    }

    pub(crate) fn has_no_open_turn(&self) -> bool {
        // A retry that was requested during a turn must not be lost when that turn ends.
        !self.ready.swap(false, Ordering::AcqRel) && self.no_open_turn.load(Ordering::Acquire)
    }

    /// The mail capacity and the models of the agent's next turn under this plan. `None` until a
    /// turn under this plan was opened, which also showed that the agent can run.
    pub(crate) fn room(&self, plan: &Arc<Plan>) -> Option<Room> {
        let known = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(of, _)| std::ptr::eq(of.as_ptr(), Arc::as_ptr(plan))).map(|(_, room)| room.clone())
    }

    pub(crate) fn set_room(&self, plan: &Arc<Plan>, room: Room) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = Some((Arc::downgrade(plan), room));
    }

    pub(crate) fn set_no_open_turn(&self) {
        self.no_open_turn.store(true, Ordering::Release);
    }

    /// How long the agent must wait before it may open another turn, if it has opened `limit` turns
    /// within a minute. The flag is true once for each such minute: the limit must then be
    /// reported.
    pub(crate) fn pace(&self, now: Timestamp, limit: u32) -> Option<(Duration, bool)> {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let end = pace.began.plus(MINUTE);
        if now >= end || now < pace.began {
            *pace = Pace { began: now, ..Pace::default() };
            return None;
        }
        if pace.opened < limit {
            return None;
        }
        let report = !std::mem::replace(&mut pace.reported, true);
        pace.waiting = true;
        self.waits.begun.notify_waiters();
        Some((end.since(now), report))
    }

    pub(crate) fn end_pace_wait(&self) {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).waiting = false;
    }

    /// Whether the agent only waits for its next turn or for a model or budget, so that its task
    /// may be cancelled without loss.
    pub fn is_held_back(&self) -> bool {
        self.waits.current.load(Ordering::Acquire) > 0
            || self.pace.lock().unwrap_or_else(PoisonError::into_inner).waiting
    }

    /// Ends when the agent is held back again.
    pub(crate) fn wait_begun(&self) -> Notified<'_> {
        self.waits.begun.notified()
    }

    /// Makes all waits check again, and makes the next read ask the store for an open turn.
    pub(crate) fn retry(&self) {
        self.no_open_turn.store(false, Ordering::Release);
        self.ready.store(true, Ordering::Release);
        self.retry_now.notify_waiters();
    }

    /// Begins a wait and returns its number.
    pub(crate) fn begin_wait(&self) -> u64 {
        let wait = self.waits.count.fetch_add(1, Ordering::AcqRel) + 1;
        self.waits.current.store(wait, Ordering::Release);
        self.waits.begun.notify_waiters();
        wait
    }

    /// Ends a wait. Returns whether it was the current one: a cancelled task may end its wait after
    /// the next task has begun one.
    pub(crate) fn end_wait(&self, wait: u64) -> bool {
        self.waits.current.compare_exchange(wait, 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Makes the next read ask the store for an open turn.
    pub(crate) fn forget_no_open_turn(&self) {
        self.no_open_turn.store(false, Ordering::Release);
    }

    /// Takes the log that the agent's last turn left, if it is of this session and this plan. Any other turn drops it, so
    /// that a log in memory is never older than the store.
    pub(crate) fn take_log(
        &self,
        conversation_id: Option<ConversationId>,
        plan: &Arc<Plan>,
        version: u64,
    ) -> Option<Log> {
        let last = self.log.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let known = std::ptr::eq(last.plan.as_ptr(), Arc::as_ptr(plan)) && last.version == version;
        (known && last.conversation_id == conversation_id).then_some(last.log)
    }

    /// Remembers the log for the agent's next turn, so that a busy agent need not read it for every turn.
    pub(crate) fn keep_log(&self, conversation_id: Option<ConversationId>, plan: &Arc<Plan>, version: u64, log: Log) {
        let last = LastLog { conversation_id, plan: Arc::downgrade(plan), version, log };
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    pub(crate) fn set(&self, turn_id: Option<TurnId>) {
        if turn_id.is_some() {
            self.no_open_turn.store(false, Ordering::Release);
            self.pace.lock().unwrap_or_else(PoisonError::into_inner).opened += 1;
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = turn_id;
    }
}
