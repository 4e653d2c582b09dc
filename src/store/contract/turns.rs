//! Turns, journals and prompts.

use super::tools::*;

// covers: LOOP-04
pub(super) async fn turns_round_trip(store: Bench) {
    let full = || {
        let cause = ParkCause::Budget { scope: Scope::World };
        let parked = Parked { cause, reason: "spent".to_owned(), since: at(9), wait_mode: WaitMode::Ready, alone: 2 };
        with(
            turn(1, "a", TurnStatus::Split),
            json!({
                "incarnation": 2, "other_roots": [root_id(3), root_id(2)], "hop": 5, "source": "operator",
                "reason": AWKWARD, "model": "m", "rounds": 3, "calls": 4, "input_tokens": LARGE, "output_tokens": LARGE,
                "cost": LARGE, "unpriced_tokens": LARGE, "held": reservation(7), "text": AWKWARD, "truncated": true,
                "crashes": 2, "boot_mark": 6, "stalled_boots": 1, "parked": parked,
            }),
        )
    };
    put!(&store, { turn_put: turn(1, "a", TurnStatus::Open), full(); });
    shows!(&store, |r| {
        r.turn_get(turn_id(1))? => Some(full());
        r.turn_get(turn_id(2))? => None;
    });
}

pub(super) async fn open_turns_are_found(store: Bench) {
    let by_operator = |n, agent| Turn { source: "operator".to_owned(), ..turn(n, agent, TurnStatus::Open) };
    let open = |n| turn(n, "a", TurnStatus::Open);
    put!(&store, { turn_put: open(5), by_operator(3, "a"), by_operator(4, "b"), turn(1, "a", TurnStatus::Finished); });
    shows!(&store, |r| {
        r.turn_open_of(&id_of("a"))? => Some(open(5));
        r.turn_open_of(&id_of("b"))? => None;
        r.turns_open()? => [by_operator(3, "a"), by_operator(4, "b"), open(5)];
    });
    put!(&store, { turn_put: turn(5, "a", TurnStatus::Dead); });
    shows!(&store, |r| { r.turn_open_of(&id_of("a"))? => None; });
    put!(&store, { turn_put: open(6); });
    shows!(&store, |r| {
        r.turn_open_of(&id_of("a"))? => Some(open(6));
        r.turns_open()? => [by_operator(3, "a"), by_operator(4, "b"), open(6)];
    });
}

async fn found(store: &Store, filter: TurnFilter) -> Vec<TurnId> {
    map_rows(&reading!(store, |r| { r.turn_list(&filter)? }), |turn| turn.turn_id)
}

pub(super) async fn turns_of_a_root_are_listed(store: Bench) {
    let other = Turn { root_id: root_id(7), ..turn(6, "b", TurnStatus::Finished) };
    let took = || Turn { other_roots: vec![root_id(8), root_id(7)], ..turn(5, "b", TurnStatus::Open) };
    let of = |root| TurnFilter { root_id: Some(root_id(root)), ..TurnFilter::default() };
    put!(&store, { turn_put: other, took(); });
    assert_eq!(found(&store, of(7)).await, [6, 5].map(turn_id));
    assert_eq!(found(&store, of(8)).await, [turn_id(5)]);
    assert_eq!(found(&store, TurnFilter { status: Some(TurnStatus::Open), ..of(7) }).await, [turn_id(5)]);
    assert_eq!(found(&store, of(9)).await, []);
    // The turn returned the mail.
    put!(&store, { turn_put: Turn { other_roots: Vec::new(), ..took() }; });
    assert_eq!(found(&store, of(7)).await, [turn_id(6)]);
    // It takes mail of another root while it runs.
    put!(&store, { turn_put: Turn { other_roots: vec![root_id(9)], ..took() }; });
    assert_eq!((found(&store, of(9)).await, found(&store, of(8)).await), (vec![turn_id(5)], vec![]));
    prunes!(&store, Family::Turns, |r| { r.turn_list(&of(7))? }, { (1_000_000, 100) => 1, []; });
}

