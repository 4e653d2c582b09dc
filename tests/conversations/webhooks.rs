//! Webhooks in both directions: signed, without duplicates, and retried until delivered.

use ghost_control::adapters::sign;
use ghost_testkit::blackbox::Deadline;
use serde_json::json;

use crate::desk::{SECRET, talk};
use crate::receiver::{Receiver, check, deliver, hooked, http_of, now, post};

// covers: MSG-11
#[test]
fn a_webhook_works_both_ways_and_refuses_duplicates_and_unsigned_requests() {
    let receiver = Receiver::start();
    let (test_env, world) = hooked(&receiver);
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let http = http_of(&daemon);
    let body = json!({ "thread": "order 7", "from": "eve", "text": "hello", "message_id": "m-1" }).to_string();
    let (status, first) = deliver(&http, "d-1", now(), &body);
    assert_eq!((status, &first["owner"], &first["seq"]), (202, &json!("ada"), &json!(1)), "{first}");
    let got = receiver.wait_for(1);
    check(&got[0]);
    let out = got[0].json();
    assert_eq!(
        (&out["thread"], &out["text"], &out["from"]),
        (&json!("order 7"), &json!("Here is ada."), &json!("ada"))
    );

    // A repeated delivery gets the first answer and has no effect. The same id with other content is refused.
    assert_eq!(deliver(&http, "d-1", now(), &body), (202, first.clone()));
    let other = body.replace("hello", "other");
    let (status, refusal) = deliver(&http, "d-1", now(), &other);
    assert_eq!(status, 409);
    let text = refusal.to_string();
    assert!(text.contains("X-Ghost-Delivery d-1") && !text.contains("request_id"), "{text}");
    // Bad input is refused, each with its own code.
    let at = now().to_string();
    let wrong = sign(b"another secret", &at, "d-2", body.as_bytes());
    for headers in [
        vec![],
        vec![("X-Ghost-Delivery", "d-2"), ("X-Ghost-Timestamp", at.as_str()), ("X-Ghost-Signature", wrong.as_str())],
        vec![("X-Ghost-Delivery", "d-2"), ("X-Ghost-Timestamp", at.as_str()), ("X-Ghost-Signature", "v1=00")],
    ] {
        let (status, refusal) = post(&http, "/hooks/shop", &headers, &body);
        assert_eq!((status, &refusal["error"]["code"]), (401, &json!("bad_signature")), "{headers:?} {refusal}");
    }
    for stale in [now() - 1_000, now() + 1_000, 0] {
        let (status, refusal) = deliver(&http, "d-3", stale, &body);
        assert_eq!((status, &refusal["error"]["code"]), (401, &json!("stale_timestamp")));
    }
    for strange in ["", "soon", "-1", "1e9"] {
        let signature = sign(SECRET.as_bytes(), strange, "d-3", body.as_bytes());
        let headers =
            [("X-Ghost-Delivery", "d-3"), ("X-Ghost-Timestamp", strange), ("X-Ghost-Signature", signature.as_str())];
        let (status, refusal) = post(&http, "/hooks/shop", &headers, &body);
        assert_eq!((status, &refusal["error"]["code"]), (401, &json!("bad_timestamp")), "{strange:?} {refusal}");
    }
    let long = json!({ "thread": "t", "from": "eve", "text": "x".repeat(2_001) }).to_string();
    assert_eq!(deliver(&http, "d-4", now(), &long).0, 413);
    assert_eq!(deliver(&http, "d-5", now(), &"x".repeat(100_000)).0, 413);
    for bad in
        ["", "{", "[]", "7", "{\"thread\":\"t\"}", "{\"thread\":\"t\",\"from\":\"e\",\"text\":\"x\",\"tread\":1}"]
    {
        let (status, refusal) = deliver(&http, "d-6", now(), bad);
        assert_eq!(status, 400, "{bad}");
        assert!(!refusal.to_string().contains("struct"), "{bad}: {refusal}");
    }
    let control = json!({ "thread": "a\nb", "from": "eve", "text": "x" }).to_string();
    assert_eq!(deliver(&http, "d-7", now(), &control).0, 400);
    assert_eq!(post(&http, "/hooks/nobody", &[], &body).0, 404);
    // Only the cron job itself can begin its thread.
    let taken = json!({ "thread": "cron:ada/report", "from": "eve", "text": "x" }).to_string();
    let (status, refusal) = deliver(&http, "d-9", now(), &taken);
    assert_eq!((status, &refusal["error"]["details"]["field"]), (403, &json!("thread")), "{refusal}");

    test_env.wait_until_quiet(Deadline::seconds(30));
    let conversations = test_env.json(&["conversation", "list"]);
    assert_eq!(conversations.as_array().unwrap().len(), 1, "nothing half done");
    let id = conversations[0]["conversation_id"].as_str().unwrap();
    assert_eq!(
        (&conversations[0]["adapter"], &conversations[0]["party"]),
        (&json!("webhook:shop"), &json!("outside:eve"))
    );
    assert_eq!(test_env.json(&["conversation", "show", id])["entries"].as_array().unwrap().len(), 2);
    assert_eq!(receiver.wait_for(1).len(), 1);
    // No request here may impersonate the other side.
    talk(&test_env, &["ada", "--conversation", id], "as if I were eve\n").exits(7);

    // A file is sent with its content.
    let report = json!({ "thread": "order 7", "from": "eve", "text": "report please" }).to_string();
    assert_eq!(deliver(&http, "d-8", now(), &report).0, 202);
    let got = receiver.wait_for(2)[1].clone();
    check(&got);
    let file = got.json()["attachments"][0].clone();
    assert_eq!((&file["name"], &file["content_base64"]), (&json!("Report.md"), &json!("Rm9ydHktdHdvLg==")));
    // A byte order mark and half of a character cost no more than that character.
    let half = "\u{feff}{\"thread\":\"order 7\",\"from\":\"eve\",\"text\":\"half \\ud83d\"}";
    assert_eq!(deliver(&http, "d-10", now(), half).0, 202);
    let shown = test_env.json(&["conversation", "show", id]).to_string();
    assert!(shown.contains("half \u{fffd}"), "{shown}");
    assert!(!test_env.ctl(&["events"]).ok().out.contains(SECRET));
    daemon.stop();
}

