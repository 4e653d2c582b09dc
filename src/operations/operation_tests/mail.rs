//! Mail: its limits and receivers, broadcasts, what joins a turn, and commands that are sent twice.

use super::operation_world::*;

fn new_message(world: &World, to: &str, from: Party) -> NewMessage {
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
    world.limits(|limits| (limits.inbox_max, limits.hops_max, limits.message_bytes) = (1, 3, 8));
    let send = async |from, body: &str, hop| {
        let chain = at_hop(RootId(Uuid::nil()), hop);
        world.deliver(NewMessage { body: body.into(), chain, ..new_message(&world, "bob", from) }).await
    };
    assert_eq!(code(send(party("ada"), "ééééé", 1).await), Code::TooLarge);
    assert_eq!(code(send(party("ada"), "hello", 4).await), Code::HopLimit);
    assert!(world.inbox("bob").await.is_empty());
    assert_eq!(world.count(EventKind::MessageDelivered).await, 0);
    send(party("ada"), "hello", 3).await.unwrap();
    assert_eq!(code(send(party("ada"), "hello", 0).await), Code::InboxFull);
    // Mail from the system ignores the limits on inboxes and hops, but not the one on size
    // (MSG-09).
    send(Party::System, "hello", 99).await.unwrap();
    assert_eq!((code(send(Party::System, "123456789", 1).await), world.inbox("bob").await.len()), (Code::TooLarge, 2));
});

// An agent may list agents only with a tool for that.
world_test!(a_name_that_is_like_no_other_gets_the_list_if_it_is_short, async |world| {
    let listed = async |by| hint_of(world.deliver(new_message(&world, "nobody-at-all", by)).await, Code::NotFound);
    let hint = listed(operator()).await;
    assert!(["ada", "bob", "cyd"].iter().all(|name| hint.contains(name)), "{hint}");
    assert!(!listed(party("ada")).await.contains("cyd"));
    delete(&world, "bob").await;
    assert_eq!(code(world.deliver(new_message(&world, "bob", operator())).await), Code::NotFound);
});

world_test!(mail_of_a_stopped_agent_is_accepted_and_the_sender_can_learn_that_it_waits, async |world| {
    world.limits(|limits| limits.inbox_max = 2);
    let why = async || mail::why_mail_waits(&world.ctx, &world.agent("bob").await);
    assert_eq!(why().await, None);
    world.send("bob", "one").await;
    run!(world, |w| agents::stop(w, &operator(), &id("bob"), None)).unwrap();
    world.send("bob", "two").await;
    assert!(why().await.unwrap().contains("`ghostctl agent start bob`"));
    // The limit was lowered meanwhile.
    world.limits(|limits| limits.inbox_max = 1);
    let refusal = refused(world.deliver(new_message(&world, "bob", operator())).await, Code::InboxFull, "holds 2 ");
    assert!(refusal.message.contains("agent start bob"), "{refusal}");
    let details = refusal.details.unwrap();
    assert_eq!((&details["limit"], &details["value"]), (&json!("inbox_max"), &json!(1)));
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
    assert_eq!(code(world.broadcast(&all, &["cid"]).await), Code::NotFound);
});

// A broadcast to more agents than one transaction takes reaches each once, and one limit refuses all or none.
world_test!(a_large_broadcast_goes_in_slices, async |world| {
    done!(world, |w| {
        let agent = w.agent_get(&id("bob"))?.unwrap();
        for n in 0..2_300 {
            let agent_id = id(&format!("b{n:04}"));
            w.agent_put(&Agent { agent_id, archetype: "crowd".to_owned(), ..agent.clone() })?;
        }
    });
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
    let from_bob = async |chain| {
        let new = NewMessage { chain, ..new_message(&world, "ada", party("bob")) };
        world.deliver(new).await.unwrap().message_id
    };
    let (near, far) = (from_bob(at_hop(turn.root_id, 2)).await, from_bob(at_hop(root_id, 9)).await);
    let last = world.send("ada", "the next read takes this").await;
    let turn_id = turn.turn_id;
    let joined = world.join("ada", turn_id, 2).await.unwrap();
    assert_eq!(ids(&joined.mail), [near, far]);
    assert_eq!(joined.remaining, 3, "the ask, the heartbeat and what was beyond the limit");
    let after = world.turn(turn_id).await;
    assert_eq!((after.hop, after.other_roots), (9, vec![root_id]));
    assert_eq!(world.message(ask.message_id).await.state, MailState::Pending);
    world.finish(turn_id, "done").await.unwrap();
    assert_eq!(world.message(far).await.state, MailState::Consumed);
    assert_eq!(world.message(last.message_id).await.state, MailState::Pending);
    assert_eq!(code(world.join("ada", turn_id, 1).await), Code::Cancelled, "an ended turn takes nothing");
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
    assert_eq!((ids(&joined.mail), joined.remaining), (vec![other.message_id], 1));
    assert_eq!(world.message(of_job.message_id).await.state, MailState::Pending);
});

