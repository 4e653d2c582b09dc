//! Counts since the start of the daemon, taken from the event feed, for metrics: turns, tool calls and
//! model calls by result, tokens, dollars and durations.
//!
//! The counts must never grow with the age of the world. Counting must never prevent a subscriber from
//! receiving an event.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ghost_domain::event::{EventFilter, EventKind};
use ghost_domain::{Event, Refusal};
use ghost_operations::feed::Subscription;
use ghost_world::World;
use serde_json::Value;

/// Name of the counting loop in `status`.
pub(crate) const METRICS: &str = "metrics";

/// Upper bounds of the histogram buckets, in seconds.
pub(crate) const BUCKETS: [f64; 14] =
    [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Largest number of labels in one family. Further labels are counted as `other`, because model
/// names come from outside the daemon.
const LABELS_MAX: usize = 200;
/// Largest number of open turns whose start time is kept.
const TURNS_MAX: usize = 100_000;
/// Pause before the feed is opened again after an error.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Histogram of durations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// Number of durations in each bucket. The buckets are not cumulative.
    pub buckets: [u64; BUCKETS.len()],
    /// Number of all durations.
    pub count: u64,
    /// Sum of all durations, in milliseconds.
    pub sum_ms: u64,
}

impl Histogram {
    #[allow(clippy::cast_precision_loss)] // durations stay far below 2^53 milliseconds
    fn add(&mut self, ms: u64) {
        let seconds = ms as f64 / 1_000.0;
        if let Some(bucket) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[bucket] += 1;
        }
        self.count += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }
}

/// Counts for one model.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelCounts {
    /// Calls that were answered.
    pub answered: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Calls that a turn made after one of its calls had failed.
    pub retries: u64,
    /// Input tokens, including those from the provider's cache.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    pub cache_write: u64,
    /// Known cost, in millionths of a dollar.
    pub micros: u64,
    /// Durations of the answered calls.
    pub took: Histogram,
}

/// All counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Turns by status.
    pub turns: BTreeMap<String, u64>,
    /// Durations of the turns that started in this process.
    pub turns_took: Histogram,
    /// Tool calls by tool and status.
    pub tools: BTreeMap<(String, String), u64>,
    /// Durations of tool calls.
    pub tools_took: Histogram,
    /// Model calls by model.
    pub models: BTreeMap<String, ModelCounts>,
    /// Start time of each open turn in milliseconds, and whether its last model call failed.
    turns_open: HashMap<String, (i64, bool)>,
}

/// The counts, shared by the counting loop and the metrics endpoint.
#[derive(Default)]
pub(crate) struct Tallies(Mutex<Counts>);

