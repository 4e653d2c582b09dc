//! Lists: read page by page, and shown as a table whose columns are a head and a cell each; and records as lines.
//!
//! On a terminal tables are cut to its width. In a pipe or a file they are complete, one line for each row.

use ghost_proto::Paged;
use serde::Serialize;
use uuid::Uuid;

use crate::arguments::from_1;
use crate::connection::Client;
use crate::failure::Failure;
use crate::output::{Answer, Note, View};
use crate::text::one_line;

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

impl Bound {
    /// All rows.
    pub const ALL: Self = Self { limit: u32::MAX };
}

/// The rows of a list, and a note if there are more.
#[derive(Debug)]
pub struct Rows<T> {
    /// The rows, in the daemon's order.
    pub rows: Vec<T>,
    /// A note if rows are omitted.
    pub note: Option<Note>,
}

impl<R> From<Vec<R>> for Rows<R> {
    fn from(rows: Vec<R>) -> Self {
        Self { rows, note: None }
    }
}

impl<R: Serialize> Rows<R> {
    /// The rows as the answer of a command.
    pub fn answer(self, view: &View, columns: &[Column<R>]) -> Answer {
        Answer { note: self.note, ..Answer::new(&self.rows, table(&self.rows, view, columns)) }
    }
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

/// Reads a list up to `bound`.
pub async fn pages<R: Paged>(client: &Client, bound: &Bound, request: R) -> Result<Rows<R::Row>, Failure> {
    collect(bound, async |limit, cursor| Ok(R::rows(client.call(request.clone().at(limit, cursor)).await?))).await
}

/// Reads a list up to `bound`, as the answer of a command.
pub async fn list<R: Paged<Row: Serialize>>(
    client: &Client,
    bound: &Bound,
    request: R,
    columns: &[Column<R::Row>],
) -> Result<Answer, Failure> {
    Ok(pages(client, bound, request).await?.answer(&client.view, columns))
}

/// Largest width of a cell on a terminal. The last column may be wider.
const WIDEST: usize = 48;
/// A column does not get narrower than this or than its heading.
const NARROWEST: usize = 10;
/// The last column does not get narrower than this.
const LAST_NARROWEST: usize = 16;
/// Longest value of a field on a terminal, in characters.
const VALUE: usize = 400;
/// Shortest abbreviation of an id. These characters contain the millisecond in which a UUIDv7 was created.
const ID_SHORTEST: usize = 13;

/// A column of a table: its head, and its cell of a row.
pub type Column<R> = (&'static str, fn(&R, &View) -> String);

/// A field of a record as a cell.
pub trait Cell {
    fn cell(&self) -> String;
}

macro_rules! cell {
    ($($of:ty: $to:expr),*) => {
        $(impl Cell for $of {
            fn cell(&self) -> String {
                $to(self)
            }
        })*
    };
}

cell!(String: Self::clone, i32: Self::to_string, i64: Self::to_string, u32: Self::to_string, u64: Self::to_string);
cell!(Vec<String>: |texts: &Self| texts.join(", "));

impl<T: Cell> Cell for Option<T> {
    fn cell(&self) -> String {
        self.as_ref().map(Cell::cell).unwrap_or_default()
    }
}

/// The columns of a table. After its head, a column has the name of a field, which may be an instant whose `moment` or `age`
/// is shown; or `=>` and a function of the record.
macro_rules! columns {
    (@ $head:literal $field:ident) => { ($head, |row, _| $crate::lists::Cell::cell(&row.$field)) };
    (@ $head:literal moment $field:ident) => { ($head, |row, view| view.moment(row.$field)) };
    (@ $head:literal age $field:ident) => { ($head, |row, view| view.age(row.$field)) };
    (@ $head:literal => $make:expr) => { ($head, $make) };
    ($($head:literal $($field:ident)* $(=> $make:expr)?),* $(,)?) => {
        &[$($crate::lists::columns!(@ $head $($field)* $(=> $make)?)),*]
    };
}
pub(crate) use columns;

/// The rows as a table.
pub fn table<'r, R: 'r>(rows: impl IntoIterator<Item = &'r R>, view: &View, columns: &[Column<R>]) -> String {
    let mut table = Table::new(&columns.iter().map(|(head, _)| *head).collect::<Vec<_>>());
    for row in rows {
        table.row(columns.iter().map(|(_, cell)| cell(row, view)));
    }
    table.render(view.screen)
}

/// A table whose columns are aligned.
#[derive(Clone, Debug)]
struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| one_line(&cell, usize::MAX - 1)).collect());
    }

    /// The lines of the table, headings first. If `screen` (a width in columns) is too narrow, first empty columns are
    /// left out, then ids are abbreviated to unique prefixes, then other cells are truncated. If that is not enough,
    /// columns before the last are left out, and a line below names them.
    fn render(&self, screen: Option<usize>) -> String {
        let Some(columns) = screen else {
            // A long cell moves the rest of its own row only.
            let widths: Vec<usize> = self.widths().into_iter().map(|width| width.min(WIDEST)).collect();
            return self.lines(&widths);
        };
        let mut table = self.clone();
        if table.excess(&table.widths(), columns) > 0 {
            table.without_empty();
        }
        let whole =
            |table: &Self| -> Vec<bool> { (0..table.headings.len()).map(|column| ids(&table.rows, column)).collect() };
        let mut whole_columns = whole(&table);
        if table.excess(&table.widths(), columns) > 0 {
            (0..table.headings.len()).for_each(|column| shorten_ids(&mut table.rows, column));
        }
        let mut left_out = Vec::new();
        // The first column names the row, and the last says most about it.
        while table.headings.len() > 2 && table.excess(&table.least(&whole_columns), columns) > 0 {
            let column = table.headings.len() - 2;
            left_out.push(table.headings[column]);
            table.remove(column);
            whole_columns.remove(column);
        }
        let widths = table.fitting(columns, &whole_columns);
        for cells in &mut table.rows {
            let last = cells.len().saturating_sub(1);
            for (column, (cell, width)) in cells.iter_mut().zip(&widths).enumerate() {
                *cell = if column == last { one_line(cell, *width) } else { cut_in_the_middle(cell, *width) };
            }
        }
        let mut text = table.lines(&table.widths());
        if !left_out.is_empty() {
            left_out.reverse();
            text.push_str(&format!("(left out, because the terminal is narrow: {})\n", left_out.join(", ")));
        }
        text
    }

    /// Removes the columns in which no row has anything. A table without rows keeps its headings.
    fn without_empty(&mut self) {
        for column in (0..self.headings.len()).rev() {
            let is_empty = |row: &Vec<String>| row.get(column).is_none_or(String::is_empty);
            if !self.rows.is_empty() && self.headings.len() > 1 && self.rows.iter().all(is_empty) {
                self.remove(column);
            }
        }
    }

    fn remove(&mut self, column: usize) {
        self.headings.remove(column);
        for row in self.rows.iter_mut().filter(|row| column < row.len()) {
            row.remove(column);
        }
    }

    /// How many columns more than `columns` the table takes with these widths.
    fn excess(&self, widths: &[usize], columns: usize) -> usize {
        let between = 2 * self.headings.len().saturating_sub(1);
        (widths.iter().sum::<usize>() + between).saturating_sub(columns)
    }

    fn heading(&self, column: usize) -> usize {
        self.headings.get(column).map_or(0, |heading| heading.chars().count())
    }

    /// The least width of each column. Columns marked `whole` (ids) do not shrink, because a truncated id cannot be
    /// used.
    fn least(&self, whole: &[bool]) -> Vec<usize> {
        let mut least = self.widths();
        let last = least.len().saturating_sub(1);
        for (column, width) in least.iter_mut().enumerate() {
            let narrowest = if column == last { LAST_NARROWEST } else { NARROWEST };
            if column == last || whole.get(column) != Some(&true) {
                *width = (*width).min(narrowest.max(self.heading(column)));
            }
        }
        least
    }

    /// The width of the widest cell of each column.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = (0..self.headings.len()).map(|column| self.heading(column)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    /// The width of each column on a terminal of this many columns. The last column shrinks first, then always the
    /// widest.
    fn fitting(&self, columns: usize, whole: &[bool]) -> Vec<usize> {
        let (mut widths, least) = (self.widths(), self.least(whole));
        let last = widths.len().saturating_sub(1);
        for (column, width) in widths.iter_mut().enumerate().filter(|(column, _)| *column != last) {
            *width = (*width).min(WIDEST.max(self.heading(column)));
        }
        let excess = self.excess(&widths, columns);
        if let (Some(width), Some(least)) = (widths.last_mut(), least.last()) {
            *width = width.saturating_sub(excess).max(*least);
        }
        while self.excess(&widths, columns) > 0 {
            let can_give =
                |(column, width): &(usize, &mut usize)| least.get(*column).is_some_and(|least| **width > *least);
            let widest = widths.iter_mut().enumerate().filter(can_give).max_by_key(|(_, width)| **width);
            // On an even narrower terminal the lines wrap.
            let Some((_, width)) = widest else { break };
            *width -= 1;
        }
        widths
    }

    fn lines(&self, widths: &[usize]) -> String {
        let headings: Vec<String> = self.headings.iter().map(|heading| (*heading).to_owned()).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                line.push_str(cell);
                // At least two spaces separate cells.
                line.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count()) + 2));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Whether a column holds only ids.
