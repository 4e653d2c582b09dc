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

/// What happened, by kind. `{name}` is a field of the payload, `{@name}` a party without the prefix `agent:`, `{#name}` a
/// shortened id, and `{$}` the channel of the event. A part in brackets stands only if its field has a value.
const SENTENCES: &[(&str, &str)] = &[
    ("world.started", "the world {world_id} started on ghostd {version}"),
    ("world.stopped", "the world stopped[: {reason}]"),
    ("world.paused", "the world is paused[: {reason}]"),
    ("world.resumed", "the world is resumed"),
    ("world.clock_jumped", "the clock jumped from {from} to {to}"),
    ("world.clock_confirmed", "{@by} confirms the clock"),
    ("world.warning", "warning: {warning}"),
    ("agent.created", "is created from {archetype} by {@by}"),
    ("agent.started", "is started by {@by}"),
    ("agent.stopped", "is stopped[: {reason}]"),
    ("agent.crashed", "crashes: {reason}"),
    ("agent.restarted", "is restarted"),
    ("agent.failed", "has failed: {reason}"),
    ("agent.deleted", "is deleted[ by {by}]"),
    ("turn.resumed", "resumes turn {#turn_id}"),
    ("turn.parked", "parks turn {#turn_id}[: {reason}]"),
    ("provider.down", "model {model} of {provider} is down[: {reason}]"),
    ("provider.up", "model {model} of {provider} is up again"),
    ("model.started", "calls model {model}"),
    (
        "model.finished",
        "{model} answers after {duration_ms} ms: {input_tokens} tokens in, {output_tokens} out, {tool_calls} calls",
    ),
    ("model.state_dropped", "{model} is called again without its earlier provider state"),
    ("model.failed", "{model} fails: {error}"),
    ("model.delta", "… {text}"),
    ("tool.started", "calls {tool}[ {summary}]"),
    ("tool.progress", "… {tool}[: {text}]"),
    ("tool.finished", "{tool} {status} after {duration_ms} ms[: {error}]"),
    ("ask.answered", "answers {@asker}"),
    ("ask.failed", "does not answer {@asker}[: {error}]"),
    ("ask.late", "answers too late: {reply}"),
    ("task.created", "new task {status}, owner {@owner}: {title}[ — {result}][ — {note}]"),
    ("task.updated", "task {status}, owner {@owner}: {title}[ — {result}][ — {note}]"),
    ("chat.created", "channel created by {@creator}[: {members}]"),
    ("chat.message", "#{$} {@from}: {content}"),
    ("chat.member_added", "{agent_id} joins #{$}"),
    ("chat.member_removed", "{agent_id} leaves #{$}"),
    ("conversation.started", "conversation {#conversation_id} with {party} started"),
    ("conversation.handed_over", "conversation {#conversation_id} handed over from {@from} to {@to}[: {reason}]"),
    ("session.reset", "session {session} begins anew, by {@by}"),
    ("budget.exhausted", "budget spent: {reason}"),
    ("limit.reached", "limit reached: {limit} at {value}"),
    ("artifact.created", "writes {path} ({bytes} bytes)"),
    ("artifact.removed", "removes {path}"),
    ("grant.created", "may write {prefix}, by {@by}[: {reason}]"),
    ("grant.revoked", "may no longer write {prefix}, by {@by}"),
    ("job.finished", "job {job_id} is done[: {result_path}]"),
];

/// The payload of an event, with its fields as text, and the channel of the event.
struct Fields<'e>(Value, &'e str);

impl Fields<'_> {
    /// A field as text, by its name in a sentence; empty if it is absent.
    fn get(&self, name: &str) -> String {
        let text = |name: &str| field_text(self.0.get(name).unwrap_or(&Value::Null));
        match name.split_at(name.len().min(1)) {
            ("$", _) => self.1.to_owned(),
            ("@", name) => text(name).strip_prefix("agent:").map_or_else(|| text(name), str::to_owned),
            ("#", name) => text(name).chars().take(ID_CHARACTERS).collect(),
            _ => text(name),
        }
    }

    fn number(&self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or_default()
    }

    /// The sentence with its fields.
    fn tell(&self, sentence: &str) -> String {
        let (mut text, mut rest) = (String::new(), sentence);
        while let Some((before, part, after)) = next_part(rest) {
            let (head, name) = part.split_once('{').unwrap_or(("", part));
            let value = self.get(name.trim_end_matches('}'));
            text.push_str(before);
            if !value.is_empty() {
                text.push_str(head);
                text.push_str(&value);
            }
            rest = after;
        }
        text + rest
    }
}

/// What stands before the next `{field}` or `[part {field}]` of a sentence, what is in it, and what follows.
fn next_part(sentence: &str) -> Option<(&str, &str, &str)> {
    let at = sentence.find(['{', '['])?;
    let end = if sentence[at..].starts_with('{') { '}' } else { ']' };
    let (part, after) = sentence[at + 1..].split_once(end)?;
    Some((&sentence[..at], part, after))
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
    let f = Fields(parsed(&event.payload_json), event.channel.as_deref().unwrap_or_default());
    let told = SENTENCES.iter().find(|(kind, _)| *kind == event.kind).map(|(_, sentence)| f.tell(sentence));
    let is_deleted = f.0["deleted"].as_bool().unwrap_or_default();
    match (event.kind.as_str(), told) {
        ("turn.parked", Some(told)) if f.get("standing") == "aside" => {
            format!("{told}; the agent goes on with other work")
        }
        ("provider.down", Some(told)) => {
            let probe_at = f.0["probe_at"].as_i64();
            let probe = probe_at.map(|at| format!("; next probe {}", view.moment(at))).unwrap_or_default();
            format!("{told}{probe}")
        }
        (_, Some(told)) => told,
        ("turn.started", _) => {
            let kinds = if f.get("kinds").is_empty() { "{source}" } else { "{kinds}" };
            f.tell(&format!("starts turn {{#turn_id}} ({kinds})"))
        }
        ("turn.finished", _) => {
            let tokens = f.number("input_tokens").saturating_add(f.number("output_tokens"));
            let how = if f.get("status") == "finished" { "" } else { " {status}[: {reason}]" };
            let used = format!("{{rounds}} rounds, {{calls}} calls, {tokens} tokens");
            f.tell(&format!("ends turn {{#turn_id}}{how}: {used}[ — {{text}}]"))
        }
        ("message.delivered", _) => {
            let about = if f.get("subject").is_empty() { "[: {preview}]" } else { ": {subject}" };
            f.tell(&format!("receives {{kind}} mail from {{@from}}{about}"))
        }
        ("conversation.message", _) => {
            let way = match f.get("direction").as_str() {
                "out" => "sends a message",
                "note" => "gets a note",
                _ => "receives a message",
            };
            f.tell(&format!("{way} in conversation {{#conversation_id}}: {{preview}}"))
        }
        ("knowledge.changed", _) if is_deleted => f.tell("{entry_id} is deleted by {@by}"),
        ("knowledge.changed", _) => f.tell("{entry_id} is now version {version}, by {@by}"),
        ("state.changed", _) if is_deleted => f.tell("{key} is deleted by {@writer}"),
        ("state.changed", _) => f.tell("{key} is now version {version}, by {@writer}"),
        ("job.started", _) => {
            let files = plural(f.number("files"), "file");
            f.tell(&format!("job {{job_id}} starts: {files}, led by {{lead}}"))
        }
        (kind, None) => generic_line(kind, &f.0),
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
