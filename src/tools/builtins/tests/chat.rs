use ghost_domain::{ChatWake, Code, EventKind};
use serde_json::json;

use super::tool_world::{ToolWorld, code};

// covers: BI-40, BI-41, BI-42, BI-43, BI-44, BI-45, CHAT-01
#[tokio::test]
async fn a_channel_is_opened_posted_in_and_read_back() {
    let world = ToolWorld::new().await;
    let bob = world.call_by("bob").await;
    let opened = json!({ "name": "room", "members": ["bob", "ada"], "topic": "figures" });
    let created = world.content("syscall.chat.create", opened.clone()).await;
    let wanted = json!({
        "channel": "room", "members": ["ada", "bob"], "gated": false, "creator": "ada", "topic": "figures", "last_seq": 0,
    });
    assert_eq!(created, wanted, "two members: no advisory");
    assert_eq!(code(world.call("syscall.chat.create", opened).await), Code::Conflict);
    let sent = world.content("syscall.chat.send", json!({ "channel": "room", "content": "@bob hello" })).await;
    assert_eq!((&sent["seq"], &sent["delivered"], &sent["woken"]), (&json!(1), &json!(1), &json!(1)));
    assert!(sent["message_id"].is_string() && sent["skipped"] == json!([]));
    let reply = json!({ "channel": "#room", "content": "hello yourself", "reply_to": 1 });
    world.call_as(&bob, "syscall.chat.send", None, reply).await.unwrap();
    let read = world.content("syscall.chat.history", json!({ "channel": "room" })).await;
    let first = json!({
        "seq": 1, "from": "ada", "content": "@bob hello", "ts": "2026-11-21T22:08:00.000Z", "mentions": ["bob"],
    });
    assert_eq!(read["messages"][0], first);
    assert_eq!((&read["messages"][1]["from"], &read["messages"][1]["reply_to"]), (&json!("bob"), &json!(1)));
    let older = json!({ "channel": "room", "before_seq": 2, "limit": 1 });
    assert_eq!(world.content("syscall.chat.history", older).await["messages"].as_array().unwrap().len(), 1);
    let newer = json!({ "channel": "room", "after_seq": 1 });
    assert_eq!(world.content("syscall.chat.history", newer).await["messages"][0]["seq"], 2);
    let list = world.content("syscall.chat.list", json!({})).await;
    assert_eq!((&list[0]["channel"], &list[0]["last_seq"]), (&json!("room"), &json!(2)));
    let hop =
        world.events().await.into_iter().find(|event| event.kind == EventKind::ChatMessage).unwrap().payload["hop"]
            .clone();
    assert_eq!(hop, world.ada.hop + 1, "a post is one further from its root than the turn that made it");
}

// covers: CHAT-07
#[tokio::test]
async fn wrong_calls_are_refused_with_a_hint() {
    let world = ToolWorld::new().await;
    let bob = world.call_by("bob").await;
    let create = |name: &str, members: &[&str]| {
        rig_call(&world, "syscall.chat.create", json!({ "name": name, "members": members }))
    };
    assert_eq!(create("Room", &["bob"]).await, Code::InvalidArguments);
    assert_eq!(create("a\u{7}b", &["bob"]).await, Code::InvalidArguments);
    assert_eq!(create("room", &["bop"]).await, Code::NotFound);
    assert_eq!(create("room", &["Bob!"]).await, Code::InvalidArguments);
    let moderated = json!({ "name": "panel", "members": ["ada"], "gated": true, "skip_creator": true });
    world.call_as(&bob, "syscall.chat.create", None, moderated).await.unwrap();
    let refused = async |tool: &str, arguments| rig_call(&world, tool, arguments).await;
    let post = |content: &str| json!({ "channel": "panel", "content": content });
    assert_eq!(refused("syscall.chat.send", post("")).await, Code::InvalidArguments);
    assert_eq!(refused("syscall.chat.send", post("a\u{0}b")).await, Code::InvalidArguments);
    assert_eq!(refused("syscall.chat.send", post(&"x".repeat(16_385))).await, Code::TooLarge);
    assert_eq!(refused("syscall.chat.send", json!({ "channel": "panell", "content": "x" })).await, Code::NotFound);
    assert_eq!(refused("syscall.chat.send", json!({ "channel": "zzzzzz", "content": "x" })).await, Code::NotFound);
    let member = |agent: &str| json!({ "channel": "panel", "agent_id": agent });
    assert_eq!(refused("syscall.chat.invite", member("bob")).await, Code::AccessDenied);
    assert_eq!(refused("syscall.chat.remove", member("bob")).await, Code::AccessDenied);
    assert_eq!(
        refused("syscall.chat.history", json!({ "channel": "panel", "before_seq": 9 })).await,
        Code::CursorAhead
    );
    assert_eq!(
        refused("syscall.chat.history", json!({ "channel": "panel", "limit": 501 })).await,
        Code::InvalidArguments
    );
    let left = world.content("syscall.chat.remove", member("ada")).await;
    assert_eq!(left["members"], json!([]), "a member may leave");
    assert_eq!(refused("syscall.chat.send", post("still here?")).await, Code::AccessDenied);
    assert_eq!(refused("syscall.chat.history", json!({ "channel": "panel" })).await, Code::AccessDenied);
    world.call_as(&bob, "syscall.chat.invite", None, member("ada")).await.unwrap();
    assert_eq!(world.content("syscall.chat.send", post("back")).await["delivered"], 0, "gated");
}

