use super::operation_world::*;

async fn boot(world: &OperationWorld) {
    run!(world, |w| turns::review_at_boot(w)).unwrap();
}

world_test!(a_turn_with_several_messages_is_split_and_its_effects_are_remembered, async |world| {
    let (one, two) = (world.send("ada", "one").await, world.send("ada", "two").await);
    let first = world.take("ada").await.turn;
    let call_id = CallId(world.ctx.id());
    world.start_call(&first, &call_start(call_id, "syscall.task.create", Effect::Outside)).await;
    world.crash("ada", "it fell over").await;
    let split = world.turn(first.turn_id).await;
    assert_eq!((split.status, split.reason.as_deref()), (TurnStatus::Split, Some("it fell over")));
    assert_eq!(world.call(call_id).await.status, CallStatus::Unknown);
    for expected in [one.message_id, two.message_id] {
        world.send("ada", "this must not ride along").await;
        let taken = world.take("ada").await;
        assert_eq!(taken.mail.iter().map(|m| m.message_id).collect::<Vec<_>>(), [expected], "each alone");
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
        world.crash("ada", "it fell over").await;
        let again = world.take("ada").await;
        assert!(again.resumed && again.turn.turn_id == turn_id && again.turn.crashes == crashes);
    }
    world.crash("ada", "it fell over").await;
    assert_eq!(world.turn(turn_id).await.status, TurnStatus::Dead);
    assert_eq!(world.message(poison.message_id).await.state, MailState::Dead);
    let dead = world.dead_letters().await;
    assert_eq!((dead.len(), dead[0].crashes, dead[0].turn_id), (1, 3, turn_id));
    assert!(world.try_take("ada").await.unwrap().is_none());
    let answer: Vec<_> = world.events_of(EventKind::DeadLetterHeld).await;
    let roots: Vec<_> = answer.iter().map(|event| event.payload["root_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(roots, [poison.root_id.to_string()], "whose work it was");
    assert_eq!(world.agent("ada").await.status, AgentStatus::Running);
});

world_test!(joining_mail_does_not_keep_a_poisoned_message_alive, async |world| {
    let poison = world.send("ada", "poison").await;
    let mut innocent = Vec::new();
    for round in 1..=3 {
        let taken = world.take("ada").await;
        assert_eq!(taken.mail.iter().map(|m| m.message_id).collect::<Vec<_>>(), [poison.message_id], "{round}");
        innocent.push(world.send("ada", "read on").await);
        let joined = world.join("ada", taken.turn.turn_id, 10).await.unwrap();
        assert_eq!(joined.mail.len(), 1);
        world.crash("ada", "it fell over").await;
    }
    let dead = world.dead_letters().await;
    assert_eq!(
        dead.iter().map(|d| (d.messages.clone(), d.crashes)).collect::<Vec<_>>(),
        [(vec![poison.message_id], 3)]
    );
    for message in innocent {
        let taken = world.take("ada").await;
        assert_eq!(taken.mail[0].message_id, message.message_id);
        assert!(!taken.resumed, "it starts a turn of its own");
        world.finish(taken.turn.turn_id, "done").await.unwrap();
    }
    assert!(world.try_take("ada").await.unwrap().is_none());
});

world_test!(only_starts_without_progress_count, async |world| {
    world.limits(|limits| limits.stalled_boots_max = 3);
    let turn = world.busy("ada").await;
    let stalled = async |turn_id: TurnId| world.turn(turn_id).await.stalled_boots;
    boot(&world).await;
    assert_eq!(stalled(turn.turn_id).await, 0, "the first boot that sees it compares with nothing");
    boot(&world).await;
    boot(&world).await;
    assert_eq!(stalled(turn.turn_id).await, 2);
    let outcome = CallOutcome { content: json!("x"), ..CallOutcome::default() };
    world.end_call(&turn, CallId(world.ctx.id()), outcome).await;
    boot(&world).await;
    assert_eq!(stalled(turn.turn_id).await, 0, "it has moved");
    for _ in 0..3 {
        assert!(world.dead_letters().await.is_empty());
        boot(&world).await;
    }
    assert_eq!(world.turn(turn.turn_id).await.status, TurnStatus::Dead);
    assert!(world.dead_letters().await[0].reason.contains('3'));
});

world_test!(a_turn_that_waits_for_an_ask_or_is_stopped_is_not_stalled, async |world| {
    world.limits(|limits| limits.stalled_boots_max = 2);
    let turn = world.busy("ada").await;
    world.ask_by(&turn, "bob", "syscall.ask").await.unwrap();
    let stopped = world.busy("cyd").await;
    world.stop("cyd").await;
    for _ in 0..6 {
        world.pass(Duration::from_secs(1));
        boot(&world).await;
    }
    assert_eq!(world.turn(turn.turn_id).await.status, TurnStatus::Open);
    assert_eq!(world.turn(stopped.turn_id).await.status, TurnStatus::Open);
});

world_test!(a_stalled_turn_with_several_messages_is_split_first, async |world| {
    world.limits(|limits| limits.stalled_boots_max = 2);
    world.send("ada", "one").await;
    let quiet = NewMessage::new(&id("ada"), operator(), Kind::Message, "two", Chain::root(&world.ctx));
    world.deliver(quiet).await.unwrap();
    let turn_id = world.take("ada").await.turn.turn_id;
    for _ in 0..3 {
        boot(&world).await;
    }
    assert_eq!(world.turn(turn_id).await.status, TurnStatus::Split);
    assert_eq!(world.take("ada").await.mail.len(), 1);
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
    assert_eq!(too_long(question.turn.turn_id).await, TurnStatus::Dead);
    assert_eq!(world.take("ada").await.mail.len(), 1);
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
        let (ada, reason) = (id("ada"), "it fell over");
        let dead_lettered = run!(world, |w| agents::crashed(w, &ada, reason)).unwrap();
        assert!(dead_lettered);
        let record = world.agent("ada").await;
        assert_eq!(record.desired == Desired::Stopped, letters == 2, "{record:?}");
        if letters < 2 {
            let ada = id("ada");
            run!(world, |w| agents::restarted(w, &ada)).unwrap();
        }
    }
    let why = world.agent("ada").await.status_reason.unwrap();
    assert!(why.contains('2') && why.contains("ghostctl dead"), "{why}");
    assert_eq!(world.dead_letters().await.len(), 2);
    world.send("bob", "hello").await;
    world.take("bob").await;
});