#[test]
fn a_delivery_is_retried_under_its_id_over_a_kill_until_it_succeeds_or_fails() {
    let receiver = Receiver::start();
    let (test_env, world) = hooked(&receiver);
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let http = http_of(&daemon);
    receiver.answer(&[500]);
    let body = json!({ "thread": "t", "from": "eve", "text": "hello" }).to_string();
    assert_eq!(deliver(&http, "d-1", now(), &body).0, 202);
    let first = receiver.wait_for(1)[0].clone();
    daemon.kill();
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let second = receiver.wait_for(2)[1].clone();
    check(&second);
    assert_eq!(first.header("x-ghost-delivery"), second.header("x-ghost-delivery"), "the id is stable");
    assert_eq!(first.json()["text"], second.json()["text"]);
    let id = test_env.json(&["conversation", "list"])[0]["conversation_id"].as_str().unwrap().to_owned();
    let entry = |seq: usize| test_env.json(&["conversation", "show", &id])["entries"][seq - 1].clone();
    let becomes = |seq: usize, delivery: &str| {
        Deadline::seconds(60).until(delivery, || {
            let entry = entry(seq);
            if entry["delivery"] == delivery { Ok(entry) } else { Err(entry.to_string()) }
        })
    };
    becomes(2, "delivered");

    // Status 410 is a permanent failure. A redirect is not followed.
    let http = http_of(&daemon);
    receiver.answer(&[302, 410]);
    assert_eq!(deliver(&http, "d-2", now(), &body).0, 202);
    let failed = becomes(4, "failed");
    assert_eq!(failed["attempts"], 2);
    assert!(failed["error"].as_str().unwrap().contains("410"), "{failed}");
    assert_eq!(receiver.wait_for(4).len(), 4);
    let events = test_env.ctl(&["--json", "events", "--kind", "conversation.failed"]).json_lines();
    assert_eq!(events.len(), 1);
    // An operator can retry it, under the same id.
    test_env.json(&["conversation", "redeliver", &id, "4"]);
    let got = receiver.wait_for(5);
    assert_eq!(got[4].header("x-ghost-delivery"), got[3].header("x-ghost-delivery"));
    becomes(4, "delivered");
    daemon.stop();
}

