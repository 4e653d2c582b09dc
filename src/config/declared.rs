//! Reads the chat channels and cron jobs of `world-config.yaml` and checks their references.
//!
//! The result must never depend on the current time.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::chat::ChatWake;
use ghost_domain::schedule::mode::LAST;
use ghost_domain::schedule::slots::first_slot;
use ghost_domain::schedule::{JobMode, JobOptions, Missed, Payload, Session, Target, When};
use ghost_domain::text::nearest;
use ghost_domain::{AgentId, Code, Declared, DeclaredChannel, DeclaredJob, Refusal, Timestamp};

use crate::plan::Plan;
use crate::problem::Hint;
use crate::reader::{Field, no_such};
use crate::typed::Spanned;
use crate::world_file::WorldFile;
use crate::world_file::cron::CronSection;

/// The number of members from which an ungated channel gets a warning.
const CROWDED_MEMBERS: usize = 3;
/// A fixed instant for computing the gap between slots. Any instant would do.
const REFERENCE_INSTANT: Timestamp = Timestamp(1_767_225_600_000);

/// The declared channels and jobs. `plan` must be complete except for them.
pub fn declared(world: &WorldFile<'_>, plan: &Plan) -> Declared {
    let channels = channels(world);
    let jobs = jobs(world, plan, &channels);
    Declared { channels, jobs }
}

fn channels(world: &WorldFile<'_>) -> Vec<DeclaredChannel> {
    let (members_max, channels_max) = (world.limits.chat_members_max as usize, world.limits.chat_channels_max as usize);
    let mut found = BTreeMap::new();
    for (channel, entry) in &world.chat_channels {
        let (place, mut members) = (world.at(entry), BTreeSet::new());
        for member in &entry.members {
            let (field, agent_id) = (world.at(member), &member.0);
            check_agent(field, agent_id, &world.ids);
            if !members.insert(agent_id.clone()) {
                field.error(format!("`{agent_id}` is named twice"), "keep one of the two");
            }
        }
        if place.get("members").is_some_and(|members| members.length() == 0) {
            place.error("the channel would have no members", "name at least one agent: `members: [lead]`");
        }
        if members.len() > members_max {
            let message = format!("it has {} members; limits.chat_members_max is {}", members.len(), members_max);
            place.error(message, "split them over several channels, or raise the limit");
        }
        if !entry.gated && members.len() >= CROWDED_MEMBERS && world.chat.wake == ChatWake::All {
            let message = format!("every chat message starts a turn of each of its {} members", members.len());
            place.warn(
                message,
                "write `gated: true` and give the floor to one at a time, or `chat: { wake: mentions }`",
            );
        }
        let (channel, topic) = (channel.0.clone(), entry.topic.as_ref().map(|topic| topic.0.clone()));
        let declared = DeclaredChannel { channel: channel.clone(), members, gated: entry.gated, topic };
        found.insert(channel, declared);
        if found.len() == channels_max + 1 {
            let message = format!("there are more channels than limits.chat_channels_max, {channels_max}");
            place.error(message, "remove some, or raise the limit");
        }
    }
    found.into_values().collect()
}

/// Reports an agent that the file does not name.
fn check_agent(field: &Field<'_>, agent_id: &AgentId, ids: &BTreeSet<AgentId>) {
    if !ids.contains(agent_id) {
        no_such(field, "agent", ids.iter().map(|id| id.as_str()), "name it under `agents` first");
    }
}

fn jobs(world: &WorldFile<'_>, plan: &Plan, channels: &[DeclaredChannel]) -> Vec<DeclaredJob> {
    let mut lines: BTreeMap<(AgentId, String), usize> = BTreeMap::new();
    let mut counts: BTreeMap<AgentId, u32> = BTreeMap::new();
    let mut found = Vec::new();
    for entry in &world.cron {
        let place = world.at(entry);
        if let Some(agent) = &entry.agent {
            check_agent(world.at(agent), agent, &world.ids);
        }
        let whens = entry.whens(place, world);
        for (field, when) in &whens {
            check_when(field, when, world.limits.cron_gap_seconds);
        }
        if let Some(text) = &entry.message {
            let limit = world.limits.message_bytes as usize / 2;
            if text.len() > limit {
                let message = format!("the message has {} bytes; at most {limit} are taken", text.len());
                world.at(text).error(message, "write the long part to a file and name its path");
            }
        }
        let (Some(agent_id), Some(name)) = (&entry.agent, &entry.name) else {
            check_without_owner(world, entry, plan, channels);
            continue;
        };
        let (agent_id, name_field, name) = (&agent_id.0, world.at(name), &name.0);
        if let Some(line) = lines.insert((agent_id.clone(), name.clone()), name_field.line()) {
            let message = format!("`{agent_id}` has a job `{name}` already, on line {line}");
            name_field.error(message, "give one of the two another name");
        }
        let count = counts.entry(agent_id.clone()).or_default();
        *count += 1;
        if *count == world.limits.crons_max + 1 {
            let message = format!("`{agent_id}` has more jobs than limits.crons_max, {}", world.limits.crons_max);
            place.error(message, "remove some, or raise the limit");
        }
        let Some(mode) = mode(world, entry, plan, (agent_id, name), channels) else { continue };
        let ([(_, when)], Some(message)) = (&whens[..], &entry.message) else { continue };
        found.push(DeclaredJob {
            agent_id: agent_id.clone(),
            name: name.clone(),
            when: when.clone(),
            message: message.0.clone(),
            missed: entry.missed.unwrap_or(Missed::Skip),
            mode,
            enabled: entry.enabled.unwrap_or(true),
        });
    }
    found
}

