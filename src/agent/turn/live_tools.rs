//! The tools of a running turn while they come and go: between two model calls the turn takes the tools that there are now,
//! journals what has changed, and tells the model (TOOL-03).
//!
//! The tools that run the calls of an answer must be those of the request that it answers.

use std::sync::Arc;

use ghost_domain::journal::JournalRow;
use ghost_domain::journal::Step;
use ghost_domain::transcript::{Message, Role};
use ghost_domain::{Agent, HeldSkill, Refusal, SeenTools};
use ghost_operations::turns;

use super::runner::Runner;

/// What a turn remembers of its tools, in a world whose tools come and go.
pub(super) struct TurnTools {
    agent: Agent,
    held: Vec<HeldSkill>,
    /// The tools as the model saw them.
    pub(super) seen: SeenTools,
    /// Whether the agent may hold other skills than before.
    pub(super) skills_changed: bool,
}

impl TurnTools {
    pub(super) fn new(agent: Agent, held: Vec<HeldSkill>, seen: SeenTools) -> Self {
        Self { agent, held, seen, skills_changed: false }
    }
}

/// The tools that the model of a resumed turn has seen. `None` if the turn has none that come and go.
pub(super) fn seen_before(journal: &[JournalRow]) -> Option<SeenTools> {
    let mut seen: Option<SeenTools> = None;
    for row in journal {
        match &row.step {
            Step::Briefed { tools, .. } => seen = tools.as_deref().cloned(),
            Step::ToolsChanged { changes, .. } => seen.iter_mut().for_each(|seen| seen.apply(changes)),
            _ => {}
        }
    }
    seen
}

impl Runner {
    /// Takes the tools that there are now.
    pub(super) async fn take_tools(&mut self) -> Result<(), Refusal> {
        let Some(live) = &self.live else { return Ok(()) };
        let is_same = Arc::ptr_eq(self.registry.table(), &self.engine.tools.current())
            && Arc::ptr_eq(&self.plan_of_tools, &self.engine.services.plan());
        if is_same && !live.skills_changed {
            return Ok(());
        }
        let held = match live.skills_changed {
            true => self.engine.skills_held(&self.agent_id).await?,
            false => live.held.clone(),
        };
        let channel = self.registry.caller().channel;
        // An agent that cannot run under the new plan finishes its turn with the tools that it had.
        let Ok(profile) = self.engine.profile(&live.agent, channel, &held) else { return Ok(()) };
        let changes = profile.registry.changes_since(&live.seen);
        let mut seen = live.seen.clone();
        if !changes.is_empty() && seen.can_grow() {
            let text = profile.registry.note(&changes);
            self.flush().await?;
            let (ctx, turn_id) = (self.engine.services.ctx.clone(), self.turn.turn_id);
            let step = Step::ToolsChanged { changes: Box::new(changes.clone()), text: text.clone() };
            self.write_with_retry(move |w| {
                Box::pin(async move { turns::tools_changed(w, &ctx, turn_id, &step).await })
            })
            .await?;
            seen.apply(&changes);
            self.messages.push(Message::text(Role::User, text));
        }
        self.registry = profile.registry.clone().keeping(&seen);
        self.plan_of_tools = Arc::clone(&profile.plan);
        if let Some(live) = &mut self.live {
            (live.held, live.seen, live.skills_changed) = (held, seen, false);
        }
        Ok(())
    }
}
