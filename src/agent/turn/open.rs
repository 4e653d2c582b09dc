//! Opening a turn: from its journal if it has one, else by assembling its prompt.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::journal::{JournalRow, Step};
use ghost_domain::mail::channel_of;
use ghost_domain::schedule::JobOptions;
use ghost_domain::transcript::{Message, Role, ToolSpec};
use ghost_domain::{
    AgentId, ChannelContext, Code, Envelope, HeldSkill, Kind, MessageId, Party, Refusal, Turn, TurnStatus,
};
use ghost_provider::{Class, tool_bytes};
use ghost_rules::mail::agent_for_operator;
use ghost_rules::turns::{self, HeldMail, Next, Taken};
use ghost_store::Reads;
use ghost_store::tables::TurnFilter;
use ghost_tools::loop_guard::LoopGuard;

use super::runner::{Runner, view};
use super::session::{AgentSession, Room};
use crate::engine::Engine;
use crate::prompt::{self, Part, Section, Size};
use crate::transcript::Transcript;

/// The source of a turn that a cron job has to itself.
const CRON: &str = "cron";

/// What the store knows that a prompt needs.
#[derive(Default)]
pub(super) struct Sources {
    held: Vec<HeldSkill>,
    pub(super) history: Vec<Arc<Turn>>,
    earlier: Vec<Vec<JournalRow>>,
    journal: Vec<JournalRow>,
    stored: Option<(String, String)>,
}

/// Why a turn that was taken cannot be run.
pub(super) enum Unopened {
    /// The agent has no place in the world's files now. Its turn is kept for when it has one again.
    Unfit(Refusal),
    /// This turn cannot be had: it fails.
    Failed(Refusal),
}

/// What the agent has to do next, what is known of it already, and what its turn has room for and whom it may ask.
pub(super) type Looked = (Next, Option<Sources>, Room);

impl Room {
    /// That of an agent which is made from `spec` under `plan`.
    pub(super) fn of(plan: &Plan, spec: &AgentSpec) -> Self {
        Self { bytes: turns::mail_room(spec.limits.context_bytes), models: wanted(plan, spec).into() }
    }
}

/// The models that an agent asks, in order: provider and model.
pub(super) fn wanted(plan: &Plan, spec: &AgentSpec) -> Vec<(String, String)> {
    let first = spec.model.provider.clone().unwrap_or_else(|| plan.llm.default_provider.clone());
    let model = spec.model.model.clone().unwrap_or_else(|| plan.llm.default_model.clone());
    let fallbacks = spec.model.fallback_models.iter().map(|fallback| {
        let (provider, model) = plan.llm.fallback_target(&first, fallback);
        (provider.to_owned(), model.to_owned())
    });
    let fallbacks: Vec<_> = fallbacks.collect();
    std::iter::once((first, model)).chain(fallbacks).collect()
}

/// On whose behalf a turn over this mail calls its model.
fn class(mail: &[Envelope]) -> Class {
    let person =
        |envelope: &Envelope| envelope.kind == Kind::Conversation || matches!(envelope.from, Party::Operator(_));
    if mail.iter().any(person) { Class::Person } else { Class::Machine }
}

