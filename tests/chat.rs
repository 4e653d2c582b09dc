//! Chat channels from a user's point of view: every command and its refusals, chat messages over
//! kill -9, and a moderated debate from the question to the summary.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::{HistoryRequest, PostRequest};
use ghost_provider::testing::{FakeAnswer, FakeRequest};
use ghost_testkit::blackbox::{Deadline, ModelServer, TestEnvironment, agent_of, mail_of};
use serde_json::{Value, json};
use tonic::Code;
use tonic::transport::Endpoint;

const OPENMIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/worlds/openmic");

/// An environment with a world of three agents, which end every turn at once, and their model server.
fn chat_world(
    answer: impl Fn(&FakeRequest, u64) -> FakeAnswer + Send + Sync + 'static,
) -> (TestEnvironment, PathBuf, ModelServer) {
    let server = ModelServer::start(answer);
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("rooms");
    world.archetype("clerk", "").config(&format!(
        "agents:\n  - {{ id: ada, archetype: clerk }}\n  - {{ id: bob, archetype: clerk }}\n  \
         - {{ id: cyd, archetype: clerk }}\nllm:\n  default_provider: local\n  default_model: m\n  providers:\n    \
         local: {{ kind: openai, base_url: '{}', retry_base: 10ms }}\n",
        server.base_url()
    ));
    let path = world.path().to_owned();
    (test_env, path, server)
}

fn silent(_: &FakeRequest, _: u64) -> FakeAnswer {
    FakeAnswer::say("Read.")
}

fn seqs(posts: &Value) -> Vec<i64> {
    posts.as_array().unwrap().iter().map(|post| post["seq"].as_i64().unwrap()).collect()
}

fn turns_of(test_env: &TestEnvironment, agent: &str) -> Vec<Value> {
    test_env.json(&["turn", "list", "--agent", agent]).as_array().unwrap().clone()
}

