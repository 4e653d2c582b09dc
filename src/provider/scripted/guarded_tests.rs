//! Guards stand where they belong, change no meaning, and what cannot be guarded is refused.

use std::sync::Arc;

use minijinja::{Environment, UndefinedBehavior, context};
use proptest::prelude::*;

use super::budget::Budget;
use super::guarded::{expression, text};
use minijinja::syntax::SyntaxConfig;

#[test]
fn what_builds_is_guarded_and_nothing_else_changes() {
    for (source, guarded) in [
        ("a ~ 'x' ~ b", "CAT((CAT((a ),( 'x')) ),( b))"),
        ("(a) * ((b) + 1)", "MUL(((a) ),( (ADD(((b) ),( 1)))))"),
        ("a.b | f([x]) ~ y[1:2].z", "CAT((a.b | f(ALL(([x]))) ),( CUT((TOP((y))[1:2])).z))"),
        ("a - b / c ** d % e", "a - b / c ** d % e"),
        ("-(a if b else c)[1:]", "-CUT((TOP(((a if b else c)))[1:]))"),
        ("(1, 2) ~ a if (not a)[1:] else a", "CAT((ALL(((1, 2))) ),( a)) if CUT((TOP(((not a)))[1:])) else a"),
        ("x[1:2][0]['a']", "AT((AT((CUT((TOP((x))[1:2]))))[0]))['a']"),
        ("((b).c)[:2][d]", "AT((CUT((TOP((((b).c)))[:2]))))[SEEN((d))]"),
        ("f(k=a ~ b) if x else (y, z)", "f(k=CAT((a ),( b))) if x else ALL(((y, z)))"),
        ("'~ + *' in \"[\"", "'~ + *' in \"[\""),
        ("'a' in (b | f) and c is in d", "'a' in (SEEN((b | f))) and c is in d"),
        ("a < b <= 3 != (c)", "SEEN((a)) < SEEN((b)) <= 3 != (SEEN((c)))"),
        ("loop.changed(a, 1) == f(b)", "SEEN((loop.changed(SEEN((a)), 1))) == SEEN((f(b)))"),
        ("(a if b else c) ~ d", "CAT(((a if b else c) ),( d))"),
    ] {
        assert_eq!(expression(source).unwrap(), guarded, "{source}");
    }
    let syntax = SyntaxConfig::default();
    for (source, guarded) in [
        ("~ {{ '}}' ~ a -}} +", "~ {{ CAT(('}}' ),( a)) -}} +"),
        ("{% set a = (b) %}\n{% set c.d=e|f -%}", "{% set a = ALL(( (b) )) %}\n{% set c.d= HELD((e|f )) -%}"),
        ("{% set a, b = c, d %}", "{% set a, b = ALL(( c, d )) %}"),
        (
            "{% for k, v in m|items if k == 1 %}{{ v }}, {% endfor %}",
            "{% for k, v in EACH(( m|items ), 2) if SEEN((k)) == 1 %}{{ v }}, {% endfor %}",
        ),
    ] {
        assert_eq!(text(source, &syntax).unwrap(), guarded, "{source}");
    }
}

fn any_expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a", "b", "c", "d.k", "1", "2", "-1", "'x'", "'xyz'", "true", "none", "[]", "[1, 'x']", "{'k': a}", "(1, 2)",
        "d.l", "nowhere",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 40, 3, |inner| {
        let signs = vec!["~", "+", "*", "-", "/", "//", "%", "==", "!=", "in", "not in", "and", "or", " ~\n"];
        // A list that was cut is a list here, and no other sort of value that comes before or after all lists: what is before what
        // is asked of numbers only.
        let behind = vec![
            "[0]",
            "[-1]",
            "['k']",
            ".k",
            "[1:]",
            "[:2]",
            "[::2]",
            "[c]",
            "[c:]",
            "|list",
            "|length",
            "|first",
            "|default('y')",
            "|join('-')",
            "|upper",
            "|reverse|list",
            "|map('string')|list",
            "|select('in', b)|list",
            " is defined",
            " is in b",
            " is not string",
            " is eq(c)",
            " is divisibleby 2",
        ];
        prop_oneof![
            (inner.clone(), prop::sample::select(signs), inner.clone()).prop_map(|(l, s, r)| format!("{l} {s} {r}")),
            (inner.clone(), prop::sample::select(behind)).prop_map(|(x, then)| format!("{x}{then}")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(x, y, z)| format!("{x} if {y} else {z}")),
            inner.clone().prop_map(|x| format!("({x})")),
            inner.clone().prop_map(|x| format!("( ({x} ) )")),
            inner.clone().prop_map(|x| format!("(not {x})")),
            inner.clone().prop_map(|x| format!("({x} < 2)")),
            inner.clone().prop_map(|x| format!("-{x}")),
            (inner.clone(), inner).prop_map(|(x, y)| format!("[{x}, {y}]")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// Whatever is written means with guards what it means without.
    #[test]
    fn guards_change_no_meaning(source in any_expression()) {
        let mut plain = Environment::new();
        plain.set_undefined_behavior(UndefinedBehavior::Strict);
        let mut guarded = plain.clone();
        super::filters::install(&mut guarded);
        let known = || context! {
            a => "xyz", b => vec![1, 2, 3], c => 2, d => context! { k => "v", l => vec!["x", "y"] },
            BUDGET => minijinja::Value::from_dyn_object(Budget::whole(&Arc::default())),
        };
        let shown = |value: Result<minijinja::Value, minijinja::Error>| {
            value.map(|value| if value.is_undefined() { "undefined".to_owned() } else { format!("{value}") }).ok()
        };
        if let Ok(meant) = plain.compile_expression(&source) {
            let code = expression(&source).unwrap();
            let made = guarded.compile_expression(&code);
            let made = made.unwrap_or_else(|error| panic!("{source} became {code}: {error}"));
            prop_assert_eq!(shown(made.eval(known())), shown(meant.eval(known())), "{}", code);
        }
    }
}

#[test]
fn what_cannot_be_paid_for_is_refused_with_its_line() {
    let syntax = SyntaxConfig::default();
    for source in [
        "\n{% macro f(a) %}{{ f(a ~ a) }}{% endmacro %}",
        "\n{% filter upper %}x{% endfilter %}",
        "\n{% with a = 1 %}{% endwith %}",
        "\n{% for a in b recursive %}{% endfor %}",
        "\n{% include 't0' %}",
    ] {
        assert_eq!(text(source, &syntax).unwrap_err().line, 2, "{source}");
    }
    let deep = |what: &str, times: usize| text(&format!("{{{{ {} }}}}", what.repeat(times)), &syntax);
    assert!(deep("a~", 10_000).unwrap_err().message.contains("too intricate"));
    let nested = format!("{}{}", "{% if a %}".repeat(50_000), "{% endif %}".repeat(50_000));
    assert!(text(&nested, &syntax).unwrap_err().message.contains("too intricate"));
    let elifs = format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(50_000));
    assert!(text(&elifs, &syntax).unwrap_err().message.contains("too intricate"));
    let list = format!("{{{{ [{}] }}}}", "'a',".repeat(5_000));
    assert!(text(&list, &syntax).is_ok());
}
