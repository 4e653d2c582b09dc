//! The context of a tool call: the caller, the call, the world's shared services, and what a call writes to the store while
//! it runs. A question to an operator must never hold for more than the one thing that was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_config::skills::SkillSet;
use ghost_domain::event::{Event, EventKind};
use ghost_domain::write_acl::WriteAcl;
use ghost_domain::{
    Activity, AgentId, Approval, ApprovalPlan, ApprovalStatus, CallId, ChannelContext, Code, ConversationId, EventId,
    Grant, GrantId, ImageFile, Money, Party, Refusal, RootId, Timestamp, ToolSpec, TurnId, Viewer, WorkspacePath,
};
use ghost_operations::approvals::{self, NewApproval};
use ghost_operations::mail::Chain;
use ghost_operations::{OperationContext, Result, Tx, budgets, turns};
use ghost_sandbox::Sandbox;
use ghost_store::{Store, StoreError};
use ghost_web::Web;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use crate::mcp::pool::McpConnections;
use crate::processes::Processes;
use crate::workspace::Workspace;

/// The world's view of its running agents, for tools. Read only: orders to agents are records in
/// the store, so that they survive a crash.
pub trait AgentControl: Send + Sync + 'static {
    /// The current activity of each agent.
    fn activities(&self) -> BTreeMap<AgentId, Activity>;

    /// The instant at which the daemon began to serve the world.
    fn started_at(&self) -> Timestamp;
}

/// The services that all agents of a world share.
pub struct WorldServices {
    /// The context of the rules.
    pub ctx: OperationContext,
    /// The store of the world.
    pub store: Store,
    /// The shared workspace.
    pub workspace: Arc<Workspace>,
    /// The running agents of the world.
    pub control: Arc<dyn AgentControl>,
    /// The background commands.
    pub processes: Processes,
    /// What is remembered of write grants.
    pub grants: Arc<GrantCache>,
    plan: RwLock<Arc<Plan>>,
    /// Variables whose values are redacted. The redactor is made when the daemon starts.
    redacted: BTreeSet<String>,
    data_dir: Option<PathBuf>,
    sandbox: Result<Arc<dyn Sandbox>, String>,
    web: Result<Arc<Web>, String>,
    mcp: Option<Arc<McpConnections>>,
}

