//! The journal of a turn in words: who said what, what was called with what, what came back, how long it took and how
//! much it used. A field may be missing: a journal of an earlier version may lack it.

use std::collections::BTreeMap;

use ghost_proto::json;
use ghost_proto::v1::{JournalRow, LedgerRow};
use serde_json::Value;

use crate::output::View;
use crate::text::{dollars, plural};

/// How much of one step is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Characters of one text, such as one message or one argument.
    pub text: usize,
    /// Characters of all texts of the step.
    pub step: usize,
}

impl Bounds {
    /// For a person who wants to know what happened and why.
    pub const BRIEF: Self = Self { text: 600, step: 2_000 };
    /// Everything.
    pub const NONE: Self = Self { text: usize::MAX, step: usize::MAX };
}

/// The first `max` characters of a text. If it has more, their number follows.
pub fn clip(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((at, _)) => {
            let cut = u64::try_from(text[at..].chars().count()).unwrap_or(u64::MAX);
            format!("{}… [{} cut]", &text[..at], plural(cut, "character"))
        }
    }
}

/// A value with each of its strings clipped.
fn clip_within(value: Value, max: usize) -> Value {
    match value {
        Value::String(text) => Value::String(clip(&text, max)),
        Value::Array(items) => Value::Array(items.into_iter().map(|item| clip_within(item, max)).collect()),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, clip_within(value, max))).collect())
        }
        other => other,
    }
}

/// Writes a value over several indented lines. Texts keep their line breaks; empty fields are left out.
pub fn indented(value: &Value, by: usize, text: &mut String) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                match value {
                    Value::String(words) if words.contains('\n') => {
                        text.push_str(&format!("{:by$}{name}:\n", ""));
                        lines(words, by + 2, text);
                    }
                    Value::String(words) => text.push_str(&format!("{:by$}{name}: {words}\n", "")),
                    Value::Object(_) => {
                        text.push_str(&format!("{:by$}{name}:\n", ""));
                        indented(value, by + 2, text);
                    }
                    Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
                        text.push_str(&format!("{:by$}{name}:\n", ""));
                        for item in items {
                            text.push_str(&format!("{:by$}  -\n", ""));
                            indented(item, by + 4, text);
                        }
                    }
                    other => text.push_str(&format!("{:by$}{name}: {other}\n", "")),
                }
            }
        }
        Value::Null => {}
        Value::String(words) => lines(words, by, text),
        other => text.push_str(&format!("{:by$}{other}\n", "")),
    }
}

/// Writes a text with each of its lines indented.
pub fn lines(words: &str, by: usize, text: &mut String) {
    for line in words.lines() {
        text.push_str(format!("{:by$}{line}", "").trim_end());
        text.push('\n');
    }
}

/// A value on few lines: a text as it is, an object by its fields. Each of its texts is clipped, and then the whole.
pub fn shown(value: Value, bounds: Bounds) -> String {
    let mut text = String::new();
    indented(&clip_within(value, bounds.text), 0, &mut text);
    text.truncate(text.trim_end().len());
    clip(&text, bounds.step)
}

/// How long something took: `12ms`, `2.3s`, `3m 5s`.
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{}m {}s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

/// Indentation of what belongs to a step, in columns.
const INDENT: usize = 4;

/// A tool call that the model made, until its outcome is recorded.
struct Open {
    tool: String,
    arguments: Value,
    started_at_ms: Option<i64>,
}

/// The journal in words, and the last text of the model if it is printed in whole.
pub struct Words {
    /// One paragraph for each step.
    pub text: String,
    /// What the model said last, if nothing of it was cut.
    pub said: Option<String>,
}

/// Writes a journal in words. `calls` are the turn's rows of the ledger.
pub fn words(steps: &[JournalRow], calls: &[LedgerRow], bounds: Bounds, view: &View) -> Words {
    let calls = calls.iter().map(|call| (call.call_id.as_str(), call)).collect();
    let mut writer =
        Writer { calls, bounds, view, text: String::new(), said: None, asked: None, open: BTreeMap::new() };
    for row in steps {
        writer.step(row);
    }
    writer.unanswered();
    writer.without_outcome();
    Words { text: writer.text, said: writer.said }
}

