//! The feed over gRPC, server-sent events and WebSocket, read by foreign clients from a real daemon: one order and one
//! object everywhere, whoever dies in the middle.

// A black-box test has nothing to recover to: what goes wrong is told by the panic that fails it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "streams/wires.rs"]
mod wires;

use std::path::PathBuf;
use std::time::Duration;

use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::{CreateChannelRequest, PostRequest};
use ghost_testkit::blackbox::{Daemon, Deadline, House, ghostd_testing};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wires::{Ask, Heard, Reader, Site, WAYS, Way};

fn house(limits: &str) -> (House, PathBuf) {
    let house = House::new(ghostd_testing());
    let world = house.world("open");
    world
        .config(&format!(
            "agents: [{{ id: ada, archetype: clerk }}, {{ id: ben, archetype: clerk }}]\n\
             llm: {{ default_provider: scripted, default_model: clerk }}\nlimits: {{ {limits} }}\n"
        ))
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n");
    let path = world.path().to_owned();
    (house, path)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Starts the daemon with its HTTP side.
fn up(house: &House, world: &std::path::Path) -> (Daemon, Site) {
    let daemon = house.up(world, &["--http", "127.0.0.1:0"]);
    let line = daemon.wait_for_line("the endpoint", Deadline::seconds(10), |line| line.contains("http://127.0.0.1:"));
    let http = line[line.find("127.0.0.1:").unwrap()..].trim().trim_end_matches('/').to_owned();
    let data = house.data("open");
    let token = std::fs::read_to_string(data.join("token")).unwrap().trim().to_owned();
    (daemon, Site { socket: data.join("ghostd.sock"), http, token })
}

/// Bounds a wait for what must come.
#[allow(clippy::disallowed_methods)] // real daemons, real time; nothing is passed by waiting
async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), coming).await.unwrap_or_else(|_| panic!("in vain waited for {what}"))
}

/// Reads until an agent is stopped. Cuts its own connection once after `cut` events; whatever ends it, goes on after the last
/// event that it saw, where the daemon is then.
async fn read_it_all(mut sites: watch::Receiver<Option<Site>>, way: Way, mut cut: Option<usize>) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    loop {
        let site = sites.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        let after = events.last().map(|event| event["seq"].as_i64().unwrap());
        let mut reader = Reader::open(&site, way, &Ask { after, ..Ask::default() }).await;
        loop {
            match reader.next().await {
                Heard::Event(event) => {
                    let is_last = event["kind"] == "agent.stopped";
                    events.push(event);
                    if is_last {
                        return events;
                    }
                    if cut.is_some_and(|cut| events.len() >= cut) {
                        cut = None;
                        break;
                    }
                }
                Heard::Lost => {
                    // Until there is another daemon there is nothing to go on with.
                    sites.wait_for(|now| now.as_ref().is_some_and(|now| now.http != site.http)).await.unwrap();
                    break;
                }
                Heard::Lagged(last) => {
                    assert!(after.is_none_or(|after| last >= after));
                    break;
                }
                Heard::Refused(how, why) => panic!("{way:?}: {how} {why}"),
            }
        }
    }
}

#[test]
fn nine_readers_agree_on_every_event_whoever_dies() {
    let (house, world) = house("");
    let runtime = runtime();
    let (daemon, site) = up(&house, &world);
    let (now, sites) = watch::channel(Some(site));
    let readers: Vec<JoinHandle<Vec<Value>>> = WAYS
        .into_iter()
        .flat_map(|way| [(way, None), (way, Some(40)), (way, None)])
        .map(|(way, cut)| runtime.spawn(read_it_all(sites.clone(), way, cut)))
        .collect();
    let work = |from: usize| {
        for number in from..from + 8 {
            house.ctl(&["send", if number % 2 == 0 { "ada" } else { "ben" }, "hello"]).ok();
        }
    };
    work(0);
    // Killed while turns are under way and readers are at it.
    now.send_replace(None);
    daemon.kill();
    let (daemon, site) = up(&house, &world);
    now.send_replace(Some(site));
    work(8);
    house.wait_until_quiet(Deadline::seconds(60));
    house.ctl(&["agent", "stop", "ben"]).ok();
    let read: Vec<Vec<Value>> =
        readers.into_iter().map(|reader| runtime.block_on(soon("the end of a reader", reader)).unwrap()).collect();
    let seqs = |events: &[Value]| events.iter().map(|event| event["seq"].as_i64().unwrap()).collect::<Vec<_>>();
    let first = &read[0];
    assert!(first.len() > 80, "{}", first.len());
    assert!(seqs(first).into_iter().eq(1..=i64::try_from(first.len()).unwrap()), "no gap and no double");
    for other in &read[1..] {
        assert_eq!(seqs(other), seqs(first));
        assert!(other == first, "one object everywhere");
    }
    let told: Vec<Value> = house.ctl(&["--json", "events"]).json_lines();
    assert_eq!(told[..first.len()], first[..], "ghostctl shows the same");
    daemon.stop();
}

