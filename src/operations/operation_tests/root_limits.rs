//! The limits of roots and of exchanges between agents.

use ghost_domain::root_tally::RootTally;

use super::operation_world::*;
use crate::root_limits::NearBound;

const ROOT: RootId = RootId(Uuid::from_u128(77));

fn chain(hop: u32) -> Chain {
    at_hop(ROOT, hop)
}

fn message(from: &str, to: &str, text: &str, hop: u32) -> NewMessage {
    NewMessage::new(&id(to), party(from), Kind::Message, text, chain(hop))
}

world_test!(the_messages_of_a_root_are_limited, async |world| {
    world.limits(|limits| limits.root_messages_max = 3);
    for n in 0..3 {
        world.deliver(message("ada", "bob", &format!("part {n} of {}", "x".repeat(300)), 1)).await.unwrap();
    }
    let refusal = world.deliver(message("ada", "bob", "one more", 1)).await.unwrap_err();
    assert_eq!(refusal.code, Code::RateLimited);
    assert!(refusal.message.contains("root_messages_max") && refusal.hint.is_some(), "{refusal}");
    assert_eq!(world.count(EventKind::LimitReached).await, 1, "reported once, when the limit is reached");
    // Another root and senders from outside are not affected.
    let other = Chain { root_id: RootId(Uuid::from_u128(78)), hop: 1, conversation_id: None };
    world.deliver(NewMessage { chain: other, ..message("ada", "bob", "else", 1) }).await.unwrap();
    world.deliver(NewMessage { from: operator(), ..message("ada", "bob", "go on", 1) }).await.unwrap();
    let tally = read!(world, |r| r.root_get(ROOT)?.unwrap());
    assert_eq!(tally.messages, 3, "what was refused is not counted");
});

world_test!(a_broadcast_counts_once_for_each_receiver, async |world| {
    world.limits(|limits| limits.root_messages_max = 3);
    let new_message = NewMessage { kind: Kind::Broadcast, ..message("ada", "ada", "all hands", 1) };
    assert_eq!(world.broadcast(&new_message, &[]).await.unwrap().delivered, 2);
    assert_eq!(code(world.broadcast(&new_message, &[]).await), Code::RateLimited);
    assert_eq!(read!(world, |r| r.inbox_total()?), 2, "nothing of the second one was sent");
});

/// The payloads of the events about reached limits.
async fn limit_events(world: &OperationWorld) -> Vec<serde_json::Value> {
    let limit_events = world.events_of(EventKind::LimitReached).await.into_iter();
    limit_events.map(|event| (*event.payload).clone()).collect()
}

/// Records this refusal as the outcome of a call in a turn.
async fn recorded(world: &OperationWorld, turn: &Turn, refusal: &Refusal) {
    let outcome = CallOutcome { content: Value::Null, refusal: Some(refusal.clone()), ..CallOutcome::default() };
    world.end_call(turn, CallId(world.ctx.id()), outcome).await;
}

world_test!(a_limit_exceeded_in_one_step_is_reported_with_the_record_of_the_refused_call, async |world| {
    world.limits(|limits| limits.root_messages_max = 3);
    let turn = world.busy("ada").await;
    let chain = Chain::after(&turn);
    let new_message = NewMessage { kind: Kind::Broadcast, chain, ..message("ada", "ada", "all hands", 1) };
    world.broadcast(&new_message, &[]).await.unwrap();
    for _ in 0..2 {
        let refusal = world.broadcast(&new_message, &[]).await.unwrap_err();
        let words = "has caused 2 messages; 2 more would exceed the limit of 3 (limits.root_messages_max)";
        assert!(refusal.message.ends_with(words), "{refusal}");
        recorded(&world, &turn, &refusal).await;
    }
    let told = limit_events(&world).await;
    assert_eq!(told.len(), 1, "reported once, although nothing of the broadcast was written: {told:#?}");
    assert_eq!((&told[0]["limit"], &told[0]["messages"]), (&json!("root_messages_max"), &json!(2)));
    assert_eq!((&told[0]["value"], &told[0]["more"]), (&json!(3), &json!(2)));
    // One more message fits and reaches the limit, which was reported already. A changed limit is
    // reported again.
    world.deliver(NewMessage { chain, ..message("ada", "bob", "the last", 1) }).await.unwrap();
    assert_eq!(limit_events(&world).await.len(), 1);
    world.limits(|limits| limits.root_messages_max = 1);
    let refusal = world.deliver(NewMessage { chain, ..message("ada", "bob", "too much", 1) }).await.unwrap_err();
    recorded(&world, &turn, &refusal).await;
    assert_eq!(limit_events(&world).await.len(), 2);
});

