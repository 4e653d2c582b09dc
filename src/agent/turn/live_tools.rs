//! The tools of a running turn while they come and go: between two model calls the turn takes the tools that there are now,
//! journals what has changed, and tells the model (TOOL-03).
//!
//! The tools that run the calls of an answer must be those of the request that it answers.

use std::sync::Arc;

use ghost_domain::Refusal;
use ghost_domain::journal::Step;
use ghost_domain::transcript::{Message, Role};
use ghost_operations::turns;

use super::runner::Runner;

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
