//! The agent's actor. It owns the task that processes the agent's mail, and nothing else. Its
//! mailbox carries only wake-ups and control messages, so losing it loses no work.
//!
//! A handler of the actor must never wait for work. The work runs in a task of its own, so that a
//! stop is handled at once.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use ghost_domain::text::panic_text;
use ghost_domain::{Activity, AgentId, Code, Refusal, TurnId};
use ghost_operations::Wait;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinHandle;

use crate::engine::Engine;
use crate::retry_write::Pauses;
use crate::session::AgentSession;
use crate::turn;

/// The messages of an agent's actor.
#[derive(Debug)]
pub enum AgentMsg {
    /// There may be new mail, or another reason to read the inbox.
    Wake,
    /// An ask that this agent made, or an approval that its call waits for, is closed.
    WaitEnded,
    /// This turn was ended from outside.
    Cancel(TurnId),
    /// This parked turn may be tried again.
    Retry(TurnId),
    /// Sleep, unless a wake-up has arrived meanwhile.
    TrySleep,
    /// The agent is restarted because another agent of its team crashed. It exits as soon as its
    /// running model or tool call is done and journaled, at the latest after `grace`.
    Yield {
        /// The longest time to wait for the running call.
        grace: Duration,
    },
    /// Let the turn finish within the grace period, then exit.
    Stop {
        /// The longest time to wait for the turn.
        grace: Duration,
    },
    /// End now, before the grace period is over, if the turn only waits for a model or a budget.
    EndIfWaiting,
    /// The grace period is over.
    GraceOver,
    /// The actor's task has ended.
    Worked {
        /// Number of the task. A task that was cancelled may still report; its report is ignored.
        task: u64,
        /// The task's result. The outer error is the message of a panic.
        result: Result<Result<(), Refusal>, String>,
    },
}

/// The actor of one agent.
pub struct AgentActor;

/// The arguments of a new actor.
pub struct Arguments {
    /// The agent that the actor runs.
    pub agent_id: AgentId,
    /// The services that all agents of the world share.
    pub engine: Arc<Engine>,
}

/// The actor's state.
pub struct State {
    agent_id: AgentId,
    engine: Arc<Engine>,
    session: Arc<AgentSession>,
    task: Option<Task>,
    /// Number of the last task that was started.
    tasks: u64,
    /// The last task failed because the store was unavailable, and a retry is scheduled.
    again: bool,
    /// The wake generation when the last inbox read began.
    seen: u64,
    stopping: bool,
    /// Pauses between retries while the store is unavailable. An unavailable store is not the
    /// agent's fault, so it is not a crash of the agent.
    pauses: Pauses,
}

impl Drop for State {
    fn drop(&mut self) {
        if self.again {
            self.engine.services.ctx.set_waiting(&self.agent_id, None);
        }
    }
}

