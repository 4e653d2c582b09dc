//! Reads `cron`: the jobs that `world-config.yaml` declares.
//!
//! An agent, a channel, a webhook or a model must never be resolved here; that needs the rest of
//! the world.

use std::collections::BTreeMap;
use std::time::Duration;

use ghost_domain::AgentId;
use ghost_domain::schedule::words::{AHEAD_MAX_MS, checked_name, instant};
use ghost_domain::schedule::{JobOptions, Missed, When};
use ghost_domain::time::Timestamp;

use super::parts::TEXT_MAX;
use crate::heartbeat::timezone;
use crate::reader::{Field, Map};

/// One entry of `cron`. The comment of each field is its key in the file.
pub struct CronEntry<'n> {
    /// The position of the entry.
    pub field: Field<'n>,
    /// `agent`. This and the fields below are `None` if they are missing or wrong, which was
    /// reported.
    pub agent: Option<(Field<'n>, AgentId)>,
    /// `name`.
    pub name: Option<(Field<'n>, String)>,
    /// `cron`, `every` or `at`, with its field. A job has exactly one; another number was reported.
    pub whens: Vec<(Field<'n>, When)>,
    /// `message`.
    pub message: Option<(Field<'n>, String)>,
    /// `missed`.
    pub missed: Missed,
    /// `enabled`.
    pub enabled: bool,
    /// The remaining settings: session, delivery, model and so on.
    pub options: JobOptions,
    /// The fields of those settings, by the names that refusals use.
    pub fields: BTreeMap<&'static str, Field<'n>>,
}

/// An example of an entry, for hints.
const SUCH_AS: &str = "{ agent: lead, name: morning, cron: '0 7 * * 1-5', message: 'Read the mail' }";

/// Reads `cron`.
pub fn cron<'n>(map: &Map<'n>) -> Vec<CronEntry<'n>> {
    let list = map.get("cron").map(|field| field.list()).unwrap_or_default();
    list.iter().filter_map(entry).collect()
}

fn entry<'n>(field: &Field<'n>) -> Option<CronEntry<'n>> {
    let map = field.map_of(SUCH_AS)?;
    let agent = map.need("agent", "lead").and_then(|field| field.parsed("an agent id").map(|id| (field, id)));
    let name = map.need("name", "morning").and_then(|field| match checked_name(field.text(1_024)?) {
        Ok(name) => Some((field, name)),
        Err(refusal) => {
            field.refused(refusal, "write a short name, such as morning");
            None
        }
    });
    let whens = whens(&map);
    let message = map.need("message", "'Read the mail'");
    let message = message.and_then(|field| field.text(TEXT_MAX).map(|text| (field.clone(), text.to_owned())));
    let missed = map.get("missed").and_then(|field| field.one_of()).unwrap_or(Missed::Skip);
    let enabled = map.get("enabled").and_then(|field| field.flag()).unwrap_or(true);
    let mut fields = BTreeMap::new();
    let mut take = |key, name| {
        let found: Option<Field<'n>> = map.get(key);
        fields.extend(found.clone().map(|field| (name, field)));
        found
    };
    let options = JobOptions {
        session: take("session", "session").and_then(|field| field.one_of()),
        payload: take("payload", "payload").and_then(|field| field.one_of()),
        wake: take("wake", "wake").and_then(|field| field.one_of()),
        deliver: take("deliver", "deliver").and_then(|field| field.one_of()),
        to: take("to", "to").and_then(|field| field.text(1_024)).map(str::to_owned),
        timeout_seconds: take("timeout", "timeout_seconds")
            .and_then(|field| field.duration(Duration::from_secs(1)..=Duration::from_secs(86_400)))
            .map(|timeout| u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX)),
        max_rounds: take("max_rounds", "max_rounds").and_then(|field| field.count32(1..=1_000_000)),
        model: take("model", "model").and_then(|field| field.text(1_024)).map(str::to_owned),
    };
    map.finish(&[
        ("schedule", "write `cron: '0 7 * * 1-5'`, `every: 1h` or `at: 2027-01-31T18:00:00Z` beside the name"),
        ("timezone", "write `zone`"),
        ("prompt", "write `message`"),
        ("id", "write `name`"),
    ]);
    Some(CronEntry { field: field.clone(), agent, name, whens, message, missed, enabled, options, fields })
}

/// Reads the schedule: one of `cron`, `every` and `at`. Each that is there is read, so that a mistake in it is reported
/// together with one too many.
fn whens<'n>(map: &Map<'n>) -> Vec<(Field<'n>, When)> {
    let [cron, every, at] = ["cron", "every", "at"].map(|key| map.get(key));
    let zone = map.get("zone");
    if let (Some(zone), None) = (&zone, &cron) {
        zone.error("`zone` can be used only with `cron`", "remove it; `at` takes an offset, such as 18:00:00+01:00");
    }
    let anchor = map.get("anchor");
    if let (Some(anchor), None) = (&anchor, &every) {
        anchor.error("`anchor` can be used only with `every`", "remove it, or write `every: 6h` beside it");
    }
    match [&cron, &every, &at].into_iter().flatten().count() {
        0 => map.field().error("the job has no schedule", "write one of `cron: '0 7 * * 1-5'`, `every: 1h` and `at`"),
        1 => {}
        _ => map.field().error("the job has more than one schedule", "keep one of `cron`, `every` and `at`"),
    }
    let cron = cron.and_then(|field| by_expression(&field, zone.as_ref()).map(|when| (field, when)));
    let every = every.and_then(|field| by_interval(&field, anchor.as_ref()).map(|when| (field, when)));
    let at = at.and_then(|field| by_instant(&field).map(|when| (field, when)));
    cron.into_iter().chain(every).chain(at).collect()
}

fn by_expression(field: &Field<'_>, zone: Option<&Field<'_>>) -> Option<When> {
    // A wrong zone is reported here, and the expression is checked without it.
    let zone = zone.and_then(timezone);
    Some(When::Cron { expression: field.text(1_024)?.trim().to_owned(), zone })
}

fn by_interval(field: &Field<'_>, anchor: Option<&Field<'_>>) -> Option<When> {
    let anchor = match anchor.map(|anchor| (instant("anchor", anchor.text(1_024).unwrap_or_default()), anchor)) {
        None => Timestamp(0),
        Some((Ok(at), _)) => at,
        Some((Err(refusal), anchor)) => {
            anchor.refused(refusal, "write it like 2027-01-31T18:00:00Z");
            Timestamp(0)
        }
    };
    let every = field.duration(Duration::from_millis(1)..=Duration::from_millis(AHEAD_MAX_MS))?;
    Some(When::Every { every_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX), anchor })
}

fn by_instant(field: &Field<'_>) -> Option<When> {
    match instant("at", field.text(1_024)?) {
        Ok(at) => Some(When::At { at }),
        Err(refusal) => {
            field.refused(refusal, "write it like 2027-01-31T18:00:00Z");
            None
        }
    }
}
