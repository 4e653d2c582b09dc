use super::*;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::{CallId, Timestamp, TurnId};
use proptest::prelude::*;

fn outcome(n: u8) -> CallOutcome {
    CallOutcome { content: json!({ "n": n }), refusal: None, truncated: false, ..CallOutcome::default() }
}

const LOOK: Nature = Nature { looks: true, passing: &["time"] };
const ACT: Nature = Nature { looks: false, passing: &[] };

fn call<'a>(tool: &'a str, arguments: &'a Value) -> Call<'a> {
    Call { tool, arguments, nature: ACT }
}

/// Makes a call as a turn does: checked first, observed if it runs.
fn make_call(guard: &mut LoopGuard, call: Call<'_>, content: Value) -> Verdict {
    match guard.before(call) {
        Verdict::Fine => {
            guard.observe(call, &CallOutcome { content, refusal: None, truncated: false, ..CallOutcome::default() })
        }
        verdict => verdict,
    }
}

/// Makes one reading call in each of `answers` answers. `look` gives its tool, arguments and
/// outcome. Returns the verdicts, each with the number of its answer.
fn poll(answers: u32, read: impl Fn(u32) -> (&'static str, Value, Value)) -> Vec<(u32, &'static str)> {
    let (mut guard, mut said) = (LoopGuard::new(&Limits::default()), Vec::new());
    for n in 1..=answers {
        guard.answered();
        let (tool, arguments, outcome) = read(n);
        match make_call(&mut guard, Call { tool, arguments: &arguments, nature: LOOK }, outcome) {
            Verdict::Fine => {}
            Verdict::Warn(_) => said.push((n, "warn")),
            Verdict::Block(_) => said.push((n, "block")),
            Verdict::Stop(_) => {
                said.push((n, "stop"));
                break;
            }
        }
    }
    said
}

/// The verdicts for an endless loop: the thresholds of TOOL-21.
fn all_verdicts() -> Vec<(u32, &'static str)> {
    let blocks = (20..30).map(|n| (n, "block"));
    [(10, "warn"), (15, "warn")].into_iter().chain(blocks).chain([(30, "stop")]).collect()
}

#[test]
fn passing_time_is_not_progress() {
    assert_eq!(
        poll(60, |n| ("status", json!({}), json!({ "time": n, "queue": 0, "in": { "time": n } }))),
        all_verdicts()
    );
    assert_eq!(poll(60, |n| ("status", json!({}), json!({ "time": 1, "queue": n }))), []);
}

// covers: TOOL-21
#[test]
fn reading_the_same_in_different_amounts_is_a_loop() {
    assert_eq!(
        poll(60, |n| ("list", json!({ "path": "a", "limit": 500 - n, "all": n % 2 == 0 }), json!(["b"]))),
        all_verdicts()
    );
    // Three files in turn, and nothing changes: only the first read of each was new.
    let round = poll(60, |n| ("read", json!({ "path": (n % 3).to_string() }), json!("empty")));
    assert_eq!(round.iter().find(|(_, said)| *said == "block"), Some(&(22, "block")));
    assert_eq!(round.last(), Some(&(32, "stop")));
}

#[test]
fn reading_different_things_is_not_a_loop_even_if_they_are_equal() {
    assert_eq!(poll(200, |n| ("tasks", json!({ "owner": format!("a{n}") }), json!([]))), []);
}

#[test]
fn a_change_or_other_work_resets_the_poll_count() {
    assert_eq!(poll(200, |n| ("task", json!({ "n": n }), json!(n / 9))), []);
    let mut guard = LoopGuard::new(&Limits::default());
    for n in 0..100_u32 {
        guard.answered();
        let arguments = json!({ "n": n });
        assert_eq!(
            make_call(&mut guard, Call { tool: "look", arguments: &arguments, nature: LOOK }, json!(0)),
            Verdict::Fine
        );
        if n % 9 == 8 {
            assert_eq!(make_call(&mut guard, call("write", &arguments), json!(0)), Verdict::Fine);
        }
    }
}

#[test]
fn many_reads_in_one_answer_count_once_and_something_new_resets_the_count() {
    let mut guard = LoopGuard::new(&limits(2, 3, 5));
    let mut answer = |looks: &[(&str, u32)]| {
        guard.answered();
        let mut verdicts = Vec::new();
        for (path, n) in looks {
            let arguments = json!({ "path": path, "n": n });
            verdicts.push(make_call(
                &mut guard,
                Call { tool: "list", arguments: &arguments, nature: LOOK },
                json!(path),
            ));
        }
        verdicts
    };
    let fine = |verdicts: &[Verdict]| verdicts.iter().all(|verdict| *verdict == Verdict::Fine);
    let all: Vec<(&str, u32)> = (0..20).map(|n| ("a", n)).collect();
    assert!(fine(&answer(&all)));
    assert!(matches!(answer(&[("a", 20), ("a", 21)]).as_slice(), [Verdict::Warn(_), Verdict::Fine]));
    assert!(matches!(answer(&[("a", 22)]).as_slice(), [Verdict::Block(_)]), "it ran, and is the last that did");
    let blocked = answer(&[("a", 23), ("a", 24)]);
    for verdict in &blocked {
        let Verdict::Block(refusal) = verdict else { panic!("{verdict:?}") };
        assert!(refusal.message.contains('4'), "{refusal}");
    }
    assert!(fine(&answer(&[("b", 1)])), "what was not looked at is let through");
    assert!(fine(&answer(&[("c", 1), ("a", 25)])), "and what it shows begins anew");
}

fn limits(warn: u32, block: u32, stop: u32) -> Limits {
    Limits { loop_warn: warn, loop_block: block, loop_stop: stop, ..Limits::default() }
}

// covers: LIM-39, TOOL-21
#[test]
fn the_same_call_with_the_same_outcome_warns_blocks_and_stops() {
    let mut guard = LoopGuard::new(&Limits::default());
    let mut seen = Vec::new();
    for n in 1..=40 {
        let verdict = match guard.before(call("t", &json!({ "a": 1, "b": 2 }))) {
            Verdict::Fine => guard.observe(call("t", &json!({ "b": 2, "a": 1 })), &outcome(0)),
            verdict => verdict,
        };
        match verdict {
            Verdict::Fine => {}
            Verdict::Warn(_) => seen.push((n, "warn")),
            Verdict::Block(_) => seen.push((n, "block")),
            Verdict::Stop(refusal) => {
                assert_eq!(refusal.code, Code::LoopGuard);
                seen.push((n, "stop"));
                break;
            }
        }
    }
    assert_eq!(seen, all_verdicts());
}

#[test]
fn progress_is_never_a_loop() {
    let mut guard = LoopGuard::new(&Limits::default());
    for n in 0..200_u8 {
        assert_eq!(guard.before(call("poll", &json!({}))), Verdict::Fine);
        assert_eq!(guard.observe(call("poll", &json!({})), &outcome(n)), Verdict::Fine);
    }
}

// covers: TOOL-21
#[test]
fn two_alternating_calls_are_detected() {
    let mut guard = LoopGuard::new(&limits(6, 8, 10));
    let mut verdicts = Vec::new();
    for n in 0..8_u32 {
        verdicts.push(guard.observe(call(if n % 2 == 0 { "a" } else { "b" }, &json!({})), &outcome(0)));
    }
    assert!(matches!(verdicts[4], Verdict::Fine));
    assert!(matches!(&verdicts[5], Verdict::Warn(words) if words.contains('6')));
    assert!(matches!(verdicts[7], Verdict::Block(_)));
    assert!(matches!(guard.before(call("c", &json!({}))), Verdict::Fine));
    assert!(matches!(guard.before(call("a", &json!({}))), Verdict::Block(_)));
}

/// One of the two tools only reads.
fn nature(tool: &str, _: &Value) -> Nature {
    if tool == "t1" { LOOK } else { ACT }
}

fn journal(calls: &[(u8, u8)], limits: &Limits) -> (Vec<JournalRow>, LoopGuard, Vec<Verdict>) {
    let mut guard = LoopGuard::new(limits);
    let (mut rows, mut verdicts) = (Vec::new(), Vec::new());
    for (n, (call, result)) in calls.iter().enumerate() {
        let (tool, arguments, id) = (format!("t{}", call % 2), json!({ "n": call / 2 }), format!("c{n}"));
        guard.answered();
        let make_call = Call { tool: &tool, arguments: &arguments, nature: nature(&tool, &arguments) };
        let (verdict, left) = match guard.before(make_call) {
            Verdict::Fine => {
                let left = outcome(*result);
                (guard.observe(make_call, &left), left)
            }
            Verdict::Block(refusal) | Verdict::Stop(refusal) => {
                let left = CallOutcome {
                    content: Value::Null,
                    refusal: Some(refusal.clone()),
                    truncated: false,
                    ..CallOutcome::default()
                };
                (Verdict::Block(refusal), left)
            }
            Verdict::Warn(_) => unreachable!("nothing warns before a call"),
        };
        verdicts.push(verdict);
        let steps = [
            Step::ModelAnswered {
                model: "m".into(),
                blocks: vec![Block::ToolCall { id: id.clone(), name: tool.clone(), arguments }],
                usage: TokenUsage::default(),
                stop: None,
            },
            Step::CallFinished { call_id: CallId(uuid::Uuid::nil()), id, tool, outcome: left },
        ];
        let turn_id = TurnId(uuid::Uuid::nil());
        rows.extend(steps.into_iter().map(|step| JournalRow { turn_id, seq: 0, step, at: Timestamp(0) }));
    }
    (rows, guard, verdicts)
}

proptest! {
    #[test]
    fn a_replayed_guard_equals_the_original(calls in prop::collection::vec((0u8..4, 0u8..2), 0..80)) {
        let limits = limits(3, 5, 8);
        let (rows, guard, _) = journal(&calls, &limits);
        prop_assert_eq!(LoopGuard::replay(&limits, &rows, &nature), guard);
    }

    #[test]
    fn there_is_no_verdict_below_the_first_limit(calls in prop::collection::vec((0u8..6, 0u8..3), 0..9)) {
        let (_, _, verdicts) = journal(&calls, &Limits::default());
        prop_assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Fine));
    }

    #[test]
    fn memory_is_limited_and_an_endless_loop_always_ends(warn in 2u32..20, block in 2u32..40, stop in 2u32..60) {
        let limits = limits(warn, block, stop);
        let mut guard = LoopGuard::new(&limits);
        let mut ended = false;
        for _ in 0..200 {
            let verdict = make_call(&mut guard, call("t", &Value::Null), Value::Null);
            prop_assert!(guard.recent.len() <= 60);
            ended |= matches!(verdict, Verdict::Stop(_));
        }
        prop_assert!(ended);
    }
}
