//! Chat: channels, their members, and chat messages by cursor.

use super::tools::*;

pub(super) async fn channels_are_listed_by_name(store: Bench) {
    let full = || ChatChannel {
        creator: Party::Operator(AWKWARD.to_owned()),
        gated: true,
        topic: Some(AWKWARD.to_owned()),
        members: u32::MAX,
        ..channel("b", i64::MAX)
    };
    put!(&store, { chat_channel_put: channel("b", 1), full(), channel("c", 0), channel("a", 0); });
    shows!(&store, |r| {
        r.chat_channel_get(&channel_name("b"))? => Some(full());
        r.chat_channel_get(&channel_name("x"))? => None;
        r.chat_channel_list()? => [channel("a", 0), full(), channel("c", 0)];
        r.chat_channel_count()? => 3;
    });
    keep!(&store, |w| {
        for n in 0..1_000 {
            w.chat_channel_put(&channel(&format!("d{n:04}"), 0))?;
        }
    });
    let (list, count) = reading!(&store, |r| { (r.chat_channel_list()?, r.chat_channel_count()?) });
    assert_eq!((list.len(), list[999].channel.to_string(), count), (1_000, "d0996".to_owned(), 1_003));
}

/// The agents in a channel.
fn inside(r: &mut Tx, channel: &str) -> Result<String> {
    Ok(map_rows(&r.chat_members(&channel_name(channel))?, |member| member.agent_id.to_string()).join(" "))
}

/// The channels of an agent.
fn of_agent(r: &mut Tx, agent: &str) -> Result<String> {
    Ok(map_rows(&r.chat_memberships(&id_of(agent))?, |member| member.channel.to_string()).join(" "))
}

pub(super) async fn members_are_listed_both_ways(store: Bench) {
    // In order, and one is the beginning of the next.
    let alike = ["a", "a-b", "a.b", "a0", "aa"];
    keep!(&store, |w| {
        for name in alike.into_iter().rev() {
            for agent in alike {
                w.chat_member_put(&member(name, agent, 0))?;
            }
        }
        w.chat_member_put(&member("z", "a", 0))?;
        for name in alike {
            assert_eq!(inside(w, name)?, alike.join(" "));
        }
    });
    let woken =
        || ChatMember { read_seq: i64::MAX, wake_id: Some(message_id(7)), joined_at: at(9), ..member("a", "a-b", 0) };
    put!(&store, { chat_member_put: woken(); });
    shows!(&store, |r| {
        of_agent(r, "a")? => "a a-b a.b a0 aa z";
        of_agent(r, "aa")? => "a a-b a.b a0 aa";
        (inside(r, "none")?, of_agent(r, "none")?) => (String::new(), String::new());
        r.chat_member_get(&channel_name("a"), &id_of("a-b"))? => Some(woken());
        r.chat_member_get(&channel_name("a"), &id_of("b"))? => None;
        r.chat_members(&channel_name("a"))?[1] => woken();
    });
    put!(&store, { chat_member_put: member("a", "a-b", 3); });
    shows!(&store, |r| { r.chat_member_get(&channel_name("a"), &id_of("a-b"))? => Some(member("a", "a-b", 3)); });
}

pub(super) async fn members_leave_and_come_back(store: Bench) {
    put!(&store, { chat_member_put: member("x", "a", 1), member("x", "b", 1), member("x", "c", 1); });
    keep!(&store, |w| {
        for (channel, agent) in [("x", "b"), ("x", "b"), ("nowhere", "a")] {
            w.chat_member_delete(&channel_name(channel), &id_of(agent))?;
        }
        assert_eq!(w.chat_member_get(&channel_name("x"), &id_of("b"))?, None);
        assert_eq!(inside(w, "x")?, "a c");
        // A membership that the same command wrote is deleted like any other.
        w.chat_member_put(&member("x", "d", 5))?;
        w.chat_member_delete(&channel_name("x"), &id_of("d"))?;
        w.chat_member_delete(&channel_name("x"), &id_of("a"))?;
        w.chat_member_put(&member("x", "a", 9))?;
        w.chat_member_delete(&channel_name("x"), &id_of("c"))?;
    });
    shows!(&store, |r| {
        r.chat_members(&channel_name("x"))? => [member("x", "a", 9)];
        r.chat_member_get(&channel_name("x"), &id_of("c"))? => None;
        (of_agent(r, "a")?, of_agent(r, "c")?) => ("x".to_owned(), String::new());
    });
}

pub(super) async fn unread_channels_follow_the_cursor(store: Bench) {
    put!(&store, {
        chat_channel_put: channel("c", 3), channel("read", 3), ChatChannel { gated: true, ..channel("gated", 3) },
            channel("empty", 0), channel("b", 1), channel("not-mine", 5);
        chat_member_put: member("c", "a", 2), member("read", "a", 3), member("gated", "a", 0), member("empty", "a", 0),
            member("b", "a", 0), member("not-mine", "aa", 0), member("gone", "a", 0);
    });
    let a = || id_of("a");
    shows!(&store, |r| {
        r.chat_unread(&a())? => [(member("b", "a", 0), channel("b", 1)), (member("c", "a", 2), channel("c", 3))];
    });
    put!(&store, { chat_member_put: member("b", "a", 1); });
    shows!(&store, |r| { r.chat_unread(&a())? => [(member("c", "a", 2), channel("c", 3))]; });
    put!(&store, { chat_channel_put: channel("read", 4), channel("gated", 3); });
    keep!(&store, |w| { w.chat_member_delete(&channel_name("c"), &id_of("a"))? });
    let wanted =
        [("gated", 0, 3), ("read", 3, 4)].map(|(name, read, last)| (member(name, "a", read), channel(name, last)));
    shows!(&store, |r| { r.chat_unread(&a())? => wanted; });
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
    });
    // The newest, in order. Both bounds are exclusive.
    for (after, before, limit, wanted) in [
        (0, 0, 99, &[1, 2, 3, 4, 5, 6][..]),
        (0, 0, u32::MAX, &[1, 2, 3, 4, 5, 6]),
        (0, 0, 2, &[5, 6]),
        (2, 0, 2, &[5, 6]),
        (0, 4, 2, &[2, 3]),
        (2, 5, 99, &[3, 4]),
        (0, 0, 0, &[]),
        (6, 0, 9, &[]),
        (99, 0, 9, &[]),
        (0, 1, 9, &[]),
        (3, 4, 9, &[]),
        (5, 2, 9, &[]),
        (i64::MAX, 0, 9, &[]),
    ] {
        let found = reading!(&store, |r| { r.chat_posts(&channel_name("a"), after, before, limit)? });
        assert_eq!(map_rows(&found, |post| post.seq), wanted, "{after} {before} {limit}");
    }
    shows!(&store, |r| {
        r.chat_posts(&channel_name("a"), 4, 0, 9)? => [post("a", 5), full()];
        r.chat_posts(&channel_name("none"), 0, 0, 9)? => [];
    });
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
    shows!(&store, |r| {
        map_rows(&r.chat_members(&channel_name("all"))?, |member| member.wake_id)
            => (3_001..=4_000).map(|n| Some(message_id(n))).collect::<Vec<_>>();
        r.chat_posts(&channel_name("all"), 1, 3, 9)? => [post("all", 2)];
        r.inbox_total()? => 3_000;
        r.chat_unread(&id_of("m500"))?.len() => 1;
    });
}
