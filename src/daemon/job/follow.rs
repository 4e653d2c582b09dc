//! Following a job in the event feed, from its beginning to its end, over daemons.
//!
//! Must never: take a job for done whose result nobody has written, or leave one without a word that nothing works on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::JobPlan;
use ghost_domain::event::{Event, EventFilter, EventKind};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{AgentId, Code, Job, Refusal, Schedule, ScheduleKind, Timestamp};
use ghost_rules::{feed::Subscription, jobs, tasks};
use ghost_tools::workspace::{DEPTH_MAX, ENTRIES_MAX, EntryKind};
use ghost_world::World;

use super::again::{Again, MayGoOn, may_go_on};
use super::begin::{Begun, revive};
use super::seen::{News, Seen};

/// Between two attempts to get a job going again, to look at it, or to write its end down.
const AGAIN: Duration = Duration::from_secs(30);
/// Timers and watches that are named one by one.
const NAMED: usize = 4;

/// A job that nothing works on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Why, in words.
    pub why: String,
    /// Who holds work of it and has to be started: then it goes on. With why that one cannot be started, if so.
    pub idle: BTreeMap<AgentId, Option<String>>,
    /// Whether something failed that has to be repaired.
    pub failed: bool,
    /// The watches that may get it going, as `ghostctl watch` takes them.
    pub watches: Vec<String>,
}

/// Follows the feed until the job's result is there, a file under the result directory that names the job, and it is the last
/// word on it: the turn that wrote it finished, or, if that one failed, a later one of its writer's; or else the lead finished a
/// turn that began since, no task is open, no timer or watch of the job is on, and nothing is at work. Gives the job's record
/// with its end.
///
/// A raised budget, the next day's, or a lead that is created again gets a job going that had come to a stand; `still` is told of
/// a job that nothing works on, once for each reason and each time that it had gone on. Nothing but the end of the world ends
/// this before the job has ended.
pub async fn follow(
    world: Arc<World>,
    plan: JobPlan,
    begun: Begun,
    still: impl Fn(&Standing) + Send,
) -> Result<Job, Refusal> {
    if begun.job.finished_at.is_some() {
        return Ok(begun.job);
    }
    let seen = Seen::new(&plan, &begun.job);
    let mut follower = Follower { world, plan, begun, still, seen, told: None, again: Again::default(), refused: None };
    let path = follower.end().await?;
    follower.finish(path).await
}

struct Follower<F> {
    world: Arc<World>,
    plan: JobPlan,
    begun: Begun,
    still: F,
    seen: Seen,
    /// What was told of the stand that it is at.
    told: Option<Standing>,
    /// When it is tried to get the job going again: something else may be at work just then, or the store may be unable to write.
    again: Again,
    /// Why that was refused, when it was tried last.
    refused: Option<String>,
}

impl<F: Fn(&Standing) + Send> Follower<F> {
    /// Waits for the end. Gives where the result is.
    async fn end(&mut self) -> Result<String, Refusal> {
        let kinds = Seen::KINDS.iter().map(|kind| kind.as_str().into()).collect();
        let filter = EventFilter { kinds, ..EventFilter::default() };
        // First what has happened, then what happens: what stands still at the start is told once, when all of it is known.
        let (mut after, mut live) = (0, false);
        loop {
            let mut events = Subscription::open(self.world.store(), Some(after), filter.clone(), live).await?;
            loop {
                let at = self.again.at();
                let next = tokio::select! {
                    next = events.next() => next,
                    () = self.world.ctx().ports.clock.sleep_until(at.unwrap_or(Timestamp(0))), if at.is_some() => {
                        if let Some(path) = self.wake().await {
                            return Ok(path);
                        }
                        continue;
                    }
                };
                let done = match next {
                    Ok(Some(event)) => self.take(&event, live).await,
                    Ok(None) if live => {
                        return Err(Refusal::new(Code::Unavailable, "the world stopped before the job ended"));
                    }
                    Ok(None) => {
                        (after, live) = (events.seen(), true);
                        if let Some(path) = self.look().await {
                            return Ok(path);
                        }
                        break;
                    }
                    // Behind: read on from storage.
                    Err(_) => {
                        after = events.seen();
                        break;
                    }
                };
                if let Some(path) = done {
                    return Ok(path);
                }
            }
        }
    }

