//! Checks the Prometheus text format as strictly as `promtool check metrics`.

use std::collections::{BTreeMap, BTreeSet};

/// One sample: name, labels, value.
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    first && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            let (mut text, mut letters) = (String::new(), after.char_indices());
            let closed = loop {
                match letters.next().unwrap_or_else(|| panic!("{line}: a label does not end")) {
                    (at, '"') => break at + 1,
                    (_, '\\') => match letters.next().unwrap().1 {
                        'n' => text.push('\n'),
                        escaped @ ('\\' | '"') => text.push(escaped),
                        other => panic!("{line}: \\{other} is no escape"),
                    },
                    (_, letter) => text.push(letter),
                }
            };
            assert!(is_name(label) && labels.insert(label.to_owned(), text).is_none(), "{line}: label {label}");
            rest = &after[closed..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap_or_else(|| panic!("{line}"));
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    Sample { name: name.to_owned(), labels, value: value.parse().unwrap_or_else(|_| panic!("{line}: {value}")) }
}

/// The rules of `promtool check metrics` for a metric name.
fn check_name(name: &str, kind: &str) {
    assert!(is_name(name), "{name}");
    assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
    for suffix in ["_count", "_sum", "_bucket", "_info_total"] {
        assert!(!name.ends_with(suffix), "{name}");
    }
    for word in name.split('_') {
        let bad = [
            "gauge",
            "counter",
            "histogram",
            "summary",
            "ms",
            "us",
            "ns",
            "s",
            "sec",
            "secs",
            "min",
            "h",
            "hr",
            "d",
            "b",
            "kb",
            "mb",
            "gb",
            "kib",
            "mib",
            "micros",
            "millis",
            "milliseconds",
            "microseconds",
            "nanoseconds",
            "minutes",
            "hours",
            "days",
            "kilobytes",
            "megabytes",
            "cents",
        ];
        assert!(!bad.contains(&word), "{name} holds `{word}`");
    }
}

/// A family with the labels that identify a series.
type Series = (String, Vec<(String, String)>);

/// Panics at the first violation.
pub(super) fn strict(page: &str) {
    assert!(page.ends_with('\n') && !page.contains("\n\n") && !page.contains('\r'));
    let mut families: BTreeMap<String, String> = BTreeMap::new();
    let (mut helped, mut current): (Option<String>, Option<String>) = (None, None);
    let mut seen = BTreeSet::new();
    let mut histograms: BTreeMap<Series, Vec<(String, f64)>> = BTreeMap::new();
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert!(!text.trim().is_empty() && !families.contains_key(name), "{line}");
            helped = Some(name.to_owned());
            continue;
        }
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            assert_eq!(helped.take().as_deref(), Some(name), "{line} does not follow its help");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            check_name(name, kind);
            families.insert(name.to_owned(), kind.to_owned());
            current = Some(name.to_owned());
            continue;
        }
        assert!(!line.starts_with('#'), "{line}");
        let family = current.as_deref().unwrap_or_else(|| panic!("{line} has no family"));
        let Sample { name, mut labels, value } = sample(line);
        let label_list: Vec<_> = labels.clone().into_iter().collect();
        assert!(seen.insert((name.clone(), label_list)), "{line} occurs twice");
        if families[family] != "histogram" {
            assert_eq!(name, family, "{line}");
            assert!(!labels.contains_key("le"), "{line}");
            assert!(families[family] == "gauge" || value >= 0.0, "{line}");
            continue;
        }
        let part = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} is under {family}"));
        let le = labels.remove("le");
        assert_eq!(le.is_some(), part == "_bucket", "{line}");
        let key = (family.to_owned(), labels.into_iter().collect());
        histograms.entry(key).or_default().push((le.unwrap_or_else(|| part.to_owned()), value));
    }
    assert!(helped.is_none());
    for (key, rows) in histograms {
        let (buckets, ends): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(name, _)| !name.starts_with('_'));
        let bounds: Vec<f64> = buckets.iter().map(|(le, _)| le.replace("+Inf", "inf").parse().unwrap()).collect();
        assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{key:?}");
        assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{key:?}");
        assert_eq!(bounds.last(), Some(&f64::INFINITY), "{key:?}");
        let ends: BTreeMap<_, _> = ends.into_iter().collect();
        assert_eq!((ends.len(), ends["_count"]), (2, buckets.last().unwrap().1), "{key:?}");
    }
}
