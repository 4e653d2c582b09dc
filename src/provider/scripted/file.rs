//! The rule file as it is written: YAML in, raw rules with their lines out.
//!
//! Must never: let a key through that it does not know.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::lets::RawLets;

/// A rule file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFile {
    /// What the rules play, for readers.
    #[serde(default, rename = "about")]
    pub(super) _about: Option<String>,
    /// Constants for templates.
    #[serde(default)]
    pub(super) vars: BTreeMap<String, Value>,
    /// Named sub-expressions for all rules.
    #[serde(default, rename = "let")]
    pub(super) lets: RawLets,
    #[serde(default)]
    pub(super) rules: Vec<RawRule>,
    pub(super) otherwise: Option<Vec<RawDo>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRule {
    pub(super) name: Option<String>,
    #[serde(default, rename = "let")]
    pub(super) lets: RawLets,
    #[serde(default)]
    pub(super) when: RawWhen,
    #[serde(rename = "do")]
    pub(super) actions: Vec<RawDo>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawWhen {
    pub(super) agent: Option<OneOrMany>,
    pub(super) mail: Option<String>,
    pub(super) last: Option<String>,
    pub(super) text: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) result: Option<String>,
    pub(super) failed: Option<bool>,
    pub(super) tools_called: BTreeMap<String, NumberOrText>,
    pub(super) tools_ok: BTreeMap<String, NumberOrText>,
    pub(super) called_all: Vec<String>,
    pub(super) not_called: Vec<String>,
    pub(super) round: Option<NumberOrText>,
    #[serde(rename = "if")]
    pub(super) only_if: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum NumberOrText {
    Number(u64),
    Text(String),
}

impl NumberOrText {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// One action. Which fields go together is checked afterwards, in words better than the parser's.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDo {
    pub(super) call: Option<String>,
    #[serde(default)]
    pub(super) with: Value,
    pub(super) for_each: Option<String>,
    pub(super) say: Option<String>,
    pub(super) think: Option<String>,
    pub(super) wait: Option<NumberOrText>,
    pub(super) fail: Option<RawFail>,
    #[serde(rename = "if")]
    pub(super) only_if: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFail {
    pub(super) kind: String,
    pub(super) times: Option<u32>,
    pub(super) message: Option<String>,
    pub(super) retry_after: Option<NumberOrText>,
}

/// The lines of a rule file: where each rule starts, and where a text in it stands.
pub(super) struct Lines<'t> {
    lines: Vec<&'t str>,
    rules: Vec<usize>,
    otherwise: usize,
}

impl<'t> Lines<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let otherwise = lines.iter().position(|line| line.starts_with("otherwise:")).unwrap_or(0);
        let first = lines.iter().position(|line| line.starts_with("rules:"));
        // The items of a list share one indentation, and nothing inside an item has it.
        let mut rules = Vec::new();
        let mut indent = None;
        for (at, line) in lines.iter().enumerate().skip(first.map_or(lines.len(), |first| first + 1)) {
            let body = line.trim_start();
            let spaces = line.len() - body.len();
            if body.is_empty() || body.starts_with('#') {
                continue;
            }
            if spaces == 0 && !body.starts_with('-') {
                break;
            }
            if body.starts_with('-') && *indent.get_or_insert(spaces) == spaces {
                rules.push(at);
            }
        }
        Self { lines, rules, otherwise }
    }

    /// The line of rule `number` from 0, or of `otherwise` past the last; from 1.
    pub(super) fn rule(&self, number: usize) -> usize {
        self.rules.get(number).copied().unwrap_or(self.otherwise) + 1
    }

    /// The line above the rules where `text` stands, or the first.
    pub(super) fn above(&self, text: &str) -> usize {
        let end = self.rules.first().copied().unwrap_or(self.lines.len());
        let needle = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        self.lines[..end].iter().position(|line| line.contains(needle)).unwrap_or(0) + 1
    }

    /// The line inside rule `number` where `text` stands, or the rule's own.
    pub(super) fn within(&self, number: usize, text: &str) -> usize {
        let start = self.rule(number) - 1;
        let end = match self.rules.get(number) {
            None => self.lines.len(),
            Some(_) => self.rules.get(number + 1).copied().unwrap_or(if self.otherwise > start {
                self.otherwise
            } else {
                self.lines.len()
            }),
        };
        let needle = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let found = self.lines.get(start..end).and_then(|lines| lines.iter().position(|line| line.contains(needle)));
        start + found.unwrap_or(0) + 1
    }
}
