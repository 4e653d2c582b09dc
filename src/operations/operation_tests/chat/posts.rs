use super::codes;
use crate::operation_tests::operation_world::*;

// covers: CHAT-04, CHAT-14, CHAT-15, TEST-02
world_test!(a_gated_post_is_stored_and_emitted_and_wakes_nobody, async |world| {
    world.open_channel("ada", "room", &["bob", "cyd"], true).await.unwrap();
    world.signals();
    let posted = world.post_in("ada", "room", "@bob @all: begin").await.unwrap();
    assert_eq!((posted.post.seq, posted.delivered, posted.woken, posted.skipped.len()), (1, 0, 0, 0));
    assert!(world.inbox("bob").await.is_empty() && world.signals().is_empty());
    assert!(world.try_take("bob").await.unwrap().is_none(), "no turn (CHAT-04)");
    let event = world.event(EventKind::ChatMessage).await;
    assert_eq!((event.channel.as_deref(), event.agent_id.clone()), (Some("room"), Some(id("ada"))));
    assert_eq!((event.payload["seq"].as_i64(), &event.payload["content"]), (Some(1), &"@bob @all: begin".into()));
    assert_eq!((&event.payload["gated"], &event.payload["from"]), (&true.into(), &"ada".into()));
    assert_eq!(world.count(EventKind::MessageDelivered).await, 0);
    // An operator may have a gated post delivered.
    let plain = world.post_in("", "room", "@bob a word").await.unwrap();
    assert_eq!((plain.delivered, world.inbox("bob").await.len()), (0, 0), "operators are gated too (CHAT-15)");
    let deliver = |by: &'static str| {
        let new = NewPost { deliver: true, ..world.new_post("room", "@bob stop") };
        world.post_with(by, ChatWake::Mentions, new)
    };
    assert_eq!(code(deliver("ada").await), Code::AccessDenied);
    let posted = deliver("").await.unwrap();
    assert_eq!((posted.delivered, posted.woken), (3, 1));
    let inbox = world.inbox("cyd").await;
    assert_eq!((inbox[0].body.as_str(), inbox[0].wake, inbox[0].kind), ("@bob stop", false, Kind::Chat));
    assert_eq!(world.take("bob").await.mail[0].body, "@bob stop");
});

// covers: CHAT-05, CHAT-11
world_test!(mentions_wake_the_mentioned_members_only, async |world| {
    world.open_channel("ada", "room", &["bob", "cyd"], false).await.unwrap();
    world.signals();
    let quiet = world.post_in("ada", "room", "thinking aloud").await.unwrap();
    assert_eq!((quiet.delivered, quiet.woken), (2, 0));
    let posted = world.post_in("ada", "room", "@bob, @ada, @bob!").await.unwrap();
    assert_eq!((posted.delivered, posted.woken, posted.post.mentions), (2, 1, vec![id("bob")]));
    assert_eq!(world.signals(), [Signal::Wake(id("bob"))]);
    let inbox = world.inbox("bob").await;
    assert!(inbox[0].is_chat_wake() && inbox[0].wake && inbox[0].subject.as_deref() == Some("#room"));
    for _ in 0..9 {
        let again = world.post_in("ada", "room", "@bob?").await.unwrap();
        assert_eq!((again.woken, again.delivered), (0, 2), "one wake-up at most (CHAT-03)");
    }
    assert_eq!((world.inbox("bob").await.len(), world.inbox("cyd").await.len()), (1, 0));
    let all = world.post_in("cyd", "room", "@all").await.unwrap();
    assert_eq!((all.woken, all.post.mentions.len()), (1, 0), "ada; bob is woken already");
});

// covers: CHAT-11
world_test!(the_chat_setting_decides_whom_a_post_wakes, async |world| {
    world.open_channel("ada", "room", &["bob", "cyd"], false).await.unwrap();
    world.open_channel("ada", "duo", &["bob"], false).await.unwrap();
    let post = async |channel: &str, wake| {
        world.post_with("ada", wake, world.new_post(channel, "@bob hello")).await.unwrap().woken
    };
    assert_eq!((post("room", ChatWake::None).await, post("room", ChatWake::All).await), (0, 2));
    assert_eq!(post("duo", ChatWake::None).await, 1, "a channel of two wakes the other");
    let outside = world.post_with("", ChatWake::Mentions, world.new_post("duo", "both of you")).await.unwrap();
    assert_eq!(outside.woken, 1, "ada; bob is woken already");
});

world_test!(only_members_the_creator_and_operators_post, async |world| {
    world.open_channel("ada", "room", &["bob"], true).await.unwrap();
    assert!(hint_of(world.post_in("cyd", "room", "let me in").await, Code::AccessDenied).contains("ada"));
    assert!(hint_of(world.post_in("ada", "rooms", "hello").await, Code::NotFound).contains("`room`"));
    world.expel("", "room", "ada").await.unwrap();
    assert_eq!(world.post_in("ada", "room", "I created it").await.unwrap().post.seq, 1);
    assert_eq!(world.post_in("", "room", "and I watch").await.unwrap().post.seq, 2);
    world.expel("", "room", "bob").await.unwrap();
    assert_eq!(code(world.post_in("bob", "room", "hello?").await), Code::AccessDenied);
});

