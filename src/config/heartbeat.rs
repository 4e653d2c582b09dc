//! Heartbeats: reads the blocks of `world-config.yaml`, its agents and its
//! archetypes, and computes each agent's heartbeat. Heartbeats are off by default. If any agent or
//! archetype has a block of its own, only such agents have heartbeats.

use std::collections::BTreeMap;
use std::time::Duration;

use ghost_domain::AgentId;
use ghost_domain::schedule::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use crate::kinds::{Count, TEXT_MAX, Text, Time, Zone, maybe, text_kind};
use crate::typed::{Spanned, problem};

/// An agent's heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatPlan {
    /// The interval.
    pub every: Duration,
    /// The hours with heartbeats. `None` means all hours.
    pub active: Option<ActiveHours>,
    /// Where an alert goes: `none`, `last` or a chat channel.
    pub target: String,
    /// The text of the heartbeat. `None` means a default question.
    pub prompt: Option<String>,
    /// Whether there is a HEARTBEAT.md without content. Then no heartbeat is needed.
    pub empty: bool,
}

/// Hours of a day, in minutes since midnight. They may span midnight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveHours {
    /// The first minute of the hours.
    pub from: u32,
    /// The first minute after the hours.
    pub to: u32,
    /// The time zone, an IANA name.
    pub timezone: String,
}

impl ActiveHours {
    /// Whether the hours contain a minute of the day.
    #[must_use]
    pub fn covers(&self, minute: u32) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&minute)
        } else {
            minute >= self.from || minute < self.to
        }
    }
}

/// The default interval.
const EVERY: Duration = Duration::from_secs(1_800);

/// `heartbeat`: when an agent looks around by itself. An absent key takes the value of the block of lower precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HeartbeatBlock {
    /// How often; `0m` is off. The default is `30m`.
    #[serde(deserialize_with = "interval")]
    #[schemars(with = "Option<Time<0, 604_800_000>>", title = "duration, 1s to 7d, or 0")]
    pub every: Option<Duration>,
    /// Where an alert goes: nowhere, to the agent's conversation in which someone outside last spoke, or to a chat
    /// channel that it is in. The default is `none`.
    #[serde(deserialize_with = "maybe::<AlertTarget, _, _>")]
    #[schemars(with = "Option<AlertTarget>")]
    pub target: Option<String>,
    /// What the agent is asked; `HEARTBEAT.md` in its archetype replaces it. The default is a plain question.
    #[serde(deserialize_with = "maybe::<Text<TEXT_MAX>, _, _>")]
    #[schemars(with = "Option<Text<TEXT_MAX>>")]
    pub prompt: Option<String>,
    /// The time zone of `active_hours`. The default is UTC.
    #[serde(deserialize_with = "maybe::<Zone, _, _>")]
    #[schemars(with = "Option<Zone>")]
    pub timezone: Option<String>,
    /// When; it may cross midnight (`22:00-06:00`). The default is all day.
    #[serde(rename = "active_hours", deserialize_with = "maybe::<Hours, _, _>")]
    #[schemars(with = "Option<Hours>")]
    pub active: Option<(u32, u32)>,
    /// The same as `limits.heartbeat_ack_chars`; only in the world's own `heartbeat`.
    pub ack_max_chars: Option<Spanned<Count<0, 10_000>>>,
}

/// An interval: zero, or a second at least.
fn interval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let every = Time::<0, 604_800_000>::deserialize(deserializer)?.0;
    match !every.is_zero() && every < Duration::from_secs(1) {
        true => Err(problem("the shortest interval is 1s", "for example 30m, or 0m for off")),
        false => Ok(Some(every)),
    }
}

text_kind!(pub AlertTarget(String), 64, "`none`, `last` or a chat channel", |text| match Target::of_alerts(text) {
    Ok(_) => Ok(text.to_owned()),
    Err(_) => {
        let hint = "write none, last, or the name of a chat channel";
        Err((format!("`{text}` is not a target for alerts"), hint.into()))
    }
});

text_kind!(pub Hours((u32, u32)), 64, "`HH:MM-HH:MM`", |text| {
    hours(text).ok_or_else(|| (format!("`{text}` is not a range of hours"), "for example 08:00-22:00".into()))
});

impl HeartbeatBlock {
    /// The keys of a block that is not the world's own.
    pub const KEYS: [&str; 5] = ["every", "target", "prompt", "timezone", "active_hours"];

    /// A copy of this block, with absent keys taken from `under`, the block of lower precedence.
    fn over(&self, under: &Self) -> Self {
        Self {
            every: self.every.or(under.every),
            target: self.target.clone().or_else(|| under.target.clone()),
            prompt: self.prompt.clone().or_else(|| under.prompt.clone()),
            timezone: self.timezone.clone().or_else(|| under.timezone.clone()),
            active: self.active.or(under.active),
            ack_max_chars: None,
        }
    }
}

/// Parses `HH:MM-HH:MM` into minutes since midnight. The end may be 24:00.
fn hours(text: &str) -> Option<(u32, u32)> {
    let minutes = |text: &str| {
        let (hours, minutes) = text.trim().split_once(':')?;
        let digits = |text: &str| (text.len() == 2).then(|| text.parse::<u32>().ok()).flatten();
        let (hours, minutes) = (digits(hours)?, digits(minutes)?);
        (minutes < 60 && hours * 60 + minutes <= 24 * 60).then_some(hours * 60 + minutes)
    };
    let (from, to) = text.split_once('-')?;
    let (from, to) = (minutes(from)?, minutes(to)?);
    (from != to && from < 24 * 60).then_some((from, to))
}

