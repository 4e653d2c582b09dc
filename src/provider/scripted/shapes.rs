//! Tables in texts: CSV and TSV, recognised by the form of their lines, and tables of Markdown. Their first rows are shown
//! as Markdown; all rows of a CSV are counted, part by part, and not kept.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::columns::Column;
use super::prose::{numbers, unmarked};

/// Maximum columns of a table that are shown.
const COLUMNS_MAX: usize = 8;
/// Maximum columns of a table that are counted.
const COUNTED_MAX: usize = 12;
/// Maximum characters of a cell that are shown.
const CELL_MAX: usize = 40;
/// Maximum characters of a column name. A text with a longer cell in its first record is prose.
const NAME_MAX: usize = 60;
/// Maximum words of a cell on average. A text with longer cells is prose.
const WORDS_MAX: usize = 6;
/// Maximum tables of a text that are shown.
const TABLES_MAX: usize = 4;
// The pattern is a constant that the tests compile. A pattern that did not compile would find
// nothing.
static RULER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$").ok());

/// Rows of a table that are shown.
const ROWS_MAX: usize = 6;

/// A CSV so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Table {
    delimiter: char,
    names: Vec<String>,
    rows: usize,
    columns: Vec<Column>,
}

impl Table {
    /// Reads the first part of a CSV. Also gives its first rows, as [`markdown_tables`] does. `None` if the text is no CSV.
    pub(super) fn begin(text: &str) -> Option<(Self, Value)> {
        let delimiter = delimiter(text)?;
        let (names, rows, headless) = taken(&mut records(text, delimiter));
        let shown: Vec<String> = names.iter().take(COUNTED_MAX).map(|name| shown(name)).collect();
        let columns = vec![Column::default(); shown.len()];
        let mut table = Self { delimiter, names: shown, rows: 0, columns };
        table.add_rows(records(text, delimiter).skip(usize::from(!headless)));
        let first = self::table(&names, &rows);
        Some((table, first))
    }

    /// Adds the next part.
    pub(super) fn add(&mut self, text: &str) {
        self.add_rows(records(text, self.delimiter));
    }

    fn add_rows<'t>(&mut self, rows: impl Iterator<Item = Record<'t>>) {
        for row in rows {
            self.rows += 1;
            for (column, cell) in self.columns.iter_mut().zip(&row) {
                column.add(cell);
            }
        }
    }

    pub(super) fn tally(&self) -> String {
        format!("{} rows", self.rows)
    }

    pub(super) fn gist(&self) -> String {
        format!("A table of {} rows with the columns {}.", self.rows, self.names.join(", "))
    }

    pub(super) fn facts(&self) -> Vec<String> {
        self.names.iter().zip(&self.columns).filter_map(|(name, column)| column.fact(name)).collect()
    }
}

/// The cells of a row.
type Record<'t> = Vec<Cow<'t, str>>;

/// The numbers in the cells of a CSV; empty for other texts. A comma between cells is not part of a
/// number.
pub(super) fn cell_numbers(text: &str) -> BTreeSet<&str> {
    let text = unmarked(text);
    let Some(delimiter) = delimiter(text) else { return BTreeSet::new() };
    // Quoted cells are searched in the original text.
    text.split(delimiter).flat_map(numbers).collect()
}

// --- CSV --------------------------------------------------------------------------------------------------------------

/// The delimiter of the cells of a CSV; `None` if the text is not a CSV.
fn delimiter(text: &str) -> Option<char> {
    let head = text.lines().find(|line| !line.trim().is_empty())?;
    if head.starts_with(['#', '|', '-', '*', '{', '[', '<', '>']) {
        return None;
    }
    ['\t', ';', ','].into_iter().find(|delimiter| head.contains(*delimiter) && is_table(text, *delimiter))
}

/// Whether almost all records have as many cells as the first, and the cells are short.
fn is_table(text: &str, delimiter: char) -> bool {
    let mut records = records(text, delimiter);
    let Some(head) = records.next() else { return false };
    let names = head.iter().map(|name| name.trim());
    if head.len() < 2 || names.clone().any(|name| name.is_empty() || name.chars().count() > NAME_MAX) {
        return false;
    }
    // "He came, and she went": two clauses are not cells.
    if delimiter != '\t' && head.len() == 2 && head.get(1).is_some_and(|name| name.starts_with(' ')) {
        return false;
    }
    // "Profit: 3,2 Mio." is a decimal comma. So is "3,2".
    let decimal = |left: &str, right: &str| {
        let last = left.split_whitespace().next_back().unwrap_or_default();
        right.starts_with(|c: char| c.is_ascii_digit())
            && last.bytes().all(|byte| byte.is_ascii_digit())
            && (head.len() == 2 || last != left.trim())
    };
    if delimiter == ',' && head.windows(2).any(|pair| matches!(pair, [left, right] if decimal(left, right))) {
        return false;
    }
    let (mut count, mut alike, mut words) = (0_usize, 0_usize, 0_usize);
    for record in records {
        count += 1;
        alike += usize::from(record.len() == head.len());
        words += record.iter().map(|cell| cell.split_whitespace().count()).sum::<usize>();
        if count > 64 && alike * 2 < count {
            return false;
        }
    }
    count > 0 && alike * 20 >= count * 19 && words <= count * head.len() * WORDS_MAX
}

