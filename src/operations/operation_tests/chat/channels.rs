use super::ids;
use crate::operation_tests::operation_world::*;

// covers: CHAT-02, CHAT-10, LIM-10
world_test!(a_channel_has_each_member_once_and_its_creator_unless_skipped, async |world| {
    let created = world.create("ada", new_channel("room", &["cyd", "bob", "cyd"])).await.unwrap();
    assert_eq!(ids(&created.view.members), ["ada", "bob", "cyd"]);
    assert_eq!((created.view.channel.members, created.view.channel.last_seq), (3, 0));
    assert!(created.advisory.unwrap().contains("moderator-open-mic"), "three members, ungated");
    let moderated = NewChannel { skip_creator: true, gated: true, ..new_channel("panel", &["bob", "cyd"]) };
    let created = world.create("ada", moderated).await.unwrap();
    assert_eq!((ids(&created.view.members), created.advisory), (vec!["bob", "cyd"], None));
    let two = world.create("", NewChannel { skip_creator: true, ..new_channel("two", &["bob", "cyd"]) }).await.unwrap();
    assert_eq!((two.advisory, two.view.channel.creator), (None, operator()));
    assert_eq!(world.count(EventKind::ChatCreated).await, 3);
    let event = world.event(EventKind::ChatCreated).await;
    assert_eq!((event.channel.as_deref(), event.payload["member_count"].as_u64()), (Some("room"), Some(3)));
    assert_eq!(event.payload["by"], "agent:ada");
});

// covers: CHAT-12
world_test!(a_refused_channel_leaves_nothing_behind, async |world| {
    world.limits(|limits| {
        limits.chat_channels_max = 1;
        limits.chat_members_max = 2;
    });
    let hint = hint_of(
        world.with_suggestion(world.create("ada", new_channel("room", &["bop"])).await.unwrap_err()).await,
        Code::NotFound,
    );
    assert!(hint.contains("`bob`"));
    assert_eq!(code(world.create("ada", new_channel("room", &["bob", "cyd"])).await), Code::RateLimited);
    assert_eq!(code(world.create("", new_channel("room", &[])).await), Code::InvalidArguments);
    let alone = NewChannel { skip_creator: true, ..new_channel("room", &[]) };
    assert_eq!(code(world.create("ada", alone).await), Code::InvalidArguments);
    let torn = NewChannel { skip_creator: true, ..new_channel("room", &["ada", "bob"]) };
    let refusal = world.create("ada", torn).await.unwrap_err();
    assert_eq!((refusal.code, refusal.details.unwrap()["field"].as_str()), (Code::InvalidArguments, Some("members")));
    assert!(refusal.message.contains("ada"), "{}", refusal.message);
    let long = "x".repeat(201);
    for (topic, why) in
        [("a\nb", Code::InvalidArguments), ("  ", Code::InvalidArguments), (long.as_str(), Code::TooLarge)]
    {
        let bad = NewChannel { topic: Some(topic.to_owned()), ..new_channel("room", &["bob"]) };
        assert_eq!(code(world.create("ada", bad).await), why, "{topic:?}");
    }
    assert_eq!(world.count(EventKind::ChatCreated).await, 0);
    world.create("ada", new_channel("room", &["bob"])).await.unwrap();
    assert_eq!(code(world.create("bob", new_channel("room", &["bob"])).await), Code::Conflict);
    assert_eq!(code(world.create("bob", new_channel("other", &["bob"])).await), Code::RateLimited);
});

// covers: CHAT-07
world_test!(the_creator_and_operators_invite_and_remove_and_a_member_may_leave, async |world| {
    world.open_channel("ada", "room", &["bob"], true).await.unwrap();
    assert_eq!(code(world.invite("bob", "room", "cyd").await), Code::AccessDenied);
    assert_eq!(code(world.invite("ada", "rom", "cyd").await), Code::NotFound);
    assert_eq!(code(world.invite("ada", "room", "cid").await), Code::NotFound);
    for _ in 0..2 {
        let view = world.invite("ada", "room", "cyd").await.unwrap();
        assert_eq!((ids(&view.members), view.channel.members), (vec!["ada", "bob", "cyd"], 3));
    }
    assert_eq!(world.count(EventKind::ChatMemberAdded).await, 1, "who is in already does not join again");
    assert_eq!(code(world.expel("bob", "room", "cyd").await), Code::AccessDenied);
    assert_eq!(ids(&world.expel("bob", "room", "bob").await.unwrap().members), ["ada", "cyd"]);
    assert_eq!(code(world.expel("ada", "room", "bob").await), Code::NotFound, "no member any more");
    assert_eq!(ids(&world.expel("", "room", "cyd").await.unwrap().members), ["ada"]);
    world.invite("", "room", "bob").await.unwrap();
    assert_eq!(world.count(EventKind::ChatMemberRemoved).await, 2);
});

world_test!(an_agent_lists_its_own_channels_and_an_operator_lists_all, async |world| {
    world.create("ada", NewChannel { skip_creator: true, ..new_channel("panel", &["bob"]) }).await.unwrap();
    world.create("bob", new_channel("duo", &["cyd"])).await.unwrap();
    let list = async |of: Option<&str>| {
        let of = of.map(id);
        let views = world.store.read(move |r| chat::list(r, of.as_ref())).await.unwrap();
        views.into_iter().map(|view| view.channel.channel.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list(Some("ada")).await, ["panel"]);
    assert_eq!(list(Some("bob")).await, ["duo", "panel"]);
    assert_eq!(list(Some("cyd")).await, ["duo"]);
    assert_eq!(list(None).await, ["duo", "panel"]);
});

world_test!(a_deleted_agent_leaves_every_channel_and_a_later_agent_inherits_no_rights, async |world| {
    world.open_channel("ada", "room", &["bob", "cyd"], false).await.unwrap();
    world.open_channel("bob", "other", &["ada"], false).await.unwrap();
    world.post_in("bob", "room", "@ada hello").await.unwrap();
    let wake = world.inbox("ada").await.remove(0);
    delete(&world, "ada").await;
    assert_eq!(world.message(wake.message_id).await.state, MailState::Consumed);
    assert!(world.member("room", "ada").await.is_none() && world.member("other", "ada").await.is_none());
    assert_eq!(world.count(EventKind::ChatMemberRemoved).await, 2);
    world.add_agent(new_agent(&world.ctx, "ada")).await;
    assert_eq!(code(world.post_in("ada", "room", "it is me").await), Code::AccessDenied);
    assert_eq!(code(world.invite("ada", "room", "ada").await), Code::AccessDenied);
    let view = world.invite("", "room", "ada").await.unwrap();
    assert_eq!((view.channel.creator, view.channel.members), (Party::System, 3));
});
