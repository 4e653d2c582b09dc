use ghost_domain::ports::Signal;
use ghost_domain::{ChatWake, Code, Desired, EventKind, Kind, RootId};
use uuid::Uuid;

use super::super::rig::{Rig, SECRET, code, id, new_agent, operator, read, write};
use super::{codes, name};
use crate::agents;
use crate::chat::NewPost;
use crate::mail::Chain;

// covers: CHAT-04, CHAT-14, TEST-02
#[tokio::test]
async fn a_gated_post_is_stored_and_emitted_and_wakes_nobody() {
    let rig = Rig::new().await;
    rig.open_channel("ada", "room", &["bob", "cyd"], true).await.unwrap();
    rig.signals();
    let posted = rig.post_in("ada", "room", "@bob @all: begin").await.unwrap();
    assert_eq!((posted.post.seq, posted.delivered, posted.woken, posted.skipped.len()), (1, 0, 0, 0));
    assert!(rig.inbox("bob").await.is_empty() && rig.signals().is_empty());
    assert!(rig.try_take("bob").await.unwrap().is_none(), "no turn (CHAT-04)");
    let events = rig.events().await;
    let event = events.iter().find(|event| event.kind == EventKind::ChatMessage).unwrap();
    assert_eq!((event.channel.as_deref(), event.agent_id.clone()), (Some("room"), Some(id("ada"))));
    assert_eq!((event.payload["seq"].as_i64(), &event.payload["content"]), (Some(1), &"@bob @all: begin".into()));
    assert_eq!((&event.payload["gated"], &event.payload["from"]), (&true.into(), &"ada".into()));
    assert_eq!(rig.count(EventKind::MessageDelivered).await, 0);
}

// covers: CHAT-15
#[tokio::test]
async fn an_operator_may_have_a_gated_post_delivered() {
    let rig = Rig::new().await;
    rig.open_channel("ada", "room", &["bob", "cyd"], true).await.unwrap();
    let plain = rig.post_in("", "room", "@bob a word").await.unwrap();
    assert_eq!((plain.delivered, rig.inbox("bob").await.len()), (0, 0), "operators are gated too (CHAT-15)");
    let deliver = |by: &'static str| {
        let new = NewPost { deliver: true, ..rig.new_post("room", "@bob stop") };
        rig.post_with(by, ChatWake::Mentions, new)
    };
    assert_eq!(code(deliver("ada").await), Code::AccessDenied);
    let posted = deliver("").await.unwrap();
    assert_eq!((posted.delivered, posted.woken), (3, 1));
    let inbox = rig.inbox("cyd").await;
    assert_eq!((inbox[0].body.as_str(), inbox[0].wake, inbox[0].kind), ("@bob stop", false, Kind::Chat));
    assert_eq!(rig.take("bob").await.mail[0].body, "@bob stop");
}

// covers: CHAT-05, CHAT-11
#[tokio::test]
async fn mentions_wake_the_mentioned_members_only() {
    let rig = Rig::new().await;
    rig.open_channel("ada", "room", &["bob", "cyd"], false).await.unwrap();
    rig.signals();
    let quiet = rig.post_in("ada", "room", "thinking aloud").await.unwrap();
    assert_eq!((quiet.delivered, quiet.woken), (2, 0));
    let posted = rig.post_in("ada", "room", "@bob, @ada, @bob!").await.unwrap();
    assert_eq!((posted.delivered, posted.woken, posted.post.mentions), (2, 1, vec![id("bob")]));
    assert_eq!(rig.signals(), [Signal::Wake(id("bob"))]);
    let inbox = rig.inbox("bob").await;
    assert!(inbox[0].is_chat_wake() && inbox[0].wake && inbox[0].subject.as_deref() == Some("#room"));
    for _ in 0..9 {
        let again = rig.post_in("ada", "room", "@bob?").await.unwrap();
        assert_eq!((again.woken, again.delivered), (0, 2), "one wake-up at most (CHAT-03)");
    }
    assert_eq!((rig.inbox("bob").await.len(), rig.inbox("cyd").await.len()), (1, 0));
    let all = rig.post_in("cyd", "room", "@all").await.unwrap();
    assert_eq!((all.woken, all.post.mentions.len()), (1, 0), "ada; bob is woken already");
}

