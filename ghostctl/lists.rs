//! Reads lists page by page.

use crate::failure::Failure;
use crate::output::Note;
use crate::text::from_1;

/// Rows per request.
const PAGE: u32 = 200;
/// Default of `--limit`.
const ROWS: u32 = 10_000;

/// The option `--limit` of lists.
#[derive(Clone, Debug, clap::Args)]
pub struct Bound {
    /// Print at most N rows
    #[arg(long, value_name = "N", default_value_t = ROWS, value_parser = from_1::<u32>)]
    pub limit: u32,
}

/// The rows of a list, and a note if there are more.
#[derive(Debug)]
pub struct Rows<T> {
    /// The rows, in the daemon's order.
    pub rows: Vec<T>,
    /// A note if rows are omitted.
    pub note: Option<Note>,
}

/// Fetches pages until `bound` is reached or the list ends. `fetch` takes the page size and the cursor. It returns the
/// rows and the next cursor, which is empty at the end.
pub async fn collect<T>(
    bound: &Bound,
    fetch: impl AsyncFn(u32, String) -> Result<(Vec<T>, String), Failure>,
) -> Result<Rows<T>, Failure> {
    let limit = bound.limit as usize;
    let mut rows = Vec::new();
    let mut cursor = String::new();
    loop {
        let wanted = PAGE.min(bound.limit - u32::try_from(rows.len()).unwrap_or(bound.limit));
        let (page, next) = fetch(wanted, cursor.clone()).await?;
        rows.extend(page);
        if rows.len() >= limit && (rows.len() > limit || !next.is_empty()) {
            rows.truncate(limit);
            let note = format!("only the first {limit} are shown; use --limit to see more");
            let note = if bound.limit == ROWS { Note::Cut(note) } else { Note::Word(note) };
            return Ok(Rows { rows, note: Some(note) });
        }
        // A cursor that does not advance would loop forever.
        if next.is_empty() || next == cursor {
            return Ok(Rows { rows, note: None });
        }
        cursor = next;
    }
}

/// Fetches all pages. `fetch` takes the page size and the cursor. It returns the rows and the next cursor.
pub async fn collect_all<T>(
    fetch: impl AsyncFn(u32, String) -> Result<(Vec<T>, String), Failure>,
) -> Result<Vec<T>, Failure> {
    Ok(collect(&Bound { limit: u32::MAX }, fetch).await?.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn count(total: u32, limit: u32) -> (usize, bool) {
        let rows = collect(&Bound { limit }, async |wanted, cursor: String| {
            let start: u32 = if cursor.is_empty() { 0 } else { cursor.parse().unwrap() };
            let end = (start + wanted).min(total);
            let next = if end < total { end.to_string() } else { String::new() };
            Ok(((start..end).collect(), next))
        })
        .await
        .unwrap();
        assert!(rows.rows.iter().copied().eq(0..u32::try_from(rows.rows.len()).unwrap()));
        (rows.rows.len(), rows.note.is_some())
    }

    #[tokio::test]
    async fn pages_are_joined_and_a_note_says_if_there_are_more() {
        assert_eq!(count(0, 10).await, (0, false));
        assert_eq!(count(1_050, 10_000).await, (1_050, false));
        assert_eq!(count(1_050, 300).await, (300, true));
        assert_eq!(count(300, 300).await, (300, false));
    }

    #[tokio::test]
    async fn a_cursor_that_does_not_advance_ends_the_list() {
        let rows = collect(&Bound { limit: 9_999 }, async |_, _| Ok((vec![1], "same".to_owned()))).await.unwrap();
        assert_eq!(rows.rows.len(), 2);
    }
}
