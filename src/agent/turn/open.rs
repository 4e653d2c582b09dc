//! Opens a turn: from its journal if it has one, otherwise with a new prompt.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::journal::{JournalRow, Step};
use ghost_domain::mail::channel_of;
use ghost_domain::schedule::OwnTurn;
use ghost_domain::transcript::{Message, Role, ToolSpec};
use ghost_domain::{
    AgentId, AgentKind, ChannelContext, Code, Droid, Envelope, HeldSkill, Kind, MessageId, Party, Refusal, Turn,
};
use ghost_operations::mail::agent_for_operator;
use ghost_operations::turns::{self, BriefedLog, Next, Taken};
use ghost_provider::{Class, tool_bytes};
use ghost_tools::loop_guard::LoopGuard;

use super::droid;
use super::load_log::{self, CRON, SessionLog, log_room};
use super::runner::{Runner, view};
use super::session::{AgentSession, Room};
use super::turn_tools::{TurnTools, seen_before};
use crate::engine::Engine;
use crate::log::Log;
use crate::prompt::{self, Part, Section, Size};
use crate::transcript::{Transcript, drop_state};

/// The data from the store that a prompt needs.
#[derive(Default)]
pub(super) struct Sources {
    held: Vec<HeldSkill>,
    earlier: Vec<Vec<JournalRow>>,
    journal: Vec<JournalRow>,
    stored: Option<(String, String)>,
}

/// Why the agent's next turn cannot run.
pub(super) enum OpenError {
    /// The agent cannot run under the current plan. The turn stays open until it can.
    CannotRun(Refusal),
    /// This turn cannot run; it fails.
    Failed(Refusal),
}

/// The agent's next work, the prompt's sources if they were read, and the mail capacity and models
/// of the turn.
pub(super) type NextWork = (Next, Option<Sources>, Room);

impl Room {
    /// The mail capacity and the models of an agent with this spec under `plan`.
    pub(super) fn of(plan: &Plan, spec: &AgentSpec) -> Self {
        Self { bytes: turns::mail_room(spec.limits.context_bytes), models: model_order(plan, spec).into() }
    }
}

/// The models that an agent asks, in order: provider and model.
pub(super) fn model_order(plan: &Plan, spec: &AgentSpec) -> Vec<(String, String)> {
    let first = spec.model.provider.clone().unwrap_or_else(|| plan.llm.default_provider.clone());
    let model = spec.model.model.clone().unwrap_or_else(|| plan.llm.default_model.clone());
    let fallbacks = spec.model.fallback_models.iter().map(|fallback| {
        let (provider, model) = plan.llm.fallback_target(&first, fallback);
        (provider.to_owned(), model.to_owned())
    });
    let fallbacks: Vec<_> = fallbacks.collect();
    std::iter::once((first, model)).chain(fallbacks).collect()
}

/// Whether a turn over this mail calls its model for a person or for a machine.
pub(super) fn class(mail: &[Envelope]) -> Class {
    let person =
        |envelope: &Envelope| envelope.kind == Kind::Conversation || matches!(envelope.from, Party::Operator(_));
    if mail.iter().any(person) { Class::Person } else { Class::Machine }
}

