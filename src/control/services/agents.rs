//! The `Agents` service.

mod memory;
mod recent;

use std::sync::Arc;
use std::time::Duration;

use ghost_agent::prompt::{self, Part};
use ghost_config::plan::Plan;
use ghost_domain::approval::SHOWN_MAX;
use ghost_domain::{Agent, AgentId, AgentKind, AgentStatus, Approval, Code, Desired, Limits, Party, Refusal};
use ghost_operations::agents::{self as rules, NewAgent};
use ghost_operations::mail::Chain;
use ghost_operations::{Tx, requests};
use ghost_proto::v1;
use ghost_proto::v1::agents_server::Agents;
use ghost_tools::AgentControl;
use ghost_tools::heartbeats::wanted;
use ghost_world::AgentCard;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use self::recent::Recent;
use crate::control::Control;
use crate::convert::{self, input};
use crate::refusal::to_status;
use crate::{caller, queries};

/// Name of the list, for its cursors.
const LIST: &str = "agents";
/// Largest length of an agent's or archetype's name, in characters.
const NAME_MAX: usize = 100;
/// Largest length of a reason, in characters.
const REASON_MAX: usize = 300;
/// Largest size of overrides, in bytes.
const OVERRIDES_MAX: u32 = 16 * 1024;
/// How long to wait until a committed change is visible in memory.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Implements `ghost.v1.Agents`.
pub struct AgentsService {
    control: Control,
    recent: Recent,
}

/// A request to create an agent, checked as far as that needs no stored records.
struct CreateInput {
    archetype: String,
    agent_id: Option<AgentId>,
    name: Option<String>,
    goal: Option<String>,
    overrides: Value,
}

/// The stored answer of a creation.
#[derive(Serialize, Deserialize)]
struct Created {
    #[serde(flatten)]
    agent: Agent,
    /// Answers of earlier versions lack this field; they were only stored for new agents.
    #[serde(default = "default_true")]
    changed: bool,
}

/// The stored answer of a deletion.
#[derive(Serialize, Deserialize)]
struct Deleted {
    #[serde(flatten)]
    agent: Agent,
    /// Answers of earlier versions lack this field.
    #[serde(default)]
    left: Option<rules::Left>,
}

fn default_true() -> bool {
    true
}

impl CreateInput {
    fn of(request: &v1::CreateAgentRequest, limits: &Limits) -> Result<Self, Refusal> {
        Ok(Self {
            archetype: input::line("archetype", &request.archetype, NAME_MAX)?,
            agent_id: input::parsed_if("agent_id", request.agent_id.as_deref())?,
            name: input::line_if("name", request.name.as_deref(), NAME_MAX)?,
            goal: request.goal.as_deref().map(|goal| input::prose("goal", goal, limits.message_bytes)).transpose()?,
            overrides: input::object("overrides_json", &request.overrides_json, OVERRIDES_MAX)?,
        })
    }

    fn create(self, w: &mut Tx, by: &Party, plan: &Plan) -> Result<Created, Refusal> {
        plan.check_overrides_of(&self.archetype, &self.overrides)?;
        let agent_id = match self.agent_id {
            Some(agent_id) => agent_id,
            None => rules::free_id(w, &self.archetype)?,
        };
        if plan.agent(&agent_id).is_some() {
            let existing = w.agent_get(&agent_id)?;
            return Err(rules::reserved(w.ctx, by, &agent_id, existing.as_ref()));
        }
        let daily_money = plan.archetypes.get(&self.archetype).and_then(|archetype| archetype.config.daily_money);
        let heartbeat = plan.archetype_heartbeats.get(&self.archetype).map(wanted);
        let new = NewAgent {
            name: self.name.unwrap_or_else(|| agent_id.to_string()),
            agent_id,
            archetype: self.archetype,
            team: None,
            kind: AgentKind::Dynamic,
            desired: Desired::Running,
            overrides: self.overrides,
            daily_money,
            heartbeat,
            owner: None,
            goal: self.goal,
            chain: Chain::root(w.ctx),
        };
        let (agent, changed) = rules::create_once(w, by, new)?;
        Ok(Created { agent, changed })
    }
}

