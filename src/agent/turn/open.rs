//! Opens a turn: makes its prompt, from its journal if it has one, otherwise anew.
//!
//! A resumed turn must get the prompt that it had. Only its tools and rights are those of now.

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::journal::{JournalRow, Step};
use ghost_domain::mail::channel_of;
use ghost_domain::schedule::OwnTurn;
use ghost_domain::transcript::{Message, Role, ToolSpec};
use ghost_domain::{AgentId, AgentKind, ChannelContext, Code, Kind, MessageId, Refusal};
use ghost_operations::mail::agent_for_operator;
use ghost_operations::turns::{self, BriefedLog, Taken};
use ghost_provider::tool_bytes;
use ghost_tools::Registry;
use ghost_tools::loop_guard::LoopGuard;

use super::admit::{Sources, Start, class};
use super::conversation::Conversation;
use super::runner::{End, LiveTools, Progress, Prompt, Runner, Terms, TurnTools, Unwritten};
use super::tools::seen_before;
use crate::engine::{AgentProfile, Engine};
use crate::log::{self, CRON, Log, SessionLog, log_room, log_text, view};
use crate::prompt::{self, Part, Section, Size};
use crate::session::{AgentSession, Room};
use crate::transcript::{OpenCall, Transcript, drop_state};

/// What the prompt of a turn is made from.
struct Opening<'a> {
    engine: &'a Arc<Engine>,
    taken: &'a Taken,
    registry: &'a Registry,
    spec: &'a AgentSpec,
    profile: &'a AgentProfile,
    place: Place,
}

/// The conversation of a turn.
#[derive(Clone, Copy)]
struct Place {
    /// What the turn may do in it. `None` if the turn has no outside conversation, or its agent may not speak there.
    channel: Option<ChannelContext>,
    /// Whether the conversation no longer exists.
    has_ended: bool,
}

/// A prompt with its briefing.
type Briefed = (Prompt, Arc<Part>);

/// Opens a turn, if it can run. Returns it with the calls of its last answer that have no result yet.
pub(super) async fn open(
    engine: &Arc<Engine>,
    session: &Arc<AgentSession>,
    start: Start,
) -> Result<(Box<Runner>, Vec<OpenCall>), End> {
    let Start { taken, sources, .. } = start;
    let sources = match sources {
        // Read for a new turn. A turn with a journal, or mail that was in an earlier turn,
        // needs more.
        Some(sources) if !taken.resumed && taken.earlier.is_empty() => sources,
        _ => read_sources(engine, &taken).await?,
    };
    let place = place(engine, &taken, &sources.journal).await?;
    let profile = engine.profile(&taken.agent, place.channel, &sources.held).map_err(End::CannotRun)?;
    let tools = tools(&profile, &taken, &sources);
    let job = job(engine, &taken).await?;
    make_home(engine, session, &taken).await?;
    let timed = taken.agent.kind == AgentKind::Droid || job.as_ref().is_some_and(|job| job.timeout_seconds.is_some());
    let spec = spec_of(engine, &profile, job.as_ref()).map_err(End::Failed)?;
    session.set_room(&profile.plan, Room::of(&profile.plan, &profile.spec));
    let limits = engine.services.ctx.limits();
    let shown = |tool: &str, outcome: &_| view(&tools.registry, &limits, spec.limits.result_view_bytes, tool, outcome);
    let mut transcript = Transcript::unfold(&sources.journal, &shown);
    let opening = Opening { engine, taken: &taken, registry: &tools.registry, spec: &spec, profile: &profile, place };
    // The log of the last turn is taken by every turn, because every turn makes it stale.
    let log_version = engine.log_version();
    let last_log = session.take_log(taken.turn.conversation_id, &profile.plan, log_version);
    let (prompt, briefing) = match opening.journaled(&mut transcript, sources.stored).await? {
        Some(briefed) => briefed,
        None => opening.fresh(&sources.earlier, last_log, job.is_some()).await?,
    };
    let mut prompt = Prompt { log_version, ..prompt };
    let guard = LoopGuard::replay(&limits, &sources.journal, &|name, arguments| tools.registry.nature(name, arguments));
    let context = spec.limits.context_bytes as usize;
    let context = transcript.context.map_or(context, |shortened| shortened.min(context));
    let mut messages = vec![Message::text(Role::User, briefing.text.clone()).into()];
    messages.append(&mut prompt.log.messages());
    if transcript.state_dropped {
        drop_state(&mut messages);
    }
    let past = messages.len();
    messages.push(Message::text(Role::User, prompt.mail.clone()).into());
    messages.extend(transcript.messages);
    let progress = Progress {
        rounds: transcript.rounds,
        corrections: transcript.corrections,
        failures: transcript.failures,
        alone: taken.turn.parked.as_ref().map_or(0, |parked| parked.alone),
        ..Progress::default()
    };
    let class = class(&taken.mail);
    let plan = Arc::clone(&profile.plan);
    let runner = Runner {
        engine: Arc::clone(engine),
        session: Arc::clone(session),
        terms: Terms { spec, plan, class, timed, for_operator: false },
        tools,
        prompt,
        conversation: Conversation::new(messages, past, !taken.resumed, context),
        progress,
        guard,
        pending_result: None,
        turn: taken.turn,
    };
    Ok((Box::new(runner), transcript.open))
}

