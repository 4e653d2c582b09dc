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

world_test!(the_messages_and_the_new_agents_of_a_root_are_limited, async |world| {
    world.limits(|limits| (limits.root_messages_max, limits.root_spawns_max) = (3, 2));
    for n in 0..3 {
        world.deliver(message("ada", "bob", &format!("part {n} of {}", "x".repeat(300)), 1)).await.unwrap();
    }
    let more = world.deliver(message("ada", "bob", "one more", 1)).await;
    assert!(refused(more, Code::RateLimited, "root_messages_max").hint.is_some());
    assert_eq!(world.count(EventKind::LimitReached).await, 1, "reported once, when the limit is reached");
    // Another root and senders from outside are not affected.
    let chain = at_hop(RootId(Uuid::from_u128(78)), 1);
    world.deliver(NewMessage { chain, ..message("ada", "bob", "else", 1) }).await.unwrap();
    world.deliver(NewMessage { from: operator(), ..message("ada", "bob", "go on", 1) }).await.unwrap();
    assert_eq!(sent(&world).await, 3, "what was refused is not counted");
    let spawn = async |name: &str, hop| {
        create(&world, NewAgent { chain: at_hop(ROOT, hop), ..new_agent(&world.ctx, name) }).await
    };
    spawn("x1", 1).await.unwrap();
    spawn("x2", 2).await.unwrap();
    refused(spawn("x3", 3).await, Code::RateLimited, "root_spawns_max");
    assert!(read!(world, |r| r.agent_get(&id("x3"))?).is_none(), "nothing half done");
});

/// The counted messages of the root.
async fn sent(world: &World) -> u64 {
    read!(world, |r| r.root_get(ROOT)?.unwrap()).messages
}

/// The limits that were reported as reached.
async fn reached(world: &World) -> Vec<Value> {
    world.told(EventKind::LimitReached, "limit").await
}

/// Records this refusal as the outcome of a call in a turn.
async fn recorded(world: &World, turn: &Turn, refusal: &Refusal) {
    let outcome = CallOutcome { content: Value::Null, refusal: Some(refusal.clone()), ..CallOutcome::default() };
    world.end_call(turn, CallId(world.ctx.id()), outcome).await;
}