/// What an agent waits for while an approval is pending.
fn waits_for(approval: &Approval) -> String {
    let summary: String = approval.plan.summary().chars().take(SHOWN_MAX).collect();
    format!("an approval (`ghostctl approval show {}`): {summary}", approval.approval_id)
}

impl AgentsService {
    /// The service for this control plane.
    #[must_use]
    pub fn new(control: Control) -> Self {
        Self { control, recent: Recent::default() }
    }

    pub(crate) async fn page(&self, request: v1::ListAgentsRequest) -> Result<v1::ListAgentsResponse, Refusal> {
        let status: Option<AgentStatus> = input::parsed_if("status", request.status.as_deref())?;
        let archetype = match input::line_if("archetype", request.archetype.as_deref(), NAME_MAX)? {
            Some(name) => Some(queries::archetype_in_filter(&self.control.world, &name).await?),
            None => None,
        };
        let after: Option<AgentId> = match input::unseal(LIST, &request.cursor)? {
            "" => None,
            cursor => Some(cursor.parse().map_err(|_: Refusal| input::bad_cursor(&request.cursor))?),
        };
        let limit = input::page(request.limit);
        let matches = |has: AgentStatus, of: &str| {
            status.is_none_or(|status| has == status) && archetype.as_ref().is_none_or(|archetype| of == archetype)
        };
        let world = &self.control.world;
        let (agents, more): (Vec<v1::Agent>, bool) = if request.deleted {
            let activities = world.directory().activities();
            let all = queries::all_agents(world).await?;
            let rest = all.iter().filter(|agent| after.as_ref().is_none_or(|after| agent.agent_id > *after));
            let mut found = rest.filter(|agent| matches(agent.status, &agent.archetype)).fuse();
            let to_wire = |agent: &Agent| convert::agent(agent, activities.get(&agent.agent_id).copied());
            (found.by_ref().take(limit).map(to_wire).collect(), found.next().is_some())
        } else {
            let mut cards: Vec<AgentCard> = world.directory().cards_after(after, limit.saturating_add(1), matches);
            let more = cards.len() > limit;
            cards.truncate(limit);
            let records = self.recent.records(world, &cards).await?;
            let to_wire = |(card, record): (&AgentCard, &Option<Arc<Agent>>)| {
                record.as_deref().map(|record| convert::agent_card(card, record))
            };
            (cards.iter().zip(&records).filter_map(to_wire).collect(), more)
        };
        let (agents, more) = queries::within_bytes(agents, more);
        let next_cursor = agents.last().filter(|_| more).map(|agent: &v1::Agent| input::seal(LIST, &agent.agent_id));
        Ok(v1::ListAgentsResponse { agents, next_cursor: next_cursor.unwrap_or_default() })
    }

    pub(crate) async fn one(&self, agent_id: &str) -> Result<v1::GetAgentResponse, Refusal> {
        let agent_id: AgentId = input::parsed("agent_id", agent_id)?;
        let world = &self.control.world;
        let details = self.recent.at_work(world, &agent_id).await?;
        let agent = match world.directory().card(&agent_id) {
            Some(card) if card.incarnation == details.work.agent.incarnation => {
                convert::agent_card(&card, &details.work.agent)
            }
            // The agent was created a moment ago and is not in memory yet.
            _ => convert::agent(&details.work.agent, None),
        };
        // No event reports that an agent waits for a model, so this is read on each request.
        let waiting_for = details
            .work
            .parked
            .clone()
            .or_else(|| world.ctx().waiting(&agent_id).map(|wait| wait.reason.to_string()))
            .or_else(|| details.work.approval.as_ref().map(waits_for));
        Ok(v1::GetAgentResponse {
            agent: Some(agent),
            inbox_pending: details.work.inbox_pending,
            turn_id: details.work.turn_id.map(|id| id.to_string()),
            model: details.model.clone(),
            tools: details.tools,
            access: details.access.map(str::to_owned),
            cannot_run: details.cannot_run.clone(),
            waits: waiting_for.map(|reason| world.ctx().redactor.redact(&reason)),
        })
    }

