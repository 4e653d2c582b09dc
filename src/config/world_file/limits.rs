//! `limits`: the limits of a world by name, each within its own range.

use ghost_domain::Limits;
use schemars::json_schema;
use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, Visitor};

use crate::kinds::{Range, schema};

/// `limits`, each within its own range.
#[derive(Default)]
pub struct LimitsByName(pub Limits);

/// What the schema says of a limit beyond its meaning in the domain.
const BEYOND: [(&str, &str); 31] = [
    ("turn_mail_max", "They are the messages that it takes from the inbox."),
    ("turn_seconds", "So is the time during which it waits for a budget."),
    ("calls_parallel", "Calls that change the world or a file always run one by one."),
    ("answer_tokens", "Its key there is `max_tokens`."),
    ("droid_depth_max", "Above 1, `droids.tools` must list `syscall.droid.spawn`."),
    (
        "arguments_bytes",
        "All calls of one answer together may have `calls_per_answer` times as many, but at least 1 MiB and at most 32 MiB. A \
         longer answer is rejected.",
    ),
    ("result_view_bytes", "Some tools have a larger bound of their own."),
    ("result_once_bytes", "The model must write down what it needs in the answer after the read."),
    ("session_tokens", "With 0, an agent remembers nothing of earlier turns."),
    ("dynamic_agents_max", "Agents or operators created them."),
    ("sleep_after_seconds", "It is unloaded from memory; mail loads it again."),
    (
        "awake_max",
        "Agents with mail of people go first. One that waits for a model that is down or for a budget holds no place, either.",
    ),
    (
        "stop_grace_seconds",
        "The same holds when the daemon stops. A turn that waits for a model or a budget gets none.",
    ),
    ("subscriber_buffer", "A subscriber that is further behind is disconnected."),
    ("subscribers_max", "Each is an open event stream."),
    ("connections_max", "There are fewer if `ghostd` may have only few files open."),
    ("journal_days", "The same holds for closed asks, settled dead letters, ended tasks, and accounts of ended roots."),
    ("cron_turn_hours", "The record of runs stays for `schedule_run_days`."),
    (
        "usage_days",
        "A deleted agent is remembered for the longest of `events_days`, `journal_days`, `ledger_days` and `usage_days`.",
    ),
    ("requests_days", "They answer repeated requests (`Idempotency-Key`, `request_id`)."),
    ("store_bytes_max", "Only bytes in use count."),
    ("store_bytes_warn", "Only bytes in use count. The event is `world.warning`."),
    ("free_bytes_warn", "The event is `world.warning`."),
    ("free_inodes_min", "These are the file systems of the data and the workspace."),
    ("world_watches_max", "Those are file notifications."),
    ("reminder_messages", "It quotes them."),
    ("heartbeat_ack_chars", "An answer with more of them is an alert."),
    ("conversation_entries_max", "At twice this number it takes no more."),
    ("attachments_max", "The message goes to the outside."),
    ("hops_max", "The message follows from that root."),
    ("output_files_max", "0 looks at none."),
];

/// A meaning without the ids of requirements, such as `(LOOP-03)`.
fn plain(meaning: &str) -> String {
    let is_id = |word: &str| {
        let (family, number) = word.split_once('-').unwrap_or_default();
        !family.is_empty() && family.bytes().all(|b| b.is_ascii_uppercase()) && number.parse::<u16>().is_ok()
    };
    let mut parts = meaning.split(" (");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')').filter(|(id, _)| is_id(id)) {
            Some((_, rest)) => plain.push_str(rest),
            None => plain.extend([" (", part]),
        }
    }
    plain
}

schema!(LimitsByName, _ => {
    let one = |((name, default, least, most), meaning): ((&str, _, _, _), &str)| {
        let meaning = plain(meaning);
        let beyond = BEYOND.iter().filter(|(limit, _)| *limit == name).map(|(_, said)| *said);
        let description: Vec<&str> = std::iter::once(meaning.as_str()).chain(beyond).collect();
        let schema = serde_json::json!({
            "description": description.join(" "), "type": "integer", "default": default, "minimum": least, "maximum": most
        });
        (name.to_owned(), schema)
    };
    let limits = Limits::default().table().into_iter().zip(Limits::meanings());
    let properties: serde_json::Map<_, _> = limits.map(one).collect();
    json_schema!({ "type": "object", "properties": properties, "additionalProperties": false })
});

impl<'de> Deserialize<'de> for LimitsByName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bounds;
        impl<'de> Visitor<'de> for Bounds {
            type Value = Limits;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("limits")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Limits, A::Error> {
                let mut values = serde_json::Map::new();
                while let Some(LimitName(name, range)) = map.next_key()? {
                    values.insert(name.to_owned(), map.next_value_seed(range)?.into());
                }
                serde_json::from_value(values.into()).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_struct("Limits", &[], Bounds).map(Self)
    }
}

struct LimitName(&'static str, Range);

impl<'de> Deserialize<'de> for LimitName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static NAMES: std::sync::LazyLock<Vec<&str>> =
            std::sync::LazyLock::new(|| Limits::default().table().iter().map(|(name, ..)| *name).collect());
        let key = String::deserialize(deserializer)?;
        let range = Limits::default().table().into_iter().find(|(name, ..)| *name == key);
        range
            .map(|(name, _, least, most)| Self(name, Range(least, most)))
            .ok_or_else(|| de::Error::unknown_field(&key, &NAMES))
    }
}
