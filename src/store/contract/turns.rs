//! Turns, journals and prompts.

use ghost_domain::journal::{CallOutcome, Effect, FilePlan, Step};
use ghost_domain::transcript::{Block, TokenUsage};
use ghost_domain::turn::{ParkCause, Parked, WaitMode};
use ghost_domain::{Code, Money, Refusal, Scope, Turn, TurnId, TurnStatus};
use serde_json::json;

use super::tools::*;
use crate::Store;
use crate::tables::{Family, TurnFilter};

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
    keep!(&store, |w| {
        w.turn_put(&turn(1, "a", TurnStatus::Open))?;
        assert_eq!(w.turn_get(turn_id(1))?, Some(turn(1, "a", TurnStatus::Open)));
        w.turn_put(&full())?;
        assert_eq!(w.turn_get(turn_id(1))?.as_ref(), Some(&full()));
    });
    assert_eq!(reading!(&store, |r| { r.turn_get(turn_id(1))? }), Some(full()));
    assert_eq!(reading!(&store, |r| { r.turn_get(turn_id(2))? }), None);
}

pub(super) async fn open_turns_are_found(store: Bench) {
    let by_operator = |n, agent| Turn { source: "operator".to_owned(), ..turn(n, agent, TurnStatus::Open) };
    keep!(&store, |w| {
        w.turn_put(&turn(5, "a", TurnStatus::Open))?;
        w.turn_put(&by_operator(3, "a"))?;
        w.turn_put(&by_operator(4, "b"))?;
        w.turn_put(&turn(1, "a", TurnStatus::Finished))?;
        assert_eq!(w.turn_open_of(&id_of("a"))?, Some(turn(5, "a", TurnStatus::Open)));
        assert_eq!(w.turn_open_of(&id_of("b"))?, None);
    });
    let (of_a, of_b, open) =
        reading!(&store, |r| { (r.turn_open_of(&id_of("a"))?, r.turn_open_of(&id_of("b"))?, r.turns_open()?) });
    assert_eq!((of_a, of_b), (Some(turn(5, "a", TurnStatus::Open)), None));
    assert_eq!(map_rows(&open, |turn| turn.turn_id), [turn_id(3), turn_id(4), turn_id(5)]);

    keep!(&store, |w| {
        w.turn_put(&turn(5, "a", TurnStatus::Dead))?;
        assert_eq!(w.turn_open_of(&id_of("a"))?, None);
        w.turn_put(&turn(6, "a", TurnStatus::Open))?;
    });
    let inside = keep!(&store, |w| { (w.turn_open_of(&id_of("a"))?, w.turns_open()?) });
    assert_eq!(inside.0, Some(turn(6, "a", TurnStatus::Open)));
    assert_eq!(map_rows(&inside.1, |turn| turn.turn_id), [turn_id(3), turn_id(4), turn_id(6)]);
}

async fn found(store: &Store, filter: TurnFilter) -> Vec<TurnId> {
    map_rows(&reading!(store, |r| { r.turn_list(&filter)? }), |turn| turn.turn_id)
}

pub(super) async fn turns_of_a_root_are_listed(store: Bench) {
    let other = Turn { root_id: root_id(7), ..turn(6, "b", TurnStatus::Finished) };
    let took = || Turn { other_roots: vec![root_id(8), root_id(7)], ..turn(5, "b", TurnStatus::Open) };
    let of = |root| TurnFilter { root_id: Some(root_id(root)), ..TurnFilter::default() };
    keep!(&store, |w| {
        w.turn_put(&other)?;
        w.turn_put(&took())?;
        let found = w.turn_list(&of(7))?;
        assert_eq!(map_rows(&found, |turn| turn.turn_id), [turn_id(6), turn_id(5)], "its own writes");
    });
    assert_eq!(found(&store, of(7)).await, [6, 5].map(turn_id));
    assert_eq!(found(&store, of(8)).await, [turn_id(5)]);
    assert_eq!(found(&store, TurnFilter { status: Some(TurnStatus::Open), ..of(7) }).await, [turn_id(5)]);
    assert_eq!(found(&store, of(9)).await, []);
    // The turn returned the mail.
    keep!(&store, |w| { w.turn_put(&Turn { other_roots: Vec::new(), ..took() })? });
    assert_eq!(found(&store, of(7)).await, [turn_id(6)]);
    // It takes mail of another root while it runs.
    keep!(&store, |w| { w.turn_put(&Turn { other_roots: vec![root_id(9)], ..took() })? });
    assert_eq!((found(&store, of(9)).await, found(&store, of(8)).await), (vec![turn_id(5)], vec![]));
    keep!(&store, |w| {
        w.prune(Family::Turns, at(1_000_000), 100)?;
    });
    assert_eq!(found(&store, of(7)).await, []);
}