impl Tallies {
    /// A copy of the current counts.
    pub(crate) fn read(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an event.
    pub(crate) fn take(&self, event: &Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(event);
    }
}

/// Counts events from now on, until the store closes.
pub(crate) async fn follow(world: Arc<World>, tallies: Arc<Tallies>) -> Result<(), String> {
    let mut after = None;
    loop {
        let ended = count(&world, &tallies, &mut after).await;
        match ended {
            Ok(()) => return Ok(()),
            // Retention has deleted the next events: skip them and start at the present.
            Err(refusal) if refusal.code == ghost_domain::Code::CursorExpired => after = None,
            Err(refusal) => tracing::debug!(%refusal, "the feed is opened again for the counts"),
        }
        world.ctx().ports.clock.sleep(RETRY_PAUSE).await;
    }
}

async fn count(world: &World, tallies: &Tallies, after: &mut Option<i64>) -> Result<(), Refusal> {
    let kinds = ["turn.", "tool.finished", "model.started", "model.finished", "model.failed"];
    let filter = EventFilter { kinds: kinds.into_iter().map(str::to_owned).collect(), ..EventFilter::default() };
    let mut events = Subscription::open(world.store(), *after, filter, true).await?;
    *after = Some(events.seen());
    while let Some(event) = events.next().await? {
        tallies.take(&event);
        *after = Some(events.seen());
    }
    Ok(())
}

impl Counts {
    fn take(&mut self, event: &Event) {
        let text = |name: &str| event.payload.get(name).and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let number = |name: &str| event.payload.get(name).and_then(Value::as_u64).unwrap_or(0);
        let turn_id = event.payload.get("turn_id").and_then(Value::as_str);
        match event.kind {
            EventKind::TurnStarted => {
                if let Some(turn_id) = turn_id.filter(|_| self.turns_open.len() < TURNS_MAX) {
                    self.turns_open.insert(turn_id.to_owned(), (event.ts.0, false));
                }
            }
            EventKind::TurnFinished => {
                *labelled(&mut self.turns, text("status")) += 1;
                if let Some((started, _)) = turn_id.and_then(|turn_id| self.turns_open.remove(turn_id)) {
                    self.turns_took.add(u64::try_from(event.ts.0.saturating_sub(started)).unwrap_or(0));
                }
            }
            EventKind::ToolFinished => {
                let key = (text("tool"), text("status"));
                let full = self.tools.len() >= LABELS_MAX && !self.tools.contains_key(&key);
                let key = if full { ("other".to_owned(), key.1) } else { key };
                *self.tools.entry(key).or_default() += 1;
                self.tools_took.add(number("duration_ms"));
            }
            EventKind::ModelStarted => {
                if let Some((_, failed)) = turn_id.and_then(|turn_id| self.turns_open.get_mut(turn_id))
                    && std::mem::take(failed)
                {
                    labelled(&mut self.models, text("model")).retries += 1;
                }
            }
            EventKind::ModelFinished => {
                let model = labelled(&mut self.models, text("model"));
                model.answered += 1;
                model.took.add(number("duration_ms"));
                model.spend(&event.payload);
            }
            // `kept` means that the answer waits for the store: the model has not failed.
            EventKind::ModelFailed if event.payload.get("kept") != Some(&Value::Bool(true)) => {
                let model = labelled(&mut self.models, text("model"));
                model.failed += 1;
                model.spend(&event.payload);
                if let Some((_, failed)) = turn_id.and_then(|turn_id| self.turns_open.get_mut(turn_id)) {
                    *failed = true;
                }
            }
            _ => {}
        }
    }
}

impl ModelCounts {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a price is not negative, and far below 2^64 millionths
    fn spend(&mut self, payload: &Value) {
        let number = |name: &str| payload.get(name).and_then(Value::as_u64).unwrap_or(0);
        self.input = self.input.saturating_add(number("input_tokens"));
        self.output = self.output.saturating_add(number("output_tokens"));
        self.cache_read = self.cache_read.saturating_add(number("cache_read"));
        self.cache_write = self.cache_write.saturating_add(number("cache_write"));
        let dollars = payload.get("cost_usd").and_then(Value::as_f64).unwrap_or(0.0);
        self.micros = self.micros.saturating_add((dollars * 1e6).round() as u64);
    }
}

/// The entry for a label, or for `other` if there are too many labels.
fn labelled<T: Default>(map: &mut BTreeMap<String, T>, label: String) -> &mut T {
    let full = map.len() >= LABELS_MAX && !map.contains_key(&label);
    map.entry(if full { "other".to_owned() } else { label }).or_default()
}

#[cfg(test)]
mod tests {
    use ghost_domain::{EventId, Timestamp};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn event(ms: i64, kind: EventKind, payload: Value) -> Event {
        Event {
            seq: 1,
            event_id: EventId(Uuid::nil()),
            ts: Timestamp(ms),
            kind,
            agent_id: None,
            channel: None,
            correlation_id: None,
            payload: payload.into(),
        }
    }

    #[test]
    fn events_are_counted_by_result() {
        let tallies = Tallies::default();
        let failed = |kept| json!({ "turn_id": "t", "model": "m", "kept": kept });
        for event in [
            event(0, EventKind::TurnStarted, json!({ "turn_id": "t" })),
            event(1, EventKind::ModelStarted, json!({ "turn_id": "t", "model": "m" })),
            event(2, EventKind::ModelFailed, failed(false)),
            event(2, EventKind::ModelFailed, failed(true)),
            event(3, EventKind::ModelStarted, json!({ "turn_id": "t", "model": "m" })),
            event(
                4,
                EventKind::ModelFinished,
                json!({ "turn_id": "t", "model": "m", "input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25, "duration_ms": 700 }),
            ),
            event(5, EventKind::ToolFinished, json!({ "tool": "workspace.read", "status": "ok", "duration_ms": 5 })),
            event(2_000, EventKind::TurnFinished, json!({ "turn_id": "t", "status": "finished" })),
            // This turn started before the process did.
            event(2_000, EventKind::TurnFinished, json!({ "turn_id": "u", "status": "failed" })),
        ] {
            tallies.take(&event);
        }
        let counts = tallies.read();
        let model = &counts.models["m"];
        assert_eq!((model.answered, model.failed, model.retries), (1, 1, 1));
        assert_eq!((model.input, model.output, model.micros, model.took.sum_ms), (10, 5, 250_000, 700));
        assert_eq!(counts.turns, BTreeMap::from([("failed".to_owned(), 1), ("finished".to_owned(), 1)]));
        assert_eq!((counts.turns_took.count, counts.turns_took.sum_ms), (1, 2_000));
        assert_eq!(counts.tools[&("workspace.read".to_owned(), "ok".to_owned())], 1);
        assert_eq!((counts.tools_took.buckets[0], counts.turns_open.len()), (1, 0));
    }

    #[test]
    fn labels_from_outside_are_limited() {
        let tallies = Tallies::default();
        for n in 0..LABELS_MAX * 2 {
            tallies.take(&event(0, EventKind::ModelFinished, json!({ "model": n.to_string(), "duration_ms": 1 })));
        }
        let counts = tallies.read();
        assert_eq!(counts.models.len(), LABELS_MAX + 1);
        assert_eq!(usize::try_from(counts.models["other"].answered).unwrap(), LABELS_MAX);
    }
}
