//! Whatever a rule looks at is bounded, and nobody waits for it but who asked: a rule that would take minutes fails by itself, by
//! what it pays for and not by a clock, and until then the runtime goes on. Without the bounds, some of these take hours.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use ghost_domain::transcript::{Block, Message, Role};
use serde_json::{Value, json};

use super::tests::{Script, ask, load, said};
use super::*;
use crate::testing::request;

/// A conversation of 261,000 bytes.
fn long() -> ModelRequest {
    let mut long = request("m", "short mail");
    long.messages.push(Message::text(Role::User, "word and another 12 % of it. ".repeat(9_000)));
    long
}

fn rules(otherwise: &Value) -> Script {
    load(&json!({ "otherwise": [otherwise] }).to_string()).unwrap()
}

fn saying(say: &str) -> Script {
    rules(&json!({ "say": say }))
}

/// A rule that takes long for what it pays: each of its matches is looked for up to the end of the text.
const SLOW: &str = "{{ ('A' * 20000) | regex_findall('.*[^A-Z]|[A-Z]') | length }}";

#[tokio::test]
async fn what_would_look_at_too_much_fails_by_itself() {
    let most = "build or look at more than 64 MiB";
    for say in [
        "{% set l = range(50000) | list %}{{ l | select('in', l) | list | length }}",
        "{% set l = range(50000) | list %}{{ l | reject('in', l) | list | length }}",
        "{% set l = results + [{'a': text}] * 9000 %}{{ l | selectattr('a', 'equalto', text) | list | length }}",
        "{% for i in range(100000) %}{% if 'zzzq' in text %}{% endif %}{% endfor %}",
        "{% for i in range(100000) %}{% if text == last_text %}{% endif %}{% endfor %}",
        "{% for i in range(100000) %}{% if 1 < text <= last_text %}{% endif %}{% endfor %}",
        "{% for i in range(100000) %}{% if text is eq(last_text) %}{% endif %}{% endfor %}",
        "{% for i in range(100000) %}{% if loop.changed(text) %}{% endif %}{% endfor %}",
        "{% for i in range(100000) %}{{ text[200000] }}{% endfor %}",
        "{% for i in range(100000) %}{{ text[200000:200001] }}{% endfor %}",
        "{% for i in range(100000) %}{{ {'a': 1}[text] | default('') }}{% endfor %}",
        "{% set l = range(100000) %}{% for i in l %}{{ l[99999] }}{% endfor %}",
        "{% for i in range(100000) %}{% set a = text | regex_find('q[a-z]+z') %}{% endfor %}",
        "{% for i in range(2000) %}{% set a = text | regex_find('\\\\w{20}' ~ i) %}{% endfor %}",
        "{{ text | regex_find('[a-z ]*a[a-z ]{9000}X') }}",
        "{{ ('A' * 260000) | regex_findall('.*[^A-Z]|[A-Z]') | length }}",
        "{% for i in range(1000) %}{% set a = text | replace('a', 'b') %}{% endfor %}",
        "{% for i in range(1000) %}{% set a = text | split('a') %}{% endfor %}",
        "{% for i in range(1000) %}{% set a = text | figures %}{% endfor %}",
        "{% for i in range(1000) %}{% set a = text | title %}{% endfor %}",
        "{{ ([text] * 300) | sort | length }}",
        "{{ ([text] * 300) | unique | length }}",
        "{{ ([text] * 300) | max }}",
        "{{ ('a' * 10000000) | split('') | length }}",
        "{{ ('a' * 10000000) | list | length }}",
        "{{ ('[' ~ '{},' * 100000 ~ '1]') | from_json | length }}",
    ] {
        let told = ask(&saying(say), &long()).await.unwrap_err().message;
        assert!(told.contains(most) && told.contains("rule `otherwise`"), "{say}: {told}");
    }
    let told = ask(&rules(&json!({ "call": "x", "for_each": "range(100000) | list * 900" })), &long()).await;
    assert!(told.unwrap_err().message.contains(most));
}

