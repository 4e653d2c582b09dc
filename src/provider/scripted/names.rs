//! What the names in templates stand for: those of the conversation, and above them what rules give a name of their own.
//!
//! Must never: look further for a name than in two places, however many names there are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::Value;
use minijinja::value::{Enumerator, Object};

/// Names with their values.
#[derive(Debug)]
pub(super) struct Names {
    below: Value,
    own: Mutex<BTreeMap<String, Value>>,
}

impl Names {
    /// The names of `below`, and above them `own`.
    pub(super) fn above<const N: usize>(below: &Value, own: [(&str, Value); N]) -> Arc<Self> {
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Arc::new(Self { below: below.clone(), own: Mutex::new(own) })
    }

    /// The same names with more above them.
    pub(super) fn with<const N: usize>(&self, more: [(&str, Value); N]) -> Arc<Self> {
        let names = Self::above(&self.below, more);
        for (name, value) in self.known().iter() {
            names.known().entry(name.clone()).or_insert_with(|| value.clone());
        }
        names
    }

    /// Gives a name its value.
    pub(super) fn set(&self, name: &str, value: Value) {
        self.known().insert(name.to_owned(), value);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Value>> {
        // The map is whole between any two calls, whoever panicked.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Object for Names {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let own = self.known().get(key.as_str()?).cloned();
        own.or_else(|| self.below.get_item(key).ok().filter(|value| !value.is_undefined()))
    }

    // Templates see names one by one, and nobody else looks.
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }
}