struct Writer<'a> {
    /// The ledger by id of the call.
    calls: BTreeMap<&'a str, &'a LedgerRow>,
    bounds: Bounds,
    view: &'a View,
    text: String,
    said: Option<String>,
    /// A model call without an answer so far: its row and its model.
    asked: Option<(&'a JournalRow, String)>,
    /// Calls without an outcome so far, by the provider's id.
    open: BTreeMap<String, Open>,
}

impl<'a> Writer<'a> {
    fn step(&mut self, row: &'a JournalRow) {
        let fact = json::parsed(&row.step_json);
        let model = || word(&fact, "model");
        match row.step.as_str() {
            "briefed" => self.briefed(row, &fact),
            "mail_joined" => {
                let joined = fact["messages"].as_array().map_or(0, |messages| messages.len() as u64);
                self.write(row, &format!("{} joined the turn", plural(joined, "more message")), "");
            }
            "model_started" => {
                self.unanswered();
                self.asked = Some((row, model()));
            }
            "model_answered" => self.answered(row, &fact),
            "model_failed" => {
                let took = self.model_took(row);
                self.write(row, &format!("{} failed{took}", model()), &word(&fact, "error"));
            }
            "passed_over" => self.write(row, &format!("{} was not asked", model()), &word(&fact, "why")),
            "shortened" => {
                let head = format!("The conversation was too long for {} and was shortened", model());
                self.write(row, &head, &format!("it has at most {} bytes from now on", fact["context"]));
            }
            "state_dropped" => {
                self.write(row, &format!("{} refused its own earlier state; it is left out", model()), "");
            }
            "images_dropped" => self.write(row, &format!("{} refused the images; they are left out", model()), ""),
            "parked" => self.write(row, "The turn was parked", &word(&fact, "reason")),
            "call_started" => {
                let tool = word(&fact, "tool");
                let open = self.open.entry(word(&fact, "id")).or_insert_with(|| Open {
                    tool: tool.clone(),
                    arguments: Value::Null,
                    started_at_ms: None,
                });
                open.tool = tool;
                open.started_at_ms = Some(row.recorded_at_ms);
            }
            "approval_requested" => {
                let (tool, with) = self.called(&fact, None);
                let head = format!("{tool} waits for an operator: approval {}", word(&fact, "approval_id"));
                self.write(row, &head, &with);
            }
            "call_session" => {
                let (tool, _) = self.called(&fact, None);
                self.write(row, &format!("{tool} works in the session {}", word(&fact, "session")), "");
            }
            "call_finished" => self.finished(row, &fact),
            "tools_changed" => self.write(row, "The tools changed", &word(&fact, "text")),
            "note" => self.write(row, "Ghost told the model", &word(&fact, "text")),
            other => {
                let mut fact = fact;
                if let Value::Object(fields) = &mut fact {
                    fields.remove("step");
                }
                let body = shown(fact, self.bounds);
                self.write(row, other, &body);
            }
        }
    }

    /// Writes one step: number, time and sentence on a line, and its texts below.
    fn write(&mut self, row: &JournalRow, head: &str, body: &str) {
        self.text.push_str(&format!("{}  {}  {head}\n", row.seq, self.view.moment(row.recorded_at_ms)));
        lines(&clip(body, self.bounds.step), INDENT, &mut self.text);
    }

    /// The mail that the turn was opened with. In full it is the text that the model read.
    fn briefed(&mut self, row: &JournalRow, fact: &Value) {
        let mail = word(fact, "mail");
        let messages = messages(&mail);
        if self.bounds == Bounds::NONE || messages.is_empty() {
            return self.write(row, "The model is given this", &clip(&mail, self.bounds.text));
        }
        let mut body = String::new();
        for message in &messages {
            let subject = message.subject.as_ref().map(|subject| format!(", {subject}")).unwrap_or_default();
            body.push_str(&format!("{} ({}{subject}):\n", message.from, message.kind));
            lines(&clip(&message.body, self.bounds.text), 2, &mut body);
        }
        let count = u64::try_from(messages.len()).unwrap_or(u64::MAX);
        self.write(row, &format!("The turn took {}", plural(count, "message")), &body);
    }