fn ids(rows: &[Vec<String>], column: usize) -> bool {
    let mut cells = rows.iter().filter_map(|row| row.get(column)).filter(|cell| !cell.is_empty()).peekable();
    cells.peek().is_some() && cells.all(|cell| cell.len() == 36 && Uuid::try_parse(cell).is_ok())
}

/// Abbreviates a column of ids to unique prefixes of one length. Every command accepts such a prefix.
fn shorten_ids(rows: &mut [Vec<String>], column: usize) {
    if !ids(rows, column) {
        return;
    }
    let mut ids: Vec<&str> = rows.iter().filter_map(|row| row.get(column)).map(String::as_str).collect();
    ids.retain(|id| !id.is_empty());
    ids.sort_unstable();
    ids.dedup();
    let common = |pair: &[&str]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count() + 1;
    let mut length = ids.windows(2).map(common).max().unwrap_or(0).max(ID_SHORTEST);
    if ids.iter().any(|id| id.get(length - 1..length) == Some("-")) {
        length += 1;
    }
    for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
        cell.truncate(length);
    }
}

/// Truncates a text to `max` characters: its beginning and end, with `…` between them.
fn cut_in_the_middle(text: &str, max: usize) -> String {
    let length = text.chars().count();
    if length <= max {
        return text.to_owned();
    }
    let kept = max.saturating_sub(1);
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

/// Aligned lines `name  value`. Fields without a value are omitted. On a terminal long values are
/// truncated.
pub fn fields(screen: Option<usize>, pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let value_max = if screen.is_some() { VALUE } else { usize::MAX - 1 };
    pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name:width$}  {}\n", one_line(value, value_max)))
        .collect()
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

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap()
    }

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        let mut table = Table::new(&["AGENT", "STATUS", "GOAL"]);
        table.row(["chora".into(), "running".into(), "write\nit".into()]);
        table.row(["a-long-one".into(), "".into(), "".into()]);
        let wanted = "AGENT       STATUS   GOAL\nchora       running  write it\na-long-one\n";
        assert_eq!((table.render(None).as_str(), table.render(Some(80)).as_str()), (wanted, wanted));
    }

    #[test]
    fn cells_are_cut_only_on_a_terminal() {
        let mut table = Table::new(&["A", "B"]);
        table.row(["x".repeat(100), "y".repeat(1_000)]);
        assert!(!table.render(None).contains('…'));
        let text = table.render(Some(80));
        assert!(text.contains("xx…xx") && text.trim_end().ends_with("y…"), "{text}");
        assert_eq!(widest(&text), 80);
        // Even a very narrow terminal gets output.
        assert!(table.render(Some(5)).contains('…'));
    }

    #[test]
    fn the_last_column_shrinks_first_and_then_the_widest() {
        let mut table = Table::new(&["AGENT", "WHERE", "ABOUT"]);
        table.row(["chora".into(), "output/reports/2026-11-draft.md".into(), "a".repeat(40)]);
        let text = table.render(Some(60));
        assert!(text.contains("output/reports/2026-11-draft.md") && widest(&text) == 60, "{text}");
        let text = table.render(Some(45));
        assert!(text.contains("output/rep") && text.contains("draft.md") && widest(&text) == 45, "{text}");
    }

    #[test]
    fn on_a_narrow_terminal_empty_columns_go_first() {
        let mut table = Table::new(&["AGENT", "NAME", "WHEN", "NEXT", "LAST", "LAST RUN", "CONVERSATION", "ID"]);
        let id = "01a206d4-d936-7292-a3b0-fc222172ca38";
        let blank = String::new;
        table.row([
            "chora".into(),
            "morning".into(),
            "0 7 * * 1-5 UTC".into(),
            blank(),
            blank(),
            blank(),
            blank(),
            id.into(),
        ]);
        let text = table.render(Some(60));
        assert!(text.contains("0 7 * * 1-5 UTC") && !text.contains("CONVERSATION") && widest(&text) <= 60, "{text}");
        // With room, and in a pipe, they stay.
        for wide in [table.render(Some(200)), table.render(None)] {
            assert!(wide.contains("CONVERSATION") && wide.contains(id), "{wide}");
        }
        assert!(Table::new(&["AGENT", "GOAL"]).render(Some(4)).contains("GOAL"), "no rows");
    }

    #[test]
    fn columns_for_which_there_is_no_room_are_named() {
        let mut table = Table::new(&["AGENT", "STARTED", "AGE", "ROUNDS", "ABOUT"]);
        table.row([
            "chora".into(),
            "2026-11-21 23:08:00+01".into(),
            "3m".into(),
            "7".into(),
            "write it down now".into(),
        ]);
        let text = table.render(Some(40));
        assert!(text.contains("chora") && text.contains("write it") && !text.contains("  7  "), "{text}");
        assert!(text.lines().last().unwrap().contains("ROUNDS"), "{text}");
        assert!(text.lines().take(2).all(|line| line.chars().count() <= 40), "{text}");
    }

    #[test]
    fn a_long_cell_in_a_pipe_moves_its_own_row_only() {
        let mut table = Table::new(&["A", "ABOUT", "B"]);
        table.row(["1".into(), "x\u{2028}\n".repeat(500), "y".into()]);
        table.row(["2".into(), "short".into(), "z".into()]);
        let text = table.render(None);
        assert_eq!(text.lines().count(), 3);
        assert!(!text.contains('\u{2028}') && text.lines().nth(2).unwrap().len() < 70, "{text}");
    }

    #[test]
    fn ids_are_abbreviated_to_unique_prefixes() {
        let ids = [
            "01a206d4-d936-7292-a3b0-fc222172ca38",
            "01a206d4-d936-7293-a3b0-fc222172ca38",
            "01a206d4-d829-76a9-a233-f59d25171b91",
        ];
        let mut table = Table::new(&["TURN", "ABOUT"]);
        for id in ids {
            table.row([id.into(), "b".repeat(60)]);
        }
        assert!(table.render(Some(200)).contains(ids[0]), "there is room for all of it");
        let text = table.render(Some(80));
        let shown: Vec<&str> = text.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(shown, ["01a206d4-d936-7292", "01a206d4-d936-7293", "01a206d4-d829-76a9"]);
        assert!(table.render(None).contains(ids[0]), "a program gets the whole");
    }

    #[test]
    fn empty_fields_are_left_out() {
        let pairs = [("agent_id", "chora".into()), ("team", String::new())];
        assert_eq!(fields(None, &pairs), "agent_id  chora\n");
        let long = [("text", "x".repeat(1_000))];
        assert_eq!((fields(None, &long).len(), fields(Some(80), &long).chars().count()), (1_007, 407));
    }
}
