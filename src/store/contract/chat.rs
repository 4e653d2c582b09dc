//! Chat: channels, their members, and chat messages by cursor.

use futures_util::future::join_all;
use ghost_domain::{ChatChannel, ChatMember, ChatPost, Envelope, Party};

use super::tools::*;
use crate::Store;

/// Names, in order, where one is the beginning of the next.
const ALIKE: [&str; 5] = ["a", "a-b", "a.b", "a0", "aa"];

pub(super) async fn channels_are_listed_by_name(store: Bench) {
    let full = || ChatChannel {
        creator: Party::Operator(AWKWARD.to_owned()),
        gated: true,
        topic: Some(AWKWARD.to_owned()),
        members: u32::MAX,
        ..channel("b", i64::MAX)
    };
    keep!(&store, |w| {
        w.chat_channel_put(&channel("b", 1))?;
        assert_eq!(w.chat_channel_get(&channel_name("b"))?, Some(channel("b", 1)));
        w.chat_channel_put(&full())?;
        w.chat_channel_put(&channel("c", 0))?;
        w.chat_channel_put(&channel("a", 0))?;
        assert_eq!(w.chat_channel_get(&channel_name("b"))?.as_ref(), Some(&full()));
        let list = w.chat_channel_list()?;
        assert_eq!(map_rows(&list, |channel| channel.channel.to_string()), ["a", "b", "c"]);
        assert_eq!(w.chat_channel_count()?, 3);
    });
    let (b, none) =
        reading!(&store, |r| { (r.chat_channel_get(&channel_name("b"))?, r.chat_channel_get(&channel_name("x"))?) });
    assert_eq!((b.as_ref(), none), (Some(&full()), None));
    assert_eq!(reading!(&store, |r| { r.chat_channel_list()? })[1], full());

    keep!(&store, |w| {
        for n in 0..1_000 {
            w.chat_channel_put(&channel(&format!("d{n:04}"), 0))?;
        }
        assert_eq!(w.chat_channel_count()?, 1_003);
    });
    let (list, count) = reading!(&store, |r| { (r.chat_channel_list()?, r.chat_channel_count()?) });
    assert_eq!((list.len(), list[999].channel.to_string(), count), (1_000, "d0996".to_owned(), 1_003));
}

async fn in_channel(store: &Store, name: &'static str) -> Vec<String> {
    map_rows(&reading!(store, |r| { r.chat_members(&channel_name(name))? }), |member| member.agent_id.to_string())
}

async fn of_agent(store: &Store, name: &'static str) -> Vec<String> {
    map_rows(&reading!(store, |r| { r.chat_memberships(&id_of(name))? }), |member| member.channel.to_string())
}

pub(super) async fn members_are_listed_both_ways(store: Bench) {
    keep!(&store, |w| {
        for name in ALIKE.into_iter().rev() {
            for agent in ALIKE {
                w.chat_member_put(&member(name, agent, 0))?;
            }
        }
        let inside = w.chat_members(&channel_name("a"))?;
        assert_eq!(map_rows(&inside, |member| member.agent_id.to_string()), ALIKE);
        w.chat_member_put(&member("z", "a", 0))?;
        let inside = w.chat_memberships(&id_of("a"))?;
        assert_eq!(map_rows(&inside, |member| member.channel.to_string()), ["a", "a-b", "a.b", "a0", "aa", "z"]);
    });
    for name in ALIKE {
        assert_eq!(in_channel(&store, name).await, ALIKE, "members of {name}");
    }
    assert_eq!(of_agent(&store, "aa").await, ALIKE);
    assert_eq!((in_channel(&store, "none").await, of_agent(&store, "none").await), (vec![], vec![]));

    let woken =
        || ChatMember { read_seq: i64::MAX, wake_id: Some(message_id(7)), joined_at: at(9), ..member("a", "a-b", 0) };
    keep!(&store, |w| {
        w.chat_member_put(&woken())?;
        assert_eq!(w.chat_member_get(&channel_name("a"), &id_of("a-b"))?.as_ref(), Some(&woken()));
        assert_eq!(w.chat_member_get(&channel_name("a"), &id_of("b"))?, None);
    });
    assert_eq!(reading!(&store, |r| { r.chat_member_get(&channel_name("a"), &id_of("a-b"))? }), Some(woken()));
    assert_eq!(reading!(&store, |r| { r.chat_members(&channel_name("a"))? })[1], woken());
    keep!(&store, |w| { w.chat_member_put(&member("a", "a-b", 3))? });
    assert_eq!(
        keep!(&store, |w| { w.chat_member_get(&channel_name("a"), &id_of("a-b"))? }),
        Some(member("a", "a-b", 3))
    );
}

