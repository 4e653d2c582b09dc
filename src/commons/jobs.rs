//! Main jobs: a set of input files is taken in once, under a name that follows from its content (issue 2, 11).

use std::collections::BTreeSet;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::{AgentId, AgentStatus, Desired, Job, Kind, Party};
use ghost_store::{Reads, Writes};
use serde_json::json;

use crate::chain::Chain;
use crate::mail::{self, Draft};
use crate::{Cx, Result, tasks};

/// Records a job and tells the agent that leads it. Gives the job as recorded, and whether it is new: a job that is
/// there already is not begun again.
pub async fn begin(
    w: &mut dyn Writes,
    cx: &Cx,
    job_id: &str,
    files: u32,
    lead: &AgentId,
    brief: String,
) -> Result<(Job, bool)> {
    if let Some(job) = w.job_get(job_id).await? {
        return Ok((job, false));
    }
    let chain = Chain::root(cx);
    let job = Job {
        job_id: job_id.to_owned(),
        root_id: chain.root_id,
        files,
        started_at: cx.now(),
        finished_at: None,
        result_path: None,
    };
    w.job_put(&job).await?;
    cx.add_jobs([job.root_id]);
    let draft =
        Draft { subject: Some(format!("Job {job_id}")), ..Draft::new(lead, Party::System, Kind::System, brief, chain) };
    mail::deliver(w, cx, draft).await?;
    let event = NewEvent::new(EventKind::JobStarted, json!({ "job_id": job_id, "files": files, "lead": lead }))
        .correlation(job.root_id);
    cx.emit(w, event).await?;
    Ok((job, true))
}

/// Makes the jobs of earlier daemons known to the rules.
pub async fn recall(r: &mut dyn Reads, cx: &Cx) -> Result<()> {
    cx.add_jobs(r.job_list().await?.into_iter().map(|job| job.root_id));
    Ok(())
}

/// Whether nothing in the world is at work or waits to be: then an unfinished job will not end by itself.
pub async fn stands_still(r: &mut dyn Reads) -> Result<bool> {
    Ok(r.turns_open().await?.is_empty() && r.inbox_total().await? == 0)
}

/// Whether nothing will come of what is at work or waits: no agent that runs has an open turn, or mail that wakes it. What waits
/// for agents that are stopped or have failed waits for somebody to start them.
pub async fn has_come_to_a_stand(r: &mut dyn Reads) -> Result<bool> {
    let mut owners: BTreeSet<AgentId> = r.turns_open().await?.into_iter().map(|turn| turn.agent_id).collect();
    owners.extend(r.inbox_waiting().await?);
    for agent_id in &owners {
        let agent = r.agent_get(agent_id).await?.filter(|agent| !agent.is_deleted());
        if agent.is_some_and(|agent| agent.desired == Desired::Running && agent.status != AgentStatus::Failed) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gets an unfinished job going again that stands still: its lead is told of it anew, and so are the owners of its open
/// tasks. A turn that failed (a budget was spent, a provider was away) has consumed its mail, and nobody else would
/// begin again. Says whether that was needed.
pub async fn revive(w: &mut dyn Writes, cx: &Cx, job_id: &str, lead: &AgentId, brief: String) -> Result<bool> {
    let Some(job) = w.job_get(job_id).await? else { return Ok(false) };
    if job.finished_at.is_some() || !stands_still(w).await? {
        return Ok(false);
    }
    let chain = Chain { root_id: job.root_id, hop: 0 };
    let draft = Draft {
        subject: Some(format!("Job {job_id}, once more")),
        ..Draft::new(lead, Party::System, Kind::System, brief, chain)
    };
    mail::deliver(w, cx, draft).await?;
    tasks::remind(w, cx, chain, lead).await?;
    Ok(true)
}

/// Records where a job's result is. Does nothing the second time.
pub async fn finish(w: &mut dyn Writes, cx: &Cx, job_id: &str, result_path: &str) -> Result<Option<Job>> {
    let Some(mut job) = w.job_get(job_id).await? else { return Ok(None) };
    if job.finished_at.is_none() {
        job.finished_at = Some(cx.now());
        job.result_path = Some(result_path.to_owned());
        w.job_put(&job).await?;
        let event = NewEvent::new(EventKind::JobFinished, json!({ "job_id": job_id, "result_path": result_path }))
            .correlation(job.root_id);
        cx.emit(w, event).await?;
    }
    Ok(Some(job))
}
