use super::operation_world::*;

fn new_message(world: &OperationWorld, to: &str, from: Party) -> NewMessage {
    NewMessage::new(&id(to), from, Kind::Message, "hello", Chain::root(&world.ctx))
}

// covers: MSG-01, MSG-08, STORE-03
world_test!(delivery_is_one_row_one_event_and_one_wake, async |world| {
    let sent = world.deliver(new_message(&world, "bob", party("ada"))).await.unwrap();
    let inbox = world.inbox("bob").await;
    assert_eq!(inbox.len(), 1);
    assert!(inbox[0].seq > 0 && inbox[0].message_id == sent.message_id && inbox[0].state == MailState::Pending);
    assert_eq!(world.count(EventKind::MessageDelivered).await, 1);
    assert_eq!(world.signals(), [Signal::Wake(id("bob"))]);
    world.deliver(NewMessage { wake: false, ..new_message(&world, "bob", party("ada")) }).await.unwrap();
    assert!(world.signals().is_empty(), "quiet mail wakes nobody");
    assert_eq!(world.message(sent.message_id).await.read_at, None);
    world.take("bob").await;
    assert_eq!(world.message(sent.message_id).await.read_at, Some(world.ctx.now()));
});

// covers: LIM-40, MSG-09
world_test!(every_exceeded_limit_is_refused_and_leaves_nothing_behind, async |world| {
    world.limits(|limits| {
        limits.inbox_max = 1;
        limits.hops_max = 3;
        limits.message_bytes = 8;
    });
    let long = NewMessage { body: "é".repeat(5), ..new_message(&world, "bob", party("ada")) };
    assert_eq!(code(world.deliver(long).await), Code::TooLarge);
    let root_id = RootId(Uuid::nil());
    let far = |hop| NewMessage { chain: at_hop(root_id, hop), ..new_message(&world, "bob", party("ada")) };
    assert_eq!(code(world.deliver(far(4)).await), Code::HopLimit);
    assert!(world.inbox("bob").await.is_empty());
    assert_eq!(world.count(EventKind::MessageDelivered).await, 0);
    world.deliver(far(3)).await.unwrap();
    assert_eq!(code(world.deliver(far(0)).await), Code::InboxFull);
    // Mail from the system ignores the limits on inboxes and hops, but not the one on size
    // (MSG-09).
    let chain = at_hop(root_id, 99);
    world.deliver(NewMessage { chain, ..new_message(&world, "bob", Party::System) }).await.unwrap();
    let long = NewMessage { body: "x".repeat(9), ..new_message(&world, "bob", Party::System) };
    assert_eq!(code(world.deliver(long).await), Code::TooLarge);
    assert_eq!(world.inbox("bob").await.len(), 2);
});

world_test!(an_unknown_receiver_gets_a_suggestion, async |world| {
    let hint = hint_of(world.deliver(new_message(&world, "bop", operator())).await.unwrap_err(), Code::NotFound);
    assert!(hint.contains("`bob`"));
    delete(&world, "bob").await;
    assert_eq!(code(world.deliver(new_message(&world, "bob", operator())).await), Code::NotFound);
});

world_test!(a_name_that_is_like_no_other_gets_the_list_if_it_is_short, async |world| {
    let refusal = world.deliver(new_message(&world, "nobody-at-all", operator())).await.unwrap_err();
    let hint = refusal.hint.unwrap();
    assert!(refusal.code == Code::NotFound && ["ada", "bob", "cyd"].iter().all(|name| hint.contains(name)), "{hint}");
    // An agent may list agents only with a tool for that.
    let refusal = world.deliver(new_message(&world, "nobody-at-all", party("ada"))).await.unwrap_err();
    assert!(!refusal.hint.unwrap().contains("cyd"));
});

