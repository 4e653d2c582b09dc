//! Converts a parsed YAML tree to JSON. Plain scalars follow YAML's core schema.
//!
//! The conversion must never fail. A scalar that is not null, a boolean or a number becomes a
//! string.

use crate::yaml::{Node, Value};

/// Converts a node.
pub fn of(node: &Node) -> serde_json::Value {
    match &node.value {
        _ if node.is_null() => serde_json::Value::Null,
        Value::Scalar { text, plain: true, .. } => plain(text),
        Value::Scalar { text, .. } => text.as_str().into(),
        Value::List(items) => items.iter().map(of).collect(),
        Value::Map(pairs) => {
            serde_json::Value::Object(pairs.iter().map(|(key, value)| (key.text.clone(), of(value))).collect())
        }
    }
}

/// Converts a plain scalar by YAML's core schema.
fn plain(text: &str) -> serde_json::Value {
    match text {
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    let based = |prefix, radix| text.strip_prefix(prefix).and_then(|digits| u64::from_str_radix(digits, radix).ok());
    if let Some(number) = based("0x", 16).or_else(|| based("0o", 8)) {
        return number.into();
    }
    let digits = text.trim_start_matches(['+', '-']);
    let is_number = text.len() - digits.len() <= 1
        && digits.bytes().any(|b| b.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        // `007` is an identifier, not the number seven.
        && !(digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit()));
    if !is_number {
        return text.into();
    }
    let plus = text.strip_prefix('+').unwrap_or(text);
    let number = plus.parse::<u64>().map(serde_json::Value::from).or_else(|_| plus.parse::<i64>().map(Into::into));
    number.or_else(|_| plus.parse::<f64>().map(Into::into)).unwrap_or_else(|_| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    #[test]
    fn every_kind_of_scalar_becomes_json() {
        let text = "a: [1, -2, +3, 1.5, 1e3, 0x1F, 0o17, true, False, ~, '', null, 'null', '7', 007, 1.2.3, 5 %, e5]\nb:\n  c: |\n    x\n";
        let report = Report::default();
        let file = report.file("w.yaml");
        let node = crate::yaml::parse(text, &file, &|_| None).unwrap();
        let expected = serde_json::json!({
            "a": [1, -2, 3, 1.5, 1000.0, 31, 15, true, false, null, "", null, "null", "7", "007", "1.2.3", "5 %", "e5"],
            "b": { "c": "x\n" },
        });
        assert_eq!(of(&node), expected);
    }
}
