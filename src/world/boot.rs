//! Boot: builds a running world from a plan and an opened store.

use std::sync::Arc;

use ghost_agent::{ActivityPort, Engine};
use ghost_config::plan::Plan;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::ports::Ports;
use ghost_domain::redact::Redactor;
use ghost_domain::{Code, Party, Refusal};
use ghost_operations::{OperationContext, agents, jobs, turns};
use ghost_provider::Providers;
use ghost_sandbox::Sandbox;
use ghost_store::Store;
use ghost_tools::builtins::{NEED_SANDBOX, absent_browser, absent_web_tools, facts};
use ghost_tools::workspace::Workspace;
use ghost_tools::{AgentControl, LiveTools, McpConnections, Tool, ToolTable, WorldServices};
use ghost_web::Web;
use ractor::Actor;
use serde_json::{Value, json};

use crate::directory::Directory;
use crate::loops::{self, Loops};
use crate::reconcile::{self, Reconciling, Stage};
use crate::signal_router::SignalRouter;
use crate::supervisor::{Root, adopt};
use crate::tree::{self, PAUSED, Tree, agents_with_work};
use crate::world::{Reloader, World};
use crate::{clock, maintenance, toolboxes, watches};

/// Keys under which the store keeps the world's id and the fencing epoch.
const WORLD_ID: &str = "world_id";
const EPOCH: &str = "epoch";

/// The inputs of [`boot`].
pub struct Boot {
    /// The checked plan.
    pub plan: Plan,
    /// The opened store.
    pub store: Store,
    /// Clock, ids, jitter.
    pub ports: Ports,
    /// The models.
    pub providers: Providers,
    /// The shared workspace.
    pub workspace: Workspace,
    /// The directory of the world's data; `None` for a world in memory.
    pub data_dir: Option<std::path::PathBuf>,
    /// Values that redaction removes from everything that leaves the world.
    pub secrets: Vec<String>,
    /// The name of this daemon's node.
    pub node: String,
    /// All tools compiled into the daemon. Creating them takes a while, so the caller may do it in
    /// parallel with other work.
    pub tools: Vec<Tool>,
    /// Where commands run, or why they cannot.
    pub sandbox: Result<Arc<dyn Sandbox>, String>,
    /// What agents reach over the network, or why they reach nothing.
    pub web: Result<Arc<Web>, String>,
    /// Reads the configuration again for a reload.
    pub reloader: Reloader,
}

/// Boots a world: claims its agents, reconciles them with the plan, reviews the turns that the last daemon left
/// open, and starts the supervision tree.
///
/// # Errors
/// If the data belongs to another world, or if the store fails. No actor runs then.
pub async fn boot(boot: Boot) -> Result<Arc<World>, Refusal> {
    let epoch = next_epoch(&boot.store, &boot.plan.world_id).await?;
    let redactor = Redactor::new(boot.secrets);
    let ctx = OperationContext::new(boot.ports, redactor, &boot.node, epoch, boot.plan.limits.clone());
    let directory = Arc::new(Directory::new(Arc::clone(&ctx.ports.clock)));
    let plan = Arc::new(boot.plan);
    reconcile::apply_rules(&ctx, &directory, &plan);
    let mut services = WorldServices::new(
        ctx.clone(),
        boot.store.clone(),
        Arc::new(boot.workspace),
        Arc::clone(&directory) as Arc<dyn AgentControl>,
        Arc::clone(&plan),
    );
    if let Some(data_dir) = &boot.data_dir {
        services = services.with_data_dir(data_dir);
    }
    let mut tools = ToolTable::new(boot.tools)?;
    if let Err(why) = &boot.sandbox {
        tools = tools.without(&NEED_SANDBOX, &format!("there is no sandbox: {why}"));
    }
    for (name, why) in absent_web_tools(&boot.web) {
        tools = tools.without(&[name], &why);
    }
    if let Some(why) = absent_browser(&boot.sandbox, &boot.web) {
        tools = tools.without(&["tool.browser"], &why);
    }
    tools = tools.telling(facts(&plan));
    let tools = Arc::new(LiveTools::new(tools));
    let live = Arc::clone(&tools);
    let mcp = Arc::new(McpConnections::new(move |toolbox, gone| live.withdraw(toolbox, gone)));
    let services = Arc::new(services.with_sandbox(boot.sandbox).with_web(boot.web).with_mcp(mcp));
    let engine = Arc::new(Engine::new(
        services,
        tools,
        Arc::clone(&directory) as Arc<dyn ActivityPort>,
        Arc::new(boot.providers),
    ));
    toolboxes::refresh(&engine).await;
    let loops = Arc::new(Loops::default());
    let signal_router = SignalRouter::new(
        Arc::clone(&directory),
        Arc::clone(&engine.queue),
        Arc::clone(&engine.services.grants),
        Arc::clone(&loops),
    );
    let tree = Arc::new(Tree { engine, directory, signal_router: Arc::new(signal_router), loops });
    let started = json!({
        "world_id": plan.world_id, "node": boot.node, "epoch": epoch, "version": env!("CARGO_PKG_VERSION"),
    });
    let paused = prepare(&tree, &plan, started).await?;
    reconcile::log_access(&plan);
    tree.directory.set_paused(paused);
    let (root, root_task) = Actor::spawn(None, Root, Arc::clone(&tree))
        .await
        .map_err(|error| Refusal::new(Code::Internal, format!("the root supervisor cannot start: {error}")))?;
    for team in std::iter::once(None).chain(plan.teams.iter().cloned().map(Some)) {
        if !adopt(&root, team).await {
            return Err(Refusal::new(Code::Internal, "a supervisor could not start"));
        }
    }
    boot.store.on_signal(Arc::clone(&tree.signal_router) as Arc<dyn ghost_domain::ports::Wake>);
    let world = Arc::new(World::new(Arc::clone(&tree), root, root_task, boot.reloader));
    // Signals of the earlier transactions reached no receiver. So every agent with mail or an open
    // turn is woken.
    for agent_id in agents_with_work(&boot.store).await? {
        tree.signal_router.wake(&agent_id);
    }
    start_loops(&world, &tree);
    Ok(world)
}

