//! Turns events into sentences for people: the actions of each agent and the text of its messages.
//! A call whose effect has an event of its own gets no sentence of its own.
//!
//! Width and colours are in `page`.

use std::collections::BTreeMap;

use ghost_domain::event::{Event, EventKind};
use ghost_domain::text::one_line;
use ghost_domain::{Party, Timestamp};
use serde_json::Value;

/// Maximum number of remembered calls and answers. A crash can leave some behind.
const REMEMBERED: usize = 4_096;

/// Tools that only read. They are shown only in verbose output, because agents call them often.
const READS: [&str; 21] = [
    "memory.get",
    "memory.search",
    "syscall.agent.inspect",
    "syscall.agent.list",
    "syscall.chat.history",
    "syscall.chat.list",
    "syscall.droid.check",
    "syscall.inbox.read",
    "syscall.knowledge.list",
    "syscall.knowledge.read",
    "syscall.resource.usage",
    "syscall.session.history",
    "syscall.session.list",
    "syscall.session.status",
    "syscall.skill.list",
    "syscall.skill.load",
    "syscall.state.read",
    "syscall.task.get",
    "syscall.task.list",
    "workspace.list",
    "workspace.read",
];

/// Tools whose effect is an event of its own. That event is shown instead of the call.
const SHOWN_BY_EFFECT: [&str; 10] = [
    "syscall.agent.create",
    "syscall.ask",
    "syscall.broadcast",
    "syscall.channel.handoff",
    "syscall.channel.send",
    "syscall.chat.create",
    "syscall.chat.send",
    "syscall.message.send",
    "syscall.task.create",
    "syscall.task.update",
];

/// The kind of a sentence. It decides about colour and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// An action.
    Plain,
    /// The words of an agent or a person.
    Speech,
    /// No change.
    Quiet,
    /// A warning.
    Warning,
    /// An error.
    Bad,
}

/// The sentences of events that need no more than their fields, with the field of the words that they quote.
const SENTENCES: [(EventKind, Tone, &str, &str); 15] = [
    (EventKind::AgentCreated, Tone::Plain, "is created as {archetype}", ""),
    (EventKind::ModelFailed, Tone::Bad, "model {model} failed: {error}", ""),
    (EventKind::AgentCrashed, Tone::Bad, "crashed: {reason}", ""),
    (EventKind::AgentRestarted, Tone::Plain, "was restarted", ""),
    (EventKind::AgentFailed, Tone::Bad, "failed: {reason}", ""),
    (EventKind::TurnParked, Tone::Warning, "waits: {reason}", ""),
    (EventKind::ProviderDown, Tone::Warning, "model {model} at {provider} is down: {reason}", ""),
    (EventKind::ProviderUp, Tone::Plain, "model {model} at {provider} answers again", ""),
    (
        EventKind::ApprovalRequested,
        Tone::Warning,
        "waits for an approval (`ghostctl approval show {approval_id}`):",
        "summary",
    ),
    (EventKind::ApprovalClosed, Tone::Plain, "its approval is {status}", ""),
    (
        EventKind::ToolUnsettled,
        Tone::Warning,
        "waits until you say what became of {tool} (`ghostctl turn settle {call_id} happened` or `did-not`)",
        "",
    ),
    (EventKind::TurnResumed, Tone::Plain, "resumes its turn", ""),
    (EventKind::DeadLetterHeld, Tone::Bad, "has a new dead letter: {reason}", ""),
    (EventKind::WorldClockJumped, Tone::Warning, "the clock jumped from {from} to {to}", ""),
    (EventKind::WorldWarning, Tone::Warning, "warning: {warning}", ""),
];

/// A sentence about one agent or person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    pub(crate) at: Timestamp,
    pub(crate) who: String,
    /// What happened. One line.
    pub(crate) what: String,
    /// The words that were said or written. One line, shown in quotes.
    pub(crate) words: Option<String>,
    pub(crate) tone: Tone,
}

/// Turns events into sentences. The events must come in their order.
#[derive(Default)]
pub(crate) struct Narrator {
    /// Whether reads and the final texts of turns get sentences, too.
    verbose: bool,
    /// The subjects of running calls, by call id.
    calls: BTreeMap<String, String>,
    /// The askers that each agent's ending turn has answered, by agent.
    answers: BTreeMap<String, Vec<String>>,
}

