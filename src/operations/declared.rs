//! Applies the chat channels and cron jobs that `world-config.yaml` (the world file) declares, at
//! every start and reload.
//!
//! Three states are compared: the last declarations of the file (stored in the world's facts), the
//! present declarations, and the records. Only a change in the file changes the records. So later
//! changes by hand stay, for example a cancelled job or a removed member. A channel or job that
//! another party created under a declared name is not changed.
//!
//! A declaration that cannot be applied must never fail a start or a reload. It is reported and
//! tried again the next time.

use crate::chat::{self, NewChannel, Speaker};
use crate::prelude::*;
use crate::schedules::{self, NewSchedule};

/// The world fact that stores the declarations that were applied last.
const LAST: &str = "world_file.declared";

/// The declarations that were applied last.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Last {
    #[serde(default)]
    channels: BTreeMap<ChannelName, LastChannel>,
    #[serde(default)]
    jobs: Vec<LastJob>,
}

/// A channel that the file created.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct LastChannel {
    /// Whether the file still declares the channel. A channel stays when the file drops it, and
    /// belongs to the file again when the file declares it again.
    named: bool,
    gated: bool,
    topic: Option<String>,
    /// The members in the file, each with its incarnation, so that an agent that was deleted and
    /// created again joins again.
    members: BTreeMap<AgentId, u32>,
}

/// A cron job that the file created.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct LastJob {
    job: DeclaredJob,
    /// The incarnation of its agent, because jobs are deleted with their agent.
    incarnation: u32,
    /// `None` for a job whose only time had passed already.
    schedule_id: Option<ScheduleId>,
}

/// The change that one declaration needs.
enum Step {
    /// Create the channel.
    Create(DeclaredChannel),
    /// Change the channel from the old declaration to the new one.
    Change(LastChannel, DeclaredChannel),
    /// The file no longer declares the channel.
    Drop(ChannelName, LastChannel),
    /// Set the job. The second value is the previous declaration, if the job exists.
    Set(DeclaredJob, Option<DeclaredJob>),
    /// The only time of the job has passed.
    Passed(DeclaredJob),
    /// The file no longer declares the job. `None` means that its schedule no longer exists.
    Cancel(LastJob, Option<ScheduleId>),
    /// Another party created it: a description and the creator.
    Left(String, Party),
}

/// The result of applying the declarations, as text for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// A line for each change, and for each declaration that is not applied because another party
    /// created the channel or job.
    pub lines: Vec<String>,
    /// A line for each declaration that could not be applied.
    pub refused: Vec<String>,
}

/// Returns the lines that [`follow`] would report, without any change.
///
/// # Errors
/// An error of the store.
pub fn would(r: &mut Tx, declared: &Declared) -> Result<Vec<String>> {
    let last = last(r)?;
    Ok(steps(r, &last, declared)?.iter().filter_map(summary).collect())
}

/// Applies the declared channels and jobs. Their agents must exist already.
///
/// # Errors
/// An error of the store. A refusal of a rule is reported as `world.warning` and tried again the
/// next time.
pub fn follow(w: &mut Tx, declared: &Declared) -> Result<Followed> {
    let before = last(w)?;
    let mut after = before.clone();
    let mut done = Followed::default();
    for step in steps(w, &before, declared)? {
        let (about, line) = (subject(&step), summary(&step));
        if let (Step::Left(..), Some(line)) = (&step, &line) {
            warn(w, line)?;
        }
        match apply(w, &mut after, step) {
            Ok(()) => done.lines.extend(line),
            // A refusal of the store ends it all.
            Err(refusal) if matches!(refusal.code, Code::Internal | Code::Unavailable) => return Err(refusal),
            Err(refusal) => {
                let line = format!("! {about}: cannot be done: {refusal}");
                warn(w, &line)?;
                done.refused.push(line);
            }
        }
    }
    let text = |last: &Last| {
        serde_json::to_string(last)
            .map_err(|error| refusal!(Internal, "the declarations of the world file cannot be stored: {error}"))
    };
    let (was, is) = (text(&before)?, text(&after)?);
    if was != is {
        w.meta_put(LAST, &is)?;
    }
    Ok(done)
}

