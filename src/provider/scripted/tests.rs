use std::fs;
use std::time::Duration;

use ghost_domain::transcript::{Block, Message, Role};
use serde_json::{Value, json};

use super::*;
use crate::model::{NoDeltas, Stop};
use crate::testing::request;
use ghost_domain::testing::ManualClock;

pub(super) struct Script {
    _dir: tempfile::TempDir,
    pub(super) clock: Arc<ManualClock>,
    provider: Scripted,
}

pub(super) fn load(rules: &str) -> Result<Script, String> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("m.yaml"), rules).unwrap();
    let clock = ManualClock::at(0);
    let provider = Scripted::load(dir.path(), clock.clone()).map_err(|refusal| refusal.message)?;
    Ok(Script { _dir: dir, clock, provider })
}

pub(super) async fn ask(script: &Script, request: &ModelRequest) -> Result<ModelAnswer, ProviderError> {
    script.provider.complete(request, &mut NoDeltas).await
}

pub(super) fn said(answer: &ModelAnswer) -> String {
    Message { role: Role::Assistant, blocks: answer.blocks.clone() }.visible_text()
}

/// Adds the answer and a result for each of its calls.
pub(super) fn go_on(request: &mut ModelRequest, answer: ModelAnswer, result: impl Fn(&str, &Value) -> (String, bool)) {
    let results = answer
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::ToolCall { id, name, arguments } => {
                let (content, is_error) = result(name, arguments);
                Some(Block::ToolResult { id: id.clone(), name: name.clone(), content, is_error })
            }
            _ => None,
        })
        .collect();
    request.messages_mut().push(Message { role: Role::Assistant, blocks: answer.blocks }.into());
    request.messages_mut().push(Message { role: Role::Tool, blocks: results }.into());
}

/// The rules in the README.
fn readme_rules(number: usize) -> String {
    let readme = include_str!("README.md");
    readme.split("```yaml\n").nth(number + 1).unwrap().split("```").next().unwrap().to_owned()
}