// covers: CHAT-01, CHAT-14, TEST-11
#[test]
fn every_command_has_its_effect_and_shows_it() {
    let (test_env, world, _server) = chat_world(silent);
    let daemon = test_env.up(&world, &[]);
    let created =
        test_env.json(&["chat", "create", "plan", "--members", "cyd,ada,cyd", "--as", "bob", "--topic", "May"]);
    assert_eq!((&created["members"], &created["creator"]), (&json!(["ada", "bob", "cyd"]), &json!("agent:bob")));
    assert_eq!((&created["gated"], &created["topic"], &created["last_seq"]), (&json!(false), &json!("May"), &json!(0)));
    assert!(created["advisory"].as_str().unwrap().contains("moderator-open-mic"), "{created}");
    let panel =
        test_env.json(&["chat", "create", "panel", "--members", "ada,cyd", "--gated", "--skip-creator", "--as", "bob"]);
    assert_eq!((&panel["members"], &panel["advisory"]), (&json!(["ada", "cyd"]), &Value::Null));

    // The stream begins before the first chat message, and shows gated and ungated channels.
    let watch = test_env.ctl_in_background(&["--json", "chat", "watch", "panel", "--after", "0"]);
    let posted = test_env.json(&["chat", "send", "panel", "@ada, the floor is yours", "--as", "bob"]);
    assert_eq!((&posted["seq"], &posted["from"]), (&json!(1), &json!("bob")));
    assert_eq!((&posted["delivered"], &posted["woken"], &posted["skipped"]), (&json!(0), &json!(0), &json!([])));
    let mine = test_env.json(&["chat", "send", "panel", "An operator listens.", "--reply-to", "1"]);
    assert!(mine["from"].as_str().unwrap().starts_with("operator:"), "{mine}");
    let line = watch.wait_for_line("the second post", Deadline::seconds(30), |line| line.contains("\"seq\":2"));
    let message: Value = serde_json::from_str(&line).unwrap();
    for key in ["channel", "seq", "from", "content", "ts"] {
        assert!(!message[key].is_null(), "{key} in {message}");
    }
    assert!(watch.out.all()[0].contains("\"seq\":1"));
    drop(watch);
    assert!(turns_of(&test_env, "ada").is_empty(), "a gated post starts no turn");

    let woken = test_env.json(&["chat", "send", "plan", "@ada what is open?", "--as", "bob"]);
    assert_eq!((&woken["delivered"], &woken["woken"]), (&json!(2), &json!(1)));
    test_env.wait_until_quiet(Deadline::seconds(30));
    assert_eq!((turns_of(&test_env, "ada").len(), turns_of(&test_env, "cyd").len()), (1, 0));
    let delivered = test_env.json(&["chat", "send", "panel", "@cyd come to the end", "--deliver"]);
    assert_eq!((&delivered["delivered"], &delivered["woken"]), (&json!(2), &json!(2)), "two are in it: each is meant");
    test_env.wait_until_quiet(Deadline::seconds(30));
    assert_eq!(turns_of(&test_env, "cyd").len(), 1);

    let list = test_env.json(&["chat", "list"]);
    assert_eq!(list.as_array().unwrap().len(), 2);
    let bobs = test_env.json(&["chat", "list", "--agent", "bob"]);
    assert_eq!(
        bobs.as_array().unwrap().iter().map(|c| c["channel"].as_str().unwrap()).collect::<Vec<_>>(),
        ["panel", "plan"]
    );
    assert_eq!(test_env.json(&["chat", "remove", "plan", "cyd", "--as", "cyd"])["members"], json!(["ada", "bob"]));
    assert_eq!(test_env.json(&["chat", "list", "--agent", "cyd"]).as_array().unwrap().len(), 1);
    assert_eq!(test_env.json(&["chat", "invite", "plan", "cyd"])["members"], json!(["ada", "bob", "cyd"]));
    let history = test_env.json(&["chat", "history", "panel"]);
    assert_eq!(seqs(&history), [1, 2, 3]);
    assert_eq!((&history[1]["reply_to"], &history[0]["mentions"]), (&json!(1), &json!(["ada"])));
    assert_eq!(seqs(&test_env.json(&["chat", "history", "panel", "--limit", "1", "--before", "3"])), [2]);
    assert_eq!(seqs(&test_env.json(&["chat", "history", "panel", "--after", "1"])), [2, 3]);
    assert_eq!(seqs(&test_env.json(&["chat", "history", "panel", "--after", "1", "--limit", "1"])), [2]);
    assert_eq!(seqs(&test_env.json(&["chat", "history", "panel", "--after", "3"])), [] as [i64; 0]);
    // `everyone` is one mention; package names, addresses and code are no mentions.
    let everyone = test_env.json(&["chat", "send", "panel", "@ada and @all: see `@nobody`, @types/node, a@b.example"]);
    assert_eq!(everyone["mentions"], json!(["all", "ada"]));
    assert_eq!(test_env.json(&["chat", "history", "panel", "--after", "3"])[0]["mentions"], json!(["all", "ada"]));
    let watch = test_env.ctl_in_background(&["--json", "chat", "watch", "panel", "--after", "3"]);
    watch.wait_for_line("the post to all", Deadline::seconds(30), |line| line.contains("[\"all\",\"ada\"]"));
    drop(watch);
    let table = test_env.ctl(&["chat", "history", "panel", "--limit", "1", "--before", "4"]);
    assert!(table.ok().out.contains("@cyd come to the end"), "{}", table.out);
    let kinds: Vec<Value> = test_env.ctl(&["--json", "events", "--kind", "chat.*"]).json_lines();
    let count = |kind: &str| kinds.iter().filter(|event| event["kind"] == kind).count();
    let counts = ["chat.created", "chat.message", "chat.member_added", "chat.member_removed"].map(count);
    assert_eq!(counts, [2, 5, 1, 1], "CHAT-14");
    assert!(kinds.iter().all(|event| event["channel"].is_string()));
    daemon.stop();
}

