//! Suggests an existing id for an id that does not exist or is malformed, for example because a
//! character was lost in copying.
//!
//! A suggestion must never be computed on a frequent path, or read more than the first part of a
//! list.

use ghost_domain::text::{nearest_within, shown};
use ghost_domain::{Code, Refusal, RootId};
use ghost_store::Reads;
use ghost_store::tables::{Result as Rows, TaskFilter, TurnFilter};
use ghost_world::World;

use super::outcome::Result;
use super::pages::WINDOW;

/// Fewer characters than this are too short for a prefix match.
const PREFIX_MIN: usize = 4;
/// Largest edit distance of a suggestion. Two ids of the same millisecond differ in more characters.
const DISTANCE_MAX: usize = 3;

/// The kind of record that an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// A conversation.
    Conversation,
    /// A dead letter.
    DeadLetter,
    /// A schedule.
    Schedule,
    /// A task.
    Task,
    /// A turn.
    Turn,
}

/// Passes `outcome` on. If it is a refusal because an id in `typed` does not exist or is malformed, and
/// a similar id exists, the hint suggests that id.
///
/// # Errors
/// The refusal of `outcome`, with the suggestion if there is one.
pub async fn with_suggestion<T>(world: &World, sort: Sort, typed: &[String], outcome: Result<T>) -> Result<T> {
    let refusal = match outcome {
        Err(refusal) if matches!(refusal.code, Code::NotFound | Code::InvalidArguments) => refusal,
        other => return other,
    };
    let Some(typed) = typed.iter().find(|typed| is_about(&refusal, typed)).map(|typed| canonical(typed)) else {
        return Err(refusal);
    };
    // If the ids cannot be read, the refusal stays as it is.
    let known = world.store().read(move |r| Box::pin(async move { known(r, sort).await })).await.unwrap_or_default();
    Err(match nearest_id(&typed, &known) {
        Some(near) => refusal.hint(format!("did you mean `{near}`?")),
        None => refusal,
    })
}

/// Whether the refusal quotes the id, as typed or in its canonical form.
fn is_about(refusal: &Refusal, typed: &str) -> bool {
    let quotes = |text: &str| refusal.message.contains(&format!("`{}`", shown(text, 80)));
    quotes(typed) || quotes(&canonical(typed))
}

/// The canonical form of an id. Text that is not an id is only lowercased.
fn canonical(typed: &str) -> String {
    // All ids have the same text form.
    typed.parse::<RootId>().map_or_else(|_| typed.trim().to_lowercase(), |id| id.to_string())
}

/// The first ids of the list of that kind.
async fn known(r: &mut dyn Reads, sort: Sort) -> Rows<Vec<String>> {
    Ok(match sort {
        Sort::Conversation => {
            r.conversation_list(None, None).await?.iter().map(|row| row.conversation_id.to_string()).collect()
        }
        Sort::DeadLetter => {
            r.dead_letter_list(None, None).await?.iter().map(|row| row.dead_letter_id.to_string()).collect()
        }
        Sort::Schedule => {
            r.schedule_list(None, None, None).await?.iter().map(|row| row.schedule_id.to_string()).collect()
        }
        Sort::Task => {
            let all = TaskFilter { limit: WINDOW, ..TaskFilter::default() };
            r.task_list(&all).await?.iter().map(|row| row.task_id.to_string()).collect()
        }
        Sort::Turn => {
            let all = TurnFilter { limit: WINDOW, ..TurnFilter::default() };
            r.turn_list(&all).await?.iter().map(|row| row.turn_id.to_string()).collect()
        }
    })
}

/// The only id with this prefix, or else the nearest within the edit distance.
fn nearest_id<'a>(typed: &str, known: &'a [String]) -> Option<&'a str> {
    let known = || known.iter().map(String::as_str);
    let mut beginning = known().filter(|id| typed.len() >= PREFIX_MIN && id.starts_with(typed));
    match (beginning.next(), beginning.next()) {
        (Some(only), None) => Some(only),
        _ => nearest_within(typed, known(), DISTANCE_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_or_a_typo_suggests_the_id() {
        let (one, two) = ("0197d2a0-1111-7000-8000-0123456789ab", "0197d2a0-2222-7000-8000-ba9876543210");
        let known = [one.to_owned(), two.to_owned()];
        for (typed, near) in [
            ("0197d2a0-1111-7000-8000-0123456789ac", Some(one)),
            ("0197d2a0-1111-7000-8000-012345678", Some(one)),
            ("0197d2a0-2", Some(two)),
            ("1097d2a0-2222-7000-8000-ba9876543210", Some(two)),
            ("0197d2a0-2222-7000-8000ba9876543210x", Some(two)),
            // Two ids match the prefix; no id matches; the prefix is too short; the text is empty.
            ("0197d2a0-", None),
            ("0197d2a0-3333-7000-8000-000000000000", None),
            ("019", None),
            ("", None),
        ] {
            assert_eq!(nearest_id(&canonical(typed), &known), near, "{typed}");
        }
        assert_eq!(canonical(" 0197D2A01111700080000123456789AB"), one);
    }
}
