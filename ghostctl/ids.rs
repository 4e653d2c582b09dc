//! Ids as people type them: the beginning of one is enough where no other of its kind begins so. The daemon says which.
//!
//! Must never: choose among several.

use ghost_proto::v1::ResolveIdRequest;
use ghost_proto::v1::world_client::WorldClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;

/// Digits of a whole id.
const DIGITS: usize = 32;

/// What an id is of, as the wire names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdKind(pub &'static str);

/// A conversation's.
pub const CONVERSATION: IdKind = IdKind("conversation");
/// A dead letter's.
pub const DEAD_LETTER: IdKind = IdKind("dead_letter");
/// A timer's, cron job's or watch's.
pub const SCHEDULE: IdKind = IdKind("schedule");
/// A task's.
pub const TASK: IdKind = IdKind("task");
/// A turn's.
pub const TURN: IdKind = IdKind("turn");

/// The whole id. What is none stays as it is, and so does what begins none: the command's own refusal knows the nearest.
pub async fn whole(client: &Client, kind: IdKind, typed: String) -> Result<String, Failure> {
    if !is_beginning(&typed) {
        return Ok(typed);
    }
    let request = ResolveIdRequest { kind: kind.0.to_owned(), prefix: typed.clone() };
    match rpc!(client, WorldClient::resolve_id, request).await {
        Ok(found) => Ok(found.full_id),
        Err(failure) if failure.code == "not_found" => Ok(typed),
        Err(failure) => Err(failure),
    }
}

/// The same where it may be absent.
pub async fn whole_if(client: &Client, kind: IdKind, typed: Option<String>) -> Result<Option<String>, Failure> {
    match typed {
        Some(typed) => whole(client, kind, typed).await.map(Some),
        None => Ok(None),
    }
}

/// The same for several.
pub async fn whole_each(client: &Client, kind: IdKind, typed: Vec<String>) -> Result<Vec<String>, Failure> {
    let mut ids = Vec::with_capacity(typed.len());
    for typed in typed {
        ids.push(whole(client, kind, typed).await?);
    }
    Ok(ids)
}

/// Whether it could be the beginning of an id, and is not all of it.
fn is_beginning(typed: &str) -> bool {
    let digits = typed.bytes().filter(|c| *c != b'-').count();
    (1..DIGITS).contains(&digits) && typed.bytes().all(|c| c == b'-' || c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::is_beginning;

    #[test]
    fn only_what_may_begin_an_id_is_asked_for() {
        for typed in ["0", "0197d2", "0197D2A0-11", "0197d2a0-1111-7000-8000-0123456789a"] {
            assert!(is_beginning(typed), "{typed}");
        }
        for typed in ["", "-", "none", "t", "0197d2a0-1111-7000-8000-0123456789ab", "0197d2a01111700080000123456789ab"]
        {
            assert!(!is_beginning(typed), "{typed}");
        }
    }
}