pub(super) async fn members_leave_and_come_back(mut store: Bench) {
    keep!(&store, |w| {
        for agent in ["a", "b", "c"] {
            w.chat_member_put(&member("x", agent, 1))?;
        }
        // A membership that the same command wrote is deleted like any other, whether or not it was
        // read before.
        w.chat_member_delete(&channel_name("x"), &id_of("b"))?;
        assert_eq!(w.chat_member_get(&channel_name("x"), &id_of("b"))?, None);
        assert_eq!(w.chat_members(&channel_name("x"))?.len(), 2);
        w.chat_member_delete(&channel_name("x"), &id_of("b"))?;
        w.chat_member_delete(&channel_name("nowhere"), &id_of("a"))?;
    });
    assert_eq!(in_channel(&store, "x").await, ["a", "c"]);
    refuse!(&store, |w| {
        w.chat_member_delete(&channel_name("x"), &id_of("a"))?;
        assert_eq!(w.chat_member_get(&channel_name("x"), &id_of("a"))?, None);
        w.chat_member_put(&member("x", "b", 1))?;
        assert_eq!(w.chat_memberships(&id_of("a"))?, []);
    });
    refuse!(&store, |w| {
        w.chat_member_put(&member("x", "a", 5))?;
        w.chat_member_delete(&channel_name("x"), &id_of("a"))?;
    });
    keep!(&store, |w| {
        assert_eq!(w.chat_member_get(&channel_name("x"), &id_of("a"))?, Some(member("x", "a", 1)));
        assert_eq!(w.chat_member_get(&channel_name("x"), &id_of("b"))?, None);
    });
    assert_eq!(in_channel(&store, "x").await, ["a", "c"]);
    keep!(&store, |w| {
        w.chat_member_delete(&channel_name("x"), &id_of("a"))?;
        w.chat_member_put(&member("x", "a", 9))?;
        assert_eq!(w.chat_member_get(&channel_name("x"), &id_of("a"))?, Some(member("x", "a", 9)));
        w.chat_member_delete(&channel_name("x"), &id_of("c"))?;
    });
    assert_eq!(reading!(&store, |r| { r.chat_members(&channel_name("x"))? }), [member("x", "a", 9)]);
    assert_eq!(keep!(&store, |w| { w.chat_member_get(&channel_name("x"), &id_of("c"))? }), None);
    store.reopen().await;
    assert_eq!((in_channel(&store, "x").await, of_agent(&store, "c").await), (vec!["a".to_owned()], vec![]));
}

pub(super) async fn unread_channels_follow_the_cursor(store: Bench) {
    keep!(&store, |w| {
        for (name, gated, last_seq, read_seq) in [
            ("c", false, 3, 2),
            ("read", false, 3, 3),
            ("gated", true, 3, 0),
            ("empty", false, 0, 0),
            ("b", false, 1, 0),
        ] {
            w.chat_channel_put(&ChatChannel { gated, ..channel(name, last_seq) })?;
            w.chat_member_put(&member(name, "a", read_seq))?;
        }
        w.chat_channel_put(&channel("not-mine", 5))?;
        w.chat_member_put(&member("not-mine", "aa", 0))?;
        w.chat_member_put(&member("gone", "a", 0))?;
        let unread = w.chat_unread(&id_of("a"))?;
        assert_eq!(unread, [(member("b", "a", 0), channel("b", 1)), (member("c", "a", 2), channel("c", 3))]);
    });
    let unread = async || {
        let unread = reading!(&store, |r| { r.chat_unread(&id_of("a"))? });
        map_rows(&unread, |(member, channel)| format!("{} {} {}", member.channel, member.read_seq, channel.last_seq))
    };
    assert_eq!(unread().await, ["b 0 1", "c 2 3"]);
    keep!(&store, |w| { w.chat_member_put(&member("b", "a", 1))? });
    assert_eq!(unread().await, ["c 2 3"]);
    keep!(&store, |w| {
        w.chat_channel_put(&channel("read", 4))?;
        w.chat_channel_put(&channel("gated", 3))?;
        w.chat_member_delete(&channel_name("c"), &id_of("a"))?;
        assert_eq!(w.chat_unread(&id_of("a"))?.len(), 2);
    });
    assert_eq!(unread().await, ["gated 0 3", "read 3 4"]);
}