/// A task that is cancelled when its actor ends.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl State {
    fn begin(&mut self, myself: &ActorRef<AgentMsg>) {
        // While a task runs, the wake-up need not be recorded: at the end of the task, the wake
        // generation shows that there was one.
        if self.stopping || self.task.is_some() {
            return;
        }
        if std::mem::take(&mut self.again) {
            self.engine.services.ctx.set_waiting(&self.agent_id, None);
        }
        // Read before the inbox: a wake-up after this point raises the generation.
        self.seen = self.engine.activity.begin_read(&self.agent_id);
        let (engine, agent_id, session) = (Arc::clone(&self.engine), self.agent_id.clone(), Arc::clone(&self.session));
        let myself = myself.clone();
        self.tasks += 1;
        let task = self.tasks;
        self.task = Some(Task(tokio::spawn(async move {
            let result = AssertUnwindSafe(turn::work(&engine, &agent_id, &session)).catch_unwind().await;
            let result = result.map_err(|panic| panic_text(&*panic));
            // The send fails only if the actor has ended. Its supervisor then takes care of the
            // inbox.
            let _ = myself.cast(AgentMsg::Worked { task, result });
        })));
    }

    /// Ends the grace period after this time, or as soon as the turn waits for a model or a budget: it has no work to
    /// finish then.
    fn grant(&self, myself: &ActorRef<AgentMsg>, grace: Duration) {
        let mut over = self.engine.services.ctx.ports.clock.sleep(grace);
        let (myself, session) = (myself.clone(), Arc::clone(&self.session));
        tokio::spawn(async move {
            loop {
                let mut wait_begun = pin!(session.wait_begun());
                // From here on, the beginning of a wait is noticed. The message below finds one that began before.
                wait_begun.as_mut().enable();
                if myself.cast(AgentMsg::EndIfWaiting).is_err() {
                    // The actor has ended.
                    return;
                }
                tokio::select! {
                    biased;
                    () = &mut over => break,
                    () = wait_begun => {}
                }
            }
            // The actor may have ended meanwhile; then the message is not needed.
            let _ = myself.cast(AgentMsg::GraceOver);
        });
    }

    /// Continues after the end of the task.
    fn worked(
        &mut self,
        myself: &ActorRef<AgentMsg>,
        result: Result<Result<(), Refusal>, String>,
    ) -> Result<(), ActorProcessingErr> {
        self.task = None;
        let (agent_id, ctx) = (&self.agent_id, &self.engine.services.ctx);
        match result {
            Err(panic) => return Err(format!("panic: {panic}").into()),
            Ok(Err(refusal)) if refusal.code == Code::Unavailable => {
                tracing::warn!(%agent_id, %refusal, "the store or the workspace is unavailable; the agent's work is tried again");
                ctx.set_waiting(agent_id, Some(Wait::for_reason(&*refusal.message)));
                self.engine.activity.show(agent_id, Activity::Idle);
                if self.stopping {
                    myself.stop(None);
                } else {
                    self.again = true;
                    let pause = self.pauses.next();
                    self.later(myself, pause, AgentMsg::Wake);
                }
                return Ok(());
            }
            Ok(Err(refusal)) if matches!(refusal.code, Code::Conflict | Code::NotFound) => {
                // Another daemon owns the agent now, or it is deleted: this actor must not
                // act for it any more.
                tracing::warn!(%agent_id, %refusal, "the agent is deleted or another daemon owns it; stopping its actor");
                myself.stop(None);
                return Ok(());
            }
            Ok(Err(refusal)) => return Err(refusal.to_string().into()),
            Ok(Ok(())) => self.pauses = Pauses::default(),
        }
        if self.stopping {
            myself.stop(None);
        } else if !self.engine.activity.try_rest(&self.agent_id, self.seen) {
            self.begin(myself);
        }
        Ok(())
    }

    fn later(&self, myself: &ActorRef<AgentMsg>, after: Duration, message: AgentMsg) {
        let sleep = self.engine.services.ctx.ports.clock.sleep(after);
        let myself = myself.clone();
        tokio::spawn(async move {
            sleep.await;
            // The actor may have ended meanwhile; then the message is not needed.
            let _ = myself.cast(message);
        });
    }
}

impl Actor for AgentActor {
    type Msg = AgentMsg;
    type State = State;
    type Arguments = Arguments;

    /// Reads no mail yet. The supervisor records the actor first and then wakes it, so that
    /// wake-ups in between reach it.
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
            AgentMsg::WaitEnded => state.session.bell.notify_waiters(),
            AgentMsg::Cancel(turn_id) => {
                if state.session.current() == Some(turn_id) && state.task.take().is_some() {
                    if state.stopping {
                        // The turn for which the grace period was granted has ended.
                        myself.stop(None);
                    } else {
                        state.begin(&myself);
                    }
                }
            }
            AgentMsg::Retry(_) => {
                // A wait of the current turn checks again. A turn that is parked for its root's
                // budget may be the next.
                state.session.retry();
                state.begin(&myself);
            }
            AgentMsg::TrySleep => {
                let idle = state.task.is_none() && !state.again && !state.stopping;
                if idle {
                    match state.engine.activity.try_sleep(&state.agent_id, state.seen) {
                        true => myself.stop(None),
                        // A wake-up arrived first. It is in the generation, so the inbox must be
                        // read again.
                        false => state.begin(&myself),
                    }
                }
            }
            AgentMsg::Stop { grace } => {
                state.stopping = true;
                if state.task.is_none() || state.session.is_held_back() {
                    myself.stop(None);
                } else {
                    state.grant(&myself, grace);
                }
            }
            AgentMsg::EndIfWaiting => {
                if state.session.is_held_back() {
                    state.task = None;
                    myself.stop(None);
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
            AgentMsg::Worked { result, .. } => state.worked(&myself, result)?,
        }
        Ok(())
    }
}
