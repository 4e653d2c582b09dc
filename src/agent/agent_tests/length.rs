//! Conversations that are too long for their model, and answers that are cut.

use std::sync::{Arc, Mutex};

use ghost_domain::event::EventKind;
use ghost_domain::journal::Step;
use ghost_domain::transcript::Block;
use ghost_domain::turn::CUT_MARK;
use ghost_domain::{Code, DeadLetterStatus, Money, Price, Scope, TurnStatus};
use ghost_operations::budgets::{self, NewLimits};
use ghost_provider::testing::{Reply, call, say};
use ghost_provider::{ErrorKind, ModelRequest, ProviderError, Stop};
use serde_json::json;

use super::agent_world::{AgentWorld, operator, read, write};
use crate::truncate::bytes_of;

/// The messages in a request's inbox block.
fn mail_of(request: &ModelRequest) -> Vec<String> {
    let mail = request.messages[request.past].visible_text();
    mail.split("<message ").skip(1).map(str::to_owned).collect()
}

fn too_long() -> Reply {
    Reply::Fail(ProviderError::new(ErrorKind::ContextTooLong, "more than this model takes"))
}

#[tokio::test]
async fn a_turn_takes_only_as_much_mail_as_fits_its_context() {
    let world = AgentWorld::with(|plan| plan.limits.context_bytes = 64_000).await;
    for n in 0..30 {
        world.send("ada", &format!("number {n} {}", "x".repeat(12_000))).await;
    }
    world.work("ada").await.unwrap();
    let requests = world.model.requests();
    assert_eq!(requests.len(), 15, "two messages in each turn");
    assert!(requests.iter().all(|request| bytes_of(&request.messages) <= 64_000));
    let shown: Vec<String> = requests.iter().flat_map(mail_of).collect();
    assert_eq!(shown.len(), 30);
    assert!((0..30).all(|n| shown[n].contains(&format!("number {n} "))), "each is shown once, in order");
    assert!(world.inbox("ada").await.is_empty());
}

#[tokio::test]
async fn mail_that_is_too_long_is_tried_one_by_one_and_then_becomes_a_dead_letter() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|request, _| {
        let mail = mail_of(request);
        if mail.len() > 1 || mail[0].contains("huge") { too_long() } else { say("well") }
    });
    for body in ["one", "huge", "two"] {
        world.send("ada", body).await;
    }
    let ask = world.ask("ada").await;
    // The returned mail wakes the agent again.
    for _ in 0..3 {
        world.work("ada").await.unwrap();
    }
    assert!(world.inbox("ada").await.is_empty());
    let dead_letters = read!(world, |r| r.dead_letter_list(None, Some(DeadLetterStatus::Held), None, 1_000)?);
    assert_eq!(dead_letters.len(), 1);
    assert!(dead_letters[0].reason.starts_with(Code::TooLarge.as_str()), "{}", dead_letters[0].reason);
    assert_eq!(world.ask_row(ask.ask_id).await.reply.as_deref(), Some("well"));
    let turns = read!(world, |r| r.turn_list(&Default::default())?);
    let ended = |status| turns.iter().filter(|turn| turn.status == status).count();
    assert_eq!((ended(TurnStatus::Finished), ended(TurnStatus::Dead), ended(TurnStatus::Failed)), (3, 1, 0));
}

