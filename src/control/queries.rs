//! Reads rows from the store for the services, in pages: how many rows fit a response, and where the next page begins.
//!
//! A query must never decide anything, return an unbounded list, leave a row out between two pages, or return one twice.

mod agents;
mod conversations;
mod names;

use ghost_domain::Refusal;
use ghost_store::{StoreError, Tx};
use ghost_world::World;

pub(crate) use self::agents::{AgentsRead, all_agents, at_work, registry};
pub(crate) use self::conversations::{
    Answering, answering, beyond_the_end, conversation, ended_turn, unanswerable, why_ended,
};
pub(crate) use self::names::{
    agent_in_filter, archetype_in_filter, beginning_with, no_turn, root_named, tool_in_filter, turn_in_filter,
};
use crate::convert::input::{self, seal};

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

#[cfg(test)]
mod tests {
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