pub(super) async fn turn_lists_are_filtered(store: Bench) {
    use TurnStatus::{Failed, Finished};
    let done = |n, agent| turn(n, agent, Finished);
    put!(&store, { turn_put: done(3, "a"), turn(1, "a", Failed), done(4, "b"), done(2, "a"); });
    let (any, agent_id) = (TurnFilter::default, Some(id_of("a")));
    for (filter, wanted) in [
        (any(), &[4, 3, 2, 1][..]),
        (TurnFilter { agent_id: agent_id.clone(), ..any() }, &[3, 2, 1]),
        (TurnFilter { status: Some(Failed), ..any() }, &[1]),
        (TurnFilter { before: Some(at(3)), ..any() }, &[2, 1]),
        (TurnFilter { agent_id, status: Some(Finished), before: Some(at(9)), limit: 1, ..any() }, &[3]),
    ] {
        assert_eq!(found(&store, filter.clone()).await, map_rows(wanted, |n| turn_id(*n)), "{filter:?}");
    }
    keep!(&store, |w| {
        for n in 5..=1_005 {
            w.turn_put(&turn(n, "a", TurnStatus::Finished))?;
        }
    });
    assert_eq!(found(&store, any()).await.len(), 100);
    assert_eq!(found(&store, TurnFilter { limit: u32::MAX, ..any() }).await.len(), 1_000);
}

/// One step of each kind.
fn steps() -> Vec<Step> {
    let all = json!([
        briefed("s", "b"),
        { "step": "mail_joined", "messages": [message_id(2), message_id(1)] },
        { "step": "model_started", "model": "m", "reservation_id": reservation_id(1) },
        {
            "step": "model_answered", "model": "m", "stop": "max_tokens",
            "blocks": [
                { "type": "thinking", "text": AWKWARD },
                { "type": "tool_call", "id": "1", "name": "x", "arguments": { "a": [1, null, AWKWARD] } },
            ],
            "usage": { "input": LARGE, "output": 1, "cache_read": 2, "cache_write": 3 },
        },
        { "step": "model_failed", "model": "m", "error": AWKWARD },
        { "step": "passed_over", "model": "m", "why": AWKWARD },
        { "step": "shortened", "model": "m", "context": 4_096 },
        { "step": "state_dropped", "model": "m" },
        { "step": "images_dropped", "model": "m" },
        {
            "step": "call_started", "call_id": call_id(1), "id": "1", "tool": "workspace.write", "effect": "file",
            "file": [{ "path": "a", "before": null, "after": "00" }], "ask_id": ask_id(1),
        },
        {
            "step": "call_finished", "call_id": call_id(1), "id": "1", "tool": "workspace.write",
            "outcome": {
                "content": { "ok": false }, "refusal": Refusal::new(Code::PathDenied, "no").hint("elsewhere"),
                "truncated": true, "failed": Code::ExecFailed, "cost": 7, "saved": "agents/a/tool-results/1.txt",
                "images": [{
                    "path": "agents/a/shot.png", "media_type": MediaType::Png, "sha256": "00", "bytes": 7, "width": 1,
                    "height": 1,
                }],
            },
        },
        note(AWKWARD),
    ]);
    let steps: Vec<Step> = row(all.clone());
    assert_eq!(json!(steps), all, "the steps have each of the fields");
    steps
}

// covers: LOOP-04
pub(super) async fn journals_are_in_order(store: Bench) {
    for (n, step) in steps().into_iter().enumerate() {
        let n = u64::try_from(n).unwrap();
        // Times decrease, and another turn writes in between. Neither changes the order.
        keep!(&store, |w| {
            w.journal_append(turn_id(1), &step, at(100 - n))?;
            w.journal_append(turn_id(2), &note("other"), at(n))?;
            assert_eq!(u64::try_from(w.journal_of(turn_id(1))?.len()).unwrap(), n + 1);
        });
    }
    let [one, two, none] = reading!(&store, |r| { [1, 2, 3].map(|n| r.journal_of(turn_id(n)).unwrap()) });
    assert_eq!(map_rows(&one, |row| row.step.clone()), steps());
    assert!(one.iter().all(|row| row.turn_id == turn_id(1)));
    assert_eq!((one[0].at, one[7].at), (at(100), at(93)));
    assert!(one.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert_eq!((two.len(), none.len()), (steps().len(), 0));
}

pub(super) async fn prompts_are_stored_once(store: Bench) {
    for (hash, text, second) in [("h1", AWKWARD, 1), ("h1", "another", 2), ("h1", "a third", 3), ("h2", "", 3)] {
        keep!(&store, |w| { w.prompt_put(hash, text, at(second))? });
    }
    shows!(&store, |r| {
        r.prompt_get("h1")?.as_deref() => Some(AWKWARD);
        r.prompt_get("h2")?.as_deref() => Some("");
        r.prompt_get("h3")? => None;
    });
}
