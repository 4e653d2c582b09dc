use ghost_domain::turn::CUT_MARK;

use super::operation_world::*;

// covers: BI-30, MSG-02
world_test!(an_answer_ends_the_waiting_call_in_the_transaction_that_ends_the_turn, async |world| {
    let turn = world.busy("ada").await;
    let (ask, call_id) = world.ask_by(&turn, "bob", "syscall.message.send").await.unwrap();
    assert!(world.journal(turn.turn_id).await.iter().any(|row| matches!(
        &row.step, Step::CallStarted { ask_id: Some(ask_id), .. } if *ask_id == ask.ask_id
    )));
    let asked = world.take("bob").await;
    assert_eq!(asked.mail[0].ask_id, Some(ask.ask_id));
    assert_eq!(asked.turn.hop, turn.hop + 1);
    world.signals();
    world.finish(asked.turn.turn_id, "seven").await.unwrap();
    let row = world.ask_row(ask.ask_id).await;
    assert_eq!((row.status, row.reply.as_deref()), (AskStatus::Answered, Some("seven")));
    // The record names the tool that asked.
    let (tool, content, refusal) = world.outcome(turn.turn_id, call_id).await.unwrap();
    assert_eq!((tool.as_str(), refusal), ("syscall.message.send", None));
    assert_eq!((content["status"].as_str(), content["reply"].as_str()), (Some("ok"), Some("seven")));
    let ledger = world.call(call_id).await;
    assert_eq!((ledger.tool.as_str(), ledger.status), ("syscall.message.send", CallStatus::Ok));
    assert_eq!(world.turn(turn.turn_id).await.calls, 1);
    assert!(world.signals().contains(&Signal::AskClosed { ask_id: ask.ask_id, asker: Some(id("ada")) }));
    assert!(world.inbox("ada").await.is_empty(), "an answer never goes through the asker's inbox");
    assert_eq!(world.message(ask.message_id).await.state, MailState::Consumed);
    // A reply does not raise the asker's hop.
    assert_eq!(world.turn(turn.turn_id).await.hop, turn.hop);
});

// covers: MSG-03, MSG-04, TEST-07
world_test!(an_ask_that_can_never_be_answered_is_refused, async |world| {
    let ada = world.busy("ada").await;
    assert_eq!(world.ask_by(&ada, "ada", "syscall.ask").await.unwrap_err().code, Code::Conflict);
    assert_eq!(code(world.ask_by(&ada, "bop", "syscall.ask").await), Code::NotFound);
    world.ask_by(&ada, "bob", "syscall.ask").await.unwrap();
    let bob = world.take("bob").await.turn;
    let two = world.ask_by(&bob, "ada", "syscall.ask").await.unwrap_err();
    assert_eq!(two.details.unwrap()["cycle"], serde_json::json!(["bob", "ada", "bob"]));
    world.ask_by(&bob, "cyd", "syscall.ask").await.unwrap();
    let cyd = world.take("cyd").await.turn;
    let three = world.ask_by(&cyd, "ada", "syscall.ask").await.unwrap_err();
    assert_eq!(three.code, Code::Conflict);
    assert_eq!(three.details.unwrap()["cycle"], serde_json::json!(["cyd", "ada", "bob", "cyd"]));
    assert!(world.inbox("ada").await.is_empty(), "a refused question is not delivered");
    // After the cycle is resolved, the same question is accepted.
    world.finish(cyd.turn_id, "c").await.unwrap();
    world.finish(bob.turn_id, "b").await.unwrap();
    let cyd = world.busy("cyd").await;
    world.ask_by(&cyd, "ada", "syscall.ask").await.unwrap();
});

world_test!(an_ask_from_outside_closes_no_cycle, async |world| {
    world.outside_ask("ada").await.unwrap();
    let ada = world.take("ada").await.turn;
    world.ask_by(&ada, "bob", "syscall.ask").await.unwrap();
    world.outside_ask("ada").await.unwrap();
    world.outside_ask("bob").await.unwrap();
});

