use super::*;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::{CallId, Timestamp, TurnId};
use proptest::prelude::*;
use serde_json::json;

fn outcome(n: u8) -> CallOutcome {
    CallOutcome { content: json!({ "n": n }), refusal: None, truncated: false }
}

fn limits(warn: u32, block: u32, stop: u32) -> Limits {
    Limits { loop_warn: warn, loop_block: block, loop_stop: stop, ..Limits::default() }
}

#[test]
fn the_same_call_with_the_same_outcome_warns_blocks_and_stops() {
    let mut guard = LoopGuard::new(&Limits::default());
    let mut seen = Vec::new();
    for n in 1..=40 {
        let verdict = match guard.before("t", &json!({ "a": 1, "b": 2 })) {
            Verdict::Fine => guard.observe("t", &json!({ "b": 2, "a": 1 }), digest_of(&outcome(0))),
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
    let blocks = (20..30).map(|n| (n, "block"));
    let expected: Vec<_> = [(10, "warn"), (15, "warn")].into_iter().chain(blocks).chain([(30, "stop")]).collect();
    assert_eq!(seen, expected);
}

#[test]
fn progress_is_never_a_loop() {
    let mut guard = LoopGuard::new(&Limits::default());
    for n in 0..200_u8 {
        assert_eq!(guard.before("poll", &json!({})), Verdict::Fine);
        assert_eq!(guard.observe("poll", &json!({}), digest_of(&outcome(n))), Verdict::Fine);
    }
}

#[test]
fn ping_pong_is_found() {
    let mut guard = LoopGuard::new(&limits(6, 8, 10));
    let mut verdicts = Vec::new();
    for n in 0..8_u32 {
        verdicts.push(guard.observe(if n % 2 == 0 { "a" } else { "b" }, &json!({}), digest_of(&outcome(0))));
    }
    assert!(matches!(verdicts[4], Verdict::Fine));
    assert!(matches!(&verdicts[5], Verdict::Warn(words) if words.contains("taken turns 6 times")));
    assert!(matches!(verdicts[7], Verdict::Block(_)));
    assert!(matches!(guard.before("c", &json!({})), Verdict::Fine));
    assert!(matches!(guard.before("a", &json!({})), Verdict::Block(_)));
}

fn journal(calls: &[(u8, u8)], limits: &Limits) -> (Vec<JournalRow>, LoopGuard, Vec<Verdict>) {
    let mut guard = LoopGuard::new(limits);
    let (mut rows, mut verdicts) = (Vec::new(), Vec::new());
    for (n, (call, result)) in calls.iter().enumerate() {
        let (tool, arguments, id) = (format!("t{}", call % 2), json!({ "n": call / 2 }), format!("c{n}"));
        let (verdict, left) = match guard.before(&tool, &arguments) {
            Verdict::Fine => {
                let left = outcome(*result);
                (guard.observe(&tool, &arguments, digest_of(&left)), left)
            }
            Verdict::Block(refusal) | Verdict::Stop(refusal) => {
                let left = CallOutcome { content: Value::Null, refusal: Some(refusal.clone()), truncated: false };
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
    fn a_replayed_guard_is_the_one_that_crashed(calls in prop::collection::vec((0u8..4, 0u8..2), 0..80)) {
        let limits = limits(3, 5, 8);
        let (rows, guard, _) = journal(&calls, &limits);
        prop_assert_eq!(LoopGuard::replay(&limits, &rows).recent, guard.recent);
    }

    #[test]
    fn nothing_is_said_below_the_first_bound(calls in prop::collection::vec((0u8..6, 0u8..3), 0..9)) {
        let (_, _, verdicts) = journal(&calls, &Limits::default());
        prop_assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Fine));
    }

    #[test]
    fn memory_is_bounded_and_an_endless_loop_always_ends(warn in 2u32..20, block in 2u32..40, stop in 2u32..60) {
        let limits = limits(warn, block, stop);
        let mut guard = LoopGuard::new(&limits);
        let mut ended = false;
        for _ in 0..200 {
            let verdict = match guard.before("t", &Value::Null) {
                Verdict::Fine => guard.observe("t", &Value::Null, [0; 32]),
                verdict => verdict,
            };
            prop_assert!(guard.recent.len() <= 60);
            ended |= matches!(verdict, Verdict::Stop(_));
        }
        prop_assert!(ended);
    }
}
