use super::operation_world::*;

// covers: LOOP-06
world_test!(a_turn_takes_mail_that_belongs_together, async |world| {
    assert!(world.try_take("ada").await.unwrap().is_none(), "nothing to do");
    let first = world.outside_ask("ada").await.unwrap();
    let chain = at_hop(RootId(Uuid::from_u128(9)), 5);
    let merged = world.deliver(NewMessage::new(&id("ada"), operator(), Kind::Task, "too", chain)).await.unwrap();
    let second = world.outside_ask("ada").await.unwrap();
    let taken = world.take("ada").await;
    assert_eq!(ids(&taken.mail), [first.message_id, merged.message_id]);
    assert!(!taken.resumed && taken.earlier.is_empty());
    assert_eq!((taken.turn.hop, taken.turn.other_roots.as_slice()), (5, &[chain.root_id][..]));
    assert!(taken.turn.about.contains("how many?"));
    assert_eq!(world.message(merged.message_id).await.state, MailState::Taken);
    assert_eq!(world.message(second.message_id).await.state, MailState::Pending);
    // Turns of one agent are serial: until this one ends, no other opens.
    let again = world.take("ada").await;
    assert!(again.resumed && again.turn.turn_id == taken.turn.turn_id && again.mail.len() == 2);
    assert_eq!(world.count(EventKind::TurnStarted).await, 1);
    world.finish(taken.turn.turn_id, "done").await.unwrap();
    assert_eq!(world.take("ada").await.mail[0].message_id, second.message_id);
});

world_test!(a_stopped_agent_takes_no_mail_and_keeps_its_turn, async |world| {
    let turn = world.busy("ada").await;
    world.stop("ada").await;
    world.send("ada", "later").await;
    assert!(world.try_take("ada").await.unwrap().is_none());
    assert_eq!(world.turn(turn.turn_id).await.status, TurnStatus::Open);
    run!(world, |w| agents::start(w, &operator(), &id("ada"))).unwrap();
    assert_eq!(world.take("ada").await.turn.turn_id, turn.turn_id);
});

// A session's log is in the order in which its turns ended, and begins with the life of its agent.
world_test!(a_clock_that_is_behind_ends_no_turn_before_an_earlier_one_or_before_its_agent, async |world| {
    let ended = async || {
        let turn = world.busy("ada").await;
        // A turn without a model's answer is in no log.
        world.model_call(turn.turn_id, demand(1, 10), used(1, 1)).await;
        world.finish(turn.turn_id, "done").await.unwrap().ended_at.unwrap()
    };
    world.set_back(DAY * 400);
    let mut last = world.agent("ada").await.created_at;
    for step in 0..6 {
        let at = ended().await;
        assert!(if step == 0 { at >= last } else { at > last }, "{step}: {at:?} after {last:?}");
        last = at;
        if step == 2 {
            world.set_back(DAY);
        }
    }
    // A busy agent does not run ahead of itself.
    let began = last;
    for _ in 0..100 {
        last = ended().await;
    }
    assert!(last.since(began) <= Duration::from_secs(61), "{began:?} to {last:?}");
    world.pass(DAY * 500);
    assert_eq!(ended().await, world.ctx.now(), "a clock that is right again is followed");
});

world_test!(jobs_that_start_together_are_charged_separately, async |world| {
    let (one, two) = (super::tasks::begin(&world, '1').await, super::tasks::begin(&world, '2').await);
    let done = NewMessage::new(&id("ada"), operator(), Kind::Task, "done", at_hop(one.root_id, 1));
    world.deliver(done).await.unwrap();
    for (job, letters) in [(one, 2), (two, 1)] {
        let turn = world.take("ada").await;
        assert_eq!((turn.turn.root_id, turn.mail.len()), (job.root_id, letters));
        assert!(turn.turn.other_roots.is_empty());
        world.finish(turn.turn.turn_id, "done").await.unwrap();
    }
});

world_test!(quiet_mail_opens_no_turn_and_does_not_hide_waking_mail, async |world| {
    world.limits(|limits| limits.turn_mail_max = 2);
    for _ in 0..5 {
        let new_message = NewMessage::new(&id("ada"), operator(), Kind::Chat, "psst", Chain::root(&world.ctx));
        world.deliver(NewMessage { wake: false, ..new_message }).await.unwrap();
    }
    assert!(world.try_take("ada").await.unwrap().is_none());
    let loud = world.send("ada", "hello").await;
    let taken = world.take("ada").await;
    assert_eq!(taken.mail.len(), 2);
    assert!(taken.mail.iter().any(|mail| mail.message_id == loud.message_id));
});

