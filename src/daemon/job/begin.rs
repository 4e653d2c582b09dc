//! Begins a job or continues it. Its input is in the workspace before an agent gets the task.

use ghost_config::plan::JobPlan;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{Job, Refusal};
use ghost_operations::jobs::{self, NewJob};
use ghost_store::Store;
use ghost_tools::workspace::Workspace;
use ghost_world::World;

use super::input::{Folder, INPUTS, Input, job_id};

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
pub async fn put_back(store: &Store, workspace: &Workspace, files: &[Input]) -> Result<(), Refusal> {
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
pub async fn known(store: &Store, files: &[Input]) -> Result<Option<Job>, Refusal> {
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
pub async fn begin(world: &World, plan: &JobPlan, folder: &Folder) -> Result<Job, Refusal> {
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
