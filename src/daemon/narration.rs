//! What happens in a world, told for people: events become sentences about who does what, and what is said. A cause is told
//! before its effects: a call that is known by what it does is told by that alone.
//!
//! Must never: know where it is shown. How wide a line is and whether it has colours is the terminal's.

use std::collections::BTreeMap;

use ghost_domain::event::{Event, EventKind};
use ghost_domain::text::one_line;
use ghost_domain::{Party, Timestamp};
use serde_json::Value;

/// Calls and answers that are remembered at most; a crash may leave a few behind.
const REMEMBERED: usize = 4_096;

/// Tools that only look: they change nothing, and are most of what agents call.
const LOOKS: [&str; 21] = [
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

/// Tools whose effect is an event of its own, which is what is told.
const TOLD_BY_EFFECT: [&str; 10] = [
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

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Something is done.
    Plain,
    /// Someone speaks: the words are what counts.
    Said,
    /// Nothing changes by it.
    Quiet,
    /// Something is worth a look.
    Warning,
    /// Something went wrong.
    Bad,
}

/// A sentence about somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) at: Timestamp,
    pub(crate) who: String,
    /// On one line.
    pub(crate) what: String,
    /// The words that somebody said or wrote, on one line; shown in quotes behind it.
    pub(crate) words: Option<String>,
    pub(crate) tone: Tone,
}

/// Turns events into sentences, one by one in their order.
#[derive(Default)]
pub(crate) struct Narrator {
    /// Whether looks and the last texts of turns are told, too.
    verbose: bool,
    /// What calls under way are about, by their id.
    calls: BTreeMap<String, String>,
    /// Whom the turns that are just ending answer, by who ends one.
    answers: BTreeMap<String, Vec<String>>,
}

impl Narrator {
    /// One that tells looks and the last texts of turns only if it is `verbose`.
    pub(crate) fn new(verbose: bool) -> Self {
        Self { verbose, ..Self::default() }
    }

    /// What an event says, if it is worth a line.
    pub(crate) fn take(&mut self, event: &Event) -> Option<Told> {
        let own = event.agent_id.as_ref().map_or("world", |id| id.as_str()).to_owned();
        let text = |field: &str| event.payload.get(field).and_then(Value::as_str).unwrap_or_default();
        let told = |who: String, what: String, words: Option<&str>, tone: Tone| {
            let words = words.map(one_line).map(|words| words.trim().to_owned()).filter(|words| !words.is_empty());
            Some(Told { at: event.ts, who, what: one_line(&what), words, tone })
        };
        let plain = |what: String| told(own.clone(), what, None, Tone::Plain);
        let bad = |what: String| told(own.clone(), what, None, Tone::Bad);
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
                    "ask" => told(from, format!("asks {own}:"), words, Tone::Said),
                    "message" | "broadcast" | "handoff" => told(from, format!("writes to {own}:"), words, Tone::Said),
                    "timer" | "cron" | "cron_turn" | "watch" => told(
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
                told(asker, format!("has no answer from {own}: {why}"), None, Tone::Bad)
            }
            EventKind::TurnFinished => {
                let answered = self.answers.remove(&own).unwrap_or_default();
                match text("status") {
                    "failed" => bad(format!("turn failed: {}", text("reason"))),
                    "finished" if !answered.is_empty() => {
                        told(own, format!("answers {}:", answered.join(", ")), Some(text("text")), Tone::Said)
                    }
                    "finished" if self.verbose && !text("text").is_empty() => {
                        told(own, "ends its turn:".to_owned(), Some(text("text")), Tone::Quiet)
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
                told(name(text("by")), what, topic, Tone::Plain)
            }
            EventKind::ChatMessage => {
                let channel = event.channel.as_deref().unwrap_or_default();
                told(text("from").to_owned(), format!("in #{channel}:"), Some(text("content")), Tone::Said)
            }
            EventKind::ConversationMessage => {
                let words = Some(text("preview"));
                match text("direction") {
                    "in" => told(text("from").to_owned(), format!("says to {own}:"), words, Tone::Said),
                    _ => told(own, "says to the outside:".to_owned(), words, Tone::Said),
                }
            }
            EventKind::TaskCreated => {
                let (by, title) = (name(text("by")), Some(text("title")));
                match by == own {
                    true => told(by, "takes the task".to_owned(), title, Tone::Plain),
                    false => told(by, format!("gives {own} the task"), title, Tone::Plain),
                }
            }
            EventKind::TaskUpdated => {
                let (by, title) = (name(text("by")), Some(text("title")));
                match text("status") {
                    "done" => told(by, "has done".to_owned(), title, Tone::Plain),
                    "failed" => told(by, format!("gives up ({}):", text("note")), title, Tone::Bad),
                    "cancelled" => told(by, "calls off".to_owned(), title, Tone::Warning),
                    status if self.verbose => told(by, format!("marks as {status}"), title, Tone::Quiet),
                    _ => None,
                }
            }
            EventKind::AgentCreated => plain(format!("is created as {}", text("archetype"))),
            EventKind::ModelFailed => bad(format!("model {} failed: {}", text("model"), text("error"))),
            EventKind::AgentCrashed => bad(format!("crashed: {}", text("reason"))),
            EventKind::AgentRestarted => plain("is back".into()),
            EventKind::AgentFailed => bad(format!("failed: {}", text("reason"))),
            EventKind::TurnParked => told(own, format!("waits: {}", text("reason")), None, Tone::Warning),
            EventKind::ProviderDown => {
                let what = format!("model {} at {} is down: {}", text("model"), text("provider"), text("reason"));
                told("world".to_owned(), what, None, Tone::Warning)
            }
            EventKind::ProviderUp => {
                let what = format!("model {} at {} answers again", text("model"), text("provider"));
                told("world".to_owned(), what, None, Tone::Plain)
            }
            EventKind::TurnResumed => plain("goes on where it was".into()),
            EventKind::DeadLetterHeld => bad(format!("set a message aside: {}", text("reason"))),
            EventKind::WorldWarning => told(own, format!("warning: {}", text("warning")), None, Tone::Warning),
            _ => None,
        }
    }

    /// A call that has ended.
    fn call(&mut self, event: &Event, own: &str) -> Option<Told> {
        let text = |field: &str| event.payload.get(field).and_then(Value::as_str).unwrap_or_default();
        let subject = self.calls.remove(text("call_id")).unwrap_or_default();
        let tool = text("tool");
        let told = |what: String, tone| Some(Told { at: event.ts, who: own.to_owned(), what, words: None, tone });
        let called = one_line(format!("{tool} {subject}").trim_end());
        if text("status") != "ok" {
            return told(one_line(&format!("{called} — {}: {}", text("status"), text("error"))), Tone::Bad);
        }
        let looks = LOOKS.contains(&tool);
        if looks || TOLD_BY_EFFECT.contains(&tool) {
            return if self.verbose { told(called, Tone::Quiet) } else { None };
        }
        match tool {
            "workspace.write" => told(format!("writes {subject}"), Tone::Plain),
            _ => told(called, Tone::Plain),
        }
    }
}

fn remember(calls: &mut BTreeMap<String, String>, call_id: &str, subject: String) {
    if calls.len() >= REMEMBERED {
        calls.clear();
    }
    calls.insert(call_id.to_owned(), subject);
}

/// Who a party is, in one word: an agent's id, or what it is and its name.
fn name(party: &str) -> String {
    match party.parse::<Party>() {
        Ok(party) => party.agent().map_or_else(|| party.to_string(), ToString::to_string),
        Err(_) => party.to_owned(),
    }
}

/// What a call is about, from its arguments: a path, a title, a receiver.
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