impl WorldServices {
    /// Runs a command of the world's store; see [`OperationContext::write`].
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        self.ctx.write(&self.store, work).await
    }

    /// Runs a query of the world's store; see [`OperationContext::read`].
    pub async fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        self.ctx.read(&self.store, work).await
    }

    /// Builds the services.
    pub fn new(
        ctx: OperationContext,
        store: Store,
        workspace: Arc<Workspace>,
        control: Arc<dyn AgentControl>,
        plan: Arc<Plan>,
    ) -> Self {
        Self {
            ctx,
            store,
            workspace,
            control,
            processes: Processes::default(),
            grants: Arc::default(),
            redacted: plan.secret_env.clone(),
            plan: RwLock::new(plan),
            data_dir: None,
            sandbox: Err("there is none here".to_owned()),
            web: Err("there is none here".to_owned()),
            mcp: None,
        }
    }

    /// Sets the world's data directory. It contains agents' memory in `<data>/agents/<id>/memory`,
    /// and `syscall.resource.usage` reports its disk. Without it, reading memory is refused and the
    /// disk is omitted.
    #[must_use]
    pub fn with_data_dir(mut self, data_dir: &Path) -> Self {
        self.data_dir = Some(data_dir.to_owned());
        self
    }

    /// Whether the value of a variable of the daemon is redacted on every way out. A command may get no other one.
    pub fn redacts(&self, name: &str) -> bool {
        self.redacted.contains(name)
    }

    /// Sets where commands run, or why they cannot.
    #[must_use]
    pub fn with_sandbox(mut self, sandbox: Result<Arc<dyn Sandbox>, String>) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// Sets what agents reach over the network, or why they reach nothing.
    #[must_use]
    pub fn with_web(mut self, web: Result<Arc<Web>, String>) -> Self {
        self.web = web;
        self
    }

    /// Sets the connections to MCP servers.
    #[must_use]
    pub fn with_mcp(mut self, mcp: Arc<McpConnections>) -> Self {
        self.mcp = Some(mcp);
        self
    }

    /// The connections to MCP servers, if the world has any.
    pub fn mcp(&self) -> Option<&Arc<McpConnections>> {
        self.mcp.as_ref()
    }

    /// What agents reach over the network.
    ///
    /// # Errors
    /// Why they reach nothing.
    pub fn web(&self) -> Result<&Web, &str> {
        self.web.as_deref().map_err(String::as_str)
    }

    /// Where commands run; `None` if they cannot.
    pub fn sandbox(&self) -> Option<&Arc<dyn Sandbox>> {
        self.sandbox.as_ref().ok()
    }

    /// Why commands cannot run; `None` if they can.
    pub fn without_sandbox(&self) -> Option<&str> {
        self.sandbox.as_ref().err().map(String::as_str)
    }

    /// The world's data directory, if it is set.
    pub fn data_dir(&self) -> Option<&Path> {
        self.data_dir.as_deref()
    }

    /// The skills of the current plan.
    pub fn skills(&self) -> Arc<SkillSet> {
        Arc::clone(&self.plan().skills)
    }

    /// The current plan.
    pub fn plan(&self) -> Arc<Plan> {
        // The lock is held only to copy a pointer, so the value is valid even if the lock is
        // poisoned.
        Arc::clone(&self.plan.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the plan.
    pub fn set_plan(&self, plan: Arc<Plan>) {
        *self.plan.write().unwrap_or_else(PoisonError::into_inner) = plan;
    }
}

/// The agent that makes a call. Bound when the registry is built; no argument can change it
#[derive(Clone, Debug)]
pub struct Caller {
    /// The id of the agent.
    pub agent_id: AgentId,
    /// The directories that the agent may write to.
    pub write_acl: WriteAcl,
    /// Whether it may change any task, not only its own.
    pub manages_tasks: bool,
    /// Whether it may change its own tasks, if the world allows that to owners: no denial or
    /// allow-list excludes the tool.
    pub updates_own_tasks: bool,
    /// The archetype of the agent.
    pub archetype: String,
    /// The privilege groups of the agent.
    pub groups: BTreeSet<String>,
    /// The skills that the agent may hold; `None` means all.
    pub skills: Option<std::collections::BTreeSet<String>>,
    /// Maximum bytes of its conversation; see [`ghost_domain::Limits::context_bytes`].
    pub context_bytes: u32,
    /// The outside conversation that the turn came from, if any.
    pub channel: Option<ChannelContext>,
}

impl Caller {
    /// The caller as a reader of knowledge entries.
    pub fn viewer(&self) -> Viewer {
        let (agent_id, archetype) = (self.agent_id.clone(), self.archetype.clone());
        Viewer::Agent { agent_id, archetype, groups: self.groups.clone() }
    }
}

/// Where an agent may write at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writable {
    /// The directories, each ending in `/`: those of its write rules and of its grants.
    pub prefixes: Vec<String>,
    /// The grants among them.
    pub grants: Vec<GrantId>,
}

/// One call of a tool.
#[derive(Clone)]
pub struct CallContext {
    /// The services of the world.
    pub services: Arc<WorldServices>,
    /// The agent that makes the call.
    pub caller: Arc<Caller>,
    /// The tools that the caller may use.
    pub tools: Arc<[ToolSpec]>,
    /// The turn of the call.
    pub turn_id: TurnId,
    /// The root of the turn.
    pub root_id: RootId,
    /// The hop of the turn. Messages and events of the call have one more.
    pub hop: u32,
    /// The conversation whose session the turn belongs to; see [`ghost_domain::Turn::conversation_id`].
    pub conversation_id: Option<ConversationId>,
    /// Ghost's id of the call.
    pub call_id: CallId,
    /// The provider's id of the call.
    pub provider_call_id: String,
    /// Whether an operator has approved exactly this call, or makes it.
    pub approved: bool,
    /// What earlier transactions of this call have done; see [`Output::progress`](crate::Output::progress).
    pub progress: Option<Value>,
}

