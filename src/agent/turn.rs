//! One turn from its mail to its end: think, act, until the model makes no call. Every step is journaled before the next
//! begins, so that a crash anywhere is a restart here with the journal in hand.

mod act;
mod answer;
mod ask;
mod file_call;
mod keep;
mod open;
mod operator;
mod record;
mod stream;
mod think;
mod wait;

pub(crate) use keep::Pauses;
pub use open::{Preview, preview};
pub use operator::call_for_operator;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ghost_commons::turns::{self, Ending, Held, Next, Seen, Taken};
use ghost_config::spec::AgentSpec;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::CallOutcome;
use ghost_domain::time::Clock;
use ghost_domain::transcript::Message;
use ghost_domain::{Activity, AgentId, CallId, Code, Limits, Refusal, Timestamp, Turn, TurnId, TurnStatus};
use ghost_tools::loop_guard::LoopGuard;
use ghost_tools::view::model_view;
use ghost_tools::{CallCx, Registry};
use serde_json::json;
use tokio::sync::Notify;

use self::act::Checking;
use self::record::Unrecorded;
use crate::engine::Engine;
use crate::prompt::Part;
use crate::transcript::OpenCall;

/// Corrections of malformed calls before a turn is ended.
const CORRECTIONS_MAX: u32 = 3;

const MINUTE: Duration = Duration::from_secs(60);

/// The turns of one minute (`limits.agent_turns_per_minute`).
#[derive(Default)]
struct Pace {
    began: Timestamp,
    opened: u32,
    told: bool,
    waits: bool,
}

/// What an actor shares with the task that works for it.
#[derive(Default)]
pub struct Bench {
    /// Rings when an ask of this agent's has been closed.
    pub bell: Notify,
    current: Mutex<Option<TurnId>>,
    /// Whether no turn of the agent's own can be open, because this actor has ended its last one.
    settled: AtomicBool,
    /// See [`Bench::room`]; 0 if it is not known yet.
    room: AtomicUsize,
    pace: Mutex<Pace>,
    /// What the agent's next prompt recalls, so that it is not read for every turn of a busy agent.
    recent: Mutex<Option<Vec<Arc<Turn>>>>,
}

impl Bench {
    /// The turn under way.
    #[must_use]
    pub fn current(&self) -> Option<TurnId> {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Bytes of mail that the agent's next turn has room for, once a turn of its has told.
    fn room(&self) -> Option<usize> {
        let room = self.room.load(Ordering::Acquire);
        (room > 0).then_some(room)
    }

    fn set_room(&self, room: usize) {
        self.room.store(room, Ordering::Release);
    }

    fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }

    /// How long the agent must wait before it may open another turn, if it has opened `most` within a minute; and whether
    /// that is to be told, which is so once for each such minute.
    fn pace(&self, now: Timestamp, most: u32) -> Option<(Duration, bool)> {
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

    fn paced(&self) {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).waits = false;
    }

    /// Whether the agent only waits for its next turn: nothing is lost by letting that wait go.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).waits
    }

    /// The finished turns that the last look saw or that ended since, newest first. Forgotten by asking: only a turn that
    /// ends well brings them back, so that every other end makes the next look read them again.
    fn recall(&self) -> Option<Vec<Arc<Turn>>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn remember(&self, recent: Option<Vec<Arc<Turn>>>, turn: Turn, most: u32) {
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

    fn set(&self, turn_id: Option<TurnId>) {
        if turn_id.is_some() {
            self.settled.store(false, Ordering::Release);
            self.pace.lock().unwrap_or_else(PoisonError::into_inner).opened += 1;
        }
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = turn_id;
    }
}

/// Works off an agent's mail, turn by turn, until there is none or new turns may not begin.
///
/// # Errors
/// When the store refuses to go on: the journal is then where the last step left it.
pub async fn work(engine: &Arc<Engine>, agent_id: &AgentId, bench: &Arc<Bench>) -> Result<(), Refusal> {
    while engine.board.may_begin(agent_id) {
        if let Some((wait, tell)) = bench.pace(engine.office.cx.now(), engine.office.cx.limits().agent_turns_per_minute)
        {
            if tell {
                held_back(engine, agent_id).await?;
            }
            engine.office.cx.ports.clock.sleep(wait).await;
            bench.paced();
            continue;
        }
        let (next, sources, room) = open::look(engine, agent_id, bench).await?;
        let (seen, more) = match next {
            Next::Nothing => return Ok(()),
            Next::Resume => (None, true),
            Next::Mail { mail, more, unread, .. } => (Some(Seen { mail, unread, room }), more),
        };
        let (cx, id) = (engine.office.cx.clone(), agent_id.clone());
        let taken =
            engine.office.store.write(move |w| Box::pin(async move { turns::take(w, &cx, &id, seen).await })).await?;
        let Some(taken) = taken else { return Ok(()) };
        let turn_id = taken.turn.turn_id;
        bench.set(Some(turn_id));
        let recent = sources.as_ref().map(|sources| sources.history.clone());
        let ran = run(engine, taken, sources, bench).await;
        bench.set(None);
        match ran {
            Ok(Some(turn)) => bench.remember(recent, turn, engine.office.cx.limits().history_turns),
            Ok(None) => {}
            // It was ended from outside while its agent was at work: what it wanted to write is refused, rightly.
            Err(refusal) if refusal.code == Code::Cancelled => {}
            Err(refusal) if refusal.code == Code::Unavailable || refusal.code == Code::Internal => return Err(refusal),
            Err(refusal) => end(engine, turn_id, Ending::Failed(refusal)).await?,
        }
        bench.settle();
        if !more {
            return Ok(());
        }
    }
    Ok(())
}