// covers: CHAT-12
world_test!(a_refused_post_uses_no_sequence, async |world| {
    world.limits(|limits| (limits.chat_post_bytes, limits.hops_max) = (8, 3));
    world.open_channel("ada", "room", &["bob"], false).await.unwrap();
    let far = NewPost { chain: at_hop(RootId(Uuid::nil()), 4), ..world.new_post("room", "far") };
    let reply = |reply_to| NewPost { reply_to: Some(reply_to), ..world.new_post("room", "re") };
    for (new, why) in [
        (world.new_post("room", "é, é, é, é"), Code::TooLarge),
        (world.new_post("room", " \n"), Code::InvalidArguments),
        (world.new_post("room", "a\u{1b}[2J"), Code::InvalidArguments),
        (far, Code::HopLimit),
        (reply(0), Code::NotFound),
        (reply(1), Code::NotFound),
        (reply(-1), Code::NotFound),
    ] {
        assert_eq!(code(world.post_with("ada", ChatWake::All, new).await), why);
    }
    assert_eq!((world.count(EventKind::ChatMessage).await, world.inbox("bob").await.len()), (0, 0));
    assert_eq!(world.post_in("ada", "room", "first").await.unwrap().post.seq, 1);
    assert_eq!(world.post_with("bob", ChatWake::All, reply(1)).await.unwrap().post.seq, 2);
});

// covers: CHAT-13
world_test!(a_member_with_a_full_inbox_is_reported_and_the_others_are_woken, async |world| {
    world.limits(|limits| limits.inbox_max = 1);
    world.add_agent(new_agent(&world.ctx, "dan")).await;
    world.open_channel("ada", "room", &["bob", "cyd"], false).await.unwrap();
    world.send("bob", "fills the inbox").await;
    run!(world, |w| agents::stop(w, &operator(), &id("cyd"), None)).unwrap();
    let posted = world.post_in("ada", "room", "@all @dan @ada dan@nobody.example").await.unwrap();
    assert_eq!(codes(&posted), [("dan", Code::NotFound), ("bob", Code::InboxFull)]);
    assert_eq!((posted.delivered, posted.woken), (1, 1), "a stopped member's wake-up waits (CHAT-13)");
    assert_eq!(world.inbox("cyd").await.len(), 1);
    assert!(world.member("room", "bob").await.unwrap().wake_id.is_none(), "it can be woken by the next post");
    assert_eq!(world.agent("cyd").await.desired, Desired::Stopped);
    world.limits(|limits| (limits.inbox_max, limits.world_mail_max) = (100, 2));
    let posted = world.post_in("ada", "room", "@bob now?").await.unwrap();
    assert_eq!(codes(&posted), [("bob", Code::InboxFull)], "the world is full");
    assert!(posted.skipped[0].reason.contains("world_mail_max"));
});

world_test!(a_mention_of_an_unknown_agent_is_refused_and_nothing_is_posted, async |world| {
    world.add_agent(new_agent(&world.ctx, "dan")).await;
    delete(&world, "dan").await;
    world.open_channel("ada", "room", &["bob", "cyd"], false).await.unwrap();
    let crowd: String = (0..100).map(|n| format!("@nobody-{n} ")).collect();
    for (text, name, near) in [
        ("@bop and @cyd: begin", "bop", Some("`@bob`")),
        ("@cyd, thank (@operator).", "operator", None),
        ("@al listen", "al", Some("`@all`")),
        ("@dan who was deleted", "dan", None),
        (crowd.as_str(), "nobody-0", None),
    ] {
        let posted = world.post_in("ada", "room", text).await;
        let refusal = refused(posted, Code::InvalidArguments, &format!("@{name},"));
        let hint = refusal.hint.unwrap();
        assert!(near.is_none_or(|near| hint.contains(near)), "{hint}");
        assert_eq!(refusal.details.unwrap()["mention"], name);
    }
    assert_eq!(world.count(EventKind::ChatMessage).await, 0);
    assert!(world.inbox("cyd").await.is_empty());
    assert_eq!(world.post_in("ada", "room", "bop and bob@nobody.example").await.unwrap().post.seq, 1);
});

world_test!(a_post_to_a_thousand_members_is_one_event_and_one_row_for_each, async |world| {
    world.limits(|limits| limits.dynamic_agents_max = 2_000);
    let members: Vec<AgentId> = (0..1_000).map(|n| id(&format!("m{n:04}"))).collect();
    let all = members.clone();
    done!(world, |w| {
        let ctx = w.ctx;
        for agent_id in &all {
            agents::create(w, &operator(), new_agent(ctx, agent_id.as_str()))?;
        }
    });
    world.create("ada", NewChannel { members, ..new_channel("hall", &[]) }).await.unwrap();
    world.signals();
    let before = world.events().await.len();
    let posted = world.post_in("ada", "hall", "@all come in").await.unwrap();
    assert_eq!((posted.delivered, posted.woken, posted.skipped.len()), (1_000, 1_000, 0));
    assert_eq!((world.events().await.len() - before, world.signals().len()), (1, 1_000));
    assert_eq!(read!(world, |r| r.inbox_total()?), 1_000);
    assert_eq!(world.post_in("ada", "hall", "@all again").await.unwrap().woken, 0);
    assert_eq!(read!(world, |r| r.inbox_total()?), 1_000);
});

world_test!(an_operator_acting_as_an_agent_has_the_agents_rights_and_is_named_in_the_feed, async |world| {
    world.open_channel("ada", "room", &["bob"], true).await.unwrap();
    let post = async |deliver| {
        let by = Speaker { via: Some(operator()), ..super::speaker("bob") };
        let new = NewPost { deliver, ..world.new_post("room", &format!("as bob, {SECRET}")) };
        run!(world, |w| chat::post(w, &by, ChatWake::All, new))
    };
    assert_eq!(code(post(true).await), Code::AccessDenied);
    post(false).await.unwrap();
    let event = world.event(EventKind::ChatMessage).await;
    assert_eq!((&event.payload["from"], &event.payload["via"]), (&"bob".into(), &"operator:test".into()));
    assert_eq!((event.channel.as_deref(), &event.payload["content"]), (Some("room"), &"as bob, [redacted]".into()));
});