/// Events until `count` have come.
async fn take(reader: &mut Reader, count: usize) -> Vec<Value> {
    let mut events = Vec::new();
    while events.len() < count {
        match reader.next().await {
            Heard::Event(event) => events.push(event),
            other => panic!("{other:?} after {} of {count}", events.len()),
        }
    }
    events
}

#[test]
fn filters_pass_the_same_on_every_way() {
    let (house, world) = house("");
    let runtime = runtime();
    let (daemon, site) = up(&house, &world);
    for agent in ["ada", "ben", "ada"] {
        house.ctl(&["send", agent, "hello"]).ok();
    }
    house.ctl(&["chat", "create", "desk", "--members", "ada,ben", "--gated"]).ok();
    house.ctl(&["chat", "send", "desk", "hello"]).ok();
    house.wait_until_quiet(Deadline::seconds(60));
    for (ask, arguments) in [
        (Ask { kinds: vec!["turn."], ..Ask::default() }, vec!["--kind", "turn.*"]),
        (
            Ask { kinds: vec!["turn.started", "message."], agent: Some("ada"), ..Ask::default() },
            vec!["--kind", "turn.started,message.*", "--agent", "ada"],
        ),
        (Ask { agent: Some("ben"), after: Some(3), ..Ask::default() }, vec!["--agent", "ben", "--after", "3"]),
        (Ask { channel: Some("desk"), ..Ask::default() }, vec!["--channel", "desk"]),
    ] {
        let expected = house.ctl(&[&["--json", "events"], arguments.as_slice()].concat()).json_lines();
        assert!(!expected.is_empty(), "{ask:?}");
        for way in WAYS {
            let events = runtime.block_on(async {
                let mut reader = Reader::open(&site, way, &ask).await;
                soon("what is stored", take(&mut reader, expected.len())).await
            });
            assert_eq!(events, expected, "{way:?} {ask:?}");
        }
    }
    daemon.stop();
}

/// How a way says no.
async fn refusal(site: &Site, way: Way, ask: &Ask) -> (String, Value) {
    match soon("a refusal", async { Reader::open(site, way, ask).await.next().await }).await {
        Heard::Refused(how, why) => (how, why),
        other => panic!("{way:?} {ask:?}: {other:?}"),
    }
}

#[test]
fn what_cannot_be_read_is_refused_on_every_way() {
    let (house, world) = house("");
    let runtime = runtime();
    let (daemon, _) = up(&house, &world);
    house.ctl(&["send", "ada", "hello"]).ok();
    house.wait_until_quiet(Deadline::seconds(60));
    daemon.stop();
    // As retention does it after days.
    runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(house.data("open").join("ghost.db"));
        let pool = sqlx::sqlite::SqlitePoolOptions::new().connect_with(options).await.unwrap();
        sqlx::query("DELETE FROM events WHERE seq <= 5").execute(&pool).await.unwrap();
        pool.close().await;
    });
    let (daemon, site) = up(&house, &world);
    runtime.block_on(async {
        let after = |after: i64| Ask { after: Some(after), ..Ask::default() };
        for (ask, how, code, words) in [
            (after(1_000_000), ["OutOfRange", "416", "4416"], "cursor_ahead", "has reached"),
            (after(2), ["FailedPrecondition", "410", "4410"], "cursor_expired", "oldest one kept is 6"),
            (after(-1), ["InvalidArgument", "400", "4400"], "invalid_arguments", "-1"),
            (
                Ask { kinds: vec!["turn.startd"], ..Ask::default() },
                ["InvalidArgument", "400", "4400"],
                "invalid_arguments",
                "turn.startd",
            ),
            (Ask { agent: Some("adda"), ..Ask::default() }, ["NotFound", "404", "4404"], "not_found", "adda"),
        ] {
            for (way, how) in WAYS.into_iter().zip(how) {
                let (told, why) = refusal(&site, way, &ask).await;
                assert_eq!((told.as_str(), why["code"].as_str()), (how, Some(code)), "{way:?} {ask:?}");
                assert!(why["message"].as_str().unwrap().contains(words), "{why}");
                match code {
                    "cursor_expired" => assert_eq!(why["details"]["first_seq"], 6, "{why}"),
                    "not_found" => assert_eq!(why["hint"], "did you mean `ada`?"),
                    _ => {}
                }
            }
        }
        // Who asks for the oldest gets what is kept, and who has seen all that is gone misses nothing.
        for way in WAYS {
            for ask in [Ask::default(), after(5)] {
                let mut reader = Reader::open(&site, way, &ask).await;
                assert_eq!(soon("the oldest", take(&mut reader, 1)).await[0]["seq"], 6, "{way:?} {ask:?}");
            }
        }
    });
    house.ctl(&["events", "--after", "1000000"]).exits(2);
    house.ctl(&["events", "--after", "2"]).exits(3).says(&["oldest one kept is 6"]);
    daemon.stop();
}

