//! Runs the turns of an agent. A turn is a state machine:
//!
//! ```text
//! admit ──► prompt ──► call ◄──► act
//!             │          │        │
//!             └────────► end ◄────┘
//! ```
//!
//! An agent's work is admitted while it has no turn: its mail stays in the store ([`admit`]). Then the turn holds its mail
//! and is in one [`Phase`] at a time. Every step is journaled before the next begins. After a crash, the turn starts with
//! its prompt again, and resumes from its journal.

mod act;
mod admit;
mod answer;
mod attempts;
mod call;
mod conversation;
mod effects;
mod gate;
mod open;
mod operator;
mod runner;
mod think;
mod tools;
mod waits;

pub use crate::session::AgentSession;
pub use open::{Preview, preview};
pub use operator::{OperatorCall, call_for_operator};

use std::sync::Arc;

use ghost_domain::{AgentId, Code, Refusal, Turn, TurnId, TurnStatus};
use ghost_operations::turns::{self, Ending};
use ghost_operations::{Tx, agents};

use self::admit::{NextTurn, Start};
use self::answer::Thought;
use self::call::Calls;
use self::gate::{Admission, Worker};
use self::runner::{End, Runner};
use crate::engine::Engine;
use crate::log::CRON;
use crate::log::LoggedTurn;
use crate::retry_write::write_with_retry;

/// Processes an agent's mail, turn by turn, until there is none or new turns may not begin. If the
/// agent cannot run under the current plan, that is recorded and its mail and its open turn wait.
///
/// # Errors
/// When the store refuses a write. The journal then ends with the last step that the store
/// committed.
pub async fn work(engine: &Arc<Engine>, agent_id: &AgentId, session: &Arc<AgentSession>) -> Result<(), Refusal> {
    let (worker, mut slot) = (Worker { engine, agent_id, session }, None);
    while engine.activity.may_begin(agent_id) && !session.must_yield() {
        let (start, more) = match worker.admit(&mut slot).await? {
            NextTurn::Nothing => return Ok(()),
            NextTurn::Waited => continue,
            NextTurn::CannotRun(why) => return cannot_run(engine, agent_id, why).await,
            NextTurn::Begins(start, more) => (start, more),
        };
        let turn_id = start.taken.turn.turn_id;
        session.set(Some(turn_id));
        // Boxed, because an agent that only waits for a slot should not hold the memory of a whole turn.
        let outcome = Box::pin(run(engine, session, start)).await;
        session.set(None);
        match outcome {
            Ok(Left::Ended) => {}
            Ok(Left::CannotRun(why)) => return cannot_run(engine, agent_id, why).await,
            Ok(Left::Yielded) => return Ok(()),
            Ok(Left::Reopened) => continue,
            // The turn was ended from outside while the agent worked, so its later writes are
            // refused.
            Err(refusal) if refusal.code == Code::Cancelled => {}
            Err(refusal) if refusal.code == Code::Unavailable || refusal.code == Code::Internal => return Err(refusal),
            Err(refusal) => fail(engine, turn_id, refusal).await?,
        }
        session.set_no_open_turn();
        if !more {
            return Ok(());
        }
    }
    Ok(())
}

/// Records that the agent cannot run under the current plan.
async fn cannot_run(engine: &Arc<Engine>, agent_id: &AgentId, why: Refusal) -> Result<(), Refusal> {
    let agent_id = agent_id.clone();
    engine.services.write(move |w| agents::cannot_run(w, &agent_id, &why)).await
}

/// What a turn does. Each phase owns what exists only in it.
enum Phase {
    /// Its prompt is made.
    Prompt(Box<Start>),
    /// A model is asked for the next answer.
    Call {
        runner: Box<Runner>,
        /// A pass and a slot, if the turn has them already.
        admission: Option<Admission>,
        /// Whether guidance that has come for a droid goes before the call.
        may_guide: bool,
    },
    /// The calls of the last answer run.
    Act(Box<Runner>, Calls),
    /// It runs no further.
    End(Box<Runner>, End),
}

/// How an agent leaves a turn.
enum Left {
    /// The turn ended, or it is parked and the agent goes on with other work.
    Ended,
    /// The turn stays open: its agent cannot run now.
    CannotRun(Refusal),
    /// The turn stays open: its agent is being restarted.
    Yielded,
    /// The turn stays open: another plan is current, and the turn is opened again under it.
    Reopened,
}

