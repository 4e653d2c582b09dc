//! Finds the id with a given prefix, as git does for commits.
//!
//! A query must never choose among several ids, or read rows outside the range of the prefix.

use ghost_domain::text::shown;
use ghost_domain::{Code, Refusal, RootId};
use ghost_store::tables::IdKind;
use ghost_world::World;
use serde_json::json;

use super::outcome::{Result, refused};
use crate::convert::input::bad;

/// Largest number of candidates in a refusal.
const CANDIDATES_MAX: usize = 5;
/// Hexadecimal digits in an id.
const DIGITS: usize = 32;

/// Kinds of ids: wire name, store kind, name in sentences.
const KINDS: [(&str, IdKind, &str); 9] = [
    ("approval", IdKind::Approval, "approval"),
    ("ask", IdKind::Ask, "ask"),
    ("conversation", IdKind::Conversation, "conversation"),
    ("dead_letter", IdKind::DeadLetter, "dead letter"),
    ("grant", IdKind::Grant, "write grant"),
    ("message", IdKind::Message, "message"),
    ("schedule", IdKind::Schedule, "schedule"),
    ("task", IdKind::Task, "task"),
    ("turn", IdKind::Turn, "turn"),
];

/// The only id of that kind with the prefix `typed`.
///
/// # Errors
/// If `kind` is unknown, `typed` is not a prefix of any id, no id matches, or several match.
pub async fn beginning_with(world: &World, kind: &str, typed: &str) -> Result<String> {
    let Some((_, kind, name)) = KINDS.iter().find(|(known, _, _)| *known == kind).copied() else {
        let known = KINDS.map(|(known, _, _)| known).join(", ");
        return Err(bad("kind", format!("`{}` is not a kind of id", shown(kind, 40))).hint(format!("one of {known}")));
    };
    let Some((first, last)) = range(typed) else {
        return Err(bad("prefix", format!("`{}` is not the beginning of an id", shown(typed, 80))).hint(
            "an id consists of hexadecimal digits; the first digits are enough if no other id begins with them",
        ));
    };
    let limit = u32::try_from(CANDIDATES_MAX + 1).unwrap_or(u32::MAX);
    let read = world.store().read(move |r| r.ids_between(kind, first.0, last.0, limit));
    let found: Vec<String> = read.await.map_err(refused)?.iter().map(ToString::to_string).collect();
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Refusal::not_found(name, &shown(typed, 80), None)),
        several => Err(ambiguous(name, typed, several)),
    }
}

fn ambiguous(name: &str, typed: &str, several: &[String]) -> Refusal {
    let more = if several.len() > CANDIDATES_MAX { " and more" } else { "" };
    let candidates = &several[..several.len().min(CANDIDATES_MAX)];
    let what = format!("`{}` is the beginning of several {name} ids", shown(typed, 80));
    Refusal::new(Code::InvalidArguments, what)
        .hint(format!("write more digits: {}{more}", candidates.join(", ")))
        .details(json!({ "candidates": candidates }))
}

/// The smallest and the largest id with this prefix. Hyphens and the case of letters do not matter.
fn range(typed: &str) -> Option<(RootId, RootId)> {
    let digits: String = typed.trim().chars().filter(|c| *c != '-').collect();
    if digits.is_empty() || digits.len() > DIGITS || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let bound = |fill: char| {
        let whole: String = digits.chars().chain(std::iter::repeat(fill)).take(DIGITS).collect();
        whole.parse().ok()
    };
    Some((bound('0')?, bound('f')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_range_of_ids() {
        let bounds = |typed: &str| range(typed).map(|(first, last)| (first.to_string(), last.to_string()));
        let wanted = ("0197d2a0-1000-0000-0000-000000000000", "0197d2a0-1fff-ffff-ffff-ffffffffffff");
        for typed in ["0197d2a0-1", "0197d2a01", " 0197D2A0-1 "] {
            assert_eq!(bounds(typed), Some((wanted.0.to_owned(), wanted.1.to_owned())), "{typed}");
        }
        let whole = "0197d2a0-1111-7000-8000-0123456789ab";
        assert_eq!(bounds(whole), Some((whole.to_owned(), whole.to_owned())));
        for typed in ["", "-", "xyz", "0197d2a0-1111-7000-8000-0123456789abc", "é"] {
            assert_eq!(bounds(typed), None, "{typed}");
        }
    }
}
