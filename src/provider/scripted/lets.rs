//! `let:`, the named sub-expressions of a rule file and of its rules.
//!
//! Must never: evaluate one that nothing uses. What a definition looks at may not be there yet when another rule is tried.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::Value as Jinja;
use minijinja::value::merge_maps;

use super::budget::Budget;
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
pub(super) fn known(lets: &[Let], templates: &Templates, mut context: Jinja) -> Result<Jinja, String> {
    for definition in lets {
        let value = templates
            .value(&definition.expression, &context)
            .map_err(|error| format!("in `let` of `{}`: {error}", definition.name))?;
        let paid = Budget::in_context(&context).and_then(|budget| budget.whole(&value, false));
        paid.map_err(|error| format!("in `let` of `{}`: {error}", definition.name))?;
        let one = BTreeMap::from([(Jinja::from(definition.name.as_str()), value)]);
        context = merge_maps([Jinja::from_object(one), context]);
    }
    Ok(context)
}