pub(super) async fn turn_lists_are_filtered(store: Bench) {
    keep!(&store, |w| {
        w.turn_put(&turn(3, "a", TurnStatus::Finished))?;
        w.turn_put(&turn(1, "a", TurnStatus::Failed))?;
        w.turn_put(&turn(4, "b", TurnStatus::Finished))?;
        w.turn_put(&turn(2, "a", TurnStatus::Finished))?;
    });
    let any = TurnFilter::default;
    assert_eq!(found(&store, any()).await, [4, 3, 2, 1].map(turn_id));
    assert_eq!(found(&store, TurnFilter { agent_id: Some(id_of("a")), ..any() }).await, [3, 2, 1].map(turn_id));
    assert_eq!(found(&store, TurnFilter { status: Some(TurnStatus::Failed), ..any() }).await, [turn_id(1)]);
    assert_eq!(found(&store, TurnFilter { before: Some(at(3)), ..any() }).await, [2, 1].map(turn_id));
    let narrow = TurnFilter {
        agent_id: Some(id_of("a")),
        status: Some(TurnStatus::Finished),
        before: Some(at(9)),
        limit: 1,
        ..any()
    };
    assert_eq!(found(&store, narrow).await, [turn_id(3)]);

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
    vec![
        briefed("s", "b"),
        Step::MailJoined { messages: vec![message_id(2), message_id(1)] },
        Step::ModelStarted { model: "m".to_owned(), reservation_id: reservation_id(1) },
        Step::ModelAnswered {
            model: "m".to_owned(),
            blocks: vec![
                Block::Thinking { text: AWKWARD.to_owned() },
                Block::ToolCall {
                    id: "1".to_owned(),
                    name: "x".to_owned(),
                    arguments: json!({"a": [1, null, AWKWARD]}),
                },
            ],
            usage: TokenUsage { input: LARGE, output: 1, cache_read: 2, cache_write: 3 },
            stop: Some("max_tokens".to_owned()),
        },
        Step::ModelFailed { model: "m".to_owned(), error: AWKWARD.to_owned() },
        Step::PassedOver { model: "m".to_owned(), why: AWKWARD.to_owned() },
        Step::Shortened { model: "m".to_owned(), context: 4_096 },
        Step::StateDropped { model: "m".to_owned() },
        Step::ImagesDropped { model: "m".to_owned() },
        Step::CallStarted {
            call_id: call_id(1),
            id: "1".to_owned(),
            tool: "workspace.write".to_owned(),
            effect: Effect::File,
            files: vec![FilePlan { path: "a".to_owned(), before: None, after: Some("00".to_owned()), grant_id: None }],
            ask_id: Some(ask_id(1)),
        },
        Step::CallFinished {
            call_id: call_id(1),
            id: "1".to_owned(),
            tool: "workspace.write".to_owned(),
            outcome: CallOutcome {
                content: json!({"ok": false}),
                refusal: Some(Refusal::new(Code::PathDenied, "no").hint("elsewhere")),
                truncated: true,
                failed: Some(Code::ExecFailed),
                cost: Some(Money(7)),
                saved: Some("agents/a/tool-results/1.txt".into()),
                images: Box::new([ghost_domain::ImageFile {
                    path: "agents/a/shot.png".to_owned(),
                    media_type: ghost_domain::MediaType::Png,
                    sha256: "00".to_owned(),
                    bytes: 7,
                    width: 1,
                    height: 1,
                }]),
                view_bytes: None,
            },
        },
        note(AWKWARD),
    ]
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
    let (one, two, none) =
        reading!(&store, |r| { (r.journal_of(turn_id(1))?, r.journal_of(turn_id(2))?, r.journal_of(turn_id(3))?) });
    assert_eq!(map_rows(&one, |row| row.step.clone()), steps());
    assert!(one.iter().all(|row| row.turn_id == turn_id(1)));
    assert_eq!((one[0].at, one[7].at), (at(100), at(93)));
    assert!(one.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert_eq!((two.len(), none.len()), (steps().len(), 0));
}

pub(super) async fn prompts_are_stored_once(store: Bench) {
    keep!(&store, |w| {
        w.prompt_put("h1", AWKWARD, at(1))?;
        w.prompt_put("h1", "another", at(2))?;
        assert_eq!(w.prompt_get("h1")?.as_deref(), Some(AWKWARD));
    });
    keep!(&store, |w| {
        w.prompt_put("h1", "a third", at(3))?;
        w.prompt_put("h2", "", at(3))?;
        assert_eq!(w.prompt_get("h1")?.as_deref(), Some(AWKWARD));
    });
    shows!(&store, |r| {
        r.prompt_get("h1")? => Some(AWKWARD.to_owned());
        r.prompt_get("h2")? => Some(String::new());
        r.prompt_get("h3")? => None;
    });
}