fn warn(w: &mut Tx, line: &str) -> Result<()> {
    w.emit(NewEvent::new(EventKind::WorldWarning, json!({ "warning": line.trim_start_matches(['!', '=', ' ']) })))
}

fn last(r: &mut StoreTx) -> Result<Last> {
    let Some(text) = r.meta_get(LAST)? else { return Ok(Last::default()) };
    serde_json::from_str(&text).map_err(|error| {
        refusal!(Internal, "the stored declarations of the world file cannot be read: {error}")
            .hint("the database was changed by something else; restore it from a copy")
    })
}

/// The declared agents that exist, each with its incarnation.
fn living(r: &mut StoreTx, declared: &Declared) -> Result<BTreeMap<AgentId, u32>> {
    let members = declared.channels.iter().flat_map(|channel| &channel.members);
    let wanted: BTreeSet<&AgentId> = members.chain(declared.jobs.iter().map(|job| &job.agent_id)).collect();
    let mut found = BTreeMap::new();
    for agent_id in wanted {
        if let Some(agent) = r.agent_get(agent_id)?.filter(|agent| !agent.is_deleted()) {
            found.insert(agent_id.clone(), agent.incarnation);
        }
    }
    Ok(found)
}

/// Computes the changes, channels first, because jobs may announce in them.
fn steps(r: &mut Tx, last: &Last, declared: &Declared) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    if last.channels.is_empty() && last.jobs.is_empty() && *declared == Declared::default() {
        return Ok(steps);
    }
    let living = living(r, declared)?;
    for wanted in &declared.channels {
        let there = r.chat_channel_get(&wanted.channel)?;
        match (last.channels.get(&wanted.channel), there) {
            (_, None) => steps.push(Step::Create(wanted.clone())),
            (None, Some(channel)) => steps.push(Step::Left(format!("channel {}", wanted.channel), channel.creator)),
            (Some(last), Some(_)) => {
                let lives = |id: &AgentId| last.members.get(id).is_some_and(|was| living.get(id) == Some(was));
                let same_members = last.members.len() == wanted.members.len() && wanted.members.iter().all(lives);
                if !(same_members && last.named && (last.gated, &last.topic) == (wanted.gated, &wanted.topic)) {
                    steps.push(Step::Change(last.clone(), wanted.clone()));
                }
            }
        }
    }
    for (channel, last) in last.channels.iter().filter(|(_, last)| last.named) {
        if declared.channels.iter().all(|wanted| wanted.channel != *channel) {
            steps.push(Step::Drop(channel.clone(), last.clone()));
        }
    }
    for wanted in &declared.jobs {
        let last = last.jobs.iter().find(|last| is_of(last, wanted));
        let last = last.filter(|last| living.get(&wanted.agent_id) == Some(&last.incarnation));
        if last.is_some_and(|last| last.job == *wanted) {
            continue;
        }
        let there = r.schedule_find(&wanted.agent_id, ScheduleKind::Cron, &wanted.name)?;
        steps.push(match (last, there) {
            (Some(last), Some(there)) if is_from_file(&there, last) => {
                Step::Set(wanted.clone(), Some(last.job.clone()))
            }
            (_, Some(there)) => Step::Left(format!("cron {}/{}", wanted.agent_id, wanted.name), there.creator),
            (_, None) if matches!(wanted.when, When::At { at } if at <= r.ctx.now()) => Step::Passed(wanted.clone()),
            (_, None) => Step::Set(wanted.clone(), None),
        });
    }
    for last in &last.jobs {
        if !declared.jobs.iter().any(|wanted| is_of(last, wanted)) {
            let there = r.schedule_find(&last.job.agent_id, ScheduleKind::Cron, &last.job.name)?;
            let ours = there.filter(|there| is_from_file(there, last)).map(|there| there.schedule_id);
            steps.push(Step::Cancel(last.clone(), ours));
        }
    }
    Ok(steps)
}

fn is_of(last: &LastJob, job: &DeclaredJob) -> bool {
    last.job.agent_id == job.agent_id && last.job.name == job.name
}

