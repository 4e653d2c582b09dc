//! Crashes: split turns, turns that go on, and dead letters.

use super::operation_world::*;

async fn boot(world: &World) {
    run!(world, |w| turns::review_at_boot(w)).unwrap();
}

/// Ada's supervisor says that it crashed.
async fn crash(world: &World) {
    world.crash("ada", "it fell over").await;
}

world_test!(a_turn_with_several_messages_is_split_and_its_effects_are_remembered, async |world| {
    let (one, two) = (world.send("ada", "one").await, world.send("ada", "two").await);
    let first = world.take("ada").await.turn;
    let call_id = CallId(world.ctx.id());
    world.start_call(&first, &call_start(call_id, "syscall.task.create", Effect::Outside)).await;
    crash(&world).await;
    let split = world.turn(first.turn_id).await;
    assert_eq!((split.status, split.reason.as_deref()), (TurnStatus::Split, Some("it fell over")));
    assert_eq!(world.call(call_id).await.status, CallStatus::Unknown);
    for expected in [one.message_id, two.message_id] {
        world.send("ada", "this must not ride along").await;
        let taken = world.take("ada").await;
        assert_eq!(ids(&taken.mail), [expected], "each alone");
        assert_eq!((taken.resumed, taken.earlier), (false, vec![first.turn_id]));
        world.finish(taken.turn.turn_id, "done").await.unwrap();
    }
    assert_eq!(world.take("ada").await.mail.len(), 2, "what came later was never suspected");
    assert_eq!(world.agent("ada").await.restarts, 1);
});

world_test!(a_single_message_resumes_from_its_journal_until_it_is_a_dead_letter, async |world| {
    let poison = world.send("ada", "poison").await;
    let turn_id = world.take("ada").await.turn.turn_id;
    for crashes in 1..3 {
        crash(&world).await;
        let again = world.take("ada").await;
        assert!(again.resumed && again.turn.turn_id == turn_id && again.turn.crashes == crashes);
    }
    crash(&world).await;
    assert_eq!(world.turn(turn_id).await.status, TurnStatus::Dead);
    assert_eq!(world.message(poison.message_id).await.state, MailState::Dead);
    let dead = world.dead_letters().await;
    assert_eq!((dead.len(), dead[0].crashes, dead[0].turn_id), (1, 3, turn_id));
    assert!(world.try_take("ada").await.unwrap().is_none());
    let roots = world.told(EventKind::DeadLetterHeld, "root_id").await;
    assert_eq!(roots, [poison.root_id.to_string()], "whose work it was");
    assert_eq!(world.agent("ada").await.status, AgentStatus::Running);
});

world_test!(joining_mail_does_not_keep_a_poisoned_message_alive, async |world| {
    let poison = world.send("ada", "poison").await;
    let mut innocent = Vec::new();
    for round in 1..=3 {
        let taken = world.take("ada").await;
        assert_eq!(ids(&taken.mail), [poison.message_id], "{round}");
        innocent.push(world.send("ada", "read on").await);
        let joined = world.join("ada", taken.turn.turn_id, 10).await.unwrap();
        assert_eq!(joined.mail.len(), 1);
        crash(&world).await;
    }
    let dead = world.dead_letters().await;
    assert_eq!((dead.len(), &dead[0].messages, dead[0].crashes), (1, &vec![poison.message_id], 3));
    for message in innocent {
        let taken = world.take("ada").await;
        assert_eq!(taken.mail[0].message_id, message.message_id);
        assert!(!taken.resumed, "it starts a turn of its own");
        world.finish(taken.turn.turn_id, "done").await.unwrap();
    }
    assert!(world.try_take("ada").await.unwrap().is_none());
});

world_test!(only_starts_without_progress_count_and_not_of_a_turn_that_waits_or_is_stopped, async |world| {
    world.limits(|limits| limits.stalled_boots_max = 3);
    let turn = world.busy("ada").await;
    let (waits, stopped) = (world.busy("bob").await, world.busy("cyd").await);
    world.ask_by(&waits, "ada", "syscall.ask").await.unwrap();
    world.stop("cyd").await;
    let stalled = async || world.turn(turn.turn_id).await.stalled_boots;
    boot(&world).await;
    assert_eq!(stalled().await, 0, "the first boot that sees it compares with nothing");
    boot(&world).await;
    boot(&world).await;
    assert_eq!(stalled().await, 2);
    let outcome = CallOutcome { content: json!("x"), ..CallOutcome::default() };
    world.end_call(&turn, CallId(world.ctx.id()), outcome).await;
    boot(&world).await;
    assert_eq!(stalled().await, 0, "it has moved");
    for _ in 0..3 {
        assert!(world.dead_letters().await.is_empty());
        boot(&world).await;
    }
    assert!(world.dead_letters().await[0].reason.contains('3'));
    for (turn, then) in [(&turn, TurnStatus::Dead), (&waits, TurnStatus::Open), (&stopped, TurnStatus::Open)] {
        assert_eq!(world.turn(turn.turn_id).await.status, then, "{}", turn.agent_id);
    }
});

world_test!(a_stalled_turn_with_several_messages_is_split_first, async |world| {
    world.limits(|limits| limits.stalled_boots_max = 2);
    world.send("ada", "one").await;
    world.send("ada", "two").await;
    let turn_id = world.take("ada").await.turn.turn_id;
    for _ in 0..3 {
        boot(&world).await;
    }
    assert_eq!((world.turn(turn_id).await.status, world.take("ada").await.mail.len()), (TurnStatus::Split, 1));
    assert!(world.dead_letters().await.is_empty());
});

