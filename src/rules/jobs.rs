//! Main jobs: a set of input files is taken in once, under a name that follows from its content (issue 2, 11).

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::{AgentId, Job, Kind, Party, RootId, Schedule, ScheduleKind, Turn, TurnStatus};
use ghost_store::tables::TurnFilter;
use ghost_store::{Reads, Writes};
use serde_json::json;

use crate::agent_lookup::Idle;
use crate::chain::Chain;
use crate::mail::{self, NewMessage};
use crate::{Result, RuleContext, agent_lookup, tasks};

/// Records a job and tells the agent that leads it. Gives the job as recorded, and whether it is new: a job that is
/// there already is not begun again.
pub async fn begin(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    job_id: &str,
    files: u32,
    lead: &AgentId,
    brief: String,
) -> Result<(Job, bool)> {
    if let Some(job) = w.job_get(job_id).await? {
        return Ok((job, false));
    }
    let chain = Chain::root(ctx);
    let job = Job {
        job_id: job_id.to_owned(),
        root_id: chain.root_id,
        files,
        started_at: ctx.now(),
        finished_at: None,
        result_path: None,
    };
    w.job_put(&job).await?;
    ctx.add_jobs([job.root_id]);
    let new_message = NewMessage {
        subject: Some(format!("Job {job_id}")),
        ..NewMessage::new(lead, Party::System, Kind::System, brief, chain)
    };
    mail::deliver(w, ctx, new_message).await?;
    let event = NewEvent::new(EventKind::JobStarted, json!({ "job_id": job_id, "files": files, "lead": lead }))
        .correlation(job.root_id);
    ctx.emit(w, event).await?;
    Ok((job, true))
}

/// Makes the jobs of earlier daemons known to the rules.
pub async fn recall(r: &mut dyn Reads, ctx: &RuleContext) -> Result<()> {
    ctx.add_jobs(r.job_list().await?.into_iter().map(|job| job.root_id));
    Ok(())
}

/// The lead's latest turns that are looked at.
const TURNS_MAX: u32 = 200;

/// That nothing in the world is at work that the job may wait for, and that no mail waits for an agent that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stand {
    /// Who does not run and holds work of the job: it goes on when they are started. With none of them somebody has to begin
    /// again.
    pub idle: BTreeMap<AgentId, Held>,
    /// How it is with the lead, such as `is stopped`, if it does not run.
    pub lead: Option<&'static str>,
}

/// Work of a job that waits for an agent that does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// How it is with the agent, and what it has, such as `is stopped and has an open turn`.
    pub how: String,
    /// Why it cannot be started, and what to do about that, if it cannot.
    pub unfit: Option<String>,
}

/// Whether the job of this root has come to a stand: nothing in the world is at work, and no agent that runs has mail that
/// wakes it. What waits for agents that are stopped or have failed waits for somebody to start them. What is [`due`] later may
/// get it going by itself. A turn that waits aside, because the budget of its root is spent, is not at work: the job waits for
/// one of its own, and not for that of another root, which may never go on.
pub async fn stand(r: &mut dyn Reads, ctx: &RuleContext, root_id: RootId, lead: &AgentId) -> Result<Option<Stand>> {
    let open = r.turns_open().await?;
    let concerns = |turn: &&Turn| {
        let waits_aside = turn.is_aside() && !turn.is_ready();
        !waits_aside || turn.root_id == root_id || turn.other_roots.contains(&root_id)
    };
    let mut owners: BTreeSet<AgentId> = open.iter().filter(concerns).map(|turn| turn.agent_id.clone()).collect();
    owners.extend(r.inbox_waiting().await?);
    let mut idle = BTreeMap::new();
    for agent_id in owners {
        let Some(why) = agent_lookup::idle(r, &agent_id).await? else { return Ok(None) };
        idle.insert(agent_id, why);
    }
    // Nobody can start one that is deleted.
    idle.retain(|_, why| *why != Idle::Deleted);
    let mail = r.inbox_waiting_of(root_id).await?;
    let mut stand = Stand { lead: agent_lookup::idle(r, lead).await?.map(Idle::as_str), ..Stand::default() };
    for (agent_id, why) in idle {
        let work = if open.iter().any(|turn| turn.agent_id == agent_id && turn.root_id == root_id) {
            "an open turn"
        } else if mail.contains(&agent_id) {
            "mail that waits"
        } else {
            continue;
        };
        let agent = r.agent_get(&agent_id).await?;
        let unfit = agent.and_then(|agent| ctx.may_run(&agent).err());
        let unfit = unfit.map(|why| match why.hint {
            Some(hint) => format!("{} ({hint})", why.message),
            None => why.message,
        });
        stand.idle.insert(agent_id, Held { how: format!("{} and has {work}", why.as_str()), unfit });
    }
    Ok(Some(stand))
}

