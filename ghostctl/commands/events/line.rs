//! An event as one line of text. Of an event of an unknown kind, the kind and the fields of its payload are printed.

use ghost_proto::json::parsed;
use ghost_proto::v1::Event;
use serde_json::Value;

use crate::output::View;
use crate::text::{one_line, plural};

/// A field is truncated to this many characters.
const FIELD_CHARACTERS: usize = 300;
/// An id is truncated to this many characters: enough to tell ids apart.
const ID_CHARACTERS: usize = 13;
/// Fields of unknown kinds that are not printed: ids that carry little information for a reader.
const HIDDEN_FIELDS: [&str; 6] = ["turn_id", "root_id", "message_id", "call_id", "correlation_id", "members"];

/// The line of an event: sequence number (none for ephemeral events), time, agent or channel, and a
/// description of the event.
pub fn event_line(event: &Event, ephemeral: bool, view: &View) -> String {
    let seq = if ephemeral { String::new() } else { event.seq.to_string() };
    let who = event.agent_id.as_deref().or(event.channel.as_deref()).unwrap_or("world");
    let what = what_happened(event, view);
    let line = format!("{seq:>6}  {}  {who:<10}  {what}", view.moment(event.ts_ms));
    let width = view.screen.unwrap_or(usize::MAX - 1);
    format!("{}\n", one_line(line.trim_end(), width))
}

/// The payload of an event, with its fields as text.
struct Fields(Value);

impl Fields {
    /// A field as text; empty if it is absent.
    fn get(&self, name: &str) -> String {
        field_text(self.0.get(name).unwrap_or(&Value::Null))
    }

    /// The party in a field, without the prefix `agent:`.
    fn party(&self, name: &str) -> String {
        let party = self.get(name);
        party.strip_prefix("agent:").map_or(party.clone(), str::to_owned)
    }

    /// `head` and the field; empty if the field is empty.
    fn with(&self, head: &str, name: &str) -> String {
        let value = self.get(name);
        if value.is_empty() { value } else { format!("{head}{value}") }
    }

    /// An id, shortened.
    fn id(&self, name: &str) -> String {
        self.get(name).chars().take(ID_CHARACTERS).collect()
    }

    fn number(&self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or_default()
    }

    fn is(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or_default()
    }
}

fn field_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => one_line(text.trim(), FIELD_CHARACTERS),
        Value::Array(items) => items.iter().map(field_text).collect::<Vec<_>>().join(", "),
        Value::Object(_) => one_line(&value.to_string(), FIELD_CHARACTERS),
        other => other.to_string(),
    }
}