/// Whether a schedule is the one that the file created. A schedule that a user replaced by hand no
/// longer belongs to the file.
fn is_from_file(schedule: &Schedule, last: &LastJob) -> bool {
    Some(schedule.schedule_id) == last.schedule_id && schedule.creator == Party::System
}

fn apply(w: &mut Tx, last: &mut Last, step: Step) -> Result<()> {
    let by = Speaker::from(Party::System);
    match step {
        Step::Create(wanted) => {
            let new = NewChannel {
                channel: wanted.channel.clone(),
                members: wanted.members.iter().cloned().collect(),
                gated: wanted.gated,
                skip_creator: false,
                topic: wanted.topic.clone(),
            };
            chat::create(w, &by, new)?;
            let members = incarnations(w, &wanted)?;
            last.channels.insert(wanted.channel.clone(), applied(wanted, members));
        }
        Step::Change(was, wanted) => {
            let there = chat::channel_named(w, &wanted.channel)?;
            let gated = if was.named && was.gated == wanted.gated { there.gated } else { wanted.gated };
            let topic = if was.named && was.topic == wanted.topic { &there.topic } else { &wanted.topic };
            let members = incarnations(w, &wanted)?;
            let is_new = |(agent_id, incarnation): &(&AgentId, &u32)| was.members.get(*agent_id) != Some(*incarnation);
            let joining: BTreeSet<AgentId> = members.iter().filter(is_new).map(|(id, _)| id.clone()).collect();
            let leaving: BTreeSet<AgentId> =
                was.members.keys().filter(|agent_id| !members.contains_key(*agent_id)).cloned().collect();
            // Everything is checked before the first write, so that a refusal changes nothing.
            chat::has_room(w, &by, &wanted.channel, &joining, &leaving)?;
            chat::change(w, &by, &wanted.channel, gated, topic.as_deref())?;
            remove_members(w, &wanted.channel, leaving.iter())?;
            for agent_id in &joining {
                chat::invite(w, &by, &wanted.channel, agent_id)?;
            }
            last.channels.insert(wanted.channel.clone(), applied(wanted, members));
        }
        Step::Drop(channel, was) => {
            remove_members(w, &channel, was.members.keys())?;
            last.channels.insert(channel, LastChannel { named: false, members: BTreeMap::new(), ..was });
        }
        Step::Set(job, was) => {
            // An on/off switch set by hand stays until the file changes that field.
            let there = w.schedule_find(&job.agent_id, ScheduleKind::Cron, &job.name)?;
            let kept = there.filter(|_| was.is_some_and(|was| was.enabled == job.enabled));
            let new = NewSchedule {
                kind: ScheduleKind::Cron,
                agent_id: job.agent_id.clone(),
                name: job.name.clone(),
                when: job.when.clone(),
                message: job.message.clone(),
                missed: job.missed,
                mode: job.mode.clone(),
                enabled: kept.map_or(job.enabled, |there| there.enabled),
                chain: Chain::root(w.ctx),
                baseline: None,
            };
            let set = schedules::set(w, &Party::System, new)?;
            remember(w, last, job, Some(set.schedule_id))?;
        }
        Step::Passed(job) => remember(w, last, job, None)?,
        Step::Cancel(was, schedule_id) => {
            if let Some(schedule_id) = schedule_id {
                schedules::cancel(w, &Party::System, schedule_id)?;
            }
            last.jobs.retain(|last| !is_of(last, &was.job));
        }
        Step::Left(..) => {}
    }
    Ok(())
}

fn remember(w: &mut StoreTx, last: &mut Last, job: DeclaredJob, schedule_id: Option<ScheduleId>) -> Result<()> {
    let incarnation = w.agent_get(&job.agent_id)?.map_or(0, |agent| agent.incarnation);
    last.jobs.retain(|last| !is_of(last, &job));
    last.jobs.push(LastJob { job, incarnation, schedule_id });
    Ok(())
}

fn applied(wanted: DeclaredChannel, members: BTreeMap<AgentId, u32>) -> LastChannel {
    LastChannel { named: true, gated: wanted.gated, topic: wanted.topic, members }
}

