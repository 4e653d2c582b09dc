//! The REST routes: what they return, and to whom.

use ghost_testkit::blackbox::Deadline;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio_stream::StreamExt as _;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{runtime, soon, take, test_env, up};
use crate::wires::{Ask, Reader, Way};

// covers: CP-10
#[test]
fn clients_without_a_token_see_nothing() {
    let (test_env, world) = test_env("");
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
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
                let (received, body) = soon("an answer", site.get(path, &headers)).await;
                assert_eq!(received, status, "{path} {headers:?}");
                let body: Value = serde_json::from_str(&body).unwrap();
                assert!(body["error"]["code"].is_string() && body["error"]["hint"].is_string(), "{body}");
            }
        }
    });
    daemon.stop();
}

#[test]
fn a_web_socket_is_closed_according_to_its_protocol() {
    let (test_env, world) = test_env("");
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
    // Frames as bytes, masked with zeros: a close, a reserved opcode, a frame over the size limit.
    let (closing, reserved) = ([0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8], [0x83, 0x80, 0, 0, 0, 0]);
    let large = [0x82, 0xfe, 0xff, 0xff, 0, 0, 0, 0];
    runtime.block_on(async {
        for (frame, code) in [(&closing[..], 1000), (&reserved[..], 1002), (&large[..], 1009)] {
            let mut reader = Reader::open(&site, Way::WebSocket, &Ask::default()).await;
            soon("an event", take(&mut reader, 1)).await;
            let Reader::WebSocket(socket) = &mut reader else { panic!("not opened") };
            socket.get_mut().write_all(frame).await.unwrap();
            let closed = async {
                loop {
                    match socket.next().await {
                        Some(Ok(Message::Close(Some(close)))) => return u16::from(close.code),
                        Some(Ok(_)) => {}
                        other => panic!("{frame:?}: {other:?}"),
                    }
                }
            };
            assert_eq!(soon("the closing frame", closed).await, code, "{frame:?}");
        }
    });
    daemon.stop();
}

// covers: CONF-29, CP-02
#[test]
fn rest_returns_the_same_data_as_ghostctl() {
    let (test_env, world) = test_env("");
    let runtime = runtime();
    let (daemon, site) = up(&test_env, &world);
    test_env.ctl(&["send", "ada", "hello"]).ok();
    for number in 0..3 {
        test_env.ctl(&["task", "create", &format!("Task {number}"), "--owner", "ada"]).ok();
    }
    test_env.ctl(&["chat", "create", "desk", "--members", "ada,ben", "--gated"]).ok();
    for number in 0..3 {
        test_env.ctl(&["chat", "send", "desk", &format!("post {number}")]).ok();
    }
    test_env.wait_until_quiet(Deadline::seconds(60));
    let get = |path: &str| {
        let (status, body) = runtime.block_on(soon("an answer", site.json(path)));
        assert_eq!(status, 200, "{path}: {body}");
        body
    };
    assert_eq!(get("/api/agents")["agents"], test_env.json(&["agent", "list"]));
    assert_eq!(get("/api/agents/ada"), test_env.json(&["agent", "get", "ada"]));
    let tasks = test_env.json(&["task", "list"]);
    assert_eq!(get("/api/tasks?owner=ada")["tasks"], tasks);
    let task_id = tasks[0]["task_id"].as_str().unwrap();
    assert_eq!(get(&format!("/api/tasks/{task_id}")), test_env.json(&["task", "get", task_id]));
    // A page and the next one.
    let page = get("/api/tasks?limit=2");
    let next = page["next_cursor"].as_str().unwrap();
    let rest = get(&format!("/api/tasks?limit=2&cursor={next}"));
    assert_eq!((&page["tasks"][1], &rest["tasks"][0]), (&tasks[1], &tasks[2]));
    assert_eq!((&rest["next_cursor"], &rest["truncated"]), (&Value::Null, &Value::Bool(false)));
    assert_eq!(get("/api/ledger?since=1h")["calls"], test_env.json(&["ledger"]));
    let channels = get("/api/channels?agent=ada");
    assert_eq!(channels["channels"], test_env.json(&["chat", "list", "--agent", "ada"]));
    assert_eq!(
        (&channels["channels"][0]["channel"], &channels["channels"][0]["last_seq"]),
        (&"desk".into(), &3.into())
    );
    assert_eq!(get("/api/channels/desk/messages")["messages"], test_env.json(&["chat", "history", "desk"]));
    let posts = get("/api/channels/desk/messages?before=3&limit=1");
    assert_eq!(posts["truncated"], true, "there is an earlier one");
    assert_eq!((&posts["messages"][0]["content"], &posts["messages"][0]["seq"]), (&"post 1".into(), &2.into()));
    for (path, field) in [
        ("/api/events?after=-1", "after"),
        ("/api/events?agent=adda", "agent"),
        ("/api/events?channel=nope", "channel"),
        ("/api/events?kind=turn.failed", "kind"),
        ("/api/channels?agent=adda", "agent"),
        ("/api/tasks?owner=adda", "owner"),
        ("/api/ledger?agent=adda", "agent"),
    ] {
        let (_, body) = runtime.block_on(soon("an answer", site.json(path)));
        assert_eq!(body["error"]["details"]["field"], field, "{path}: {body}");
    }
    for (path, status, code, hint) in [
        ("/api/agents/adda", 404, "not_found", "`ada`"),
        ("/api/tasks?owner=adda", 404, "not_found", "`ada`"),
        ("/api/ledger?agnet=ada", 400, "invalid_arguments", "`agent`"),
        ("/api/channels/desk2/messages", 404, "not_found", "`desk`"),
        ("/api/tasks/none", 400, "invalid_arguments", ""),
        ("/api/agents?limit=-1", 400, "invalid_arguments", "limit=20"),
        ("/api/agents?cursor=A%20B", 400, "invalid_arguments", "next_cursor"),
        ("/api/ledger?since=soon", 400, "invalid_arguments", "24h"),
        ("/api/events?after=x", 400, "invalid_arguments", "oldest"),
        ("/api/events/ws", 400, "invalid_arguments", "WebSocket"),
    ] {
        let (received, body) = runtime.block_on(soon("an answer", site.json(path)));
        assert_eq!((received, body["error"]["code"].as_str()), (status, Some(code)), "{path}: {body}");
        assert!(body["error"]["hint"].as_str().unwrap_or_default().contains(hint), "{path}: {body}");
    }
    daemon.stop();
}
