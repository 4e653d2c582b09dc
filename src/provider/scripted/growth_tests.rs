//! Whatever a rule builds is bounded: a rule that would take all memory, all time or all of a stack fails by itself. Without the
//! bounds, many of these tests do not fail but end the process.

use super::tests::{ask, load, said};
use crate::testing::request;

/// What becomes of these words of a rule.
async fn answer(say: &str) -> Result<String, String> {
    let rules = serde_json::json!({ "otherwise": [{ "say": say }] }).to_string();
    let answer = ask(&load(&rules)?, &request("m", "a mail of some words")).await;
    answer.map(|answer| said(&answer)).map_err(|error| error.message)
}

/// Sixty rounds of a loop over a namespace.
fn rounds(first: &str, step: &str, then: &str) -> String {
    format!(
        "{{% set ns = namespace(a={first}) %}}{{% for i in range(60) %}}{{% set ns.a = {step} %}}{{% endfor %}}{{{{ {then} }}}}"
    )
}

#[tokio::test]
async fn what_doubles_fails_by_itself() {
    let most = "build or look at more than 64 MiB";
    let straight: String = std::iter::once("{% set a = 'xxxxxxxxxx' %}".to_owned())
        .chain(vec!["{% set a = a ~ a %}".to_owned(); 60])
        .collect();
    for say in [
        rounds("'xxxxxxxxxx'", "ns.a ~ ns.a", "ns.a"),
        rounds("'xxxxxxxxxx'", "ns.a + ns.a", "ns.a"),
        rounds("'xxxxxxxxxx'", "ns.a * 2", "ns.a"),
        rounds("'xxxxxxxxxx'", "[ns.a, ns.a] | join", "ns.a"),
        rounds("'xxxxxxxxxx'", "ns.a | replace('x', 'xx')", "ns.a"),
        rounds("'xxxxxxxxxx'", "'%s%s' | format(ns.a, ns.a)", "ns.a"),
        rounds("['x', 'x']", "ns.a + ns.a", "ns.a | length"),
        rounds("['x', 'x']", "ns.a * 2", "ns.a | length"),
        rounds("['x', 'x']", "ns.a[:] + ns.a[:]", "1 in ns.a"),
        rounds("['x', 'x']", "ns.a | chain(ns.a) | list", "ns.a | length"),
        rounds("['x', 'x']", "[ns.a, ns.a]", "ns.a == 1"),
        rounds("['x', 'x']", "ns.a | zip(ns.a) | list", "ns.a == 1"),
        rounds("['x', 'x']", "{ 'a': ns.a, 'b': ns.a }", "ns.a | json"),
        rounds("['x', 'x']", "dict(a=ns.a, b=ns.a)", "ns.a == 1"),
        straight,
        "{% set a %}{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}{% endset %}".to_owned(),
        format!("{{% set a %}}{{% for i in range(100000) %}}{}{{% endfor %}}{{% endset %}}", "x".repeat(10_000)),
        "{{ 'x' * 100000000 }}".to_owned(),
        "{{ ([0] * 100000000) | list | length }}".to_owned(),
        "{{ (range(100000) | join('x' * 100000)) | length }}".to_owned(),
        "{{ ('a' * 100000) | replace('a', 'b' * 100000) | length }}".to_owned(),
        "{{ 'a' | indent(10000000000) }}".to_owned(),
        "{{ range(90000) | map('replace', '1', 'x' * 1000000) | list | length }}".to_owned(),
    ] {
        let told = answer(&say).await.unwrap_err();
        assert!(told.contains(most) || told.contains("`replace` takes texts"), "{say}: {told}");
    }
}

#[tokio::test]
async fn what_has_no_bound_is_refused() {
    for (say, told) in [
        (
            "{% for i in range(100000) %}{% for j in range(100000) %}{% if 1 == 2 %}{% endif %}{% endfor %}{% endfor %}"
                .to_owned(),
            "too many steps",
        ),
        (rounds("[]", "[ns.a]", "ns.a").replace("range(60)", "range(100000)"), "deep in one another"),
        (rounds("1", "ns", "ns"), "a namespace cannot be part of a value"),
        (rounds("1", "ns | default(1)", "ns"), "a namespace cannot be part of a value"),
        (rounds("1", "[ns]", "ns"), "a namespace cannot be part of a value"),
        ("{{ '%99999999s' | format('x') }}".to_owned(), "widths of 3 digits"),
        ("{{ [1] | batch(10000000000, 'x') }}".to_owned(), "10000 parts at most"),
        ("{{ ['a', 'b'] | sum }}".to_owned(), "`sum` adds numbers"),
        ("{{ mail | regex_replace('.', '$0$0$0' * 1000000) }}".to_owned(), "`regex_replace` gives more than"),
        ("{% macro f(a) %}{{ f(a ~ a) }}{% endmacro %}{{ f('a') }}".to_owned(), "unknown statement"),
        ("{% with a = mail %}{{ a }}{% endwith %}".to_owned(), "rules have no `with` blocks"),
        (format!("{{{{ {}1 }}}}", "1+".repeat(50_000)), "too intricate"),
        ("{{ debug() }}".to_owned(), "`debug` is not defined"),
    ] {
        let words = answer(&say).await.unwrap_err();
        assert!(words.contains(told), "{}: {words}", ghost_domain::text::clip(&say, 200));
    }
}

#[tokio::test]
async fn what_is_of_common_size_is_built_as_before() {
    for (say, told) in [
        (rounds("'a'", "ns.a ~ i", "ns.a | length"), "111"),
        (rounds("[]", "ns.a + [i * i]", "ns.a | sum"), "70210"),
        ("{{ (2 * 3 + 4) ~ 'x' * 3 }}".to_owned(), "10xxx"),
        ("{{ [1, 2] * 2 }}{{ 'ab'[1:] ~ [1, 2, 3][:2] }}".to_owned(), "[1, 2, 1, 2]b[1, 2]"),
        ("{{ 1.5 * 2 }} {{ 1 + 0.5 }} {{ (1, 2) + (3,) }} {{ {'a': [1]} }}".to_owned(), "3.0 1.5 (1, 2, 3) {'a': [1]}"),
        ("{% set a, b = 1, 'x' %}{{ a }}{{ b }}{{ a if b is string and a in [1] else (2, 3) }}".to_owned(), "1x1"),
        ("{% set a %}{{ mail }}{% endset %}{{ a | upper }}".to_owned(), "A MAIL OF SOME WORDS"),
        ("{{ mail | regex_replace('(\\\\w)o', '<$1>') }}".to_owned(), "a mail of <s>me <w>rds"),
    ] {
        assert_eq!(answer(&say).await.as_deref(), Ok(told), "{say}");
    }
    assert!(answer("{{ nothing ~ 1 }}").await.unwrap_err().contains("`nothing` is not defined"));
    for say in ["{{ vars.x ~ 1 }}", "{{ vars.x * 2 }}", "{{ 1 + vars.x }}"] {
        assert!(answer(say).await.unwrap_err().contains("undefined"), "{say}");
    }
}