#[test]
fn readers_of_all_kinds_are_counted_together() {
    let (house, world) = house("subscribers_max: 3");
    let runtime = runtime();
    let (daemon, site) = up(&house, &world);
    runtime.block_on(async {
        let mut readers = Vec::new();
        for way in WAYS {
            let mut reader = Reader::open(&site, way, &Ask::default()).await;
            soon("an event", take(&mut reader, 1)).await;
            readers.push(reader);
        }
        for (way, how) in WAYS.into_iter().zip(["ResourceExhausted", "429", "4429"]) {
            let (told, why) = refusal(&site, way, &Ask::default()).await;
            assert_eq!((told.as_str(), why["code"].as_str()), (how, Some("rate_limited")), "{way:?}");
            assert!(why["hint"].as_str().unwrap().contains("subscribers_max"), "{why}");
        }
        // Whoever goes makes room, whatever it was.
        let mut kept = Vec::new();
        for left in readers {
            drop(left);
            let mut next = None;
            let room = async {
                while next.is_none() {
                    let mut reader = Reader::open(&site, Way::Sse, &Ask::default()).await;
                    match reader.next().await {
                        Heard::Event(_) => next = Some(reader),
                        Heard::Refused(..) => {}
                        other => panic!("{other:?}"),
                    }
                }
            };
            soon("room", room).await;
            // It stays, so that the next one that leaves makes room for one more only.
            kept.extend(next);
        }
    });
    daemon.stop();
}

/// Bytes of a post, near its bound.
const POST: usize = 16_000;
/// Posts: more than any buffer between the daemon and a reader that does not read.
const POSTS: usize = 600;

async fn post_many(site: &Site) {
    let mut chat = ChatClient::new(site.channel());
    let create = CreateChannelRequest {
        request_id: "c".into(),
        channel: "flood".into(),
        members: vec!["ada".into(), "ben".into()],
        gated: true,
        ..CreateChannelRequest::default()
    };
    chat.create(create).await.unwrap();
    for round in 0..POSTS / 20 {
        let posts: Vec<_> = (0..20)
            .map(|number| {
                let mut chat = chat.clone();
                let request = PostRequest {
                    request_id: format!("p-{round}-{number}"),
                    channel: "flood".into(),
                    content: "x".repeat(POST),
                    ..PostRequest::default()
                };
                tokio::spawn(async move { chat.post(request).await })
            })
            .collect();
        for post in posts {
            post.await.unwrap().unwrap();
        }
    }
}

#[test]
fn a_reader_that_does_not_read_is_cut_off_and_slows_nobody() {
    let (house, world) = house("subscriber_buffer: 16");
    let runtime = runtime();
    let (daemon, site) = up(&house, &world);
    runtime.block_on(async {
        let flood = Ask { kinds: vec!["chat.message"], narrow: false, ..Ask::default() };
        let mut slow = Vec::new();
        for way in WAYS {
            slow.push((way, Reader::open(&site, way, &Ask { narrow: true, ..flood.clone() }).await));
        }
        let quick: Vec<_> = WAYS
            .into_iter()
            .map(|way| {
                let (site, ask) = (site.clone(), flood.clone());
                tokio::spawn(async move {
                    let mut reader = Reader::open(&site, way, &ask).await;
                    take(&mut reader, POSTS).await
                })
            })
            .collect();
        soon("posts", post_many(&site)).await;
        let mut all: Vec<Vec<Value>> = Vec::new();
        for reader in quick {
            // While three others do not read a byte.
            all.push(soon("all posts", reader).await.unwrap());
        }
        assert!(all[0] == all[1] && all[1] == all[2]);
        let wanted: Vec<i64> = all[0].iter().map(|event| event["seq"].as_i64().unwrap()).collect();
        wait_until_cut_off(&site).await;
        for (way, mut reader) in slow {
            let mut seen = Vec::new();
            let last = loop {
                match soon("the end of a slow reader", reader.next()).await {
                    Heard::Event(event) => seen.push(event["seq"].as_i64().unwrap()),
                    Heard::Lagged(last) => break last,
                    other => panic!("{way:?}: {other:?} after {}", seen.len()),
                }
            };
            assert!(seen.len() < POSTS, "{way:?} was cut off");
            assert!(seen.last().is_none_or(|seen| *seen <= last), "{way:?}");
            let mut resumed = Reader::open(&site, way, &Ask { after: Some(last), ..flood.clone() }).await;
            let rest = soon("the rest", take(&mut resumed, POSTS - seen.len())).await;
            seen.extend(rest.iter().map(|event| event["seq"].as_i64().unwrap()));
            assert_eq!(seen, wanted, "{way:?}: no gap and no double");
        }
    });
    daemon.stop();
}

/// Waits until no reader is left, as the daemon counts them.
async fn wait_until_cut_off(site: &Site) {
    let bearer = format!("Bearer {}", site.token);
    let gone = async {
        loop {
            let (_, page) = site.get("/metrics", &[("Host", &site.http), ("Authorization", &bearer)]).await;
            if page.lines().any(|line| line == "ghost_event_readers_cut_off_total 3") {
                return;
            }
        }
    };
    soon("the readers to be cut off", gone).await;
}

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
