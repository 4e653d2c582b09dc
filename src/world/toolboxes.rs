//! The tools of the plan's toolboxes: given to the world at boot and with each reload, and trusted by an operator if a server
//! brings them. A toolbox that cannot be had keeps no world from starting and no agent from working. Only an operator's order
//! writes a lock file, and only with the definitions that the operator named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use ghost_agent::Engine;
use ghost_config::plan::toolbox::{CommandTool, McpPlan, Program, ToolboxKind, ToolboxRuntime, TrustedTool};
use ghost_config::plan::{Plan, RemotePlan, SandboxKind, SandboxPlan, ToolboxPlan};
use ghost_domain::text::nearest;
use ghost_domain::{Code, Party, Refusal};
use ghost_sandbox::{Closed, Command, End, Owner, Sandbox};
use ghost_tools::builtins::{PROBE, PROBE_TIME, tools_of};
use ghost_tools::mcp::{Trust, TrustState, look};
use serde_json::json;

use crate::world::World;

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

/// The programs of the sandbox without which a tool cannot run.
fn needed(tool: &CommandTool) -> impl Iterator<Item = &String> {
    let own = match &tool.program {
        Program::OfSandbox(name) => Some(name),
        Program::Own(_) => None,
    };
    own.into_iter().chain(&tool.bins)
}