world_test!(mail_of_a_stopped_agent_is_accepted_and_the_sender_can_learn_that_it_waits, async |world| {
    world.limits(|limits| limits.inbox_max = 2);
    let why = async || {
        let bob = read!(world, |r| r.agent_get(&id("bob"))?).unwrap();
        mail::why_mail_waits(&world.ctx, &bob)
    };
    assert_eq!(why().await, None);
    world.send("bob", "one").await;
    run!(world, |w| agents::stop(w, &operator(), &id("bob"), None)).unwrap();
    world.send("bob", "two").await;
    assert!(why().await.unwrap().contains("`ghostctl agent start bob`"));
    // The limit was lowered meanwhile.
    world.limits(|limits| limits.inbox_max = 1);
    let refusal = world.deliver(new_message(&world, "bob", operator())).await.unwrap_err();
    let details = refusal.details.unwrap();
    assert_eq!((refusal.code, &details["limit"], &details["value"]), (Code::InboxFull, &"inbox_max".into(), &1.into()));
    assert!(refusal.message.contains("holds 2 ") && refusal.message.contains("agent start bob"), "{}", refusal.message);
});

world_test!(the_suggestion_is_searched_after_the_command, async |world| {
    let new_message = new_message(&world, "bop", operator());
    let refused: Refusal = run!(world, |w| mail::deliver(w, new_message)).unwrap_err();
    assert_eq!(
        refused.details,
        Some(serde_json::json!({ "unknown": { "agent_for_operator": "bop" } })),
        "within it nothing is looked for"
    );
    let offered = mail::with_nearest(&world.store, refused).await;
    assert_eq!((offered.code, offered.details), (Code::NotFound, None));
    assert!(offered.hint.unwrap().contains("`bob`"));
    // A refusal without an unknown name stays as it is.
    let other = Refusal::new(Code::NotFound, "no").details(serde_json::json!({ "field": "to" }));
    assert_eq!(mail::with_nearest(&world.store, other.clone()).await, other);
});

// covers: MSG-05
world_test!(a_broadcast_reaches_all_others_and_reports_skipped_receivers, async |world| {
    world.limits(|limits| limits.inbox_max = 1);
    world.send("bob", "fills the inbox").await;
    let all = new_message(&world, "ada", party("ada"));
    let sent = world.broadcast(&all, &[]).await.unwrap();
    assert_eq!(sent.delivered, 1);
    assert_eq!(sent.skipped.iter().map(|skipped| skipped.agent_id.as_str()).collect::<Vec<_>>(), ["bob"]);
    assert_eq!(world.inbox("cyd").await.len(), 1);
    assert!(world.inbox("ada").await.is_empty(), "never the sender (MSG-05)");
    let none = world.broadcast(&all, &["cyd", "bob"]).await.unwrap();
    assert_eq!((none.delivered, none.skipped.len()), (0, 0));
    let copy = all.clone();
    let other = run!(world, |w| mail::broadcast(w, &copy, &[], Some("king"), None)).unwrap();
    assert_eq!(other.delivered, 0);
    assert_eq!(code(world.broadcast(&all, &["cid"]).await), Code::NotFound);
});