/// The timers and watches that are on and go off over the work of this root, of whatever agent: a job of which there are any may
/// go on by itself.
pub async fn due(r: &mut dyn Reads, root_id: RootId) -> Result<Vec<Schedule>> {
    let mut due = Vec::new();
    for kind in [ScheduleKind::Timer, ScheduleKind::Watch] {
        let mut after = None;
        loop {
            let page = r.schedules_of(kind, after).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.schedule_id);
            due.extend(page.into_iter().filter(|schedule| schedule.enabled && schedule.root_id == root_id));
        }
    }
    Ok(due)
}

/// Whether the lead's last turn over the job of this root finished: it waits for nothing but what others do. A lead that has had
/// hundreds of other turns since has not said so.
pub async fn said_no_more(r: &mut dyn Reads, root_id: RootId, lead: &AgentId) -> Result<bool> {
    let filter = TurnFilter { agent_id: Some(lead.clone()), limit: TURNS_MAX, ..TurnFilter::default() };
    let turns = r.turn_list(&filter).await?;
    Ok(turns.iter().find(|turn| turn.root_id == root_id).is_some_and(|turn| turn.status == TurnStatus::Finished))
}

/// Whether a turn over the job of this root has come to a bad end since the lead's latest one began: what the lead waits for may
/// never come then.
async fn went_wrong_since(r: &mut dyn Reads, root_id: RootId, lead: &AgentId) -> Result<bool> {
    let filter = TurnFilter { agent_id: Some(lead.clone()), limit: TURNS_MAX, ..TurnFilter::default() };
    let turns = r.turn_list(&filter).await?;
    let Some(since) = turns.iter().find(|turn| turn.root_id == root_id).map(|turn| turn.started_at) else {
        return Ok(false);
    };
    // What a crash has split goes on in turns of its own.
    for status in [TurnStatus::Failed, TurnStatus::Cancelled, TurnStatus::Dead] {
        let filter = TurnFilter { status: Some(status), limit: TURNS_MAX, ..TurnFilter::default() };
        let turns = r.turn_list(&filter).await?;
        if turns.iter().any(|turn| turn.root_id == root_id && turn.ended_at.is_some_and(|ended| ended >= since)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the job, which stands still, goes on without being begun again: by those who hold work of it, once they are started,
/// or by what is [`due`] later. A lead whose last turn failed waits for neither, and what is due may never come if something
/// went wrong since: a watch of a file whose writer has failed.
async fn goes_on(r: &mut dyn Reads, root_id: RootId, lead: &AgentId, stand: &Stand) -> Result<bool> {
    if stand.idle.contains_key(lead) {
        return Ok(true);
    }
    if !said_no_more(r, root_id, lead).await? {
        return Ok(false);
    }
    Ok(!stand.idle.is_empty() || (!due(r, root_id).await?.is_empty() && !went_wrong_since(r, root_id, lead).await?))
}

/// Gets an unfinished job going again that stands still: its lead is told of it anew, and so are the owners of its open
/// tasks. A turn that failed (a budget was spent, a provider was away) has consumed its mail, and nobody else would
/// begin again. Not while work of it waits for the lead to be started, nor while a lead that has [said no more](said_no_more)
/// waits for others who have to be started, or for a timer or watch of the job, unless something has failed since. Says whether
/// that was needed.
pub async fn revive(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    job_id: &str,
    lead: &AgentId,
    brief: String,
) -> Result<bool> {
    let Some(job) = w.job_get(job_id).await? else { return Ok(false) };
    if job.finished_at.is_some() {
        return Ok(false);
    }
    let Some(stand) = stand(w, ctx, job.root_id, lead).await? else { return Ok(false) };
    if goes_on(w, job.root_id, lead, &stand).await? {
        return Ok(false);
    }
    let chain = Chain { root_id: job.root_id, hop: 0 };
    let new_message = NewMessage {
        subject: Some(format!("Job {job_id}, once more")),
        ..NewMessage::new(lead, Party::System, Kind::System, brief, chain)
    };
    mail::deliver(w, ctx, new_message).await?;
    tasks::remind(w, ctx, job.root_id, lead).await?;
    Ok(true)
}

/// Records where a job's result is. Does nothing the second time.
pub async fn finish(w: &mut dyn Writes, ctx: &RuleContext, job_id: &str, result_path: &str) -> Result<Option<Job>> {
    let Some(mut job) = w.job_get(job_id).await? else { return Ok(None) };
    if job.finished_at.is_none() {
        job.finished_at = Some(ctx.now());
        job.result_path = Some(result_path.to_owned());
        w.job_put(&job).await?;
        let event = NewEvent::new(EventKind::JobFinished, json!({ "job_id": job_id, "result_path": result_path }))
            .correlation(job.root_id);
        ctx.emit(w, event).await?;
    }
    Ok(Some(job))
}
