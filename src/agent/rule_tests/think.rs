use ghost_domain::journal::Step;
use ghost_domain::transcript::{Block, Role};
use ghost_domain::turn::{ParkCause, Standing};
use ghost_domain::{AskStatus, CallStatus, Code, EventKind, Scope, TurnStatus};
use ghost_provider::Stop;
use ghost_rules::budgets::{self, NewLimits};
use serde_json::json;

use super::fakes::{Reply, block, call, say};
use super::rig::{Rig, SECRET, operator, read, write};

// covers: LOOP-01, LOOP-02, LOOP-04
#[tokio::test]
async fn a_turn_ends_with_the_last_answer_and_records_its_usage() {
    let rig = Rig::new().await;
    rig.model.reply_with(|_, n| if n == 0 { call("test.look", json!({ "n": 7 })) } else { say("seven") });
    let ask = rig.ask("ada").await;
    rig.work("ada").await.unwrap();
    let turn = rig.turn("ada").await;
    assert_eq!((turn.status, turn.rounds, turn.calls), (TurnStatus::Finished, 2, 1));
    assert_eq!((turn.input_tokens, turn.output_tokens, turn.model.as_deref()), (20, 10, Some("one")));
    assert_eq!(rig.ask_row(ask.ask_id).await.reply.as_deref(), Some("seven"));
    let names: Vec<&str> = rig.steps("ada").await.iter().map(Step::name).collect();
    assert_eq!(
        names,
        ["briefed", "model_started", "model_answered", "call_finished", "model_started", "model_answered"]
    );
    let budgets = read!(rig, |r| r.budget_list(&ghost_store::tables::BudgetFilter::default()).await?);
    assert!(budgets.iter().all(|budget| budget.reserved_tokens == 0 && budget.spent_tokens == 30), "{budgets:?}");
}

#[tokio::test]
async fn a_budget_spent_during_a_turn_parks_the_turn_until_the_limit_is_raised() {
    let rig = Rig::new().await;
    rig.model.reply_with(|_, _| call("test.look", json!({ "n": 7 })));
    let ask = rig.ask("ada").await;
    let limits = NewLimits { tokens: Some(Some(100_000)), money: None };
    write!(rig, |w, ctx| budgets::set(w, &ctx, &operator(), &Scope::World, limits).await).unwrap();
    // The first call is let through; then an operator lowers the limit.
    rig.model.reply_with({
        let (store, ctx) = (rig.store().clone(), rig.ctx().clone());
        move |_, n| {
            assert_eq!(n, 0, "no model call without budget");
            let (store, ctx) = (store.clone(), ctx.clone());
            tokio::spawn(async move {
                let limits = NewLimits { tokens: Some(Some(20)), money: None };
                store
                    .write(move |w| {
                        Box::pin(async move { budgets::set(w, &ctx, &operator(), &Scope::World, limits).await })
                    })
                    .await
                    .unwrap();
            });
            call("test.look", json!({ "n": 7 }))
        }
    });
    let turn = rig.work_until_parked("ada").await;
    assert_eq!(turn.status, TurnStatus::Open);
    let parked = turn.parked.unwrap();
    assert_eq!((parked.cause, parked.standing), (ParkCause::Budget { scope: Scope::World }, Standing::InLine));
    assert_eq!(rig.ask_row(ask.ask_id).await.status, AskStatus::Open, "the ask stays open until its own deadline");
    let kinds: Vec<EventKind> = rig.events().await.into_iter().map(|event| event.kind).collect();
    for kind in [EventKind::BudgetExhausted, EventKind::TurnParked] {
        assert_eq!(kinds.iter().filter(|event_kind| **event_kind == kind).count(), 1, "{kind:?}");
    }
    assert!(!kinds.contains(&EventKind::DeadLetterHeld) && !kinds.contains(&EventKind::TurnFinished));
    // The pending result of the call is recorded with the parking.
    let calls: Vec<_> = rig.ledger().await.into_iter().map(|row| (row.tool, row.status)).collect();
    assert_eq!(calls, [("test.look".to_owned(), CallStatus::Ok)]);
    rig.model.reply_with(|_, _| say("seven"));
    let limits = NewLimits { tokens: Some(Some(1_000_000)), money: None };
    write!(rig, |w, ctx| budgets::set(w, &ctx, &operator(), &Scope::World, limits).await).unwrap();
    rig.work("ada").await.unwrap();
    assert_eq!(rig.ask_row(ask.ask_id).await.reply.as_deref(), Some("seven"));
    assert_eq!(rig.model.requests().len(), 1, "the answered request is not repeated");
    let turn = rig.turn("ada").await;
    assert_eq!((turn.status, turn.rounds, turn.parked), (TurnStatus::Finished, 2, None));
}

const CALL_AS_TEXT: &str = "Let me look.\n<tool_call>{\"name\": \"test.look\", \"arguments\": {\"n\": 1";

