//! The facts of a conversation that a rule can use, and the names that a template can use: these facts, the rule's captures, and
//! the definitions of `let`. A definition is evaluated when a template uses it: it may read results that do not exist yet
//! when another rule is tried.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_domain::text::MORE_MARK;
use ghost_domain::transcript::{Block, Message, Role};
use minijinja::value::{Enumerator, Object, Serde};
use minijinja::{Error, ErrorKind, Value as Jinja};
use serde::Serialize;
use serde_json::Value;

use super::template::{Expr, Templates};
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
    let words = |block: &Block| match block {
        Block::Text { text } => Some(text.clone()),
        Block::ToolCall { name, arguments, .. } => Some(format!("{name} {arguments}")),
        Block::ToolResult { content, .. } => Some(content.clone()),
        Block::Thinking { .. } | Block::Opaque(_) | Block::Image { .. } | Block::ImageFile(_) => None,
    };
    message.blocks.iter().filter_map(words).collect::<Vec<_>>().join("\n")
}

/// Maximum definitions in one `let`.
pub(super) const LETS_MAX: usize = 200;

/// Definitions of `let`, by name.
pub(super) type Lets = BTreeMap<String, Expr>;

/// The names of one rule.
#[derive(Debug)]
pub(super) struct Names {
    facts: Jinja,
    captures: Jinja,
    lets: Arc<Lets>,
    templates: Arc<Templates>,
    /// The definitions that were used so far. `None` while one is being evaluated.
    values: Mutex<BTreeMap<String, Option<Jinja>>>,
}

impl Names {
    pub(super) fn new(facts: &Jinja, captures: &Jinja, lets: &Arc<Lets>, templates: &Arc<Templates>) -> Arc<Self> {
        Arc::new(Self {
            facts: facts.clone(),
            captures: captures.clone(),
            lets: Arc::clone(lets),
            templates: Arc::clone(templates),
            values: Mutex::default(),
        })
    }

    /// The value of a definition, evaluated once.
    fn definition(self: &Arc<Self>, name: &str, expression: &Expr) -> Jinja {
        match self.values().get(name) {
            Some(Some(value)) => return value.clone(),
            Some(None) => return invalid(format!("`{name}` uses itself in `let`")),
            None => {}
        }
        self.values().insert(name.to_owned(), None);
        let value = self.templates.value(expression, &Jinja::from_dyn_object(Arc::clone(self)));
        let value = value.unwrap_or_else(|error| invalid(format!("in `let` of `{name}`: {error}")));
        self.values().insert(name.to_owned(), Some(value.clone()));
        value
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<String, Option<Jinja>>> {
        // The map is complete between any two calls, so a panic elsewhere does not damage it.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value whose use fails with `message`.
fn invalid(message: String) -> Jinja {
    Jinja::from(Error::new(ErrorKind::InvalidOperation, message))
}

impl Object for Names {
    fn get_value(self: &Arc<Self>, key: &Jinja) -> Option<Jinja> {
        let name = key.as_str()?;
        if name == "match" {
            return Some(self.captures.clone());
        }
        match self.lets.get(name) {
            Some(expression) => Some(self.definition(name, expression)),
            None => self.facts.get_item(key).ok().filter(|value| !value.is_undefined()),
        }
    }

    // Templates look names up one by one.
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }
}

/// The names for one item of `for_each`: `item` and `index` besides those of the rule.
#[derive(Debug)]
pub(super) struct ItemNames {
    pub(super) names: Arc<Names>,
    pub(super) item: Jinja,
    pub(super) index: usize,
}

impl Object for ItemNames {
    fn get_value(self: &Arc<Self>, key: &Jinja) -> Option<Jinja> {
        match key.as_str()? {
            "item" => Some(self.item.clone()),
            "index" => Some(Jinja::from(self.index)),
            _ => self.names.get_value(key),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }
}
