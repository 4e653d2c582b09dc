//! The tools of a running turn, and whether a call of one may run. In a world whose tools come and go, the turn takes the
//! tools that there are now between two model calls, journals what has changed, and tells the model.
//!
//! The tools that run the calls of an answer must be those of the request that it answers. But no call may run that a
//! reload has taken away since.

use std::sync::Arc;

use ghost_domain::journal::{JournalRow, Step};
use ghost_domain::tool_catalogue::DESCRIBE;
use ghost_domain::{Code, Refusal, SeenTools};
use ghost_operations::turns;
use ghost_tools::loop_guard::{Call, Verdict};
use ghost_tools::tool::Need;
use ghost_tools::{Registry, Tool};

use super::call::{Checked, Checking, Unfit};
use super::runner::Runner;
use crate::transcript::OpenCall;

impl Runner {
    /// Takes the tools that there are now.
    pub(super) async fn take_tools(&mut self) -> Result<(), Refusal> {
        let Some(live) = &self.tools.live else { return self.take_rights().await };
        let is_same = Arc::ptr_eq(self.tools.registry.table(), &self.engine.tools.current())
            && Arc::ptr_eq(&self.tools.plan, &self.engine.services.plan());
        if is_same && !live.skills_changed {
            return Ok(());
        }
        let held = match live.skills_changed {
            true => self.engine.skills_held(&self.turn.agent_id).await?,
            false => live.held.clone(),
        };
        let channel = self.tools.registry.caller().channel;
        // An agent that cannot run under the new plan finishes its turn with the tools that it had.
        let Ok(profile) = self.engine.profile(&live.agent, channel, &held) else { return Ok(()) };
        let changes = profile.registry.changes_since(&live.seen);
        let mut seen = live.seen.clone();
        if !changes.is_empty() && seen.can_grow() {
            let text = profile.registry.note(&changes);
            self.flush().await?;
            let step = Step::ToolsChanged { changes: Box::new(changes.clone()), text: text.clone() };
            self.write_with_retry(move |w, turn_id| turns::tools_changed(w, turn_id, &step)).await?;
            seen.apply(&changes);
            self.conversation.tell(text);
        }
        self.tools.registry = profile.registry.clone().keeping(&seen);
        self.tools.plan = Arc::clone(&profile.plan);
        if let Some(live) = &mut self.tools.live {
            (live.held, live.seen, live.skills_changed) = (held, seen, false);
        }
        Ok(())
    }

    /// Takes the rights of the current plan in a world whose tools stay as they are. Requests describe what they described
    /// before, as far as the agent still has it.
    async fn take_rights(&mut self) -> Result<(), Refusal> {
        let plan = self.engine.services.plan();
        if Arc::ptr_eq(&self.tools.plan, &plan) {
            return Ok(());
        }
        // An agent that cannot run under the new plan finishes its turn with the tools that it had.
        if let Some(Ok(registry)) = self.registry_now().await? {
            self.tools.registry = registry.keeping(&self.tools.registry.seen());
            self.tools.plan = plan;
        }
        Ok(())
    }

    /// The agent's tools under the current plan. The inner error says why the agent cannot run under it. `None` if there is
    /// no such agent.
    async fn registry_now(&self) -> Result<Option<Result<Registry, Refusal>>, Refusal> {
        let (store, id) = (&self.engine.services.store, self.turn.agent_id.clone());
        let agent = store.read(move |r| r.agent_get(&id)).await?;
        let Some(agent) = agent else { return Ok(None) };
        let (channel, held) =
            (self.tools.registry.caller().channel, self.engine.skills_held(&self.turn.agent_id).await?);
        Ok(Some(self.engine.spec_and_tools_for(&agent, channel, &held).map(|(_, registry)| registry)))
    }