// covers: MSG-12
#[test]
fn a_reminder_goes_out_by_webhook_with_a_delivery_id_after_a_kill() {
    let receiver = Receiver::start();
    let (test_env, world) = hooked(&receiver);
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let body = json!({ "thread": "order 7", "from": "eve", "text": "remind me of my tea" }).to_string();
    assert_eq!(deliver(&http_of(&daemon), "d-1", now(), &body).0, 202);
    receiver.wait_for(1);
    let conversation = test_env.json(&["conversation", "list"])[0]["conversation_id"].clone();
    assert_eq!(test_env.json(&["timer", "list"])[0]["conversation_id"], conversation, "it belongs to the conversation");
    daemon.kill();
    // The first delivery is refused: the second has the same id.
    receiver.answer(&[500]);
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let got = receiver.wait_for(3);
    for delivery in &got[1..] {
        check(delivery);
        assert_eq!(
            (&delivery.json()["thread"], &delivery.json()["text"]),
            (&json!("order 7"), &json!("Your tea is ready."))
        );
    }
    assert_eq!(got[1].header("x-ghost-delivery"), got[2].header("x-ghost-delivery"));
    test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(receiver.wait_for(3).len(), 3, "once");
    daemon.stop();
}

#[test]
fn without_a_secret_requests_are_refused_and_a_reload_reads_a_new_one() {
    let receiver = Receiver::start();
    let (mut test_env, world) = hooked(&receiver);
    test_env.unset("HOOK_SECRET");
    test_env.set("LATER_SECRET", "another-secret-of-the-shop");
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let http = http_of(&daemon);
    let body = json!({ "thread": "t", "from": "eve", "text": "hello" }).to_string();
    let (status, refusal) = deliver(&http, "d-1", now(), &body);
    assert_eq!((status, &refusal["error"]["code"]), (503, &json!("unavailable")));
    assert_eq!(refusal["error"]["details"], json!({ "webhook": "shop", "secret_env": "HOOK_SECRET" }));
    // `world-config.yaml` names another variable. Its value becomes a secret.
    let config = std::fs::read_to_string(world.join("world-config.yaml")).unwrap();
    std::fs::write(world.join("world-config.yaml"), config.replace("HOOK_SECRET", "LATER_SECRET")).unwrap();
    test_env.ctl(&["reload"]).ok();
    let leak = json!({ "thread": "t", "from": "eve", "text": "is it another-secret-of-the-shop?" }).to_string();
    let at = now().to_string();
    let signature = sign(b"another-secret-of-the-shop", &at, "d-2", leak.as_bytes());
    let headers = [("X-Ghost-Delivery", "d-2"), ("X-Ghost-Timestamp", &at), ("X-Ghost-Signature", &signature)];
    assert_eq!(post(&http, "/hooks/shop", &headers, &leak).0, 202);
    receiver.wait_for(1);
    let id = test_env.json(&["conversation", "list"])[0]["conversation_id"].as_str().unwrap().to_owned();
    let output = test_env.ctl(&["events"]).ok().out.clone() + &test_env.ctl(&["conversation", "show", &id]).ok().out;
    assert!(output.contains("is it [redacted]?") && !output.contains("another-secret-of-the-shop"), "{output}");
    daemon.stop();
}