/// The records of a CSV that are not empty. A quote that is not closed goes to the end of its line.
fn records(text: &str, delimiter: char) -> impl Iterator<Item = Record<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let (record, behind) = record(rest, delimiter);
            rest = behind;
            if record.iter().any(|cell| !cell.trim().is_empty()) {
                return Some(record);
            }
        }
    })
}

/// The first record of a text, and the rest of the text.
fn record(text: &str, delimiter: char) -> (Record<'_>, &str) {
    let (mut cells, mut rest) = (Vec::new(), text);
    loop {
        let (cell, behind) = match quoted(rest, delimiter) {
            Some(found) => found,
            None => {
                let end = rest.find([delimiter, '\n']).unwrap_or(rest.len());
                (Cow::Borrowed(rest[..end].trim_end_matches('\r')), &rest[end..])
            }
        };
        cells.push(cell);
        match behind.strip_prefix(delimiter) {
            Some(more) => rest = more,
            None => return (cells, behind.strip_prefix('\n').unwrap_or(behind)),
        }
    }
}

/// A quoted cell, and the rest of the text.
fn quoted(text: &str, delimiter: char) -> Option<(Cow<'_, str>, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut from = 0;
    loop {
        let end = from + inner.get(from..)?.find('"')?;
        let behind = &inner[end + 1..];
        if behind.starts_with('"') {
            from = end + 2;
            continue;
        }
        let behind = behind.strip_prefix('\r').unwrap_or(behind);
        let closed = behind.is_empty() || behind.starts_with([delimiter, '\n']);
        return closed.then(|| {
            let cell = &inner[..end];
            (if cell.contains('"') { Cow::Owned(cell.replace("\"\"", "\"")) } else { Cow::Borrowed(cell) }, behind)
        });
    }
}

/// The header and the first rows, and whether the first record is one of them. Takes what it gives from `records`.
fn taken<'t>(records: &mut impl Iterator<Item = Record<'t>>) -> (Record<'t>, Vec<Record<'t>>, bool) {
    let Some(head) = records.next() else { return (Vec::new(), Vec::new(), true) };
    // A first cell that is a number belongs to a row, not to a header.
    let headless = head.first().is_some_and(|cell| cell.trim().starts_with(|c: char| c.is_ascii_digit()));
    let names = head.iter().zip('A'..='Z').map(|(_, name)| Cow::Owned(name.to_string())).collect();
    let (names, mut rows) = if headless { (names, vec![head]) } else { (head, Vec::new()) };
    rows.extend(records.take(ROWS_MAX - rows.len()));
    (names, rows, headless)
}

// --- tables as Markdown --------------------------------------------------------------------------------------------

/// The tables of a Markdown text, each with its `columns`, the number of its `rows`, and its first rows in `lines`.
pub(super) fn markdown_tables(text: &str) -> Vec<Value> {
    let Some(ruler) = RULER.as_ref() else { return Vec::new() };
    let (mut tables, mut fenced) = (Vec::new(), false);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        fenced ^= line.trim_start().starts_with("```");
        let ruled = lines.peek().is_some_and(|next| next.contains('|') && ruler.is_match(next));
        if fenced || !ruled || !line.contains('|') || tables.len() == TABLES_MAX {
            continue;
        }
        lines.next();
        let rows = std::iter::from_fn(|| lines.next_if(|row| row.contains('|'))).map(cells);
        let mut rows = std::iter::once(cells(line)).chain(rows);
        let (head, first, _) = taken(&mut rows);
        let mut table = table(&head, &first);
        table["rows"] = json!(first.len() + rows.count());
        tables.push(table);
    }
    tables
}