world_test!(a_limit_exceeded_in_one_step_is_reported_with_the_record_of_the_refused_call, async |world| {
    world.limits(|limits| limits.root_messages_max = 3);
    let turn = world.busy("ada").await;
    let chain = Chain::after(&turn);
    let new_message = NewMessage { kind: Kind::Broadcast, chain, ..message("ada", "ada", "all hands", 1) };
    assert_eq!(world.broadcast(&new_message, &[]).await.unwrap().delivered, 2, "each receiver counts");
    let waiting = read!(world, |r| r.inbox_total()?);
    for _ in 0..2 {
        let refusal = world.broadcast(&new_message, &[]).await.unwrap_err();
        let words = "has caused 2 messages; 2 more would exceed the limit of 3 (limits.root_messages_max)";
        assert!(refusal.message.ends_with(words), "{refusal}");
        recorded(&world, &turn, &refusal).await;
    }
    assert_eq!(read!(world, |r| r.inbox_total()?), waiting, "nothing of the broadcast was written");
    let told = world.payloads(EventKind::LimitReached).await;
    assert_eq!(told.len(), 1, "reported once all the same: {told:#?}");
    let fields = ["limit", "messages", "value", "more"].map(|field| &told[0][field]);
    assert_eq!(fields, [&json!("root_messages_max"), &json!(2), &json!(3), &json!(2)]);
    // One more message fits and reaches the limit, which was reported already. A changed limit is
    // reported again.
    world.deliver(NewMessage { chain, ..message("ada", "bob", "the last", 1) }).await.unwrap();
    assert_eq!(reached(&world).await.len(), 1);
    world.limits(|limits| limits.root_messages_max = 1);
    let refusal = world.deliver(NewMessage { chain, ..message("ada", "bob", "too much", 1) }).await.unwrap_err();
    recorded(&world, &turn, &refusal).await;
    assert_eq!((refusal.code, reached(&world).await.len()), (Code::RateLimited, 2));
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
    done!(world, |w| w.root_put(&tally)?);
    world.limits(|limits| {
        (limits.root_messages_max, limits.root_turns_max, limits.root_spawns_max) = (4, 4, 4);
        (limits.echoes_max, limits.reply_rounds_max, limits.hops_max) = (4, 4, 4);
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
    let expected =
        ["root_messages_max", "echoes_max", "hops_max", "reply_rounds_max", "root_spawns_max", "root_turns_max"];
    assert_eq!(reached(&world).await, expected);
});

world_test!(a_refusal_is_reported_even_if_its_caller_goes_on_and_is_not_counted, async |world| {
    world.limits(|limits| (limits.root_messages_max, limits.inbox_max) = (3, 1));
    let tally = RootTally { messages: 2, ..RootTally::new(ROOT, world.ctx.now()) };
    done!(world, |w| {
        w.root_put(&tally)?;
        root_limits::sent(w, &party("ada"), chain(1), 2).unwrap_err()
    });
    assert_eq!((reached(&world).await.len(), sent(&world).await), (1, 2));
    // Neither is a message that its receiver refuses.
    world.deliver(message("ada", "bob", "fits", 1)).await.unwrap();
    let swallowed = done!(world, |w| mail::deliver(w, message("ada", "bob", "does not", 1)).unwrap_err().code);
    assert_eq!((swallowed, sent(&world).await), (Code::InboxFull, 3));
});

/// The sender and the receiver at a hop of an exchange between ada and bob.
fn ends(hop: u32) -> (&'static str, &'static str) {
    if hop % 2 == 1 { ("ada", "bob") } else { ("bob", "ada") }
}

world_test!(repeated_texts_between_two_agents_are_refused, async |world| {
    for hop in 1..8 {
        let (from, to) = ends(hop);
        let sent = world.deliver(message(from, to, &format!("Thank you, {to}!"), hop)).await;
        assert_eq!(sent.err().map(|refusal| refusal.code), (hop == 7).then_some(Code::LoopGuard), "{hop}");
    }
    // New text is still accepted.
    world.deliver(message("ada", "bob", "The harbour figures are in output/harbour.md", 8)).await.unwrap();
});

world_test!(the_last_hop_of_a_chain_and_a_limit_that_system_mail_fills_are_reported, async |world| {
    world.limits(|limits| (limits.hops_max, limits.inbox_max) = (5, 1));
    world.deliver(NewMessage { from: Party::System, ..message("bob", "ada", "by the supervisor", 5) }).await.unwrap();
    assert_eq!(code(world.deliver(message("bob", "ada", "no place", 1)).await), Code::InboxFull);
    world.deliver(message("ada", "bob", "at the end", 5)).await.unwrap();
    assert_eq!(code(world.deliver(message("bob", "ada", "beyond", 6)).await), Code::HopLimit);
    assert_eq!(reached(&world).await, ["inbox_max", "inbox_max", "hops_max"]);
    let event = world.events_of(EventKind::LimitReached).await.remove(2);
    assert_eq!((&event.payload["hop"], event.correlation_id), (&json!(5), Some(ROOT.to_string())));
});

world_test!(a_turn_of_a_spent_root_consumes_its_mail_and_takes_none_of_other_roots, async |world| {
    world.limits(|limits| limits.root_turns_max = 1);
    world.deliver(message("bob", "ada", "first", 1)).await.unwrap();
    let taken = world.take("ada").await;
    assert!(taken.over.is_none());
    world.finish(taken.turn.turn_id, "done").await.unwrap();
    world.deliver(message("bob", "ada", "second", 1)).await.unwrap();
    let other = world.send("ada", "from the operator").await;
    let taken = world.take("ada").await;
    assert!(taken.over.is_some() && taken.mail.len() == 1);
    // The daemon dies before the turn is ended. The turn must still be ended.
    let again = world.take("ada").await;
    assert!(again.resumed && again.over.is_some());
    world.finish(taken.turn.turn_id, "ended").await.unwrap();
    let taken = world.take("ada").await;
    assert_eq!((ids(&taken.mail), taken.over), (vec![other.message_id], None));
    world.finish(taken.turn.turn_id, "done").await.unwrap();
    assert!(world.try_take("ada").await.unwrap().is_none());
});

// covers: MSG-09
world_test!(the_mail_of_the_world_is_limited_except_for_system_mail, async |world| {
    world.limits(|limits| limits.world_mail_max = 2);
    world.send("ada", "one").await;
    world.send("bob", "two").await;
    let new_message = NewMessage { from: operator(), ..message("bob", "ada", "three", 1) };
    refused(world.deliver(new_message.clone()).await, Code::InboxFull, "world_mail_max");
    world.deliver(NewMessage { from: Party::System, ..new_message.clone() }).await.unwrap();
    world.take("ada").await;
    world.deliver(new_message).await.unwrap();
    assert_eq!(reached(&world).await, ["world_mail_max"; 2], "reported each time that it fills");
});

world_test!(nearly_reached_limits_are_listed_fullest_first, async |world| {
    let near = async |dynamic_agents| read!(world, |r| root_limits::near(r, dynamic_agents)?);
    assert_eq!(near(0).await, []);
    world.limits(|limits| (limits.root_messages_max, limits.inbox_max, limits.dynamic_agents_max) = (5, 4, 10));
    for n in 0..4 {
        world.deliver(message("ada", "bob", &format!("{n} {}", "y".repeat(300)), 1)).await.unwrap();
    }
    let root: &str = &ROOT.to_string();
    let named = [("inbox_max", "bob", 4, 4), ("dynamic_agents_max", "", 9, 10), ("root_messages_max", root, 4, 5)];
    let wanted = named.map(|(limit, about, value, most)| {
        let (limit, about) = (limit.into(), about.into());
        NearBound { limit, about, value, most }
    });
    assert_eq!(near(9).await, wanted);
});

world_test!(a_check_in_advance_gives_the_same_refusal_and_counts_nothing, async |world| {
    world.limits(|limits| limits.root_messages_max = 8);
    for hop in 1..12 {
        let (from, to) = ends(hop);
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
