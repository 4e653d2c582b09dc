//! The tools of a running turn while they come and go: between two model calls the turn takes the tools that there are now,
//! journals what has changed, and tells the model (TOOL-03).
//!
//! The tools that run the calls of an answer must be those of the request that it answers. But no call may run that a
//! reload has taken away since.

use std::sync::Arc;

use ghost_domain::journal::Step;
use ghost_domain::transcript::{Message, Role};
use ghost_domain::{Code, Refusal};
use ghost_operations::turns;
use ghost_tools::Registry;

use super::call::Checked;
use super::runner::Runner;

impl Runner {
    /// Takes the tools that there are now.
    pub(super) async fn take_tools(&mut self) -> Result<(), Refusal> {
        let Some(live) = &self.live else { return self.take_rights().await };
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
            self.write_with_retry(move |w| turns::tools_changed(w, &ctx, turn_id, &step)).await?;
            seen.apply(&changes);
            self.messages_mut().push(Message::text(Role::User, text));
        }
        self.registry = profile.registry.clone().keeping(&seen);
        self.plan_of_tools = Arc::clone(&profile.plan);
        if let Some(live) = &mut self.live {
            (live.held, live.seen, live.skills_changed) = (held, seen, false);
        }
        Ok(())
    }

    /// Takes the rights of the current plan in a world whose tools stay as they are. Requests describe what they described
    /// before, as far as the agent still has it.
    async fn take_rights(&mut self) -> Result<(), Refusal> {
        let plan = self.engine.services.plan();
        if Arc::ptr_eq(&self.plan_of_tools, &plan) {
            return Ok(());
        }
        // An agent that cannot run under the new plan finishes its turn with the tools that it had.
        if let Some(Ok(registry)) = self.registry_now().await? {
            self.registry = registry.keeping(&self.registry.seen());
            self.plan_of_tools = plan;
        }
        Ok(())
    }

    /// The agent's tools under the current plan. The inner error says why the agent cannot run under it. `None` if there is
    /// no such agent.
    async fn registry_now(&self) -> Result<Option<Result<Registry, Refusal>>, Refusal> {
        let (store, id) = (&self.engine.services.store, self.agent_id.clone());
        let agent = store.read(move |r| r.agent_get(&id)).await?;
        let Some(agent) = agent else { return Ok(None) };
        let (channel, held) = (self.registry.caller().channel, self.engine.skills_held(&self.agent_id).await?);
        Ok(Some(self.engine.spec_and_tools_for(&agent, channel, &held).map(|(_, registry)| registry)))
    }

    /// Why a call may not run any more, although it was allowed when the model made it: a reload has changed what its agent
    /// may do. The inner error says why the agent cannot run at all.
    pub(super) async fn lost_access(&self, checked: &Checked) -> Result<Result<Option<Refusal>, Refusal>, Refusal> {
        if Arc::ptr_eq(&self.plan_of_tools, &self.engine.services.plan()) {
            return Ok(Ok(None));
        }
        let registry = match self.registry_now().await? {
            None => return Ok(Ok(None)),
            Some(Err(refusal)) => return Ok(Err(refusal)),
            Some(Ok(registry)) => registry,
        };
        if let Err(refusal) = registry.find(&checked.tool.spec.name) {
            return Ok(Ok(Some(refusal)));
        }
        let (before, now) = (self.registry.caller(), registry.caller());
        let same = now.groups == before.groups && now.write_acl == before.write_acl;
        Ok(Ok((!same).then(|| {
            Refusal::new(Code::Conflict, "what you may do has changed since you made this call")
                .hint("nothing was run; make the call again")
        })))
    }

    /// The refusal of a call that has not begun, if it may not run any more. An agent that cannot run any more finishes its
    /// turn with the tools that it had.
    pub(super) async fn lost(&self, checked: &Checked) -> Result<Option<Refusal>, Refusal> {
        if checked.call.begun.is_some() {
            return Ok(None);
        }
        Ok(self.lost_access(checked).await?.unwrap_or_default())
    }
}
