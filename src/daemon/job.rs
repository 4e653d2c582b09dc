//! The main job: its input is copied into the workspace once, under a name that follows from its content, and its end
//! is seen in the event feed (issue 2, 11).

mod input;

use std::sync::Arc;
use std::time::Duration;

use ghost_commons::{feed::Subscription, jobs, tasks};
use ghost_config::plan::JobPlan;
use ghost_domain::budget::next_day;
use ghost_domain::event::{Event, EventFilter, EventKind};
use ghost_domain::{AgentId, Code, Job, Refusal, Scope, Timestamp};
use ghost_world::World;

use input::{INPUTS, job_id};
pub use input::{Input, check_place, read};

/// Between two attempts to get a job going again, or to write its end down.
const AGAIN: Duration = Duration::from_secs(30);
/// Attempts after the first to get a job going again.
const TRIES: u32 = 20;

/// Takes the job in, unless that was done before, and gives its record and the words that its lead is told. An unfinished
/// job that stands still is begun again where it is.
///
/// # Errors
/// When the workspace or the store refuses.
pub async fn begin(world: &World, plan: &JobPlan, files: &[Input]) -> Result<(Job, String), Refusal> {
    let job_id = job_id(files);
    let base = format!("{INPUTS}/{job_id}");
    // Written before the job is recorded: a crash between the two writes the same bytes again.
    let workspace = &world.engine().office.workspace;
    for file in files {
        let path = file.path.under(&base);
        if workspace.hash(&path).await?.is_none() {
            workspace.write_atomic(&path, &file.bytes).await?;
        }
    }
    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
    let brief =
        plan.brief.replace("{job_id}", &job_id).replace("{input}", &base).replace("{files}", &count.to_string());
    let (cx, lead, words) = (world.cx().clone(), plan.lead.clone(), brief.clone());
    let job = world
        .store()
        .write(move |w| {
            Box::pin(async move {
                let (job, new) = jobs::begin(w, &cx, &job_id, count, &lead, words.clone()).await?;
                if !new {
                    jobs::revive(w, &cx, &job.job_id, &lead, words).await?;
                }
                Ok::<_, Refusal>(job)
            })
        })
        .await?;
    Ok((job, brief))
}

/// Gets a job going again that stands still. Gives whether it did; not if something is at work, or the store cannot write.
async fn revived(world: &World, plan: &JobPlan, job: &Job, brief: &str) -> Result<bool, Refusal> {
    match revive(world, plan, job, brief).await {
        Err(refusal) if refusal.code == Code::Unavailable => {
            tracing::warn!(%refusal, "the job cannot be begun again yet");
            Ok(false)
        }
        other => other,
    }
}

async fn revive(world: &World, plan: &JobPlan, job: &Job, brief: &str) -> Result<bool, Refusal> {
    let (cx, job_id, lead, brief) = (world.cx().clone(), job.job_id.clone(), plan.lead.clone(), brief.to_owned());
    world.store().write(move |w| Box::pin(async move { jobs::revive(w, &cx, &job_id, &lead, brief).await })).await
}

