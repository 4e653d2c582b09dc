//! One turn from its mail to its end: think, act, until the model makes no call. Every step is journaled before the next
//! begins, so that a crash anywhere is a restart here with the journal in hand.

mod act;
mod answer;
mod ask;
mod call;
mod file_call;
mod gate;
mod keep;
mod open;
mod operator;
mod parsed_answer;
mod pending_result;
mod record;
mod round;
mod runner;
mod session;
mod stream;
mod think;
mod wait;

pub(crate) use keep::Pauses;
pub use open::{Preview, preview};
pub use operator::{OperatorCall, call_for_operator};
pub use session::AgentSession;

use std::sync::Arc;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::{AgentId, Code, Refusal, Turn, TurnId, TurnStatus};
use ghost_provider::Pass;
use ghost_rules::agents;
use ghost_rules::turns::{self, Ending, Next, Seen, Taken};
use serde_json::json;

use self::open::Unopened;
use self::runner::{Runner, bound_reached};
use crate::engine::Engine;

/// Works off an agent's mail, turn by turn, until there is none or new turns may not begin. An agent that the plan in force has
/// no place for takes none: it is recorded as failed, and its mail and its open turn wait.
///
/// # Errors
/// When the store refuses to go on: the journal is then where the last step left it.
pub async fn work(engine: &Arc<Engine>, agent_id: &AgentId, session: &Arc<AgentSession>) -> Result<(), Refusal> {
    while engine.activity.may_begin(agent_id) && !session.yields() {
        if let Some((wait, tell)) =
            session.pace(engine.services.ctx.now(), engine.services.ctx.limits().agent_turns_per_minute)
        {
            if tell {
                held_back(engine, agent_id).await?;
            }
            engine.services.ctx.ports.clock.sleep(wait).await;
            session.paced();
            continue;
        }
        // Before the look: what it finds is found by this plan or a later one.
        let plan = engine.services.plan();
        let (next, sources, room) = match open::look(engine, agent_id, session).await? {
            Ok(looked) => looked,
            Err(why) => return unfit(engine, agent_id, why).await,
        };
        let pass = match &next {
            Next::Mail { .. } => match gate::door(engine, agent_id, session, &plan, &room.models).await {
                Some(pass) => pass,
                None => continue,
            },
            Next::Nothing | Next::Resume => None,
        };
        let (seen, more) = match next {
            Next::Nothing => return Ok(()),
            Next::Resume => (None, true),
            Next::Mail { mail, more, unread, .. } => (Some(Seen { mail, unread, room: room.bytes }), more),
        };
        let (ctx, id) = (engine.services.ctx.clone(), agent_id.clone());
        let taken = engine
            .services
            .store
            .write(move |w| Box::pin(async move { turns::take(w, &ctx, &id, seen).await }))
            .await?;
        let Some(taken) = taken else { return Ok(()) };
        let turn_id = taken.turn.turn_id;
        session.set(Some(turn_id));
        let recent = sources.as_ref().map(|sources| sources.history.clone());
        let ran = run(engine, taken, sources, session, pass).await;
        session.set(None);
        match ran {
            Ok(Ran::Finished(turn)) => session.remember(recent, *turn, engine.services.ctx.limits().history_turns),
            Ok(Ran::Ended) => {}
            Ok(Ran::Unfit(why)) => return unfit(engine, agent_id, why).await,
            Ok(Ran::Left) => return Ok(()),
            Ok(Ran::Anew) => continue,
            // It was ended from outside while its agent was at work: what it wanted to write is refused, rightly.
            Err(refusal) if refusal.code == Code::Cancelled => {}
            Err(refusal) if refusal.code == Code::Unavailable || refusal.code == Code::Internal => return Err(refusal),
            Err(refusal) => end(engine, turn_id, Ending::Failed(refusal)).await?,
        }
        session.settle();
        if !more {
            return Ok(());
        }
    }
    Ok(())
}

/// Records that the plan in force has no place for an agent.
async fn unfit(engine: &Arc<Engine>, agent_id: &AgentId, why: Refusal) -> Result<(), Refusal> {
    let (ctx, agent_id) = (engine.services.ctx.clone(), agent_id.clone());
    engine.services.store.write(move |w| Box::pin(async move { agents::unfit(w, &ctx, &agent_id, &why).await })).await
}