/// The cells of a row of a Markdown table.
fn cells(line: &str) -> Record<'_> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').filter(|line| !line.ends_with('\\')).unwrap_or(line);
    let (mut cells, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in line.char_indices() {
        if c == '|' && !escaped {
            cells.push(&line[start..at]);
            start = at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    cells.push(&line[start..]);
    cells.into_iter().map(|cell| Cow::Owned(cell.trim().replace("\\|", "|"))).collect()
}

/// The columns and the first rows of a table, as Markdown.
fn table(head: &[Cow<'_, str>], rows: &[Record<'_>]) -> Value {
    let columns: Vec<String> = head.iter().take(COLUMNS_MAX).map(|name| shown(name)).collect();
    let more = if head.len() > COLUMNS_MAX { " … |" } else { "" };
    let line = |cells: Vec<String>| format!("| {} |{more}", cells.join(" | "));
    let mut lines = vec![line(columns.clone()), line(columns.iter().map(|_| "---".to_owned()).collect())];
    if !more.is_empty() {
        lines[1] = lines[1].replace('…', "---");
    }
    for row in rows {
        let cells = row.iter().map(|cell| shown(cell)).chain(std::iter::repeat_with(String::new));
        lines.push(line(cells.take(columns.len()).collect()));
    }
    json!({ "columns": columns, "lines": lines })
}

/// A cell on one line, truncated before a word.
fn shown(cell: &str) -> String {
    let words = cell.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = ghost_domain::text::clip(&words, CELL_MAX);
    let cell = match cut.strip_suffix('…') {
        Some(kept) if cut != words => format!("{}…", kept.rsplit_once(' ').map_or("", |(kept, _)| kept)),
        _ => cut,
    };
    cell.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_csv_is_counted_part_by_part_and_shows_its_first_rows() {
        let text = "\u{feff}month;tonnes;note\r\nMay;1,5;\"a \"\"b\"\" | c; d\ne\"\r\nJune;2;\r\n\r\nMay;3;x\n";
        let (mut table, first) = Table::begin(unmarked(text)).unwrap();
        let wanted = [
            "| month | tonnes | note |",
            "| --- | --- | --- |",
            "| May | 1,5 | a \"b\" \\| c; d e |",
            "| June | 2 |  |",
            "| May | 3 | x |",
        ];
        assert_eq!(first["lines"], json!(wanted));
        table.add("\"July\";4;y\nMay;5;y\n");
        assert_eq!(table.gist(), "A table of 5 rows with the columns month, tonnes, note.");
        assert_eq!(
            table.facts(),
            ["month: 5 values; May 3; July 1; June 1", "tonnes: 5 numbers, sum 15,5, from 1,5 to 5"]
        );
        let (headless, first) = Table::begin("1\t2\n3\t4\n").unwrap();
        assert_eq!(first["lines"], json!(["| A | B |", "| --- | --- |", "| 1 | 2 |", "| 3 | 4 |"]));
        assert_eq!(headless.tally(), "2 rows");
        assert_eq!(
            Table::begin("country,2023,2024\nDE,5,7\n").unwrap().1["columns"],
            json!(["country", "2023", "2024"])
        );
        assert_eq!(cell_numbers("a,b\n2024,100\n"), BTreeSet::from(["100", "2024"]));
    }

    #[test]
    fn prose_and_json_are_no_tables() {
        for text in [
            "Hello Anna, how are you\nBye Ben, see you\n",
            "He came, saw and won.\nShe did not, I think, come at all.\n",
            "# T\n\nIt is 5, or 6.\n",
            "{\n  \"a\": 1,\n  \"b\": 2\n}\n",
            "One line, with commas, only",
            "Umsatz: 3,2 Mio. Euro\nGewinn: 0,4 Mrd. Euro\n",
            "3,2\n4,5\n",
            "",
        ] {
            assert_eq!((Table::begin(text), markdown_tables(text)), (None, vec![]), "{text}");
        }
    }

    #[test]
    fn a_markdown_table_stays_one() {
        let text = "# T\n\nWords | more.\n\n| a | b \\| c |\n|:--|--:|\n| 1 | 2 |\n| 3 |\n\n```\nx | y\n--|--\n```\n";
        let found = markdown_tables(text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["lines"], json!(["| a | b \\| c |", "| --- | --- |", "| 1 | 2 |", "| 3 |  |"]));
        assert_eq!(found[0]["rows"], 2);
    }

    #[test]
    fn a_long_cell_is_cut_before_a_word_and_a_wide_table_behind_a_column() {
        let first = |text: &str| Table::begin(text).unwrap().1["lines"][2].clone();
        let long = format!("a,b\n{} 12345,2\n", "word ".repeat(5) + "0123456789");
        assert_eq!(first(&long), "| word word word word word 0123456789… | 2 |");
        let wide = "a,b,c,d,e,f,g,h,i\n1,2,3,4,5,6,7,8,9\n";
        assert_eq!(first(wide), "| 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | … |");
    }

    proptest! {
        #[test]
        fn a_table_comes_back_with_as_many_rows(rows in prop::collection::vec(("[a-z]{1,5}", 0_u32..9999), 1..20)) {
            let text: String = rows.iter().map(|(name, number)| format!("\"{name}\",{number}\n")).collect();
            let (table, _) = Table::begin(&format!("name,number\n{text}")).unwrap();
            prop_assert_eq!(table.rows, rows.len());
        }
    }
}
