//! Admits an agent's next turn: its work is read, and a slot of its model's provider is waited for. No turn opens while all
//! its models are down, or before its provider has a slot for it: mail in the inbox costs less memory than an open turn,
//! and mail that arrives meanwhile joins it.
//!
//! This module must never take mail before it has a slot. It must never hold a slot while it waits for a model.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::poll_immediate;
use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::JournalRow;
use ghost_domain::{Activity, Envelope, HeldSkill, Kind, Party, Refusal};
use ghost_operations::turns::{self, FoundMail, Next, Taken};
use ghost_provider::{Admitted, Class, Entry, Slot};
use serde_json::json;

use super::gate::{Admission, Change, Changes, Waiting, Worker, model_order, registered, why_down};
use crate::session::Room;

/// What a turn begins with.
pub(super) struct Start {
    pub(super) taken: Taken,
    /// The prompt's sources, if they were read.
    pub(super) sources: Option<Sources>,
    /// For the first model call. A resumed turn has none: it may first run calls, which can take long.
    pub(super) admission: Option<Admission>,
}

/// The data from the store that a prompt needs.
#[derive(Default)]
pub(super) struct Sources {
    pub(super) held: Vec<HeldSkill>,
    pub(super) earlier: Vec<Vec<JournalRow>>,
    pub(super) journal: Vec<JournalRow>,
    pub(super) stored: Option<(String, String)>,
}

/// The agent's next work, the prompt's sources if they were read, and the mail capacity and models
/// of the turn.
type NextWork = (Next, Option<Sources>, Room);

impl Room {
    /// The mail capacity and the models of an agent with this spec under `plan`.
    pub(super) fn of(plan: &Plan, spec: &AgentSpec) -> Self {
        Self { bytes: turns::mail_room(spec.limits.context_bytes), models: model_order(plan, spec).into() }
    }
}

/// Whether a turn over this mail calls its model for a person or for a machine.
pub(super) fn class(mail: &[Envelope]) -> Class {
    let person =
        |envelope: &Envelope| envelope.kind == Kind::Conversation || matches!(envelope.from, Party::Operator(_));
    if mail.iter().any(person) { Class::Person } else { Class::Machine }
}

/// Whether an agent's next turn may begin.
pub(super) enum NextTurn {
    /// There is no work.
    Nothing,
    /// The agent has waited: its next work must be read again.
    Waited,
    /// The agent cannot run under the current plan.
    CannotRun(Refusal),
    /// It begins. The flag says whether more mail is left.
    Begins(Box<Start>, bool),
}

/// Whether a turn may be opened.
enum Opening {
    /// It may. There is no admission if the turn itself must report that its provider does not exist.
    Now(Option<Admission>),
    /// This provider has no slot: wait with [`Worker::wait_for_slot`], then read the agent's next work again.
    Queue(Arc<Entry>),
    /// This has waited for a model: the agent's next work must be read again.
    Waited,
}

