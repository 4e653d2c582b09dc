//! The world's main job: its input is copied into the workspace once, under a name that follows from its content, before its
//! lead gets a task for it. The terminal shows its start, its progress by parts, and its end.

use std::path::Path;
use std::sync::Arc;

use ghost_config::plan::JobPlan;
use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::usage::Spending;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Job, Refusal, TaskStatus};
use ghost_operations::budgets;
use ghost_operations::feed::Subscription;
use ghost_operations::jobs::{self, NewJob};
use ghost_store::Store;
use ghost_store::tables::{PAGE_MAX, TaskFilter, UsageFilter};
use ghost_tools::AgentControl;
use ghost_tools::workspace::Workspace;
use ghost_world::World;
use tokio::task::JoinHandle;

use crate::input::{Folder, INPUTS, Input, budgets_of, expected, job_id};
use crate::terminal::Terminal;

/// Writes the files of a job that are missing in the workspace.
async fn place(workspace: &Workspace, files: &[Input]) -> Result<(), Refusal> {
    let base = format!("{INPUTS}/{}", job_id(files));
    for file in files {
        let path = file.path.under(&base);
        if workspace.hash(&path).await?.is_none() {
            workspace.write_atomic(&path, &file.bytes).await?;
        }
    }
    Ok(())
}

/// Restores missing input files of an unfinished job in the workspace, before an agent can read
/// them: a world continues its open turns and its mail as soon as it is booted. Does nothing if the
/// job was never begun or is done. If another unfinished job lacks its input, only a warning is
/// logged.
///
/// # Errors
/// When the workspace or the store refuses.
pub(crate) async fn put_back(store: &Store, workspace: &Workspace, files: &[Input]) -> Result<(), Refusal> {
    let own = job_id(files);
    let jobs = store.read_latest(jobs::all).await?;
    for job in jobs.iter().filter(|job| job.finished_at.is_none()) {
        let id = &job.job_id;
        if *id == own {
            place(workspace, files).await?;
        } else if let Err(refusal) =
            workspace.list(&WorkspacePath::parse(&format!("{INPUTS}/{id}"), false)?, 1, None, 1).await
        {
            tracing::warn!(
                %refusal,
                "job {id} is under way, but its input is not in the workspace: start with the --input that it was begun with to put it back"
            );
        }
    }
    Ok(())
}

/// Most skipped names that a brief has.
const SKIPPED_MAX: usize = 20;

/// The job of these files, if it was begun before.
///
/// # Errors
/// When the store refuses.
async fn known(store: &Store, files: &[Input]) -> Result<Option<Job>, Refusal> {
    let job_id = job_id(files);
    store.read_latest(move |r| Ok::<_, Refusal>(r.job_get(&job_id)?)).await
}

/// The names of what is skipped, on one line.
fn named(skipped: &[String]) -> String {
    let more = skipped.len().saturating_sub(SKIPPED_MAX);
    let mut names = skipped.get(..SKIPPED_MAX.min(skipped.len())).unwrap_or_default().join(", ");
    if more > 0 {
        names.push_str(&format!(", and {more} more"));
    }
    if names.is_empty() { "nothing".to_owned() } else { names }
}

/// Copies the files into the workspace and starts the job of these files, or continues it.
///
/// # Errors
/// When a file cannot be written, or the lead's inbox is full.
async fn submit(world: &World, plan: &JobPlan, folder: &Folder) -> Result<Job, Refusal> {
    let files = &folder.files;
    let job_id = job_id(files);
    // Written before the job is recorded: after a crash between the two, the same bytes are written
    // again.
    place(&world.engine().services.workspace, files).await?;
    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
    let base = format!("{INPUTS}/{job_id}");
    let brief =
        plan.brief.replace("{job_id}", &job_id).replace("{input}", &base).replace("{files}", &count.to_string());
    // Last, because a name may look like a placeholder.
    let brief = brief.replace("{skipped}", &named(&folder.skipped));
    let new = NewJob { job_id, files: count, lead: plan.lead.clone(), brief, result_dir: plan.result.clone() };
    world.write(move |w| jobs::begin(w, new)).await
}

/// The kinds of events that show a job's progress.
const KINDS: [EventKind; 3] = [EventKind::TaskCreated, EventKind::TaskUpdated, EventKind::JobFinished];

/// Starts the job and shows its progress in a task of its own. `root` is the workspace. Gives `None` if the world has no job.
pub(crate) async fn begin(
    world: &Arc<World>,
    plan: Option<JobPlan>,
    input: &Folder,
    terminal: &Terminal,
    root: &Path,
) -> Result<Option<JoinHandle<()>>, Refusal> {
    let Some(plan) = plan else { return Ok(None) };
    // Events of the job come after this one.
    let mut after = world.store().last_seq();
    announce(world, input, terminal).await?;
    let job = submit(world, &plan, input).await?;
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
async fn announce(world: &World, input: &Folder, terminal: &Terminal) -> Result<(), Refusal> {
    let Some(mut expectation) = expected(&world.plan(), &input.files) else { return Ok(()) };
    let known = known(world.store(), &input.files).await?;
    if known.as_ref().is_some_and(|job| job.finished_at.is_some()) {
        return Ok(());
    }
    let root_tokens = world.ctx().limits().root_tokens_max;
    expectation.budgets = budgets_of(world.store(), known.map(|job| job.root_id), root_tokens).await?;
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

#[cfg(test)]
mod tests {
    use ghost_domain::{RootId, Timestamp};
    use ghost_store::memory::MemoryStore;

    use super::*;

    #[test]
    fn what_is_skipped_is_named_up_to_a_bound() {
        let names = |count: usize| named(&(0..count).map(|n| format!(".{n}")).collect::<Vec<_>>());
        assert_eq!((names(0).as_str(), names(2).as_str()), ("nothing", ".0, .1"));
        assert!(names(23).ends_with(".19, and 3 more"));
    }

    #[tokio::test]
    async fn the_input_of_a_job_under_way_is_put_back_and_that_of_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (store, workspace) = (MemoryStore::open(), Workspace::inline(dir.path()).unwrap());
        let file = |name: &str| Input { path: WorkspacePath::parse(name, false).unwrap(), bytes: name.into() };
        let files = [file("a.md"), file("deep/b.md")];
        let at = dir.path().join(INPUTS).join(job_id(&files));
        put_back(&store, &workspace, &files).await.unwrap();
        put_back(&store, &workspace, &[]).await.unwrap();
        assert!(!at.exists(), "a job that was never begun");

        for finished_at in [Some(Timestamp(7)), None] {
            let job = Job {
                job_id: job_id(&files),
                task_id: None,
                root_id: RootId(uuid::Uuid::nil()),
                files: 2,
                started_at: Timestamp(0),
                finished_at,
                result_dir: "output".into(),
                result_path: None,
            };
            let keep = store.write(move |w| Ok::<_, Refusal>(w.job_put(&job)?));
            keep.await.unwrap();
            put_back(&store, &workspace, &files).await.unwrap();
            assert_eq!(at.exists(), finished_at.is_none());
        }
        std::fs::remove_file(at.join("a.md")).unwrap();
        std::fs::write(at.join("deep/b.md"), "its own").unwrap();
        put_back(&store, &workspace, &files).await.unwrap();
        assert_eq!(std::fs::read_to_string(at.join("a.md")).unwrap(), "a.md");
        assert_eq!(std::fs::read_to_string(at.join("deep/b.md")).unwrap(), "its own");
    }
}
