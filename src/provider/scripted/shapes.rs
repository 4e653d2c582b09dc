//! Recognises texts that are not prose. Tables (CSV, TSV and Markdown) are recognised by the form
//! of their lines, counted, and shown as the first rows of a Markdown table. `logs.rs` recognises
//! and counts logs.
//!
//! This module must never panic on any text or return a figure that is neither written nor counted
//! in the text. It must never keep more of a table in memory than the caller asks for.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::logs::Log;
use super::prose::{numbers, unmarked};

/// Maximum columns of a table that are shown.
const COLUMNS_MAX: usize = 8;
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

/// The tables or the log in a text: `{ tally, tables, log }`. `tally` counts the rows of a CSV or
/// the lines of a log, in words. Each table has its `columns`, the number of its `rows`, and in
/// `lines` a Markdown table of at most `most` rows. Without `first`, the text is a later part of a
/// file, so its table has no header.
pub(super) fn shape(text: &str, most: usize, first: bool) -> Value {
    let text = unmarked(text);
    if let Some(log) = Log::of(text) {
        let worst = &log.worst.1;
        let times = json!({ "first": log.times.0, "last": log.times.1, "worst": worst });
        return json!({ "tally": log.tally(), "tables": [], "log": times });
    }
    if let Some(delimiter) = delimiter(text, first) {
        let (head, rows, count) = taken(records(text, delimiter), most, first);
        let tables = if first { vec![table(&head, &rows, count)] } else { Vec::new() };
        return json!({ "tally": format!("{count} rows"), "tables": tables, "log": null });
    }
    json!({ "tally": "", "tables": markdown_tables(text, most), "log": null })
}

/// Adds several tallies. Counts of the same name are summed.
pub(super) fn tallied(tallies: &[String]) -> String {
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for (count, name) in tallies.iter().flat_map(|tally| tally.split(", ")).filter_map(|part| part.split_once(' ')) {
        let Ok(count) = count.parse::<u64>() else { continue };
        match sums.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => sums.push((name, count)),
        }
    }
    let parts: Vec<String> = sums.iter().map(|(name, sum)| format!("{sum} {name}")).collect();
    parts.join(", ")
}

/// The cells of a row.
type Record<'t> = Vec<Cow<'t, str>>;

/// The numbers in the cells of a CSV; empty for other texts. A comma between cells is not part of a
/// number.
pub(super) fn cell_numbers(text: &str) -> BTreeSet<&str> {
    let text = unmarked(text);
    let Some(delimiter) = delimiter(text, true) else { return BTreeSet::new() };
    // Quoted cells are searched in the original text.
    text.split(delimiter).flat_map(numbers).collect()
}

// --- CSV --------------------------------------------------------------------------------------------------------------

/// The delimiter of the cells of a CSV; `None` if the text is not a CSV.
fn delimiter(text: &str, first: bool) -> Option<char> {
    let head = text.lines().find(|line| !line.trim().is_empty())?;
    if head.starts_with(['#', '|', '-', '*', '{', '[', '<', '>']) {
        return None;
    }
    ['\t', ';', ','].into_iter().find(|delimiter| head.contains(*delimiter) && is_table(text, *delimiter, first))
}

