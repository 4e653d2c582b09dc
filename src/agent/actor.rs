//! The agent's actor: it owns the task that works off the agent's mail, and nothing else. Its mailbox carries wake-ups
//! and control only, so losing it loses nothing.
//!
//! Must never: await anything in a handler but its own bookkeeping; the work runs beside it, so that a stop gets through.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ghost_domain::{Activity, AgentId, Code, Refusal, TurnId};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinHandle;

use crate::engine::Engine;
use crate::panics;
use crate::turn::{self, AgentSession, Pauses};

/// What an agent's actor is told.
#[derive(Debug)]
pub enum AgentMsg {
    /// There is mail, or a reason to look for it.
    Wake,
    /// An ask of this agent's is closed.
    AskClosed,
    /// The turn was ended from outside.
    Cancel(TurnId),
    /// A parked turn may be tried again.
    Retry(TurnId),
    /// Sleep, if nothing came in meanwhile.
    TrySleep,
    /// A crash beside it takes it along, which is none of its doing: it ends when what it has asked of a model or a tool is
    /// there and in the journal, at the latest after `grace`.
    Yield {
        /// How long that may take.
        grace: Duration,
    },
    /// Let the turn finish within the grace period, then exit.
    Stop {
        /// The grace period.
        grace: Duration,
    },
    /// The grace period is over.
    GraceOver,
    /// A task has ended.
    Worked {
        /// Which: one that was let go may still say so, and its successor must not suffer for it.
        task: u64,
        /// What came of it; the words of the panic if it panicked.
        result: Result<Result<(), Refusal>, String>,
    },
}

/// The actor.
pub struct AgentActor;

/// What it is started with.
pub struct Arguments {
    /// Whose actor.
    pub agent_id: AgentId,
    /// What it works with.
    pub engine: Arc<Engine>,
}

/// Its state.
pub struct State {
    agent_id: AgentId,
    engine: Arc<Engine>,
    session: Arc<AgentSession>,
    task: Option<Task>,
    /// The number of the last task.
    tasks: u64,
    /// The last look failed, and another is to come.
    again: bool,
    /// The wake generation that the last look at the inbox began with.
    seen: u64,
    stopping: bool,
    /// How long it waits when the store cannot take its work: the fault is not the agent's, so it is no crash.
    pauses: Pauses,
}

/// A task that does not outlive its actor, however that ends.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl State {
    fn begin(&mut self, myself: &ActorRef<AgentMsg>) {
        // A task that runs needs no note of the wake-up: at its end the generation says that there was one.
        if self.stopping || self.task.is_some() {
            return;
        }
        self.again = false;
        // Said before the inbox is read: what comes after this look raises the generation.
        self.seen = self.engine.activity.look(&self.agent_id);
        let (engine, agent_id, session) = (Arc::clone(&self.engine), self.agent_id.clone(), Arc::clone(&self.session));
        let myself = myself.clone();
        self.tasks += 1;
        let task = self.tasks;
        self.task = Some(Task(tokio::spawn(async move {
            let result = AssertUnwindSafe(turn::work(&engine, &agent_id, &session)).catch_unwind().await;
            let result = result.map_err(|panic| panics::text(&*panic));
            // Failing to tell means that the actor is gone; whoever ended it looks after the inbox.
            let _ = myself.cast(AgentMsg::Worked { task, result });
        })));
    }

    fn later(&self, myself: &ActorRef<AgentMsg>, after: Duration, message: AgentMsg) {
        let sleep = self.engine.services.ctx.ports.clock.sleep(after);
        let myself = myself.clone();
        tokio::spawn(async move {
            sleep.await;
            // The actor may have ended meanwhile, and then there is nobody to tell.
            let _ = myself.cast(message);
        });
    }
}

impl Actor for AgentActor {
    type Msg = AgentMsg;
    type State = State;
    type Arguments = Arguments;

    /// Takes no look yet: whoever made the actor records it first and then wakes it, so that what comes between finds it.
    async fn pre_start(&self, _: ActorRef<AgentMsg>, arguments: Arguments) -> Result<State, ActorProcessingErr> {
        Ok(State {
            agent_id: arguments.agent_id,
            engine: arguments.engine,
            session: Arc::new(AgentSession::default()),
            task: None,
            tasks: 0,
            again: false,
            seen: 0,
            stopping: false,
            pauses: Pauses::default(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<AgentMsg>,
        message: AgentMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AgentMsg::Wake => state.begin(&myself),
            AgentMsg::AskClosed => state.session.bell.notify_waiters(),
            AgentMsg::Cancel(turn_id) => {
                if state.session.current() == Some(turn_id) && state.task.take().is_some() {
                    if state.stopping {
                        // What the grace period was for is over.
                        myself.stop(None);
                    } else {
                        state.begin(&myself);
                    }
                }
            }
            AgentMsg::Retry(_) => {
                // Whatever it waits for, it looks again; and one that was aside may be its next.
                state.session.retry();
                state.begin(&myself);
            }
            AgentMsg::TrySleep => {
                let idle = state.task.is_none() && !state.again && !state.stopping;
                if idle {
                    match state.engine.activity.try_sleep(&state.agent_id, state.seen) {
                        true => myself.stop(None),
                        // Whoever woke it is on the way, and no wake-up rests on another.
                        false => state.begin(&myself),
                    }
                }
            }
            AgentMsg::Stop { grace } => {
                state.stopping = true;
                if state.task.is_none() || state.session.is_held_back() {
                    myself.stop(None);
                } else {
                    state.later(&myself, grace, AgentMsg::GraceOver);
                }
            }
            AgentMsg::Yield { grace } => {
                state.stopping = true;
                if state.task.is_some() && state.session.ask_to_yield() {
                    state.later(&myself, grace, AgentMsg::GraceOver);
                } else {
                    myself.stop(None);
                }
            }
            AgentMsg::GraceOver => {
                state.task = None;
                myself.stop(None);
            }
            AgentMsg::Worked { task, .. } if state.task.is_none() || task != state.tasks => {}
            AgentMsg::Worked { result, .. } => {
                state.task = None;
                match result {
                    Err(panic) => return Err(format!("panic: {panic}").into()),
                    Ok(Err(refusal)) if refusal.code == Code::Unavailable => {
                        tracing::warn!(agent_id = %state.agent_id, %refusal, "the store cannot take the work; trying again");
                        state.engine.activity.show(&state.agent_id, Activity::Idle);
                        if state.stopping {
                            myself.stop(None);
                        } else {
                            state.again = true;
                            let pause = state.pauses.next();
                            state.later(&myself, pause, AgentMsg::Wake);
                        }
                        return Ok(());
                    }
                    Ok(Err(refusal)) if matches!(refusal.code, Code::Conflict | Code::NotFound) => {
                        // Another daemon owns the agent now, or it is deleted: nothing here may act for it any more.
                        tracing::warn!(agent_id = %state.agent_id, %refusal, "letting the agent go");
                        myself.stop(None);
                        return Ok(());
                    }
                    Ok(Err(refusal)) => return Err(refusal.to_string().into()),
                    Ok(Ok(())) => state.pauses = Pauses::default(),
                }
                if state.stopping {
                    myself.stop(None);
                } else if !state.engine.activity.try_rest(&state.agent_id, state.seen) {
                    state.begin(&myself);
                }
            }
        }
        Ok(())
    }
}
