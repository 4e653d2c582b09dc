//! The facts of a conversation that a rule can use.
//!
//! These facts must never come from anything but the request.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use ghost_domain::text::MORE_MARK;
use ghost_domain::transcript::{Block, Message, Role};
use minijinja::Value as Jinja;
use minijinja::value::Serde;
use regex::Captures;
use serde::Serialize;
use serde_json::Value;

use super::pattern::Pattern;
use crate::model::ModelRequest;

/// A call with its result.
#[derive(Serialize)]
pub(super) struct Outcome<'a> {
    pub(super) tool: &'a str,
    pub(super) id: &'a str,
    pub(super) args: &'a Value,
    pub(super) ok: bool,
    /// The result as parsed JSON, or as text if it is none.
    pub(super) value: Value,
    /// Whether the tool has more content than this result shows.
    pub(super) more: bool,
    pub(super) text: &'a str,
    /// The number of the model's answer that made the call, from 0.
    pub(super) round: usize,
}

pub(super) struct Conversation<'a> {
    pub(super) request: &'a ModelRequest,
    /// The last of the user messages before the model's first answer.
    pub(super) mail: String,
    /// Text of the last message.
    pub(super) last_text: String,
    /// Results in order.
    pub(super) results: Vec<Outcome<'a>>,
    /// Index of the first result that came after the model's last answer.
    pub(super) fresh: usize,
    /// Answers of the model so far.
    pub(super) round: usize,
    /// Calls made, by tool.
    pub(super) called: BTreeMap<&'a str, usize>,
    /// Calls that went well, by tool.
    pub(super) succeeded: BTreeMap<&'a str, usize>,
    whole: OnceCell<String>,
    /// The facts that every template of the answer can use.
    facts: OnceCell<Jinja>,
}

impl<'a> Conversation<'a> {
    /// The facts of `request`.
    pub(super) fn of(request: &'a ModelRequest) -> Self {
        // The log of earlier turns is not part of the turn that the rules drive.
        let own = request.messages.get(request.past..).unwrap_or_default();
        let first_answer = own.iter().position(|message| message.role == Role::Assistant);
        let before = &own[..first_answer.unwrap_or(own.len())];
        let mail = before.iter().rev().find(|message| message.role == Role::User).map(|message| message.visible_text());
        let mut conversation = Self {
            request,
            mail: mail.unwrap_or_default(),
            last_text: request.messages.last().map(|message| text_of(message)).unwrap_or_default(),
            results: Vec::new(),
            fresh: 0,
            round: 0,
            called: BTreeMap::new(),
            succeeded: BTreeMap::new(),
            whole: OnceCell::new(),
            facts: OnceCell::new(),
        };
        let mut open: BTreeMap<&str, (&str, &Value)> = BTreeMap::new();
        for message in own {
            if message.role == Role::Assistant {
                conversation.round += 1;
                conversation.fresh = conversation.results.len();
            }
            for block in &message.blocks {
                match block {
                    Block::ToolCall { id, name, arguments } => {
                        *conversation.called.entry(name).or_default() += 1;
                        open.insert(id, (name, arguments));
                    }
                    Block::ToolResult { id, name, content, is_error } => {
                        let (tool, args) = open.get(id.as_str()).copied().unwrap_or((name, &Value::Null));
                        if !*is_error {
                            *conversation.succeeded.entry(tool).or_default() += 1;
                        }
                        let (value, more) = value_of(content);
                        conversation.results.push(Outcome {
                            tool,
                            id,
                            args,
                            ok: !*is_error,
                            value,
                            more,
                            text: content,
                            round: conversation.round.saturating_sub(1),
                        });
                    }
                    Block::Text { .. }
                    | Block::Thinking { .. }
                    | Block::Opaque(_)
                    | Block::Image { .. }
                    | Block::ImageFile(_) => {}
                }
            }
        }
        conversation
    }

    /// Results that arrived since the model's last answer.
    pub(super) fn fresh(&self) -> &[Outcome<'a>] {
        self.results.get(self.fresh..).unwrap_or_default()
    }

    /// Number of calls so far, with or without a result.
    pub(super) fn calls_so_far(&self) -> usize {
        self.called.values().sum()
    }

    /// Every message as text, without the system part.
    pub(super) fn whole(&self) -> &str {
        self.whole.get_or_init(|| {
            self.request.messages.iter().map(|message| text_of(message)).collect::<Vec<_>>().join("\n\n")
        })
    }

    /// The captures of a rule's regular expression in `text`, if it matches.
    pub(super) fn captures<'t>(&self, pattern: &Pattern, text: &'t str) -> Result<Option<Captures<'t>>, String> {
        Ok(pattern.compile()?.captures(text))
    }

    /// The facts that templates can use, together with the constants of the file.
    pub(super) fn facts(&self, vars: &Jinja) -> &Jinja {
        self.facts.get_or_init(|| {
            let last = self.results.last().map_or(Jinja::from(()), |outcome| Jinja::from(Serde(&outcome.value)));
            minijinja::context! {
                agent_id => self.request.agent_id.as_str(),
                mail => self.mail.as_str(),
                text => self.whole(),
                last_text => self.last_text.as_str(),
                results => Jinja::from(Serde(&self.results)),
                fresh => Jinja::from(Serde(self.fresh())),
                last => last,
                round => self.round,
                called => Jinja::from(Serde(&self.called)),
                vars => vars.clone(),
            }
        })
    }
}

/// A result as parsed JSON, or as text if it is none, and whether it says that there is more.
fn value_of(content: &str) -> (Value, bool) {
    let (json, more) = content.strip_suffix(MORE_MARK).map_or((content, false), |json| (json, true));
    match serde_json::from_str(json) {
        Ok(value) => (value, more),
        Err(_) => (Value::String(content.to_owned()), more),
    }
}

/// The words of a message: its texts, its results, and its calls as `name {arguments}`.
fn text_of(message: &Message) -> String {
    let parts: Vec<String> = message
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text { text } => Some(text.clone()),
            Block::ToolCall { name, arguments, .. } => Some(format!("{name} {arguments}")),
            Block::ToolResult { content, .. } => Some(content.clone()),
            Block::Thinking { .. } | Block::Opaque(_) | Block::Image { .. } | Block::ImageFile(_) => None,
        })
        .collect();
    parts.join("\n")
}