impl Narrator {
    /// A narrator. It includes reads and the final texts of turns only if it is `verbose`.
    pub(crate) fn new(verbose: bool) -> Self {
        Self { verbose, ..Self::default() }
    }

    /// The sentence for an event; `None` if the event gets none.
    pub(crate) fn take(&mut self, event: &Event) -> Option<Sentence> {
        let own = event.agent_id.as_ref().map_or("world", |id| id.as_str()).to_owned();
        let text = |field: &str| event.payload.get(field).and_then(Value::as_str).unwrap_or_default();
        let sentence = |who: String, what: String, words: Option<&str>, tone: Tone| {
            let words = words.map(one_line).map(|words| words.trim().to_owned()).filter(|words| !words.is_empty());
            Some(Sentence { at: event.ts, who, what: one_line(&what), words, tone })
        };
        match event.kind {
            EventKind::ToolStarted => {
                remember(&mut self.calls, text("call_id"), subject(text("summary")));
                None
            }
            EventKind::ToolFinished => self.call(event, &own),
            EventKind::MessageDelivered => {
                let from = name(text("from"));
                let words = Some(text("preview"));
                match text("kind") {
                    "ask" => sentence(from, format!("asks {own}:"), words, Tone::Speech),
                    "message" | "broadcast" | "handoff" => {
                        sentence(from, format!("writes to {own}:"), words, Tone::Speech)
                    }
                    "timer" | "cron" | "cron_turn" | "watch" => sentence(
                        own,
                        format!("is woken by a {}:", text("kind").replace("cron_turn", "cron")),
                        words,
                        Tone::Plain,
                    ),
                    _ => None,
                }
            }
            EventKind::AskAnswered => {
                if self.answers.len() >= REMEMBERED {
                    self.answers.clear();
                }
                self.answers.entry(own).or_default().push(name(text("asker")));
                None
            }
            EventKind::AskFailed => {
                let asker = name(text("asker"));
                let error = event.payload.pointer("/error/message").and_then(Value::as_str);
                let why = error.unwrap_or_else(|| text("status"));
                sentence(asker, format!("has no answer from {own}: {why}"), None, Tone::Bad)
            }
            EventKind::TurnFinished => {
                let answered = self.answers.remove(&own).unwrap_or_default();
                match text("status") {
                    "failed" | "timed_out" => {
                        sentence(own, format!("turn failed: {}", text("reason")), None, Tone::Bad)
                    }
                    "finished" if !answered.is_empty() => {
                        sentence(own, format!("answers {}:", answered.join(", ")), Some(text("text")), Tone::Speech)
                    }
                    "finished" if self.verbose && !text("text").is_empty() => {
                        sentence(own, "ends its turn:".to_owned(), Some(text("text")), Tone::Quiet)
                    }
                    _ => None,
                }
            }
            EventKind::ChatCreated => {
                let members = event.payload.get("members").and_then(Value::as_array).map_or(0, Vec::len);
                let channel = event.channel.as_deref().unwrap_or_default();
                let what = format!("opens #{channel} for {members} members");
                let topic = event.payload.get("topic").and_then(Value::as_str);
                let what = if topic.is_some() { format!("{what}:") } else { what };
                sentence(name(text("by")), what, topic, Tone::Plain)
            }
            EventKind::ChatMessage => {
                let channel = event.channel.as_deref().unwrap_or_default();
                sentence(text("from").to_owned(), format!("in #{channel}:"), Some(text("content")), Tone::Speech)
            }
            EventKind::ConversationMessage => {
                let words = Some(text("preview"));
                match text("direction") {
                    "in" => sentence(text("from").to_owned(), format!("says to {own}:"), words, Tone::Speech),
                    "note" => sentence(own, "has a note in its conversation:".to_owned(), words, Tone::Quiet),
                    _ => sentence(own, "says to the outside:".to_owned(), words, Tone::Speech),
                }
            }
            EventKind::TaskCreated => {
                let (by, title) = (name(text("by")), Some(text("title")));
                match by == own {
                    true => sentence(by, "takes the task".to_owned(), title, Tone::Plain),
                    false => sentence(by, format!("gives {own} the task"), title, Tone::Plain),
                }
            }
            EventKind::TaskUpdated => {
                let (by, title) = (name(text("by")), Some(text("title")));
                match text("status") {
                    "done" => sentence(by, "has done".to_owned(), title, Tone::Plain),
                    "failed" => sentence(by, format!("gives up ({}):", text("note")), title, Tone::Bad),
                    "cancelled" => sentence(by, "calls off".to_owned(), title, Tone::Warning),
                    status if self.verbose => sentence(by, format!("marks as {status}"), title, Tone::Quiet),
                    _ => None,
                }
            }
            kind => {
                let (_, tone, what, words) = SENTENCES.iter().find(|(of, ..)| *of == kind)?;
                let parts = what.split(['{', '}']).enumerate();
                let what = parts.map(|(at, part)| if at % 2 == 0 { part } else { text(part) }).collect();
                sentence(own, what, Some(text(words)), *tone)
            }
        }
    }