// covers: CHAT-04
#[test]
fn a_gated_post_is_reported_as_held() {
    let (test_env, world, _server) = chat_world(silent);
    let daemon = test_env.up(&world, &[]);
    test_env.json(&["chat", "create", "panel", "--members", "ada,cyd", "--gated"]);
    test_env.json(&["chat", "create", "plan", "--members", "ada,cyd"]);
    let sent = |args: &[&str]| {
        let posted = test_env.json(&[&["chat", "send"], args].concat());
        (posted["held"].clone(), posted["delivered"].clone(), posted["woken"].clone())
    };
    assert_eq!(sent(&["panel", "@ada a question"]), (json!(true), json!(0), json!(0)));
    assert_eq!(sent(&["panel", "@ada a question", "--deliver"]), (json!(false), json!(2), json!(2)));
    assert_eq!(sent(&["plan", "a word"]).0, json!(false), "a post without mentions is not held");
    let output = test_env.ctl(&["chat", "send", "panel", "@ada another"]);
    assert!(output.ok().out.contains("gated"), "{}", output.out);
    daemon.stop();
}

#[test]
fn a_refused_command_gives_the_reason_and_changes_nothing() {
    let (test_env, world, _server) = chat_world(silent);
    let daemon = test_env.up(&world, &[]);
    test_env.json(&["chat", "create", "plan", "--members", "ada", "--gated", "--as", "bob"]);
    test_env.json(&["chat", "send", "plan", "one"]);
    let long = "x".repeat(16_385);
    for (code, args, word) in [
        (7, &["chat", "create", "plan", "--members", "ada"][..], "plan"),
        (2, &["chat", "create", "Plan", "--members", "ada"], "CHANNEL"),
        (2, &["chat", "create", "a\u{7}b", "--members", "ada"], "CHANNEL"),
        (2, &["chat", "create", "other", "--members", "ada", "--topic", "a\nb"], "--topic"),
        (2, &["chat", "create", "other"], "--members"),
        (3, &["chat", "create", "other", "--members", "ad"], "`ada`"),
        (3, &["chat", "create", "other", "--members", "ada", "--as", "bop"], "`bob`"),
        (3, &["chat", "send", "plam", "x"], "`plan`"),
        (4, &["chat", "send", "plan", "x", "--as", "cyd"], "cyd"),
        (4, &["chat", "send", "plan", "x", "--as", "ada", "--deliver"], "deliver"),
        (2, &["chat", "send", "plan", " "], "TEXT"),
        (2, &["chat", "send", "plan", "@adda: begin", "--as", "bob"], "`@ada`"),
        (2, &["chat", "create", "other", "--members", "ada,bob", "--skip-creator", "--as", "bob"], "--skip-creator"),
        (2, &["chat", "send", "plan", "a\u{1b}b"], "U+001B"),
        (8, &["chat", "send", "plan", &long], "16385"),
        (3, &["chat", "send", "plan", "x", "--reply-to", "9"], "#plan"),
        (4, &["chat", "invite", "plan", "cyd", "--as", "ada"], "bob"),
        (4, &["chat", "remove", "plan", "bob", "--as", "ada"], "bob"),
        (3, &["chat", "invite", "plan", "cid"], "`cyd`"),
        (3, &["chat", "remove", "plan", "cyd"], "plan"),
        (3, &["chat", "list", "--agent", "bop"], "`bob`"),
        (4, &["chat", "history", "plan", "--as", "cyd"], "cyd"),
        (2, &["chat", "history", "plan", "--before", "9"], "#plan"),
        (2, &["chat", "watch", "plan", "--after", "9"], "#plan"),
        (3, &["chat", "watch", "plam"], "`plan`"),
    ] {
        let ran = test_env.ctl(args);
        ran.exits(code);
        assert!(ran.err.contains(word), "{args:?}: {}", ran.err);
    }
    let ahead = test_env.ctl(&["--json", "chat", "history", "plan", "--before", "9"]).error();
    assert_eq!(ahead["code"], "cursor_ahead");
    assert_eq!(seqs(&test_env.json(&["chat", "history", "plan"])), [1]);
    assert_eq!(test_env.json(&["chat", "list"]).as_array().unwrap().len(), 1);
    // A mention of a non-member is reported in the answer, and the chat message is stored.
    let posted = test_env.json(&["chat", "send", "plan", "@cyd mail@nobody.example", "--as", "bob"]);
    assert_eq!(posted["skipped"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&posted["skipped"][0]["agent_id"], &posted["skipped"][0]["error_code"]),
        (&json!("cyd"), &json!("not_found"))
    );
    daemon.stop();
}