fn what_happened(event: &Event, view: &View) -> String {
    let f = Fields(parsed(&event.payload_json));
    match event.kind.as_str() {
        "world.started" => format!("the world {} started on ghostd {}", f.get("world_id"), f.get("version")),
        "world.stopped" => format!("the world stopped{}", f.with(": ", "reason")),
        "world.paused" => format!("the world is paused{}", f.with(": ", "reason")),
        "world.resumed" => "the world is resumed".to_owned(),
        "world.clock_jumped" => format!("the clock jumped from {} to {}", f.get("from"), f.get("to")),
        "world.clock_confirmed" => format!("{} confirms the clock", f.party("by")),
        "world.warning" => format!("warning: {}", f.get("warning")),
        "agent.created" => format!("is created from {} by {}", f.get("archetype"), f.party("by")),
        "agent.started" => format!("is started by {}", f.party("by")),
        "agent.stopped" => format!("is stopped{}", f.with(": ", "reason")),
        "agent.crashed" => format!("crashes: {}", f.get("reason")),
        "agent.restarted" => "is restarted".to_owned(),
        "agent.failed" => format!("has failed: {}", f.get("reason")),
        "agent.deleted" => format!("is deleted{}", f.with(" by ", "by")),
        "turn.started" => {
            let kinds = f.get("kinds");
            let kinds = if kinds.is_empty() { f.get("source") } else { kinds };
            format!("starts turn {} ({kinds})", f.id("turn_id"))
        }
        "turn.resumed" => format!("resumes turn {}", f.id("turn_id")),
        "turn.parked" => {
            let aside = if f.get("standing") == "aside" { "; the agent goes on with other work" } else { "" };
            format!("parks turn {}{}{aside}", f.id("turn_id"), f.with(": ", "reason"))
        }
        "provider.down" => {
            let probe_at = f.0.get("probe_at").and_then(Value::as_i64);
            let probe = probe_at.map(|at| format!("; next probe {}", view.moment(at))).unwrap_or_default();
            format!("model {} of {} is down{}{probe}", f.get("model"), f.get("provider"), f.with(": ", "reason"))
        }
        "provider.up" => format!("model {} of {} is up again", f.get("model"), f.get("provider")),
        "turn.finished" => {
            let tokens = f.number("input_tokens").saturating_add(f.number("output_tokens"));
            let (rounds, calls) = (f.get("rounds"), f.get("calls"));
            let how = f.get("status");
            let how = if how == "finished" { String::new() } else { format!(" {how}{}", f.with(": ", "reason")) };
            let text = f.with(" — ", "text");
            format!("ends turn {}{how}: {rounds} rounds, {calls} calls, {tokens} tokens{text}", f.id("turn_id"))
        }
        "model.started" => format!("calls model {}", f.get("model")),
        "model.finished" => {
            let (model, ms, calls) = (f.get("model"), f.get("duration_ms"), f.get("tool_calls"));
            let (read, written) = (f.get("input_tokens"), f.get("output_tokens"));
            format!("{model} answers after {ms} ms: {read} tokens in, {written} out, {calls} calls")
        }
        "model.state_dropped" => {
            format!("{} is called again without its earlier provider state", f.get("model"))
        }
        "model.failed" => format!("{} fails: {}", f.get("model"), f.get("error")),
        "model.delta" => format!("… {}", f.get("text")),
        "tool.started" => format!("calls {}{}", f.get("tool"), f.with(" ", "summary")),
        "tool.progress" => format!("… {}{}", f.get("tool"), f.with(": ", "text")),
        "tool.finished" => {
            let (tool, status, ms) = (f.get("tool"), f.get("status"), f.get("duration_ms"));
            format!("{tool} {status} after {ms} ms{}", f.with(": ", "error"))
        }
        "message.delivered" => {
            let (kind, from) = (f.get("kind"), f.party("from"));
            let about = f.with(": ", "subject");
            let about = if about.is_empty() { f.with(": ", "preview") } else { about };
            format!("receives {kind} mail from {from}{about}")
        }
        "ask.answered" => format!("answers {}", f.party("asker")),
        "ask.failed" => format!("does not answer {}{}", f.party("asker"), f.with(": ", "error")),
        "ask.late" => format!("answers too late: {}", f.get("reply")),
        "task.created" | "task.updated" => {
            let head = if event.kind == "task.created" { "new task" } else { "task" };
            let (status, title, result) = (f.get("status"), f.get("title"), f.with(" — ", "result"));
            format!("{head} {status}, owner {}: {title}{result}{}", f.party("owner"), f.with(" — ", "note"))
        }
        "chat.created" => format!("channel created by {}{}", f.party("creator"), f.with(": ", "members")),
        "chat.message" => {
            let channel = event.channel.as_deref().unwrap_or_default();
            format!("#{channel} {}: {}", f.party("from"), f.get("content"))
        }
        "chat.member_added" => format!("{} joins #{}", f.get("agent_id"), event.channel.as_deref().unwrap_or_default()),
        "chat.member_removed" => {
            format!("{} leaves #{}", f.get("agent_id"), event.channel.as_deref().unwrap_or_default())
        }
        "conversation.started" => {
            format!("conversation {} with {} started", f.id("conversation_id"), f.get("party"))
        }
        "conversation.message" => {
            let way = match f.get("direction").as_str() {
                "out" => "sends a message",
                "note" => "gets a note",
                _ => "receives a message",
            };
            format!("{way} in conversation {}: {}", f.id("conversation_id"), f.get("preview"))
        }
        "conversation.handed_over" => {
            let (from, to) = (f.party("from"), f.party("to"));
            format!(
                "conversation {} handed over from {from} to {to}{}",
                f.id("conversation_id"),
                f.with(": ", "reason")
            )
        }
        "session.reset" => format!("session {} begins anew, by {}", f.get("session"), f.party("by")),
        "knowledge.changed" | "state.changed" => {
            let what = if event.kind == "state.changed" { f.get("key") } else { f.get("entry_id") };
            let by = if event.kind == "state.changed" { f.party("writer") } else { f.party("by") };
            match f.is("deleted") {
                true => format!("{what} is deleted by {by}"),
                false => format!("{what} is now version {}, by {by}", f.get("version")),
            }
        }
        "budget.exhausted" => format!("budget spent: {}", f.get("reason")),
        "limit.reached" => format!("limit reached: {} at {}", f.get("limit"), f.get("value")),
        "artifact.created" => format!("writes {} ({} bytes)", f.get("path"), f.get("bytes")),
        "artifact.removed" => format!("removes {}", f.get("path")),
        "grant.created" => format!("may write {}, by {}{}", f.get("prefix"), f.party("by"), f.with(": ", "reason")),
        "grant.revoked" => format!("may no longer write {}, by {}", f.get("prefix"), f.party("by")),
        "job.started" => {
            format!("job {} starts: {}, led by {}", f.get("job_id"), plural(f.number("files"), "file"), f.get("lead"))
        }
        "job.finished" => format!("job {} is done{}", f.get("job_id"), f.with(": ", "result_path")),
        kind => generic_line(kind, &f.0),
    }
}