/// Says in the feed that an agent is woken more often than it may open turns. What wakes it meanwhile is taken together.
async fn held_back(engine: &Arc<Engine>, agent_id: &AgentId) -> Result<(), Refusal> {
    let (ctx, agent_id) = (engine.services.ctx.clone(), agent_id.clone());
    let payload = json!({ "limit": "agent_turns_per_minute", "value": ctx.limits().agent_turns_per_minute });
    let event = NewEvent::new(EventKind::StormHeld, payload).agent(&agent_id);
    engine.services.store.write(move |w| Box::pin(async move { ctx.emit(w, event).await })).await
}

/// Ends a turn, whose end is not given up because the store cannot take it for the moment.
async fn end(engine: &Arc<Engine>, turn_id: TurnId, ending: Ending) -> Result<(), Refusal> {
    let ctx = engine.services.ctx.clone();
    let finish = keep::keep(
        engine,
        turn_id,
        move |w| Box::pin(async move { turns::finish(w, &ctx, turn_id, ending).await }),
        drop,
    );
    match finish.await {
        Ok(_) => Ok(()),
        Err(refusal) if refusal.code == Code::Cancelled => Ok(()),
        Err(refusal) => Err(refusal),
    }
}

/// What became of a turn.
enum Ran {
    /// It ended with its model's last word.
    Finished(Box<Turn>),
    /// It ended otherwise.
    Ended,
    /// It is kept: its agent cannot run now.
    Unfit(Refusal),
    /// It is kept: its agent is restarted.
    Left,
    /// It is kept, and goes on by other files than it was opened with.
    Anew,
}

/// Runs a turn to its end.
async fn run(
    engine: &Arc<Engine>,
    taken: Taken,
    sources: Option<open::Sources>,
    session: &Arc<AgentSession>,
    pass: Option<Pass>,
) -> Result<Ran, Refusal> {
    let turn_id = taken.turn.turn_id;
    if let Some(refusal) = &taken.over {
        return end(engine, turn_id, Ending::Failed(refusal.clone())).await.map(|()| Ran::Ended);
    }
    let mut runner = match Runner::open(engine, taken, sources, session).await? {
        Ok(runner) => Runner { pass, ..runner },
        // The files have changed since the agent looked for its place in them.
        Err(Unopened::Unfit(why)) => return Ok(Ran::Unfit(why)),
        Err(Unopened::Failed(refusal)) => {
            return end(engine, turn_id, Ending::Failed(refusal)).await.map(|()| Ran::Ended);
        }
    };
    match runner.run_to_end().await? {
        None if session.has_left() => Ok(Ran::Left),
        None if runner.anew => Ok(Ran::Anew),
        Some(ending) => end(engine, turn_id, ending).await.map(|()| Ran::Ended),
        None if runner.turn.status == TurnStatus::Finished => Ok(Ran::Finished(Box::new(runner.turn))),
        // A last word may have been a refusal, which is no turn to be recalled.
        None => Ok(Ran::Ended),
    }
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
            // Every step before is in the journal: whoever resumes the turn pays for none of them again.
            if self.session.leaves() {
                return Ok(None);
            }
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
                    // A call whose start was journaled with the answer is made: cut off, nobody could say whether it was.
                    let begun = matches!(self.prepared, Some((_, Some(_))));
                    if !begun && self.session.leaves() {
                        return Ok(None);
                    }
                    if let Some(ending) = self.act().await? {
                        return Ok(Some(ending));
                    }
                }
                think::Thought::Corrected => {}
                think::Thought::Ended => return Ok(None),
                think::Thought::Failed(refusal) => return Ok(Some(Ending::Failed(refusal))),
                think::Thought::TooLong(refusal) | think::Thought::Poisoned(refusal) => {
                    self.give_back(refusal).await?;
                    return Ok(None);
                }
                think::Thought::Aside => return Ok(None),
                think::Thought::Anew => {
                    self.anew = true;
                    return Ok(None);
                }
            }
        }
    }

    /// Ends the turn because no model can take it, which is no reason to lose its mail.
    async fn give_back(&mut self, refusal: Refusal) -> Result<(), Refusal> {
        self.flush().await?;
        let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
        let ended =
            self.keep(move |w| Box::pin(async move { turns::too_long(w, &ctx, turn_id, refusal).await })).await?;
        self.turn = ended;
        Ok(())
    }
}