async fn rig_call(world: &ToolWorld, tool: &str, arguments: serde_json::Value) -> Code {
    code(world.call(tool, arguments).await)
}

// covers: CHAT-11
#[tokio::test]
async fn the_world_file_decides_which_members_a_post_wakes() {
    let world = ToolWorld::new().await;
    let mut plan = (*world.services.plan()).clone();
    plan.chat_wake = ChatWake::All;
    world.services.set_plan(plan.into());
    world.mail_to_ada(ghost_domain::Kind::Message, "so that a third is there").await;
    let create = json!({ "name": "room", "members": ["bob"], "skip_creator": false });
    world.content("syscall.chat.create", create).await;
    let third = json!({ "archetype": "writer", "agent_id": "cyd" });
    world.content("syscall.agent.create", third).await;
    world.content("syscall.chat.invite", json!({ "channel": "room", "agent_id": "cyd" })).await;
    let sent = world.content("syscall.chat.send", json!({ "channel": "room", "content": "hear" })).await;
    assert_eq!((&sent["woken"], &sent["delivered"]), (&json!(2), &json!(2)));
    let advised = json!({ "name": "crowd", "members": ["bob", "cyd"] });
    assert!(world.content("syscall.chat.create", advised).await["advisory"].as_str().unwrap().contains("gated: true"));
}

// covers: LIM-09
#[tokio::test]
async fn a_history_shows_fifty_posts_unless_another_number_is_asked_for() {
    let world = ToolWorld::new().await;
    world.content("syscall.chat.create", json!({ "name": "room", "members": ["bob"], "gated": true })).await;
    for n in 1..=60 {
        world.content("syscall.chat.send", json!({ "channel": "room", "content": format!("post {n}") })).await;
    }
    for (arguments, count, first) in
        [(json!({ "channel": "room" }), 50, 11), (json!({ "channel": "room", "limit": 60 }), 60, 1)]
    {
        let read = world.content("syscall.chat.history", arguments).await;
        let posts = read["messages"].as_array().unwrap();
        assert_eq!((posts.len(), &posts[0]["seq"]), (count, &json!(first)));
    }
}

#[tokio::test]
async fn a_long_history_loses_the_posts_farthest_from_its_start() {
    let world = ToolWorld::new().await;
    world.content("syscall.chat.create", json!({ "name": "room", "members": ["bob"], "gated": true })).await;
    for _ in 0..14 {
        world.content("syscall.chat.send", json!({ "channel": "room", "content": "x".repeat(16_000) })).await;
    }
    let read = world.call("syscall.chat.history", json!({ "channel": "room" })).await.unwrap();
    let seqs = |content: &serde_json::Value| -> Vec<i64> {
        content["messages"].as_array().unwrap().iter().map(|post| post["seq"].as_i64().unwrap()).collect()
    };
    assert!(read.truncated && seqs(&read.content).last() == Some(&14) && seqs(&read.content).len() < 14);
    let read = world.call("syscall.chat.history", json!({ "channel": "room", "after_seq": 0 })).await.unwrap();
    assert!(read.truncated && seqs(&read.content)[0] == 1);
}
