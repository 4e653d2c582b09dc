//! The routes that are read once: what they show, and to whom.

use ghost_testkit::blackbox::Deadline;
use serde_json::Value;

use crate::scene::{house, runtime, soon, up};

#[test]
fn strangers_see_nothing() {
    let (house, world) = house("");
    let runtime = runtime();
    let (daemon, site) = up(&house, &world);
    let bearer = format!("Bearer {}", site.token);
    let upgrade = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    runtime.block_on(async {
        for path in ["/api/events", "/api/events/stream", "/api/events/ws", "/api/agents", "/api/channels"] {
            for (headers, status) in [
                (vec![("Host", site.http.as_str())], 401),
                (vec![("Host", site.http.as_str()), ("Authorization", "Bearer wrong")], 401),
                (vec![("Host", "evil.example"), ("Authorization", bearer.as_str())], 403),
                (
                    vec![
                        ("Host", site.http.as_str()),
                        ("Origin", "http://evil.example"),
                        ("Authorization", bearer.as_str()),
                    ],
                    403,
                ),
            ] {
                let headers = [headers.as_slice(), &upgrade].concat();
                let (told, body) = soon("an answer", site.get(path, &headers)).await;
                assert_eq!(told, status, "{path} {headers:?}");
                let body: Value = serde_json::from_str(&body).unwrap();
                assert!(body["error"]["code"].is_string() && body["error"]["hint"].is_string(), "{body}");
            }
        }
    });
    daemon.stop();
}

#[test]
fn rest_shows_what_ghostctl_shows() {
    let (house, world) = house("");
    let runtime = runtime();
    let (daemon, site) = up(&house, &world);
    house.ctl(&["send", "ada", "hello"]).ok();
    for number in 0..3 {
        house.ctl(&["task", "create", &format!("Task {number}"), "--owner", "ada"]).ok();
    }
    house.ctl(&["chat", "create", "desk", "--members", "ada,ben", "--gated"]).ok();
    for number in 0..3 {
        house.ctl(&["chat", "send", "desk", &format!("post {number}")]).ok();
    }
    house.wait_until_quiet(Deadline::seconds(60));
    let get = |path: &str| {
        let (status, body) = runtime.block_on(soon("an answer", site.json(path)));
        assert_eq!(status, 200, "{path}: {body}");
        body
    };
    assert_eq!(get("/api/agents")["agents"], house.json(&["agent", "list"]));
    assert_eq!(get("/api/agents/ada"), house.json(&["agent", "get", "ada"]));
    let tasks = house.json(&["task", "list"]);
    assert_eq!(get("/api/tasks?owner=ada")["tasks"], tasks);
    let task_id = tasks[0]["task_id"].as_str().unwrap();
    assert_eq!(get(&format!("/api/tasks/{task_id}")), house.json(&["task", "get", task_id]));
    // A page and the next.
    let page = get("/api/tasks?limit=2");
    let next = page["next_cursor"].as_str().unwrap();
    let rest = get(&format!("/api/tasks?limit=2&cursor={next}"));
    assert_eq!((&page["tasks"][1], &rest["tasks"][0]), (&tasks[1], &tasks[2]));
    assert_eq!((&rest["next_cursor"], &rest["truncated"]), (&Value::Null, &Value::Bool(false)));
    assert_eq!(get("/api/ledger?since=1h")["calls"], house.json(&["ledger"]));
    let channels = get("/api/channels?agent=ada");
    assert_eq!(channels["channels"], house.json(&["chat", "list", "--agent", "ada"]));
    assert_eq!(
        (&channels["channels"][0]["channel"], &channels["channels"][0]["last_seq"]),
        (&"desk".into(), &3.into())
    );
    assert_eq!(get("/api/channels/desk/messages")["messages"], house.json(&["chat", "history", "desk"]));
    let posts = get("/api/channels/desk/messages?before=3&limit=1");
    assert_eq!(posts["truncated"], true, "there is an earlier one");
    assert_eq!((&posts["messages"][0]["content"], &posts["messages"][0]["seq"]), (&"post 1".into(), &2.into()));
    for (path, status, code, hint) in [
        ("/api/agents/adda", 404, "not_found", "did you mean `ada`?"),
        ("/api/tasks?owner=adda", 404, "not_found", "did you mean `ada`?"),
        ("/api/ledger?agnet=ada", 400, "invalid_arguments", "did you mean `agent`?"),
        ("/api/channels/desk2/messages", 404, "not_found", "did you mean"),
        ("/api/tasks/none", 400, "invalid_arguments", ""),
        ("/api/agents?limit=-1", 400, "invalid_arguments", "limit=20"),
        ("/api/agents?cursor=A%20B", 400, "invalid_arguments", "next_cursor"),
        ("/api/ledger?since=soon", 400, "invalid_arguments", "24h"),
        ("/api/events?after=x", 400, "invalid_arguments", "oldest"),
        ("/api/events/ws", 400, "invalid_arguments", "WebSocket"),
    ] {
        let (told, body) = runtime.block_on(soon("an answer", site.json(path)));
        assert_eq!((told, body["error"]["code"].as_str()), (status, Some(code)), "{path}: {body}");
        assert!(body["error"]["hint"].as_str().unwrap_or_default().contains(hint), "{path}: {body}");
    }
    daemon.stop();
}