/// Checks that the rule can be computed. A one-time instant is not checked: that would depend on
/// the current time.
fn check_when(field: &Field<'_>, when: &When, gap_seconds: u32) {
    if matches!(when, When::At { .. }) {
        return;
    }
    if let Err(refusal) = first_slot(when, REFERENCE_INSTANT, gap_seconds) {
        field.refused(refusal, "write five fields, such as '0 7 * * 1-5'");
    }
}

/// The job's mode, after checking all its settings, and its model, webhook and channel. `None` if a setting is wrong.
fn mode(
    world: &WorldFile<'_>,
    entry: &Spanned<CronSection>,
    plan: &Plan,
    (agent_id, name): (&AgentId, &str),
    channels: &[DeclaredChannel],
) -> Option<JobMode> {
    let report = |mut refusal: Refusal| {
        let place = named_field(&refusal).and_then(|named| entry.place(named, world));
        let field = place.unwrap_or(world.at(entry));
        // The world file calls this setting `timeout`, and it is a duration.
        refusal.message = refusal.message.replace("timeout_seconds", "timeout");
        refusal.hint = refusal.hint.map(|hint| hint.replace("timeout_seconds", "timeout"));
        field.refused(refusal, "check that it matches the other settings of the job");
    };
    let mut options = entry.options();
    let mut is_right = true;
    // A setting that is refused is left out, and the rest is checked. Each round leaves one out, so they end.
    let mode = loop {
        match JobMode::parse(options.clone(), None, agent_id, name, &plan.limits) {
            Ok(mode) => break Some(mode),
            Err(refusal) => {
                is_right = false;
                let rest = without(&options, &refusal);
                report(refusal);
                match rest {
                    Some(rest) => options = rest,
                    None => break None,
                }
            }
        }
    };
    let mode = mode?;
    for refusal in plan.job_faults(&mode) {
        report(refusal);
    }
    if let Some(Target::Channel(named)) = mode.own_turn().map(|turn| &turn.target)
        && channels.iter().all(|channel| channel.channel != *named)
        && let Some(field) = entry.place("to", world)
    {
        let hint = match nearest(named.as_str(), channels.iter().map(|channel| channel.channel.as_str()).chain([LAST]))
        {
            Some(near) => Hint::from(format!("did you mean `{near}`?")),
            None => "name it under `chat_channels`; until there is such a channel the job is not set".into(),
        };
        field.warn(format!("`chat_channels` has no channel `{}`", field.shown()), hint);
    }
    is_right.then_some(mode)
}

/// Checks the settings of a job whose agent or name is missing or wrong, as far as they do not depend on it.
fn check_without_owner(world: &WorldFile<'_>, entry: &Spanned<CronSection>, plan: &Plan, channels: &[DeclaredChannel]) {
    // A webhook has a thread for each job; any name gives one.
    let (agent_id, name) = (entry.agent.as_ref().map(|id| id.0.clone()), "job");
    if let Some(agent_id) = agent_id.or_else(|| "agent".parse().ok()) {
        mode(world, entry, plan, (&agent_id, name), channels);
    }
}

/// The option that a refusal is about.
fn named_field(refusal: &Refusal) -> Option<&str> {
    refusal.details.as_ref()?.get("field")?.as_str()
}

/// The options without the one that was refused. `None` if nothing can be left out.
fn without(options: &JobOptions, refusal: &Refusal) -> Option<JobOptions> {
    let mut rest = options.clone();
    let payload = options.payload.or(options.session.map(Session::payload));
    let is_choice = refusal.code == Code::PayloadMismatch && named_field(refusal) != Some("session");
    if is_choice && payload == Some(Payload::SystemEvent) {
        // The option belongs to a turn of its own. Then the others may be right, too, so they are judged as those of
        // such a turn: otherwise one mistake would be reported for each of them.
        (rest.payload, rest.session) = (Some(Payload::AgentTurn), None);
        return Some(rest);
    }
    match named_field(refusal)? {
        "session" => (rest.session, rest.payload) = (None, None),
        "payload" => rest.payload = None,
        "wake" => rest.wake = None,
        "deliver" => rest.deliver = None,
        // The text is as wrong for any delivery; without it, a webhook would be missing.
        "to" => (rest.to, rest.deliver) = (None, None),
        "timeout_seconds" => rest.timeout_seconds = None,
        "max_rounds" => rest.max_rounds = None,
        "model" => rest.model = None,
        _ => return None,
    }
    (rest != *options).then_some(rest)
}

#[cfg(test)]
#[path = "declared_tests.rs"]
mod tests;