world_test!(every_limit_of_a_root_is_reported_even_if_lowered_below_the_current_count, async |world| {
    let turn = world.busy("ada").await;
    let root_id = turn.root_id;
    let chain = move |hop| at_hop(root_id, hop);
    let mut tally = RootTally { messages: 9, turns: 9, spawns: 9, ..RootTally::new(root_id, world.ctx.now()) };
    for _ in 0..9 {
        tally.asked(&id("ada"), &id("bob"));
        tally.echo(&id("ada"), &id("bob"), "Thanks!");
        tally.echo(&id("bob"), &id("ada"), "Thanks!");
    }
    run!(world, |w| Ok::<_, Refusal>(w.root_put(&tally)?)).unwrap();
    world.limits(|limits| {
        limits.root_messages_max = 4;
        limits.root_turns_max = 4;
        limits.root_spawns_max = 4;
        limits.echoes_max = 4;
        limits.reply_rounds_max = 4;
        limits.hops_max = 4;
    });
    let new_message = |text: &str, hop| NewMessage { chain: chain(hop), ..message("ada", "bob", text, 1) };
    let over_turns = run!(world, |w| root_limits::turns_spent(w, root_id, 1)).unwrap().unwrap();
    assert!(over_turns.message.contains("limits.root_turns_max"), "{over_turns}");
    let spawn = NewAgent { chain: chain(1), kind: AgentKind::Dynamic, ..new_agent(&world.ctx, "x1") };
    let refusals = [
        world.deliver(new_message(&"new ".repeat(100), 1)).await.unwrap_err(),
        world.deliver(new_message("Thanks!", 1)).await.unwrap_err(),
        world.deliver(new_message("too far", 5)).await.unwrap_err(),
        world.ask_by(&turn, "bob", "syscall.ask").await.unwrap_err(),
        run!(world, |w| agents::create(w, &party("ada"), spawn)).unwrap_err(),
    ];
    for refusal in refusals.iter().chain(&refusals) {
        recorded(&world, &turn, refusal).await;
    }
    run!(world, |w| root_limits::turn_opened(w, &id("ada"), chain(1))).unwrap();
    let limits: Vec<_> = limit_events(&world).await.into_iter().map(|payload| payload["limit"].clone()).collect();
    let expected =
        ["root_messages_max", "echoes_max", "hops_max", "reply_rounds_max", "root_spawns_max", "root_turns_max"];
    assert_eq!(limits, expected);
});

world_test!(a_refusal_is_reported_even_if_its_caller_goes_on, async |world| {
    world.limits(|limits| limits.root_messages_max = 3);
    let tally = RootTally { messages: 2, ..RootTally::new(ROOT, world.ctx.now()) };
    run!(world, |w| {
        w.root_put(&tally)?;
        Ok::<_, Refusal>(root_limits::sent(w, &party("ada"), chain(1), 2).unwrap_err())
    })
    .unwrap();
    assert_eq!(limit_events(&world).await.len(), 1);
    assert_eq!(read!(world, |r| r.root_get(ROOT)?.unwrap()).messages, 2);
});

