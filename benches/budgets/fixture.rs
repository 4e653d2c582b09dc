//! The worlds that the benchmarks measure.

use std::path::Path;
use std::sync::Arc;

use ghost_domain::ports::Ports;
use ghost_domain::{AgentId, AgentKind, Code, Desired, Refusal};
use ghost_operations::agents::NewAgent;
use ghost_operations::mail::Chain;
use ghost_provider::Providers;
use ghost_sandbox::Sandbox;
use ghost_store::sqlite::{SqliteOptions, open_store};
use ghost_tools::Tool;
use ghost_tools::workspace::Workspace;
use ghost_world::{Boot, World};
use serde_json::Value;

use crate::measure::Outcome;

/// Agents that a world file lists one by one; more are one entry.
const LISTED_MAX: usize = 1_000;

/// A worker to be created at run time.
pub fn worker(agent_id: AgentId, kind: AgentKind, chain: Chain) -> NewAgent {
    NewAgent {
        name: agent_id.to_string(),
        agent_id,
        archetype: "worker".into(),
        team: None,
        kind,
        desired: Desired::Running,
        overrides: Value::Null,
        daily_money: None,
        heartbeat: None,
        owner: None,
        goal: None,
        chain,
    }
}

/// Writes a world of `agents` workers whose model server is at `model`.
pub fn write_world(dir: &Path, agents: usize, model: &str) -> Outcome<()> {
    let mut text = String::from("world: { id: bench, name: Bench }\nagents:\n");
    if agents > LISTED_MAX {
        // A world file of so many lines would be too large. These are `worker-1` to `worker-N`.
        text.push_str(&format!("  - {{ id: worker, archetype: worker, name: Worker, count: {agents} }}\n"));
    } else {
        for agent in 0..agents {
            text.push_str(&format!("  - {{ id: worker-{agent}, archetype: worker, name: Worker {agent} }}\n"));
        }
    }
    text.push_str(&format!(
        "llm:\n  default_provider: local\n  default_model: fake\n  providers:\n    local: {{ kind: openai, base_url: \
         \"{model}\", concurrency: 256 }}\nlimits: {{ turn_mail_max: 1, sleep_after_seconds: 3600, dynamic_agents_max: 20000 }}\n"
    ));
    let worker = dir.join("archetype/worker");
    std::fs::create_dir_all(&worker)?;
    std::fs::write(dir.join("world-config.yaml"), text)?;
    std::fs::write(dir.join("laws.md"), "Be exact. Do what you are asked, and say what you did.\n")?;
    for (file, text) in [
        ("soul.md", "You are a worker.\n"),
        ("goal.md", "Look things up for whoever asks.\n"),
        ("agent.md", "Fetch the page, then say in one sentence what it holds.\n"),
        ("user.md", "You work for a bench.\n"),
        ("config.md", "## Tool Access\nprofile: full\n"),
    ] {
        std::fs::write(worker.join(file), text)?;
    }
    Ok(())
}

/// Boots the world in `dir` with a SQLite file in `data`.
pub async fn boot(dir: &Path, data: &Path, ports: Ports, extra_tools: Vec<Tool>) -> Outcome<Arc<World>> {
    let sandbox = Err("a bench runs no commands".to_owned());
    boot_with(dir, data, ports, extra_tools, sandbox).await
}

/// Like [`boot`], with a place for commands.
pub async fn boot_with(
    dir: &Path,
    data: &Path,
    ports: Ports,
    extra_tools: Vec<Tool>,
    sandbox: Result<Arc<dyn Sandbox>, String>,
) -> Outcome<Arc<World>> {
    let env = |_: &str| None;
    let plan = ghost_config::load(dir, &env).map_err(|problems| problems.to_string())?;
    let providers = Providers::build(&plan.llm, &env, Arc::clone(&ports.clock))?;
    let store = open_store(&data.join("ghost.db"), SqliteOptions::default()).await?;
    let workspace = Workspace::open(&data.join("workspace"))?;
    let world = ghost_world::boot(Boot {
        plan,
        store,
        ports,
        providers,
        workspace,
        data_dir: Some(data.to_owned()),
        secrets: Vec::new(),
        node: "bench".into(),
        tools: ghost_tools::builtins::with(extra_tools),
        sandbox,
        web: Err("a measurement reaches no network".to_owned()),
        reloader: Box::new(|| Err(Refusal::new(Code::Unavailable, "a bench does not reload"))),
    })
    .await?;
    Ok(world)
}

/// Copies the shipped newsroom to `to` without its job, so that its six agents are idle.
pub fn idle_newsroom(to: &Path) -> Outcome<()> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("worlds/newsroom");
    copy(&from, to)?;
    let file = to.join("world-config.yaml");
    let text = std::fs::read_to_string(&file)?;
    let (before, _) = text.split_once("\njob:").ok_or("the newsroom has no job, or it is not where it was")?;
    std::fs::write(file, before)?;
    Ok(())
}

/// Copies a directory.
pub fn copy(from: &Path, to: &Path) -> Outcome<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
