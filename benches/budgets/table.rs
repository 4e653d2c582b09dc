//! The table of figures, floors and budgets.

/// Whether a higher or a lower ratio is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sense {
    /// Higher: the ratio should be at least the limit.
    AtLeast,
    /// Lower: the ratio should be at most the limit.
    AtMost,
}

/// One row of the table.
pub struct Line {
    /// Name of the measurement.
    pub what: &'static str,
    /// The figure of the floor, with its unit.
    pub floor: String,
    /// The figure of Ghost.
    pub ours: String,
    /// The ratio of Ghost's figure to the floor.
    pub ratio: f64,
    /// The required ratio.
    pub bar: f64,
    /// The desired ratio.
    pub aim: f64,
    /// Whether a higher or a lower ratio is better.
    pub sense: Sense,
}

impl Line {
    fn reaches(&self, mark: f64) -> bool {
        match self.sense {
            Sense::AtLeast => self.ratio >= mark,
            Sense::AtMost => self.ratio <= mark,
        }
    }

    fn verdict(&self) -> &'static str {
        if self.reaches(self.aim) {
            "aim"
        } else if self.reaches(self.bar) {
            "bar"
        } else {
            "BELOW BAR"
        }
    }

    fn mark(&self, value: f64) -> String {
        match self.sense {
            Sense::AtLeast => format!(">= {value}"),
            Sense::AtMost => format!("<= {value}"),
        }
    }
}

/// The whole table in Markdown.
pub fn table(lines: &[Line]) -> String {
    let mut rows = vec![
        ["budget", "floor", "ours", "ratio", "bar", "aim", "reached"].map(str::to_owned),
        [""; 7].map(str::to_owned),
    ];
    rows.extend(lines.iter().map(|line| {
        [
            line.what.to_owned(),
            line.floor.clone(),
            line.ours.clone(),
            format!("{:.3}", line.ratio),
            line.mark(line.bar),
            line.mark(line.aim),
            line.verdict().to_owned(),
        ]
    }));
    let widths: [usize; 7] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        for (cell, width) in row.iter().zip(widths) {
            if index == 1 {
                text.push_str(&format!("|{}", "-".repeat(width + 2)));
            } else {
                text.push_str(&format!("| {cell:<width$} "));
            }
        }
        text.push_str("|\n");
    }
    text
}