impl Runner {
    /// Opens the turn, if it can run.
    pub(super) async fn open(
        engine: &Arc<Engine>,
        taken: Taken,
        sources: Option<Sources>,
        session: &Arc<AgentSession>,
    ) -> Result<Result<Self, OpenError>, Refusal> {
        let sources = match sources {
            // Read for a new turn. A turn with a journal, or mail that was in an earlier turn,
            // needs more.
            Some(sources) if !taken.resumed && taken.earlier.is_empty() => sources,
            _ => read_sources(engine, &taken).await?,
        };
        let (channel, has_ended) = match channel(&taken, &sources.journal) {
            Some(channel) => (Some(channel), false),
            None => own_conversation(engine, &taken.turn).await?,
        };
        let profile = match engine.profile(&taken.agent, channel, &sources.held) {
            Ok(profile) => profile,
            Err(refusal) => return Ok(Err(OpenError::CannotRun(refusal))),
        };
        let (mut spec, mut registry) = (Arc::clone(&profile.spec), profile.registry.clone());
        let seen = match sources.journal.iter().any(|row| matches!(row.step, Step::Briefed { .. })) {
            true => seen_before(&sources.journal),
            false => registry.is_live().then(|| registry.seen()),
        };
        if let Some(seen) = &seen {
            registry = registry.keeping(seen);
        }
        let live = seen.map(|seen| TurnTools::new(taken.agent.clone(), sources.held.clone(), seen));
        let job = job(engine, &taken).await?;
        let is_droid = taken.agent.kind == AgentKind::Droid;
        if !is_droid {
            session.make_home(&engine.services.workspace, &taken.agent.agent_id).await;
        } else if let Some(droid) = &taken.droid
            && let Err(refusal) = droid::prepare(engine, droid, is_first_turn(&taken, droid)).await
        {
            return Ok(Err(OpenError::Failed(refusal)));
        }
        let timed = is_droid || job.as_ref().is_some_and(|job| job.timeout_seconds.is_some());
        if let Some(job) = &job {
            let mut own = AgentSpec::clone(&spec);
            if let Err(refusal) = apply_job(&mut own, &engine.services.plan(), job) {
                return Ok(Err(OpenError::Failed(refusal)));
            }
            spec = Arc::new(own);
        }
        session.set_room(&profile.plan, Room::of(&profile.plan, &profile.spec));
        let limits = engine.services.ctx.limits();
        let own_view = spec.limits.result_view_bytes;
        let alone = taken.turn.parked.as_ref().map_or(0, |parked| parked.alone);
        let transcript =
            Transcript::unfold(&sources.journal, &|tool, outcome| view(&registry, &limits, own_view, tool, outcome));
        let briefed = transcript.opening.is_some();
        let session_log = SessionLog {
            engine,
            registry: &registry,
            agent_id: &taken.turn.agent_id,
            conversation_id: taken.turn.conversation_id,
            born: taken.agent.created_at,
            view_bytes: own_view,
        };
        let mut briefed_log = BriefedLog::default();
        // Taken by every turn, because every turn makes it stale.
        let log_version = engine.log_version();
        let last_log = session.take_log(taken.turn.conversation_id, &profile.plan, log_version);
        let (system, briefing, log, mail) = match (transcript.prompt, transcript.opening, sources.stored) {
            (Some((system_hash, briefing_hash)), Some((range, mail)), Some((system, briefing))) => {
                let system = Part { hash: system_hash, text: system };
                let briefing = Part { hash: briefing_hash, text: briefing };
                let log = match range {
                    Some(range) => session_log.range(range).await?,
                    None => Log::default(),
                };
                (Arc::new(system), Arc::new(briefing), log, mail)
            }
            (Some(_), ..) => {
                return Err(Refusal::new(
                    Code::Internal,
                    format!("the prompt of turn {} is missing", taken.turn.turn_id),
                ));
            }
            (None, ..) => {
                let mut mail = prompt::inbox(&taken.mail);
                if has_ended {
                    mail = format!("{mail}\n{}", prompt::ENDED_CONVERSATION);
                }
                // The mail of a job says where the last text of its own turn goes.
                if let Some(channel) = channel.filter(|channel| channel.replies || taken.turn.source != CRON) {
                    let channel_options = channel_options(engine, channel, &spec.archetype.name).await?;
                    mail = format!("{mail}\n{}", prompt::channel(channel, &channel_options));
                }
                for journal in &sources.earlier {
                    if let Some(note) = prompt::earlier_note(journal) {
                        mail = format!("{note}\n{mail}");
                    }
                }
                // A cron job's own turn has no past, and no other turn quotes it (SCHED-05).
                let mut log = Log::default();
                if taken.turn.source != CRON {
                    let room = log_room(&limits, spec.limits.context_bytes);
                    log = match last_log {
                        // No job of this agent has run since the log was remembered.
                        Some(log) => log,
                        // No turn of this agent has ended.
                        None if taken.agent.last_active_at.is_none() => Log::default(),
                        None => {
                            let log = session_log.newest(room).await?;
                            let jobs = prompt::jobs(&session_log.jobs_since(&log).await?);
                            // The mail of a turn leaves half of the context to its log and its work.
                            let left = turns::mail_room(spec.limits.context_bytes).saturating_sub(mail.len());
                            let said = prompt::said(&session_log.said_since(&log).await?, left);
                            for block in [jobs, said] {
                                if !block.is_empty() {
                                    mail = format!("{block}\n{mail}");
                                }
                            }
                            log
                        }
                    };
                    briefed_log = load_log::briefed(&mut log, room);
                }
                // A job may set a model of its own, which the system part names.
                let system = match job {
                    Some(_) => {
                        let sections = prompt::system(&engine.services.plan(), &taken.agent, &spec);
                        Arc::new(Part::new(prompt::join(&sections)))
                    }
                    None => Arc::clone(&profile.system),
                };
                (system, Arc::clone(&profile.briefing), log, mail)
            }
        };
        let mut messages = vec![Message::text(Role::User, briefing.text.clone())];
        messages.extend(log.messages());
        if transcript.state_dropped {
            drop_state(&mut messages);
        }
        let past = messages.len();
        messages.push(Message::text(Role::User, mail.clone()));
        messages.extend(transcript.messages);
        let guard = LoopGuard::replay(&limits, &sources.journal, &|name, arguments| registry.nature(name, arguments));
        let context = spec.limits.context_bytes as usize;
        let context = transcript.context.map_or(context, |shortened| shortened.min(context));
        let class = class(&taken.mail);
        Ok(Ok(Self {
            engine: Arc::clone(engine),
            agent_id: taken.turn.agent_id.clone(),
            turn: taken.turn,
            spec,
            registry,
            system,
            briefing,
            log,
            briefed_log,
            log_version,
            mail,
            briefed,
            messages: Arc::new(messages),
            past,
            whole: !taken.resumed,
            context,
            open: transcript.open,
            prepared: None,
            pending_result: None,
            rounds: transcript.rounds,
            corrections: transcript.corrections,
            failures: transcript.failures,
            guard,
            loop_stop: None,
            worked: Duration::ZERO,
            paused_ms: AtomicU64::new(0),
            session: Arc::clone(session),
            timed,
            class,
            alone,
            admission: None,
            plan: Arc::clone(&profile.plan),
            plan_of_tools: Arc::clone(&profile.plan),
            live,
            reopen: false,
            reports_activity: true,
        }))
    }
}