// covers: MSG-04, TEST-07
world_test!(asks_to_a_stopped_target_and_too_many_asks_are_refused, async |world| {
    run!(world, |w| agents::stop(w, &operator(), &id("bob"), None)).unwrap();
    assert_eq!(code(world.outside_ask("bob").await), Code::Conflict, "stopping");
    run!(world, |w| agents::stopped(w, &id("bob"))).unwrap();
    assert_eq!(code(world.outside_ask("bob").await), Code::Conflict, "stopped");
    run!(world, |w| agents::failed(w, &id("cyd"), "too often")).unwrap();
    assert_eq!(code(world.outside_ask("cyd").await), Code::Conflict, "failed");
    world.limits(|limits| limits.asks_open_max = 1);
    world.outside_ask("ada").await.unwrap();
    assert_eq!(code(world.outside_ask("ada").await), Code::RateLimited);
    assert_eq!(world.inbox("ada").await.len(), 1);
});

// covers: MSG-02, TEST-07
world_test!(a_deadline_ends_the_ask_and_a_late_answer_is_stored_and_wakes_nobody, async |world| {
    let turn = world.busy("ada").await;
    let (ask, call_id) = world.ask_by(&turn, "bob", "syscall.ask").await.unwrap();
    run!(world, |w| asks::expire(w, ask.ask_id)).unwrap();
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Open, "not due yet");
    world.pass(Duration::from_secs(60));
    run!(world, |w| asks::expire(w, ask.ask_id)).unwrap();
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::TimedOut);
    let (_, content, refusal) = world.outcome(turn.turn_id, call_id).await.unwrap();
    assert_eq!((content["status"].as_str(), refusal.unwrap().code), (Some("timeout"), Code::Timeout));
    assert_eq!(world.call(call_id).await.error_code, Some(Code::Timeout));
    // The target keeps running (MSG-02).
    let asked = world.take("bob").await;
    world.signals();
    world.finish(asked.turn.turn_id, "at last").await.unwrap();
    let row = world.ask_row(ask.ask_id).await;
    assert_eq!((row.status, row.reply.as_deref()), (AskStatus::TimedOut, Some("at last")));
    assert_eq!(world.count(EventKind::AskLate).await, 1);
    assert_eq!(world.count(EventKind::AskAnswered).await, 0);
    assert!(world.signals().is_empty());
    let ends = world.journal(turn.turn_id).await;
    assert_eq!(ends.iter().filter(|row| matches!(row.step, Step::CallFinished { .. })).count(), 1);
});

world_test!(the_timeout_of_an_ask_in_a_paused_world_names_the_pause, async |world| {
    for (paused, names_pause) in [("0", false), ("1", true)] {
        let turn = world.busy("ada").await;
        let (ask, _) = world.ask_by(&turn, "bob", "syscall.ask").await.unwrap();
        world.pass(Duration::from_secs(3_600));
        run!(world, |w| {
            w.meta_put(crate::PAUSED, paused)?;
            asks::expire(w, ask.ask_id)
        })
        .unwrap();
        let error = world.ask_row(ask.ask_id).await.error.unwrap();
        assert_eq!(error.contains("ghostctl resume"), names_pause, "{error}");
        world.finish(turn.turn_id, "done").await.unwrap();
    }
});

world_test!(a_cut_answer_is_marked_as_cut, async |world| {
    let turn = world.busy("ada").await;
    let (ask, call_id) = world.ask_by(&turn, "bob", "syscall.ask").await.unwrap();
    let asked = world.take("bob").await.turn.turn_id;
    world.end(asked, Ending::Cut("first, the harbour is".to_owned())).await;
    let ended = world.turn(asked).await;
    assert!(ended.truncated && ended.text.as_deref() == Some("first, the harbour is"));
    let row = world.ask_row(ask.ask_id).await;
    assert!(row.truncated && row.reply.unwrap().ends_with(CUT_MARK));
    let (_, content, _) = world.outcome(turn.turn_id, call_id).await.unwrap();
    assert_eq!(content["truncated"], true);
    assert!(content["reply"].as_str().unwrap().starts_with("first, the harbour is\n"));
    assert_eq!(world.event(EventKind::TurnFinished).await.payload["truncated"], true);
});
