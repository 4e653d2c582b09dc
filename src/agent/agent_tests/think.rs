use ghost_domain::journal::Step;
use ghost_domain::transcript::{Block, Role};
use ghost_domain::turn::{ParkCause, WaitMode};
use ghost_domain::{AskStatus, CallStatus, Code, DeadLetterStatus, EventKind, Scope, TurnStatus};
use ghost_operations::budgets::{self, NewLimits};
use ghost_operations::dead_letters;
use ghost_provider::Stop;
use ghost_provider::testing::{Reply, block, call, say};
use serde_json::json;

use super::agent_world::{AgentWorld, SECRET, operator, read, write};

// covers: LOOP-01, LOOP-02, LOOP-04
#[tokio::test]
async fn a_turn_ends_with_the_last_answer_and_records_its_usage() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| if n == 0 { call("test.look", json!({ "n": 7 })) } else { say("seven") });
    let ask = world.ask("ada").await;
    world.work("ada").await.unwrap();
    let turn = world.turn("ada").await;
    assert_eq!((turn.status, turn.rounds, turn.calls), (TurnStatus::Finished, 2, 1));
    assert_eq!((turn.input_tokens, turn.output_tokens, turn.model.as_deref()), (20, 10, Some("one")));
    assert_eq!(world.ask_row(ask.ask_id).await.reply.as_deref(), Some("seven"));
    let names: Vec<&str> = world.steps("ada").await.iter().map(Step::name).collect();
    assert_eq!(
        names,
        ["briefed", "model_started", "model_answered", "call_finished", "model_started", "model_answered"]
    );
    let budgets = read!(world, |r| r.budget_list(&ghost_store::tables::BudgetFilter::default())?);
    assert!(budgets.iter().all(|budget| budget.reserved_tokens == 0 && budget.spent_tokens == 30), "{budgets:?}");
}

#[tokio::test]
async fn a_budget_spent_during_a_turn_parks_the_turn_until_the_limit_is_raised() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| call("test.look", json!({ "n": 7 })));
    let ask = world.ask("ada").await;
    let limits = NewLimits { tokens: Some(Some(100_000)), money: None };
    write!(world, |w| budgets::set(w, &operator(), &Scope::World, limits)).unwrap();
    // The first call is let through; then an operator lowers the limit.
    world.model.reply_with({
        let (store, ctx) = (world.store().clone(), world.ctx().clone());
        move |_, n| {
            assert_eq!(n, 0, "no model call without budget");
            let (store, ctx) = (store.clone(), ctx.clone());
            tokio::spawn(async move {
                let limits = NewLimits { tokens: Some(Some(20)), money: None };
                ctx.write(&store, move |w| budgets::set(w, &operator(), &Scope::World, limits)).await.unwrap();
            });
            call("test.look", json!({ "n": 7 }))
        }
    });
    let turn = world.work_until_parked("ada").await;
    assert_eq!(turn.status, TurnStatus::Open);
    let parked = turn.parked.unwrap();
    assert_eq!((parked.cause, parked.wait_mode), (ParkCause::Budget { scope: Scope::World }, WaitMode::Blocking));
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Open, "the ask stays open until its own deadline");
    let kinds: Vec<EventKind> = world.events().await.into_iter().map(|event| event.kind).collect();
    for kind in [EventKind::BudgetExhausted, EventKind::TurnParked] {
        assert_eq!(kinds.iter().filter(|event_kind| **event_kind == kind).count(), 1, "{kind:?}");
    }
    assert!(!kinds.contains(&EventKind::DeadLetterHeld) && !kinds.contains(&EventKind::TurnFinished));
    // The pending result of the call is recorded with the parking.
    let calls: Vec<_> = world.ledger().await.into_iter().map(|row| (row.tool, row.status)).collect();
    assert_eq!(calls, [("test.look".to_owned(), CallStatus::Ok)]);
    world.model.reply_with(|_, _| say("seven"));
    let limits = NewLimits { tokens: Some(Some(1_000_000)), money: None };
    write!(world, |w| budgets::set(w, &operator(), &Scope::World, limits)).unwrap();
    world.work("ada").await.unwrap();
    assert_eq!(world.ask_row(ask.ask_id).await.reply.as_deref(), Some("seven"));
    assert_eq!(world.model.requests().len(), 1, "the answered request is not repeated");
    let turn = world.turn("ada").await;
    assert_eq!((turn.status, turn.rounds, turn.parked), (TurnStatus::Finished, 2, None));
}

const CALL_AS_TEXT: &str = "Let me look.\n<tool_call>{\"name\": \"test.look\", \"arguments\": {\"n\": 1";

// covers: TOOL-13
#[tokio::test]
async fn a_call_written_as_text_is_recorded_and_corrected_and_never_runs() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|request, n| match n {
        0 => say(CALL_AS_TEXT),
        _ => {
            let last = request.messages.last().unwrap();
            assert!(last.role == Role::User && last.visible_text().contains("written as text"));
            say("fine")
        }
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("fine"));
    let rows = world.ledger().await;
    assert_eq!(
        rows.iter().map(|row| (row.tool.as_str(), row.status)).collect::<Vec<_>>(),
        [("malformed", CallStatus::Failed)]
    );
    assert!(rows[0].arguments.contains("<tool_call>"));
    assert_eq!(world.tool_state.count(|tool_state| &tool_state.reads), 0);
}

