use super::{name, names};
use crate::operation_tests::operation_world::*;

// covers: CHAT-02, CHAT-10, LIM-10
world_test!(a_channel_has_each_member_once_and_its_creator_unless_skipped, async |world| {
    let created = world.create("ada", new_channel("room", &["cyd", "bob", "cyd"])).await.unwrap();
    assert_eq!(names(&created.view.members), ["ada", "bob", "cyd"]);
    assert_eq!((created.view.channel.members, created.view.channel.last_seq), (3, 0));
    assert!(created.advisory.unwrap().contains("moderator-open-mic"), "three members, ungated");
    let moderated = NewChannel { skip_creator: true, gated: true, ..new_channel("panel", &["bob", "cyd"]) };
    let created = world.create("ada", moderated).await.unwrap();
    assert_eq!((names(&created.view.members), created.advisory), (vec!["bob", "cyd"], None));
    let two = world.create("", NewChannel { skip_creator: true, ..new_channel("two", &["bob", "cyd"]) }).await.unwrap();
    assert_eq!((two.advisory, two.view.channel.creator), (None, operator()));
    assert_eq!(world.count(EventKind::ChatCreated).await, 3);
    let event = world.event(EventKind::ChatCreated).await;
    assert_eq!((event.channel.as_deref(), event.payload["member_count"].as_u64()), (Some("room"), Some(3)));
    assert_eq!(event.payload["by"], "agent:ada");
});

// covers: CHAT-12
world_test!(a_refused_channel_leaves_nothing_behind, async |world| {
    world.limits(|limits| (limits.chat_channels_max, limits.chat_members_max) = (1, 2));
    let create = async |by, new| world.create(by, new).await;
    let unknown = create("ada", new_channel("room", &["bop"])).await;
    assert!(world.suggestion(unknown, Code::NotFound).await.contains("`bob`"));
    assert_eq!(code(create("ada", new_channel("room", &["bob", "cyd"])).await), Code::RateLimited);
    assert_eq!(code(create("", new_channel("room", &[])).await), Code::InvalidArguments);
    let without_creator = |members| NewChannel { skip_creator: true, ..new_channel("room", members) };
    assert_eq!(code(create("ada", without_creator(&[])).await), Code::InvalidArguments);
    let torn = refused(create("ada", without_creator(&["ada", "bob"])).await, Code::InvalidArguments, "ada");
    assert_eq!(torn.details.unwrap()["field"], "members");
    let long = "x".repeat(201);
    for (topic, why) in
        [("a\nb", Code::InvalidArguments), ("  ", Code::InvalidArguments), (long.as_str(), Code::TooLarge)]
    {
        let bad = NewChannel { topic: Some(topic.to_owned()), ..new_channel("room", &["bob"]) };
        assert_eq!(code(create("ada", bad).await), why, "{topic:?}");
    }
    assert_eq!(world.count(EventKind::ChatCreated).await, 0);
    create("ada", new_channel("room", &["bob"])).await.unwrap();
    assert_eq!(code(create("bob", new_channel("room", &["bob"])).await), Code::Conflict);
    assert_eq!(code(create("bob", new_channel("other", &["bob"])).await), Code::RateLimited);
});

