//! Abbreviated ids: a prefix is enough if it is unique among the ids of its kind. The daemon resolves it, and refuses one
//! that several ids have.

use ghost_proto::v1;

use crate::connection::Client;
use crate::failure::Failure;

/// Hexadecimal digits of a full id.
const DIGITS: usize = 32;

/// The kind of an id, as the wire names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdKind(pub &'static str);

/// Id of an approval.
pub const APPROVAL: IdKind = IdKind("approval");
/// Id of a conversation.
pub const CONVERSATION: IdKind = IdKind("conversation");
/// Id of a dead letter.
pub const DEAD_LETTER: IdKind = IdKind("dead_letter");
/// Id of a write grant.
pub const GRANT: IdKind = IdKind("grant");
/// Id of a timer, cron job or watch.
pub const SCHEDULE: IdKind = IdKind("schedule");
/// Id of a task.
pub const TASK: IdKind = IdKind("task");
/// Id of a turn.
pub const TURN: IdKind = IdKind("turn");

/// The name of the session of an agent's own work.
const OWN_WORK: &str = "own";

/// The full id for a prefix. Text that is not a prefix of an id is returned unchanged; the daemon then refuses the
/// request that uses it.
pub async fn full_id(client: &Client, kind: IdKind, typed: String) -> Result<String, Failure> {
    if !is_prefix(&typed) {
        return Ok(typed);
    }
    let request = v1::ResolveIdRequest { kind: kind.0.to_owned(), prefix: typed.clone() };
    match client.call(request).await {
        Ok(found) => Ok(found.full_id),
        Err(failure) if failure.code == "not_found" => Ok(typed),
        Err(failure) => Err(failure),
    }
}

/// The full name of a session: `own`, or the id of a conversation.
pub async fn session(client: &Client, typed: String) -> Result<String, Failure> {
    if typed == OWN_WORK { Ok(typed) } else { full_id(client, CONVERSATION, typed).await }
}

/// Like [`full_id`] for an optional id.
pub async fn full_id_if_given(client: &Client, kind: IdKind, typed: Option<String>) -> Result<Option<String>, Failure> {
    match typed {
        Some(typed) => full_id(client, kind, typed).await.map(Some),
        None => Ok(None),
    }
}

/// Like [`full_id`] for several ids.
pub async fn full_ids(client: &Client, kind: IdKind, typed: Vec<String>) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::with_capacity(typed.len());
    for typed in typed {
        ids.push(full_id(client, kind, typed).await?);
    }
    Ok(ids)
}

/// Whether the text can be a prefix of an id and is not a full id.
fn is_prefix(typed: &str) -> bool {
    let digits = typed.bytes().filter(|c| *c != b'-').count();
    (1..DIGITS).contains(&digits) && typed.bytes().all(|c| c == b'-' || c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::is_prefix;

    #[test]
    fn only_possible_prefixes_are_resolved() {
        for typed in ["0", "0197d2", "0197D2A0-11", "0197d2a0-1111-7000-8000-0123456789a"] {
            assert!(is_prefix(typed), "{typed}");
        }
        for typed in ["", "-", "none", "t", "0197d2a0-1111-7000-8000-0123456789ab", "0197d2a01111700080000123456789ab"]
        {
            assert!(!is_prefix(typed), "{typed}");
        }
    }
}