/// Runs a turn until it ends or must wait open.
async fn run(engine: &Arc<Engine>, session: &Arc<AgentSession>, start: Box<Start>) -> Result<Left, Refusal> {
    let turn_id = start.taken.turn.turn_id;
    let mut phase = Phase::Prompt(start);
    loop {
        phase = match phase {
            Phase::Prompt(start) => match prompt(engine, session, *start).await {
                Ok(phase) => phase,
                Err(end) => return leave(engine, turn_id, end).await,
            },
            Phase::Call { mut runner, admission, may_guide } => {
                let thought = runner.call(admission, may_guide).await;
                after_call(runner, thought)
            }
            Phase::Act(mut runner, calls) => match runner.act(calls).await {
                Ok(()) => Phase::call(runner),
                Err(end) => Phase::End(runner, end),
            },
            Phase::End(mut runner, end) => {
                // A pending result is recorded before the turn ends, whatever the reason for the end.
                let end = match (runner.flush().await, end) {
                    (_, End::Broken(refusal)) | (Err(refusal), _) => End::Broken(refusal),
                    (Ok(()), end) => end,
                };
                if matches!(end, End::Written) {
                    keep_log(runner);
                }
                return leave(engine, turn_id, end).await;
            }
        };
    }
}

impl Phase {
    /// The next call of a model.
    fn call(runner: Box<Runner>) -> Self {
        Self::Call { runner, admission: None, may_guide: true }
    }
}

/// Opens a turn.
async fn prompt(engine: &Arc<Engine>, session: &Arc<AgentSession>, mut start: Start) -> Result<Phase, End> {
    if let Some(refusal) = start.taken.over.take() {
        return Err(End::With(Ending::Failed(refusal)));
    }
    let admission = start.admission.take();
    let (runner, calls) = open::open(engine, session, start).await?;
    Ok(match calls.is_empty() {
        true => Phase::Call { runner, admission, may_guide: true },
        // Calls without a result, from before a crash.
        false => Phase::Act(runner, Calls::Unchecked(calls)),
    })
}

/// What follows from asking for an answer.
fn after_call(runner: Box<Runner>, thought: Thought) -> Phase {
    match thought {
        Thought::Calls(calls) => {
            // If a call's start was journaled with the answer, the call runs now. If the
            // turn stopped before the call, a resumed turn would treat the outcome as
            // unknown.
            let begun = matches!(calls, Calls::Sole(_, Some(_)));
            match !begun && runner.session.must_yield() {
                true => Phase::End(runner, End::Yielded),
                false => Phase::Act(runner, calls),
            }
        }
        Thought::Corrected => Phase::call(runner),
        Thought::Guided(joined) => Phase::Call { runner, admission: None, may_guide: joined },
        Thought::End(end) => Phase::End(runner, end),
    }
}

/// Ends a turn, unless it stays open.
async fn leave(engine: &Arc<Engine>, turn_id: TurnId, end: End) -> Result<Left, Refusal> {
    match end {
        End::With(ending) => write_end(engine, turn_id, move |w| turns::finish(w, turn_id, ending)).await?,
        End::Failed(refusal) => fail(engine, turn_id, refusal).await?,
        End::Written | End::SetAside => {}
        End::CannotRun(why) => return Ok(Left::CannotRun(why)),
        End::Yielded => return Ok(Left::Yielded),
        End::Reopened => return Ok(Left::Reopened),
        End::Broken(refusal) => return Err(refusal),
    }
    Ok(Left::Ended)
}

/// Leaves the log with this turn to the agent's next turn, if the turn is in the log and its messages are those of
/// the journal.
fn keep_log(runner: Box<Runner>) {
    let Runner { turn, session, terms, prompt, conversation, .. } = *runner;
    if turn.status != TurnStatus::Finished || turn.source == CRON {
        return;
    }
    let Some(messages) = conversation.into_own() else { return };
    let mut log = prompt.log;
    log.push(LoggedTurn::new(&turn, messages));
    session.keep_log(turn.conversation_id, &terms.plan, prompt.log_version, log);
}

/// Ends a turn that failed for good: its mail is held (see [`turns::fail`]).
async fn fail(engine: &Arc<Engine>, turn_id: TurnId, refusal: Refusal) -> Result<(), Refusal> {
    write_end(engine, turn_id, move |w| turns::fail(w, turn_id, refusal)).await
}

/// Writes the end of a turn. If the store is unavailable, the write is retried. A turn that was ended from outside needs no
/// other end.
async fn write_end<F>(engine: &Arc<Engine>, turn_id: TurnId, work: F) -> Result<(), Refusal>
where
    F: FnOnce(&mut Tx) -> Result<Turn, Refusal> + Clone + Send + 'static,
{
    match write_with_retry(engine, turn_id, work, drop).await {
        Err(refusal) if refusal.code != Code::Cancelled => Err(refusal),
        _ => Ok(()),
    }
}
