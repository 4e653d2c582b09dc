//! Reload: reads the configuration again, describes the changes, and reconciles the records. If the
//! records cannot be changed, the old plan stays current.
//!
//! A plan whose records were not written must never stay current. Two reloads must never run at
//! once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ghost_config::diff::{Return, Returning, record_fields};
use ghost_config::plan::Plan;
use ghost_config::{FileChanges, ReloadPlan};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::{Agent, AgentId, AgentKind, AgentStatus, Code, Desired, Party, Refusal};
use ghost_operations::Tx;
use ghost_operations::declared;
use ghost_provider::Providers;
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::reconcile::{self, Reconciled, Reconciling, Stage, apply_fitness};
use crate::signal_router::{LifecycleStep, TeamMsg};
use crate::supervisor::adopt;
use crate::toolboxes;
use crate::world::{Reading, World};

/// Maximum time for reading the files.
const READ_MAX: Duration = Duration::from_secs(20);
/// Largest number of changes that a reload lists. A world may have 100,000 agents.
const LISTED_MAX: usize = 1_000;

impl World {
    /// Reads the configuration again and applies it. With `dry_run` it only describes the changes.
    pub async fn reload(&self, by: &Party, dry_run: bool) -> Result<Reconciled, Refusal> {
        let mut reading = self.reloading.lock().await;
        let (mut plan, mut providers) = self.read_anew(&mut reading).await?;
        let before = self.plan();
        if plan.world_id != before.world_id {
            return Err(Refusal::new(
                Code::Conflict,
                format!("the file now names the world `{}`, but `{}` runs", plan.world_id, before.world_id),
            )
            .hint("a world's id cannot change while it runs"));
        }
        let files = FileChanges {
            scripts: FileChanges::of(self.tree.engine.providers().scripts(), providers.scripts()),
            skills: FileChanges::of(before.skills.all(), plan.skills.all()),
        };
        let mut changes = ghost_config::diff(&before, &plan, &files);
        let records: Vec<Agent> = self.store().read(|r| r.agent_list(false)).await.map_err(Refusal::from)?;
        let records = records.into_iter().map(|agent| (agent.agent_id.clone(), agent)).collect();
        changes.returning(returning(&changes.added, &records, &before, &plan));
        describe_fitness(&mut changes, &records, &plan);
        let wanted = plan.declared.clone();
        changes.declared = self.read(move |r| declared::would(r, &wanted)).await?;
        // An agent that was deleted but is still in the file is created again. A comparison of the files does not
        // show it.
        let again: String = plan
            .agents
            .iter()
            .filter(|named| {
                self.tree.directory.card(&named.agent_id).is_none() && before.agent(&named.agent_id).is_some()
            })
            .map(|named| format!("+ agent {}\n", named.agent_id))
            .collect();
        let words = if changes.is_empty() && !again.is_empty() { again } else { format!("{again}{changes}") };
        let words = listed(&words);
        if dry_run {
            return Ok(Reconciled { plan: words, ..Reconciled::default() });
        }
        // The daemon keeps its places until it ends, so the next reload reports them again.
        plan.places.clone_from(&before.places);
        let plan = Arc::new(plan);
        // The plan becomes current before the records are written: a new agent must find its
        // archetype.
        let providers_before = self.tree.engine.providers();
        providers.keep_pools(&providers_before);
        self.apply_plan(&plan, Arc::new(providers)).await;
        let mut done = match self.reconcile(&plan, by, Some(words.clone())).await {
            Ok(done) => done,
            Err((refusal, has_written)) => {
                // The records could not be written, so the old plan becomes current again.
                self.apply_plan(&before, providers_before).await;
                self.follow_again(&before, has_written).await;
                return Err(refusal);
            }
        };
        for agent_id in done.updated.iter().chain(&done.created) {
            self.tree.signal_router.supervise(agent_id, LifecycleStep::Reconcile);
        }
        reconcile::log_access(&plan);
        done.plan = words;
        for line in &done.refused {
            done.plan = format!("{line}\n{}", done.plan);
        }
        Ok(done)
    }

    /// Makes the records agree with a plan. With the text of the changes, the last transaction writes the event of the
    /// reload.
    ///
    /// # Errors
    /// The refusal, and whether an earlier transaction has written: that of the refusal has not.
    async fn reconcile(
        &self,
        plan: &Arc<Plan>,
        by: &Party,
        mut text: Option<String>,
    ) -> Result<Reconciled, (Refusal, bool)> {
        let mut reconciling = Reconciling::new(Arc::clone(plan), by.clone(), Stage::Reload);
        let mut has_written = false;
        loop {
            let (by, now) = (by.clone(), text.take());
            let slice = move |w: &mut Tx| {
                let more = reconciling.slice(w)?;
                if let Some(text) = now.as_ref().filter(|_| !more) {
                    let done = &reconciling.done;
                    let payload = json!({
                        "by": by, "created": first(&done.created), "updated": first(&done.updated),
                        "started": first(&done.started), "stopped": first(&done.stopped), "plan": text,
                    });
                    w.emit(NewEvent::new(EventKind::WorldReloaded, payload))?;
                }
                Ok::<_, Refusal>((reconciling, more, now))
            };
            let more;
            (reconciling, more, text) = self.write(slice).await.map_err(|refusal| (refusal, has_written))?;
            if !more {
                return Ok(reconciling.done);
            }
            has_written = true;
        }
    }

