//! Misspells every key of `world-config.yaml`. The hint must suggest the right key.

use super::*;
use crate::node::{Key, Node, Value};
use crate::reader::Field;
use crate::report::Report;

/// Keys that the good world file does not contain.
const MORE: &str = "\
access: { default: public, strict_channel_privileges: false }
chat: { wake: all }
skills: { roots: [] }
job: { input: input, lead: chora, brief: Do it., result: out/ }
channels:
  reactions: minimal
  webhooks:
    shop: { url: 'http://h/', secret_env: SECRET, agent: mux, timestamp_tolerance_s: 9, actions: [send] }
heartbeat: { every: 30m, target: none, prompt: x, timezone: UTC, active_hours: '08:00-22:00', ack_max_chars: 9 }
toolboxes: [{ source: a/b.yaml, allow: [x] }]
llm:
  default_provider: mine
  default_model: m
  models_file: m.yaml
  providers:
    mine: { kind: openai, base_url: 'http://h/', api_key_env: KEY, concurrency: 1, attempts: 1, retry_base: 1s, retry_cap: 2s, idle_timeout: 5s, headers: { A: b }, query: { a: b }, extra_body: { a: 1 }, api: chat, api_version: '1', organization: o }
    old: { kind: recorded, dir: x }
  prices: { m: { input: 1, output: 2, cache_read: 0, cache_write: 0 } }
cli_policy: { default: ask, mode: segments, tiers: { a: { commands: [], action: deny, groups: [], max_timeout_ms: 5 } } }
sandbox: { kind: none, image: a, network: none, memory_mb: 64, read_only_root: true, passthrough_env: [], env: { a: b } }
approvals: { tools: [tool.cli], approvers: [uid-1000], expires: 5s }
";

/// Maps with arbitrary keys, by path.
const FREE: [&str; 13] = [
    "tool_privileges",
    "budgets.team",
    "budgets.agent",
    "write_acls",
    "llm.providers",
    "llm.providers.mine.headers",
    "llm.providers.mine.query",
    "llm.providers.mine.extra_body",
    "llm.prices",
    "channels.webhooks",
    "cli_policy.tiers",
    "sandbox.env",
    "x-notes",
];

/// Calls `with` for each key below `root`, with the path of its map. `with` must restore a key that it changes.
fn each_key(root: &mut Node, way: &mut Vec<usize>, path: &str, with: &mut dyn FnMut(&mut Node, &[usize], &str)) {
    let keys: Vec<Option<String>> = match &at(root, way).value {
        Value::Map(pairs) => pairs.iter().map(|(key, _)| Some(key.text.clone())).collect(),
        Value::List(items) => items.iter().map(|_| None).collect(),
        Value::Scalar { .. } => Vec::new(),
    };
    for (place, key) in keys.into_iter().enumerate() {
        way.push(place);
        if key.is_some() {
            with(root, way, path);
        }
        let below = match key {
            Some(key) if path.is_empty() => key,
            Some(key) => format!("{path}.{key}"),
            None => format!("{path}[]"),
        };
        each_key(root, way, &below, with);
        way.pop();
    }
}

fn at<'n>(mut node: &'n mut Node, way: &[usize]) -> &'n mut Node {
    for place in way {
        node = match &mut node.value {
            Value::List(items) => &mut items[*place],
            Value::Map(pairs) => &mut pairs[*place].1,
            Value::Scalar { .. } => panic!("nothing is below a scalar"),
        };
    }
    node
}

fn key_at<'n>(root: &'n mut Node, way: &[usize]) -> &'n mut Key {
    let (place, map) = way.split_last().unwrap();
    match &mut at(root, map).value {
        Value::Map(pairs) => &mut pairs[*place].0,
        other => panic!("{other:?} is no map"),
    }
}

/// Misspellings of a key: a letter added, removed, replaced or swapped, the plural, capitals.
fn misspellings(key: &str) -> Vec<String> {
    let swapped = format!("{}{}{}", &key[..1], key[1..].chars().rev().collect::<String>(), "");
    let short = key[..key.len() - 1].to_owned();
    let mut all = vec![format!("{key}s"), short, key.to_uppercase(), format!("{}{key}", &key[..1]), format!("{key}x")];
    if key.len() == 3 {
        all.push(swapped);
    }
    if key.len() > 3 {
        all.push(format!("{}{}", &key[..1], &key[2..]));
        all.push(format!("{}{}{}{}", &key[..1], &key[2..3], &key[1..2], &key[3..]));
        all.push(format!("{}q{}", &key[..2], &key[3..]));
        all.push(key.replace('_', "-"));
    }
    all.retain(|misspelling| misspelling != key);
    all
}

#[test]
fn every_misspelt_key_gets_the_right_suggestion() {
    let report = Report::default();
    let mut root = crate::yaml::parse(&format!("{GOOD}{MORE}"), &report.file("w.yaml"), &|_| None).unwrap();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    each_key(&mut root, &mut Vec::new(), "", &mut |root, way, path| {
        let key = key_at(root, way).text.clone();
        if FREE.contains(&path) || key.starts_with("x-") {
            return;
        }
        for misspelling in misspellings(&key) {
            key_at(root, way).text.clone_from(&misspelling);
            let report = Report::default();
            let file = report.file("w.yaml");
            drop(crate::world_file::read(&Field::root(root, &file)));
            let problems = report.finish();
            let reported =
                problems.0.iter().find(|problem| problem.message.contains(&format!("no key `{misspelling}`")));
            tried += 1;
            if !reported.is_some_and(|reported| reported.hint.as_str().contains(&format!("`{key}"))) {
                wrong.push(format!("{path}: `{misspelling}` for `{key}`: {reported:?}"));
            }
        }
        key_at(root, way).text = key;
    });
    assert!(tried > 700, "{tried}");
    none(&wrong);
}
