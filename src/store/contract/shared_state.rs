//! Shared state: values by key.

use super::tools::*;

pub(super) async fn values_round_trip(store: Bench) {
    let full = || StateEntry {
        version: i64::MAX,
        writer: Party::Agent(id_of("b")),
        updated_at: at(5),
        ..state("plan.step-1_Owner", deep())
    };
    put!(&store, { state_put: state("plan.step-1_Owner", Value::Null), state("null", Value::Null), full(); });
    shows!(&store, |r| {
        r.state_get("plan.step-1_Owner")? => Some(full());
        r.state_get("null")? => Some(state("null", Value::Null));
        r.state_get("plan")? => None;
        r.state_count()? => 2;
    });
}

fn keys(r: &mut Tx, prefix: &str, after: &str, limit: u32) -> Result<String> {
    Ok(map_rows(&r.state_list(prefix, after, limit)?, |entry| entry.key.clone()).join(" "))
}

pub(super) async fn values_are_removed(store: Bench) {
    put!(&store, { state_put: state("a", json!(1)), state("b", json!(2)); });
    keep!(&store, |w| {
        assert_eq!((w.state_remove("a")?, w.state_remove("a")?), (true, false));
        assert_eq!((w.state_get("a")?, w.state_count()?), (None, 1));
        w.state_put(&state("c", json!(3)))?;
        assert!(w.state_remove("c")?, "also what the same command wrote");
    });
    shows!(&store, |r| { keys(r, "", "", 9)? => "b"; });
}

pub(super) async fn keys_are_listed_by_prefix(store: Bench) {
    keep!(&store, |w| {
        for key in ["b", "ab", "a_b", "a.c", "a.b", "a-b", "a", "A.b"] {
            w.state_put(&state(key, json!(key)))?;
        }
    });
    for (prefix, after, limit, wanted) in [
        // In order of bytes. A key is a prefix of itself.
        ("", "", 99, "A.b a a-b a.b a.c a_b ab b"),
        ("", "", u32::MAX, "A.b a a-b a.b a.c a_b ab b"),
        ("", "a.b", 2, "a.c a_b"),
        ("a", "", 99, "a a-b a.b a.c a_b ab"),
        // No character is a wildcard, and case counts.
        ("a_", "", 99, "a_b"),
        ("A", "", 99, "A.b"),
        ("a.", "a.b", 99, "a.c"),
        // From before the prefix.
        ("a.", "A", 1, "a.b"),
        ("a", "", 0, ""),
        ("a.", "a.c", 9, ""),
        ("a.", "b", 9, ""),
        ("%", "", 9, ""),
        ("*", "", 9, ""),
        ("c", "", 9, ""),
    ] {
        shows!(&store, |r| { keys(r, prefix, after, limit)? => wanted, "{prefix} {after} {limit}"; });
    }
    shows!(&store, |r| { r.state_list("a.", "a.b", 9)? => [state("a.c", json!("a.c"))]; });
}
