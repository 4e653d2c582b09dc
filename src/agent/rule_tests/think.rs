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
async fn a_turn_ends_with_the_last_words_and_records_what_it_took() {
    let rig = Rig::new().await;
    rig.model.does(|_, n| if n == 0 { call("test.look", json!({ "n": 7 })) } else { say("seven") });
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
    let held = read!(rig, |r| r.budget_list(&ghost_store::tables::BudgetFilter::default()).await?);
    assert!(held.iter().all(|budget| budget.reserved_tokens == 0 && budget.spent_tokens == 30), "{held:?}");
}

#[tokio::test]
async fn a_budget_that_is_spent_in_mid_turn_parks_it_until_someone_raises_it() {
    let rig = Rig::new().await;
    rig.model.does(|_, _| call("test.look", json!({ "n": 7 })));
    let ask = rig.ask("ada").await;
    let limits = NewLimits { tokens: Some(Some(100_000)), money: None };
    write!(rig, |w, ctx| budgets::set(w, &ctx, &operator(), &Scope::World, limits).await).unwrap();
    // The first call is let through; then someone lowers the limit.
    rig.model.does({
        let (store, ctx) = (rig.store().clone(), rig.ctx().clone());
        move |_, n| {
            assert_eq!(n, 0, "what cannot be paid is not asked");
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
    let turn = rig.parks("ada").await;
    assert_eq!(turn.status, TurnStatus::Open);
    let parked = turn.parked.unwrap();
    assert_eq!((parked.cause, parked.standing), (ParkCause::Budget { scope: Scope::World }, Standing::InLine));
    assert_eq!(rig.ask_row(ask.ask_id).await.status, AskStatus::Open, "it ends by its own deadline");
    let kinds: Vec<EventKind> = rig.events().await.into_iter().map(|event| event.kind).collect();
    for kind in [EventKind::BudgetExhausted, EventKind::TurnParked] {
        assert_eq!(kinds.iter().filter(|told| **told == kind).count(), 1, "{kind:?}");
    }
    assert!(!kinds.contains(&EventKind::DeadLetterHeld) && !kinds.contains(&EventKind::TurnFinished));
    // The result that was to be recorded with the refused question is recorded with the parking.
    let calls: Vec<_> = rig.ledger().await.into_iter().map(|row| (row.tool, row.status)).collect();
    assert_eq!(calls, [("test.look".to_owned(), CallStatus::Ok)]);
    rig.model.does(|_, _| say("seven"));
    let limits = NewLimits { tokens: Some(Some(1_000_000)), money: None };
    write!(rig, |w, ctx| budgets::set(w, &ctx, &operator(), &Scope::World, limits).await).unwrap();
    rig.work("ada").await.unwrap();
    assert_eq!(rig.ask_row(ask.ask_id).await.reply.as_deref(), Some("seven"));
    assert_eq!(rig.model.asked().len(), 1, "what was answered is not asked for again");
    let turn = rig.turn("ada").await;
    assert_eq!((turn.status, turn.rounds, turn.parked), (TurnStatus::Finished, 2, None));
}

const WRITTEN: &str = "Let me look.\n<tool_call>{\"name\": \"test.look\", \"arguments\": {\"n\": 1";

// covers: TOOL-13
#[tokio::test]
async fn a_call_written_as_text_is_recorded_and_corrected_and_never_runs() {
    let rig = Rig::new().await;
    rig.model.does(|request, n| match n {
        0 => say(WRITTEN),
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
    assert_eq!(rig.probe.of(|probe| &probe.reads), 0);
}

#[tokio::test]
async fn a_model_that_cannot_be_corrected_fails_the_turn_over_restarts_too() {
    let rig = Rig::new().await;
    rig.model.does(|_, n| if n < 2 { say(WRITTEN) } else { Reply::Hang });
    let ask = rig.ask("ada").await;
    rig.work_until("ada", rig.model.hung.notified()).await;
    rig.model.does(|_, _| say(WRITTEN));
    rig.work("ada").await.unwrap();
    assert_eq!(rig.model.asked().len(), 2, "two corrections before the crash, one after it, and then the end");
    assert_eq!(rig.turn("ada").await.status, TurnStatus::Failed);
    assert_eq!(rig.ask_row(ask.ask_id).await.status, AskStatus::Failed);
    assert_eq!(rig.ledger().await.len(), 4, "none is lost from sight");
}

#[tokio::test]
async fn an_answer_that_was_cut_before_it_said_anything_is_asked_for_again() {
    let rig = Rig::new().await;
    rig.model.does(|_, n| match n {
        0 => Reply::Say(vec![Block::Thinking { text: "hm".into() }], Stop::MaxTokens),
        _ => say("short"),
    });
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    let turn = rig.turn("ada").await;
    assert_eq!((turn.status, turn.text.as_deref(), turn.rounds), (TurnStatus::Finished, Some("short"), 2));
    assert!(rig.ledger().await.is_empty());
    rig.model.does(|_, _| Reply::Say(vec![], Stop::Refused(Some("SAFETY".to_owned()))));
    let ask = rig.ask("ada").await;
    rig.work("ada").await.unwrap();
    assert!(rig.ask_row(ask.ask_id).await.error.unwrap().contains("refused to answer (SAFETY)"));
    assert!(rig.turn("ada").await.reason.unwrap().starts_with(Code::PolicyDenied.as_str()));
}

#[tokio::test]
async fn an_answer_that_was_refused_half_way_is_none_and_its_calls_do_not_run() {
    let rig = Rig::new().await;
    let words = Block::Text { text: "How to build a b".into() };
    let calls = [("c1", 1), ("c2", 2)].map(|(id, n)| block(id, "test.look", json!({ "n": n })));
    for blocks in [vec![words.clone()], vec![words.clone(), calls[0].clone()], calls.to_vec()] {
        let said = blocks.clone();
        rig.model.does(move |_, _| Reply::Say(blocks.clone(), Stop::Refused(None)));
        let ask = rig.ask("ada").await;
        rig.work("ada").await.unwrap();
        assert_eq!(rig.model.asked().len(), 1);
        let (turn, ask) = (rig.turn("ada").await, rig.ask_row(ask.ask_id).await);
        assert_eq!((turn.status, turn.text, ask.status), (TurnStatus::Failed, None, AskStatus::Failed));
        assert!(turn.reason.unwrap().starts_with(Code::PolicyDenied.as_str()));
        assert!(ask.error.unwrap().contains("refused to go on"));
        let kept = rig.steps("ada").await.into_iter().find_map(|step| match step {
            Step::ModelAnswered { blocks, stop, .. } => Some((blocks, stop)),
            _ => None,
        });
        assert_eq!(kept, Some((said, Some("refused".to_owned()))), "what it said stays in the record");
    }
    assert!(rig.ledger().await.is_empty());
    assert_eq!(rig.probe.of(|probe| &probe.reads), 0);
}

// covers: TOOL-24
#[tokio::test]
async fn what_is_streamed_shows_no_secret_that_came_in_pieces() {
    let rig = Rig::new().await;
    let mut feed = rig.store().feed();
    rig.model.does(|_, _| {
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
    assert!(streamed.len() > 1, "it is streamed while it is made");
    let whole = streamed.concat();
    assert!(whole.contains("so: [redacted]. and on") && !whole.contains("hunter2"), "{whole}");
    // What the agent itself said is kept as it was said.
    assert!(rig.turn("ada").await.text.unwrap().contains(SECRET));
}
