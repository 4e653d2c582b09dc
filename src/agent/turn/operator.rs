//! A tool call made from the control plane: it runs as the agent, through the agent's registry, in a turn of the
//! operator's (issue 2, 10).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures_util::FutureExt;
use ghost_domain::journal::{CallOutcome, JournalRow, Step};
use ghost_domain::transcript::{Block, Message, Role};
use ghost_domain::{AgentId, Code, Refusal, TurnId};
use ghost_provider::Class;
use ghost_rules::mail::agent_for_operator;
use ghost_rules::turns::{self, Ending};
use ghost_tools::loop_guard::LoopGuard;
use serde_json::Value;

use super::runner::Runner;
use super::session::AgentSession;
use crate::engine::Engine;
use crate::prompt::Part;
use crate::transcript::{Begun, OpenCall};

/// The id that an operator's single call has in its turn's journal.
const CALL: &str = "operator-1";

/// A tool call of an operator's.
#[derive(Clone, Debug)]
pub struct OperatorCall {
    /// The turn that the call is. Chosen before it begins, so that a request which is repeated finds it.
    pub turn_id: TurnId,
    /// Whether the turn may be there already, cut off by a daemon's death.
    pub again: bool,
    /// The agent that the tool acts as.
    pub agent_id: AgentId,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Value,
}

/// How far the call of a turn is that may have been cut off.
enum Far {
    Ended(CallOutcome),
    Begun(Begun),
    /// Nothing of it is recorded. What the store holds commits with its record, so nothing has happened.
    Not,
}

impl Far {
    fn of(journal: Vec<JournalRow>) -> Self {
        let mut far = Self::Not;
        for row in journal {
            match row.step {
                Step::CallFinished { outcome, .. } => return Self::Ended(outcome),
                Step::CallStarted { call_id, effect, file, ask_id, .. } => {
                    far = Self::Begun(Begun { call_id, effect, file, ask_id });
                }
                _ => {}
            }
        }
        far
    }
}

/// Calls a tool as an agent. The outcome may be a refusal of the tool's own; it is recorded like any other. A call that was
/// cut off is found: its recorded outcome, or a file write that is verified by its hashes, or a call of which nothing has
/// happened yet and which runs now. Of an effect outside that was begun nobody knows what came of it.
///
/// # Errors
/// When the agent does not exist or cannot be fitted out, the turn was ended from outside, or the tool panicked.
pub async fn call_for_operator(
    engine: &Arc<Engine>,
    call: OperatorCall,
    session: &Arc<AgentSession>,
) -> Result<CallOutcome, Refusal> {
    let OperatorCall { turn_id, again, agent_id, tool, arguments } = call;
    let far = match again {
        true => {
            let read = engine.services.store.read(move |r| Box::pin(async move { r.journal_of(turn_id).await })).await;
            Far::of(read.map_err(Refusal::from)?)
        }
        false => Far::Not,
    };
    let begun = match far {
        // Whatever has become of the agent since.
        Far::Ended(outcome) => return Ok(outcome),
        Far::Begun(begun) => Some(begun),
        Far::Not => None,
    };
    let (ctx, id) = (engine.services.ctx.clone(), agent_id.clone());
    let agent = engine
        .services
        .store
        .read(move |r| Box::pin(async move { agent_for_operator(r, |agent| ctx.may_run(agent), &id).await }))
        .await?;
    let (spec, registry) = engine.outfit(&agent)?;
    // Found before a turn is opened, so that a slip of the keyboard leaves no trace but its refusal.
    let (found, alias) = registry.find(&tool)?;
    found.validate(&found.normalise(alias.as_deref(), arguments.clone()))?;
    let (ctx, id) = (engine.services.ctx.clone(), agent_id.clone());
    let turn = engine
        .services
        .store
        .write(move |w| Box::pin(async move { turns::operator_turn(w, &ctx, &id, turn_id).await }))
        .await?;
    let call = Block::ToolCall { id: CALL.into(), name: tool.clone(), arguments: arguments.clone() };
    let nothing = Arc::new(Part::new(String::new()));
    let mut runner = Runner {
        held: None,
        engine: Arc::clone(engine),
        agent_id,
        turn,
        guard: LoopGuard::new(&engine.services.ctx.limits()),
        looped: None,
        spec: Arc::new(spec),
        registry,
        system: Arc::clone(&nothing),
        briefing: nothing,
        opening: (String::new(), String::new()),
        briefed: true,
        messages: vec![Message { role: Role::Assistant, blocks: vec![call] }],
        opening_messages: 0,
        context: engine.services.ctx.limits().context_bytes as usize,
        open: vec![OpenCall { id: CALL.into(), name: tool.clone(), arguments, begun }],
        prepared: None,
        pending_result: None,
        rounds: 0,
        corrections: 0,
        failures: Vec::new(),
        worked: Duration::ZERO,
        paused_ms: AtomicU64::new(0),
        session: Arc::clone(session),
        timed: false,
        class: Class::Person,
        alone: 0,
        pass: None,
        plan: engine.services.plan(),
        anew: false,
        shown: false,
    };
    // A tool that panics here must not take the control plane's task with it, nor leave the turn open behind it.
    let outcomes = match AssertUnwindSafe(runner.act_once()).catch_unwind().await {
        Ok(outcomes) => outcomes,
        Err(panic) => {
            let words = engine.services.ctx.excerpt(&crate::panics::text(&*panic), 300);
            Err(Refusal::new(Code::OutcomeUnknown, format!("{tool} panicked: {words}"))
                .hint("it may or may not have happened; check what it left behind"))
        }
    };
    let ending = match &outcomes {
        Ok(outcome) => match &outcome.refusal {
            None => Ending::Finished(String::new()),
            Some(refusal) => Ending::Failed(refusal.clone()),
        },
        Err(refusal) => Ending::Failed(refusal.clone()),
    };
    let ctx = engine.services.ctx.clone();
    // Written once: whoever called waits for a word, and an operator's turn that is still open is ended by the next start.
    let finish =
        engine.services.store.write(move |w| Box::pin(async move { turns::finish(w, &ctx, turn_id, ending).await }));
    match finish.await {
        Ok(_) => {}
        Err(refusal) if refusal.code == Code::Cancelled => {}
        Err(refusal) => return Err(refusal),
    }
    outcomes
}