    /// The sentence for a finished call.
    fn call(&mut self, event: &Event, own: &str) -> Option<Sentence> {
        let text = |field: &str| event.payload.get(field).and_then(Value::as_str).unwrap_or_default();
        let subject = self.calls.remove(text("call_id")).unwrap_or_default();
        let tool = text("tool");
        let sentence =
            |what: String, tone| Some(Sentence { at: event.ts, who: own.to_owned(), what, words: None, tone });
        let called = one_line(format!("{tool} {subject}").trim_end());
        if text("status") != "ok" {
            return sentence(one_line(&format!("{called} — {}: {}", text("status"), text("error"))), Tone::Bad);
        }
        if READS.contains(&tool) || SHOWN_BY_EFFECT.contains(&tool) {
            return if self.verbose { sentence(called, Tone::Quiet) } else { None };
        }
        match tool {
            "workspace.write" => sentence(format!("writes {subject}"), Tone::Plain),
            _ => sentence(called, Tone::Plain),
        }
    }
}

fn remember(calls: &mut BTreeMap<String, String>, call_id: &str, subject: String) {
    if calls.len() >= REMEMBERED {
        calls.clear();
    }
    calls.insert(call_id.to_owned(), subject);
}

/// The short name of a party: an agent's id; for others, kind and name.
fn name(party: &str) -> String {
    match party.parse::<Party>() {
        Ok(party) => party.agent().map_or_else(|| party.to_string(), ToString::to_string),
        Err(_) => party.to_owned(),
    }
}