// covers: CHAT-07
world_test!(the_creator_and_operators_invite_and_remove_and_a_member_may_leave, async |world| {
    world.open_channel("ada", "room", &["bob"], true).await.unwrap();
    assert_eq!(code(world.invite("bob", "room", "cyd").await), Code::AccessDenied);
    assert_eq!(code(world.invite("ada", "rom", "cyd").await), Code::NotFound);
    assert_eq!(code(world.invite("ada", "room", "cid").await), Code::NotFound);
    for _ in 0..2 {
        let view = world.invite("ada", "room", "cyd").await.unwrap();
        assert_eq!((names(&view.members), view.channel.members), (vec!["ada", "bob", "cyd"], 3));
    }
    assert_eq!(world.count(EventKind::ChatMemberAdded).await, 1, "who is in already does not join again");
    assert_eq!(code(world.expel("bob", "room", "cyd").await), Code::AccessDenied);
    assert_eq!(names(&world.expel("bob", "room", "bob").await.unwrap().members), ["ada", "cyd"]);
    assert_eq!(code(world.expel("ada", "room", "bob").await), Code::NotFound, "no member any more");
    assert_eq!(names(&world.expel("", "room", "cyd").await.unwrap().members), ["ada"]);
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

/// No posts.
const NONE: [i64; 0] = [];

fn query(limit: u32, before_seq: Option<i64>, after_seq: Option<i64>) -> HistoryQuery {
    HistoryQuery { channel: name("room"), limit, before_seq, after_seq }
}

async fn with_posts(count: i64) -> World {
    let world = World::new().await;
    world.open_channel("ada", "room", &["bob"], true).await.unwrap();
    for n in 1..=count {
        world.post_in("ada", "room", &format!("post {n}")).await.unwrap();
        world.pass(Duration::from_secs(1));
    }
    world
}

// covers: CHAT-08
#[tokio::test]
async fn pages_go_back_from_the_newest_and_forward_from_a_cursor() {
    let world = with_posts(9).await;
    for (limit, before, after, page) in [
        (3, None, None, &[7, 8, 9][..]),
        (3, Some(7), None, &[4, 5, 6]),
        (3, Some(1), None, &[]),
        (3, Some(10), None, &[7, 8, 9]),
        (3, None, Some(0), &[1, 2, 3]),
        (3, None, Some(8), &[9]),
        (3, None, Some(9), &[]),
        (500, Some(6), Some(3), &[4, 5]),
        (500, Some(3), Some(6), &[]),
    ] {
        assert_eq!(world.history("bob", query(limit, before, after)).await.unwrap(), page, "{before:?} {after:?}");
    }
    // Each invalid cursor is refused with its own code.
    for (before, after, problem) in [
        (Some(11), None, Code::CursorAhead),
        (None, Some(10), Code::CursorAhead),
        (None, Some(i64::MAX), Code::CursorAhead),
        (Some(0), None, Code::InvalidArguments),
        (None, Some(-1), Code::InvalidArguments),
    ] {
        let refusal = refused(world.history("", query(5, before, after)).await, problem, "");
        assert!(refusal.hint.is_some() && refusal.details.unwrap()["last_seq"] == 9, "{before:?} {after:?}");
    }
    for limit in [0, 501] {
        assert_eq!(code(world.history("", query(limit, None, None)).await), Code::InvalidArguments);
    }
}

// covers: CHAT-13
#[tokio::test]
async fn only_members_the_creator_and_operators_read_a_channel() {
    let world = with_posts(2).await;
    let read = async |by| world.history(by, query(50, None, None)).await;
    assert_eq!(code(read("cyd").await), Code::AccessDenied);
    world.invite("ada", "room", "cyd").await.unwrap();
    assert_eq!(read("cyd").await.unwrap(), [1, 2], "posts from before it joined");
    world.expel("ada", "room", "cyd").await.unwrap();
    assert_eq!(code(read("cyd").await), Code::AccessDenied, "CHAT-13");
    world.expel("", "room", "ada").await.unwrap();
    assert_eq!(read("ada").await.unwrap(), [1, 2], "its creator reads it");
    let elsewhere = HistoryQuery { channel: name("rooms"), ..query(50, None, None) };
    assert_eq!(code(world.history("", elsewhere).await), Code::NotFound);
}

#[tokio::test]
async fn a_cursor_before_the_oldest_kept_post_is_refused_with_its_sequence() {
    let world = with_posts(9).await;
    let of = async |before, after| world.history("", query(50, before, after)).await;
    let expired = async |before, after| {
        let refusal = refused(of(before, after).await, Code::CursorExpired, "");
        assert!(refusal.hint.is_some());
        refusal.details.unwrap()["oldest_seq"].clone()
    };
    let before = world.ctx.now().minus(Duration::from_millis(5_500));
    assert_eq!(done!(world, |w| w.prune(Family::ChatPosts, before, 100)?), 4);
    assert_eq!(of(None, None).await.unwrap(), [5, 6, 7, 8, 9]);
    assert_eq!(of(None, Some(4)).await.unwrap(), [5, 6, 7, 8, 9]);
    assert_eq!(of(Some(6), None).await.unwrap(), [5]);
    assert_eq!(of(Some(1), None).await.unwrap(), NONE, "there never was anything before it");
    for (before, after) in [(None, Some(3)), (None, Some(0)), (Some(5), None), (Some(2), None)] {
        assert_eq!(expired(before, after).await, 5);
    }
    // Pruning does not change the next sequence.
    let now = world.ctx.now();
    done!(world, |w| w.prune(Family::ChatPosts, now, 100)?);
    assert_eq!(of(None, None).await.unwrap(), NONE);
    assert_eq!(expired(None, Some(3)).await, Value::Null);
    assert_eq!(world.post_in("ada", "room", "ten").await.unwrap().post.seq, 10);
}