#[tokio::test]
async fn a_conversation_that_grew_too_long_is_shortened() {
    let world = AgentWorld::new().await;
    let opening = Arc::new(Mutex::new(0));
    world.model.reply_with(move |request, n| {
        let bytes = bytes_of(&request.messages);
        if n == 0 {
            *opening.lock().unwrap() = bytes;
            return call("test.look", json!({ "n": 1, "long": "y".repeat(200_000) }));
        }
        if bytes > *opening.lock().unwrap() + 5_000 { too_long() } else { say("short now") }
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("short now"));
    assert_eq!(world.model.requests().len(), 3);
}

#[tokio::test]
async fn failures_before_a_shortening_do_not_count_after_a_restart() {
    let world = AgentWorld::new().await;
    let fits = |request: &ModelRequest| bytes_of(&request.messages) <= 20_000;
    world.model.reply_with(move |request, n| match n {
        // From 320,000 bytes to 20,000 takes more failures than a model has attempts.
        0..10 => call("test.look", json!({ "n": n, "long": "y".repeat(32_000) })),
        10 => Reply::Fail(ProviderError::new(ErrorKind::Server, "busy")),
        _ if fits(request) => Reply::Hang,
        _ => too_long(),
    });
    world.send("ada", "go").await;
    world.in_time(world.work_until("ada", world.model.stalled.notified())).await;
    let failed = world.steps("ada").await.iter().filter(|step| step.name() == "model_failed").count();
    let last = world.model.requests().pop().unwrap();
    assert!(failed >= 4, "{failed}");
    world.model.reply_with(move |request, _| if fits(request) { say("short now") } else { too_long() });
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("short now"));
    let requests = world.model.requests();
    assert_eq!(requests.len(), 1, "it goes on with the shortened conversation");
    assert_eq!(requests[0].messages, last.messages);
}

/// A world with a money budget in which only the first model has a price.
async fn with_a_fall_back_that_has_no_price() -> AgentWorld {
    let world = AgentWorld::with(|plan| {
        for agent in &mut plan.agents {
            agent.model.fallback_models = vec!["two".into()];
        }
        plan.llm.prices.insert("test/one".into(), Price { input: Money(1), output: Money(1), ..Price::default() });
    })
    .await;
    let limits = NewLimits { tokens: None, money: Some(Some(Money(1_000_000))) };
    write!(world, |w| budgets::set(w, &operator(), &Scope::World, limits)).unwrap();
    world
}

#[tokio::test]
async fn a_fall_back_without_a_price_is_not_asked_for_a_long_conversation() {
    let world = with_a_fall_back_that_has_no_price().await;
    world.model.reply_with(|request, n| match n {
        0 => call("test.look", json!({ "n": 1, "long": "y".repeat(200_000) })),
        _ if bytes_of(&request.messages) > 60_000 => too_long(),
        _ => say("short now"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("short now"));
    assert!(world.model.requests().iter().all(|request| request.model == "one"));
    // Mail that cannot be shortened becomes a dead letter; it is not an outage.
    world.model.reply_with(|_, _| too_long());
    world.send("ada", "more").await;
    world.work("ada").await.unwrap();
    let dead_letters = read!(world, |r| r.dead_letter_list(None, Some(DeadLetterStatus::Held), None, 1_000)?);
    assert!(dead_letters.len() == 1 && dead_letters[0].reason.starts_with(Code::TooLarge.as_str()), "{dead_letters:?}");
}

#[tokio::test]
async fn a_skipped_fall_back_does_not_count_as_an_attempt_after_a_restart() {
    let world = with_a_fall_back_that_has_no_price().await;
    world.model.reply_with(|request, n| match n {
        0 => call("test.look", json!({ "n": 1, "long": "y".repeat(200_000) })),
        _ if bytes_of(&request.messages) > 150_000 => too_long(),
        _ => Reply::Hang,
    });
    world.send("ada", "go").await;
    world.in_time(world.work_until("ada", world.model.stalled.notified())).await;
    assert!(world.steps("ada").await.iter().any(|step| step.name() == "passed_over"));
    world.model.reply_with(|_, _| say("short now"));
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("short now"));
    assert!(world.model.requests().iter().all(|request| request.model == "one"));
}

#[tokio::test]
async fn a_cut_answer_is_delivered_and_marked_as_cut() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| match n {
        // The answer is cut within its reasoning, so it has no text yet.
        0 => Reply::Answer(vec![Block::Text { text: "<think>first, the".into() }], Stop::MaxTokens),
        _ => Reply::Answer(vec![Block::Text { text: "first, the harbour is".into() }], Stop::MaxTokens),
    });
    let ask = world.ask("ada").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.model.requests().len(), 2);
    let turn = world.turn("ada").await;
    assert_eq!((turn.status, turn.truncated), (TurnStatus::Finished, true));
    assert_eq!(turn.text.as_deref(), Some("first, the harbour is"));
    let ask = world.ask_row(ask.ask_id).await;
    assert!(ask.truncated && ask.reply.unwrap().ends_with(CUT_MARK));
    let stops: Vec<Option<String>> = world
        .steps("ada")
        .await
        .into_iter()
        .filter_map(|step| match step {
            Step::ModelAnswered { stop, .. } => Some(stop),
            _ => None,
        })
        .collect();
    assert_eq!(stops, [Some("max_tokens".to_owned()), Some("max_tokens".to_owned())]);
    // An answer that the provider paused is not complete either.
    world.model.reply_with(|_, _| {
        Reply::Answer(vec![Block::Text { text: "let me search".into() }], Stop::Other("pause_turn".into()))
    });
    let ask = world.ask("ada").await;
    world.work("ada").await.unwrap();
    let (turn, ask) = (world.turn("ada").await, world.ask_row(ask.ask_id).await);
    assert!(turn.truncated && ask.truncated && ask.reply.unwrap().starts_with("let me search"));
}