/// The subject of a call, from its arguments: a path, a title, a receiver.
fn subject(arguments: &str) -> String {
    for field in ["\"path\":\"", "\"title\":\"", "\"agent_id\":\"", "\"to\":\"", "\"name\":\"", "\"channel\":\""] {
        if let Some(at) = arguments.find(field) {
            let rest = &arguments[at + field.len()..];
            return rest.split(['"', '…']).next().unwrap_or_default().to_owned();
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use ghost_domain::EventId;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn event(kind: EventKind, agent: &str, payload: Value) -> Event {
        Event {
            seq: 1,
            event_id: EventId(Uuid::nil()),
            ts: Timestamp(0),
            kind,
            agent_id: Some(agent.parse().unwrap()),
            channel: (kind == EventKind::ChatMessage).then(|| "desk".parse().unwrap()),
            correlation_id: None,
            payload: payload.into(),
        }
    }

    /// The sentences of these events, one line each.
    fn narrated(verbose: bool, events: &[Event]) -> Vec<String> {
        let mut narrator = Narrator::new(verbose);
        let line = |sentence: Sentence| {
            let words = sentence.words.map(|words| format!(" “{words}”")).unwrap_or_default();
            format!("{} {}{words}", sentence.who, sentence.what)
        };
        events.iter().filter_map(|event| narrator.take(event)).map(line).collect()
    }

    /// Checks each line: it begins with the first part and contains the others.
    fn are(lines: &[String], expected: &[&[&str]]) {
        assert_eq!(lines.len(), expected.len(), "{lines:?}");
        for (line, parts) in lines.iter().zip(expected) {
            assert!(line.starts_with(parts[0]) && parts.iter().all(|part| line.contains(part)), "{parts:?}: {line}");
        }
    }

    fn call(agent: &str, tool: &str, id: &str, summary: &str) -> [Event; 2] {
        [
            event(EventKind::ToolStarted, agent, json!({ "call_id": id, "tool": tool, "summary": summary })),
            event(EventKind::ToolFinished, agent, json!({ "call_id": id, "tool": tool, "status": "ok" })),
        ]
    }

    #[test]
    fn speech_is_shown_and_calls_by_their_effect() {
        let [asks, asked] = call("lea", "syscall.ask", "1", r#"{"agent_id":"ann","message":"How many?"}"#);
        let [sends, sent] = call("ann", "syscall.chat.send", "2", r#"{"channel":"desk"}"#);
        let mail = json!({ "from": "agent:lea", "kind": "ask", "preview": "How\nmany?" });
        let post = json!({ "from": "ann", "content": "I count." });
        let events = [
            event(EventKind::MessageDelivered, "ann", mail),
            asks,
            sends,
            event(EventKind::ChatMessage, "ann", post),
            sent,
            asked,
            event(EventKind::AskAnswered, "ann", json!({ "asker": "agent:lea" })),
            event(EventKind::TurnFinished, "ann", json!({ "status": "finished", "text": "Three." })),
            event(EventKind::TurnFinished, "lea", json!({ "status": "finished", "text": "Done." })),
        ];
        let lines = narrated(false, &events);
        are(&lines, &[&["lea ", "ann", "“How many?”"], &["ann ", "#desk", "“I count.”"], &["ann ", "lea", "“Three.”"]]);
        assert_eq!(narrated(true, &events).len(), 6, "the calls themselves, and the text of lea's turn");
    }

    #[test]
    fn a_task_is_shown_with_the_agent_that_acts() {
        let task = |by: &str, status: &str| json!({ "by": by, "title": "Read", "status": status, "note": "why" });
        let [begun, ended] = call("lea", "syscall.task.create", "1", r#"{"title":"Read"}"#);
        let lines = narrated(
            false,
            &[
                begun,
                event(EventKind::TaskCreated, "ann", task("agent:lea", "pending")),
                ended,
                event(EventKind::TaskCreated, "ann", task("agent:ann", "pending")),
                event(EventKind::TaskUpdated, "ann", task("agent:ann", "in_progress")),
                event(EventKind::TaskUpdated, "ann", task("agent:ann", "done")),
                event(EventKind::TaskUpdated, "ann", task("operator:sam", "cancelled")),
            ],
        );
        let read = "“Read”";
        are(&lines, &[&["lea ", "ann", read], &["ann ", read], &["ann ", read], &["operator:sam ", read]]);
    }

    #[test]
    fn reads_are_shown_in_verbose_output_and_failures_always() {
        let read = call("ann", "workspace.read", "1", r#"{"path":"a.md"}"#);
        let write = call("ann", "workspace.write", "2", r#"{"path":"b.md","content":"…"#);
        let all = [read.clone(), write].concat();
        are(&narrated(false, &all), &[&["ann ", "b.md"]]);
        are(&narrated(true, &all), &[&["ann ", "workspace.read a.md"], &["ann ", "b.md"]]);
        let failed = json!({ "call_id": "1", "tool": "workspace.read", "status": "error", "error": "not there" });
        let lines = narrated(false, &[read[0].clone(), event(EventKind::ToolFinished, "ann", failed)]);
        are(&lines, &[&["ann ", "workspace.read a.md", "error: not there"]]);
    }

    #[test]
    fn a_sentence_of_the_table_has_the_fields_of_its_event() {
        let asks = json!({ "approval_id": "7", "summary": "rm x" });
        let down = json!({ "model": "m", "provider": "p", "reason": "late" });
        let events = [
            event(EventKind::AgentRestarted, "ann", json!({})),
            event(EventKind::ApprovalRequested, "ann", asks),
            Event { agent_id: None, ..event(EventKind::ProviderDown, "ann", down) },
        ];
        let asks = "ann waits for an approval (`ghostctl approval show 7`): “rm x”";
        assert_eq!(narrated(false, &events), ["ann was restarted", asks, "world model m at p is down: late"]);
    }

    #[test]
    fn every_tool_named_here_exists() {
        for tool in READS.iter().chain(&SHOWN_BY_EFFECT) {
            assert!(ghost_domain::tool_catalogue::entry(tool).is_some(), "{tool}");
        }
    }
}
