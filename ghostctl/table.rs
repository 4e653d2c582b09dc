//! Tables and lists of fields as text. On a terminal they are truncated to its width; in a pipe or
//! a file they are complete.

use uuid::Uuid;

use crate::text::one_line;

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

/// A table whose columns are aligned.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these headings.
    pub fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. It must have one cell for each heading.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.headings.len(), "a cell for each heading");
        self.rows.push(cells.iter().map(|cell| one_line(cell, usize::MAX - 1)).collect());
    }

    /// The lines of the table, headings first. If `screen` (a width in columns) is too narrow,
    /// first ids are abbreviated to unique prefixes, then other cells are truncated.
    pub fn render(&self, screen: Option<usize>) -> String {
        match screen {
            None => self.lines(&self.rows, &self.widths(&self.rows)),
            Some(columns) => {
                let mut rows = self.rows.clone();
                let room = columns.saturating_sub(2 * self.headings.len().saturating_sub(1));
                if self.widths(&rows).iter().sum::<usize>() > room {
                    (0..self.headings.len()).for_each(|column| shorten_ids(&mut rows, column));
                }
                let whole: Vec<bool> = (0..self.headings.len()).map(|column| ids(&self.rows, column)).collect();
                let widths = self.fitting(&rows, room, &whole);
                for cells in &mut rows {
                    let last = cells.len().saturating_sub(1);
                    for (column, (cell, width)) in cells.iter_mut().zip(&widths).enumerate() {
                        *cell = if column == last { one_line(cell, *width) } else { cut_in_the_middle(cell, *width) };
                    }
                }
                self.lines(&rows, &self.widths(&rows))
            }
        }
    }

    /// The width of the widest cell of each column.
    fn widths(&self, rows: &[Vec<String>]) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| heading.chars().count()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    /// The width of each column on a terminal. The last column shrinks first, then always the
    /// widest. Columns marked `whole` (ids) do not shrink, because a truncated id cannot be used.
    fn fitting(&self, rows: &[Vec<String>], room: usize, whole: &[bool]) -> Vec<usize> {
        let mut widths = self.widths(rows);
        let heading = |column: usize| self.headings.get(column).map_or(0, |heading| heading.chars().count());
        let last = widths.len().saturating_sub(1);
        for (column, width) in widths.iter_mut().enumerate().filter(|(column, _)| *column != last) {
            *width = (*width).min(WIDEST.max(heading(column)));
        }
        let over = |widths: &[usize]| widths.iter().sum::<usize>().saturating_sub(room);
        let excess = over(&widths);
        if let Some(width) = widths.last_mut() {
            let least = LAST_NARROWEST.max(heading(last)).min(*width);
            *width = width.saturating_sub(excess).max(least);
        }
        while over(&widths) > 0 {
            let can_give = |(column, width): &(usize, &mut usize)| {
                **width > NARROWEST.max(heading(*column)) && whole.get(*column) != Some(&true)
            };
            let widest = widths.iter_mut().enumerate().filter(can_give).max_by_key(|(_, width)| **width);
            // On an even narrower terminal the lines wrap.
            let Some((_, width)) = widest else { break };
            *width -= 1;
        }
        widths
    }

    fn lines(&self, rows: &[Vec<String>], widths: &[usize]) -> String {
        let headings: Vec<String> = self.headings.iter().map(|heading| (*heading).to_owned()).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(rows) {
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