world_test!(a_limit_that_system_mail_fills_is_reported, async |world| {
    world.limits(|limits| limits.inbox_max = 1);
    let new_message =
        NewMessage::new(&id("ada"), Party::System, Kind::Message, "by the supervisor", Chain::root(&world.ctx));
    world.deliver(new_message).await.unwrap();
    assert_eq!(code(world.deliver(message("bob", "ada", "no place", 1)).await), Code::InboxFull);
    assert_eq!(limit_events(&world).await[0]["limit"], "inbox_max");
});

world_test!(repeated_texts_between_two_agents_are_refused, async |world| {
    let mut refused = None;
    for hop in 1..20 {
        let (from, to) = if hop % 2 == 1 { ("ada", "bob") } else { ("bob", "ada") };
        let text = format!("Thank you, {to}!");
        if let Err(refusal) = world.deliver(message(from, to, &text, hop)).await {
            refused = Some((hop, refusal));
            break;
        }
    }
    let (hop, refusal) = refused.expect("the exchange ends by itself");
    assert_eq!((hop, refusal.code), (7, Code::LoopGuard), "three each way are let through");
    // New text is still accepted.
    world.deliver(message("ada", "bob", "The harbour figures are in output/harbour.md", 8)).await.unwrap();
});

world_test!(the_last_hop_of_a_chain_is_reported, async |world| {
    world.limits(|limits| limits.hops_max = 5);
    world.deliver(message("ada", "bob", "at the end", 5)).await.unwrap();
    let limit_events: Vec<_> = world.events_of(EventKind::LimitReached).await;
    assert_eq!(limit_events.len(), 1);
    assert_eq!((&limit_events[0].payload["limit"], &limit_events[0].payload["hop"]), (&json!("hops_max"), &json!(5)));
    assert_eq!(limit_events[0].correlation_id, Some(ROOT.to_string()));
    assert_eq!(code(world.deliver(message("bob", "ada", "beyond", 6)).await), Code::HopLimit);
});

world_test!(the_agents_that_a_root_creates_are_limited, async |world| {
    world.limits(|limits| limits.root_spawns_max = 2);
    let spawn = async |name: &str, chain: Chain| {
        let new = NewAgent { chain, kind: AgentKind::Dynamic, ..new_agent(&world.ctx, name) };
        run!(world, |w| agents::create(w, &party("ada"), new))
    };
    spawn("x1", chain(1)).await.unwrap();
    spawn("x2", chain(2)).await.unwrap();
    let refusal = spawn("x3", chain(3)).await.unwrap_err();
    assert_eq!(refusal.code, Code::RateLimited);
    assert!(refusal.message.contains("root_spawns_max"), "{refusal}");
    assert!(read!(world, |r| r.agent_get(&id("x3"))?).is_none(), "nothing half done");
});

world_test!(the_turns_of_a_root_are_limited_and_its_mail_is_consumed, async |world| {
    world.limits(|limits| limits.root_turns_max = 1);
    for text in ["first", "second"] {
        world.deliver(message("bob", "ada", text, 1)).await.unwrap();
        let taken = world.take("ada").await;
        assert_eq!(taken.over.is_some(), text == "second");
        world.finish(taken.turn.turn_id, "done").await.unwrap();
    }
    assert!(world.try_take("ada").await.unwrap().is_none());
});

world_test!(a_turn_of_a_spent_root_takes_no_mail_of_other_roots, async |world| {
    world.limits(|limits| limits.root_turns_max = 1);
    world.deliver(message("bob", "ada", "first", 1)).await.unwrap();
    world.done("ada", "done").await;
    world.deliver(message("bob", "ada", "second", 1)).await.unwrap();
    let other = world.send("ada", "from the operator").await;
    let taken = world.take("ada").await;
    assert!(taken.over.is_some() && taken.mail.len() == 1);
    // The daemon dies before the turn is ended. The turn must still be ended.
    let again = world.take("ada").await;
    assert!(again.resumed && again.over.is_some());
    world.finish(taken.turn.turn_id, "ended").await.unwrap();
    let taken = world.take("ada").await;
    assert_eq!((taken.mail[0].message_id, taken.over), (other.message_id, None));
});