world_test!(mail_that_fits_no_model_is_tried_alone_and_then_becomes_a_dead_letter, async |world| {
    let too_long = async |turn_id: TurnId| {
        let refusal = Refusal::new(Code::TooLarge, "it does not fit the model");
        run!(world, |w| turns::fail(w, turn_id, refusal)).unwrap().status
    };
    let ask = world.outside_ask("ada").await.unwrap();
    world.send("ada", "one").await;
    let both = world.take("ada").await.turn.turn_id;
    assert_eq!(too_long(both).await, TurnStatus::Split);
    assert!(world.dead_letters().await.is_empty());
    let question = world.take("ada").await;
    assert_eq!((question.mail.len(), question.mail[0].crashes, question.earlier.as_slice()), (1, 0, &[both][..]));
    assert_eq!((too_long(question.turn.turn_id).await, world.take("ada").await.mail.len()), (TurnStatus::Dead, 1));
    let letters = world.dead_letters().await;
    assert_eq!((letters.len(), letters[0].messages.as_slice()), (1, &[ask.message_id][..]));
    let answer = world.ask_row(ask.ask_id).await.error.unwrap();
    assert!(answer.contains("ada"), "{answer}");
});

world_test!(an_agent_with_too_many_dead_letters_is_stopped_with_a_reason, async |world| {
    world.limits(|limits| (limits.crashes_max, limits.dead_letters_max) = (1, 2));
    for letters in 1..=2 {
        world.send("ada", "poison").await;
        world.take("ada").await;
        assert!(run!(world, |w| agents::crashed(w, &id("ada"), "it fell over")).unwrap(), "a dead letter");
        let record = world.agent("ada").await;
        assert_eq!(record.desired == Desired::Stopped, letters == 2, "{record:?}");
        if letters < 2 {
            run!(world, |w| agents::restarted(w, &id("ada"))).unwrap();
        }
    }
    let why = world.agent("ada").await.status_reason.unwrap();
    assert!(why.contains('2') && why.contains("ghostctl dead"), "{why}");
    assert_eq!(world.dead_letters().await.len(), 2);
    world.send("bob", "hello").await;
    world.take("bob").await;
});

/// Creates a dead letter of ada.
async fn dead(world: &World) -> DeadLetter {
    world.limits(|limits| limits.crashes_max = 1);
    world.take("ada").await;
    world.crash("ada", "it fell over").await;
    world.dead_letters().await.remove(0)
}

pub(super) async fn retry(world: &World, dead: &DeadLetter, fresh: bool) -> Result<DeadLetter> {
    let dead_letter_id = dead.dead_letter_id;
    run!(world, |w| dead_letters::retry(w, &operator(), dead_letter_id, fresh))
}

world_test!(a_retry_goes_on_with_the_same_turn_and_its_answer_is_late, async |world| {
    let ask = world.outside_ask("ada").await.unwrap();
    let dead = dead(&world).await;
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Failed);
    assert_eq!(retry(&world, &dead, false).await.unwrap().status, DeadLetterStatus::Retried);
    assert_eq!(code(retry(&world, &dead, false).await), Code::Conflict, "once");
    world.send("ada", "rides in a turn of its own").await;
    let taken = world.take("ada").await;
    assert!(taken.resumed && taken.turn.turn_id == dead.turn_id && taken.mail.len() == 1);
    assert_eq!((taken.turn.crashes, taken.turn.reason, taken.mail[0].crashes), (0, None, 0));
    world.finish(dead.turn_id, "after all").await.unwrap();
    let row = world.ask_row(ask.ask_id).await;
    assert_eq!((row.status, row.reply.as_deref()), (AskStatus::Failed, Some("after all")));
    assert_eq!(world.count(EventKind::AskLate).await, 1);
    // It may crash again as often as other mail before it becomes a dead letter again.
    assert_eq!(world.count(EventKind::DeadLetterRetried).await, 1);
});

world_test!(a_fresh_retry_opens_a_new_turn_but_not_of_a_dropped_letter_or_a_later_agent, async |world| {
    world.send("ada", "work").await;
    let first = dead(&world).await;
    retry(&world, &first, true).await.unwrap();
    let taken = world.take("ada").await;
    assert!(!taken.resumed && taken.turn.turn_id != first.turn_id && taken.earlier.is_empty());
    assert_eq!(world.turn(first.turn_id).await.status, TurnStatus::Dead);
    world.finish(taken.turn.turn_id, "done").await.unwrap();
    // One that is dropped is consumed.
    let sent = world.send("ada", "other work").await;
    let second = dead(&world).await;
    let dropped = run!(world, |w| dead_letters::discard(w, &operator(), second.dead_letter_id)).unwrap();
    assert_eq!(dropped.status, DeadLetterStatus::Dropped);
    assert_eq!(world.message(sent.message_id).await.state, MailState::Consumed);
    assert!(world.try_take("ada").await.unwrap().is_none());
    assert_eq!(code(retry(&world, &second, false).await), Code::Conflict);
    // The agent is deleted, and another one has its id.
    world.send("ada", "more work").await;
    let third = dead(&world).await;
    delete(&world, "ada").await;
    assert_eq!(code(retry(&world, &third, false).await), Code::NotFound);
    world.add_agent(new_agent(&world.ctx, "ada")).await;
    assert_eq!(code(retry(&world, &third, true).await), Code::Conflict);
    assert!(world.try_take("ada").await.unwrap().is_none());
});