/// The text of any other kind: its name and its fields, such as `schedule fired: name tick, run 3`.
fn generic_line(kind: &str, payload: &Value) -> String {
    let name = kind.replace(['.', '_'], " ");
    let fields = payload.as_object().into_iter().flatten().filter(|(name, _)| !HIDDEN_FIELDS.contains(&name.as_str()));
    let parts: Vec<String> = fields
        .map(|(name, value)| (name.strip_suffix("_id").unwrap_or(name).replace('_', " "), field_text(value)))
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if parts.is_empty() { name } else { format!("{name}: {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use ghost_domain::EventKind;
    use serde_json::json;

    use super::*;

    fn event(kind: &str, payload: Value) -> Event {
        Event {
            seq: 7,
            kind: kind.into(),
            agent_id: Some("ada".into()),
            channel: Some("room".into()),
            payload_json: payload.to_string(),
            ..Event::default()
        }
    }

    #[test]
    fn events_become_readable_lines() {
        for (kind, payload, wanted) in [
            (
                "tool.started",
                json!({ "tool": "workspace.read", "summary": "notes.md" }),
                "calls workspace.read notes.md",
            ),
            (
                "message.delivered",
                json!({ "kind": "ask", "from": "agent:ben", "preview": "why\nnot?" }),
                "receives ask mail from ben: why not?",
            ),
            ("chat.message", json!({ "from": "ada", "content": "Hello all" }), "#room ada: Hello all"),
            (
                "task.updated",
                json!({ "status": "done", "owner": "ben", "title": "Read it", "result": "read" }),
                "task done, owner ben: Read it — read",
            ),
            (
                "turn.finished",
                json!({ "turn_id": "01a206d4-d936-7292-a3b0-fc222172ca38", "status": "failed", "reason": "no money", "rounds": 1, "calls": 2, "input_tokens": 3, "output_tokens": 4 }),
                "ends turn 01a206d4-d936 failed: no money: 1 rounds, 2 calls, 7 tokens",
            ),
            (
                "turn.parked",
                json!({ "turn_id": "t", "reason": "m is down", "waits_for": { "cause": "model" }, "standing": "in_line" }),
                "parks turn t: m is down",
            ),
            (
                "provider.down",
                json!({ "model": "m", "provider": "p", "reason": "no answer", "probe_at": 1_000 }),
                "model m of p is down: no answer; next probe 1970-01-01 00:00:01Z",
            ),
            (
                "schedule.fired",
                json!({ "by": null, "name": "tick", "run": 3, "schedule_id": "s", "turn_id": "t" }),
                "schedule fired: name tick, run 3, schedule s",
            ),
            ("some.day", json!({}), "some day"),
        ] {
            let line = event_line(&event(kind, payload), false, &View::default());
            assert_eq!(line, format!("     7  1970-01-01 00:00:00Z  ada         {wanted}\n"), "{kind}");
        }
    }

    #[test]
    fn every_kind_fits_on_one_line_of_any_screen_and_shows_no_json() {
        let odd = json!({ "text": "a\nb\u{1b}[31m", "reason": "r\r\nr", "members": ["a", "b"], "when": { "at": [1] } });
        for kind in EventKind::ALL {
            let view = View { screen: Some(60), ..View::default() };
            let line = event_line(&event(kind.as_str(), odd.clone()), false, &view);
            assert_eq!((line.matches('\n').count(), line.chars().count() <= 61), (1, true), "{line}");
            let whole = event_line(&event(kind.as_str(), json!({ "reason": "so" })), false, &View::default());
            assert!(!whole.contains('{'), "{whole}");
        }
        assert!(
            event_line(&event("x", json!({ "n": "y".repeat(9_000) })), true, &View::default()).chars().count() < 500
        );
    }
}
