//! Runs one turn from its mail to its end: call the model, run its tool calls, repeat until an
//! answer has no call. Every step is journaled before the next begins. After a crash, the turn
//! starts here again and resumes from its journal.

mod act;
mod admission;
mod answer;
mod approval;
mod ask;
mod bound;
mod call;
mod droid;
mod ended;
mod file_call;
mod gate;
mod images;
mod live_tools;
mod load_log;
mod open;
mod operator;
mod parsed_answer;
mod pending_result;
mod record;
mod retry_write;
mod round;
mod runner;
mod session;
mod settle;
mod store_calls;
mod stream;
mod think;
mod turn_tools;
mod wait;

pub use open::{Preview, preview};
pub use operator::{OperatorCall, call_for_operator};
pub(crate) use retry_write::Pauses;
pub use session::AgentSession;

use std::sync::Arc;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::{AgentId, Code, Refusal, Turn, TurnId, TurnStatus};
use ghost_operations::agents;
use ghost_operations::turns::{self, Ending, FoundMail, Next, Taken};
use serde_json::json;

use self::admission::Admission;
use self::open::OpenError;
use self::runner::{Runner, limit_reached};
use crate::engine::Engine;
use crate::log::LoggedTurn;

/// Processes an agent's mail, turn by turn, until there is none or new turns may not begin. If the
/// agent cannot run under the current plan, that is recorded and its mail and its open turn wait.
///
/// # Errors
/// When the store refuses a write. The journal then ends with the last step that the store
/// committed.
pub async fn work(engine: &Arc<Engine>, agent_id: &AgentId, session: &Arc<AgentSession>) -> Result<(), Refusal> {
    let mut slot = None;
    while engine.activity.may_begin(agent_id) && !session.yield_requested() {
        if let Some((wait, report)) =
            session.pace(engine.services.ctx.ports.clock.steady(), engine.services.ctx.limits().agent_turns_per_minute)
        {
            slot = None;
            if report {
                report_turn_limit(engine, agent_id).await?;
            }
            engine.services.ctx.ports.clock.sleep(wait).await;
            session.end_pace_wait();
            continue;
        }
        // Read before the inbox, so that the inbox read uses this plan or a later one.
        let plan = engine.services.plan();
        let (next, sources, room) = match open::read_next(engine, agent_id, session).await? {
            Ok(work) => work,
            Err(why) => return cannot_run(engine, agent_id, why).await,
        };
        if !matches!(next, Next::Nothing) && gate::wait_for_room(engine, agent_id, session).await {
            slot = None;
            continue;
        }
        let admission = match &next {
            Next::Mail { mail, .. } => {
                let models = (&*room.models, open::class(mail));
                match gate::wait_for_model(engine, agent_id, session, &plan, models, &mut slot).await? {
                    gate::Opening::Now(admission) => admission,
                    gate::Opening::Waited => continue,
                    gate::Opening::Queue(entry) => {
                        let class = models.1;
                        // The wait may be long, and the mail is in the store.
                        drop((next, sources));
                        slot = Some(gate::wait_for_slot(engine, agent_id, session, &entry, class).await);
                        continue;
                    }
                }
            }
            Next::Nothing | Next::Resume => None,
        };
        // A turn that goes on asks for a slot when it needs one. Holding one would make it wait for itself.
        slot = None;
        let (seen, more) = match next {
            Next::Nothing => return Ok(()),
            Next::Resume => (None, true),
            Next::Mail { mail, more, behind, unread, .. } => {
                (Some(FoundMail { mail, behind, unread, bytes_max: room.bytes }), more)
            }
        };
        let (ctx, id) = (engine.services.ctx.clone(), agent_id.clone());
        let taken = engine.services.store.write(move |w| turns::take(w, &ctx, &id, seen)).await?;
        let Some(taken) = taken else { return Ok(()) };
        let turn_id = taken.turn.turn_id;
        session.set(Some(turn_id));
        // Boxed, because an agent that only waits for a slot should not hold the memory of a whole turn.
        let outcome = Box::pin(run(engine, taken, sources, session, admission)).await;
        session.set(None);
        match outcome {
            Ok(RunOutcome::Ended) => {}
            Ok(RunOutcome::CannotRun(why)) => return cannot_run(engine, agent_id, why).await,
            Ok(RunOutcome::Yielded) => return Ok(()),
            Ok(RunOutcome::Reopen) => continue,
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
    let (ctx, agent_id) = (engine.services.ctx.clone(), agent_id.clone());
    engine.services.store.write(move |w| agents::cannot_run(w, &ctx, &agent_id, &why)).await
}

/// Writes the event that the agent has reached its limit of turns per minute. The next turn takes
/// all mail that arrives during the wait.
async fn report_turn_limit(engine: &Arc<Engine>, agent_id: &AgentId) -> Result<(), Refusal> {
    let (ctx, agent_id) = (engine.services.ctx.clone(), agent_id.clone());
    let payload = json!({ "limit": "agent_turns_per_minute", "value": ctx.limits().agent_turns_per_minute });
    let event = NewEvent::new(EventKind::LimitReached, payload).agent(&agent_id);
    engine.services.store.write(move |w| ctx.emit(w, event)).await
}

/// Ends a turn that failed for good: its mail is held (see [`turns::fail`]). If the store is unavailable, the write is
/// retried.
async fn fail(engine: &Arc<Engine>, turn_id: TurnId, refusal: Refusal) -> Result<(), Refusal> {
    let ctx = engine.services.ctx.clone();
    let failed = retry_write::write_with_retry(engine, turn_id, move |w| turns::fail(w, &ctx, turn_id, refusal), drop);
    ended(failed.await)
}

/// Ends a turn. If the store is unavailable, the write is retried.
async fn end(engine: &Arc<Engine>, turn_id: TurnId, ending: Ending) -> Result<(), Refusal> {
    let ctx = engine.services.ctx.clone();
    let finish = retry_write::write_with_retry(engine, turn_id, move |w| turns::finish(w, &ctx, turn_id, ending), drop);
    ended(finish.await)
}

/// A turn that was ended from outside needs no other end.
fn ended(write: Result<Turn, Refusal>) -> Result<(), Refusal> {
    match write {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.code == Code::Cancelled => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// How a run of a turn ended.
enum RunOutcome {
    /// The turn ended.
    Ended,
    /// The turn stays open: its agent cannot run now.
    CannotRun(Refusal),
    /// The turn stays open: its agent is being restarted.
    Yielded,
    /// The turn stays open: another plan is current, and the turn is opened again under it.
    Reopen,
}

/// Runs a turn until it ends or must wait open.
async fn run(
    engine: &Arc<Engine>,
    taken: Taken,
    sources: Option<open::Sources>,
    session: &Arc<AgentSession>,
    admission: Option<Admission>,
) -> Result<RunOutcome, Refusal> {
    let turn_id = taken.turn.turn_id;
    if let Some(refusal) = &taken.over {
        return end(engine, turn_id, Ending::Failed(refusal.clone())).await.map(|()| RunOutcome::Ended);
    }
    // A resumed turn may first run calls, which can take long.
    let admission = admission.filter(|_| !taken.resumed);
    let mut runner = match Runner::open(engine, taken, sources, session).await? {
        Ok(runner) => Runner { admission, ..runner },
        // The plan has changed since the agent's next work was read.
        Err(OpenError::CannotRun(why)) => return Ok(RunOutcome::CannotRun(why)),
        Err(OpenError::Failed(refusal)) => return fail(engine, turn_id, refusal).await.map(|()| RunOutcome::Ended),
    };
    match runner.run_to_end().await? {
        None if session.has_yielded() => Ok(RunOutcome::Yielded),
        None if runner.reopen => Ok(RunOutcome::Reopen),
        Some(ending) => end(engine, turn_id, ending).await.map(|()| RunOutcome::Ended),
        None => {
            runner.keep_log();
            Ok(RunOutcome::Ended)
        }
    }
}

impl Runner {
    /// Leaves the log with this turn to the agent's next turn, if the turn is in the log and its messages are those of
    /// the journal.
    fn keep_log(mut self) {
        if !self.whole || self.turn.status != TurnStatus::Finished || self.turn.source == load_log::CRON {
            return;
        }
        let mail = self.past + 1;
        let messages = self.messages_mut().split_off(mail);
        self.log.push(LoggedTurn::new(&self.turn, self.mail, messages));
        self.session.keep_log(self.turn.conversation_id, &self.plan, self.log_version, self.log);
    }

    /// Runs the turn until it has an ending. `None` if no ending is to be written: the last
    /// answer's transaction wrote it, or the turn stays open.
    async fn run_to_end(&mut self) -> Result<Option<Ending>, Refusal> {
        let ending = self.run_rounds().await;
        // A pending result is recorded before the turn ends, whatever the reason for the end.
        let recorded = self.flush().await;
        let ending = ending?;
        recorded.map(|()| ending)
    }

    async fn run_rounds(&mut self) -> Result<Option<Ending>, Refusal> {
        if !self.open.is_empty()
            && let Some(ending) = self.act().await?
        {
            return Ok(Some(ending));
        }
        let mut may_guide = true;
        loop {
            // All steps before are journaled, so a resumed turn repeats and pays for none of them.
            if self.session.must_yield() {
                return Ok(None);
            }
            if self.rounds >= self.spec.limits.turn_rounds_max {
                let what = format!("the turn made {} model calls, which is its limit", self.rounds);
                return Ok(Some(self.at_bound(limit_reached(what, "turn_rounds_max"), true, None)));
            }
            if let Some(refusal) = self.out_of_time() {
                return Ok(Some(self.at_bound(refusal, true, None)));
            }
            self.take_tools().await?;
            match self.think(may_guide).await? {
                think::Thought::Guided => {
                    // Mail that does not join this turn waits for the next.
                    may_guide = self.take_guidance().await?;
                    continue;
                }
                think::Thought::Calls => {
                    // If a call's start was journaled with the answer, the call runs now. If the
                    // turn stopped before the call, a resumed turn would treat the outcome as
                    // unknown.
                    let begun = matches!(self.prepared, Some((_, Some(_))));
                    if !begun && self.session.must_yield() {
                        return Ok(None);
                    }
                    if let Some(ending) = self.act().await? {
                        return Ok(Some(ending));
                    }
                }
                think::Thought::Corrected => {}
                think::Thought::Ended => return Ok(None),
                think::Thought::Failed(refusal) => {
                    self.fail(refusal).await?;
                    return Ok(None);
                }
                think::Thought::OutOfTime(refusal, partial) => {
                    return Ok(Some(self.at_bound(refusal, true, partial)));
                }
                think::Thought::Unaffordable(refusal) => {
                    let ending = self.at_bound(refusal.clone(), false, None);
                    if ending.text().is_some() {
                        return Ok(Some(ending));
                    }
                    self.fail(refusal).await?;
                    return Ok(None);
                }
                think::Thought::SetAside => return Ok(None),
                think::Thought::Reopen => {
                    self.reopen = true;
                    return Ok(None);
                }
            }
            may_guide = true;
        }
    }

    /// Ends the turn because no model can answer it (see [`turns::fail`]).
    async fn fail(&mut self, refusal: Refusal) -> Result<(), Refusal> {
        self.flush().await?;
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let ended = self.write_with_retry(move |w| turns::fail(w, &ctx, turn_id, refusal)).await?;
        self.turn = ended;
        Ok(())
    }
}
