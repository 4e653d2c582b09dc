//! The end of a main job: its lead closes the job's task and names the file with the result.
//!
//! A job without a named result must never be recorded as finished successfully.

use ghost_domain::write_acl::WorkspacePath;

use crate::prelude::*;

/// The job whose task this is.
fn job_of(r: &mut Tx, task: &Task) -> Result<Option<Job>> {
    if !r.ctx.jobs().contains(&task.root_id) {
        return Ok(None);
    }
    Ok(r.job_of_task(task.task_id)?)
}

/// Refuses to set the task of a job to done unless its result is a file in the job's directory for results.
///
/// # Errors
/// `InvalidArguments` with the directory in the hint.
pub fn check(r: &mut Tx, task: &Task) -> Result<()> {
    let Some(job) = job_of(r, task)? else { return Ok(()) };
    let path = WorkspacePath::parse(task.result.as_deref().unwrap_or_default().trim(), false);
    let dir = format!("{}/", job.result_dir.trim_end_matches('/'));
    if path.is_ok_and(|path| path.as_str().starts_with(&dir)) {
        return Ok(());
    }
    Err(refusal!(InvalidArguments, "the result of job {} is not a path under {dir}", job.job_id)
        .hint("set `result` to the path of the file that you wrote, in the same call that sets the status to done"))
}

/// Records the end of a job when its task ends, and that the job runs again when its task is reopened.
pub fn follow(w: &mut Tx, task: &Task) -> Result<()> {
    let Some(mut job) = job_of(w, task)? else { return Ok(()) };
    if task.status.is_terminal() == job.finished_at.is_some() {
        return Ok(());
    }
    job.finished_at = task.status.is_terminal().then(|| w.ctx.now());
    job.result_path =
        task.result.clone().filter(|_| task.status == TaskStatus::Done).map(|path| path.trim().to_owned());
    w.job_put(&job)?;
    if job.finished_at.is_none() {
        return Ok(());
    }
    let facts = json!({ "job_id": job.job_id, "status": task.status, "result_path": job.result_path });
    w.emit(NewEvent::new(EventKind::JobFinished, facts).correlation(job.root_id))
}