#[tokio::test]
async fn too_many_corrections_fail_the_turn_also_across_a_restart() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| if n < 2 { say(CALL_AS_TEXT) } else { Reply::Hang });
    let ask = world.ask("ada").await;
    world.work_until("ada", world.model.stalled.notified()).await;
    world.model.reply_with(|_, _| say(CALL_AS_TEXT));
    world.work("ada").await.unwrap();
    assert_eq!(world.model.requests().len(), 2, "two corrections before the crash, one after it, and then the end");
    assert_eq!(world.turn("ada").await.status, TurnStatus::Dead);
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Failed);
    assert_eq!(world.ledger().await.len(), 4, "every malformed call is in the ledger");
}

#[tokio::test]
async fn a_cut_answer_without_text_is_asked_for_again() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| match n {
        0 => Reply::Answer(vec![Block::Thinking { text: "hm".into() }], Stop::MaxTokens),
        _ => say("short"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let turn = world.turn("ada").await;
    assert_eq!((turn.status, turn.text.as_deref(), turn.rounds), (TurnStatus::Finished, Some("short"), 2));
    assert!(world.ledger().await.is_empty());
    world.model.reply_with(|_, _| Reply::Answer(vec![], Stop::Refused(Some("SAFETY".to_owned()))));
    let ask = world.ask("ada").await;
    world.work("ada").await.unwrap();
    assert!(world.ask_row(ask.ask_id).await.error.unwrap().contains("SAFETY"));
    assert!(world.turn("ada").await.reason.unwrap().starts_with(Code::PolicyDenied.as_str()));
}

#[tokio::test]
async fn a_partly_refused_answer_fails_the_turn_and_its_calls_do_not_run() {
    let world = AgentWorld::new().await;
    let text = Block::Text { text: "How to build a b".into() };
    let calls = [("c1", 1), ("c2", 2)].map(|(id, n)| block(id, "test.look", json!({ "n": n })));
    for blocks in [vec![text.clone()], vec![text.clone(), calls[0].clone()], calls.to_vec()] {
        let expected_blocks = blocks.clone();
        world.model.reply_with(move |_, _| Reply::Answer(blocks.clone(), Stop::Refused(None)));
        let ask = world.ask("ada").await;
        world.work("ada").await.unwrap();
        assert_eq!(world.model.requests().len(), 1);
        let (turn, ask) = (world.turn("ada").await, world.ask_row(ask.ask_id).await);
        assert_eq!((turn.status, turn.text, ask.status), (TurnStatus::Dead, None, AskStatus::Failed));
        assert!(turn.reason.unwrap().starts_with(Code::PolicyDenied.as_str()));
        assert_eq!(ask.code, Some(Code::PolicyDenied));
        let kept = world.steps("ada").await.into_iter().find_map(|step| match step {
            Step::ModelAnswered { blocks, stop, .. } => Some((blocks, stop)),
            _ => None,
        });
        assert_eq!(
            kept,
            Some((expected_blocks, Some("refused".to_owned()))),
            "the refused answer stays in the journal"
        );
        // Tried again, the turn goes on after the refused answer, and still runs none of its calls.
        let letter = read!(world, |r| r.dead_letter_list(None, Some(DeadLetterStatus::Held), None, 9)?).remove(0);
        world.model.reply_with(|_, _| say("well"));
        write!(world, |w| dead_letters::retry(w, &operator(), letter.dead_letter_id, false)).unwrap();
        world.work("ada").await.unwrap();
        assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
        assert_eq!(world.model.requests().len(), 1);
    }
    assert!(world.ledger().await.is_empty());
    assert_eq!(world.tool_state.count(|tool_state| &tool_state.reads), 0);
}

// covers: TOOL-24
#[tokio::test]
async fn a_secret_in_pieces_is_redacted_in_the_stream() {
    let world = AgentWorld::new().await;
    let mut feed = world.store().feed();
    world.model.reply_with(|_, _| {
        let filler = "and on it goes, word after word, until there is enough of it to be streamed, ";
        let mut pieces = vec![filler; 3];
        pieces.extend(["so: hunter2-is", "-my-pass", "word. "]);
        pieces.extend([filler; 8]);
        Reply::Stream(pieces)
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let mut streamed = Vec::new();
    while let Ok(batch) = feed.try_recv() {
        let deltas = batch.iter().filter(|event| event.kind == EventKind::ModelDelta);
        streamed.extend(deltas.map(|event| event.payload["text"].as_str().unwrap().to_owned()));
    }
    assert!(streamed.len() > 1, "the answer is streamed in several pieces");
    let whole = streamed.concat();
    assert!(whole.contains("so: [redacted]. and on") && !whole.contains("hunter2"), "{whole}");
    // The agent's own answer is kept unredacted.
    assert!(world.turn("ada").await.text.unwrap().contains(SECRET));
}