impl CallContext {
    /// The caller as a party.
    pub fn party(&self) -> Party {
        Party::Agent(self.caller.agent_id.clone())
    }

    /// The chain of all messages and events that this call emits.
    pub fn chain(&self) -> Chain {
        Chain { root_id: self.root_id, hop: self.hop.saturating_add(1), conversation_id: self.conversation_id }
    }

    /// The caller's grants that hold now.
    async fn grants(&self) -> Result<Vec<Grant>> {
        let now = self.services.ctx.now();
        let grants = self.services.grants.of(&self.services.store, &self.caller.agent_id, now).await?;
        Ok(grants.iter().filter(|grant| grant.is_live(now)).cloned().collect())
    }

    /// Checks that the caller may write the file at `path` now. Returns the grant without which it could
    /// not. The store is asked only if the write rules do not allow it.
    ///
    /// # Errors
    /// `PathDenied` if it may not; `Unavailable` if its grants cannot be read.
    pub async fn may_write(&self, path: &WorkspacePath) -> Result<Option<GrantId>> {
        let (agent_id, rules) = (&self.caller.agent_id, &self.caller.write_acl);
        let granted = if rules.check(agent_id, path).is_ok() {
            None
        } else {
            let (grants, now) = (self.grants().await?, self.services.ctx.now());
            match grants.iter().find(|grant| grant.allows(path, now)) {
                Some(grant) => Some(grant.grant_id),
                None => {
                    rules.with(grants.into_iter().map(|grant| grant.prefix)).check(agent_id, path)?;
                    None
                }
            }
        };
        // The rules know git's directory by its name alone.
        self.services.workspace.check_outside_repositories(path).await?;
        Ok(granted)
    }

    /// The image in the file at `path`, for a tool to return beside its content (see [`crate::Output`]). The file must stay as it is
    /// for as long as the model is to see it. `None` if the file is no image.
    ///
    /// # Errors
    /// See [`Workspace::image`].
    pub async fn image(&self, path: &WorkspacePath) -> Result<Option<ImageFile>> {
        self.services.workspace.image(path).await
    }

    /// Where the caller may write now, for a command.
    ///
    /// # Errors
    /// `Unavailable` if its grants cannot be read.
    pub async fn writable(&self) -> Result<Writable> {
        let grants = self.grants().await?;
        let ids = grants.iter().map(|grant| grant.grant_id).collect();
        let rules = self.caller.write_acl.with(grants.into_iter().map(|grant| grant.prefix));
        Ok(Writable { prefixes: rules.prefixes().to_vec(), grants: ids })
    }

    /// Streams the progress of a long call. It is not stored and not shown to the model.
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

    /// Reserves what this call of `tool` may cost at most, until the call ends. `None` if that is not known.
    ///
    /// # Errors
    /// Those of [`budgets::hold`].
    pub(crate) async fn hold_money(&self, tool: &str, most: Option<Money>) -> Result<()> {
        let (turn_id, call_id) = (self.turn_id, self.call_id);
        let tool = tool.to_owned();
        let write = self.services.write(move |w| {
            let mut turn = turns::working_turn(w, turn_id)?;
            budgets::hold(w, &mut turn, call_id, &tool, most)
        });
        write.await
    }

    /// Releases what this call has reserved, because it did nothing.
    pub(crate) async fn release_money(&self) -> Result<()> {
        let (turn_id, call_id) = (self.turn_id, self.call_id);
        let write = self.services.write(move |w| {
            let mut turn = turns::working_turn(w, turn_id)?;
            budgets::release(w, &mut turn, call_id)
        });
        write.await
    }

    /// Journals the session that this call works in, so that the call can be continued after a crash.
    ///
    /// # Errors
    /// Those of [`turns::record_call_session`].
    pub(crate) async fn record_session(&self, session: &str) -> Result<()> {
        let (turn_id, call_id) = (self.turn_id, self.call_id);
        let (id, session) = (self.provider_call_id.clone(), session.to_owned());
        self.services.write(move |w| turns::record_call_session(w, turn_id, (call_id, &id), &session)).await
    }