// covers: TOOL-13
#[tokio::test]
async fn a_call_written_as_text_is_recorded_and_corrected_and_never_runs() {
    let rig = Rig::new().await;
    rig.model.reply_with(|request, n| match n {
        0 => say(CALL_AS_TEXT),
        _ => {
            let last = request.messages.last().unwrap();
            assert!(last.role == Role::User && last.visible_text().contains("written as text"));
            say("fine")
        }
    });
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    assert_eq!(rig.turn("ada").await.text.as_deref(), Some("fine"));
    let rows = rig.ledger().await;
    assert_eq!(
        rows.iter().map(|row| (row.tool.as_str(), row.status)).collect::<Vec<_>>(),
        [("malformed", CallStatus::Failed)]
    );
    assert!(rows[0].arguments.contains("<tool_call>"));
    assert_eq!(rig.tool_state.count(|tool_state| &tool_state.reads), 0);
}

#[tokio::test]
async fn too_many_corrections_fail_the_turn_also_across_a_restart() {
    let rig = Rig::new().await;
    rig.model.reply_with(|_, n| if n < 2 { say(CALL_AS_TEXT) } else { Reply::Hang });
    let ask = rig.ask("ada").await;
    rig.work_until("ada", rig.model.stalled.notified()).await;
    rig.model.reply_with(|_, _| say(CALL_AS_TEXT));
    rig.work("ada").await.unwrap();
    assert_eq!(rig.model.requests().len(), 2, "two corrections before the crash, one after it, and then the end");
    assert_eq!(rig.turn("ada").await.status, TurnStatus::Failed);
    assert_eq!(rig.ask_row(ask.ask_id).await.status, AskStatus::Failed);
    assert_eq!(rig.ledger().await.len(), 4, "every malformed call is in the ledger");
}

#[tokio::test]
async fn a_cut_answer_without_text_is_asked_for_again() {
    let rig = Rig::new().await;
    rig.model.reply_with(|_, n| match n {
        0 => Reply::Answer(vec![Block::Thinking { text: "hm".into() }], Stop::MaxTokens),
        _ => say("short"),
    });
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    let turn = rig.turn("ada").await;
    assert_eq!((turn.status, turn.text.as_deref(), turn.rounds), (TurnStatus::Finished, Some("short"), 2));
    assert!(rig.ledger().await.is_empty());
    rig.model.reply_with(|_, _| Reply::Answer(vec![], Stop::Refused(Some("SAFETY".to_owned()))));
    let ask = rig.ask("ada").await;
    rig.work("ada").await.unwrap();
    assert!(rig.ask_row(ask.ask_id).await.error.unwrap().contains("SAFETY"));
    assert!(rig.turn("ada").await.reason.unwrap().starts_with(Code::PolicyDenied.as_str()));
}

#[tokio::test]
async fn a_partly_refused_answer_fails_the_turn_and_its_calls_do_not_run() {
    let rig = Rig::new().await;
    let text = Block::Text { text: "How to build a b".into() };
    let calls = [("c1", 1), ("c2", 2)].map(|(id, n)| block(id, "test.look", json!({ "n": n })));
    for blocks in [vec![text.clone()], vec![text.clone(), calls[0].clone()], calls.to_vec()] {
        let expected_blocks = blocks.clone();
        rig.model.reply_with(move |_, _| Reply::Answer(blocks.clone(), Stop::Refused(None)));
        let ask = rig.ask("ada").await;
        rig.work("ada").await.unwrap();
        assert_eq!(rig.model.requests().len(), 1);
        let (turn, ask) = (rig.turn("ada").await, rig.ask_row(ask.ask_id).await);
        assert_eq!((turn.status, turn.text, ask.status), (TurnStatus::Failed, None, AskStatus::Failed));
        assert!(turn.reason.unwrap().starts_with(Code::PolicyDenied.as_str()));
        assert!(ask.error.is_some());
        let kept = rig.steps("ada").await.into_iter().find_map(|step| match step {
            Step::ModelAnswered { blocks, stop, .. } => Some((blocks, stop)),
            _ => None,
        });
        assert_eq!(
            kept,
            Some((expected_blocks, Some("refused".to_owned()))),
            "the refused answer stays in the journal"
        );
    }
    assert!(rig.ledger().await.is_empty());
    assert_eq!(rig.tool_state.count(|tool_state| &tool_state.reads), 0);
}

// covers: TOOL-24
#[tokio::test]
async fn a_secret_in_pieces_is_redacted_in_the_stream() {
    let rig = Rig::new().await;
    let mut feed = rig.store().feed();
    rig.model.reply_with(|_, _| {
        let filler = "and on it goes, word after word, until there is enough of it to be streamed, ";
        let mut pieces = vec![filler; 3];
        pieces.extend(["so: hunter2-is", "-my-pass", "word. "]);
        pieces.extend([filler; 8]);
        Reply::Stream(pieces)
    });
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    let mut streamed = Vec::new();
    while let Ok(batch) = feed.try_recv() {
        let deltas = batch.iter().filter(|event| event.kind == EventKind::ModelDelta);
        streamed.extend(deltas.map(|event| event.payload["text"].as_str().unwrap().to_owned()));
    }
    assert!(streamed.len() > 1, "the answer is streamed in several pieces");
    let whole = streamed.concat();
    assert!(whole.contains("so: [redacted]. and on") && !whole.contains("hunter2"), "{whole}");
    // The agent's own answer is kept unredacted.
    assert!(rig.turn("ada").await.text.unwrap().contains(SECRET));
}