fn key(method: &str, digest: &str) -> RequestKey {
    let request_id = "r1".parse().unwrap();
    RequestKey { principal: operator(), request_id, method: method.into(), digest: digest.into() }
}

async fn send_once(world: &World, key: RequestKey, body: &str) -> Result<Envelope> {
    let body = body.to_owned();
    requests::once(&world.store, &world.ctx, key, move |w| {
        let chain = Chain::root(w.ctx);
        mail::deliver(w, NewMessage::new(&id("ada"), operator(), Kind::Message, body, chain))
    })
    .await
}

world_test!(a_repetition_gets_the_first_answer_and_other_content_is_a_conflict, async |world| {
    // A refusal is not stored and changes nothing.
    world.limits(|limits| limits.message_bytes = 3);
    assert_eq!(code(send_once(&world, key("send", "d1"), "hello").await), Code::TooLarge);
    world.limits(|limits| limits.message_bytes = 30);
    let first = send_once(&world, key("send", "d1"), "hello").await.unwrap();
    assert_eq!(first, send_once(&world, key("send", "d1"), "hello").await.unwrap());
    assert_eq!(world.inbox("ada").await.len(), 1);
    assert_eq!(code(send_once(&world, key("send", "d2"), "other").await), Code::Conflict);
    assert_eq!(code(send_once(&world, key("stop", "d1"), "hello").await), Code::Conflict);
    let other = RequestKey { principal: Party::Operator("other".into()), ..key("send", "d1") };
    send_once(&world, other, "hello").await.unwrap();
    assert_eq!(world.inbox("ada").await.len(), 2, "an id is unique to its caller");
});

world_test!(the_sweep_deletes_finished_work_and_keeps_open_work, async |world| {
    world.limits(|limits| limits.crashes_max = 1);
    let done = world.busy("ada").await.turn_id;
    world.finish(done, "done").await.unwrap();
    let open = world.busy("ada").await.turn_id;
    let waiting = world.send("ada", "unread").await;
    let asked = world.outside_ask("cyd").await.unwrap();
    let poison = world.busy("bob").await.turn_id;
    world.crash("bob", "it fell over").await;
    send_once(&world, key("send", "d1"), "hello").await.unwrap();
    world.pass(Limits::days(31));
    let last = world.events().await.last().unwrap().seq;
    assert!(world.sweep().await > 0 && world.events().await.is_empty());
    assert!(read!(world, |r| r.turn_get(done)?).is_none());
    assert_eq!(world.turn(open).await.status, TurnStatus::Open);
    assert_eq!(world.message(waiting.message_id).await.state, MailState::Pending);
    assert_eq!(world.ask_row(asked.ask_id).await.status, AskStatus::Open);
    assert_eq!(world.dead_letters().await.len(), 1, "held");
    assert_eq!(world.turn(poison).await.status, TurnStatus::Dead, "its journal is kept for a retry");
    assert_eq!(world.sweep().await, 0);
    // The sequence and the kept work go on; the stored answer is deleted.
    world.finish(open, "at last").await.unwrap();
    assert_eq!(world.events().await[0].seq, last + 1);
    send_once(&world, key("send", "d2"), "x").await.unwrap();
});

/// A clock on which a millisecond passes whenever a duration is measured.
struct Slow(std::sync::Arc<ghost_domain::testing::ManualClock>);

impl ghost_domain::Clock for Slow {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
    fn steady(&self) -> Timestamp {
        self.0.advance(Duration::from_millis(1));
        self.0.steady()
    }
    fn sleep(&self, duration: Duration) -> ghost_domain::time::BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }
}

world_test!(a_slow_broadcast_ends_its_slice_after_some_time, async |world| {
    done!(world, |w| {
        let agent = w.agent_get(&id("bob"))?.unwrap();
        for n in 0..60 {
            w.agent_put(&Agent { agent_id: id(&format!("b{n:04}")), ..agent.clone() })?;
        }
    });
    let ports =
        ghost_domain::ports::Ports { clock: std::sync::Arc::new(Slow(world.clock.clone())), ..world.ctx.ports.clone() };
    let ctx = Context::new(ports, ghost_domain::redact::Redactor::default(), "node", 1, Limits::default());
    let (new, mut sent, mut before) = (new_message(&world, "ada", party("ada")), None, 0);
    loop {
        let (new, so_far) = (new.clone(), sent.take());
        let part = ctx.write(&world.store, move |w| mail::broadcast(w, &new, &[], None, so_far)).await.unwrap();
        assert!(part.delivered - before <= 25, "{part:?}");
        before = part.delivered;
        if part.rest.is_none() {
            break;
        }
        sent = Some(part);
    }
    assert_eq!((before, read!(world, |r| r.inbox_total()?)), (62, 62), "each got it once");
});