    /// Does what is to be done by now: gets the job going again, or only looks. Gives where the result is if there is nothing
    /// left to wait for.
    async fn wake(&mut self) -> Option<String> {
        if let Some(tries) = self.again.take(self.world.ctx().now()) {
            self.try_again(tries).await;
        }
        self.look().await
    }

    /// Tries to get the job going again, which is tried so often after that.
    async fn try_again(&mut self, tries: u32) {
        let later = self.world.ctx().now().plus(AGAIN);
        match revive(&self.world, &self.plan, &self.begun.job, &self.begun.brief).await {
            Ok(true) => {
                self.again.it_goes_on();
                (self.told, self.refused) = (None, None);
            }
            Ok(false) => {
                if let Some(tries) = tries.checked_sub(1) {
                    self.again.try_at(later, tries);
                }
                self.refused = None;
            }
            // The store cannot write, or the lead is gone: it is tried until that is repaired.
            Err(refusal) => {
                self.again.try_at(later, tries);
                let refusal = refusal.to_string();
                if self.refused.as_ref() != Some(&refusal) {
                    tracing::warn!(refusal, "the job cannot be begun again yet");
                    self.refused = Some(refusal);
                }
            }
        }
    }

    /// Takes the next event. Gives where the result is if the job has ended.
    async fn take(&mut self, event: &Event, live: bool) -> Option<String> {
        if event.kind == EventKind::AgentStarted
            && self.told.as_ref().zip(event.agent_id.as_ref()).is_some_and(|(told, id)| told.idle.contains_key(id))
        {
            self.told = None;
        }
        let now = self.world.ctx().now();
        // What happened before this daemon took the job in counts only for a time that is still to come: a job that stood
        // still then was begun again.
        match may_go_on(event, &self.plan.lead, self.begun.job.root_id) {
            Some(MayGoOn::AtOnce) if event.seq > self.begun.after => self.again.at_once(now),
            Some(MayGoOn::NextDay(at)) if event.seq > self.begun.after || at > now => self.again.next_day(at),
            _ => {}
        }
        match self.seen.take(event) {
            News::Done(path) => return Some(path),
            News::GoesOn => self.told = None,
            News::Ended if live => return self.look().await,
            News::Ended | News::Nothing => {}
        }
        None
    }