/// Whether no turn of the droid has begun before.
fn is_first_turn(taken: &Taken, droid: &Droid) -> bool {
    !taken.resumed && taken.earlier.is_empty() && droid.used.turns == 0
}

/// The own turn of a cron job that this turn is.
async fn job(engine: &Arc<Engine>, taken: &Taken) -> Result<Option<OwnTurn>, Refusal> {
    let Some(mail) = taken.mail.iter().find(|envelope| envelope.kind == Kind::CronTurn) else { return Ok(None) };
    let message_id = mail.message_id;
    let run = engine.services.store.read(move |r| r.schedule_run_of(message_id)).await;
    Ok(run.map_err(Refusal::from)?.and_then(|run| run.own_turn))
}

/// Applies a job's limits and model to a turn. Limits only become smaller.
fn apply_job(spec: &mut AgentSpec, plan: &Plan, job: &OwnTurn) -> Result<(), Refusal> {
    let smaller = |own: u32, job: Option<u32>| job.map_or(own, |job| job.min(own));
    spec.limits.turn_seconds = smaller(spec.limits.turn_seconds, job.timeout_seconds);
    spec.limits.turn_rounds_max = smaller(spec.limits.turn_rounds_max, job.max_rounds);
    if let Some(name) = &job.model {
        let own = spec.model.provider.clone().unwrap_or_else(|| plan.llm.default_provider.clone());
        let (provider, model) = plan.model_named(&own, name)?;
        // A fall-back without a provider means the agent's own provider, which the job may just
        // have changed.
        for fallback in &mut spec.model.fallback_models {
            let (provider, model) = plan.llm.fallback_target(&own, fallback);
            *fallback = format!("{provider}/{model}");
        }
        spec.model.provider = Some(provider);
        spec.model.model = Some(model);
    }
    Ok(())
}