    async fn prompt_of(&self, agent_id: &str) -> Result<v1::AgentPromptResponse, Refusal> {
        let preview = self.control.world.preview(&input::parsed("agent_id", agent_id)?).await?;
        let (system, briefing) = (prompt::join(&preview.system), prompt::join(&preview.briefing));
        let (system, briefing) = (Part::new(system), Part::new(briefing));
        let tools: Vec<Value> = preview
            .tools
            .iter()
            .map(|tool| json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters }))
            .collect();
        let section = |size: prompt::Size| v1::PromptSection {
            part: size.part.to_owned(),
            name: size.name.to_owned(),
            bytes: size.bytes,
            estimated_tokens: size.estimated_tokens,
        };
        Ok(v1::AgentPromptResponse {
            sections: preview.sizes().into_iter().map(section).collect(),
            system: system.text,
            briefing: briefing.text,
            tools_json: Value::Array(tools).to_string(),
            model: preview.spec.model.model,
            system_hash: system.hash,
            briefing_hash: briefing.hash,
            history: preview.history,
        })
    }

    async fn memory_of(&self, request: v1::InspectAgentRequest) -> Result<v1::InspectAgentResponse, Refusal> {
        let agent_id: AgentId = input::parsed("agent_id", &request.agent_id)?;
        let world = &self.control.world;
        queries::at_work(world, &agent_id).await?;
        let world_services = &world.engine().services;
        let Some(data) = world_services.data_dir() else {
            return Err(Refusal::new(Code::Unavailable, "this world has no memory files").hint("ask the agent itself"));
        };
        let file_max = world.ctx().limits().file_bytes;
        let limit = if request.limit == 0 { file_max } else { request.limit.min(file_max) };
        memory::inspect(&world_services.workspace, data, agent_id, request.path.as_deref(), limit).await
    }

    /// Waits up to `SETTLE_TIMEOUT` until memory shows a committed change, so that the caller's
    /// next list contains it.
    async fn settle(&self, agent_id: &AgentId, shows: impl Fn(Option<AgentCard>) -> bool) {
        let world = &self.control.world;
        let mut changes = world.directory().changes();
        let poll = async {
            while !shows(world.directory().card(agent_id)) {
                if changes.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = poll => {}
            // The supervisor is busy or ending. Memory follows the committed record later.
            () = world.ctx().ports.clock.sleep(SETTLE_TIMEOUT) => {}
        }
    }

    fn change(&self, agent: &Agent, changed: bool) -> Response<v1::AgentChange> {
        let activity = self.control.world.directory().card(&agent.agent_id).map(|card| card.activity);
        Response::new(v1::AgentChange { agent: Some(convert::agent(agent, activity)), changed, left: None })
    }

    /// Waits until a stopping agent has stopped. A turn that outlasts the grace period is interrupted
    /// and stays open; it continues when the agent is started again.
    async fn stopped(&self, agent_id: &AgentId, grace: Option<Duration>) -> Result<Agent, Refusal> {
        let world = &self.control.world;
        if let Some(grace) = grace {
            world.hasten_stop(agent_id, grace).await?;
        }
        world.wait_until_stopped(agent_id).await
    }
}

#[tonic::async_trait]
impl Agents for AgentsService {
    async fn list(&self, request: Request<v1::ListAgentsRequest>) -> Result<Response<v1::ListAgentsResponse>, Status> {
        caller::party(&request)?;
        self.page(request.into_inner()).await.map(Response::new).map_err(to_status)
    }

    async fn get(&self, request: Request<v1::GetAgentRequest>) -> Result<Response<v1::GetAgentResponse>, Status> {
        caller::party(&request)?;
        self.one(&request.get_ref().agent_id).await.map(Response::new).map_err(to_status)
    }