/// Whether almost all records have as many cells as the first, and the cells are short.
fn is_table(text: &str, delimiter: char, first: bool) -> bool {
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
    // "Profit: 3,2 Mio." is a decimal comma. So is "3,2", unless the text is a later part of a
    // table.
    let decimal = |left: &str, right: &str| {
        let last = left.split_whitespace().next_back().unwrap_or_default();
        right.starts_with(|c: char| c.is_ascii_digit())
            && last.bytes().all(|byte| byte.is_ascii_digit())
            && (first && head.len() == 2 || last != left.trim())
    };
    // In a later part of a table, the first record is an ordinary row.
    if delimiter == ','
        && (first || head.len() == 2)
        && head.windows(2).any(|pair| matches!(pair, [left, right] if decimal(left, right)))
    {
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

/// The header, the first rows, and the number of rows.
fn taken<'t>(
    mut records: impl Iterator<Item = Record<'t>>,
    most: usize,
    first: bool,
) -> (Record<'t>, Vec<Record<'t>>, usize) {
    let Some(head) = records.next() else { return (Vec::new(), Vec::new(), 0) };
    // A first cell that is a number belongs to a row, not to a header.
    let headless = !first || head.first().is_some_and(|cell| cell.trim().starts_with(|c: char| c.is_ascii_digit()));
    let names = head.iter().zip('A'..='Z').map(|(_, name)| Cow::Owned(name.to_string())).collect();
    let (names, mut rows, mut count) = if headless { (names, vec![head], 1) } else { (head, Vec::new(), 0) };
    rows.truncate(most);
    for record in records {
        count += 1;
        if rows.len() < most {
            rows.push(record);
        }
    }
    (names, rows, count)
}

// --- tables as Markdown --------------------------------------------------------------------------------------------

/// The tables of a Markdown text.
fn markdown_tables(text: &str, most: usize) -> Vec<Value> {
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
        let (head, rows, count) = taken(std::iter::once(cells(line)).chain(rows), most, true);
        tables.push(table(&head, &rows, count));
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

fn table(head: &[Cow<'_, str>], rows: &[Record<'_>], count: usize) -> Value {
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
    json!({ "columns": columns, "rows": count, "lines": lines })
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

    fn tables(text: &str, most: usize) -> Vec<Value> {
        shape(text, most, true)["tables"].as_array().unwrap().clone()
    }

    #[test]
    fn a_csv_is_a_table_of_its_first_rows() {
        let text = "\u{feff}month;tonnes;note\r\nMay;1,5;\"a \"\"b\"\" | c; d\ne\"\r\nJune;2;\r\n\r\nJuly;3;x\n";
        let shape = shape(text, 2, true);
        assert_eq!((&shape["tally"], &shape["tables"][0]["rows"]), (&json!("3 rows"), &json!(3)));
        let wanted = [
            "| month | tonnes | note |",
            "| --- | --- | --- |",
            "| May | 1,5 | a \"b\" \\| c; d e |",
            "| June | 2 |  |",
        ];
        assert_eq!(shape["tables"][0]["lines"], json!(wanted));
        for part in ["May;4\nJune;5\n", "4,5\n6,7\n", "2524,Customer 2524,88.50\n2525,Customer 2525,3.50\n"] {
            assert_eq!(super::shape(part, 2, false)["tally"], "2 rows", "a later part has no header");
        }
        assert_eq!(
            tables("1\t2\n3\t4\n", 9)[0]["lines"],
            json!(["| A | B |", "| --- | --- |", "| 1 | 2 |", "| 3 | 4 |"])
        );
        assert_eq!(tables("country,2023,2024\nDE,5,7\n", 9)[0]["columns"], json!(["country", "2023", "2024"]));
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
            assert_eq!(shape(text, 3, true), json!({ "tally": "", "tables": [], "log": null }), "{text}");
        }
    }

    #[test]
    fn a_markdown_table_stays_one() {
        let text = "# T\n\nWords | more.\n\n| a | b \\| c |\n|:--|--:|\n| 1 | 2 |\n| 3 |\n\n```\nx | y\n--|--\n```\n";
        let found = tables(text, 5);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["lines"], json!(["| a | b \\| c |", "| --- | --- |", "| 1 | 2 |", "| 3 |  |"]));
        assert_eq!(found[0]["rows"], 2);
    }

    #[test]
    fn a_long_cell_is_cut_before_a_word_and_a_wide_table_behind_a_column() {
        let long = format!("a,b\n{} 12345,2\n", "word ".repeat(5) + "0123456789");
        assert_eq!(tables(&long, 1)[0]["lines"][2], "| word word word word word 0123456789… | 2 |");
        let wide = "a,b,c,d,e,f,g,h,i\n1,2,3,4,5,6,7,8,9\n";
        assert_eq!(tables(wide, 1)[0]["lines"][2], "| 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | … |");
    }

    #[test]
    fn tallies_are_added_up() {
        let parts = [
            "5 lines, 1 ERROR".to_owned(),
            "3 lines, 2 HTTP 4xx".to_owned(),
            "7 lines, 4 ERROR".to_owned(),
            String::new(),
        ];
        assert_eq!(tallied(&parts), "15 lines, 5 ERROR, 2 HTTP 4xx");
        assert_eq!(tallied(&[]), "");
    }

    proptest! {
        #[test]
        fn any_text_has_a_shape(text in "([a-c0-9é]{0,3}|[,;\t|\"]|\r?\n|---|2024-05-01 12:00:00 ERROR |```){0,40}", most in 0_usize..4, first: bool) {
            let found = shape(&text, most, first);
            prop_assert!(found["tables"].as_array().unwrap().iter().all(|table| table["lines"].as_array().unwrap().len() <= most + 2));
            let _ = cell_numbers(&text);
        }

        #[test]
        fn a_table_comes_back_with_as_many_rows(rows in prop::collection::vec(("[a-z]{1,5}", 0_u32..9999), 1..20)) {
            let text: String = rows.iter().map(|(name, number)| format!("\"{name}\",{number}\n")).collect();
            let found = shape(&format!("name,number\n{text}"), 0, true);
            prop_assert_eq!(&found["tables"][0]["rows"], &json!(rows.len()));
        }
    }
}
