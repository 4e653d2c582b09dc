//! Tests of the additions of a provider's entry to each request.

use super::*;
use crate::fixture::{GOOD, World};
use crate::plan::ProviderPlan;

/// A world whose provider `p`, the last line, has `entry`.
fn world(entry: &str) -> World {
    let world = World::new();
    world.config(&format!("{GOOD}llm:\n  providers:\n    p: {{ {entry} }}\n"));
    world
}

fn plan(entry: &str) -> ProviderPlan {
    let world = world(entry);
    assert_eq!(world.warnings(), "", "{entry}");
    world.plan().llm.providers["p"].clone()
}

/// The only problem of an entry.
fn problem(entry: &str) -> crate::Problem {
    let problems = world(entry).load().map(|_| ()).expect_err(entry).0;
    assert_eq!(problems.len(), 1, "{entry}: {problems:?}");
    assert_eq!(problems[0].line, GOOD.lines().count() + 3, "{entry}");
    problems[0].clone()
}

const OPENAI: &str = "kind: openai, base_url: 'http://h/'";

#[test]
fn additions_are_read_with_their_variables() {
    let found = plan(&format!(
        "{OPENAI}, headers: {{ X-Title: Ghost, Authorization: 'Bearer ${{SECRET}}' }}, query: {{ region: '${{PLACE:-eu}}' }}, \
         extra_body: {{ provider: {{ order: [a, b] }}, top_k: 40, seed: null }}, api: chat, organization: org-1"
    ));
    let pairs =
        |map: &BTreeMap<String, String>| map.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    assert_eq!(
        pairs(&found.headers),
        ["Authorization=Bearer hunter2-hunter2", "OpenAI-Organization=org-1", "X-Title=Ghost"]
    );
    assert_eq!(pairs(&found.query), ["region=eu"]);
    let body = serde_json::json!({ "provider": { "order": ["a", "b"] }, "top_k": 40, "seed": null });
    assert_eq!((Value::Object(found.extra_body), found.api), (body, Some(Api::Chat)));
    let secrets =
        world(&format!("{OPENAI}, headers: {{ X-A: '${{SECRET}}' }}, query: {{ a: '${{PLACE:-eu}}' }}")).plan();
    assert!(secrets.secret_env.contains("SECRET") && secrets.secret_env.contains("PLACE"), "they may be keys");
}

#[test]
fn the_api_version_is_sent_as_its_kind_requires() {
    let azure = plan(&format!("{OPENAI}, api_version: 2024-10-21"));
    assert_eq!((azure.query["api-version"].as_str(), azure.headers.len()), ("2024-10-21", 0));
    let anthropic = plan("kind: anthropic, base_url: 'http://h/', api_version: 2023-06-01");
    assert_eq!((anthropic.headers["anthropic-version"].as_str(), anthropic.query.len()), ("2023-06-01", 0));
    let field = |entry| problem(entry).field.trim_start_matches("llm.providers.p.").to_owned();
    assert_eq!(field("kind: gemini, api_version: v1"), "api_version");
    assert_eq!(field("kind: openai, api_version: '1', query: { api-version: '2' }"), "api_version");
    assert_eq!(field("kind: openai, organization: a, headers: { openai-organization: b }"), "organization");
    assert_eq!(field("kind: openai, organization: 'a b'"), "organization");
}