world_test!(a_message_refused_by_its_receiver_is_not_counted, async |world| {
    world.limits(|limits| limits.inbox_max = 1);
    world.deliver(message("ada", "bob", "fits", 1)).await.unwrap();
    let swallowed =
        run!(world, |w| { Ok::<_, Refusal>(mail::deliver(w, message("ada", "bob", "does not", 1)).unwrap_err().code) });
    assert_eq!(swallowed.unwrap(), Code::InboxFull);
    assert_eq!(read!(world, |r| r.root_get(ROOT)?.unwrap()).messages, 1);
});

// covers: MSG-09
world_test!(the_mail_of_the_world_is_limited_except_for_system_mail, async |world| {
    world.limits(|limits| limits.world_mail_max = 2);
    world.send("ada", "one").await;
    world.send("bob", "two").await;
    let new_message = NewMessage::new(&id("ada"), operator(), Kind::Message, "three", Chain::root(&world.ctx));
    let refusal = world.deliver(new_message.clone()).await.unwrap_err();
    assert_eq!(refusal.code, Code::InboxFull);
    assert!(refusal.message.contains("world_mail_max"));
    world.deliver(NewMessage { from: Party::System, ..new_message.clone() }).await.unwrap();
    world.take("ada").await;
    world.deliver(new_message).await.unwrap();
    let limit_events = world.events_of(EventKind::LimitReached).await.into_iter();
    let limits: Vec<_> = limit_events.map(|event| event.payload["limit"].clone()).collect();
    assert_eq!(limits, [json!("world_mail_max"), json!("world_mail_max")], "reported each time that it fills");
});

world_test!(nearly_reached_limits_are_listed_fullest_first, async |world| {
    assert_eq!(read!(world, |r| root_limits::near(r, 0)?), []);
    world.limits(|limits| (limits.root_messages_max, limits.inbox_max, limits.dynamic_agents_max) = (5, 4, 10));
    for n in 0..4 {
        world.deliver(message("ada", "bob", &format!("{n} {}", "y".repeat(300)), 1)).await.unwrap();
    }
    let near = world.ctx.read(&world.store, |r| root_limits::near(r, 9)).await.unwrap();
    let named =
        |limit: &str, about: &str, value, most| NearBound { limit: limit.into(), about: about.into(), value, most };
    let root = ROOT.to_string();
    let wanted = [
        named("inbox_max", "bob", 4, 4),
        named("dynamic_agents_max", "", 9, 10),
        named("root_messages_max", &root, 4, 5),
    ];
    assert_eq!(near, wanted);
});

world_test!(a_check_in_advance_gives_the_same_refusal_and_counts_nothing, async |world| {
    world.limits(|limits| limits.root_messages_max = 8);
    for hop in 1..12 {
        let (from, to) = if hop % 2 == 1 { ("ada", "bob") } else { ("bob", "ada") };
        // Repeated texts, then new texts.
        let text = if hop < 8 { "Thanks!".to_owned() } else { format!("part {hop} of {}", "x".repeat(300)) };
        let new_message = message(from, to, &text, hop);
        let (before, asked) = (read!(world, |r| r.root_get(ROOT)?), new_message.clone());
        let would = world.ctx.read(&world.store, move |r| mail::would_deliver(r, &asked)).await;
        assert_eq!(read!(world, |r| r.root_get(ROOT)?), before);
        let done = world.deliver(new_message).await.map(|_| ());
        assert_eq!(would.map_err(|refusal| refusal.code), done.map_err(|refusal| refusal.code), "hop {hop}");
    }
});