    fn answered(&mut self, row: &JournalRow, fact: &Value) {
        let mut head = format!("{} answered{}", word(fact, "model"), self.model_took(row));
        let tokens = |name: &str| fact["usage"][name].as_u64().unwrap_or(0);
        head.push_str(&format!(": {} tokens in", tokens("input")));
        if tokens("cache_read") > 0 {
            head.push_str(&format!(" ({} from the cache)", tokens("cache_read")));
        }
        head.push_str(&format!(", {} out", tokens("output")));
        if let Some(stop) = fact["stop"].as_str() {
            head.push_str(&format!("; it ended with {stop}"));
        }
        let (mut body, mut said, mut called) = (String::new(), Vec::new(), Vec::new());
        for block in fact["blocks"].as_array().into_iter().flatten() {
            let text = || word(block, "text");
            match block["type"].as_str() {
                Some("text") => said.push(text()),
                Some("thinking") if !text().trim().is_empty() => {
                    self.part("thought", &text(), &mut body);
                }
                Some("tool_call") => {
                    called.push(word(block, "name"));
                    let open =
                        Open { tool: word(block, "name"), arguments: block["arguments"].clone(), started_at_ms: None };
                    self.open.insert(word(block, "id"), open);
                }
                _ => {}
            }
        }
        let said = said.join("\n");
        if !said.trim().is_empty() {
            self.part("said", &said, &mut body);
        }
        if !called.is_empty() {
            body.push_str(&format!("called: {}\n", called.join(", ")));
        }
        let whole = body.chars().count() <= self.bounds.step && said.chars().count() <= self.bounds.text;
        self.said = whole.then_some(said);
        self.write(row, &head, &body);
    }

    fn finished(&mut self, row: &JournalRow, fact: &Value) {
        let call = self.calls.get(word(fact, "call_id").as_str()).copied();
        let started = self.open.get(&word(fact, "id")).and_then(|open| open.started_at_ms);
        let (tool, mut body) = self.called(fact, call);
        self.open.remove(&word(fact, "id"));
        let outcome = &fact["outcome"];
        let refusal = &outcome["refusal"];
        let mut head = match (refusal["code"].as_str(), outcome["failed"].as_str()) {
            (Some(code), _) => format!("{tool} was refused: {code}"),
            (None, Some(code)) => format!("{tool} failed: {code}"),
            (None, None) => format!("{tool} returned"),
        };
        let took = call.and_then(|call| call.duration_ms).or_else(|| started.map(|at| since(at, row.recorded_at_ms)));
        if let Some(ms) = took {
            head.push_str(&format!(" after {}", duration(ms)));
        }
        if let Some(micros) = outcome["cost"].as_u64() {
            head.push_str(&format!(", {}", dollars(micros)));
        }
        if refusal.is_object() {
            self.part("error", &word(refusal, "error"), &mut body);
            if let Some(hint) = refusal["hint"].as_str() {
                self.part("hint", hint, &mut body);
            }
        } else {
            let share = Bounds { step: self.bounds.step / 2, ..self.bounds };
            let result = if self.bounds == Bounds::NONE { self.bounds } else { share };
            body.push_str("result:\n");
            lines(&shown(outcome["content"].clone(), result), 2, &mut body);
        }
        for image in outcome["images"].as_array().into_iter().flatten() {
            body.push_str(&format!("image: {}, {} bytes\n", word(image, "path"), image["bytes"]));
        }
        if let Some(path) = outcome["saved"].as_str() {
            body.push_str(&format!("the whole result is in {path}\n"));
        }
        self.write(row, &head, &body);
    }