/// The actions that are possible in a turn's conversation, and how freely the agent reacts there.
async fn channel_options(
    engine: &Arc<Engine>,
    channel: ChannelContext,
    archetype: &str,
) -> Result<prompt::ChannelOptions, Refusal> {
    let id = channel.conversation_id;
    let read = engine.services.store.read(move |r| r.conversation_get(id)).await;
    let plan = engine.services.plan();
    // A conversation that retention has deleted allows no actions.
    let adapter = read?.map(|conversation| conversation.adapter).unwrap_or_default();
    Ok(prompt::ChannelOptions {
        actions: plan.channel_actions(&adapter).to_vec(),
        reactions: plan.reactions_of(archetype),
        gap: engine.services.ctx.limits().reaction_gap,
    })
}

/// The outside conversation that a turn comes from. Mail that joined the running turn is ignored,
/// so a resumed turn has the same tools as when it was opened.
fn channel(taken: &Taken, journal: &[JournalRow]) -> Option<ChannelContext> {
    let joined: BTreeSet<MessageId> = journal
        .iter()
        .filter_map(|row| match &row.step {
            Step::MailJoined { messages } => Some(messages),
            _ => None,
        })
        .flatten()
        .copied()
        .collect();
    channel_of(taken.mail.iter().filter(|envelope| !joined.contains(&envelope.message_id)))
}

/// The conversation of the turn's session, if the turn's agent answers in it (MSG-12). The turn may speak there without
/// owing a reply. Any other agent of the chain may not. The flag says whether the conversation no longer exists.
async fn own_conversation(engine: &Arc<Engine>, turn: &Turn) -> Result<(Option<ChannelContext>, bool), Refusal> {
    let Some(conversation_id) = turn.conversation_id else { return Ok((None, false)) };
    let store = &engine.services.store;
    let found = store.read(move |r| r.conversation_get(conversation_id)).await?;
    let own = found.as_ref().is_some_and(|conversation| conversation.owner == turn.agent_id);
    Ok((own.then_some(ChannelContext { conversation_id, replies: false }), found.is_none()))
}

/// Reads the agent's next work and, in the same read, the sources for the prompt of a new turn. It
/// takes no snapshot: only the agent's own turns change these rows, and none is running. The inner
/// refusal says why the agent cannot run at all.
pub(super) async fn read_next(
    engine: &Arc<Engine>,
    agent_id: &AgentId,
    session: &AgentSession,
) -> Result<Result<NextWork, Refusal>, Refusal> {
    let (ctx, id, plan) = (engine.services.ctx.clone(), agent_id.clone(), engine.services.plan());
    let (no_open_turn, room) = (session.has_no_open_turn(), session.room(&plan));
    let work = engine
        .services
        .store
        .read_latest(move |r| {
            let room = match room {
                Some(room) => room,
                None => {
                    let spec = r.agent_get(&id)?.map(|agent| plan.spec_for(&agent));
                    match spec {
                        Some(Ok(spec)) => Room::of(&plan, &spec),
                        Some(Err(refusal)) => return Ok(Err(refusal)),
                        None => Room { bytes: turns::mail_room(ctx.limits().context_bytes), models: Arc::default() },
                    }
                }
            };
            let mut next = turns::next(r, &ctx, &id, no_open_turn, room.bytes)?;
            let sources = match &mut next {
                Next::Mail { skills, .. } => Some(Sources { held: std::mem::take(skills), ..Sources::default() }),
                Next::Nothing | Next::Resume => None,
            };
            Ok(Ok((next, sources, room)))
        })
        .await;
    if work.is_err() {
        // The request to try an open turn again was consumed by this read, so it is restored.
        session.forget_no_open_turn();
    }
    work
}

