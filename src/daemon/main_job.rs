//! The world's main job as the terminal shows it: taken in when the world is ready, followed to its end.
//!
//! Must never: run the job. Agents do.

use std::sync::Arc;

use ghost_config::plan::JobPlan;
use ghost_domain::usage::Spending;
use ghost_domain::{Job, Refusal};
use ghost_rules::budgets;
use ghost_store::tables::UsageFilter;
use ghost_world::World;
use tokio::task::JoinHandle;

use crate::data_dir::DataDir;
use crate::data_dir::WORKSPACE;
use crate::job;
use crate::terminal::Terminal;

/// Takes the job in and follows it in a task of its own. Nothing if the world has no job, or it is done.
pub(crate) async fn begin(
    world: &Arc<World>,
    plan: Option<JobPlan>,
    input: &[job::Input],
    terminal: &Terminal,
    data_dir: &DataDir,
) -> Result<Option<JoinHandle<()>>, Refusal> {
    let Some(plan) = plan else { return Ok(None) };
    let begun = job::begin(world, &plan, input).await?;
    let job = begun.job.clone();
    let root = data_dir.path().join(WORKSPACE);
    let done = job.finished_at.is_some();
    if done {
        terminal.job_was_done(&job, &root, &plan.lead);
    } else {
        terminal.job(&job);
    }
    if world.directory().is_paused() {
        terminal.paused();
    }
    if done {
        return Ok(None);
    }
    let (world, terminal) = (Arc::clone(world), terminal.clone());
    Ok(Some(tokio::spawn(async move {
        let (shown, job_id) = (terminal.clone(), job.job_id);
        let still = move |standing: &job::Standing| shown.job_stands(&job_id, standing);
        match job::follow(Arc::clone(&world), plan, begun, still).await {
            Ok(job) => {
                let spent = spent(&world, &job).await.unwrap_or_default();
                terminal.job_done(&job, &root, spent, is_free(&world));
            }
            Err(refusal) => tracing::warn!(%refusal, "the job is no longer followed"),
        }
    })))
}

/// Whether nobody in the world thinks with a model that costs anything or anybody's time.
fn is_free(world: &World) -> bool {
    let plan = world.plan();
    let mut providers = plan.llm.providers.values();
    providers.all(|provider| provider.kind.is_local())
}

/// What a job cost so far.
async fn spent(world: &World, job: &Job) -> Result<Spending, Refusal> {
    let filter = UsageFilter { root_id: Some(job.root_id), ..UsageFilter::default() };
    let sums = world.store().read(move |r| Box::pin(async move { budgets::usage(r, &filter).await })).await?;
    Ok(Spending::of(&sums))
}
