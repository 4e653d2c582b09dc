//! Asks: their answers, their refusals, and their ends when the target or the asker ends.

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
    assert_eq!((asked.mail[0].ask_id, asked.turn.hop), (Some(ask.ask_id), turn.hop + 1));
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
    let ask = async |turn: &Turn, target| world.ask_by(turn, target, "syscall.ask").await;
    let ada = world.busy("ada").await;
    assert_eq!((code(ask(&ada, "ada").await), code(ask(&ada, "bop").await)), (Code::Conflict, Code::NotFound));
    ask(&ada, "bob").await.unwrap();
    let bob = world.take("bob").await.turn;
    assert_eq!(detail(ask(&bob, "ada").await, Code::Conflict, "cycle"), json!(["bob", "ada", "bob"]));
    ask(&bob, "cyd").await.unwrap();
    let cyd = world.take("cyd").await.turn;
    assert_eq!(detail(ask(&cyd, "ada").await, Code::Conflict, "cycle"), json!(["cyd", "ada", "bob", "cyd"]));
    assert!(world.inbox("ada").await.is_empty(), "a refused question is not delivered");
    // After the cycle is resolved, the same question is accepted.
    world.finish(cyd.turn_id, "c").await.unwrap();
    world.finish(bob.turn_id, "b").await.unwrap();
    let cyd = world.busy("cyd").await;
    ask(&cyd, "ada").await.unwrap();
    // An ask from outside closes no cycle.
    for target in ["ada", "cyd"] {
        world.outside_ask(target).await.unwrap();
    }
});

// covers: MSG-04, TEST-07
world_test!(asks_to_a_stopped_target_and_too_many_asks_are_refused, async |world| {
    run!(world, |w| agents::stop(w, &operator(), &id("bob"), None)).unwrap();
    assert_eq!(code(world.outside_ask("bob").await), Code::Conflict, "stopping");
    world.stopped(&id("bob")).await;
    assert_eq!(code(world.outside_ask("bob").await), Code::Conflict, "stopped");
    run!(world, |w| agents::failed(w, &id("cyd"), "too often")).unwrap();
    assert_eq!(code(world.outside_ask("cyd").await), Code::Conflict, "failed");
    world.limits(|limits| limits.asks_open_max = 1);
    world.outside_ask("ada").await.unwrap();
    assert_eq!((code(world.outside_ask("ada").await), world.inbox("ada").await.len()), (Code::RateLimited, 1));
});