fn incarnations(w: &mut StoreTx, wanted: &DeclaredChannel) -> Result<BTreeMap<AgentId, u32>> {
    let mut found = BTreeMap::new();
    for agent_id in &wanted.members {
        let agent = w.agent_get(agent_id)?;
        found.insert(agent_id.clone(), agent.map_or(0, |agent| agent.incarnation));
    }
    Ok(found)
}

fn remove_members<'a>(w: &mut Tx, channel: &ChannelName, members: impl Iterator<Item = &'a AgentId>) -> Result<()> {
    for agent_id in members {
        if w.chat_member_get(channel, agent_id)?.is_some() {
            chat::remove(w, &Speaker::from(Party::System), channel, agent_id)?;
        }
    }
    Ok(())
}

/// The subject of a step: `channel NAME` or `cron AGENT/NAME`.
fn subject(step: &Step) -> String {
    let cron = |job: &DeclaredJob| format!("cron {}/{}", job.agent_id, job.name);
    match step {
        Step::Create(channel) | Step::Change(_, channel) => format!("channel {}", channel.channel),
        Step::Drop(channel, _) => format!("channel {channel}"),
        Step::Set(job, _) | Step::Passed(job) => cron(job),
        Step::Cancel(last, _) => cron(&last.job),
        Step::Left(what, _) => what.clone(),
    }
}

/// Describes a step in one line, in the format of a reload's plan. `None` if it changes no record.
fn summary(step: &Step) -> Option<String> {
    let (sign, what) = match step {
        Step::Create(new) => {
            let gated = if new.gated { "gated, " } else { "" };
            ('+', format!("{gated}members {}", list(new.members.iter())))
        }
        Step::Change(was, is) => ('~', changes(was, is)),
        Step::Drop(..) => {
            ('-', "no longer named; the members that the file named leave, the posts are kept".to_owned())
        }
        Step::Set(_, None) => ('+', "as the world file names it".to_owned()),
        Step::Set(job, Some(was)) => {
            let fields = [
                ("when", was.when != job.when),
                ("message", was.message != job.message),
                ("missed", was.missed != job.missed),
                ("options", was.mode != job.mode),
                ("enabled", was.enabled != job.enabled),
            ];
            let fields: Vec<&str> = fields.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect();
            ('~', fields.join(", "))
        }
        Step::Passed(_) => ('=', "not set, because its time has passed".to_owned()),
        Step::Cancel(_, Some(_)) => ('-', "no longer named; cancelled".to_owned()),
        Step::Cancel(_, None) => return None,
        Step::Left(_, creator) => ('=', format!("left as it is, because {creator} made it")),
    };
    Some(format!("{sign} {}: {what}", subject(step)))
}

/// Maximum agents that a line names.
const NAMED: usize = 8;

fn list<'a>(agents: impl ExactSizeIterator<Item = &'a AgentId>) -> String {
    let more = agents.len().saturating_sub(NAMED);
    let mut names: Vec<String> = agents.take(NAMED).map(ToString::to_string).collect();
    names.extend((more > 0).then(|| format!("and {more} more")));
    names.join(", ")
}

fn changes(was: &LastChannel, is: &DeclaredChannel) -> String {
    let joins: Vec<&AgentId> = is.members.iter().filter(|id| !was.members.contains_key(*id)).collect();
    let leaves: Vec<&AgentId> = was.members.keys().filter(|id| !is.members.contains(*id)).collect();
    let facts = [
        (!was.named, "named again".to_owned()),
        (was.gated != is.gated, if is.gated { "gated" } else { "no longer gated" }.to_owned()),
        (was.topic != is.topic, "topic".to_owned()),
        (!joins.is_empty(), format!("joined by {}", list(joins.into_iter()))),
        (!leaves.is_empty(), format!("left by {}", list(leaves.into_iter()))),
    ];
    let changes: Vec<String> = facts.into_iter().filter_map(|(differs, words)| differs.then_some(words)).collect();
    if changes.is_empty() { "members that were created again".to_owned() } else { changes.join(", ") }
}
