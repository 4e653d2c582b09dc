//! The tool `message`: its actions over the control plane and over a webhook, and its refusals.

use serde_json::{Value, json};

use crate::desk::{desk, talk, texts_of};
use crate::receiver::{Receiver, check, deliver, hooked, hooked_with, http_of, now};

fn actions(lines: &[Value]) -> Vec<Value> {
    lines.iter().map(|line| line["action"].clone()).filter(|action| !action.is_null()).collect()
}

#[test]
fn a_talk_shows_deletions_and_reactions() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    let lines = talk(&test_env, &["ada"], "act please\n").json_lines();
    assert_eq!(texts_of(&lines).last(), Some(&"Done, and unsupported."), "threads are not for the control plane");
    let done = actions(&lines);
    assert_eq!((&done[0]["kind"], &done[1]["kind"]), (&json!("delete"), &json!("react")), "{done:?}");
    assert_eq!(done[1]["emoji"], "👍");
    let id = lines[0]["conversation_id"].as_str().unwrap();
    let entries = test_env.json(&["conversation", "show", id])["entries"].clone();
    let entries = entries.as_array().unwrap();
    assert_eq!(done[0]["message_id"], entries[1]["message_id"]);
    assert_eq!(done[1]["message_id"], entries[0]["message_id"]);
    assert_eq!((&entries[1]["deleted"], &entries[1]["content"]), (&json!(true), &json!("")));
    assert_eq!((&entries[0]["deleted"], &entries[0]["action"]), (&json!(false), &Value::Null));
    let shown = test_env.ctl(&["conversation", "show", id]);
    shown.ok();
    for words in ["[deleted]", "[react]", "👍"] {
        assert!(shown.out.contains(words), "{words}: {}", shown.out);
    }
    // The event of an action names its entry.
    let events = test_env.ctl(&["--json", "events", "--kind", "conversation.message"]).json_lines();
    assert!(events.iter().any(|event| event["payload"]["action"]["kind"] == "react"));
    // A second reaction too soon is refused: reactions are minimal unless the world says otherwise.
    talk(&test_env, &["ada", "--conversation", id], "act please\n").exits(0);
    let calls = test_env.json(&["ledger", "--tool", "message"]);
    let refused: Vec<&str> = calls.as_array().unwrap().iter().filter_map(|call| call["error_code"].as_str()).collect();
    let times = |code: &str| refused.iter().filter(|refused| **refused == code).count();
    assert_eq!((times("unsupported"), times("rate_limited")), (2, 1), "{refused:?}");
    daemon.stop();
}

// covers: BI-38
#[test]
fn a_webhook_gets_actions_as_signed_deliveries_with_a_type() {
    let receiver = Receiver::start();
    let (test_env, world) = hooked(&receiver);
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let http = http_of(&daemon);
    let body = json!({ "thread": "t", "from": "eve", "text": "act please", "message_id": "m-1" }).to_string();
    assert_eq!(deliver(&http, "d-1", now(), &body).0, 202);
    // The deleted message may have been delivered before. A delete is delivered only in that case.
    let all = receiver.wait_until(|got| got.iter().any(|got| got.json()["text"] == "Done, and unsupported."));
    all.iter().for_each(check);
    let of = |kind: &str| all.iter().map(|got| got.json()).find(|body| body["type"] == kind);
    let react = of("react").expect("a reaction goes out");
    let facts = (&react["target"], &react["emoji"], &react["remove"], &react["thread"]);
    assert_eq!(facts, (&json!("m-1"), &json!("👍"), &json!(false), &json!("t")));
    assert_eq!(of("message").unwrap()["target"], Value::Null);
    if let Some(delete) = of("delete") {
        let slip = all.iter().map(|got| got.json()).find(|body| body["text"] == "Oops.").unwrap();
        assert_eq!(delete["target"], slip["message_id"]);
    }
    daemon.stop();
}

// covers: BI-38, MSG-14
#[test]
fn a_webhook_supports_the_actions_that_the_world_file_lists() {
    let receiver = Receiver::start();
    let (test_env, world) = hooked_with(&receiver, "actions: [thread]");
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let http = http_of(&daemon);
    let body = json!({ "thread": "t", "from": "eve", "text": "act please", "message_id": "m-1" }).to_string();
    assert_eq!(deliver(&http, "d-1", now(), &body).0, 202);
    // The message that opens a thread belongs to another conversation than the answer, so their order is undefined.
    let all = receiver.wait_until(|got| {
        let has = |field: &str, value: &str| got.iter().any(|got| got.json()[field] == value);
        has("text", "Done, and more.") && has("type", "thread")
    });
    let kinds: Vec<Value> = all.iter().map(|got| got.json()["type"].clone()).collect();
    assert!(kinds.contains(&json!("thread")) && !kinds.contains(&json!("react")), "{kinds:?}");
    daemon.stop();
}
