//! Reads the arguments of a command: texts with `{parameter}` in them.
//!
//! An argument must never be split: what a call gives for a parameter stays one argument, whatever is in it.

use std::collections::BTreeSet;

use ghost_domain::text::nearest;

use crate::kinds::Free;
use crate::plan::toolbox::{Argument, Piece, Place};
use crate::reader::Field;
use crate::typed::read_as;
use crate::yaml::Value;

/// Longest argument, in bytes.
const ARGUMENT_MAX: usize = 4 * 1_024;

/// Reads a list of arguments. `parameters` are the names that the schema of the tool has.
pub(super) fn arguments(field: &Field<'_>, parameters: &BTreeSet<String>) -> Vec<Argument> {
    field.list().iter().filter_map(|item| argument(item, parameters, true)).collect()
}

fn argument(field: &Field<'_>, parameters: &BTreeSet<String>, may_nest: bool) -> Option<Argument> {
    if matches!(field.node().value, Value::List(_)) && may_nest {
        let inner: Vec<Argument> = field.list().iter().filter_map(|item| argument(item, parameters, false)).collect();
        return Some(Argument::Together(inner));
    }
    let text = &read_as::<Free<ARGUMENT_MAX>>(field)?.0;
    if let Some(name) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix("...}")) {
        return is_known(field, name, parameters).then(|| Argument::Spread(name.to_owned()));
    }
    pieces(field, text, parameters).map(Argument::One)
}

/// The pieces of a text. `{{` and `}}` stand for braces.
pub(super) fn pieces(field: &Field<'_>, text: &str, parameters: &BTreeSet<String>) -> Option<Vec<Piece>> {
    let mut found = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            plain.push_str(&rest[..1]);
            rest = &rest[2..];
            continue;
        }
        let Some((name, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
            field
                .error("a brace has no partner", "write `{name}` for a parameter, and `{{` or `}}` for a brace itself");
            return None;
        };
        if !plain.is_empty() {
            found.push(Piece::Text(std::mem::take(&mut plain)));
        }
        match Place::ALL.iter().find(|(word, _)| *word == name) {
            Some((_, place)) => found.push(Piece::Place(*place)),
            None if name.ends_with("...") => {
                field.error(
                    format!("`{{{name}}}` is only a part of this argument"),
                    "a list becomes several arguments, so it must stand alone",
                );
                return None;
            }
            None if is_known(field, name, parameters) => found.push(Piece::Parameter(name.to_owned())),
            None => return None,
        }
        rest = after;
    }
    plain.push_str(rest);
    if !plain.is_empty() || found.is_empty() {
        found.push(Piece::Text(plain));
    }
    Some(found)
}

/// Whether there is a parameter of this name; if not, that is reported.
pub(super) fn is_known(field: &Field<'_>, name: &str, parameters: &BTreeSet<String>) -> bool {
    if parameters.contains(name) {
        return true;
    }
    let places = Place::ALL.iter().map(|(word, _)| *word);
    let hint = match nearest(name, parameters.iter().map(String::as_str).chain(places)) {
        Some(near) => format!("did you mean `{{{near}}}`?"),
        None => {
            "list it under `parameters.properties`; `{workspace}`, `{home}` and `{toolbox}` are directories".to_owned()
        }
    };
    field.error(format!("`{{{}}}` names no parameter", ghost_domain::text::clip(name, 60)), hint);
    false
}
