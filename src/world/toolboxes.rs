//! Gives the tools of the plan's toolboxes to the world: at boot, and again with each reload.
//!
//! A toolbox that cannot be had must never keep the world from starting, or an agent from working.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_agent::Engine;
use ghost_config::plan::toolbox::{CommandTool, Program, ToolboxKind, ToolboxRuntime};
use ghost_config::plan::{Plan, RemotePlan, SandboxKind, SandboxPlan, ToolboxPlan};
use ghost_sandbox::{Closed, Command, End, Owner, Sandbox};
use ghost_tools::builtins::{PROBE, PROBE_TIME, tools_of};

/// Sets the tools of all toolboxes of the current plan, and removes those of others.
pub(crate) async fn refresh(engine: &Engine) {
    let plan = engine.services.plan();
    engine.tools.retain(|name| plan.toolboxes.contains_key(name));
    if let Some(mcp) = engine.services.mcp() {
        mcp.reset();
    }
    if plan.toolboxes.is_empty() {
        return;
    }
    let own = engine.services.sandbox().cloned();
    let own = own.ok_or_else(|| engine.services.without_sandbox().unwrap_or("there is none here").to_owned());
    let mut places: Vec<Place> = vec![Place::new(None, own, &plan).await];
    for toolbox in plan.toolboxes.values() {
        let server = server_of(toolbox);
        if !places.iter().any(|place| place.server.as_ref() == server) {
            places.push(Place::new(server.cloned(), opened(engine, &plan, server).await, &plan).await);
        }
    }
    for (name, toolbox) in &plan.toolboxes {
        let server = server_of(toolbox);
        // Every server has a place by now.
        let Some(place) = places.iter().find(|place| place.server.as_ref() == server) else { continue };
        let (sandbox, missing) = (place.sandbox.as_ref().map_err(String::as_str), &place.missing);
        let new = toolbox.passthrough_env.iter().find(|name| !engine.services.redacts(name));
        let new = new.map(|name| format!("ghostd passes {name} on from its next start"));
        let tools = tools_of(toolbox, sandbox, &|tool| new.clone().or_else(|| lacks(tool, missing)));
        for (tool, why) in &tools.absent {
            tracing::warn!("{tool} is absent: {why}");
        }
        engine.tools.set(name, tools);
    }
}

/// Where the programs of some toolboxes run.
struct Place {
    /// Their own server; `None` is the sandbox of the world.
    server: Option<RemotePlan>,
    sandbox: Result<Arc<dyn Sandbox>, String>,
    /// The programs that it does not have.
    missing: BTreeSet<String>,
}

impl Place {
    async fn new(server: Option<RemotePlan>, sandbox: Result<Arc<dyn Sandbox>, String>, plan: &Plan) -> Self {
        let missing = match &sandbox {
            Ok(sandbox) => missing(plan, server.as_ref(), sandbox).await,
            Err(_) => BTreeSet::new(),
        };
        Self { server, sandbox, missing }
    }
}

/// The toolbox's own server.
fn server_of(toolbox: &ToolboxPlan) -> Option<&RemotePlan> {
    match &toolbox.kind {
        ToolboxKind::Commands { runtime: ToolboxRuntime::Remote(remote), .. } => Some(remote),
        ToolboxKind::Commands { .. } | ToolboxKind::Mcp(_) => None,
    }
}

/// Opens the sandbox on a toolbox's own server.
async fn opened(engine: &Engine, plan: &Plan, server: Option<&RemotePlan>) -> Result<Arc<dyn Sandbox>, String> {
    let services = &engine.services;
    let server = server.ok_or("it has no server")?;
    if plan.sandbox.remote.as_ref() == Some(server) && plan.sandbox.kind == SandboxKind::Remote {
        // Two that keep the same copy in agreement would undo each other's work.
        return services.sandbox().cloned().ok_or_else(|| "the sandbox of the world is not there".to_owned());
    }
    if !services.redacts(&server.token_env) {
        return Err(format!("ghostd knows {} from its next start", server.token_env));
    }
    let data_dir = services.data_dir().ok_or("this world has no data directory")?;
    // What the world passes on to its own sandbox is not for another machine.
    let (env, passthrough_env) = Default::default();
    let remote = Some(server.clone());
    let own = SandboxPlan { kind: SandboxKind::Remote, remote, env, passthrough_env, ..plan.sandbox.clone() };
    let owner = Owner { world_id: &plan.world_id, data_dir };
    let workspace = services.workspace.place().ok_or("this world has no files")?;
    let clock = Arc::clone(&services.ctx.ports.clock);
    ghost_sandbox::open(&own, owner, workspace, Arc::new(Closed), clock).await
}

/// The programs that a tool needs of the sandbox.
fn programs(tool: &CommandTool) -> impl Iterator<Item = &str> {
    let own = match &tool.program {
        Program::OfSandbox(name) => Some(name),
        Program::Own(_) => None,
    };
    own.into_iter().chain(&tool.bins).chain(&tool.any_bins).map(String::as_str)
}

/// Why a tool cannot be had in a sandbox without these programs.
fn lacks(tool: &CommandTool, missing: &BTreeSet<String>) -> Option<String> {
    let needed = match &tool.program {
        Program::OfSandbox(name) => Some(name),
        Program::Own(_) => None,
    };
    if let Some(name) = needed.into_iter().chain(&tool.bins).find(|name| missing.contains(*name)) {
        return Some(format!("the sandbox has no program {name}"));
    }
    let has_none = !tool.any_bins.is_empty() && tool.any_bins.iter().all(|name| missing.contains(name));
    has_none.then(|| format!("the sandbox has none of the programs {}", tool.any_bins.join(", ")))
}

/// The programs that tools need and the sandbox does not have. If they cannot be looked for, none: a call then says so.
async fn missing(plan: &Plan, server: Option<&RemotePlan>, sandbox: &Arc<dyn Sandbox>) -> BTreeSet<String> {
    let mut wanted = BTreeSet::new();
    for toolbox in plan.toolboxes.values().filter(|toolbox| server_of(toolbox) == server) {
        if let ToolboxKind::Commands { tools, .. } = &toolbox.kind {
            wanted.extend(tools.iter().flat_map(programs).map(str::to_owned));
        }
    }
    // A command runs for an agent. Without one, nobody uses the tools.
    let Some(agent) = plan.agents.first().filter(|_| !wanted.is_empty()) else { return BTreeSet::new() };
    let words = ["/bin/sh", "-c", PROBE, "sh"].map(str::to_owned);
    let command = Command {
        agent_id: agent.agent_id.clone(),
        conversation_id: None,
        argv: words.into_iter().chain(wanted.iter().cloned()).collect(),
        dir: agent.agent_id.home(),
        env: Vec::new(),
        stdin: Vec::new(),
        feed: None,
        drain: None,
        toolbox: None,
        timeout: PROBE_TIME,
        writable: Vec::new(),
        stdout_limit: 256 * 1_024,
        stderr_limit: 1_024,
    };
    match sandbox.run(command, &|_| {}).await {
        Ok(done) if done.end == End::Exited(0) => done.stdout.text.lines().map(str::to_owned).collect(),
        Ok(done) => {
            tracing::warn!("the programs of toolboxes were not looked for: {}", done.stderr.text.trim());
            BTreeSet::new()
        }
        Err(refusal) => {
            tracing::warn!(%refusal, "the programs of toolboxes were not looked for");
            BTreeSet::new()
        }
    }
}
