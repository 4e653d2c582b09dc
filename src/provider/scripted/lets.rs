//! `let:`, the named sub-expressions of a rule file and of its rules.
//!
//! Must never: evaluate one that nothing uses. What a definition looks at may not be there yet when another rule is tried.

use std::collections::BTreeSet;
use std::sync::Arc;

use minijinja::Value as Jinja;

use super::budget::{Budget, Each, words};
use super::names::Names;
use super::template::{Expr, Templates};

/// Most definitions in one place.
pub(super) const LETS_MAX: usize = 200;

/// One definition.
#[derive(Clone)]
pub(super) struct Let {
    pub(super) name: String,
    pub(super) expression: Expr,
    /// The definitions above it that it uses.
    pub(super) uses: BTreeSet<String>,
}

/// Those of `all` that `used` names, and those that they use, in order. Names are used only below their definition, so
/// one look from the end finds them all.
pub(super) fn needed(all: &[Let], used: &BTreeSet<String>) -> Vec<Let> {
    let mut wanted = used.clone();
    let mut found = Vec::new();
    for definition in all.iter().rev() {
        if wanted.contains(&definition.name) {
            wanted.extend(definition.uses.iter().cloned());
            found.push(definition.clone());
        }
    }
    found.reverse();
    found
}

/// The context with what the definitions come to, each evaluated once, in order.
pub(super) fn known(lets: &[Let], templates: &Templates, context: Arc<Names>) -> Result<Jinja, String> {
    let seen = Jinja::from_dyn_object(Arc::clone(&context));
    for definition in lets {
        let value = templates.value(&definition.expression, &seen).and_then(|value| {
            let paid = Budget::in_context(&seen).and_then(|budget| budget.all_of(&value, Each::KEPT));
            paid.map(|()| value).map_err(|error| words(&error))
        });
        let value = value.map_err(|error| format!("in `let` of `{}`: {error}", definition.name))?;
        context.set(&definition.name, value);
    }
    Ok(seen)
}