    async fn create(&self, request: Request<v1::CreateAgentRequest>) -> Result<Response<v1::AgentChange>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "agents.create", &request.get_ref().request_id)?;
        let world = &self.control.world;
        let ctx = world.ctx().clone();
        let create_input = CreateInput::of(request.get_ref(), &ctx.limits()).map_err(to_status)?;
        let plan = world.plan();
        let Created { agent, changed } =
            requests::once(world.store(), world.ctx(), key, move |w| create_input.create(w, &by, &plan))
                .await
                .map_err(to_status)?;
        self.settle(&agent.agent_id, |card| card.is_some_and(|card| card.incarnation >= agent.incarnation)).await;
        Ok(self.change(&agent, changed))
    }

    async fn start(&self, request: Request<v1::StartAgentRequest>) -> Result<Response<v1::AgentChange>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "agents.start", &request.get_ref().request_id)?;
        let agent_id: AgentId = input::parsed("agent_id", &request.get_ref().agent_id).map_err(to_status)?;
        let world = &self.control.world;
        let id = agent_id.clone();
        let (agent, changed) = requests::once(world.store(), world.ctx(), key, move |w| rules::start(w, &by, &id))
            .await
            .map_err(to_status)?;
        let runs = |card: Option<AgentCard>| {
            card.is_none_or(|card| !matches!(card.status, AgentStatus::Stopped | AgentStatus::Stopping))
        };
        self.settle(&agent_id, runs).await;
        Ok(self.change(&agent, changed))
    }

    async fn stop(&self, request: Request<v1::StopAgentRequest>) -> Result<Response<v1::AgentChange>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "agents.stop", &request.get_ref().request_id)?;
        let request = request.into_inner();
        let agent_id: AgentId = input::parsed("agent_id", &request.agent_id).map_err(to_status)?;
        let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX).map_err(to_status)?;
        // 0 is a valid grace period.
        let grace = match request.grace_ms {
            Some(0) => Some(Duration::ZERO),
            grace => input::wait("grace_ms", grace).map_err(to_status)?,
        };
        let world = &self.control.world;
        let id = agent_id.clone();
        let (_, changed) =
            requests::once(world.store(), world.ctx(), key, move |w| rules::stop(w, &by, &id, reason.as_deref()))
                .await
                .map_err(to_status)?;
        let agent = self.stopped(&agent_id, grace).await.map_err(to_status)?;
        self.settle(&agent_id, |card| card.is_none_or(|card| card.status == agent.status)).await;
        Ok(self.change(&agent, changed))
    }

    async fn delete(&self, request: Request<v1::DeleteAgentRequest>) -> Result<Response<v1::AgentChange>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "agents.delete", &request.get_ref().request_id)?;
        let request = request.into_inner();
        let agent_id: AgentId = input::parsed("agent_id", &request.agent_id).map_err(to_status)?;
        let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX).map_err(to_status)?;
        let world = &self.control.world;
        let id = agent_id.clone();
        let Deleted { agent, left } = requests::once(world.store(), world.ctx(), key, move |w| {
            let done = rules::delete_because(w, &by, &id, reason.as_deref())?;
            Ok(Deleted { agent: done.agent, left: Some(done.left) })
        })
        .await
        .map_err(to_status)?;
        self.settle(&agent_id, |card| card.is_none_or(|card| card.incarnation > agent.incarnation)).await;
        let mut change = self.change(&agent, true);
        let comes_back = self.control.world.plan().agent(&agent_id).is_some();
        change.get_mut().left =
            left.map(|left| v1::AgentLeft { mail_dropped: left.mail_dropped, tasks_left: left.tasks_left, comes_back });
        Ok(change)
    }

    async fn prompt(
        &self,
        request: Request<v1::AgentPromptRequest>,
    ) -> Result<Response<v1::AgentPromptResponse>, Status> {
        caller::party(&request)?;
        self.prompt_of(&request.get_ref().agent_id).await.map(Response::new).map_err(to_status)
    }

    async fn inspect(
        &self,
        request: Request<v1::InspectAgentRequest>,
    ) -> Result<Response<v1::InspectAgentResponse>, Status> {
        caller::party(&request)?;
        self.memory_of(request.into_inner()).await.map(Response::new).map_err(to_status)
    }
}