/// Follows the feed until the job's result is there: a file under the result directory that names the job, and the end of
/// the turn that wrote it. Gives the job's record with its end.
///
/// A raised budget, or the next day's, gets a job going again that had come to a stand; `still` is told, once for each reason, of a job that
/// nothing works on.
pub async fn follow(
    world: Arc<World>,
    plan: JobPlan,
    job: Job,
    brief: String,
    still: impl Fn(&str) + Send,
) -> Result<Job, Refusal> {
    if job.finished_at.is_some() {
        return Ok(job);
    }
    let kinds = [
        EventKind::ArtifactCreated,
        EventKind::TurnFinished,
        EventKind::BudgetSet,
        EventKind::BudgetExhausted,
        EventKind::DeadLetterHeld,
        EventKind::AgentStopped,
        EventKind::AgentFailed,
    ];
    let filter =
        EventFilter { kinds: kinds.iter().map(|kind| kind.as_str().into()).collect(), ..EventFilter::default() };
    let mut after = 0;
    let began = world.store().last_seq();
    let mut told = String::new();
    let mut writer: Option<(String, String)> = None;
    // When it is tried to get the job going again, and how often it is tried after that: something else may be at work just
    // then, or the store may be unable to write.
    let mut again: Option<(Timestamp, u32)> = None;
    loop {
        let mut events = Subscription::open(world.store(), Some(after), filter.clone(), true).await?;
        loop {
            let next = tokio::select! {
                next = events.next() => next,
                () = world.cx().ports.clock.sleep_until(again.map_or(Timestamp(0), |(at, _)| at)), if again.is_some() => {
                    let tries = again.take().map_or(0, |(_, tries)| tries);
                    if !revived(&world, &plan, &job, &brief).await? && tries > 0 {
                        again = Some((world.cx().now().plus(AGAIN), tries - 1));
                    }
                    continue;
                }
            };
            let event = match next {
                Ok(Some(event)) => event,
                Ok(None) => return Err(Refusal::new(Code::Unavailable, "the world stopped before the job ended")),
                // Behind: read on from storage.
                Err(_) => {
                    after = events.seen();
                    break;
                }
            };
            let text = |field: &str| event.payload.get(field).and_then(|value| value.as_str()).unwrap_or_default();
            if event.kind == EventKind::ArtifactCreated {
                let path = text("path");
                let within =
                    path.strip_prefix(plan.result.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'));
                if within && path.contains(&job.job_id) {
                    writer = Some((path.to_owned(), text("turn_id").to_owned()));
                }
            } else if let Some((path, turn_id)) = &writer
                && text("turn_id") == turn_id
                && text("status") == "finished"
            {
                let (cx, job_id, path) = (world.cx().clone(), job.job_id.clone(), path.clone());
                loop {
                    let (cx, job_id, path) = (cx.clone(), job_id.clone(), path.clone());
                    let finished = world
                        .store()
                        .write(move |w| Box::pin(async move { jobs::finish(w, &cx, &job_id, &path).await }))
                        .await;
                    match finished {
                        Ok(finished) => return Ok(finished.unwrap_or(job)),
                        // A full disk: the result is there, and so it is written down as soon as that can be.
                        Err(refusal) if refusal.code == Code::Unavailable => {
                            tracing::warn!(%refusal, "the end of the job cannot be written down yet");
                            world.cx().ports.clock.sleep(AGAIN).await;
                        }
                        Err(refusal) => return Err(refusal),
                    }
                }
            } else if event.seq > began {
                // What happened before is history: a job that stood still then was begun again when this daemon started.
                if matches!(event.kind, EventKind::BudgetSet | EventKind::BudgetExhausted) {
                    again = may_go_on(&event, world.cx().now()).map(|at| (at, TRIES)).or(again);
                    continue;
                }
                let why = match event.kind {
                    EventKind::TurnFinished if text("status") == "finished" => "its lead said no more".to_owned(),
                    EventKind::AgentStopped | EventKind::AgentFailed => {
                        format!("{} works no more", event.agent_id.as_ref().map_or("an agent", AgentId::as_str))
                    }
                    _ => text("reason").to_owned(),
                };
                let root_id = job.root_id;
                let look = world.store().read(move |r| {
                    Box::pin(async move {
                        let stands = jobs::has_come_to_a_stand(r).await?;
                        let held_up = if stands { tasks::held_up(r, root_id).await? } else { None };
                        Ok::<_, Refusal>((stands, held_up))
                    })
                });
                let (stands, held_up) = look.await?;
                let why = match held_up {
                    Some(open) => format!("{why}; {open}"),
                    None => why,
                };
                if stands && why != told {
                    still(&why);
                    told = why;
                }
            }
        }
    }
}

/// When a job that stands still may go on, going by what an event says of budgets: at once where a limit was set, the next
/// day where that of a day is spent. What archetypes give the agents that are created says nothing about the job: a world
/// that creates agents all night must not begin a failing job again with each of them.
fn may_go_on(event: &Event, now: Timestamp) -> Option<Timestamp> {
    let text = |pointer: &str| event.payload.pointer(pointer).and_then(|text| text.as_str()).unwrap_or_default();
    match event.kind {
        EventKind::BudgetSet => (text("/origin") != "archetype").then_some(now),
        EventKind::BudgetExhausted => {
            matches!(text("/details/scope").parse(), Ok(Scope::Day(_))).then(|| next_day(event.ts))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::EventId;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_goes_on_when_someone_raised_a_budget_or_a_day_begins_and_not_because_an_agent_was_created() {
        let (ts, now) = (Timestamp(86_400_000), Timestamp(86_400_007));
        let at = |kind, payload| {
            let event_id = EventId(uuid::Uuid::nil());
            let event =
                Event { seq: 1, event_id, ts, kind, agent_id: None, channel: None, correlation_id: None, payload };
            may_go_on(&event, now)
        };
        let set = |origin: &str| at(EventKind::BudgetSet, json!({ "scope": "agent:a/day", "origin": origin }));
        assert_eq!((set("hand"), set("file"), set("archetype")), (Some(now), Some(now), None));
        let spent = |scope: &str| at(EventKind::BudgetExhausted, json!({ "details": { "scope": scope } }));
        assert_eq!((spent("world/day"), spent("world")), (Some(Timestamp(2 * 86_400_000)), None));
        assert_eq!(at(EventKind::TurnFinished, json!({})), None);
    }
}
