//! What a tool reaches: who calls, in which turn, and the shared office of the world.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use ghost_config::plan::Plan;
use ghost_domain::event::{Event, EventKind};
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{Activity, AgentId, CallId, ChannelContext, EventId, Party, RootId, Timestamp, TurnId, Viewer};
use ghost_rules::RuleContext;
use ghost_rules::mail::Chain;
use ghost_store::Store;
use serde_json::json;

use crate::skills::SkillShelf;
use crate::workspace::Workspace;

/// What the world tells tools about the agents that run in it. Orders to agents are records in the store, not calls
/// here, so that they survive whatever dies meanwhile.
pub trait AgentControl: Send + Sync + 'static {
    /// What every agent does now.
    fn activities(&self) -> BTreeMap<AgentId, Activity>;

    /// Since when the daemon serves the world.
    fn started_at(&self) -> Timestamp;
}

/// The things that all agents of a world share.
pub struct WorldServices {
    /// Rules.
    pub ctx: RuleContext,
    /// The store.
    pub store: Store,
    /// The shared workspace.
    pub workspace: Arc<Workspace>,
    /// The world's own view of its agents.
    pub control: Arc<dyn AgentControl>,
    plan: RwLock<Arc<Plan>>,
    skills: RwLock<Arc<SkillShelf>>,
    data_dir: Option<PathBuf>,
}

impl WorldServices {
    /// An office. Reads the skill folders of the plan, so it blocks for as long as that takes.
    #[must_use]
    pub fn new(
        ctx: RuleContext,
        store: Store,
        workspace: Arc<Workspace>,
        control: Arc<dyn AgentControl>,
        plan: Arc<Plan>,
    ) -> Self {
        let skills = RwLock::new(Arc::new(SkillShelf::read(&plan.skill_roots)));
        Self { ctx, store, workspace, control, plan: RwLock::new(plan), skills, data_dir: None }
    }

    /// Says where the world's data lies: agents' memory in `<data>/agents/<id>/memory`, and the disk whose room is
    /// reported. Without it both are refused.
    #[must_use]
    pub fn with_data_dir(mut self, data_dir: &Path) -> Self {
        self.data_dir = Some(data_dir.to_owned());
        self
    }

    /// Where the world's data lies, if the world has a disk.
    #[must_use]
    pub fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    /// The skills of the plan in force.
    #[must_use]
    pub fn skills(&self) -> Arc<SkillShelf> {
        Arc::clone(&self.skills.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        // The lock is held for a pointer copy only, so a poisoned one still holds a whole value.
        Arc::clone(&self.plan.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another plan in force and reads its skill folders anew. Blocks for as long as that takes.
    pub fn set_plan(&self, plan: Arc<Plan>) {
        let skills = Arc::new(SkillShelf::read(&plan.skill_roots));
        self.put_in_force(plan, skills);
    }

    /// Puts another plan in force with its skills, as a reload does.
    pub fn put_in_force(&self, plan: Arc<Plan>, skills: Arc<SkillShelf>) {
        *self.skills.write().unwrap_or_else(PoisonError::into_inner) = skills;
        *self.plan.write().unwrap_or_else(PoisonError::into_inner) = plan;
    }
}

/// Who calls. Bound when the registry is built; nothing that a model says can change it (TOOL-04).
#[derive(Clone, Debug)]
pub struct Caller {
    /// The agent.
    pub agent_id: AgentId,
    /// Where it may write.
    pub write_acl: WriteAcl,
    /// Whether it may change any task, not only its own (TASK-05).
    pub manages_tasks: bool,
    /// Whether it may change its own, if the world lets owners: nothing denies it the tool or leaves it out.
    pub updates_own_tasks: bool,
    /// What it is made from.
    pub archetype: String,
    /// The privilege groups that it has.
    pub groups: BTreeSet<String>,
    /// The skills that it may hold; `None` is all.
    pub skills: Option<std::collections::BTreeSet<String>>,
    /// The conversation with someone outside that its turn comes from, if it does.
    pub channel: Option<ChannelContext>,
}

impl Caller {
    /// What of the world's knowledge is open to it is decided by this.
    #[must_use]
    pub fn viewer(&self) -> Viewer {
        let (agent_id, archetype) = (self.agent_id.clone(), self.archetype.clone());
        Viewer::Agent { agent_id, archetype, groups: self.groups.clone() }
    }
}

/// One call, as a tool sees it.
#[derive(Clone)]
pub struct CallContext {
    /// The shared office.
    pub services: Arc<WorldServices>,
    /// Who calls.
    pub caller: Arc<Caller>,
    /// In which turn.
    pub turn_id: TurnId,
    /// The turn's root.
    pub root_id: RootId,
    /// The turn's hop; what the call emits has one more.
    pub hop: u32,
    /// Our id of the call.
    pub call_id: CallId,
    /// The provider's id of the call.
    pub provider_call_id: String,
}

impl CallContext {
    /// The caller as a party.
    #[must_use]
    pub fn party(&self) -> Party {
        Party::Agent(self.caller.agent_id.clone())
    }

    /// The chain that everything emitted by this call belongs to.
    #[must_use]
    pub fn chain(&self) -> Chain {
        Chain { root_id: self.root_id, hop: self.hop.saturating_add(1) }
    }

    /// Streams how far a long call is. Never stored, never shown to the model (TOOL-19).
    pub fn progress(&self, text: &str) {
        let ctx = &self.services.ctx;
        let text = ctx.redactor.redact(&ghost_domain::text::clip(text, 500));
        self.services.store.publish_ephemeral(Event {
            seq: self.services.store.last_seq(),
            event_id: EventId(ctx.id()),
            ts: ctx.now(),
            kind: EventKind::ToolProgress,
            agent_id: Some(self.caller.agent_id.clone()),
            channel: None,
            correlation_id: Some(self.turn_id.to_string()),
            payload: json!({ "turn_id": self.turn_id, "call_id": self.call_id, "text": text }).into(),
        });
    }
}