/// Why a tool cannot be had in a sandbox without these programs.
fn lacks(tool: &CommandTool, missing: &BTreeSet<String>) -> Option<String> {
    if let Some(name) = needed(tool).find(|name| missing.contains(*name)) {
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
            wanted.extend(tools.iter().flat_map(|tool| needed(tool).chain(&tool.any_bins)).cloned());
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

/// Least digits of a hash that name a definition.
const HASH_DIGITS: usize = 8;

impl World {
    /// The toolbox of this name.
    ///
    /// # Errors
    /// `NotFound` with the nearest name.
    pub fn toolbox(&self, name: &str) -> Result<Arc<ToolboxPlan>, Refusal> {
        let plan = self.plan();
        plan.toolboxes.get(name).cloned().ok_or_else(|| {
            Refusal::not_found("toolbox", name, nearest(name, plan.toolboxes.keys().map(String::as_str)))
                .details(json!({ "field": "toolbox" }))
        })
    }

    /// What the MCP server of a toolbox has now, compared with what is trusted.
    ///
    /// # Errors
    /// `InvalidArguments` for a toolbox without a server; `ExecFailed` if the server cannot be used.
    pub async fn look_at_server(&self, toolbox: &ToolboxPlan) -> Result<Vec<Trust>, Refusal> {
        let found = look(&self.engine().services, toolbox, server(toolbox)?).await;
        // `Unavailable` would mean that ghostd is away, and clients would wait for it.
        found.map_err(|refusal| match refusal.code {
            Code::Unavailable => Refusal::new(Code::ExecFailed, refusal.message)
                .hint(format!("correct its `server` in {}, and look again", toolbox.source)),
            _ => refusal,
        })
    }

    /// Trusts tools of an MCP server as they are now, writes the lock file, and reloads the world. `wanted` are short or full names,
    /// each with the beginning of a hash after `=` if it must have that; none means every tool that can be used.
    ///
    /// # Errors
    /// As for [`look_at_server`](Self::look_at_server); `NotFound` for a tool that the server does not have, `Conflict` for
    /// one with another hash, `TooLarge` for definitions that a lock file cannot hold; then nothing is written. Those of
    /// [`reload`](Self::reload); then the lock file is again as it was.
    pub async fn trust_server(&self, by: &Party, name: &str, wanted: &[String]) -> Result<Vec<Trust>, Refusal> {
        let _trusting = self.trusting.lock().await;
        let toolbox = self.toolbox(name)?;
        let found = self.look_at_server(&toolbox).await?;
        let tools = chosen(&toolbox.name, server(&toolbox)?, &found, wanted)?;
        let path = toolbox.dir.join(ghost_config::LOCK_FILE);
        let text = ghost_config::lock_text(&tools)
            .map_err(|error| Refusal::new(Code::Internal, format!("the lock file cannot be written: {error}")))?;
        if text.len() as u64 > ghost_config::LOCK_MAX {
            let what = format!("the definitions have {} bytes; the limit is {}", text.len(), ghost_config::LOCK_MAX);
            return Err(Refusal::new(Code::TooLarge, what).hint("name the tools that your agents need"));
        }
        let shown = path.display().to_string();
        let failed = move |error: std::io::Error| {
            Refusal::new(Code::Unavailable, format!("{shown} cannot be written: {error}"))
                .hint("ghostd needs to write to the toolbox's directory for this")
        };
        let workspace = &self.engine().services.workspace;
        let (of, fail) = (path.clone(), failed.clone());
        let before = workspace.offload(move || replace(&of, Some(&text)).map_err(fail)).await?;
        if let Err(refusal) = self.reload(by, false).await {
            // With a lock file that the world does not load, the next start would fail, too.
            workspace.offload(move || replace(&path, before.as_deref()).map_err(failed)).await?;
            return Err(refusal);
        }
        let trusted: BTreeMap<&str, &TrustedTool> = tools.iter().map(|tool| (tool.tool.as_str(), tool)).collect();
        let now = found.into_iter().map(|trust| {
            let is_trusted = trust.now.as_ref().is_some_and(|now| trusted.get(now.tool.as_str()) == Some(&now));
            if is_trusted { Trust { state: TrustState::Trusted, why: None, ..trust } } else { trust }
        });
        Ok(now.collect())
    }
}

fn server(toolbox: &ToolboxPlan) -> Result<&McpPlan, Refusal> {
    match (&toolbox.kind, &toolbox.skill) {
        (ToolboxKind::Mcp(mcp), None) => Ok(mcp),
        _ => Err(Refusal::new(Code::InvalidArguments, format!("the toolbox {} has no MCP server", toolbox.name))
            .hint("its tools are programs of yours, which need no trust")
            .details(json!({ "field": "toolbox" }))),
    }
}

/// The tools of the new lock file.
fn chosen(toolbox: &str, mcp: &McpPlan, found: &[Trust], wanted: &[String]) -> Result<Vec<TrustedTool>, Refusal> {
    if wanted.is_empty() {
        return Ok(found.iter().filter_map(|trust| trust.now.clone()).collect());
    }
    let mut tools: BTreeMap<String, TrustedTool> =
        mcp.trusted.iter().map(|tool| (tool.tool.clone(), tool.clone())).collect();
    for word in wanted {
        let (name, hash) = word.split_once('=').map_or((word.as_str(), None), |(name, hash)| (name, Some(hash)));
        let of_tools = |code, what: String| Refusal::new(code, what).details(json!({ "field": "tools" }));
        let name = name.strip_prefix(&format!("{toolbox}.")).unwrap_or(name);
        let now = found.iter().find(|trust| trust.tool == name).and_then(|trust| trust.now.as_ref());
        let Some(now) = now else {
            let near = nearest(name, found.iter().filter(|trust| trust.now.is_some()).map(|trust| trust.tool.as_str()));
            return Err(Refusal::not_found("tool of this server", name, near).details(json!({ "field": "tools" })));
        };
        if let Some(hash) = hash {
            if hash.len() < HASH_DIGITS {
                return Err(of_tools(
                    Code::InvalidArguments,
                    format!("`{word}` has fewer than {HASH_DIGITS} digits of the hash"),
                ));
            }
            if !now.hash.starts_with(hash) {
                let what = format!("the definition of {name} is not the one with hash {hash}");
                return Err(of_tools(Code::Conflict, what).hint("look at it again: the server has changed it"));
            }
        }
        tools.insert(now.tool.clone(), now.clone());
    }
    Ok(tools.into_values().collect())
}

/// Replaces the file as a whole; `None` removes it. Returns what was there.
fn replace(path: &Path, text: Option<&str>) -> io::Result<Option<String>> {
    let before = match fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    match text {
        Some(text) => {
            let new = path.with_extension("lock.new");
            fs::write(&new, text)?;
            fs::File::open(&new)?.sync_all()?;
            fs::rename(&new, path)?;
        }
        None if before.is_some() => fs::remove_file(path)?,
        None => {}
    }
    Ok(before)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ghost_config::plan::toolbox::McpTransport;

    use super::*;

    fn tool(name: &str, hash: &str) -> TrustedTool {
        let (tool, name, hash) = (name.to_owned(), name.to_owned(), hash.to_owned());
        TrustedTool { tool, name, hash, description: "d".into(), parameters: json!({ "type": "object" }) }
    }

    fn plan(trusted: Vec<TrustedTool>) -> McpPlan {
        let transport = McpTransport::Stdio { command: Vec::new() };
        McpPlan { transport, timeout: Duration::from_secs(1), output_limit: 1, trusted, idempotency: BTreeMap::new() }
    }

    // covers: TBX-09
    #[test]
    fn only_what_an_operator_names_is_trusted() {
        let mcp = plan(vec![tool("add", "aaaaaaaa1"), tool("old", "cccccccc1")]);
        let trust = |name: &str, state, now| Trust { tool: name.into(), state, why: None, now };
        let found = [
            trust("add", TrustState::Changed, Some(tool("add", "aaaaaaaa2"))),
            trust("new", TrustState::New, Some(tool("new", "bbbbbbbb1"))),
            trust("odd", TrustState::Unusable, None),
        ];
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|word| (*word).to_owned()).collect();
            chosen("notes", &mcp, &found, &wanted)
                .map(|tools| tools.iter().map(|tool| format!("{}={}", tool.tool, tool.hash)).collect::<Vec<_>>())
                .map_err(|refusal| refusal.code)
        };
        assert_eq!(names(&[]).unwrap(), ["add=aaaaaaaa2", "new=bbbbbbbb1"], "what there is now");
        assert_eq!(names(&["new"]).unwrap(), ["add=aaaaaaaa1", "new=bbbbbbbb1", "old=cccccccc1"], "the rest stays");
        assert_eq!(names(&["add=aaaaaaaa2"]).unwrap(), ["add=aaaaaaaa2", "old=cccccccc1"]);
        assert_eq!(names(&["add=aaaaaaaa1"]), Err(Code::Conflict));
        assert_eq!(names(&["add=a"]), Err(Code::InvalidArguments));
        assert_eq!((names(&["odd"]), names(&["gone"])), (Err(Code::NotFound), Err(Code::NotFound)));
    }
}