    /// The lines of these events, a line each.
    fn told(verbose: bool, events: &[Event]) -> Vec<String> {
        let mut narrator = Narrator::new(verbose);
        let line = |told: Told| {
            let words = told.words.map(|words| format!(" “{words}”")).unwrap_or_default();
            format!("{} {}{words}", told.who, told.what)
        };
        events.iter().filter_map(|event| narrator.take(event)).map(line).collect()
    }

    fn call(agent: &str, tool: &str, id: &str, summary: &str) -> [Event; 2] {
        [
            event(EventKind::ToolStarted, agent, json!({ "call_id": id, "tool": tool, "summary": summary })),
            event(EventKind::ToolFinished, agent, json!({ "call_id": id, "tool": tool, "status": "ok" })),
        ]
    }

    #[test]
    fn what_is_said_is_told_and_a_call_by_what_it_does() {
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
        let lines = ["lea asks ann: “How many?”", "ann in #desk: “I count.”", "ann answers lea: “Three.”"];
        assert_eq!(told(false, &events), lines);
        assert_eq!(told(true, &events).len(), 6, "the calls themselves, and the text of lea's turn");
    }

    #[test]
    fn who_gives_a_task_is_told_and_not_who_has_it() {
        let task = |by: &str, status: &str| json!({ "by": by, "title": "Read", "status": status, "note": "why" });
        let [begun, ended] = call("lea", "syscall.task.create", "1", r#"{"title":"Read"}"#);
        let lines = told(
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
        let all = [
            "lea gives ann the task “Read”",
            "ann takes the task “Read”",
            "ann has done “Read”",
            "operator:sam calls off “Read”",
        ];
        assert_eq!(lines, all);
    }

    #[test]
    fn looks_are_told_to_who_asks_for_them_and_failures_to_everybody() {
        let look = call("ann", "workspace.read", "1", r#"{"path":"a.md"}"#);
        let write = call("ann", "workspace.write", "2", r#"{"path":"b.md","content":"…"#);
        let all = [look.clone(), write].concat();
        assert_eq!(told(false, &all), ["ann writes b.md"]);
        assert_eq!(told(true, &all), ["ann workspace.read a.md", "ann writes b.md"]);
        let failed = json!({ "call_id": "1", "tool": "workspace.read", "status": "error", "error": "not there" });
        let lines = told(false, &[look[0].clone(), event(EventKind::ToolFinished, "ann", failed)]);
        assert_eq!(lines, ["ann workspace.read a.md — error: not there"]);
    }

    #[test]
    fn the_tools_that_are_named_here_are_tools() {
        for tool in LOOKS.iter().chain(&TOLD_BY_EFFECT) {
            assert!(ghost_domain::tool_catalogue::entry(tool).is_some(), "{tool}");
        }
    }
}