async fn seqs(store: &Store, after: i64, before: i64, limit: u32) -> Vec<i64> {
    map_rows(&reading!(store, |r| { r.chat_posts(&channel_name("a"), after, before, limit)? }), |post| post.seq)
}

pub(super) async fn posts_are_read_by_cursor(store: Bench) {
    let full = || ChatPost {
        from: Party::Operator("me".to_owned()),
        content: AWKWARD.to_owned(),
        mentions: vec![id_of("b"), id_of("c")],
        reply_to: Some(3),
        hop: u32::MAX,
        ..post("a", 6)
    };
    keep!(&store, |w| {
        for seq in 1..=5 {
            w.chat_post_append(&post("a", seq))?;
            w.chat_post_append(&post("aa", seq))?;
            assert_eq!(w.chat_posts(&channel_name("a"), 0, 0, 99)?.len(), usize::try_from(seq).unwrap());
        }
        w.chat_post_append(&full())?;
        assert_eq!(w.chat_posts(&channel_name("a"), 5, 0, 9)?, [full()]);
    });
    assert_eq!(seqs(&store, 0, 0, 99).await, [1, 2, 3, 4, 5, 6]);
    assert_eq!(seqs(&store, 0, 0, 2).await, [5, 6], "the newest, in order");
    assert_eq!(seqs(&store, 2, 0, 2).await, [5, 6]);
    assert_eq!(seqs(&store, 0, 4, 2).await, [2, 3]);
    assert_eq!(seqs(&store, 2, 5, 99).await, [3, 4], "both bounds are exclusive");
    for (after, before, limit) in [(0, 0, 0), (6, 0, 9), (99, 0, 9), (0, 1, 9), (3, 4, 9), (5, 2, 9), (i64::MAX, 0, 9)]
    {
        assert_eq!(seqs(&store, after, before, limit).await, [] as [i64; 0], "{after} {before} {limit}");
    }
    assert_eq!(seqs(&store, 0, 0, u32::MAX).await.len(), 6);
    assert_eq!(reading!(&store, |r| { r.chat_posts(&channel_name("a"), 4, 0, 9)? }), [post("a", 5), full()]);
    assert_eq!(reading!(&store, |r| { r.chat_posts(&channel_name("none"), 0, 0, 9)? }), []);
}

/// Commands that each change the rows of a thousand members, like chat messages that wake them all. They are queued at
/// once, so that a backend with group commit runs them in one batch.
pub(super) async fn commands_update_a_thousand_members(store: Bench) {
    keep!(&store, |w| {
        w.chat_channel_put(&channel("all", 0))?;
        for n in 0..1_000 {
            w.chat_member_put(&member("all", &format!("m{n:03}"), 0))?;
        }
    });
    let posts = (1..=3).map(|seq: u64| {
        let store = store.clone();
        async move {
            keep!(&store, |w| {
                let members = w.chat_members(&channel_name("all"))?;
                assert_eq!(members.len(), 1_000);
                w.chat_post_append(&post("all", seq))?;
                w.chat_channel_put(&channel("all", number(seq)))?;
                for (member, n) in members.into_iter().zip(1..) {
                    assert_eq!(member.wake_id, (seq > 1).then(|| message_id(1_000 * (seq - 1) + n)));
                    let woken = ChatMember { wake_id: Some(message_id(1_000 * seq + n)), ..member };
                    w.chat_member_put(&woken)?;
                    assert_eq!(w.chat_member_get(&woken.channel, &woken.agent_id)?.as_ref(), Some(&woken));
                    w.message_append(&Envelope { to: woken.agent_id, ..mail(1_000 * seq + n, "a") })?;
                }
            });
        }
    });
    join_all(posts).await;
    let members = reading!(&store, |r| { r.chat_members(&channel_name("all"))? });
    assert!(members.iter().zip(1..).all(|(member, n)| member.wake_id == Some(message_id(3_000 + n))));
    shows!(&store, |r| {
        r.chat_members(&channel_name("all"))?.len() => 1_000;
        r.chat_posts(&channel_name("all"), 1, 3, 9)? => [post("all", 2)];
        r.inbox_total()? => 3_000;
        r.chat_unread(&id_of("m500"))?.len() => 1;
    });
}