world_test!(an_ended_turn_accepts_no_more_steps, async |world| {
    let turn = world.busy("ada").await;
    let turn_id = turn.turn_id;
    let call_id = CallId(world.ctx.id());
    world.start_call(&turn, &call_start(call_id, "t", Effect::Outside)).await;
    world.signals();
    run!(world, |w| turns::cancel(w, &operator(), turn_id)).unwrap();
    let is_told = |signal: &Signal| matches!(signal, Signal::TurnCancelled { turn_id: ended, .. } if *ended == turn_id);
    assert!(world.signals().iter().any(is_told));
    let ended = world.turn(turn_id).await;
    assert_eq!((ended.status, ended.reason.as_deref()), (TurnStatus::Cancelled, Some("by operator:test")));
    let row = world.call(call_id).await;
    assert_eq!((row.status, row.error_code), (CallStatus::Unknown, Some(Code::OutcomeUnknown)));
    assert_eq!(code(world.finish(turn_id, "but").await), Code::Cancelled);
    assert_eq!(code(run!(world, |w| turns::note(w, turn_id, "but"))), Code::Cancelled);
    assert_eq!(code(world.model_start(turn_id, demand(1, 16)).await), Code::Cancelled);
    assert!(world.inbox("ada").await.is_empty(), "its mail is not tried again");
    let nobody = TurnId(Uuid::nil());
    assert_eq!(code(run!(world, |w| turns::cancel(w, &Party::System, nobody))), Code::NotFound);
});

world_test!(an_operators_turn_is_independent_of_the_agents_own, async |world| {
    let own = world.busy("ada").await.turn_id;
    let beside = run!(world, |w| operator_turn(w, &id("ada"))).unwrap();
    assert_eq!(read!(world, |r| r.turn_open_of(&id("ada"))?).unwrap().turn_id, own);
    world.finish(own, "done").await.unwrap();
    assert!(world.try_take("ada").await.unwrap().is_none(), "it is not the agent's to go on with");
    run!(world, |w| turns::review_at_boot(w)).unwrap();
    let ended = world.turn(beside.turn_id).await;
    assert_eq!(ended.status, TurnStatus::Failed, "nobody waits for it any more");
    assert!(ended.reason.unwrap().contains("outcome_unknown"));
});

world_test!(an_older_epoch_is_refused_everywhere, async |world| {
    let turn_id = world.busy("ada").await.turn_id;
    let (held, _) = world.model_start(turn_id, demand(10, 16)).await.unwrap();
    let before = (world.journal(turn_id).await, world.events().await.len());
    let (old, text) = (world.stale(), (String::new(), None));
    let failed = || Ending::Failed(Refusal::new(Code::Internal, "x"));
    let refusals = [
        code(old.try_take("ada").await),
        code(old.model_start(turn_id, demand(1, 16)).await),
        code(old.model_answer(turn_id, held, used(1, 1)).await),
        code(run!(old, |w| turns::model_failed(w, turn_id, held, "m", "x", budgets::Settlement::Forfeited))),
        code(run!(old, |w| turns::note(w, turn_id, "x"))),
        code(run!(old, |w| turns::brief(w, turn_id, ("a", "a"), ("b", "b"), Default::default(), text))),
        code(run!(old, |w| turns::working_turn(w, turn_id))),
        code(old.finish(turn_id, "mine").await),
        code(run!(old, |w| turns::finish(w, turn_id, failed()))),
        code(run!(old, |w| operator_turn(w, &id("ada")))),
        code(run!(old, |w| agents::crashed(w, &id("ada"), "x"))),
        code(run!(old, |w| agents::restarted(w, &id("ada")))),
        code(run!(old, |w| agents::stopped(w, &id("ada")))),
        code(run!(old, |w| agents::failed(w, &id("ada"), "x"))),
    ];
    assert_eq!(refusals, [Code::Conflict; 14]);
    assert_eq!((world.journal(turn_id).await, world.events().await.len()), before, "nothing was written");
    assert_eq!(world.turn(turn_id).await.status, TurnStatus::Open);
    assert_eq!(world.agent("ada").await.status, AgentStatus::Running);
    // The owner can still write.
    world.model_answer(turn_id, held, used(1, 1)).await.unwrap();
    world.finish(turn_id, "done").await.unwrap();
});

#[tokio::test]
async fn the_end_of_a_turn_completes_an_ask_of_another_owners_agent() {
    // The end of the target's turn writes the asker's record. That needs no ownership of the asker.
    let world = World::new().await;
    let turn = world.busy("ada").await;
    let (_, call_id) = world.ask_by(&turn, "bob", "syscall.ask").await.unwrap();
    let ada = Agent { epoch: 2, ..world.agent("ada").await };
    done!(world, |w| w.agent_put(&ada)?);
    world.finish(world.take("bob").await.turn.turn_id, "seven").await.unwrap();
    assert!(world.outcome(turn.turn_id, call_id).await.is_some());
}
