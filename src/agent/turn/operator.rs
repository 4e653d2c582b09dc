//! Runs a tool call from the control plane. The tool runs as the agent, through the agent's
//! registry, in a turn of its own that is marked as the operator's.
//!
//! Nothing here may be retried for long or wait for a person: the operator waits for the answer.

use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use ghost_config::spec::AgentSpec;
use ghost_domain::journal::{CallOutcome, JournalRow, Step};
use ghost_domain::text::panic_text;
use ghost_domain::transcript::{Block, Message, Role};
use ghost_domain::{AgentId, Code, Refusal, Turn, TurnId};
use ghost_operations::droids;
use ghost_operations::mail::agent_for_operator;
use ghost_operations::turns::{self, Ending};
use ghost_provider::Class;
use ghost_tools::Registry;
use ghost_tools::loop_guard::LoopGuard;
use serde_json::Value;

use super::conversation::Conversation;
use super::runner::{Progress, Prompt, Runner, Terms, TurnTools};
use crate::engine::Engine;
use crate::log::Log;
use crate::prompt::Part;
use crate::session::AgentSession;
use crate::transcript::{Begun, OpenCall};

/// Id of an operator's single call in the journal of its turn.
const CALL: &str = "operator-1";

/// A tool call that an operator makes as an agent.
#[derive(Clone, Debug)]
pub struct OperatorCall {
    /// Id of the call's turn. It is chosen before the call begins, so that a repeated request finds
    /// the turn.
    pub turn_id: TurnId,
    /// Whether the turn may exist already, because the daemon died during the call.
    pub again: bool,
    /// The agent that the tool acts as.
    pub agent_id: AgentId,
    /// Name of the tool.
    pub tool: String,
    /// Arguments of the tool.
    pub arguments: Value,
}

/// What a journal tells of a call that may have been interrupted: its outcome, or its start. Without either, nothing has
/// happened: effects in the store commit with their record.
fn progress(journal: Vec<JournalRow>) -> ControlFlow<CallOutcome, Option<Begun>> {
    let mut begun = None;
    for row in journal {
        match row.step {
            Step::CallFinished { outcome, .. } => return ControlFlow::Break(outcome),
            step => begun = Begun::of(&step).map(|(_, begin)| begin).or(begun),
        }
    }
    ControlFlow::Continue(begun)
}

/// Calls a tool as an agent. The outcome may be a refusal by the tool, which is recorded like any
/// other outcome. An interrupted call is continued: a recorded outcome is returned, a file write is
/// verified by its hashes, and a call that never started runs now. An outside effect that was
/// started has an unknown outcome.
///
/// # Errors
/// When the agent does not exist, is a droid that has ended, or cannot run, the arguments do not fit the tool, the turn was
/// ended from outside, or the tool panicked.
pub async fn call_for_operator(
    engine: &Arc<Engine>,
    call: OperatorCall,
    session: &Arc<AgentSession>,
) -> Result<CallOutcome, Refusal> {
    let OperatorCall { turn_id, again, agent_id, tool, arguments } = call;
    let journal = match again {
        true => engine.services.store.read(move |r| r.journal_of(turn_id)).await.map_err(Refusal::from)?,
        false => Vec::new(),
    };
    let begun = match progress(journal) {
        // Returned even if the agent is deleted by now.
        ControlFlow::Break(outcome) => return Ok(outcome),
        ControlFlow::Continue(begun) => begun,
    };
    let (id, is_new) = (agent_id.clone(), begun.is_none());
    let read = engine.services.read(move |r| {
        let agent = agent_for_operator(r, &id)?;
        // What has begun is only looked at: its outcome is recorded.
        if is_new {
            droids::may_act(r, &agent)?;
        }
        Ok::<_, Refusal>(agent)
    });
    let agent = read.await?;
    let (spec, registry) = engine.spec_and_tools(&agent).await?;
    // Checked before a turn is opened, so that a typing error leaves no turn behind.
    let (found, alias) = registry.find(&tool)?;
    found.validate(&found.normalise(alias.as_deref(), arguments.clone()))?;
    let turn = engine.services.write(move |w| turns::operator_turn(w, &agent_id, turn_id)).await?;
    let call = OpenCall { id: CALL.into(), name: tool.clone(), arguments, begun, approval_id: None };
    let mut runner = runner(engine, session, turn, (spec, registry), &call);
    // A panic of the tool must not end the control plane's task or leave the turn open.
    let outcomes = match AssertUnwindSafe(runner.act_once(call)).catch_unwind().await {
        Ok(outcomes) => outcomes,
        Err(panic) => {
            let text = engine.services.ctx.excerpt(&panic_text(&*panic), 300);
            Err(Refusal::new(Code::OutcomeUnknown, format!("{tool} panicked: {text}"))
                .hint("it may or may not have happened; check which effects it had"))
        }
    };
    let refusal = outcomes.as_ref().map_or_else(Some, |outcome| outcome.refusal.as_ref());
    let ending = refusal.map_or_else(|| Ending::Finished(String::new()), |refusal| Ending::Failed(refusal.clone()));
    // Written once and not retried, because the operator waits for the answer. If the write fails,
    // the turn stays open until the daemon's next start ends it.
    let finish = engine.services.write(move |w| turns::finish(w, turn_id, ending));
    match finish.await {
        Ok(_) => {}
        Err(refusal) if refusal.code == Code::Cancelled => {}
        Err(refusal) => return Err(refusal),
    }
    outcomes
}

/// The turn of a call: no model is asked in it.
fn runner(
    engine: &Arc<Engine>,
    session: &Arc<AgentSession>,
    turn: Turn,
    (spec, registry): (AgentSpec, Registry),
    call: &OpenCall,
) -> Runner {
    let (limits, plan) = (engine.services.ctx.limits(), engine.services.plan());
    let block = Block::ToolCall { id: call.id.clone(), name: call.name.clone(), arguments: call.arguments.clone() };
    let messages = vec![Message { role: Role::Assistant, blocks: vec![block] }.into()];
    Runner {
        engine: Arc::clone(engine),
        session: Arc::clone(session),
        turn,
        terms: Terms {
            spec: Arc::new(spec),
            plan: Arc::clone(&plan),
            class: Class::Person,
            timed: false,
            for_operator: true,
        },
        tools: TurnTools { registry, plan, live: None },
        prompt: Prompt {
            system: Arc::new(Part::new(String::new())),
            mail: String::new(),
            log: Log::default(),
            log_version: 0,
            unwritten: None,
        },
        conversation: Conversation::new(messages, 0, false, limits.context_bytes as usize),
        progress: Progress::default(),
        guard: LoopGuard::new(&limits),
        pending_result: None,
    }
}
