//! Reads rows from the store for the services, in pages: how many rows fit a response, and where the next page begins; and
//! conversations. A query decides nothing, returns no unbounded list, and leaves no row out between two pages.

mod agents;
mod names;

use ghost_domain::{
    AgentId, Code, Conversation, ConversationEntry, ConversationId, Direction, MailState, Refusal, Turn, TurnId,
    TurnStatus,
};
use ghost_operations::conversations;
use ghost_store::{StoreError, Tx};
use ghost_world::World;

pub(crate) use self::agents::{AgentsRead, all_agents, at_work, registry};
pub(crate) use self::names::{
    agent_in_filter, archetype_in_filter, beginning_with, no_turn, root_named, tool_in_filter, turn_in_filter,
};
use crate::convert::input;
use crate::convert::input::seal;

/// Largest size of a response's rows in bytes. Rows may be long, and gRPC clients accept 4 MiB by
/// default.
pub(crate) const PAGE_BYTES: usize = 1024 * 1024;

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page<T> {
    /// Rows of this page.
    pub rows: Vec<T>,
    /// For each row, the cursor of a page that begins after it.
    pub positions: Vec<String>,
    /// The cursor of the next page; empty at the end.
    pub next: String,
}

impl<T> Page<T> {
    /// The first `limit` of `rows` after `cursor`. The rows must be in the order of the texts that `position` returns. An
    /// empty `cursor` means the start.
    pub(crate) fn after(mut rows: Vec<T>, cursor: &str, limit: usize, position: impl Fn(&T) -> String) -> Self {
        rows.retain(|row| position(row).as_str() > cursor);
        Self::cut(rows, limit, position)
    }

    /// The first `limit` of `rows`, which begin where the previous page ended. If another page follows,
    /// `rows` has at least one row more.
    fn cut(mut rows: Vec<T>, limit: usize, position: impl Fn(&T) -> String) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        let positions: Vec<String> = rows.iter().map(position).collect();
        let next = if more { positions.last().cloned().unwrap_or_default() } else { String::new() };
        Self { rows, positions, next }
    }

    /// The rows as messages, as many as fit a response but at least one, and the sealed cursor of the next page.
    pub(crate) fn sealed<U: prost::Message>(self, list: &str, turned: impl FnMut(&T) -> U) -> (Vec<U>, String) {
        let (rows, next) = self.map(turned);
        (rows, seal(list, &next))
    }

    fn map<U: prost::Message>(self, turned: impl FnMut(&T) -> U) -> (Vec<U>, String) {
        let whole = self.rows.len();
        let (rows, _) = within_bytes(self.rows.iter().map(turned), false);
        let next = match rows.len() {
            fits if fits < whole => self.positions.into_iter().nth(fits.saturating_sub(1)).unwrap_or_default(),
            _ => self.next,
        };
        (rows, next)
    }
}

/// The rows of a list that fit a response, and the sealed cursor of the next page: the `key` of the last one, if more rows
/// follow.
pub(crate) fn sealed<T: prost::Message>(
    list: &str,
    rows: impl IntoIterator<Item = T>,
    more: bool,
    key: impl Fn(&T) -> &str,
) -> (Vec<T>, String) {
    let (rows, more) = within_bytes(rows, more);
    let next = rows.last().filter(|_| more).map(|last| seal(list, key(last))).unwrap_or_default();
    (rows, next)
}

/// As many rows as fit a response, but at least one. The flag says whether more rows follow.
pub(crate) fn within_bytes<T: prost::Message>(rows: impl IntoIterator<Item = T>, more: bool) -> (Vec<T>, bool) {
    let (mut fits, mut used) = (Vec::new(), 0);
    for row in rows {
        used += row.encoded_len();
        if used > PAGE_BYTES && !fits.is_empty() {
            return (fits, true);
        }
        fits.push(row);
    }
    (fits, more)
}

/// One page of a list that is ordered by the texts or times that `position` returns. `read` gets the number of rows to read:
/// one more than the page has.
///
/// # Errors
/// If the store cannot be read.
pub(crate) async fn page<T, F>(
    world: &World,
    limit: u32,
    read: F,
    position: impl Fn(&T) -> String,
) -> Result<Page<T>, Refusal>
where
    T: Send + 'static,
    F: FnOnce(&mut Tx, u32) -> Result<Vec<T>, StoreError> + Send + 'static,
{
    let limit = input::page(limit);
    let most = u32::try_from(limit).unwrap_or(u32::MAX).saturating_add(1);
    let rows = world.store().read(move |r| read(r, most)).await?;
    Ok(Page::cut(rows, limit, position))
}