async fn read_sources(engine: &Arc<Engine>, taken: &Taken) -> Result<Sources, Refusal> {
    let (turn, resumed, earlier) = (taken.turn.clone(), taken.resumed, taken.earlier.clone());
    engine
        .services
        .store
        .read(move |r| {
            let journal = if resumed { r.journal_of(turn.turn_id)? } else { Vec::new() };
            let hashes = Transcript::unfold(&journal, &|_, _| (String::new(), false)).prompt;
            if let Some((system, briefing)) = hashes {
                let stored = r.prompt_get(&system)?.zip(r.prompt_get(&briefing)?);
                let held = r.skills_held(&turn.agent_id)?;
                return Ok(Sources { held, journal, stored, ..Sources::default() });
            }
            let held = r.skills_held(&turn.agent_id)?;
            let mut sources = Sources { held, journal, ..Sources::default() };
            for turn_id in earlier {
                sources.earlier.push(r.journal_of(turn_id)?);
            }
            Ok::<_, Refusal>(sources)
        })
        .await
}

/// The prompt that the agent would get now, without mail, section by section (ARCH-15).
pub async fn preview(engine: &Arc<Engine>, agent_id: &AgentId) -> Result<Preview, Refusal> {
    let (ctx, id) = (engine.services.ctx.clone(), agent_id.clone());
    let (agent, held) = engine
        .services
        .store
        .read(move |r| {
            let agent = agent_for_operator(r, |agent| ctx.may_run(agent), &id)?;
            let held = r.skills_held(&id)?;
            Ok::<_, Refusal>((agent, held))
        })
        .await?;
    let (spec, registry) = engine.spec_and_tools_for(&agent, None, &held)?;
    let system = prompt::system(&engine.services.plan(), &agent, &spec);
    let briefing = prompt::briefing(&spec, &registry.offer().deferred, &engine.services.plan().skills, &held);
    let (limits, view_bytes) = (engine.services.ctx.limits(), spec.limits.result_view_bytes);
    let session_log = SessionLog {
        engine,
        registry: &registry,
        agent_id: &agent.agent_id,
        conversation_id: None,
        born: agent.created_at,
        view_bytes,
    };
    let room = log_room(&limits, spec.limits.context_bytes);
    let mut log = session_log.newest(room).await?;
    log.fit(room);
    let history = prompt::log_text(&log.messages());
    Ok(Preview { system, briefing, history, tools: Arc::clone(&registry.offer().sent), spec })
}

/// A prompt without mail.
pub struct Preview {
    /// The system part.
    pub system: Vec<Section>,
    /// The briefing.
    pub briefing: Vec<Section>,
    /// The log of the agent's own work as text, which follows the briefing; empty if there is none.
    pub history: String,
    /// The tools of the request.
    pub tools: Arc<[ToolSpec]>,
    /// The spec that the prompt was built from.
    pub spec: AgentSpec,
}

impl Preview {
    /// The size of every section and of the tools, in the order of the request.
    #[must_use]
    pub fn sizes(&self) -> Vec<Size> {
        let mut sizes = prompt::sizes("system", &self.system);
        sizes.extend(prompt::sizes("briefing", &self.briefing));
        if !self.history.is_empty() {
            sizes.push(Size::new("request", "history", self.history.len()));
        }
        sizes.push(Size::new("request", "tools", tool_bytes(&self.tools)));
        sizes
    }
}