    /// Why a call may not run any more, although it was allowed when the model made it: a reload has changed what its agent
    /// may do. The inner error says why the agent cannot run at all.
    pub(super) async fn lost_access(&self, checked: &Checked) -> Result<Result<Option<Refusal>, Refusal>, Refusal> {
        if Arc::ptr_eq(&self.tools.plan, &self.engine.services.plan()) {
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
        let (before, now) = (self.tools.registry.caller(), registry.caller());
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

    /// Checks a call, also by what the files that it uses hold now.
    ///
    /// # Errors
    /// `Unavailable` if the daemon is stopping.
    pub(super) async fn check_whole(&mut self, call: OpenCall) -> Result<Checking, Refusal> {
        let mut checked = match self.check(call) {
            Ok(checked) => checked,
            Err(unfit) => return Ok(Err(unfit)),
        };
        if let Some(refusal) = self.lost(&checked).await? {
            return Ok(Err(Unfit::new(checked.call, refusal)));
        }
        if let Some(begun) = &checked.call.begun {
            checked.awaits_person = self.awaits_person(begun, Some(&checked.run)).await?;
        } else if checked.needs_approval.is_none() {
            let (services, arguments) = (&self.engine.services, &checked.call.arguments);
            checked.needs_approval =
                checked.tool.closer_need(services, self.tools.registry.caller(), arguments).await?;
        }
        Ok(Ok(checked))
    }

    /// Finds a call's tool, checks the size and the schema of the arguments, and asks the loop
    /// guard. A call runs only if all checks succeed.
    fn check(&mut self, call: OpenCall) -> Checking {
        let (tool, alias) = match self.tools.registry.find(&call.name) {
            Ok(found) => found,
            Err(refusal) => {
                // The refusal uses the same name for the tool as the records do.
                let refusal = self.tools.registry.find(&self.recorded_name(&call.name)).err().unwrap_or(refusal);
                return Err(Unfit::new(call, refusal));
            }
        };
        let limit = self.limits().arguments_bytes as usize;
        let size = call.arguments.to_string().len();
        if size > limit {
            let refusal =
                Refusal::new(Code::TooLarge, format!("the arguments have {size} bytes; at most {limit} are taken"))
                    .hint("write in several calls");
            return Err(Unfit::new(call, refusal));
        }
        // Presets of an alias and nulls are resolved before the schema check. The journal keeps the
        // arguments as the model wrote them, the ledger the arguments that ran.
        let arguments = tool.normalise(alias.as_deref(), call.arguments.clone());
        if let Err(refusal) = tool.validate(&arguments) {
            let refusal = match self.tools.registry.is_deferred(&tool.spec.name) {
                true => refusal.hint(format!("nothing was run; {DESCRIBE} shows the parameters of {}", tool.spec.name)),
                false => refusal,
            };
            return Err(Unfit::new(call, refusal));
        }
        let raw = call.arguments.clone();
        let call = OpenCall { arguments, ..call };
        if call.begun.is_none() {
            let nature = tool.nature(&call.arguments);
            match self.guard.before(Call { tool: &tool.spec.name, arguments: &raw, nature }) {
                Verdict::Fine | Verdict::Warn(_) => {}
                Verdict::Block(refusal) => return Err(Unfit::new(call, refusal)),
                Verdict::Stop(refusal) => return Err(Box::new(Unfit { call, refusal, ends_turn: true })),
            }
        }
        let (run, needs_approval) = (tool.run.resolve(&call.arguments), self.needs_approval(&tool, &call));
        Ok(Checked { call, tool, alias, run, needs_approval, awaits_person: false })
    }

    /// Why the arguments of a call need an approval. A call that has begun was approved before.
    fn needs_approval(&self, tool: &Tool, call: &OpenCall) -> Option<String> {
        if call.begun.is_some() {
            return None;
        }
        match tool.need(&self.engine.services.plan(), self.tools.registry.caller(), &call.arguments) {
            Need::Approval(reason) => Some(reason),
            // An operator was asked before a crash. The answer holds also if nobody would be asked any more.
            Need::Nothing if call.approval_id.is_some() => Some("an operator was asked".to_owned()),
            Need::Nothing | Need::Refused => None,
        }
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