/// How many entries back the newest incoming message is searched.
const LOOK_BACK: i64 = 200;

/// One conversation with at most `limit` entries after `after`.
pub async fn conversation(
    world: &World,
    id: ConversationId,
    after: i64,
    limit: u32,
) -> Result<(Conversation, Vec<ConversationEntry>), Refusal> {
    world
        .store()
        .read(move |r| {
            let conversation = conversations::get(r, id)?;
            let entries = match after < conversation.last_seq {
                true => r.conversation_entries(id, after, limit)?,
                false => Vec::new(),
            };
            // A client that starts at 0 gets the entries that are still stored. A client that
            // resumes after an entry must not miss one.
            if let Some(first) = entries.first().map(|entry| entry.seq).filter(|first| after > 0 && *first > after + 1)
            {
                return Err(no_longer_kept(id, after, first));
            }
            Ok::<_, Refusal>((conversation, entries))
        })
        .await
}

/// The refusal for a sequence number past the end of the conversation.
pub fn beyond_the_end(conversation: &Conversation, after: i64) -> Refusal {
    let last = conversation.last_seq;
    Refusal::new(
        Code::CursorAhead,
        format!("conversation {} has reached {last}, not {after}", conversation.conversation_id),
    )
    .hint("continue after the seq of an entry that you have received, or after 0")
    .details(serde_json::json!({ "field": "after_seq", "last_seq": last }))
}

/// The refusal for a sequence number whose following entries retention has deleted.
fn no_longer_kept(id: ConversationId, after: i64, first: i64) -> Refusal {
    Refusal::new(
        Code::CursorExpired,
        format!("the entries after {after} in conversation {id} are no longer stored; the oldest stored entry is {first}"),
    )
    .hint("start after 0 to get the stored entries; limits.conversation_days and limits.conversation_entries_max limit them")
    .details(serde_json::json!({ "field": "after_seq", "first_seq": first }))
}

/// The state of the turn that handles the newest incoming message.
pub enum Answering {
    /// The turn is open.
    UnderWay(TurnId),
    /// The turn has ended.
    Over(Box<Turn>),
}

/// The sequence number of the newest incoming message, or 0, and the turn that took it, if any.
pub async fn answering(world: &World, id: ConversationId) -> Result<(i64, Option<Answering>), Refusal> {
    world
        .store()
        .read(move |r| {
            let conversation = conversations::get(r, id)?;
            let entries = r.conversation_entries(id, conversation.last_seq.saturating_sub(LOOK_BACK), u32::MAX)?;
            let Some(last) = entries.into_iter().rev().find(|entry| entry.direction == Direction::In) else {
                return Ok((0, None));
            };
            let taken = r.message_get(last.message_id)?.filter(|mail| mail.state != MailState::Pending);
            let turn = match taken.and_then(|mail| mail.turn_id) {
                Some(turn_id) => r.turn_get(turn_id)?,
                None => None,
            };
            let state = turn.map(|turn| match turn.status {
                TurnStatus::Open => Answering::UnderWay(turn.turn_id),
                _ => Answering::Over(Box::new(turn)),
            });
            Ok::<_, Refusal>((last.seq, state))
        })
        .await
}

/// Why this agent does not answer now, or `None` if it does.
pub async fn unanswerable(world: &World, agent_id: &AgentId) -> Result<Option<Refusal>, Refusal> {
    let agent_id = agent_id.clone();
    world
        .read(move |r| {
            Ok::<_, Refusal>(match r.agent_get(&agent_id)?.filter(|agent| !agent.is_deleted()) {
                Some(agent) => ghost_operations::asks::unanswerable(r.ctx, &agent),
                None => {
                    Some(Refusal::new(Code::Conflict, format!("{agent_id} was deleted and no longer answers")).hint(
                        "an operator can give the conversation to another agent: `ghostctl conversation handoff`",
                    ))
                }
            })
        })
        .await
}

