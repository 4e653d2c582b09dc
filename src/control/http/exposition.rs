//! Writes the text format of Prometheus, version 0.0.4.
//!
//! A family must never be split over two places, and a sample must never precede its family.

use std::fmt::{Display, Write};

use crate::tallies::{BUCKETS, Histogram};

/// A page of metrics.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    /// The whole page.
    pub(super) fn text(self) -> String {
        self.0
    }

    /// Starts a family. Its samples must follow.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a `String` does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// Writes one sample.
    pub(super) fn row(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if at == 0 { '{' } else { ',' }, escaped(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    /// Writes a family with one sample.
    pub(super) fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.row(name, &[], value);
    }

    /// Writes the samples of one histogram, in seconds.
    #[allow(clippy::cast_precision_loss)] // sums stay far below 2^53 milliseconds
    pub(super) fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut so_far = 0;
        for (bound, count) in BUCKETS.iter().zip(histogram.buckets) {
            so_far += count;
            let bound = bound.to_string();
            self.row(&bucket, &[labels, &[("le", bound.as_str())]].concat(), so_far);
        }
        self.row(&bucket, &[labels, &[("le", "+Inf")]].concat(), histogram.count);
        self.row(&format!("{name}_sum"), labels, histogram.sum_ms as f64 / 1_000.0);
        self.row(&format!("{name}_count"), labels, histogram.count);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_written_and_labels_escaped() {
        let mut page = Page::default();
        page.single("a", "gauge", "An a.", 1);
        page.row("b", &[("x", "q\"\\\n"), ("y", "z")], 2.5);
        assert_eq!(page.text(), "# HELP a An a.\n# TYPE a gauge\na 1\nb{x=\"q\\\"\\\\\\n\",y=\"z\"} 2.5\n");
    }

    #[test]
    fn buckets_add_up() {
        let mut page = Page::default();
        let mut histogram = Histogram { count: 3, sum_ms: 1_500, ..Histogram::default() };
        (histogram.buckets[0], histogram.buckets[2]) = (1, 1);
        page.histogram("h", &[("m", "x")], &histogram);
        let text = page.text();
        for line in [
            "h_bucket{m=\"x\",le=\"0.005\"} 1",
            "h_bucket{m=\"x\",le=\"0.1\"} 2",
            "h_bucket{m=\"x\",le=\"600\"} 2",
            "h_bucket{m=\"x\",le=\"+Inf\"} 3",
            "h_sum{m=\"x\"} 1.5",
            "h_count{m=\"x\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