#[tokio::test]
async fn the_example_of_the_readme_does_what_it_says() {
    let script = load(&readme_rules(0)).unwrap();
    let mut turn = request("m", "the briefing, with folder elsewhere");
    turn.agent_id = "chora".parse().unwrap();
    turn.messages_mut().push(Message::text(Role::User, "Read folder input/a please.").into());
    let tool = |name: &str, arguments: &Value| match name {
        "workspace.list" => {
            assert_eq!(arguments, &json!({ "path": "input/a" }));
            (json!({ "entries": [{ "path": "input/a/x.md" }, { "path": "input/a/y.md" }] }).to_string(), false)
        }
        _ => {
            let path = arguments["path"].as_str().unwrap();
            (json!({ "content": format!("# T\nIt is here. It grew 7 % in {path}. More.") }).to_string(), false)
        }
    };
    let first = ask(&script, &turn).await.unwrap();
    assert_eq!(first.stop, Stop::ToolUse);
    go_on(&mut turn, first, tool);
    let second = ask(&script, &turn).await.unwrap();
    let ids: Vec<String> = Message { role: Role::Assistant, blocks: second.blocks.clone() }
        .calls()
        .map(|(id, _, arguments)| format!("{id} {arguments}"))
        .collect();
    assert_eq!(ids, [r#"call-2 {"path":"input/a/x.md"}"#, r#"call-3 {"path":"input/a/y.md"}"#]);
    assert_eq!(ask(&script, &turn).await.unwrap(), second, "asked again, it says the same");
    go_on(&mut turn, second, tool);
    let third = ask(&script, &turn).await.unwrap();
    assert_eq!(third.stop, Stop::EndTurn);
    assert_eq!(
        said(&third),
        "## input/a/x.md\nIt grew 7 % in input/a/x.md.\n## input/a/y.md\nIt grew 7 % in input/a/y.md.\n"
    );
    let mut stranger = request("m", "hello");
    stranger.agent_id = "other".parse().unwrap();
    assert_eq!(said(&ask(&script, &stranger).await.unwrap()), "Nothing to do.");
}

#[tokio::test]
async fn a_result_that_is_shown_in_part_is_still_a_value() {
    let script = load(
        r#"
rules:
  - when: { round: 0 }
    do: [{ call: list }, { call: read }, { call: whole }, { call: words }]
otherwise:
  - say: "{% for r in results %}{{ r.more }} {{ r.value.next if r.value.next is defined else r.value }};{% endfor %}"
"#,
    )
    .unwrap();
    let mut turn = request("m", "go");
    let first = ask(&script, &turn).await.unwrap();
    let more = ghost_domain::text::MORE_MARK;
    go_on(&mut turn, first, |name, _| match name {
        "list" => (format!("[1,2]{more}"), false),
        "read" => (format!("{}{more}", json!({ "content": "a", "next": 7 })), false),
        "whole" => ("[3]".to_owned(), false),
        _ => (format!("no JSON{more}"), false),
    });
    let text = said(&ask(&script, &turn).await.unwrap());
    assert_eq!(text, format!("True [1, 2];True 7;False [3];True no JSON{more};"));
}

#[tokio::test]
async fn the_second_example_hands_out_tasks_and_reports_failures() {
    let script = load(&readme_rules(2)).unwrap();
    let mut turn = request("m", "Do job in/put");
    turn.agent_id = "editor".parse().unwrap();
    let list = json!({ "entries": [{ "path": "in/a.md" }, { "path": "in/b.md" }] }).to_string();
    let answer = ask(&script, &turn).await.unwrap();
    go_on(&mut turn, answer, |_, _| (list.clone(), false));
    let tasks = ask(&script, &turn).await.unwrap();
    let Some(Block::ToolCall { arguments, .. }) = tasks.blocks.last() else { panic!("{tasks:?}") };
    assert_eq!(arguments, &json!({ "title": "Summarise b.md", "assignee": "ben" }));
    let mut failing = turn.clone();
    go_on(&mut turn, tasks.clone(), |_, _| ("{}".to_owned(), false));
    assert_eq!(said(&ask(&script, &turn).await.unwrap()), "2 tasks are out.");
    go_on(&mut failing, tasks, |_, arguments| ("no".to_owned(), arguments["assignee"] == "ben"));
    assert_eq!(said(&ask(&script, &failing).await.unwrap()), "Could not hand out: no");
}

#[tokio::test]
async fn conditions_count_and_catch() {
    let script = load(
        r#"
rules:
  - when: { tools_called: { x: ">=2" }, not_called: [y], round: "<3" }
    do: [{ call: y, with: { n: "{{ called.x }}", list: ["{{ match | length }}", 1], t: "x {{ round }}" } }]
  - when: { last: 'go (\w+) (?P<what>\w+)', if: "match.what == 'now' and 1 < 2" }
    do:
      - { say: "hidden", if: "false" }
      - { call: x, for_each: "range(2)", with: { who: "{{ match.1 }}", item: "{{ item }}" } }
otherwise: [{ say: "" }]
"#,
    )
    .unwrap();
    let mut turn = request("m", "please go Ada now");
    let first = ask(&script, &turn).await.unwrap();
    assert_eq!(first.blocks.len(), 2);
    let Block::ToolCall { arguments, .. } = &first.blocks[1] else { panic!() };
    assert_eq!(arguments, &json!({ "who": "Ada", "item": 1 }));
    go_on(&mut turn, first, |_, _| ("ok".to_owned(), false));
    let second = ask(&script, &turn).await.unwrap();
    let Block::ToolCall { id, arguments, .. } = &second.blocks[0] else { panic!() };
    assert_eq!((id.as_str(), arguments), ("call-3", &json!({ "n": 2, "list": [0, 1], "t": "x 1" })));
    go_on(&mut turn, second, |_, _| ("ok".to_owned(), false));
    let end = ask(&script, &turn).await.unwrap();
    assert_eq!((end.stop, end.blocks), (Stop::EndTurn, vec![Block::Text { text: String::new() }]));
}

#[tokio::test]
async fn failures_are_counted_and_waits_are_on_the_clock() {
    let script = load(
        "rules: []\notherwise:\n  - fail: { kind: rate_limited, times: 2, retry_after: 3s }\n  - wait: 250ms\n  - say: done\n",
    )
    .unwrap();
    let turn = request("m", "hello");
    for _ in 0..2 {
        let error = ask(&script, &turn).await.unwrap_err();
        assert_eq!((error.kind, error.retry_after), (ErrorKind::RateLimited, Some(Duration::from_secs(3))));
    }
    let waker = async {
        script.clock.slept(1).await;
        script.clock.advance(Duration::from_millis(250));
    };
    let (answer, ()) = tokio::join!(ask(&script, &turn), waker);
    assert_eq!(said(&answer.unwrap()), "done");
    assert_eq!(script.clock.now().0, 250);
}

#[tokio::test]
async fn what_goes_wrong_while_running_names_the_rule_and_ends() {
    for (rules, part) in [
        ("rules:\n  - name: r\n    do: [{ say: \"{{ last.nothing }}\" }]\notherwise: [{ say: x }]", "`r`"),
        ("rules: []\notherwise: [{ say: \"{% for a in range(90000) %}{{ mail }}{% endfor %}\" }]", "otherwise"),
        ("rules: []\notherwise: [{ call: x, for_each: \"range(65)\" }]", "64"),
        ("rules: []\notherwise: [{ call: x, for_each: \"5\" }]", ""),
    ] {
        let script = load(rules).unwrap();
        let error = ask(&script, &request("m", &"long ".repeat(100))).await.unwrap_err();
        assert_eq!((error.kind, error.charge), (ErrorKind::BadRequest, Charge::Nothing), "{rules}");
        assert!(error.message.contains(part), "{}", error.message);
    }
    let script = load("otherwise: [{ say: x }]").unwrap();
    assert_eq!(ask(&script, &request("other", "x")).await.unwrap_err().kind, ErrorKind::UnknownModel);
    assert_eq!(ask(&script, &request("../m", "x")).await.unwrap_err().kind, ErrorKind::UnknownModel);
}

#[tokio::test]
async fn a_name_stands_for_what_it_was_given_wherever_it_is_used() {
    let script = load(
        r#"
vars: { wanted: [a, c] }
let:
  files: "(results | of('workspace.list') | first).value.files"
  mine: "files | select('in', vars.wanted) | list"
rules:
  - name: look
    when: { round: 0, mail: 'in (?P<dir>\S+)' }
    let: { place: "'inputs/' ~ match.dir" }
    do: [{ call: workspace.list, with: { path: "{{ place }}" } }]
  - name: several
    let:
      place: "'in ' ~ match.dir"
      told: "mine[:5] | join(', ') ~ ' ' ~ place"
    when: { mail: 'in (?P<dir>\S+)', if: "mine | length > 1" }
    do:
      - say: "{{ told }}, of {{ files | length }}"
        if: "place == 'in here'"
  - name: one
    when: { mail: 'in ' }
    do: [{ for_each: "mine[:9]", call: read, with: { path: "{{ item }}", all: "{{ files }}" } }]
otherwise: [{ say: "none" }]
"#,
    )
    .unwrap();
    // The values of the names do not exist yet, and no rule that applies uses them.
    let mut turn = request("m", "nothing");
    assert_eq!(said(&ask(&script, &turn).await.unwrap()), "none");
    turn = request("m", "in here");
    let look = ask(&script, &turn).await.unwrap();
    let path = |answer: &ModelAnswer| match &answer.blocks[..] {
        [.., Block::ToolCall { arguments, .. }] => arguments.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(path(&look), json!({ "path": "inputs/here" }));
    let mut other = turn.clone();
    go_on(&mut turn, look.clone(), |_, _| (json!({ "files": ["a", "b", "c"] }).to_string(), false));
    assert_eq!(said(&ask(&script, &turn).await.unwrap()), "a, c in here, of 3");
    go_on(&mut other, look, |_, _| (json!({ "files": ["c"] }).to_string(), false));
    assert_eq!(path(&ask(&script, &other).await.unwrap()), json!({ "path": "c", "all": ["c"] }));
    // The error of a failed definition names the definition and its rule.
    let script =
        load("let: { x: 'last.none' }\nrules:\n  - { name: r, do: [{ say: '{{ x }}' }] }\notherwise: [{ say: y }]");
    let error = ask(&script.unwrap(), &request("m", "x")).await.unwrap_err();
    assert!(error.message.contains("`r`") && error.message.contains("`x`"), "{}", error.message);
}

#[tokio::test]
async fn values_keep_their_types_and_aliases_stand_for_what_they_name() {
    let script = load(
        "vars: { n: &n 7, f: 1.5, t: '7', none: ~, yes: true }\nrules: []\notherwise:\n  - call: x\n    with: { n: *n, f: '{{ vars.f }}', t: '{{ vars.t }}', y: '{{ vars.yes }}', l: [0x10, 007, no], e: '' }\n",
    )
    .unwrap();
    let answer = ask(&script, &request("m", "x")).await.unwrap();
    let [.., Block::ToolCall { arguments, .. }] = &answer.blocks[..] else { panic!("{answer:?}") };
    assert_eq!(arguments, &json!({ "n": 7, "f": 1.5, "t": "7", "y": true, "l": [16, "007", "no"], "e": "" }));
}

#[tokio::test]
async fn an_answer_of_more_words_than_any_model_says_names_its_rule() {
    let says = "{ say: '{{ text }}' }, ".repeat(9);
    let script = load(&format!("rules:\n  - {{ name: long, do: [{says}] }}\notherwise: [{{ say: y }}]")).unwrap();
    assert!(ask(&script, &request("m", &"x".repeat(230_000))).await.is_ok());
    for (bytes, most) in [(240_000, 2_097_152), (270_000, 262_144)] {
        let error = ask(&script, &request("m", &"x".repeat(bytes))).await.unwrap_err();
        let words = most.to_string();
        assert!(error.message.contains("`long`") && error.message.contains(&words), "{error}");
    }
}

#[tokio::test]
async fn a_definition_that_uses_itself_and_a_loop_without_end_fail_by_themselves() {
    for (rules, datum) in [
        ("let: { a: b ~ 'x', b: a ~ 'y' }\notherwise: [{ say: '{{ a }}' }]\n", "`a`"),
        (
            "otherwise: [{ say: '{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}' }]\n",
            "",
        ),
        ("otherwise: [{ say: '{% for i in range(100000) %}0123456789{% endfor %}' }]\n", ""),
        ("otherwise: [{ say: '{{ mail | nofilter }}' }]\n", "nofilter"),
    ] {
        let error = ask(&load(rules).unwrap(), &request("m", "hello")).await.unwrap_err();
        assert_eq!((error.kind, error.charge), (ErrorKind::BadRequest, Charge::Nothing), "{rules}");
        assert!(error.message.contains(datum), "{rules}: {}", error.message);
    }
}

#[tokio::test]
async fn a_definition_is_evaluated_when_it_is_used_and_may_stand_anywhere() {
    let rules = "let: { first: 'second[1:] | length', second: 'mail | list', broken: last.nothing.more }\n\
                 otherwise: [{ say: '{{ first }}' }]\n";
    assert_eq!(said(&ask(&load(rules).unwrap(), &request("m", "hello")).await.unwrap()), "4");
}