/// Starts the loops that run until the world stops.
fn start_loops(world: &World, tree: &Arc<Tree>) {
    // Cron slots before this time were missed, because no daemon ran. A restart of the loop keeps
    // this time.
    let since = tree.engine.services.ctx.now();
    let mut again = false;
    keep(world, tree, loops::SIGNAL_ROUTER, move |tree| tree::route_signals(tree, std::mem::replace(&mut again, true)));
    keep(world, tree, loops::CLOCK, clock::watch_jumps);
    keep(world, tree, loops::SCHEDULES, move |tree| clock::fire_schedules(tree, since));
    keep(world, tree, loops::WATCHES, watches::rounds);
    keep(world, tree, loops::MAINTENANCE, maintenance::rounds);
    // A world on simulated time writes no files beside those of its agents.
    if tree.engine.services.workspace.place().is_some() {
        keep(world, tree, loops::MANIFEST, maintenance::manifest_rounds);
    }
}

fn keep<F>(world: &World, tree: &Arc<Tree>, name: &'static str, mut rounds: impl FnMut(Arc<Tree>) -> F + Send + 'static)
where
    F: Future<Output = Result<(), String>> + Send + 'static,
{
    let tree = Arc::clone(tree);
    world.keep_running(name, move || Box::pin(rounds(Arc::clone(&tree))));
}

/// Whether this world has run on this database before.
///
/// # Errors
/// If the data belongs to another world, or if the store fails.
pub async fn has_run(store: &Store, world_id: &str) -> Result<bool, Refusal> {
    Ok(next_epoch(store, world_id).await? > 1)
}

/// Checks that the data belongs to this world. Returns the fencing epoch that this daemon must take.
async fn next_epoch(store: &Store, world_id: &str) -> Result<i64, Refusal> {
    let world_id = world_id.to_owned();
    store
        .read_latest(move |r| match r.meta_get(WORLD_ID)? {
            Some(stored) if stored != world_id => Err(Refusal::new(
                Code::Conflict,
                format!("the data directory belongs to the world `{stored}`, not to `{world_id}`"),
            )
            .hint("give this world a data directory of its own with --data")),
            Some(_) | None => Ok(epoch(r.meta_get(EPOCH)?.as_deref()) + 1),
        })
        .await
}

fn epoch(stored: Option<&str>) -> i64 {
    stored.and_then(|text| text.parse::<i64>().ok()).unwrap_or(0)
}

/// Takes the fencing epoch, claims and reconciles the records, reviews open turns, writes the event
/// `world.started`, and fills the directory. Returns whether the world is paused. All of it is one
/// commit, so that a start waits for one commit only.
async fn prepare(tree: &Tree, plan: &Arc<Plan>, started: Value) -> Result<bool, Refusal> {
    let plan = Arc::clone(plan);
    let (paused, agents) = tree
        .engine
        .services
        .write(move |w| {
            let last = epoch(w.meta_get(EPOCH)?.as_deref());
            if last + 1 != w.ctx.epoch {
                return Err(Refusal::new(
                    Code::Conflict,
                    format!("another daemon has taken epoch {last} in the meantime"),
                )
                .hint("only one daemon may run on a database; stop the other one"));
            }
            w.meta_put(WORLD_ID, &plan.world_id)?;
            let epoch = w.ctx.epoch.to_string();
            w.meta_put(EPOCH, &epoch)?;
            ghost_operations::clock::at_start(w)?;
            agents::claim_all(w)?;
            let mut reconciling = Reconciling::new(plan, Party::System, Stage::Boot);
            while reconciling.slice(w)? {}
            turns::review_at_boot(w)?;
            jobs::recall(w)?;
            w.emit(NewEvent::new(EventKind::WorldStarted, started))?;
            Ok::<_, Refusal>((w.meta_get(PAUSED)?.as_deref() == Some("1"), w.agent_list(false)?))
        })
        .await?;
    for agent in &agents {
        tree.directory.record(agent);
    }
    Ok(paused)
}