/// The tools of a turn: for a resumed turn those that its model has seen, as far as the agent still has them.
fn tools(profile: &AgentProfile, taken: &Taken, sources: &Sources) -> TurnTools {
    let mut registry = profile.registry.clone();
    let seen = match sources.journal.iter().any(|row| matches!(row.step, Step::Briefed { .. })) {
        true => seen_before(&sources.journal),
        false => registry.is_live().then(|| registry.seen()),
    };
    if let Some(seen) = &seen {
        registry = registry.keeping(seen);
    }
    let live = seen.map(|seen| LiveTools {
        agent: taken.agent.clone(),
        held: sources.held.clone(),
        seen,
        skills_changed: false,
    });
    TurnTools { registry, plan: Arc::clone(&profile.plan), live }
}

/// The spec of a turn: the agent's, with the limits and the model of a cron job's own turn.
fn spec_of(engine: &Engine, profile: &AgentProfile, job: Option<&OwnTurn>) -> Result<Arc<AgentSpec>, Refusal> {
    let Some(job) = job else { return Ok(Arc::clone(&profile.spec)) };
    let mut own = AgentSpec::clone(&profile.spec);
    apply_job(&mut own, &engine.services.plan(), job)?;
    Ok(Arc::new(own))
}

/// Makes the directories of the agent. A droid gets one with its task.
async fn make_home(engine: &Engine, session: &AgentSession, taken: &Taken) -> Result<(), End> {
    if taken.agent.kind != AgentKind::Droid {
        session.make_home(&engine.services.workspace, &taken.agent.agent_id).await;
        return Ok(());
    }
    let Some(droid) = &taken.droid else { return Ok(()) };
    let task = format!(
        "id: {}\ntime: {}\nexpected output: {}\n\n{}\n",
        droid.droid_id,
        droid.created_at.rfc3339(),
        droid.output_path,
        droid.task.trim_end(),
    );
    // No turn of the droid has begun before.
    let is_first = !taken.resumed && taken.earlier.is_empty() && droid.used.turns == 0;
    engine.services.workspace.ensure_droid(&droid.droid_id, task, is_first).await.map_err(End::Failed)
}

impl Opening<'_> {
    fn session_log(&self) -> SessionLog<'_> {
        SessionLog {
            engine: self.engine,
            registry: self.registry,
            agent: &self.taken.agent,
            conversation_id: self.taken.turn.conversation_id,
            view_bytes: self.spec.limits.result_view_bytes,
        }
    }

    /// The prompt as the turn's journal has it. `None` if it has none.
    async fn journaled(
        &self,
        transcript: &mut Transcript,
        stored: Option<(String, String)>,
    ) -> Result<Option<Briefed>, Refusal> {
        let Some((system_hash, briefing_hash)) = transcript.prompt.take() else { return Ok(None) };
        let (Some((range, mail)), Some((system, briefing))) = (transcript.opening.take(), stored) else {
            let what = format!("the prompt of turn {} is missing", self.taken.turn.turn_id);
            return Err(Refusal::new(Code::Internal, what));
        };
        let log = match range {
            Some(range) => self.session_log().range(range).await?,
            None => Log::default(),
        };
        let system = Arc::new(Part { hash: system_hash, text: system });
        let briefing = Arc::new(Part { hash: briefing_hash, text: briefing });
        Ok(Some((Prompt { system, mail, log, log_version: 0, unwritten: None }, briefing)))
    }

    /// A new prompt. `last_log` is the log in memory.
    async fn fresh(
        &self,
        earlier: &[Vec<JournalRow>],
        last_log: Option<Log>,
        is_job: bool,
    ) -> Result<Briefed, Refusal> {
        let mut mail = self.mail().await?;
        for note in earlier.iter().filter_map(|journal| prompt::earlier_note(journal)) {
            mail = format!("{note}\n{mail}");
        }
        // A cron job's own turn has no past, and no other turn quotes it.
        let (log, briefed_log) = match self.taken.turn.source == CRON {
            true => (Log::default(), BriefedLog::default()),
            false => {
                let room = log_room(&self.engine.services.ctx.limits(), self.spec.limits.context_bytes);
                let mut log = self.log(last_log, room, &mut mail).await?;
                let briefed_log = log::briefed(&mut log, room);
                (log, briefed_log)
            }
        };
        // A job may set a model of its own, which the system part names.
        let system = match is_job {
            true => {
                let sections = prompt::system(&self.engine.services.plan(), &self.taken.agent, self.spec);
                Arc::new(Part::new(prompt::join(&sections)))
            }
            false => Arc::clone(&self.profile.parts.system),
        };
        let briefing = Arc::clone(&self.profile.parts.briefing);
        let unwritten = Some(Unwritten { briefing: Arc::clone(&briefing), log: briefed_log });
        Ok((Prompt { system, mail, log, log_version: 0, unwritten }, briefing))
    }

    /// The mail as the model reads it, with what it may do in the turn's conversation.
    async fn mail(&self) -> Result<String, Refusal> {
        let mut mail = prompt::inbox(&self.taken.mail);
        if self.place.has_ended {
            mail = format!("{mail}\n{}", prompt::ENDED_CONVERSATION);
        }
        // The mail of a job says where the last text of its own turn goes.
        let speaks = |channel: &ChannelContext| channel.replies || self.taken.turn.source != CRON;
        if let Some(channel) = self.place.channel.filter(speaks) {
            let options = channel_options(self.engine, channel, &self.spec.archetype.name).await?;
            mail = format!("{mail}\n{}", prompt::channel(channel, &options));
        }
        Ok(mail)
    }

    /// The log of the session. If it must be read, what has happened beside it since is put before the mail.
    async fn log(&self, last_log: Option<Log>, room: usize, mail: &mut String) -> Result<Log, Refusal> {
        if let Some(log) = last_log {
            // No job of this agent has run since the log was remembered.
            return Ok(log);
        }
        if self.taken.agent.last_active_at.is_none() {
            // No turn of this agent has ended.
            return Ok(Log::default());
        }
        let session_log = self.session_log();
        let log = session_log.newest(room).await?;
        let jobs = prompt::jobs(&session_log.jobs_since(&log).await?);
        // The mail of a turn leaves half of the context to its log and its work.
        let left = turns::mail_room(self.spec.limits.context_bytes).saturating_sub(mail.len());
        let said = prompt::said(&session_log.said_since(&log).await?, left);
        for block in [jobs, said].iter().filter(|block| !block.is_empty()) {
            *mail = format!("{block}\n{mail}");
        }
        Ok(log)
    }
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

