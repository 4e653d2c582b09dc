//! The world's main job on the terminal: its start, its progress by parts, and its end.
//!
//! This module must never do the work of the job. Agents do.

use std::path::Path;
use std::sync::Arc;

use ghost_config::plan::JobPlan;
use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::usage::Spending;
use ghost_domain::{Job, Refusal, TaskStatus};
use ghost_operations::budgets;
use ghost_operations::feed::Subscription;
use ghost_store::tables::{PAGE_MAX, TaskFilter, UsageFilter};
use ghost_tools::AgentControl;
use ghost_world::World;
use tokio::task::JoinHandle;

use crate::expectation;
use crate::job;
use crate::terminal::Terminal;

/// The kinds of events that show a job's progress.
const KINDS: [EventKind; 3] = [EventKind::TaskCreated, EventKind::TaskUpdated, EventKind::JobFinished];

/// Starts the job and shows its progress in a task of its own. `root` is the workspace. Gives `None` if the world has no job.
pub(crate) async fn begin(
    world: &Arc<World>,
    plan: Option<JobPlan>,
    input: &job::Folder,
    terminal: &Terminal,
    root: &Path,
) -> Result<Option<JoinHandle<()>>, Refusal> {
    let Some(plan) = plan else { return Ok(None) };
    // Events of the job come after this one.
    let mut after = world.store().last_seq();
    announce(world, input, terminal).await?;
    let job = job::begin(world, &plan, input).await?;
    let started_at = world.directory().started_at();
    if job.finished_at.is_some_and(|at| at < started_at) {
        terminal.job_ended_before(&job, root);
    } else {
        terminal.job(&job);
        if job.finished_at.is_some() {
            // A turn that this start resumed has already ended the job.
            show_end(world, &job, terminal, root).await;
            after = world.store().last_seq();
        }
    }
    if world.directory().is_paused() {
        terminal.paused();
    }
    let (world, terminal, root) = (Arc::clone(world), terminal.clone(), root.to_owned());
    Ok(Some(tokio::spawn(async move {
        if let Err(refusal) = follow(&world, &job, &terminal, &root, after).await {
            tracing::warn!(%refusal, "the terminal no longer shows the progress of the job");
        }
    })))
}

/// Says what a job that is paid for is expected to take and which budgets hold, unless it has ended before.
async fn announce(world: &World, input: &job::Folder, terminal: &Terminal) -> Result<(), Refusal> {
    let Some(mut expectation) = expectation::of_files(&world.plan(), &input.files) else { return Ok(()) };
    let known = job::known(world.store(), &input.files).await?;
    if known.as_ref().is_some_and(|job| job.finished_at.is_some()) {
        return Ok(());
    }
    let root_tokens = world.ctx().limits().root_tokens_max;
    expectation.budgets = expectation::budgets(world.store(), known.map(|job| job.root_id), root_tokens).await?;
    terminal.job_expects(&expectation);
    Ok(())
}

/// Shows each part of the job that ends, and each end of the job: it may be reopened. Returns when the daemon stops.
async fn follow(
    world: &World,
    job: &Job,
    terminal: &Terminal,
    workspace: &Path,
    mut after: i64,
) -> Result<(), Refusal> {
    let kinds = KINDS.iter().map(|kind| kind.as_str().into()).collect();
    let filter = EventFilter { kinds, ..EventFilter::default() };
    let mut shown = parts(world, job).await?;
    loop {
        let mut events = Subscription::open(world.store(), Some(after), filter.clone(), true).await?;
        loop {
            let event = match events.next().await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                // This reader is too slow for the live feed, so it continues from storage.
                Err(_) => break,
            };
            if event.correlation_id != Some(job.root_id.to_string()) {
                continue;
            }
            if event.kind == EventKind::JobFinished {
                let job_id = job.job_id.clone();
                let read = world.store().read_latest(move |r| Ok::<_, Refusal>(r.job_get(&job_id)?));
                if let Some(job) = read.await? {
                    show_end(world, &job, terminal, workspace).await;
                }
                continue;
            }
            let parts = parts(world, job).await?;
            if parts.0 > shown.0 {
                terminal.job_progress(job, parts.0, parts.1);
            }
            shown = parts;
        }
        after = events.seen();
    }
}

async fn show_end(world: &World, job: &Job, terminal: &Terminal, workspace: &Path) {
    let spent = spent(world, job).await.unwrap_or_default();
    terminal.job_done(job, workspace, spent, is_free(world));
}

/// The number of parts of the job that have ended, and of all parts: the tasks whose parent is the
/// job's task.
async fn parts(world: &World, job: &Job) -> Result<(usize, usize), Refusal> {
    let Some(task_id) = job.task_id else { return Ok((0, 0)) };
    let mut filter = TaskFilter { parent_id: Some(task_id), limit: PAGE_MAX, ..TaskFilter::default() };
    let read = world.store().read(move |r| {
        let (mut ended, mut all) = (0, 0);
        loop {
            let page = r.task_list(&filter)?;
            let Some(last) = page.last() else { return Ok((ended, all)) };
            filter.after = Some((last.priority, last.created_at, last.task_id));
            for task in page.iter().filter(|task| task.status != TaskStatus::Cancelled) {
                all += 1;
                ended += usize::from(task.status.is_terminal());
            }
        }
    });
    read.await
}

/// Whether all models of the world are scripts or recordings, which cost nothing.
fn is_free(world: &World) -> bool {
    let plan = world.plan();
    let mut providers = plan.llm.providers.values();
    providers.all(|provider| provider.kind.is_local())
}

/// The cost of a job so far.
async fn spent(world: &World, job: &Job) -> Result<Spending, Refusal> {
    let filter = UsageFilter { root_id: Some(job.root_id), ..UsageFilter::default() };
    let sums = world.store().read(move |r| budgets::usage(r, &filter)).await?;
    Ok(Spending::of(&sums))
}
