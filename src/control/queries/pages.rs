//! Parts of long lists: how many rows the store is asked for, and where the next part begins.
//!
//! Must never: leave a row out between two parts, or give one twice.

use ghost_domain::Timestamp;

use crate::convert::input::Place;

/// Most rows that the store gives at once.
pub(super) const WINDOW: u32 = 1_000;
/// Rows read beyond a page: those that share a cursor's millisecond are read again and left out.
const MARGIN: u32 = 500;

/// A part of a list, and where the next part begins.
#[derive(Debug)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// The cursor of the next part; empty at the end.
    pub next: String,
}

/// A list that is not read page by page.
#[derive(Debug)]
pub struct Whole<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Whether they are as many as the store gives at once, so that there may be more.
    pub truncated: bool,
}

impl<T> From<Vec<T>> for Whole<T> {
    fn from(rows: Vec<T>) -> Self {
        Self { truncated: rows.len() >= WINDOW as usize, rows }
    }
}

impl<T> Page<T> {
    /// The page with its rows turned into something else.
    pub fn map<U>(self, turned: impl FnMut(&T) -> U) -> (Vec<U>, String) {
        (self.rows.iter().map(turned).collect(), self.next)
    }
}

/// Cuts a page out of `rows`, newest first. `more` says that the store may hold older ones.
pub(super) fn newest<T>(
    rows: Vec<T>,
    more: bool,
    after: Option<Place>,
    limit: usize,
    place: impl Fn(&T) -> Place,
    wanted: impl Fn(&T) -> bool,
) -> Page<T> {
    let mut last = None;
    let (mut taken, mut rows) = (Vec::new(), rows.into_iter());
    for row in rows.by_ref() {
        let at = place(&row);
        if after.is_some_and(|after| at >= after) {
            continue;
        }
        last = Some(at);
        if wanted(&row) {
            taken.push(row);
            if taken.len() == limit {
                break;
            }
        }
    }
    let rest = more || rows.len() > 0;
    let next = match (last, after) {
        (Some(last), _) if rest => last.cursor(),
        // Nothing but rows of the cursor's own millisecond: on to the one before.
        (None, Some(after)) if rest => Place { at: Timestamp(after.at.0.saturating_sub(1)), id: u128::MAX }.cursor(),
        _ => String::new(),
    };
    Page { rows: taken, next }
}

pub(super) fn window(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(WINDOW).saturating_add(MARGIN).min(WINDOW)
}

pub(super) fn before(after: Option<Place>) -> Option<Timestamp> {
    after.map(|after| Timestamp(after.at.0.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rows: &[(i64, u128)], more: bool, after: Option<(i64, u128)>, limit: usize) -> (Vec<(i64, u128)>, String) {
        let after = after.map(|(at, id)| Place { at: Timestamp(at), id });
        let place = |row: &(i64, u128)| Place { at: Timestamp(row.0), id: row.1 };
        let page = newest(rows.to_vec(), more, after, limit, place, |_| true);
        (page.rows, page.next)
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
        // A window of nothing but what was seen moves on.
        assert_eq!(at(&[(9, 2)], true, Some((9, 1)), 9).1, Place { at: Timestamp(8), id: u128::MAX }.cursor());
    }
}