    /// Looks whether the job stands still, and tells of it. Gives where the result is if there is nothing left to wait for.
    async fn look(&mut self) -> Option<String> {
        let (ctx, root_id, lead) = (self.world.ctx().clone(), self.begun.job.root_id, self.plan.lead.clone());
        let look = self.world.store().read(move |r| {
            Box::pin(async move {
                let Some(stand) = jobs::stand(r, &ctx, root_id, &lead).await? else { return Ok::<_, Refusal>(None) };
                let (open, due) = (tasks::held_up(r, root_id).await?, jobs::due(r, root_id).await?);
                let waits = !stand.idle.is_empty() || open.is_some() || !due.is_empty();
                let over = !waits && jobs::said_no_more(r, root_id, &lead).await?;
                Ok(Some((stand, open, due, over)))
            })
        });
        let (stand, open, due, over) = match look.await {
            Ok(Some(found)) => found,
            Ok(None) => return None,
            Err(refusal) => {
                tracing::warn!(%refusal, "whether the job stands still cannot be told yet");
                self.again.look_at(self.world.ctx().now().plus(AGAIN));
                return None;
            }
        };
        if over
            && self.seen.is_confirmed()
            && let Some(path) = self.result().await
        {
            return Some(path);
        }
        let failure = self.seen.failure();
        let timed = due.iter().any(|schedule| schedule.kind == ScheduleKind::Timer);
        if timed && stand.idle.is_empty() && failure.is_none() {
            // It goes on by itself.
            return None;
        }
        let mut why: Vec<String> = failure.map(str::to_owned).into_iter().collect();
        let lead = &self.plan.lead;
        why.extend(stand.lead.filter(|_| !stand.idle.contains_key(lead)).map(|how| format!("its lead {lead} {how}")));
        why.extend(stand.idle.iter().map(|(agent_id, held)| format!("{agent_id} {}", held.how)));
        why.extend(due.iter().take(NAMED).map(in_words));
        why.extend(due.len().checked_sub(NAMED).filter(|more| *more > 0).map(|more| format!("{more} more are on")));
        if why.is_empty() {
            why.push("its lead said no more".to_owned());
        }
        why.extend(open);
        why.extend(self.refused.as_ref().map(|refusal| format!("it cannot be begun again: {refusal}")));
        let watches = due.iter().filter(|schedule| schedule.kind == ScheduleKind::Watch).take(NAMED);
        let standing = Standing {
            why: why.join("; "),
            failed: failure.is_some(),
            watches: watches.map(|watch| format!("{}/{}", watch.agent_id, watch.name)).collect(),
            idle: stand.idle.into_iter().map(|(agent_id, held)| (agent_id, held.unfit)).collect(),
        };
        if self.told.as_ref() != Some(&standing) {
            (self.still)(&standing);
            self.told = Some(standing);
        }
        None
    }

    /// A result that is in the workspace, whoever has put it there: the one that was written last, if it is there still.
    async fn result(&self) -> Option<String> {
        let dir = WorkspacePath::parse(self.plan.result.trim_end_matches('/'), false).ok()?;
        let glob = format!("*{}*", self.begun.job.job_id);
        let found = self.world.engine().services.workspace.list(&dir, DEPTH_MAX, Some(&glob), ENTRIES_MAX).await;
        let entries = match found {
            Ok(found) => found.entries,
            Err(refusal) if refusal.code == Code::NotFound => return None,
            Err(refusal) => {
                tracing::warn!(%refusal, "whether the job's result is there cannot be told");
                return None;
            }
        };
        let files = entries.into_iter().filter(|entry| entry.kind == EntryKind::File).map(|entry| entry.path);
        let mut files: Vec<String> = files.filter(|path| self.seen.is_result(path)).collect();
        files.sort_by_key(|path| self.seen.result() != Some(path.as_str()));
        files.into_iter().next()
    }

    /// Writes the end down: as soon as that can be, on a full disk.
    async fn finish(self, path: String) -> Result<Job, Refusal> {
        let ctx = self.world.ctx();
        loop {
            let (own, job_id, path) = (ctx.clone(), self.begun.job.job_id.clone(), path.clone());
            let finished = self
                .world
                .store()
                .write(move |w| Box::pin(async move { jobs::finish(w, &own, &job_id, &path).await }))
                .await;
            match finished {
                Ok(finished) => return Ok(finished.unwrap_or(self.begun.job)),
                Err(refusal) if refusal.code == Code::Unavailable => {
                    tracing::warn!(%refusal, "the end of the job cannot be written down yet");
                    ctx.ports.clock.sleep(AGAIN).await;
                }
                Err(refusal) => return Err(refusal),
            }
        }
    }
}

/// A timer or watch that a job may go on by.
fn in_words(schedule: &Schedule) -> String {
    let Schedule { agent_id, kind, name, .. } = schedule;
    match schedule.next_at {
        Some(at) => format!("{agent_id}'s {kind} `{name}` goes off at {}", at.rfc3339()),
        None => format!("{agent_id}'s {kind} `{name}` is on"),
    }
}