/// The inputs for one agent's heartbeat.
pub struct Source<'s> {
    /// The block of the agent in the world file.
    pub own: Option<&'s HeartbeatBlock>,
    /// The block of its archetype.
    pub archetype: Option<&'s HeartbeatBlock>,
    /// The text of its archetype's HEARTBEAT.md.
    pub text: Option<&'s str>,
}

/// Whether an agent of the world file has a block of its own. Then only such agents have heartbeats.
pub fn only_own(agents: &[(&AgentId, Source<'_>)]) -> bool {
    agents.iter().any(|(_, source)| source.has_own())
}

/// Computes the heartbeat of each agent that has one.
pub fn heartbeats(
    world: Option<&HeartbeatBlock>,
    agents: &[(&AgentId, Source<'_>)],
) -> BTreeMap<AgentId, HeartbeatPlan> {
    let only_own = only_own(agents);
    agents.iter().filter_map(|(id, source)| Some(((*id).clone(), source.heartbeat(world, only_own)?))).collect()
}

impl Source<'_> {
    fn has_own(&self) -> bool {
        self.own.is_some() || self.archetype.is_some()
    }

    /// The heartbeat of this agent, if it has one.
    pub fn heartbeat(&self, world: Option<&HeartbeatBlock>, only_own: bool) -> Option<HeartbeatPlan> {
        if !self.has_own() && (only_own || world.is_none()) {
            return None;
        }
        let nothing = HeartbeatBlock::default();
        let [own, archetype, world] = [self.own, self.archetype, world].map(|block| block.unwrap_or(&nothing));
        let block = own.over(&archetype.over(world));
        let every = block.every.unwrap_or(EVERY);
        if every.is_zero() {
            return None;
        }
        let active = block.active.map(|(from, to)| ActiveHours {
            from,
            to,
            timezone: block.timezone.clone().unwrap_or_else(|| "UTC".to_owned()),
        });
        Some(HeartbeatPlan {
            every,
            active,
            target: block.target.unwrap_or_else(|| "none".to_owned()),
            empty: self.text.is_some_and(is_blank),
            prompt: self.text.map(str::to_owned).or(block.prompt),
        })
    }
}

/// Whether a HEARTBEAT.md has no content: only headings, comments and empty list items.
pub fn is_blank(text: &str) -> bool {
    let mut rest = text.to_owned();
    while let Some(start) = rest.find("<!--") {
        let end = rest[start..].find("-->").map_or(rest.len(), |end| start + end + 3);
        rest.replace_range(start..end, "");
    }
    rest.lines().map(str::trim).all(|line| {
        let item = line.trim_start_matches(['-', '*', '+']).trim();
        line.starts_with('#') || matches!(item, "" | "[ ]" | "[x]" | "[]")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source<'s>(
        agent_id: &'s AgentId,
        own: Option<&'s HeartbeatBlock>,
        text: Option<&'s str>,
    ) -> (&'s AgentId, Source<'s>) {
        (agent_id, Source { own, archetype: None, text })
    }

    // covers: HB-04
    #[test]
    fn if_any_agent_has_its_own_block_only_such_agents_have_heartbeats() {
        let (a, b): (AgentId, AgentId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let world = HeartbeatBlock { target: Some("last".into()), ..HeartbeatBlock::default() };
        let own = HeartbeatBlock { every: Some(Duration::from_secs(60)), ..HeartbeatBlock::default() };
        assert!(heartbeats(None, &[source(&a, None, Some("x"))]).is_empty());
        let all = heartbeats(Some(&world), &[source(&a, None, None), source(&b, None, None)]);
        assert_eq!(all.values().map(|plan| plan.every).collect::<Vec<_>>(), [EVERY, EVERY]);
        let one = heartbeats(Some(&world), &[source(&a, Some(&own), Some("# Look\n- [ ]\n")), source(&b, None, None)]);
        assert_eq!(one.len(), 1);
        assert_eq!((one[&a].every, one[&a].target.as_str(), one[&a].empty), (Duration::from_secs(60), "last", true));
        let off = HeartbeatBlock { every: Some(Duration::ZERO), ..HeartbeatBlock::default() };
        assert!(heartbeats(Some(&world), &[source(&a, Some(&off), None)]).is_empty());
    }

    // covers: HB-04
    #[test]
    fn hours_and_empty_texts() {
        assert_eq!(hours("08:00-22:30"), Some((480, 1_350)));
        assert_eq!(hours("22:00-24:00"), Some((1_320, 1_440)));
        for bad in ["", "8-22", "08:00", "08:00-08:00", "25:00-26:00", "08:60-09:00", "24:00-25:00"] {
            assert_eq!(hours(bad), None, "{bad}");
        }
        assert!(is_blank("# Heartbeat\n\n<!-- tasks\n go here -->\n- [ ]\n* \n"));
        assert!(!is_blank("# Heartbeat\nLook at the mail.\n"));
    }

    #[test]
    fn hours_over_midnight() {
        let night = ActiveHours { from: 1_320, to: 360, timezone: "UTC".into() };
        assert!(night.covers(1_380) && night.covers(0) && !night.covers(360) && !night.covers(720));
        let day = ActiveHours { from: 480, to: 1_320, timezone: "UTC".into() };
        assert!(day.covers(480) && !day.covers(1_320) && !day.covers(0));
    }
}