/// The turn, if it has ended.
pub async fn ended_turn(world: &World, turn_id: TurnId) -> Result<Option<Turn>, Refusal> {
    let turn = world.store().read(move |r| r.turn_get(turn_id)).await;
    Ok(turn.map_err(Refusal::from)?.filter(|turn| turn.status != TurnStatus::Open))
}

/// The code and text of the refusal that a turn ended with, if it did not finish. The reason of a
/// failed turn, or of one at its bound, has the form `code: text (hint)`, truncated if it is very long.
pub fn why_ended(status: TurnStatus, reason: Option<&str>) -> Option<(Code, &str)> {
    match status {
        TurnStatus::Failed | TurnStatus::TimedOut => {
            let (code, words) = reason?.split_once(": ")?;
            Some((code.parse().ok()?, words))
        }
        TurnStatus::Cancelled => Some((Code::Cancelled, reason.unwrap_or_default())),
        // The turn is a dead letter: it gets no answer until an operator retries it.
        TurnStatus::Dead => Some((Code::Unavailable, reason.unwrap_or_default())),
        TurnStatus::Open | TurnStatus::Finished | TurnStatus::Split => None,
    }
}

#[cfg(test)]
mod page_tests {
    use super::*;

    #[test]
    fn a_response_takes_the_rows_that_fit_and_always_the_first() {
        let long = |n: usize| vec!["x".repeat(n)];
        let page = |rows: &[usize]| Page {
            rows: rows.to_vec(),
            positions: (0..rows.len()).map(|at| format!("after {at}")).collect(),
            next: "the next page".into(),
        };
        let message = |n: &usize| ghost_proto::v1::TaskIds { task_ids: long(*n) };
        let sizes = |rows: &[usize]| {
            let (rows, next) = page(rows).map(message);
            (rows.len(), next)
        };
        assert_eq!(sizes(&[10, 10]), (2, "the next page".to_owned()));
        assert_eq!(sizes(&[600_000, 400_000, 100_000, 1]), (2, "after 1".to_owned()));
        assert_eq!(sizes(&[PAGE_BYTES * 2, 1]), (1, "after 0".to_owned()), "or it would never be given");
        assert_eq!(sizes(&[]), (0, "the next page".to_owned()));
    }

    #[test]
    fn a_list_that_is_read_at_once_is_returned_in_pages() {
        let rows = || vec!["ada", "ben", "cyd"];
        let part = |cursor: &str, limit| {
            let page = Page::after(rows(), cursor, limit, |row| (*row).to_owned());
            (page.rows, page.next)
        };
        assert_eq!(part("", 2), (vec!["ada", "ben"], "ben".to_owned()));
        assert_eq!(part("ben", 2), (vec!["cyd"], String::new()));
        // The row of the cursor may have been deleted.
        assert_eq!(part("bea", 1), (vec!["ben"], "ben".to_owned()));
        assert_eq!(part("", 3), (rows(), String::new()));
    }

    #[test]
    fn a_page_has_a_cursor_only_if_another_follows() {
        let part = |rows: Vec<u8>| {
            let page = Page::cut(rows, 2, u8::to_string);
            (page.rows, page.next)
        };
        assert_eq!(part(vec![1, 2, 3]), (vec![1, 2], "2".to_owned()));
        assert_eq!(part(vec![1, 2]), (vec![1, 2], String::new()));
        assert_eq!(part(Vec::new()), (Vec::new(), String::new()));
    }
}

#[cfg(test)]
mod conversation_tests {
    use super::*;

    #[test]
    fn the_code_of_an_unfinished_turn_is_found() {
        let spent = Refusal::new(Code::BudgetExhausted, "agent:ada has 0 tokens left").hint("raise it").to_string();
        let words = "agent:ada has 0 tokens left (raise it)";
        assert_eq!(why_ended(TurnStatus::Failed, Some(&spent)), Some((Code::BudgetExhausted, words)));
        for nothing in [None, Some("no code here"), Some("other: words")] {
            assert_eq!(why_ended(TurnStatus::Failed, nothing), None);
        }
        let by = "by operator:uid-0";
        assert_eq!(why_ended(TurnStatus::Cancelled, Some(by)), Some((Code::Cancelled, by)));
        assert_eq!(why_ended(TurnStatus::Dead, None), Some((Code::Unavailable, "")));
        assert_eq!(why_ended(TurnStatus::Finished, Some(&spent)), None);
    }
}