    /// Asks an operator, and waits for the answer at most `within`, and at most as long as approvals of this world wait. The
    /// end of the call takes the question back.
    ///
    /// # Errors
    /// Those of [`approvals::ask`].
    pub(crate) async fn ask_operator(&self, plan: ApprovalPlan, reason: String, within: Duration) -> Result<Approval> {
        let turn_id = self.turn_id;
        let expires = self.services.plan().approvals.expires.min(within);
        let new = NewApproval { provider_call_id: self.provider_call_id.clone(), plan, reason, expires };
        // Subscribed before the question is there, so that no answer is missed.
        let mut feed = self.services.store.feed();
        let write = self.services.write(move |w| {
            let mut turn = turns::working_turn(w, turn_id)?;
            approvals::ask(w, &mut turn, new)
        });
        let mut approval: Approval = write.await?;
        let (clock, approval_id) = (&self.services.ctx.ports.clock, approval.approval_id);
        while approval.status == ApprovalStatus::Pending {
            tokio::select! {
                biased;
                news = feed.recv() => match news {
                    Ok(events) if !events.iter().any(|event| event.kind == EventKind::ApprovalClosed) => continue,
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => clock.sleep_until(approval.expires_at).await,
                },
                () = clock.sleep_until(approval.expires_at) => {
                    let expire = self.services.write(move |w| { approvals::expire(w, approval_id) });
                    let expired: Result<()> = expire.await;
                    expired?;
                }
            }
            let read = self.services.store.read(move |r| r.approval_get(approval_id));
            approval = read
                .await
                .map_err(Refusal::from)?
                .ok_or_else(|| Refusal::not_found("approval", &approval_id.to_string(), None))?;
        }
        Ok(approval)
    }
}

/// How long the grants of an agent are remembered.
const KEPT: Duration = Duration::from_secs(30);
/// Agents whose grants are remembered.
const AGENTS_MAX: usize = 10_000;

#[derive(Default)]
struct Remembered {
    /// Changes whenever something is forgotten.
    version: u64,
    agents: BTreeMap<AgentId, (Timestamp, Arc<[Grant]>)>,
}

/// The remembered grants of all agents.
#[derive(Default)]
pub struct GrantCache(Mutex<Remembered>);

impl GrantCache {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        // A poisoned lock holds at worst fewer entries.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the grants of an agent, because they have changed.
    pub fn forget(&self, agent_id: &AgentId) {
        let mut all = self.lock();
        all.version = all.version.wrapping_add(1);
        all.agents.remove(agent_id);
    }

    /// Forgets everything, because a change may have been missed.
    pub fn forget_all(&self) {
        let mut all = self.lock();
        all.version = all.version.wrapping_add(1);
        all.agents.clear();
    }

    /// The grants of an agent. Some may have ended since they were read.
    ///
    /// # Errors
    /// `Unavailable` if the store cannot be read: then nothing is granted.
    pub(crate) async fn of(&self, store: &Store, agent_id: &AgentId, now: Timestamp) -> Result<Arc<[Grant]>> {
        let version = {
            let all = self.lock();
            if let Some((read_at, grants)) = all.agents.get(agent_id)
                && now.since(*read_at) < KEPT
                && now >= *read_at
            {
                return Ok(Arc::clone(grants));
            }
            all.version
        };
        let of = agent_id.clone();
        let read = store.read(move |r| r.grants_live(&of, now));
        let grants: Arc<[Grant]> = read
            .await
            .map_err(|error: StoreError| {
                let what = format!("the write grants of {agent_id} cannot be read: {error}");
                let hint = "nothing was changed; what only a grant allows is refused until the store answers again";
                // The details say that it is the store.
                Refusal { code: Code::Unavailable, message: what, hint: Some(hint.to_owned()), ..error.into() }
            })?
            .into();
        let mut all = self.lock();
        if all.version == version {
            if all.agents.len() >= AGENTS_MAX {
                all.agents.clear();
            }
            all.agents.insert(agent_id.clone(), (now, Arc::clone(&grants)));
        }
        Ok(grants)
    }
}