    /// Makes the records follow the plan that is current again. If nothing was written under the withdrawn one, only the
    /// agents that its supervisors failed are repaired: a refused reload must change nothing else.
    async fn follow_again(&self, plan: &Arc<Plan>, has_written: bool) {
        let followed = if has_written {
            self.reconcile(plan, &Party::System, None).await.map(drop).map_err(|(refusal, _)| refusal)
        } else {
            let plan = Arc::clone(plan);
            let judge = move |w: &mut Tx| {
                let agents = w.agent_list(false)?;
                agents.iter().try_for_each(|agent| apply_fitness(w, &Party::System, &plan, Stage::Reload, agent))
            };
            self.write(judge).await
        };
        if let Err(error) = followed {
            tracing::warn!(%error, "records that follow the refused files do so until the next reload");
        }
    }

    /// Reads the plan and its providers on a thread of their own, so that a slow disk
    /// stops no agent. `reading` is the unfinished read of an earlier reload.
    async fn read_anew(&self, reading: &mut Reading) -> Result<(Plan, Providers), Refusal> {
        let stuck = |what: &str| {
            Refusal::new(Code::Unavailable, format!("{what}; the world runs on unchanged"))
                .hint("make sure that the disk with the world's directory can be read, then reload again")
        };
        if reading.as_ref().is_some_and(|reading| !reading.is_finished()) {
            return Err(stuck("the files of an earlier reload are still being read"));
        }
        let reloader = Arc::clone(&self.reloader);
        // Stored in `reading`, where the next reload finds it, because the caller may cancel this
        // reload.
        let reader = reading.insert(spawn_blocking(move || (*reloader)()));
        let read = tokio::select! {
            biased;
            read = reader => read,
            () = self.ctx().ports.clock.sleep(READ_MAX) => {
                return Err(stuck(&format!("the files could not be read within {} s", READ_MAX.as_secs())));
            }
        };
        *reading = None;
        read.map_err(|error| Refusal::new(Code::Internal, format!("reading the configuration panicked: {error}")))?
    }

    /// Makes a plan current, except its records.
    async fn apply_plan(&self, plan: &Arc<Plan>, providers: Arc<Providers>) {
        self.tree.engine.services.set_plan(Arc::clone(plan));
        self.tree.engine.set_providers(providers);
        reconcile::apply_rules(self.ctx(), &self.tree.directory, plan);
        toolboxes::refresh(&self.tree.engine).await;
        self.tree.engine.notify_plan_changed();
        self.replan(plan).await;
    }

    /// Sends every supervisor the new rules of its team, and starts supervisors for new teams.
    async fn replan(&self, plan: &Plan) {
        for team in &plan.teams {
            let name: Arc<str> = team.name.as_str().into();
            match self.tree.signal_router.supervisor(Some(&name)).filter(|_| self.tree.signal_router.has(&name)) {
                Some(supervisor) => drop(supervisor.cast(TeamMsg::Replan(team.clone()))),
                // If the root has ended, the world is ending. Until then the world's own supervisor
                // has these agents.
                None => drop(adopt(&self.root, Some(team.clone())).await),
            }
        }
    }
}

/// The lines of a plan that are shown: at most [`LISTED_MAX`], and the number of the others.
fn listed(plan: &str) -> String {
    let lines = plan.lines().count();
    if lines <= LISTED_MAX {
        return plan.to_owned();
    }
    let shown: String = plan.lines().take(LISTED_MAX).flat_map(|line| [line, "\n"]).collect();
    format!("{shown}= {} more changes, which are not listed\n", lines - LISTED_MAX)
}

fn first(agents: &[AgentId]) -> &[AgentId] {
    agents.get(..LISTED_MAX).unwrap_or(agents)
}

/// Describes how each agent of `added` that already has a record returns.
fn returning(
    added: &[AgentId],
    records: &BTreeMap<AgentId, Agent>,
    before: &Plan,
    plan: &Plan,
) -> BTreeMap<AgentId, Returning> {
    let one = |agent: &Agent| {
        let autostart = plan.agent(&agent.agent_id).is_some_and(|named| named.autostart);
        let how = match agent.desired {
            Desired::Running => Return::Runs,
            Desired::Stopped if agent.dropped && autostart => Return::Starts,
            Desired::Stopped => Return::StaysStopped,
        };
        Returning { how, fields: record_fields((before, agent), (plan, &planned(agent, plan))) }
    };
    added.iter().filter_map(|id| records.get(id)).map(|agent| (agent.agent_id.clone(), one(agent))).collect()
}

/// An agent's record as it will be under a plan.
fn planned(agent: &Agent, plan: &Plan) -> Agent {
    let Some(named) = plan.agent(&agent.agent_id) else { return agent.clone() };
    Agent {
        archetype: named.archetype.clone(),
        name: named.name.clone(),
        team: named.team.clone(),
        kind: AgentKind::Persistent,
        ..agent.clone()
    }
}

/// Adds to `changes` the agents that cannot run under the plan, and the agents that can run again.
fn describe_fitness(changes: &mut ReloadPlan, records: &BTreeMap<AgentId, Agent>, plan: &Plan) {
    let dropped: BTreeSet<AgentId> = changes.dropped.iter().cloned().collect();
    for agent in records.values() {
        let stays = match changes.returning.get(&agent.agent_id) {
            Some(returning) => returning.how != Return::StaysStopped,
            None => agent.desired == Desired::Running && !dropped.contains(&agent.agent_id),
        };
        if !stays {
            continue;
        }
        match plan.may_run(&planned(agent, plan)) {
            Ok(()) if agent.cannot_run => changes.repaired.push(agent.agent_id.clone()),
            Err(why) if agent.status != AgentStatus::Failed => {
                changes.cannot_run.insert(agent.agent_id.clone(), why.in_words());
            }
            Ok(()) | Err(_) => {}
        }
    }
    for named in plan.agents.iter().filter(|named| named.autostart && !records.contains_key(&named.agent_id)) {
        if let Err(why) = plan.may_start(named) {
            changes.cannot_run.insert(named.agent_id.clone(), why.in_words());
        }
    }
}