/// The conversation that a turn comes from, or else that of its session, if the turn's agent answers in it. The
/// turn may speak there without owing a reply. Any other agent of the chain may not.
async fn place(engine: &Engine, taken: &Taken, journal: &[JournalRow]) -> Result<Place, Refusal> {
    let channel = channel(taken, journal);
    let Some(conversation_id) = taken.turn.conversation_id.filter(|_| channel.is_none()) else {
        return Ok(Place { channel, has_ended: false });
    };
    let found = engine.services.store.read(move |r| r.conversation_get(conversation_id)).await?;
    let own = found.as_ref().is_some_and(|conversation| conversation.owner == taken.turn.agent_id);
    let channel = own.then_some(ChannelContext { conversation_id, replies: false });
    Ok(Place { channel, has_ended: found.is_none() })
}

async fn read_sources(engine: &Engine, taken: &Taken) -> Result<Sources, Refusal> {
    let (turn_id, agent_id) = (taken.turn.turn_id, taken.turn.agent_id.clone());
    let (resumed, earlier) = (taken.resumed, taken.earlier.clone());
    let read = engine.services.store.read(move |r| {
        let journal = if resumed { r.journal_of(turn_id)? } else { Vec::new() };
        let prompt = Transcript::unfold(&journal, &|_, _| (String::new(), false)).prompt;
        let mut sources = Sources { held: r.skills_held(&agent_id)?, journal, ..Sources::default() };
        match prompt {
            Some((system, briefing)) => sources.stored = r.prompt_get(&system)?.zip(r.prompt_get(&briefing)?),
            None => {
                for turn_id in earlier {
                    sources.earlier.push(r.journal_of(turn_id)?);
                }
            }
        }
        Ok::<_, Refusal>(sources)
    });
    read.await
}

/// The prompt that the agent would get now, without mail, section by section.
pub async fn preview(engine: &Arc<Engine>, agent_id: &AgentId) -> Result<Preview, Refusal> {
    let id = agent_id.clone();
    let (agent, held) = engine
        .services
        .read(move |r| {
            let agent = agent_for_operator(r, &id)?;
            let held = r.skills_held(&id)?;
            Ok::<_, Refusal>((agent, held))
        })
        .await?;
    let (spec, registry) = engine.spec_and_tools_for(&agent, None, &held)?;
    let system = prompt::system(&engine.services.plan(), &agent, &spec);
    let briefing = prompt::briefing(&spec, &registry.offer().deferred, &engine.services.plan().skills, &held);
    let (limits, view_bytes) = (engine.services.ctx.limits(), spec.limits.result_view_bytes);
    let session_log = SessionLog { engine, registry: &registry, agent: &agent, conversation_id: None, view_bytes };
    let room = log_room(&limits, spec.limits.context_bytes);
    let mut log = session_log.newest(room).await?;
    log.fit(room);
    let history = log_text(&log.messages());
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