#[tokio::test]
async fn a_long_conversation_that_is_refused_without_a_reason_is_shortened_once() {
    let bad = |message: &str| Reply::Fail(ProviderError::new(ErrorKind::BadRequest, message).status(400));
    for (message, long, always, requests) in [
        ("HTTP 400: Bad Request", true, false, 3),
        // One shortened try, and no more.
        ("HTTP 400: Bad Request", true, true, 3),
        ("HTTP 400: Bad Request", false, true, 2),
        ("HTTP 400: Unsupported parameter: `temperature`", true, true, 2),
    ] {
        let world = AgentWorld::new().await;
        let opening = Arc::new(Mutex::new(0));
        world.model.reply_with(move |request, n| {
            let bytes = bytes_of(&request.messages);
            if n == 0 {
                *opening.lock().unwrap() = bytes;
                let size = if long { 200_000 } else { 6_000 };
                return call("test.look", json!({ "n": 1, "long": "y".repeat(size) }));
            }
            if always || bytes > *opening.lock().unwrap() + 5_000 { bad(message) } else { say("short now") }
        });
        world.send("ada", "go").await;
        world.work("ada").await.unwrap();
        assert_eq!(world.model.requests().len(), requests, "{message} {long} {always}");
        if !always {
            assert_eq!(world.turn("ada").await.text.as_deref(), Some("short now"));
        }
    }
}

#[tokio::test]
async fn an_unknown_stop_reason_is_warned_about_once_a_day() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|request, _| {
        let stop = if mail_of(request)[0].contains("other") { "OTHER_WORD" } else { "NEW_WORD" };
        Reply::Answer(vec![Block::Text { text: "used".into() }], Stop::Other(stop.into()))
    });
    let mut warnings = Vec::new();
    for (body, hours) in [("one", 0), ("two", 0), ("other", 0), ("three", 25), ("four", 0)] {
        world.clock.advance(std::time::Duration::from_secs(hours * 3_600));
        world.send("ada", body).await;
        world.work("ada").await.unwrap();
        assert_eq!(world.turn("ada").await.text.as_deref(), Some("used"));
        warnings.push(world.count(EventKind::WorldWarning).await);
    }
    assert_eq!(warnings, [1, 1, 2, 3, 3]);
    let warned = world.events().await.into_iter().find(|event| event.kind == EventKind::WorldWarning).unwrap();
    assert_eq!((&warned.payload["reason"], &warned.payload["model"]), (&json!("NEW_WORD"), &json!("one")));
}