#[test]
fn a_repeated_post_gets_the_first_answer() {
    let (test_env, world, _server) = chat_world(silent);
    let daemon = test_env.up(&world, &[]);
    test_env.json(&["chat", "create", "plan", "--members", "ada,bob"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let post = |request_id: &str, content: &str| PostRequest {
        request_id: request_id.to_owned(),
        channel: "plan".to_owned(),
        content: content.to_owned(),
        ..PostRequest::default()
    };
    let connect = || {
        let socket = test_env.data("rooms").join("ghostd.sock");
        ChatClient::new(Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect_lazy())
    };
    let first = runtime.block_on(async { connect().post(post("p1", "once")).await.unwrap().into_inner() });
    daemon.kill();
    let daemon = test_env.up(&world, &[]);
    runtime.block_on(async {
        let mut client = connect();
        assert_eq!(client.post(post("p1", "once")).await.unwrap().into_inner(), first);
        assert_eq!(client.post(post("p1", "twice")).await.unwrap_err().code(), Code::FailedPrecondition);
        assert_eq!(client.post(post("", "none")).await.unwrap_err().code(), Code::InvalidArgument);
        let ahead = HistoryRequest { channel: "plan".into(), after_seq: Some(2), ..HistoryRequest::default() };
        assert_eq!(client.history(ahead).await.unwrap_err().code(), Code::OutOfRange);
        let all = HistoryRequest { channel: "plan".into(), ..HistoryRequest::default() };
        let all = client.history(all).await.unwrap().into_inner();
        assert_eq!((all.messages.len(), all.cut), (1, false));
    });
    daemon.stop();
}

// covers: CHAT-03
#[test]
fn ten_posts_to_a_busy_agent_are_one_turn() {
    let (open, gate): (_, Receiver<()>) = sync_channel(1);
    let gate = Mutex::new(gate);
    let (test_env, world, server) = chat_world(move |_, number| {
        if number == 1 {
            gate.lock().unwrap().recv().unwrap();
        }
        FakeAnswer::say("Read.")
    });
    let daemon = test_env.up(&world, &[]);
    test_env.json(&["chat", "create", "plan", "--members", "ada,bob,cyd"]);
    test_env.json(&["send", "bob", "work"]);
    assert!(server.wait_for(1, Deadline::seconds(30)));
    for n in 1..=10 {
        let posted = test_env.json(&["chat", "send", "plan", &format!("@bob post {n}")]);
        assert_eq!(posted["woken"], u64::from(n == 1), "{posted}");
    }
    open.send(()).unwrap();
    test_env.wait_until_quiet(Deadline::seconds(30));
    assert_eq!(turns_of(&test_env, "bob").len(), 2, "the work, and one for all ten posts");
    assert_eq!((turns_of(&test_env, "ada").len(), server.asked().len()), (0, 2));
    daemon.stop();
}

/// Digests that each agent got, with the chat messages in them.
type Shown = BTreeMap<String, BTreeMap<String, Vec<i64>>>;

/// Sequence numbers of the chat messages in a digest.
fn shown(digest: &str) -> Vec<i64> {
    let heads = digest.lines().filter_map(|line| line.strip_prefix('#'));
    heads.map(|head| head.split(' ').next().unwrap().parse().unwrap()).collect()
}

// covers: CHAT-12
#[test]
fn a_kill_between_posts_loses_none_and_shows_none_twice() {
    const ROUNDS: usize = 6;
    const POSTS: usize = 4;
    // The digests of each agent. A turn shows the same digest whenever its model is asked.
    let seen: Arc<Mutex<Shown>> = Arc::default();
    let log = Arc::clone(&seen);
    let (test_env, world, _server) = chat_world(move |request, _| {
        for mail in mail_of(request).into_iter().filter(|mail| mail.kind == "chat") {
            let posts = shown(&mail.body);
            log.lock().unwrap().entry(agent_of(request)).or_default().insert(mail.body, posts);
        }
        FakeAnswer::say("Read.")
    });
    let mut daemon = test_env.up(&world, &[]);
    test_env.json(&["chat", "create", "plan", "--members", "ada,bob,cyd"]);
    let mut clients = Vec::new();
    for round in 0..ROUNDS {
        for post in 0..POSTS {
            let text = format!("@{} post {round}.{post}", ["bob", "all"][post % 2]);
            clients.push(test_env.ctl_in_background(&["--world", "rooms", "chat", "send", "plan", &text]));
        }
        // The kill happens while some chat messages are accepted, some in progress and some not
        // sent.
        clients[round * POSTS + round % POSTS].wait();
        daemon.kill();
        daemon = test_env.up(&world, &[]);
    }
    for client in &mut clients {
        assert_eq!(client.wait(), 0, "{}", client.err.text());
    }
    test_env.wait_until_quiet(Deadline::seconds(60));
    // Chat messages that did not wake an agent come with the next wake-up.
    for agent in ["ada", "bob", "cyd"] {
        test_env.json(&["send", agent, "the end"]);
    }
    test_env.wait_until_quiet(Deadline::seconds(60));
    let total = i64::try_from(ROUNDS * POSTS).unwrap();
    let history = test_env.json(&["chat", "history", "plan", "--limit", "500"]);
    assert_eq!(seqs(&history), (1..=total).collect::<Vec<_>>(), "no gap, and every post once");
    let mut texts: Vec<&str> =
        history.as_array().unwrap().iter().map(|post| post["content"].as_str().unwrap()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), ROUNDS * POSTS);
    let seen = seen.lock().unwrap();
    for agent in ["ada", "bob", "cyd"] {
        let mut posts: Vec<i64> = seen[agent].values().flatten().copied().collect();
        posts.sort_unstable();
        assert_eq!(posts, (1..=total).collect::<Vec<_>>(), "{agent} was shown each post once");
    }
    assert_eq!(test_env.json(&["dead", "list"]), json!([]));
    daemon.stop();
}

// covers: CHAT-05, CHAT-06, CHAT-09, TEST-02
#[test]
fn an_open_mic_debates_a_question_and_gated_posts_start_no_turn() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let daemon = test_env.up(Path::new(OPENMIC), &[]);
    let asked = test_env.json(&["--timeout", "120s", "ask", "moderator", "Should the library stay open at night?"]);
    let reply = asked["reply"].as_str().unwrap();
    let name = test_env.json(&["chat", "list"])[0]["channel"].as_str().unwrap().to_owned();
    assert!(name.starts_with("debate-should-the-library") && reply.contains(&name), "{reply}");
    let posts = test_env.json(&["chat", "history", &name]);
    assert_eq!(seqs(&posts), (1..=12).collect::<Vec<_>>());
    let speakers: Vec<&str> = posts.as_array().unwrap().iter().map(|post| post["from"].as_str().unwrap()).collect();
    let round = ["ada", "bruno", "chen", "dina", "emil"];
    assert_eq!(speakers, [&["moderator"][..], &round, &round, &["moderator"]].concat());
    // The second round answers the first, and the summary is made of the chat messages.
    assert_eq!(posts[6]["reply_to"], 6);
    assert!(posts[6]["content"].as_str().unwrap().starts_with("emil, "), "{}", posts[6]);
    let summary = posts[11]["content"].as_str().unwrap();
    for speaker in round {
        assert!(summary.contains(&format!("- {speaker} holds: ")), "{summary}");
    }
    assert!(summary.contains("Should the library stay open at night?") && reply.contains("- ada holds: "));
    // Each chat message uses words of the question, and the counts match the chat messages.
    for post in &posts.as_array().unwrap()[1..6] {
        let content = post["content"].as_str().unwrap();
        assert!(content.contains("library") && (content.contains("night") || content.contains("open")), "{content}");
    }
    let stands = |word: &str| {
        let posts = &posts.as_array().unwrap()[1..6];
        posts.iter().filter(|post| post["content"].as_str().unwrap().starts_with(word)).count()
    };
    let counts = format!("{} for, {} against and {} undecided", stands("For"), stands("Against"), stands("Undecided"));
    assert!(posts[10]["content"].as_str().unwrap().ends_with(&format!("So far I hear {counts}.")), "{}", posts[10]);
    assert!(summary.starts_with("Summary of 10 posts by 5 speakers"), "{summary}");
    assert_eq!(summary.lines().filter(|line| line.contains("and to ")).count(), 5, "{summary}");
    test_env.wait_until_quiet(Deadline::seconds(30));
    let turns = test_env.json(&["turn", "list"]);
    let turns = turns.as_array().unwrap();
    assert_eq!(turns.len(), 11, "the moderator's, and two of each speaker's that it asked for");
    assert!(turns.iter().all(|turn| turn["status"] == "finished"), "{turns:#?}");
    // A watcher sees the chat messages.
    let watch = test_env.ctl_in_background(&["--json", "chat", "watch", &name, "--after", "10"]);
    watch.wait_for_line("the summary", Deadline::seconds(30), |line| line.contains("Summary of"));
    drop(watch);
    // A message that is not a question starts no debate.
    test_env.json(&["task", "create", "Tidy the room", "--owner", "moderator"]);
    let note = json!({ "to": "moderator", "content": "Was that a question? I think so." }).to_string();
    test_env.json(&["tool", "call", "ada", "syscall.message.send", &note]);
    test_env.wait_until_quiet(Deadline::seconds(30));
    let read = turns_of(&test_env, "moderator");
    assert!(read[..read.len() - 1].iter().all(|turn| turn["calls"] == 0 && turn["status"] == "finished"), "{read:#?}");
    assert_eq!(test_env.json(&["chat", "list"]).as_array().unwrap().len(), 1);
    assert_eq!(test_env.json(&["chat", "list"])[0]["last_seq"], 12);
    // The same question continues in the existing channel. It finishes even after a kill.
    test_env.json(&["send", "moderator", "Should the library stay open at night?"]);
    let watch = test_env.ctl_in_background(&["--json", "--timeout", "60s", "chat", "watch", &name, "--after", "12"]);
    watch.wait_for_line("a third speaker", Deadline::seconds(60), |line| line.contains("\"seq\":16"));
    daemon.kill();
    let daemon = test_env.up(Path::new(OPENMIC), &[]);
    test_env.wait_until_quiet(Deadline::seconds(120));
    let posts = test_env.json(&["chat", "history", &name]);
    assert_eq!(seqs(&posts), (1..=24).collect::<Vec<_>>());
    let speakers: Vec<&str> =
        posts.as_array().unwrap()[12..].iter().map(|post| post["from"].as_str().unwrap()).collect();
    assert_eq!(speakers, [&["moderator"][..], &round, &round, &["moderator"]].concat());
    watch.wait_for_line("the last post, over the restart", Deadline::seconds(60), |line| line.contains("\"seq\":24"));
    assert_eq!(watch.out.len(), 12, "each once\n{}", watch.out.text());
    daemon.stop();
}

#[test]
fn a_watcher_sees_the_same_posts_as_a_reader() {
    let (test_env, world, _server) = chat_world(silent);
    let daemon = test_env.up(&world, &[]);
    test_env.json(&["chat", "create", "panel", "--members", "ada,cyd", "--gated"]);
    let watch = test_env.ctl_in_background(&["--json", "chat", "watch", "panel", "--after", "0"]);
    for number in 1..=30 {
        test_env.json(&["chat", "send", "panel", &format!("post {number}"), "--as", "ada"]);
    }
    watch.wait_for_line("the last post", Deadline::seconds(30), |line| line.contains("\"seq\":30"));
    let watched: Vec<Value> = watch.out.all().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let read = test_env.json(&["chat", "history", "panel"]);
    assert_eq!(&watched, read.as_array().unwrap(), "to the millisecond");
    drop(watch);
    daemon.stop();
}