impl Worker<'_> {
    /// Reads the agent's next work and takes it into a turn, if that may begin now. `slot` is a slot that the agent has
    /// waited for, or gets here.
    pub(super) async fn admit(self, slot: &mut Option<Slot>) -> Result<NextTurn, Refusal> {
        if self.wait_for_pace(slot).await? {
            return Ok(NextTurn::Waited);
        }
        // Read before the inbox, so that the inbox read uses this plan or a later one.
        let plan = self.engine.services.plan();
        let (next, sources, room) = match self.read_next().await? {
            Ok(work) => work,
            Err(why) => return Ok(NextTurn::CannotRun(why)),
        };
        if !matches!(next, Next::Nothing) && self.wait_for_room().await {
            *slot = None;
            return Ok(NextTurn::Waited);
        }
        let admission = match &next {
            Next::Mail { mail, .. } => {
                let class = class(mail);
                match self.wait_for_model(&plan, &room.models, class, slot).await? {
                    Opening::Now(admission) => admission,
                    Opening::Waited => return Ok(NextTurn::Waited),
                    Opening::Queue(entry) => {
                        // The wait may be long, and the mail is in the store.
                        drop((next, sources));
                        *slot = Some(self.wait_for_slot(&entry, class).await);
                        return Ok(NextTurn::Waited);
                    }
                }
            }
            Next::Nothing | Next::Resume => None,
        };
        // A turn that goes on asks for a slot when it needs one. Holding one would make it wait for itself.
        *slot = None;
        let (seen, more) = match next {
            Next::Nothing => return Ok(NextTurn::Nothing),
            Next::Resume => (None, true),
            Next::Mail { mail, more, behind, unread, .. } => {
                (Some(FoundMail { mail, behind, unread, bytes_max: room.bytes }), more)
            }
        };
        let id = self.agent_id.clone();
        let taken = self.engine.services.write(move |w| turns::take(w, &id, seen)).await?;
        let Some(taken) = taken else { return Ok(NextTurn::Nothing) };
        let admission = admission.filter(|_| !taken.resumed);
        Ok(NextTurn::Begins(Box::new(Start { taken, sources, admission }), more))
    }

    /// Waits if the agent has opened as many turns as it may in a minute. Returns whether it has waited. The next turn takes
    /// all mail that arrives meanwhile.
    async fn wait_for_pace(self, slot: &mut Option<Slot>) -> Result<bool, Refusal> {
        let ctx = &self.engine.services.ctx;
        let limit = ctx.limits().agent_turns_per_minute;
        let Some((wait, report)) = self.session.pace(ctx.ports.clock.steady(), limit) else { return Ok(false) };
        *slot = None;
        if report {
            let payload = json!({ "limit": "agent_turns_per_minute", "value": limit });
            let event = NewEvent::new(EventKind::LimitReached, payload).agent(self.agent_id);
            self.engine.services.write(move |w| w.emit(event)).await?;
        }
        ctx.ports.clock.sleep(wait).await;
        self.session.end_pace_wait();
        Ok(true)
    }

    /// Reads the agent's next work and, in the same read, the sources for the prompt of a new turn. It
    /// takes no snapshot: only the agent's own turns change these rows, and none is running. The inner
    /// refusal says why the agent cannot run at all.
    async fn read_next(self) -> Result<Result<NextWork, Refusal>, Refusal> {
        let services = &self.engine.services;
        let (id, plan) = (self.agent_id.clone(), services.plan());
        let (no_open_turn, room) = (self.session.has_no_open_turn(), self.session.room(&plan));
        let read = services.ctx.read_latest(&services.store, move |r| {
            let room = match room {
                Some(room) => room,
                None => match r.agent_get(&id)?.map(|agent| plan.spec_for(&agent)) {
                    Some(Ok(spec)) => Room::of(&plan, &spec),
                    Some(Err(refusal)) => return Ok(Err(refusal)),
                    None => Room { bytes: turns::mail_room(r.ctx.limits().context_bytes), models: Arc::default() },
                },
            };
            let mut next = turns::next(r, &id, no_open_turn, room.bytes)?;
            let sources = match &mut next {
                Next::Mail { skills, .. } => Some(Sources { held: std::mem::take(skills), ..Sources::default() }),
                Next::Nothing | Next::Resume => None,
            };
            Ok(Ok((next, sources, room)))
        });
        let work = read.await;
        if work.is_err() {
            // The request to try an open turn again was consumed by this read, so it is restored.
            self.session.forget_no_open_turn();
        }
        work
    }

    /// Waits for a slot of a provider, before a turn is opened.
    async fn wait_for_slot(self, entry: &Entry, class: Class) -> Slot {
        self.engine.activity.show(self.agent_id, Activity::Queued);
        let _wait = Waiting::in_queue(self);
        entry.pool.admit(class).await
    }

    /// Waits, before a turn is opened, while all models of the agent are down. If one may be asked, the turn gets its pass
    /// and a slot of its provider: `slot`, if the agent has waited for one.
    async fn wait_for_model(
        self,
        plan: &Arc<Plan>,
        models: &[(String, String)],
        class: Class,
        slot: &mut Option<Slot>,
    ) -> Result<Opening, Refusal> {
        let mut waiting: Option<Waiting<'_>> = None;
        loop {
            let providers = self.engine.providers();
            let entries: Vec<(Arc<Entry>, &str)> = models
                .iter()
                .filter_map(|(provider, model)| Some((providers.get(provider)?, model.as_str())))
                .collect();
            let breakers = entries.iter().map(|(entry, _)| registered(entry.breaker.changed()));
            let changes = Changes::begin(self.engine, self.session, breakers.collect());
            if !Arc::ptr_eq(plan, &self.engine.services.plan()) {
                return Ok(Opening::Waited);
            }
            if entries.len() < models.len() || entries.is_empty() {
                // If a provider does not exist, the turn itself reports it.
                return Ok(Opening::Now(None));
            }
            let mut until = None;
            for (entry, model) in &entries {
                match entry.breaker.admit(model) {
                    // After a wait the pass is given back. It is requested again after the next inbox
                    // read.
                    Admitted::Pass(_) if waiting.is_some() => return Ok(Opening::Waited),
                    Admitted::Pass(pass) => {
                        let slot = match slot.take().filter(|slot| slot.is_of(&entry.pool)) {
                            Some(slot) => Some(slot),
                            None => poll_immediate(pin!(entry.pool.admit(class))).await,
                        };
                        return Ok(match slot {
                            Some(slot) => Opening::Now(Some(Admission { pass, slot })),
                            // Others may probe the model during the wait, so the pass is given back.
                            None => Opening::Queue(Arc::clone(entry)),
                        });
                    }
                    Admitted::Wait(due) => until = until.into_iter().chain(due).min(),
                }
            }
            *slot = None;
            let why = why_down(entries.iter().map(|(entry, model)| (&**entry, *model)));
            if waiting.as_ref().is_none_or(|waiting| waiting.repair != why.repair) {
                self.engine.activity.show(self.agent_id, Activity::Queued);
                waiting = Some(Waiting::for_models(self, why).await?);
            }
            match changes.until(until).await {
                Change::Availability => {}
                Change::RetryRequested => entries.iter().for_each(|(entry, model)| entry.breaker.probe_now(model)),
                Change::PlanChanged => return Ok(Opening::Waited),
            }
        }
    }
}