// covers: MSG-02, TEST-07
world_test!(a_deadline_ends_the_ask_and_a_late_answer_is_stored_and_wakes_nobody, async |world| {
    let turn = world.busy("ada").await;
    let (ask, call_id) = world.ask_by(&turn, "bob", "syscall.ask").await.unwrap();
    // It is not due yet, and then it is.
    for (wait, status) in [(Duration::ZERO, AskStatus::Open), (MINUTE, AskStatus::TimedOut)] {
        world.pass(wait);
        run!(world, |w| asks::expire(w, ask.ask_id)).unwrap();
        assert_eq!(world.ask_row(ask.ask_id).await.status, status);
    }
    let (_, content, refusal) = world.outcome(turn.turn_id, call_id).await.unwrap();
    assert_eq!((content["status"].as_str(), refusal.unwrap().code), (Some("timeout"), Code::Timeout));
    assert_eq!(world.call(call_id).await.error_code, Some(Code::Timeout));
    // The target keeps running (MSG-02).
    let asked = world.take("bob").await;
    world.signals();
    world.finish(asked.turn.turn_id, "at last").await.unwrap();
    let row = world.ask_row(ask.ask_id).await;
    assert_eq!((row.status, row.reply.as_deref()), (AskStatus::TimedOut, Some("at last")));
    assert_eq!((world.count(EventKind::AskLate).await, world.count(EventKind::AskAnswered).await), (1, 0));
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

// covers: HB-07
world_test!(an_exchange_of_asks_ends_at_its_limit_or_when_the_other_agent_ends_it, async |world| {
    let ada = world.busy("ada").await;
    let round = async |target: &str, words: &str| {
        let (ask, call_id) = world.ask_by(&ada, target, "syscall.ask").await?;
        world.finish(world.take(target).await.turn.turn_id, words).await?;
        let (_, content, _) = world.outcome(ada.turn_id, call_id).await.unwrap();
        assert_eq!(content["message_id"], json!(ask.message_id));
        Ok::<Value, Refusal>(content)
    };
    for _ in 0..5 {
        assert_eq!(round("bob", "go on").await.unwrap()["reply"], "go on");
    }
    assert_eq!(detail(round("bob", "go on").await, Code::LoopGuard, "limit"), "reply_rounds_max");
    assert_eq!(world.count(EventKind::LimitReached).await, 1);
    // Alternating asks are no loop.
    for _ in 0..4 {
        round("cyd", "yes").await.unwrap();
        round("bob", "yes").await.unwrap();
    }
    let ended = round("bob", " REPLY_SKIP\n").await.unwrap();
    assert_eq!((&ended["reply"], &ended["ended"]), (&json!(""), &json!(true)));
    refused(round("bob", "more").await, Code::LoopGuard, "bob has ended");
    assert!(world.inbox("bob").await.is_empty());
});

/// An ask of ada to bob in a new world, which bob may have taken.
struct Waiting {
    world: World,
    turn: Turn,
    ask: Ask,
    call_id: CallId,
}

async fn waiting(taken: bool) -> Waiting {
    let world = World::new().await;
    let turn = world.busy("ada").await;
    let (ask, call_id) = world.ask_by(&turn, "bob", "syscall.ask").await.unwrap();
    if taken {
        world.take("bob").await;
    }
    Waiting { world, turn, ask, call_id }
}

impl Waiting {
    async fn status(&self) -> AskStatus {
        self.world.ask_row(self.ask.ask_id).await.status
    }

    /// The ask has ended with a failure, in the record of the asker, too.
    async fn ended(&self) -> Refusal {
        let row = self.world.ask_row(self.ask.ask_id).await;
        assert!(row.status == AskStatus::Failed && row.closed_at.is_some() && row.error.is_some(), "{row:?}");
        assert_eq!(self.world.count(EventKind::AskFailed).await, 1);
        let (_, content, refusal) = self.world.outcome(self.turn.turn_id, self.call_id).await.unwrap();
        assert_eq!(content["status"], "error");
        let ledger = self.world.call(self.call_id).await;
        assert_eq!((ledger.tool.as_str(), ledger.status), ("syscall.ask", CallStatus::Failed));
        refusal.unwrap()
    }

    async fn stop_bob(&self) {
        run!(self.world, |w| agents::stop(w, &operator(), &id("bob"), None)).unwrap();
    }

    async fn cancel(&self, turn_id: TurnId) -> Result<Turn> {
        run!(self.world, |w| turns::cancel(w, &operator(), turn_id))
    }

    /// The turn in which bob has the ask.
    async fn asked(&self) -> TurnId {
        read!(self.world, |r| r.turn_open_of(&id("bob"))?.unwrap().turn_id)
    }
}

#[tokio::test]
async fn a_stop_fails_unread_asks_at_once_and_the_others_when_the_agent_has_stopped() {
    let unread = waiting(false).await;
    unread.stop_bob().await;
    assert_eq!(unread.ended().await.code, Code::Unavailable);

    let taken = waiting(true).await;
    taken.stop_bob().await;
    assert_eq!(taken.status().await, AskStatus::Open, "its turn may still finish");
    taken.world.stopped(&id("bob")).await;
    assert_eq!(taken.ended().await.code, Code::Unavailable);

    // The daemon dies before the agent has stopped.
    let taken = waiting(true).await;
    taken.stop_bob().await;
    let agents = run!(taken.world, |w| agents::claim_all(w)).unwrap();
    assert!(agents.iter().any(|agent| agent.agent_id == id("bob") && agent.status == AgentStatus::Stopped));
    assert_eq!(taken.world.agent("bob").await.status, AgentStatus::Stopped);
    taken.ended().await;
    assert_eq!(taken.world.count(EventKind::AgentStopped).await, 1);
}

#[tokio::test]
async fn a_target_that_cannot_answer_any_more_ends_the_ask() {
    let failed = waiting(false).await;
    run!(failed.world, |w| agents::failed(w, &id("bob"), "too often")).unwrap();
    failed.ended().await;

    let deleted = waiting(true).await;
    let asked = deleted.asked().await;
    delete(&deleted.world, "bob").await;
    assert_eq!(deleted.world.turn(asked).await.status, TurnStatus::Cancelled);
    deleted.ended().await;

    let dead_letter = waiting(true).await;
    dead_letter.world.limits(|limits| limits.crashes_max = 1);
    dead_letter.world.crash("bob", "it fell over").await;
    assert!(dead_letter.ended().await.message.contains("it fell over"));

    let failed_turn = waiting(true).await;
    let why = Refusal::new(Code::BudgetExhausted, "nothing left");
    failed_turn.world.end(failed_turn.asked().await, Ending::Failed(why)).await;
    assert_eq!(failed_turn.ended().await.code, Code::BudgetExhausted);
    assert_eq!(failed_turn.world.count(EventKind::BudgetExhausted).await, 1);

    let cancelled = waiting(true).await;
    let asked = cancelled.asked().await;
    cancelled.cancel(asked).await.unwrap();
    assert_eq!((cancelled.ended().await.code, code(cancelled.cancel(asked).await)), (Code::Cancelled, Code::Conflict));
}

#[tokio::test]
async fn an_ask_fails_when_the_turn_of_its_asker_has_ended() {
    let ask = waiting(false).await;
    ask.cancel(ask.turn.turn_id).await.unwrap();
    assert_eq!((ask.status().await, ask.world.count(EventKind::AskFailed).await), (AskStatus::Failed, 1));
    // Nobody will end this call, and nothing is uncertain.
    let call = ask.world.call(ask.call_id).await;
    assert_eq!((call.status, call.error_code), (CallStatus::Failed, Some(Code::Cancelled)));
    ask.world.done("bob", "too late").await;
    assert_eq!(ask.world.count(EventKind::AskLate).await, 1);
    run!(ask.world, |w| asks::expire(w, ask.ask.ask_id)).unwrap();
    assert_eq!(ask.status().await, AskStatus::Failed);
}