impl Runner {
    /// Opens the turn, if it can be run.
    pub(super) async fn open(
        engine: &Arc<Engine>,
        taken: Taken,
        sources: Option<Sources>,
        session: &Arc<AgentSession>,
    ) -> Result<Result<Self, Unopened>, Refusal> {
        let sources = match sources {
            // They are of a turn without a past: one that has a journal, or mail that has been in another, needs more.
            Some(sources) if !taken.resumed && taken.earlier.is_empty() => sources,
            _ => read_sources(engine, &taken).await?,
        };
        let channel = channel(&taken, &sources.journal);
        let profile = match engine.profile(&taken.agent, channel, &sources.held) {
            Ok(profile) => profile,
            Err(refusal) => return Ok(Err(Unopened::Unfit(refusal))),
        };
        let (mut spec, registry) = (Arc::clone(&profile.spec), profile.registry.clone());
        let job = job(engine, &taken).await?;
        let timed = job.as_ref().is_some_and(|job| job.timeout_seconds.is_some());
        if let Some(job) = &job {
            let mut own = AgentSpec::clone(&spec);
            if let Err(refusal) = narrow(&mut own, &engine.services.plan(), job) {
                return Ok(Err(Unopened::Failed(refusal)));
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
        let (system, briefing, opening) = match (transcript.prompt, transcript.opening, sources.stored) {
            (Some((system_hash, briefing_hash)), Some(opening), Some((system, briefing))) => {
                let system = Part { hash: system_hash, text: system };
                let briefing = Part { hash: briefing_hash, text: briefing };
                (Arc::new(system), Arc::new(briefing), opening)
            }
            (Some(_), ..) => {
                return Err(Refusal::new(
                    Code::Internal,
                    format!("the prompt of turn {} is missing", taken.turn.turn_id),
                ));
            }
            (None, ..) => {
                let mut mail = prompt::inbox(&taken.mail);
                if let Some(channel) = channel {
                    let ways = ways(engine, channel, &spec.archetype.name).await?;
                    mail = format!("{mail}\n{}", prompt::channel(channel, &ways));
                }
                for journal in &sources.earlier {
                    if let Some(note) = prompt::earlier_note(journal) {
                        mail = format!("{note}\n{mail}");
                    }
                }
                // A job's own turn knows nothing of the others (SCHED-05).
                let recent = match taken.turn.source == CRON {
                    true => String::new(),
                    false => prompt::recent(&sources.history, limits.history_bytes as usize),
                };
                // A job may bring a model of its own, which the system part names.
                let system = match job {
                    Some(_) => {
                        let sections = prompt::system(&engine.services.plan(), &taken.agent, &spec);
                        Arc::new(Part::new(prompt::join(&sections)))
                    }
                    None => Arc::clone(&profile.system),
                };
                (system, Arc::clone(&profile.briefing), (recent, mail))
            }
        };
        let mut messages = vec![Message::text(Role::User, briefing.text.clone())];
        if !opening.0.is_empty() {
            messages.push(Message::text(Role::User, opening.0.clone()));
        }
        messages.push(Message::text(Role::User, opening.1.clone()));
        let opening_messages = messages.len();
        messages.extend(transcript.messages);
        let guard = LoopGuard::replay(&limits, &sources.journal, &|name, arguments| registry.nature(name, arguments));
        let context = spec.limits.context_bytes as usize;
        let context = transcript.context.map_or(context, |shortened| shortened.min(context));
        let class = class(&taken.mail);
        let held = (!taken.resumed).then(|| taken.mail.iter().map(HeldMail::of).collect());
        Ok(Ok(Self {
            held,
            engine: Arc::clone(engine),
            agent_id: taken.turn.agent_id.clone(),
            turn: taken.turn,
            spec,
            registry,
            system,
            briefing,
            opening,
            briefed,
            messages,
            opening_messages,
            context,
            open: transcript.open,
            prepared: None,
            pending_result: None,
            rounds: transcript.rounds,
            corrections: transcript.corrections,
            failures: transcript.failures,
            guard,
            looped: None,
            worked: Duration::ZERO,
            paused_ms: AtomicU64::new(0),
            session: Arc::clone(session),
            timed,
            class,
            alone,
            pass: None,
            plan: Arc::clone(&profile.plan),
            anew: false,
            shown: true,
        }))
    }
}

/// How the cron job runs whose own turn this is.
async fn job(engine: &Arc<Engine>, taken: &Taken) -> Result<Option<JobOptions>, Refusal> {
    let Some(mail) = taken.mail.iter().find(|envelope| envelope.kind == Kind::CronTurn) else { return Ok(None) };
    let message_id = mail.message_id;
    let run = engine.services.store.read(move |r| Box::pin(async move { r.schedule_run_of(message_id).await })).await;
    Ok(run.map_err(Refusal::from)?.and_then(|run| run.options))
}

/// Gives a turn the bounds and the model of its job. Bounds only become smaller.
fn narrow(spec: &mut AgentSpec, plan: &Plan, job: &JobOptions) -> Result<(), Refusal> {
    let least = |own: u32, job: Option<u32>| job.map_or(own, |job| job.min(own));
    spec.limits.turn_seconds = least(spec.limits.turn_seconds, job.timeout_seconds);
    spec.limits.turn_rounds_max = least(spec.limits.turn_rounds_max, job.max_rounds);
    if let Some(name) = &job.model {
        let own = spec.model.provider.clone().unwrap_or_else(|| plan.llm.default_provider.clone());
        let (provider, model) = plan.model_named(&own, name)?;
        // Entries without a provider mean the agent's own, which the job may just have changed.
        for fallback in &mut spec.model.fallback_models {
            let (provider, model) = plan.llm.fallback_target(&own, fallback);
            *fallback = format!("{provider}/{model}");
        }
        spec.model.provider = Some(provider);
        spec.model.model = Some(model);
    }
    Ok(())
}

/// What can be done in the conversation that a turn comes from, and how freely its agent reacts there.
async fn ways(engine: &Arc<Engine>, channel: ChannelContext, archetype: &str) -> Result<prompt::Ways, Refusal> {
    let id = channel.conversation_id;
    let read = engine.services.store.read(move |r| Box::pin(async move { r.conversation_get(id).await })).await;
    let plan = engine.services.plan();
    // One that retention has taken can do nothing any more.
    let adapter = read?.map(|conversation| conversation.adapter).unwrap_or_default();
    Ok(prompt::Ways {
        actions: plan.channel_actions(&adapter).to_vec(),
        reactions: plan.reactions_of(archetype),
        gap: engine.services.ctx.limits().reaction_gap,
    })
}

/// The conversation from outside that a turn comes from. What joined a turn under way gives it none, so that a resumed turn
/// has the tools that it was opened with.
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

/// Looks what the agent has to do next and, at the same time, at what the prompt of a new turn needs; gives what that
/// turn has room for and whom it may ask, too. No snapshot: only the agent's own turns change either, and it has none under way. The
/// inner refusal says why the agent cannot run at all.
pub(super) async fn look(
    engine: &Arc<Engine>,
    agent_id: &AgentId,
    session: &AgentSession,
) -> Result<Result<Looked, Refusal>, Refusal> {
    let (ctx, id, plan) = (engine.services.ctx.clone(), agent_id.clone(), engine.services.plan());
    let (settled, recent, room) = (session.is_settled(), session.recall(), session.room(&plan));
    let looked = engine
        .services
        .store
        .read_latest(move |r| {
            Box::pin(async move {
                let room = match room {
                    Some(room) => room,
                    None => {
                        let spec = r.agent_get(&id).await?.map(|agent| plan.spec_for(&agent));
                        match spec {
                            Some(Ok(spec)) => Room::of(&plan, &spec),
                            Some(Err(refusal)) => return Ok(Err(refusal)),
                            None => {
                                Room { bytes: turns::mail_room(ctx.limits().context_bytes), models: Arc::default() }
                            }
                        }
                    }
                };
                let mut next = turns::next(r, &ctx, &id, settled, room.bytes).await?;
                let sources = match &mut next {
                    Next::Mail { skills, .. } => {
                        let history = history(r, &id, ctx.limits().history_turns, recent).await?;
                        Some(Sources { held: std::mem::take(skills), history, ..Sources::default() })
                    }
                    Next::Nothing | Next::Resume => None,
                };
                Ok(Ok((next, sources, room)))
            })
        })
        .await;
    if looked.is_err() {
        // That a turn may go on was heard by this look alone.
        session.unsettle();
    }
    looked
}

async fn read_sources(engine: &Arc<Engine>, taken: &Taken) -> Result<Sources, Refusal> {
    let (turn, resumed, earlier) = (taken.turn.clone(), taken.resumed, taken.earlier.clone());
    let history_turns = engine.services.ctx.limits().history_turns;
    engine
        .services
        .store
        .read(move |r| {
            Box::pin(async move {
                let journal = if resumed { r.journal_of(turn.turn_id).await? } else { Vec::new() };
                let hashes = Transcript::unfold(&journal, &|_, _| (String::new(), false)).prompt;
                if let Some((system, briefing)) = hashes {
                    let stored = r.prompt_get(&system).await?.zip(r.prompt_get(&briefing).await?);
                    return Ok(Sources { journal, stored, ..Sources::default() });
                }
                let history = history(r, &turn.agent_id, history_turns, None).await?;
                let held = r.skills_held(&turn.agent_id).await?;
                let mut sources = Sources { held, history, journal, ..Sources::default() };
                for turn_id in earlier {
                    sources.earlier.push(r.journal_of(turn_id).await?);
                }
                Ok::<_, Refusal>(sources)
            })
        })
        .await
}

/// The finished turns before a turn. `recent` is what its actor remembers of them.
async fn history(
    r: &mut dyn Reads,
    agent_id: &AgentId,
    history_turns: u32,
    recent: Option<Vec<Arc<Turn>>>,
) -> Result<Vec<Arc<Turn>>, Refusal> {
    match (recent, history_turns) {
        (_, 0) => Ok(Vec::new()),
        (Some(recent), _) => Ok(recent),
        (None, limit) => {
            let mut turns = Vec::new();
            // Apart, so that a job that runs all the time does not take the place of what was said.
            for source in ["mail", CRON] {
                let (agent_id, status) = (Some(agent_id.clone()), Some(TurnStatus::Finished));
                let filter = TurnFilter { agent_id, status, source: Some(source), limit, ..TurnFilter::default() };
                turns.extend(r.turn_list(&filter).await?);
            }
            turns.sort_by_key(|turn| std::cmp::Reverse((turn.started_at, turn.turn_id)));
            Ok(turns.into_iter().map(Arc::new).collect())
        }
    }
}

/// The prompt that an agent would get now, section by section, without any mail (ARCH-15).
pub async fn preview(engine: &Arc<Engine>, agent_id: &AgentId) -> Result<Preview, Refusal> {
    let (ctx, id) = (engine.services.ctx.clone(), agent_id.clone());
    let limits = ctx.limits();
    let history_turns = limits.history_turns;
    let (agent, held, recalled) = engine
        .services
        .store
        .read(move |r| {
            Box::pin(async move {
                let agent = agent_for_operator(r, |agent| ctx.may_run(agent), &id).await?;
                let held = r.skills_held(&id).await?;
                Ok::<_, Refusal>((agent, held, history(r, &id, history_turns, None).await?))
            })
        })
        .await?;
    let (spec, registry) = engine.outfit(&agent)?;
    let system = prompt::system(&engine.services.plan(), &agent, &spec);
    let briefing = prompt::briefing(&spec, &registry.specs(), &held);
    let history = prompt::recent(&recalled, limits.history_bytes as usize);
    Ok(Preview { system, briefing, history, tools: registry.specs(), spec })
}

/// A prompt without mail.
pub struct Preview {
    /// The system part.
    pub system: Vec<Section>,
    /// The briefing.
    pub briefing: Vec<Section>,
    /// What it recalls of its finished turns, which follows the briefing; empty if there is nothing.
    pub history: String,
    /// The tools that go into the request.
    pub tools: Arc<[ToolSpec]>,
    /// What the agent is made from.
    pub spec: AgentSpec,
}

impl Preview {
    /// What every section takes, and the tools beside them, in the order of the request.
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