// A broadcast to more agents than one transaction takes reaches each once, and one limit refuses all or none.
world_test!(a_large_broadcast_goes_in_slices, async |world| {
    run!(world, |w| {
        let agent = w.agent_get(&id("bob"))?.unwrap();
        (0..2_300).try_for_each(|n| {
            let agent_id = id(&format!("b{n:04}"));
            w.agent_put(&Agent { agent_id, archetype: "crowd".to_owned(), ..agent.clone() })
        })?;
        Ok::<_, ghost_store::StoreError>(())
    })
    .unwrap();
    for (archetype, all, slices) in [(None, 2_302, 3), (Some("crowd"), 2_300, 3), (Some("king"), 0, 1)] {
        let new_message = new_message(&world, "ada", party("ada"));
        let before = read!(world, |r| r.inbox_total()?);
        let (mut sent, mut parts) = (None, 0);
        loop {
            let copy = new_message.clone();
            let part = run!(world, |w| mail::broadcast(w, &copy, &[], archetype, sent)).unwrap();
            parts += 1;
            let waiting = read!(world, |r| r.inbox_total()?) - before;
            assert_eq!(u64::from(part.delivered), waiting, "each transaction is complete in itself");
            assert!(waiting <= 1_000 * parts);
            sent = Some(part.clone());
            if part.rest.is_none() {
                assert_eq!((part.delivered, part.skipped.len(), parts), (all, 0, slices));
                break;
            }
        }
    }
    world.limits(|limits| limits.root_messages_max = 2_301);
    let chain = Chain { hop: 1, ..Chain::root(&world.ctx) };
    let refused = NewMessage { chain, ..new_message(&world, "ada", party("ada")) };
    let before = read!(world, |r| r.inbox_total()?);
    assert_eq!(code(world.broadcast(&refused, &[]).await), Code::RateLimited);
    assert_eq!(read!(world, |r| r.inbox_total()?), before);
    // Only so many of those with a full inbox are named.
    world.limits(|limits| limits.inbox_max = 1);
    let full = world.broadcast(&new_message(&world, "ada", party("ada")), &[]).await.unwrap();
    assert_eq!((full.delivered, full.skipped.len(), full.more_skipped), (0, 100, 899));
});

// covers: BI-33
world_test!(reading_the_inbox_joins_what_may_merge_and_raises_the_hop, async |world| {
    let turn = world.busy("ada").await;
    let ask = world.outside_ask("ada").await.unwrap();
    world.deliver(NewMessage { kind: Kind::Heartbeat, ..new_message(&world, "ada", Party::System) }).await.unwrap();
    let root_id = RootId(Uuid::from_u128(77));
    let near = NewMessage { chain: at_hop(turn.root_id, 2), ..new_message(&world, "ada", party("bob")) };
    let far = NewMessage { chain: at_hop(root_id, 9), ..new_message(&world, "ada", party("bob")) };
    let (near, far) = (world.deliver(near).await.unwrap(), world.deliver(far).await.unwrap());
    let last = world.send("ada", "the next read takes this").await;
    let turn_id = turn.turn_id;
    let joined = world.join("ada", turn_id, 2).await.unwrap();
    let ids: Vec<_> = joined.mail.iter().map(|mail| mail.message_id).collect();
    assert_eq!(ids, [near.message_id, far.message_id]);
    assert_eq!(joined.remaining, 3, "the ask, the heartbeat and what was beyond the limit");
    let after = world.turn(turn_id).await;
    assert_eq!((after.hop, after.other_roots), (9, vec![root_id]));
    assert_eq!(world.message(ask.message_id).await.state, MailState::Pending);
    world.finish(turn_id, "done").await.unwrap();
    assert_eq!(world.message(far.message_id).await.state, MailState::Consumed);
    assert_eq!(world.message(last.message_id).await.state, MailState::Pending);
    let ended = world.join("ada", turn_id, 1).await;
    assert_eq!(code(ended), Code::Cancelled, "an ended turn takes nothing");
    assert_eq!(read!(world, |r| r.inbox_depth(&id("ada"))?), 3);
});

world_test!(the_mail_of_a_main_job_joins_no_turn_of_another_root, async |world| {
    let turn = world.busy("ada").await;
    let job = RootId(Uuid::from_u128(77));
    let of_job = NewMessage { chain: at_hop(job, 1), ..new_message(&world, "ada", party("bob")) };
    let of_job = world.deliver(of_job).await.unwrap();
    let other = world.send("ada", "plain").await;
    world.ctx.add_jobs([job]);
    let joined = world.join("ada", turn.turn_id, 9).await.unwrap();
    let ids: Vec<_> = joined.mail.iter().map(|mail| mail.message_id).collect();
    assert_eq!((ids, joined.remaining), (vec![other.message_id], 1));
    assert_eq!(world.message(of_job.message_id).await.state, MailState::Pending);
});
