//! Main jobs: a set of input files is accepted once, and its lead gets a task for it.

use crate::prelude::*;
use crate::schedules;
use crate::tasks::{self, NewTask};

/// A job to be started.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// Identifies the input by its content.
    pub job_id: String,
    /// The number of input files.
    pub files: u32,
    /// The agent that gets the job's task.
    pub lead: AgentId,
    /// The description of the task.
    pub brief: String,
    /// The directory in the workspace for the result.
    pub result_dir: String,
}

/// Starts a job, or continues a job with the same input. An unfinished job without any running or
/// waiting work is started again: the owners of its open tasks get them once more.
pub fn begin(w: &mut Tx, new: NewJob) -> Result<Job> {
    let known = w.job_get(&new.job_id)?;
    if let Some(job) = known.as_ref().filter(|job| job.finished_at.is_some() || job.task_id.is_some()) {
        if job.finished_at.is_none() && !is_at_work(w, job.root_id)? {
            tasks::remind(w, job.root_id)?;
        }
        return Ok(job.clone());
    }
    // A job that an older version began has no task.
    let root_id = known.as_ref().map_or_else(|| RootId(w.ctx.id()), |job| job.root_id);
    let chain = Chain { root_id, hop: 0, conversation_id: None };
    w.ctx.add_jobs([chain.root_id]);
    let task = NewTask {
        title: format!("Job {}: {} input {}", new.job_id, new.files, if new.files == 1 { "file" } else { "files" }),
        description: format!(
            "{}\n\nWhen the result is written to a file in {}/, set this task to done and give the path of that file as its \
             result.",
            new.brief.trim_end(),
            new.result_dir.trim_end_matches('/')
        ),
        owner: new.lead.clone(),
        priority: 0,
        depends_on: Vec::new(),
        parent_id: None,
        due_at: None,
        chain,
    };
    let task = tasks::create(w, &Party::System, task)?;
    let job = Job {
        job_id: new.job_id,
        task_id: Some(task.task_id),
        root_id: chain.root_id,
        files: new.files,
        started_at: known.map_or_else(|| w.ctx.now(), |job| job.started_at),
        finished_at: None,
        result_dir: new.result_dir,
        result_path: None,
    };
    w.job_put(&job)?;
    let facts = json!({ "job_id": job.job_id, "files": job.files, "lead": new.lead, "task_id": task.task_id });
    w.emit(NewEvent::new(EventKind::JobStarted, facts).correlation(job.root_id))?;
    Ok(job)
}

/// All jobs, newest first.
pub fn all(r: &mut StoreTx) -> Result<Vec<Job>> {
    read_all(|last: Option<&Job>| r.job_list(last.map(|job| (job.started_at, job.job_id.as_str())), PAGE_MAX))
}

/// Makes the jobs of earlier daemons known to the rules.
pub fn recall(r: &mut Tx) -> Result<()> {
    r.ctx.add_jobs(all(r)?.into_iter().map(|job| job.root_id));
    Ok(())
}

/// Whether a turn of this root is open, mail of it waits, or a timer or watch of it is set.
pub(crate) fn is_at_work(r: &mut StoreTx, root_id: RootId) -> Result<bool> {
    let open = TurnFilter { root_id: Some(root_id), status: Some(TurnStatus::Open), limit: 1, ..TurnFilter::default() };
    Ok(!r.turn_list(&open)?.is_empty() || !r.inbox_waiting_of(root_id)?.is_empty() || !due(r, root_id)?.is_empty())
}

/// The enabled timers and watches of this root, of all agents.
pub fn due(r: &mut StoreTx, root_id: RootId) -> Result<Vec<Schedule>> {
    let mut due = schedules::all_of_kind(r, ScheduleKind::Timer)?;
    due.extend(schedules::all_of_kind(r, ScheduleKind::Watch)?);
    due.retain(|schedule| schedule.enabled && schedule.root_id == root_id);
    Ok(due)
}