    /// The tool of a step about a call, and the call's arguments in words.
    fn called(&self, fact: &Value, call: Option<&LedgerRow>) -> (String, String) {
        let open = self.open.get(&word(fact, "id"));
        let tool = fact["tool"].as_str().map(str::to_owned).or_else(|| open.map(|open| open.tool.clone()));
        let arguments = open.map_or(Value::Null, |open| open.arguments.clone());
        // An operator's call has no model that made it.
        let arguments = match (arguments, call) {
            (Value::Null, Some(call)) => json::parsed(&call.arguments_json),
            (arguments, _) => arguments,
        };
        (tool.unwrap_or_else(|| "a call".to_owned()), self.arguments(arguments))
    }

    fn arguments(&self, arguments: Value) -> String {
        // The result needs room, too.
        let share = Bounds { text: self.bounds.text / 3, step: self.bounds.step / 3 };
        let words = shown(arguments, if self.bounds == Bounds::NONE { self.bounds } else { share });
        let mut body = String::new();
        match words.as_str() {
            "" | "{}" => {}
            words => {
                body.push_str("with:\n");
                lines(words, 2, &mut body);
            }
        }
        body
    }

    /// A named text: on the line of its name if it is one line.
    fn part(&self, name: &str, text: &str, body: &mut String) {
        let text = clip(text.trim_end(), self.bounds.text);
        if text.contains('\n') {
            body.push_str(&format!("{name}:\n"));
            lines(&text, 2, body);
        } else {
            body.push_str(&format!("{name}: {text}\n"));
        }
    }

    /// How long the model call took that this row ends.
    fn model_took(&mut self, row: &JournalRow) -> String {
        let asked = self.asked.take();
        asked.map_or_else(String::new, |(asked, _)| {
            format!(" after {}", duration(since(asked.recorded_at_ms, row.recorded_at_ms)))
        })
    }

    /// A model call that nothing followed: it is running, or a crash interrupted it.
    fn unanswered(&mut self) {
        if let Some((row, model)) = self.asked.take() {
            self.write(row, &format!("{model} was asked; no answer is recorded"), "");
        }
    }

    /// Calls that were made and have no outcome: they run, wait, or were never started.
    fn without_outcome(&mut self) {
        for open in std::mem::take(&mut self.open).into_values() {
            let head = match open.started_at_ms {
                Some(at) => format!("{} has run since {}; no result is recorded", open.tool, self.view.moment(at)),
                None => format!("{} was called; it has not started", open.tool),
            };
            let body = self.arguments(open.arguments);
            self.text.push_str(&format!("{head}\n"));
            lines(&body, INDENT, &mut self.text);
        }
    }
}

/// A text field of a step; empty if there is none.
fn word(fact: &Value, name: &str) -> String {
    fact[name].as_str().unwrap_or_default().to_owned()
}

/// Milliseconds from one instant to another; 0 if the clock was set back between them.
fn since(from_ms: i64, to_ms: i64) -> u64 {
    u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0)
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its sender.
    pub from: String,
    /// Its kind, such as `ask`.
    pub kind: String,
    /// Its subject, if it has one.
    pub subject: Option<String>,
    /// Its text.
    pub body: String,
}

/// The messages of a mail text. Empty if it has none in the form that the daemon writes; then the text stands for
/// itself.
pub fn messages(mail: &str) -> Vec<Message> {
    let mut found = Vec::new();
    let mut rest = mail;
    // A message cannot contain these tags: the daemon escapes `<` in its text.
    while let Some((_, after)) = rest.split_once("<message ") {
        let Some((head, after)) = after.split_once(">\n") else { break };
        let Some((body, after)) = after.split_once("\n</message>") else { break };
        rest = after;
        found.push(Message {
            from: attribute(head, "from").unwrap_or_default(),
            kind: attribute(head, "kind").unwrap_or_default(),
            subject: attribute(head, "subject"),
            body: unescape(body),
        });
    }
    found
}

fn attribute(head: &str, name: &str) -> Option<String> {
    let (_, after) = head.split_once(&format!("{name}=\""))?;
    after.split_once('"').map(|(value, _)| unescape(value))
}

fn unescape(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}