// covers: CHAT-11
#[tokio::test]
async fn the_chat_setting_decides_whom_a_post_wakes() {
    let rig = Rig::new().await;
    rig.open_channel("ada", "room", &["bob", "cyd"], false).await.unwrap();
    rig.open_channel("ada", "duo", &["bob"], false).await.unwrap();
    let post = async |channel: &str, wake| {
        let posted = rig.post_with("ada", wake, rig.new_post(channel, "@bob hello")).await.unwrap();
        posted.woken
    };
    assert_eq!(post("room", ChatWake::None).await, 0);
    assert_eq!(post("room", ChatWake::All).await, 2);
    assert_eq!(post("duo", ChatWake::None).await, 1, "a channel of two wakes the other");
    let outside = rig.post_with("", ChatWake::Mentions, rig.new_post("duo", "both of you")).await.unwrap();
    assert_eq!(outside.woken, 1, "ada; bob is woken already");
}

#[tokio::test]
async fn only_members_the_creator_and_operators_post() {
    let rig = Rig::new().await;
    rig.open_channel("ada", "room", &["bob"], true).await.unwrap();
    let refusal = rig.post_in("cyd", "room", "let me in").await.unwrap_err();
    assert_eq!(refusal.code, Code::AccessDenied);
    assert!(refusal.hint.unwrap().contains("ada"));
    let refusal = rig.post_in("ada", "rooms", "hello").await.unwrap_err();
    assert_eq!((refusal.code, refusal.hint.unwrap().contains("`room`")), (Code::NotFound, true));
    rig.expel("", "room", "ada").await.unwrap();
    assert_eq!(rig.post_in("ada", "room", "I created it").await.unwrap().post.seq, 1);
    assert_eq!(rig.post_in("", "room", "and I watch").await.unwrap().post.seq, 2);
    rig.expel("", "room", "bob").await.unwrap();
    assert_eq!(code(rig.post_in("bob", "room", "hello?").await), Code::AccessDenied);
}

// covers: CHAT-12
#[tokio::test]
async fn a_refused_post_uses_no_sequence() {
    let rig = Rig::new().await;
    rig.limits(|limits| {
        limits.chat_post_bytes = 8;
        limits.hops_max = 3;
    });
    rig.open_channel("ada", "room", &["bob"], false).await.unwrap();
    assert_eq!(code(rig.post_in("ada", "room", "é, é, é, é").await), Code::TooLarge);
    assert_eq!(code(rig.post_in("ada", "room", " \n").await), Code::InvalidArguments);
    assert_eq!(code(rig.post_in("ada", "room", "a\u{1b}[2J").await), Code::InvalidArguments);
    let far = NewPost { chain: Chain { root_id: RootId(Uuid::nil()), hop: 4 }, ..rig.new_post("room", "far") };
    assert_eq!(code(rig.post_with("ada", ChatWake::All, far).await), Code::HopLimit);
    for reply_to in [0, 1, -1] {
        let reply = NewPost { reply_to: Some(reply_to), ..rig.new_post("room", "re") };
        assert_eq!(code(rig.post_with("ada", ChatWake::All, reply).await), Code::NotFound);
    }
    assert_eq!((rig.count(EventKind::ChatMessage).await, rig.inbox("bob").await.len()), (0, 0));
    assert_eq!(rig.post_in("ada", "room", "first").await.unwrap().post.seq, 1);
    let reply = NewPost { reply_to: Some(1), ..rig.new_post("room", "re") };
    assert_eq!(rig.post_with("bob", ChatWake::All, reply).await.unwrap().post.seq, 2);
}

// covers: CHAT-13
#[tokio::test]
async fn a_member_with_a_full_inbox_is_reported_and_the_others_are_woken() {
    let rig = Rig::new().await;
    rig.limits(|limits| limits.inbox_max = 1);
    write!(rig, |w, ctx| agents::create(w, &ctx, &operator(), new_agent(&ctx, "dan")).await).unwrap();
    rig.open_channel("ada", "room", &["bob", "cyd"], false).await.unwrap();
    rig.send("bob", "fills the inbox").await;
    write!(rig, |w, ctx| agents::stop(w, &ctx, &operator(), &id("cyd"), None).await).unwrap();
    let posted = rig.post_in("ada", "room", "@all @dan @ada dan@nobody.example").await.unwrap();
    assert_eq!(codes(&posted), [("dan", Code::NotFound), ("bob", Code::InboxFull)]);
    assert_eq!((posted.delivered, posted.woken), (1, 1), "a stopped member's wake-up waits (CHAT-13)");
    assert_eq!(rig.inbox("cyd").await.len(), 1);
    assert!(rig.member("room", "bob").await.unwrap().wake_id.is_none(), "it can be woken by the next post");
    assert_eq!(rig.agent("cyd").await.desired, Desired::Stopped);
    rig.limits(|limits| {
        limits.inbox_max = 100;
        limits.world_mail_max = 2;
    });
    let posted = rig.post_in("ada", "room", "@bob now?").await.unwrap();
    assert_eq!(codes(&posted), [("bob", Code::InboxFull)], "the world is full");
    assert!(posted.skipped[0].reason.contains("world_mail_max"));
}

