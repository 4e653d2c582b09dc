//! `cron`: the jobs that the file declares. An agent, a channel, a webhook or a model is resolved later; that needs the rest
//! of the world.

use std::ops::Deref;

use ghost_domain::AgentId;
use ghost_domain::schedule::words::{AHEAD_MAX_MS, checked_name, instant};
use ghost_domain::schedule::{Deliver, JobOptions, Missed, Payload, Session, WakeMode, When};
use ghost_domain::time::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::kinds::{Count, Parsed, TEXT_MAX, Text, Time, Zone, refused, text_kind};
use crate::reader::Field;
use crate::typed::{Read, Spanned};

/// One entry of `cron`. It has exactly one of `cron`, `every` and `at`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CronSection {
    /// The agent that the job wakes.
    pub agent: Option<Spanned<Parsed<AgentId>>>,
    /// Unique among the agent's jobs.
    pub name: Option<Spanned<JobName>>,
    /// When it runs: five fields, such as `0 7 * * 1-5`, or six with seconds first. One of `cron`, `every` and `at`
    /// is required.
    #[schemars(title = "five or six fields")]
    cron: Option<Spanned<Text<1_024>>>,
    /// The time zone of `cron`. The default is UTC.
    zone: Option<Spanned<Zone>>,
    /// The interval, counted from `anchor`; at least `limits.cron_gap_seconds`.
    every: Option<Spanned<Time<1, AHEAD_MAX_MS>>>,
    /// With `every`: an instant at which an interval begins. The default is `1970-01-01T00:00Z`.
    anchor: Option<Spanned<Anchor>>,
    /// It runs once, at this instant.
    at: Option<Spanned<Instant>>,
    /// What is to be done.
    pub message: Option<Spanned<Text<TEXT_MAX>>>,
    /// What happens to times that passed while the daemon was down. The default is `skip`.
    pub missed: Option<Missed>,
    /// Whether it runs. The default is `true`.
    pub enabled: Option<bool>,
    /// Mail in the ongoing conversation (`main`), or a turn of its own (`isolated`). The default is `main`, and `isolated` if an
    /// option is given that only a turn of its own has.
    session: Option<Spanned<Session>>,
    /// The same choice as `session` in other words. The default follows from `session`.
    payload: Option<Spanned<Payload>>,
    /// When it wakes the agent; `next-heartbeat` only with `main`.
    #[schemars(extend("default" = "now"))]
    wake: Option<Spanned<WakeMode>>,
    /// Where the last text goes. Only with `isolated`, as are `to`, `max_rounds`, `model` and `timeout`.
    #[schemars(extend("default" = "announce"))]
    deliver: Option<Spanned<Deliver>>,
    /// The channel, conversation or webhook that the last text goes to. The default is `last`.
    to: Option<Spanned<Text<1_024>>>,
    /// How long a turn of its own may work. The default is the agent's own limit.
    timeout: Option<Spanned<Time<1_000, 86_400_000>>>,
    /// Model calls of the turn. The default is the agent's own limit.
    max_rounds: Option<Spanned<Count<1, 1_000_000>>>,
    /// A model that the world's files name. The default is the agent's own.
    #[schemars(title = "`model` or `provider/model`")]
    model: Option<Spanned<Text<1_024>>>,
}

text_kind!(pub JobName(String), 1_024, "text, 64 characters without `/`", |name| {
    checked_name(name).map_err(|refusal| refused(refusal, "write a short name, such as morning"))
});

text_kind!(pub Anchor(Timestamp), 1_024, "instant", |text| {
    instant("anchor", text).map_err(|refusal| refused(refusal, "write it like 2027-01-31T18:00:00Z"))
});

text_kind!(pub Instant(Timestamp), 1_024, "instant", |text| {
    instant("at", text).map_err(|refusal| refused(refusal, "write it like 2027-01-31T18:00:00Z"))
});

/// The value of a kind, if it is there.
fn value<K: Deref<Target = T>, T: Clone>(spanned: &Option<Spanned<K>>) -> Option<T> {
    spanned.as_ref().map(|spanned| T::clone(&spanned.value))
}

impl CronSection {
    /// The settings besides the schedule and the message.
    pub fn options(&self) -> JobOptions {
        JobOptions {
            session: self.session.as_ref().map(|session| session.value),
            payload: self.payload.as_ref().map(|payload| payload.value),
            wake: self.wake.as_ref().map(|wake| wake.value),
            deliver: self.deliver.as_ref().map(|deliver| deliver.value),
            to: value(&self.to),
            timeout_seconds: value(&self.timeout).map(|time| u32::try_from(time.as_secs()).unwrap_or(u32::MAX)),
            max_rounds: self.max_rounds.as_ref().map(|rounds| rounds.u32()),
            model: value(&self.model),
        }
    }

    /// The place of a setting, by the name that refusals use.
    pub fn place<'f, 'n, T>(&self, name: &str, read: &'f Read<'n, T>) -> Option<&'f Field<'n>> {
        match name {
            "session" => self.session.as_ref().map(|value| read.at(value)),
            "payload" => self.payload.as_ref().map(|value| read.at(value)),
            "wake" => self.wake.as_ref().map(|value| read.at(value)),
            "deliver" => self.deliver.as_ref().map(|value| read.at(value)),
            "to" => self.to.as_ref().map(|value| read.at(value)),
            "timeout_seconds" => self.timeout.as_ref().map(|value| read.at(value)),
            "max_rounds" => self.max_rounds.as_ref().map(|value| read.at(value)),
            "model" => self.model.as_ref().map(|value| read.at(value)),
            _ => None,
        }
    }

    /// The schedules, with their places. A job has exactly one; another number is reported. Each that is there is returned,
    /// so that a mistake in it is reported together with one too many.
    pub fn whens<'f, 'n, T>(&self, field: &Field<'n>, read: &'f Read<'n, T>) -> Vec<(&'f Field<'n>, When)> {
        let written = |key: &str| field.node().get(key).is_some();
        if let Some(zone) = self.zone.as_ref().filter(|_| !written("cron")) {
            let hint = "remove it; `at` takes an offset, such as 18:00:00+01:00";
            read.at(zone).error("`zone` can be used only with `cron`", hint);
        }
        if let Some(anchor) = self.anchor.as_ref().filter(|_| !written("every")) {
            let hint = "remove it, or write `every: 6h` beside it";
            read.at(anchor).error("`anchor` can be used only with `every`", hint);
        }
        match ["cron", "every", "at"].into_iter().filter(|key| written(key)).count() {
            0 => field.error("the job has no schedule", "write one of `cron: '0 7 * * 1-5'`, `every: 1h` and `at`"),
            1 => {}
            _ => field.error("the job has more than one schedule", "keep one of `cron`, `every` and `at`"),
        }
        let cron = self
            .cron
            .as_ref()
            .map(|cron| (read.at(cron), When::Cron { expression: cron.trim().to_owned(), zone: value(&self.zone) }));
        let every = self.every.as_ref().map(|every| {
            let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
            let anchor = value(&self.anchor).unwrap_or(Timestamp(0));
            (read.at(every), When::Every { every_ms, anchor })
        });
        let at = self.at.as_ref().map(|at| (read.at(at), When::At { at: at.0 }));
        cron.into_iter().chain(every).chain(at).collect()
    }
}
