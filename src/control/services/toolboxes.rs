//! The `Toolboxes` service: tools that come from outside ghostd, and the trust in them.

use ghost_config::plan::toolbox::{ToolboxKind, ToolboxPlan};
use ghost_domain::{Code, Refusal};
use ghost_proto::v1;
use ghost_proto::v1::toolboxes_server::Toolboxes;
use ghost_tools::mcp::Trust;
use serde::{Deserialize, Serialize};
use tonic::{Request, Response, Status};

use crate::control::Control;
use crate::convert::input;
use crate::refusal::to_status;
use crate::{caller, queries};

/// Largest length of a name, in characters.
const NAME_MAX: usize = 128;
/// Largest number of tools in one request.
const TOOLS_MAX: usize = 1_000;

/// Implements `ghost.v1.Toolboxes`.
pub struct ToolboxesService(pub Control);

/// The stored answer of an order to trust.
#[derive(Serialize, Deserialize)]
struct Trusted {
    toolbox: String,
    tools: Vec<StoredTool>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredTool {
    name: String,
    state: String,
    reason: Option<String>,
    hash: Option<String>,
    description: Option<String>,
}

impl From<StoredTool> for v1::ToolboxTool {
    fn from(tool: StoredTool) -> Self {
        let StoredTool { name, state, reason, hash, description } = tool;
        Self { name, state, reason, hash, description }
    }
}

impl ToolboxesService {
    fn rows(&self, toolbox: &ToolboxPlan, found: Vec<Trust>) -> Vec<StoredTool> {
        let redactor = &self.0.world.ctx().redactor;
        let row = |trust: Trust| StoredTool {
            name: toolbox.full(&trust.tool),
            state: trust.state.as_str().to_owned(),
            reason: trust.why.map(|why| redactor.redact(&why)),
            hash: trust.now.as_ref().map(|now| now.hash.clone()),
            description: trust.now.map(|now| redactor.redact(&now.description)),
        };
        found.into_iter().map(row).collect()
    }

    /// The tools of a toolbox as the world has them.
    fn listed(&self, toolbox: &ToolboxPlan) -> Vec<v1::ToolboxTool> {
        let table = self.0.world.engine().tools.current();
        let tool = |short: &str| {
            let name = toolbox.full(short);
            let reason = table.absent_reason(&name).map(str::to_owned);
            let is_there = table.names().any(|known| known == name);
            let state = if is_there { "available" } else { "absent" }.to_owned();
            v1::ToolboxTool { name, state, reason, hash: None, description: None }
        };
        let mut tools: Vec<v1::ToolboxTool> = toolbox.tool_names().map(tool).collect();
        tools.sort_by(|one, other| one.name.cmp(&other.name));
        tools
    }

    async fn checked(&self, name: &str) -> Result<v1::ToolboxCheck, Refusal> {
        let toolbox = self.0.world.toolbox(name)?;
        let tools = match &toolbox.kind {
            ToolboxKind::Commands { .. } => self.listed(&toolbox),
            ToolboxKind::Mcp(_) => {
                let found = self.0.world.look_at_server(&toolbox).await?;
                self.rows(&toolbox, found).into_iter().map(Into::into).collect()
            }
        };
        Ok(v1::ToolboxCheck { toolbox: toolbox.name.clone(), tools })
    }
}

#[tonic::async_trait]
impl Toolboxes for ToolboxesService {
    async fn list(
        &self,
        request: Request<v1::ListToolboxesRequest>,
    ) -> Result<Response<v1::ListToolboxesResponse>, Status> {
        caller::party(&request)?;
        let plan = self.0.world.plan();
        let toolboxes = plan.toolboxes.values().map(|toolbox| v1::Toolbox {
            name: toolbox.name.clone(),
            source: toolbox.source.clone(),
            kind: match &toolbox.kind {
                ToolboxKind::Commands { .. } => "commands",
                ToolboxKind::Mcp(_) => "mcp",
            }
            .to_owned(),
            skill: toolbox.skill.clone(),
            description: toolbox.description.clone(),
            tools: self.listed(toolbox),
        });
        Ok(Response::new(v1::ListToolboxesResponse { toolboxes: toolboxes.collect() }))
    }

    async fn check(&self, request: Request<v1::CheckToolboxRequest>) -> Result<Response<v1::ToolboxCheck>, Status> {
        caller::party(&request)?;
        let name = input::line("toolbox", &request.get_ref().toolbox, NAME_MAX).map_err(to_status)?;
        self.checked(&name).await.map(Response::new).map_err(to_status)
    }

    async fn trust(&self, request: Request<v1::TrustToolboxRequest>) -> Result<Response<v1::ToolboxCheck>, Status> {
        let by = caller::party(&request)?;
        let key = caller::key(&request, "toolboxes.trust", &request.get_ref().request_id)?;
        let world = &self.0.world;
        let name = input::line("toolbox", &request.get_ref().toolbox, NAME_MAX).map_err(to_status)?;
        let wanted = request.into_inner().tools;
        if wanted.len() > TOOLS_MAX {
            return Err(to_status(input::bad("tools", format!("has {} entries", wanted.len()))));
        }
        // The effect is a file and a reload, which are not in the store. A repetition finds the answer.
        let done: Trusted = match queries::stored_answer(world, &key).await.map_err(to_status)? {
            Some(text) => serde_json::from_str(&text).map_err(|error| {
                to_status(Refusal::new(Code::Internal, format!("the stored answer cannot be parsed: {error}")))
            })?,
            None => {
                let found = world.trust_server(&by, &name, &wanted).await.map_err(to_status)?;
                let toolbox = world.toolbox(&name).map_err(to_status)?;
                let done = Trusted { toolbox: name, tools: self.rows(&toolbox, found) };
                let text = serde_json::to_string(&done).map_err(|error| {
                    to_status(Refusal::new(Code::Internal, format!("the answer cannot be stored: {error}")))
                })?;
                queries::store_answer(world, key, text).await.map_err(to_status)?;
                done
            }
        };
        let tools = done.tools.into_iter().map(Into::into).collect();
        Ok(Response::new(v1::ToolboxCheck { toolbox: done.toolbox, tools }))
    }
}