#[test]
fn additions_that_would_break_a_request_are_refused() {
    for (entry, field, hint) in [
        ("headers: { 'a b': c }", "headers.a b", ""),
        ("headers: { '': c }", "headers.", ""),
        ("headers: { A: \"b\\nc\" }", "headers.A", ""),
        ("headers: { A: ü }", "headers.A", "ASCII"),
        ("headers: { A: '' }", "headers.A", ""),
        ("headers: { A: b, a: c }", "headers.a", ""),
        ("headers: { Content-Type: a }", "headers.Content-Type", ""),
        ("headers: { HOST: a }", "headers.HOST", ""),
        ("headers: { transfer-encoding: a }", "headers.transfer-encoding", ""),
        ("headers: { X-Api-Key: a }", "headers.X-Api-Key", "`api_key_env`"),
        ("headers: { x-goog-api-key: a }", "headers.x-goog-api-key", "`api_key_env`"),
        ("api_key_env: K, headers: { Authorization: a }", "headers.Authorization", "`api_key_env`"),
        ("api_key_env: K, headers: { api-key: a }", "headers.api-key", "`api_key_env`"),
        ("headers: 5", "headers", "key: value"),
        ("query: { a: \"b\\tc\" }", "query.a", ""),
        ("query: { a: [] }", "query.a", ""),
        ("extra_body: { stream: false }", "extra_body.stream", ""),
        ("extra_body: { model: m }", "extra_body.model", "default_model"),
        ("extra_body: { tools: [] }", "extra_body.tools", "tool_privileges"),
        ("extra_body: { max_tokens: 9 }", "extra_body.max_tokens", "`max_tokens`"),
        ("extra_body: { options: { num_predict: 9 } }", "extra_body.options", "`max_tokens`"),
        ("extra_body: { generationConfig: { maxOutputTokens: 9 } }", "extra_body.generationConfig", "`max_tokens`"),
        ("extra_body: [a]", "extra_body", "key: value"),
        ("api_key_env: '${PLACE:-SOME_KEY}'", "api_key_env", ""),
        ("api: completions", "api", "responses, chat"),
    ] {
        let found = problem(&format!("{OPENAI}, {entry}"));
        assert_eq!(found.field, format!("llm.providers.p.{field}"), "{entry}");
        assert!(found.hint.as_str().contains(hint), "{entry}: {}", found.hint);
    }
    for name in PROTOCOL {
        assert_eq!(
            problem(&format!("{OPENAI}, extra_body: {{ {name}: 1 }}")).field,
            format!("llm.providers.p.extra_body.{name}")
        );
    }
    for key in ["key", "alt"] {
        problem(&format!("kind: gemini, query: {{ {key}: a }}"));
    }
    for (kind, key) in [
        ("scripted", "headers: { A: b }"),
        ("scripted", "query: { a: b }"),
        ("scripted", "extra_body: { a: b }"),
        ("anthropic", "api: chat"),
        ("ollama", "organization: a"),
    ] {
        problem(&format!("kind: {kind}, {key}"));
    }
}

#[test]
fn a_key_may_be_a_header_only_where_no_other_is_sent() {
    assert!(problem("kind: openai, headers: { Authorization: '${SECRET}' }").hint.as_str().contains("base_url"));
    let gateway = plan(&format!("{OPENAI}, headers: {{ api-key: '${{SECRET}}' }}"));
    assert_eq!((gateway.api_key_env, gateway.headers["api-key"].as_str()), (None, "hunter2-hunter2"));
    let plain = world(&format!("{OPENAI}, headers: {{ api-key: sk-in-the-file }}"));
    let warned = plain.plan().warnings;
    assert!(warned.len() == 1 && warned[0].field.ends_with("headers.api-key"), "{warned:?}");
    assert!(!plain.warnings().contains("sk-in-the-file"));
}

#[test]
fn counts_and_sizes_are_bounded() {
    let many = |count: usize| (0..count).map(|at| format!("h{at}: v")).collect::<Vec<_>>().join(", ");
    assert_eq!(plan(&format!("{OPENAI}, headers: {{ {} }}", many(32))).headers.len(), 32);
    problem(&format!("{OPENAI}, headers: {{ {} }}", many(33)));
    problem(&format!("{OPENAI}, query: {{ {} }}", many(33)));
    assert_eq!(plan(&format!("{OPENAI}, headers: {{ a: {} }}", "v".repeat(4_096))).headers["a"].len(), 4_096);
    problem(&format!("{OPENAI}, headers: {{ a: {} }}", "v".repeat(4_097)));
    problem(&format!("{OPENAI}, query: {{ a: {} }}", "v".repeat(4_097)));
    let body = |bytes: usize| format!("{OPENAI}, extra_body: {{ a: [{0}, {0}] }}", "v".repeat(bytes));
    assert_eq!(plan(&body(30_000)).extra_body.len(), 1);
    problem(&body(40_000));
}
