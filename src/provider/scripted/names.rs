//! The names that a template can use: the facts of the conversation, the rule's captures, and the
//! definitions of `let`.
//!
//! This module must never evaluate a definition before a template uses it. A definition may read
//! results that do not exist yet when another rule is tried.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minijinja::value::{Enumerator, Object};
use minijinja::{Error, ErrorKind, Value};

use super::template::{Expr, Templates};

/// Maximum definitions in one `let`.
pub(super) const LETS_MAX: usize = 200;

/// Definitions of `let`, by name.
pub(super) type Lets = BTreeMap<String, Expr>;

/// The names of one rule.
#[derive(Debug)]
pub(super) struct Names {
    facts: Value,
    captures: Value,
    lets: Arc<Lets>,
    templates: Arc<Templates>,
    /// The definitions that were used so far. `None` while one is being evaluated.
    values: Mutex<BTreeMap<String, Option<Value>>>,
}

impl Names {
    pub(super) fn new(facts: &Value, captures: &Value, lets: &Arc<Lets>, templates: &Arc<Templates>) -> Arc<Self> {
        Arc::new(Self {
            facts: facts.clone(),
            captures: captures.clone(),
            lets: Arc::clone(lets),
            templates: Arc::clone(templates),
            values: Mutex::default(),
        })
    }

    /// The value of a definition, evaluated once.
    fn definition(self: &Arc<Self>, name: &str, expression: &Expr) -> Value {
        match self.values().get(name) {
            Some(Some(value)) => return value.clone(),
            Some(None) => return invalid(format!("`{name}` uses itself in `let`")),
            None => {}
        }
        self.values().insert(name.to_owned(), None);
        let value = self.templates.value(expression, &Value::from_dyn_object(Arc::clone(self)));
        let value = value.unwrap_or_else(|error| invalid(format!("in `let` of `{name}`: {error}")));
        self.values().insert(name.to_owned(), Some(value.clone()));
        value
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<String, Option<Value>>> {
        // The map is complete between any two calls, so a panic elsewhere does not damage it.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value whose use fails with `message`.
fn invalid(message: String) -> Value {
    Value::from(Error::new(ErrorKind::InvalidOperation, message))
}

impl Object for Names {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
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
    pub(super) item: Value,
    pub(super) index: usize,
}

impl Object for ItemNames {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str()? {
            "item" => Some(self.item.clone()),
            "index" => Some(Value::from(self.index)),
            _ => self.names.get_value(key),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }
}