/// Rules, their conditions and their definitions pay like templates.
#[tokio::test]
async fn a_file_of_many_rules_is_bounded_too() {
    let many =
        |rule: &str| -> String { (0..900).map(|n| format!("  - {}\n", rule.replace('#', &n.to_string()))).collect() };
    let lets: String = (1..200).map(|n| format!("  n{n}: n{} + 1 - 1 + 1\n", n - 1)).collect();
    for file in [
        format!("rules:\n{}", many("{ when: { text: 'q[a-z]+z#' }, do: [{ say: x }] }")),
        format!("let:\n  n0: '1'\n{lets}rules:\n{}", many("{ when: { if: n199 == # + 900 }, do: [{ say: x }] }")),
    ] {
        let told = ask(&load(&format!("{file}otherwise: [{{ say: x }}]")).unwrap(), &long()).await.unwrap_err().message;
        assert!(told.contains("build or look at more than 64 MiB"), "{told}");
    }
}

#[tokio::test]
async fn what_is_of_common_size_is_looked_at_as_before() {
    let mut turn = request("m", "all of them");
    let results = (0..200).map(|n| Block::ToolResult {
        id: format!("c{n}"),
        name: "workspace.read".to_owned(),
        content:
            json!({ "path": format!("in/{n}.md"), "content": format!("# T{n}\n\n{}", "It grew 7 %. ".repeat(230)) })
                .to_string(),
        is_error: false,
    });
    turn.messages.push(Message::text(Role::Assistant, "Well."));
    turn.messages.push(Message { role: Role::Tool, blocks: results.collect() });
    for (say, told) in [
        (
            "{{ results | map(attribute='value') | map(attribute='content') | map('first_sentence') | unique | join }}",
            "It grew 7 %.",
        ),
        ("{{ results | map(attribute='value.path') | map('basename') | sort | reverse | first }}", "99.md"),
        (
            "{{ results | selectattr('value.path', 'in', results | map(attribute='value.path') | list) | list | length }}",
            "200",
        ),
        ("{% for r in results if 'T7' in r.value.content and r.value.path == 'in/7.md' %}{{ r.id }}{% endfor %}", "c7"),
        ("{{ results | map(attribute='text') | map('regex_findall', '\\\\w+') | map('length') | sum }}", "139400"),
        ("{% for i in range(200) %}{{ results[i].id if results[-1].id == 'c' ~ i else '' }}{% endfor %}", "c199"),
    ] {
        assert_eq!(said(&ask(&saying(say), &turn).await.unwrap()), told, "{say}");
    }
}

/// What it comes to if `work` has not ended by itself when the clock says so.
async fn by_deadline<T>(script: &Script, work: impl Future<Output = T>) -> Option<T> {
    let deadline = script.clock.sleep(Duration::from_secs(120));
    match select(pin!(work), pin!(deadline)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(((), _)) => None,
    }
}

/// One thread is all that this runtime has: if the rendering held it, nobody would move the clock before it ends.
#[tokio::test]
async fn the_runtime_goes_on_and_a_deadline_ends_the_call() {
    let script = saying(SLOW);
    let request = request("m", "short mail");
    for called in 1..=3 {
        let watch = async {
            script.clock.slept(called).await;
            script.clock.advance(Duration::from_secs(120));
        };
        let (ended, ()) = join(by_deadline(&script, ask(&script, &request)), watch).await;
        assert!(ended.is_none(), "the deadline came first: {ended:?}");
    }
}

#[test]
fn work_that_nobody_waits_for_pays_for_nothing_more() {
    let wanted = Wanted::default();
    let budget = Budget::whole(&wanted.0);
    assert!(budget.spend(1).is_ok());
    drop(wanted);
    assert!(budget.spend(1).unwrap_err().to_string().contains("not waited for any more"));
}

#[tokio::test]
async fn an_answer_that_was_begun_anew_happens_once() {
    let script = load(
        r#"
otherwise:
  - fail: { kind: server, times: 1 }
  - say: "{{ 'x' * 300000 | length }} first"
  - say: "{{ last.nothing }}"
"#,
    )
    .unwrap();
    let request = request("m", "short mail");
    assert_eq!(ask(&script, &request).await.unwrap_err().kind, ErrorKind::Server);
    let error = ask(&script, &request).await.unwrap_err();
    assert!(error.kind == ErrorKind::BadRequest && error.message.contains("rule `otherwise`"), "{error:?}");
}
