//! Reads the chat channels and cron jobs of `world-config.yaml` and checks their references.
//!
//! The result must never depend on the current time.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::chat::ChatWake;
use ghost_domain::schedule::mode::LAST;
use ghost_domain::schedule::slots::first_slot;
use ghost_domain::schedule::{JobMode, Target, When};
use ghost_domain::text::nearest;
use ghost_domain::{AgentId, Declared, DeclaredChannel, DeclaredJob, Refusal, Timestamp};

use crate::plan::Plan;
use crate::problem::Hint;
use crate::reader::{Field, no_such};
use crate::world_file::WorldFile;
use crate::world_file::cron::CronEntry;

/// The number of members from which an ungated channel gets a warning (CHAT-10).
const CROWDED_MEMBERS: usize = 3;
/// A fixed instant for computing the gap between slots. Any instant would do.
const REFERENCE_INSTANT: Timestamp = Timestamp(1_767_225_600_000);

/// The declared channels and jobs. `plan` must be complete except for them.
pub fn declared(world: &WorldFile<'_>, plan: &Plan) -> Declared {
    let ids: BTreeSet<&AgentId> = world.agents.iter().map(|agent| &agent.agent_id).collect();
    let channels = channels(world, &ids);
    let jobs = jobs(world, plan, &ids, &channels);
    Declared { channels, jobs }
}

fn channels(world: &WorldFile<'_>, ids: &BTreeSet<&AgentId>) -> Vec<DeclaredChannel> {
    let (members_max, channels_max) = (world.limits.chat_members_max as usize, world.limits.chat_channels_max as usize);
    let mut found = BTreeMap::new();
    for entry in &world.chat_channels {
        let mut members = BTreeSet::new();
        for (field, agent_id) in &entry.members {
            check_agent(field, agent_id, ids);
            if !members.insert(agent_id.clone()) {
                field.error(format!("`{agent_id}` is named twice"), "keep one of the two");
            }
        }
        if entry.members.is_empty() {
            entry.field.error("the channel would have no members", "name at least one agent: `members: [lead]`");
        }
        if members.len() > members_max {
            let message = format!("it has {} members; limits.chat_members_max is {}", members.len(), members_max);
            entry.field.error(message, "split them over several channels, or raise the limit");
        }
        if !entry.gated && members.len() >= CROWDED_MEMBERS && world.chat_wake == ChatWake::All {
            let message = format!("every chat message starts a turn of each of its {} members", members.len());
            entry.field.warn(
                message,
                "write `gated: true` and give the floor to one at a time, or `chat: { wake: mentions }`",
            );
        }
        let channel = entry.channel.clone();
        let declared = DeclaredChannel { channel, members, gated: entry.gated, topic: entry.topic.clone() };
        found.insert(entry.channel.clone(), declared);
        if found.len() == channels_max + 1 {
            let message = format!("there are more channels than limits.chat_channels_max, {channels_max}");
            entry.field.error(message, "remove some, or raise the limit");
        }
    }
    found.into_values().collect()
}

/// Reports an agent that the file does not name.
fn check_agent(field: &Field<'_>, agent_id: &AgentId, ids: &BTreeSet<&AgentId>) {
    if !ids.contains(agent_id) {
        no_such(field, "agent", ids.iter().map(|id| id.as_str()), "name it under `agents` first");
    }
}

fn jobs(
    world: &WorldFile<'_>,
    plan: &Plan,
    ids: &BTreeSet<&AgentId>,
    channels: &[DeclaredChannel],
) -> Vec<DeclaredJob> {
    let mut lines: BTreeMap<(AgentId, String), usize> = BTreeMap::new();
    let mut counts: BTreeMap<AgentId, u32> = BTreeMap::new();
    let mut found = Vec::new();
    for entry in &world.cron {
        if let Some((field, agent_id)) = &entry.agent {
            check_agent(field, agent_id, ids);
        }
        if let Some((field, when)) = &entry.when {
            check_when(field, when, world.limits.cron_gap_seconds);
        }
        if let Some((field, text)) = &entry.message {
            let limit = world.limits.message_bytes as usize / 2;
            if text.len() > limit {
                let message = format!("the message has {} bytes; at most {limit} are taken", text.len());
                field.error(message, "write the long part to a file and name its path");
            }
        }
        let (Some((_, agent_id)), Some((name_field, name))) = (&entry.agent, &entry.name) else { continue };
        if let Some(line) = lines.insert((agent_id.clone(), name.clone()), name_field.line()) {
            let message = format!("`{agent_id}` has a job `{name}` already, on line {line}");
            name_field.error(message, "give one of the two another name");
        }
        let count = counts.entry(agent_id.clone()).or_default();
        *count += 1;
        if *count == world.limits.crons_max + 1 {
            let message = format!("`{agent_id}` has more jobs than limits.crons_max, {}", world.limits.crons_max);
            entry.field.error(message, "remove some, or raise the limit");
        }
        let Some(mode) = mode(entry, plan, agent_id, name, channels) else { continue };
        let (Some((_, when)), Some((_, message))) = (&entry.when, &entry.message) else { continue };
        found.push(DeclaredJob {
            agent_id: agent_id.clone(),
            name: name.clone(),
            when: when.clone(),
            message: message.clone(),
            missed: entry.missed,
            mode,
            enabled: entry.enabled,
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

/// The job's mode, after checking its model, webhook and channel.
fn mode(
    entry: &CronEntry<'_>,
    plan: &Plan,
    agent_id: &AgentId,
    name: &str,
    channels: &[DeclaredChannel],
) -> Option<JobMode> {
    let report = |mut refusal: Refusal| {
        let named = refusal.details.as_ref().and_then(|details| details.get("field")?.as_str());
        let field = named.and_then(|named| entry.fields.get(named)).unwrap_or(&entry.field);
        // The world file calls this setting `timeout`, and it is a duration.
        refusal.message = refusal.message.replace("timeout_seconds", "timeout");
        refusal.hint = refusal.hint.map(|hint| hint.replace("timeout_seconds", "timeout"));
        field.refused(refusal, "check that it matches the other settings of the job");
    };
    let mode = match JobMode::parse(entry.options.clone(), None, agent_id, name, &plan.limits) {
        Ok(mode) => mode,
        Err(refusal) => {
            report(refusal);
            return None;
        }
    };
    if let Err(refusal) = plan.check_job(&mode) {
        report(refusal);
    }
    if let Some(Target::Channel(named)) = mode.own_turn().map(|turn| &turn.target)
        && channels.iter().all(|channel| channel.channel != *named)
        && let Some(field) = entry.fields.get("to")
    {
        let hint = match nearest(named.as_str(), channels.iter().map(|channel| channel.channel.as_str()).chain([LAST]))
        {
            Some(near) => Hint::from(format!("did you mean `{near}`?")),
            None => "name it under `chat_channels`; until there is such a channel the job is not set".into(),
        };
        field.warn(format!("`chat_channels` has no channel `{}`", field.shown()), hint);
    }
    Some(mode)
}

#[cfg(test)]
#[path = "declared_tests.rs"]
mod tests;