/// Says in the feed that an agent is woken more often than it may open turns. What wakes it meanwhile is taken together.
async fn held_back(engine: &Arc<Engine>, agent_id: &AgentId) -> Result<(), Refusal> {
    let (cx, agent_id) = (engine.office.cx.clone(), agent_id.clone());
    let payload = json!({ "limit": "agent_turns_per_minute", "value": cx.limits().agent_turns_per_minute });
    let event = NewEvent::new(EventKind::StormHeld, payload).agent(&agent_id);
    engine.office.store.write(move |w| Box::pin(async move { cx.emit(w, event).await })).await
}

/// Ends a turn, whose end is not given up because the store cannot take it for the moment.
async fn end(engine: &Arc<Engine>, turn_id: TurnId, ending: Ending) -> Result<(), Refusal> {
    let cx = engine.office.cx.clone();
    let finish = keep::keep(
        engine,
        turn_id,
        move |w| Box::pin(async move { turns::finish(w, &cx, turn_id, ending).await }),
        drop,
    );
    match finish.await {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.code == Code::Cancelled => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// Runs a turn to its end. Gives it if it ended with its model's last word.
async fn run(
    engine: &Arc<Engine>,
    taken: Taken,
    sources: Option<open::Sources>,
    bench: &Arc<Bench>,
) -> Result<Option<Turn>, Refusal> {
    let turn_id = taken.turn.turn_id;
    if let Some(refusal) = &taken.over {
        return end(engine, turn_id, Ending::Failed(refusal.clone())).await.map(|()| None);
    }
    let mut runner = match Runner::open(engine, taken, sources, bench).await? {
        Ok(runner) => runner,
        // The agent cannot be fitted out: its archetype is gone, or forbids it. Nobody is left waiting for that.
        Err(refusal) => return end(engine, turn_id, Ending::Failed(refusal)).await.map(|()| None),
    };
    match runner.run_to_end().await? {
        Some(ending) => end(engine, turn_id, ending).await.map(|()| None),
        // A last word may have been a refusal, which is no turn to be recalled.
        None => Ok((runner.turn.status == TurnStatus::Finished).then_some(runner.turn)),
    }
}

/// A turn under way.
struct Runner {
    engine: Arc<Engine>,
    agent_id: AgentId,
    turn: Turn,
    spec: Arc<AgentSpec>,
    registry: Registry,
    /// The stable system part.
    system: Arc<Part>,
    /// The stable briefing.
    briefing: Arc<Part>,
    /// What is recalled, and the mail.
    opening: (String, String),
    /// Whether the prompt is in the journal already.
    briefed: bool,
    /// Everything that the model is shown.
    messages: Vec<Message>,
    /// How many of `messages` are the opening.
    opening_messages: usize,
    /// Bytes that the conversation may have; fewer than the agent's bound once a model has refused it as too long.
    context: usize,
    /// Calls of the last answer that have no result yet.
    open: Vec<OpenCall>,
    /// The one call of the last answer, checked; with its id if its start is in the journal.
    prepared: Option<(Checking, Option<CallId>)>,
    /// The result that goes into the journal with what is written next.
    unrecorded: Option<Arc<Unrecorded>>,
    /// The mail that the turn holds; `None` if only the store knows, after a restart or when mail has joined.
    held: Option<Held>,
    rounds: u32,
    corrections: u32,
    failures: Vec<String>,
    guard: LoopGuard,
    /// The loop guard's last word, if it has spoken it.
    looped: Option<Refusal>,
    /// Time spent on the turn's own work; waiting in a pool or for a reply does not count.
    worked: Duration,
    /// For how long its writes have waited for the store, in milliseconds.
    paused_ms: AtomicU64,
    bench: Arc<Bench>,
    /// Whether its time is a job's own, which cuts off what is under way when it ends.
    timed: bool,
    /// Whether the board shows what this turn does; an operator's call stands beside the agent's own turns.
    shown: bool,
}

impl Runner {
    /// Goes on until the turn has an ending; `None` if the ending was committed already, with the last answer.
    async fn run_to_end(&mut self) -> Result<Option<Ending>, Refusal> {
        let ending = self.go_on().await;
        // What a call gave is recorded before its turn ends, for whatever reason it ends.
        let recorded = self.flush().await;
        let ending = ending?;
        recorded.map(|()| ending)
    }

    async fn go_on(&mut self) -> Result<Option<Ending>, Refusal> {
        if !self.open.is_empty()
            && let Some(ending) = self.act().await?
        {
            return Ok(Some(ending));
        }
        loop {
            if self.rounds >= self.spec.limits.turn_rounds_max {
                return Ok(Some(Ending::Failed(bound_reached(
                    format!("the turn made {} model calls, which is its bound", self.rounds),
                    "turn_rounds_max",
                ))));
            }
            if let Some(refusal) = self.out_of_time() {
                return Ok(Some(Ending::Failed(refusal)));
            }
            match self.think().await? {
                think::Thought::Calls => {
                    if let Some(ending) = self.act().await? {
                        return Ok(Some(ending));
                    }
                }
                think::Thought::Corrected => {}
                think::Thought::Ended => return Ok(None),
                think::Thought::Failed(refusal) => return Ok(Some(Ending::Failed(refusal))),
                think::Thought::TooLong(refusal) => {
                    self.give_back(refusal).await?;
                    return Ok(None);
                }
            }
        }
    }

    /// Ends the turn because its conversation fits no model, which is no reason to lose its mail.
    async fn give_back(&mut self, refusal: Refusal) -> Result<(), Refusal> {
        self.flush().await?;
        let (cx, turn_id) = (self.engine.office.cx.clone(), self.turn.turn_id);
        let ended =
            self.keep(move |w| Box::pin(async move { turns::too_long(w, &cx, turn_id, refusal).await })).await?;
        self.turn = ended;
        Ok(())
    }

    /// Why the turn may not go on, if it has worked for as long as it may.
    fn out_of_time(&self) -> Option<Refusal> {
        let most = self.spec.limits.turn_seconds;
        if self.worked < Limits::seconds(most) {
            return None;
        }
        let what = format!("the turn worked for {} s, which is its bound", self.worked.as_secs());
        if !self.timed {
            return Some(bound_reached(what, "turn_seconds"));
        }
        let refusal = Refusal::new(Code::Timeout, what).hint("give the job smaller work, or a longer timeout");
        Some(refusal.details(json!({ "limit": "timeout_seconds", "value": most })))
    }

    /// `most`, or what is left of a job's own time if that is less.
    fn at_most(&self, most: Duration) -> Duration {
        if !self.timed {
            return most;
        }
        most.min(Limits::seconds(self.spec.limits.turn_seconds).saturating_sub(self.worked))
    }

    fn show(&self, activity: Activity) {
        if self.shown {
            self.engine.board.show(&self.agent_id, activity);
        }
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.engine.office.cx.ports.clock)
    }

    fn limits(&self) -> Arc<Limits> {
        self.engine.office.cx.limits()
    }

    fn call_cx(&self, call_id: CallId, provider_call_id: &str) -> CallCx {
        call_cx(&self.engine, &self.registry, &self.turn, call_id, provider_call_id)
    }

    fn view(&self, tool: &str, outcome: &CallOutcome) -> (String, bool) {
        view(&self.registry, &self.limits(), self.spec.limits.result_view_bytes, tool, outcome)
    }
}

/// What a tool is told of one call.
fn call_cx(engine: &Arc<Engine>, registry: &Registry, turn: &Turn, call_id: CallId, provider_call_id: &str) -> CallCx {
    CallCx {
        office: Arc::clone(&engine.office),
        caller: Arc::clone(registry.caller()),
        turn_id: turn.turn_id,
        root_id: turn.root_id,
        hop: turn.hop,
        call_id,
        provider_call_id: provider_call_id.to_owned(),
    }
}

/// The text that a model is shown for an outcome.
fn view(registry: &Registry, limits: &Limits, own: u32, tool: &str, outcome: &CallOutcome) -> (String, bool) {
    let bytes = registry.find(tool).ok().and_then(|(tool, _)| tool.view_bytes).unwrap_or(own);
    model_view(outcome, Some(bytes), limits)
}

fn bound_reached(what: String, setting: &str) -> Refusal {
    Refusal::new(Code::LoopGuard, what)
        .hint(format!("give it smaller work, or raise limits.{setting}"))
        .details(serde_json::json!({ "limit": setting }))
}