#[tokio::test]
async fn a_mention_of_an_unknown_agent_is_refused_and_nothing_is_posted() {
    let rig = Rig::new().await;
    write!(rig, |w, ctx| agents::create(w, &ctx, &operator(), new_agent(&ctx, "dan")).await).unwrap();
    write!(rig, |w, ctx| agents::delete(w, &ctx, &operator(), &id("dan")).await).unwrap();
    rig.open_channel("ada", "room", &["bob", "cyd"], false).await.unwrap();
    let crowd: String = (0..100).map(|n| format!("@nobody-{n} ")).collect();
    for (text, name, near) in [
        ("@bop and @cyd: begin", "bop", Some("`@bob`")),
        ("@cyd, thank (@operator).", "operator", None),
        ("@al listen", "al", Some("`@all`")),
        ("@dan who was deleted", "dan", None),
        (crowd.as_str(), "nobody-0", None),
    ] {
        let refusal = rig.post_in("ada", "room", text).await.unwrap_err();
        assert_eq!(refusal.code, Code::InvalidArguments, "{text}");
        assert!(refusal.message.contains(&format!("@{name},")), "{refusal}");
        let hint = refusal.hint.unwrap();
        assert!(near.is_none_or(|near| hint.contains(near)), "{hint}");
        assert_eq!(refusal.details.unwrap()["mention"], name);
    }
    assert_eq!(rig.count(EventKind::ChatMessage).await, 0);
    assert!(rig.inbox("cyd").await.is_empty());
    assert_eq!(rig.post_in("ada", "room", "bop and bob@nobody.example").await.unwrap().post.seq, 1);
}

#[tokio::test]
async fn a_post_to_a_thousand_members_is_one_event_and_one_row_for_each() {
    let rig = Rig::new().await;
    let names: Vec<String> = (0..1_000).map(|n| format!("m{n:04}")).collect();
    rig.limits(|limits| limits.dynamic_agents_max = 2_000);
    let all = names.clone();
    write!(rig, |w, ctx| {
        for name in &all {
            agents::create(w, &ctx, &operator(), new_agent(&ctx, name)).await?;
        }
        Ok::<_, ghost_domain::Refusal>(())
    })
    .unwrap();
    let members: Vec<&str> = names.iter().map(String::as_str).collect();
    rig.open_channel("ada", "hall", &members, false).await.unwrap();
    rig.signals();
    let before = rig.events().await.len();
    let posted = rig.post_in("ada", "hall", "@all come in").await.unwrap();
    assert_eq!((posted.delivered, posted.woken, posted.skipped.len()), (1_000, 1_000, 0));
    assert_eq!(rig.events().await.len() - before, 1);
    assert_eq!(rig.signals().len(), 1_000);
    assert_eq!(read!(rig, |r| r.inbox_total().await?), 1_000);
    assert_eq!(rig.post_in("ada", "hall", "@all again").await.unwrap().woken, 0);
    assert_eq!(read!(rig, |r| r.inbox_total().await?), 1_000);
}

#[tokio::test]
async fn no_event_of_a_channel_shows_a_secret() {
    let rig = Rig::new().await;
    rig.open_channel("ada", "room", &["bob"], true).await.unwrap();
    rig.post_in("ada", "room", &format!("the password is {SECRET}")).await.unwrap();
    let payloads = serde_json::to_string(&rig.events().await).unwrap();
    assert!(payloads.contains("the password is") && !payloads.contains(SECRET));
}

#[tokio::test]
async fn an_operator_acting_as_an_agent_has_the_agents_rights_and_is_named_in_the_feed() {
    let rig = Rig::new().await;
    rig.open_channel("ada", "room", &["bob"], true).await.unwrap();
    let by = crate::chat::Speaker { via: Some(operator()), ..super::speaker("bob") };
    let new = NewPost { deliver: true, ..rig.new_post("room", "as bob") };
    let (again, copy) = (by.clone(), new.clone());
    let refused = write!(rig, |w, ctx| crate::chat::post(w, &ctx, &again, ChatWake::All, copy).await);
    assert_eq!(code(refused), Code::AccessDenied);
    let new = NewPost { deliver: false, ..new };
    write!(rig, |w, ctx| crate::chat::post(w, &ctx, &by, ChatWake::All, new).await).unwrap();
    let events = rig.events().await;
    let event = events.iter().find(|event| event.kind == EventKind::ChatMessage).unwrap();
    assert_eq!((&event.payload["from"], &event.payload["via"]), (&"bob".into(), &"operator:test".into()));
    assert_eq!(event.channel.as_deref(), Some(name("room").as_str()));
}
