//! Tables and lists of fields for people.

use crate::text::one_line;

/// The widest a cell gets; the last cell of a row may be as long as its text.
const WIDEST: usize = 48;

/// Columns with a heading, aligned by the widest cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, one cell for each heading.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.headings.len(), "a cell for each heading");
        let last = N.saturating_sub(1);
        let cells = cells.into_iter().enumerate();
        self.rows.push(cells.map(|(i, cell)| one_line(&cell, if i == last { 160 } else { WIDEST })).collect());
    }

    /// The lines, heading first; a table without rows is the heading alone.
    pub fn render(&self) -> String {
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| heading.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let headings: Vec<String> = self.headings.iter().map(|heading| (*heading).to_owned()).collect();
        let mut text = String::new();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                // Two spaces at least, so that a full cell and the next stay apart.
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// `name  value` lines, aligned. Fields without a value are left out.
pub fn fields(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name:width$}  {}\n", one_line(value, 400)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let mut table = Table::new(&["AGENT", "STATUS", "GOAL"]);
        table.row(["chora".into(), "running".into(), "write\nit".into()]);
        table.row(["a-long-one".into(), "".into(), "".into()]);
        assert_eq!(table.render(), "AGENT       STATUS   GOAL\nchora       running  write it\na-long-one\n");
    }

    #[test]
    fn long_cells_are_cut_but_the_last() {
        let mut table = Table::new(&["A", "B"]);
        table.row(["x".repeat(100), "y".repeat(100)]);
        let text = table.render();
        assert!(text.contains('…') && text.contains(&"y".repeat(100)));
    }

    #[test]
    fn empty_fields_are_left_out() {
        assert_eq!(fields(&[("agent_id", "chora".into()), ("team", String::new())]), "agent_id  chora\n");
    }
}
