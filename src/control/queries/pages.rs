//! Parts of long lists: how many rows the store is asked for, how many of them one answer takes, and where the next part
//! begins.
//!
//! Must never: leave a row out between two parts, or give one twice.

use crate::convert::input::Place;

/// Most rows that the store gives at once.
pub(super) const WINDOW: u32 = 1_000;
/// Bytes of an answer's rows. Rows may be long, and clients take 4 MiB at once unless they are told otherwise.
pub const PAGE_BYTES: usize = 1024 * 1024;

/// A part of a list, and where the next part begins.
#[derive(Debug)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// The place of each row: the cursor of a part that begins after it.
    pub places: Vec<String>,
    /// The cursor of the next part; empty at the end.
    pub next: String,
}

impl<T> Page<T> {
    /// The first `limit` of `rows` that stand after `cursor`, in the order that `place` gives them too; `cursor` is empty, or
    /// was such a place.
    pub(super) fn of(rows: Vec<T>, cursor: &str, limit: usize, place: impl Fn(&T) -> String) -> Self {
        let mut left = rows.into_iter().filter(|row| place(row).as_str() > cursor);
        let rows: Vec<T> = left.by_ref().take(limit).collect();
        let places: Vec<String> = rows.iter().map(&place).collect();
        let next = if left.next().is_some() { places.last().cloned().unwrap_or_default() } else { String::new() };
        Self { rows, places, next }
    }

    /// The first `limit` of `rows`, which begin where the part before ends and of which there may be more in the store than
    /// were read. The store must have been asked for more than `limit`.
    pub(super) fn cut(mut rows: Vec<T>, limit: usize, place: impl Fn(&T) -> String) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        let places: Vec<String> = rows.iter().map(place).collect();
        let next = if more { places.last().cloned().unwrap_or_default() } else { String::new() };
        Self { rows, places, next }
    }

    /// The rows as messages, as many as fit the bytes of an answer, the first one always; and where the next part begins.
    pub fn map<U: prost::Message>(self, turned: impl FnMut(&T) -> U) -> (Vec<U>, String) {
        let whole = self.rows.len();
        let (rows, _) = within_bytes(self.rows.iter().map(turned), false);
        let next = match rows.len() {
            fits if fits < whole => self.places.into_iter().nth(fits.saturating_sub(1)).unwrap_or_default(),
            _ => self.next,
        };
        (rows, next)
    }
}

/// As many rows as fit the bytes of an answer, the first one always; and whether more follow, be it after all of them.
pub fn within_bytes<T: prost::Message>(rows: impl IntoIterator<Item = T>, more: bool) -> (Vec<T>, bool) {
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

/// Cuts a page out of `rows`, newest first. `more` says that the store may hold older ones.
pub(super) fn newest<T>(
    rows: Vec<T>,
    more: bool,
    after: Option<Place>,
    limit: usize,
    place: impl Fn(&T) -> Place,
) -> Page<T> {
    let mut last = None;
    let (mut taken, mut rows) = (Vec::new(), rows.into_iter());
    for row in rows.by_ref() {
        let at = place(&row);
        if after.is_some_and(|after| at >= after) {
            continue;
        }
        last = Some(at);
        taken.push(row);
        if taken.len() == limit {
            break;
        }
    }
    let rest = more || rows.len() > 0;
    let next = last.filter(|_| rest).map_or_else(String::new, |last| last.cursor());
    let places = taken.iter().map(|row| place(row).cursor()).collect();
    Page { rows: taken, places, next }
}

/// Rows to ask the store for: one more than the page, which says whether there is another.
pub(super) fn window(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(WINDOW).saturating_add(1).min(WINDOW)
}

#[cfg(test)]
mod tests {
    use ghost_domain::Timestamp;

    use super::*;

    fn at(rows: &[(i64, u128)], more: bool, after: Option<(i64, u128)>, limit: usize) -> (Vec<(i64, u128)>, String) {
        let after = after.map(|(at, id)| Place { at: Timestamp(at), id });
        let place = |row: &(i64, u128)| Place { at: Timestamp(row.0), id: row.1 };
        let page = newest(rows.to_vec(), more, after, limit, place);
        (page.rows, page.next)
    }

    #[test]
    fn an_answer_takes_what_fits_its_bytes_and_the_first_row_always() {
        let long = |n: usize| vec!["x".repeat(n)];
        let page = |rows: &[usize]| Page {
            rows: rows.to_vec(),
            places: (0..rows.len()).map(|at| format!("after {at}")).collect(),
            next: "the next page".into(),
        };
        let told = |n: &usize| ghost_proto::v1::TaskIds { task_ids: long(*n) };
        let sizes = |rows: &[usize]| {
            let (rows, next) = page(rows).map(told);
            (rows.len(), next)
        };
        assert_eq!(sizes(&[10, 10]), (2, "the next page".to_owned()));
        assert_eq!(sizes(&[600_000, 400_000, 100_000, 1]), (2, "after 1".to_owned()));
        assert_eq!(sizes(&[PAGE_BYTES * 2, 1]), (1, "after 0".to_owned()), "or it would never be given");
        assert_eq!(sizes(&[]), (0, "the next page".to_owned()));
    }

    #[test]
    fn a_list_that_is_read_at_once_is_given_in_parts() {
        let rows = || vec!["ada", "ben", "cyd"];
        let part = |cursor: &str, limit| {
            let page = Page::of(rows(), cursor, limit, |row| (*row).to_owned());
            (page.rows, page.next)
        };
        assert_eq!(part("", 2), (vec!["ada", "ben"], "ben".to_owned()));
        assert_eq!(part("ben", 2), (vec!["cyd"], String::new()));
        // The row of the cursor may be gone.
        assert_eq!(part("bea", 1), (vec!["ben"], "ben".to_owned()));
        assert_eq!(part("", 3), (rows(), String::new()));
    }

    #[test]
    fn pages_join_without_gap_or_double() {
        let rows = [(9, 2), (9, 1), (8, 7), (7, 1)];
        let (first, next) = at(&rows, false, None, 1);
        assert_eq!(first, [(9, 2)]);
        assert_eq!(next, Place { at: Timestamp(9), id: 2 }.cursor());
        let (second, _) = at(&rows, false, Some((9, 2)), 2);
        assert_eq!(second, [(9, 1), (8, 7)]);
        assert_eq!(at(&rows, false, Some((8, 7)), 5), (vec![(7, 1)], String::new()));
        // The store may hold more than its window.
        assert_eq!(at(&rows, true, None, 9).1, Place { at: Timestamp(7), id: 1 }.cursor());
    }
}
