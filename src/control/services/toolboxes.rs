//! The `Toolboxes` service: tools that come from outside ghostd, and the trust in them.

use ghost_config::plan::toolbox::{ToolboxKind, ToolboxPlan};
use ghost_proto::v1;
use ghost_tools::mcp::Trust;
use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::convert::input;
use crate::dispatch::{Mutation, Query, Result};

/// Largest length of a name, in characters.
const NAME_MAX: usize = 128;
/// Largest number of tools in one request.
const TOOLS_MAX: usize = 1_000;

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

fn rows(cx: &Control, toolbox: &ToolboxPlan, found: Vec<Trust>) -> Vec<StoredTool> {
    let redactor = cx.redactor();
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
fn listed(cx: &Control, toolbox: &ToolboxPlan) -> Vec<v1::ToolboxTool> {
    let table = cx.world.engine().tools.current();
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

async fn checked(cx: &Control, name: &str) -> Result<v1::ToolboxCheck> {
    let toolbox = cx.world.toolbox(name)?;
    let tools = match &toolbox.kind {
        ToolboxKind::Commands { .. } => listed(cx, &toolbox),
        ToolboxKind::Mcp(_) => {
            let found = cx.world.look_at_server(&toolbox).await?;
            rows(cx, &toolbox, found).into_iter().map(Into::into).collect()
        }
    };
    Ok(v1::ToolboxCheck { toolbox: toolbox.name.clone(), tools })
}

pub(crate) async fn list(cx: Query, _: v1::ListToolboxesRequest) -> Result<v1::ListToolboxesResponse> {
    let plan = cx.world.plan();
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
        tools: listed(&cx, toolbox),
    });
    Ok(v1::ListToolboxesResponse { toolboxes: toolboxes.collect() })
}

pub(crate) async fn check(cx: Query, request: v1::CheckToolboxRequest) -> Result<v1::ToolboxCheck> {
    let name = input::line("toolbox", &request.toolbox, NAME_MAX)?;
    checked(&cx, &name).await
}

pub(crate) async fn trust(cx: Mutation, request: v1::TrustToolboxRequest) -> Result<v1::ToolboxCheck> {
    let world = &cx.world;
    let name = input::line("toolbox", &request.toolbox, NAME_MAX)?;
    let wanted = request.tools;
    if wanted.len() > TOOLS_MAX {
        return Err(input::bad("tools", format!("has {} entries", wanted.len())));
    }
    // The effect is a file and a reload, which are not in the store. A repetition finds the answer.
    let done = match cx.answered().await? {
        Some(done) => done,
        None => {
            let found = world.trust_server(&cx.by, &name, &wanted).await?;
            let toolbox = world.toolbox(&name)?;
            cx.answer(Trusted { toolbox: name, tools: rows(&cx, &toolbox, found) }).await?
        }
    };
    let tools = done.tools.into_iter().map(Into::into).collect();
    Ok(v1::ToolboxCheck { toolbox: done.toolbox, tools })
}
