//! Talking with agents from outside (issue 3, part 2): over the control plane and over signed webhooks, through the real
//! programs, with the daemon killed in the middle.

// A black-box test has nothing to recover to: what goes wrong is told by the panic that fails it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ghost_control::adapters::{sign, verify};
use ghost_proto::v1::conversations_client::ConversationsClient;
use ghost_proto::v1::{SayRequest, WatchConversationRequest};
use ghost_testkit::blackbox::{Daemon, Deadline, House, Lines, Ran};
use serde_json::{Value, json};
use tonic::transport::Endpoint;

const SECRET: &str = "a-long-secret-that-both-sides-know";

const SCRIPT: &str = r#"about: Talks as it is told.
vars: { story: "Once upon a time there was an agent that told stories to whoever asked, and it told them slowly, word by word, \
so that those who listened had something to listen to. It spoke of files and of turns, of mail that came in the night and of \
daemons that were killed and rose again, of clocks that jumped and of disks that were full, and nobody who listened to it was \
bored, or if they were, they did not say so, because they had asked for the story themselves, and a story has an end." }
rules:
  - name: story
    when: { mail: 'a story', round: 0 }
    do: [{ say: "{{ vars.story }}" }, { wait: 3s }, { say: The end. }]
  - name: slow
    when: { mail: 'take your time', round: 0 }
    do: [{ wait: 3s }, { say: Slowly said. }]
  - name: report
    when: { mail: 'report please', round: 0 }
    do: [{ call: workspace.write, with: { path: report.md, content: "Forty-two." } }]
  - name: attach
    when: { tool: workspace.write }
    do: [{ call: channel.file_attach, with: { path: report.md, name: Report.md } }]
  - name: attached
    when: { tool: channel.file_attach }
    do: [{ say: "[[reply_to_current]] Here is the report." }]
  - name: silent
    when: { mail: 'say nothing', round: 0 }
    do: [{ say: "%%NO_REPLY%%" }]
  - name: handoff
    when: { mail: 'give me ben', round: 0 }
    do: [{ call: syscall.channel.handoff, with: { agent_id: ben, reason: Ben knows. } }]
  - name: handed
    when: { tool: syscall.channel.handoff }
    do: [{ say: Ben takes over. }]
  - name: first
    when: { mail: 'a moment', round: 0 }
    do: [{ call: syscall.channel.send, with: { content: One moment. } }]
  - name: then
    when: { tool: syscall.channel.send }
    do: [{ say: There you are. }]
  - name: broken
    when: { mail: 'fall over', round: 0 }
    do: [{ fail: { kind: bad_request, message: No such thing. } }]
otherwise: [{ say: "Here is {{ agent_id }}." }]
"#;

const WORLD: &str = "\
world: { name: The Desk }
agents:
  - { id: ada, archetype: clerk }
  - { id: ben, archetype: clerk }
limits: { message_bytes: 2000, delivery_attempts_max: 3 }
llm: { default_provider: scripted, default_model: desk }
";

fn desk(more: &str) -> (House, PathBuf) {
    let mut house = House::new(env!("CARGO_BIN_EXE_ghostd"));
    house.set("HOOK_SECRET", SECRET);
    let world = house.world("desk");
    world.config(&format!("{WORLD}{more}")).archetype("clerk", "").write("scripts/desk.yaml", SCRIPT);
    let path = world.path().to_owned();
    (house, path)
}

/// `ghostctl --json talk ada` with these lines, to its end.
fn talk(house: &House, args: &[&str], lines: &str) -> Ran {
    let path = house.join("lines");
    std::fs::write(&path, lines).unwrap();
    let mut command = house.ctl_command(&[&["--json", "--timeout", "60s", "talk"], args].concat());
    let output = command.stdin(Stdio::from(File::open(path).unwrap())).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran {
        code: output.status.code(),
        out: text(output.stdout),
        err: text(output.stderr),
        call: format!("talk {args:?}"),
    }
}

/// A talk in the background, fed through a pipe.
struct Talk {
    child: Child,
    out: Lines,
    err: Lines,
}

impl Talk {
    fn start(house: &House, args: &[&str]) -> Self {
        let mut command = house.ctl_command(&[&["--json", "--timeout", "60s", "talk"], args].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Lines::of(child.stdout.take().unwrap()), Lines::of(child.stderr.take().unwrap()));
        Self { child, out, err }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let wanted = |line: &str| serde_json::from_str(line).is_ok_and(|value| wanted(&value));
        let found = self.out.find(0, Deadline::seconds(60), wanted);
        let (_, line) = found.unwrap_or_else(|| panic!("no {what}\n{}\n{}", self.out.text(), self.err.text()));
        serde_json::from_str(&line).unwrap()
    }

    /// Ends its input and waits for its end.
    fn end(mut self) -> Vec<Value> {
        drop(self.child.stdin.take());
        assert!(self.out.wait_for_end(Deadline::seconds(90)), "it goes on\n{}", self.out.text());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.err.text());
        self.out.all().iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn is_out(value: &Value) -> bool {
    value["type"] == "entry" && value["direction"] == "out"
}

fn said(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter(|line| is_out(line)).map(|line| line["content"].as_str().unwrap()).collect()
}

#[test]
fn a_conversation_with_answers_files_silence_and_a_handoff() {
    let (house, world) = desk("");
    let daemon = house.up(&world, &[]);
    let lines = "hello\nreport please\nsay nothing\na moment\ngive me ben\nhello again\n/unknown-is-refused-below\n";
    let lines = lines.replace("/unknown-is-refused-below\n", "");
    let ran = talk(&house, &["ada"], &lines);
    let lines = ran.json_lines();
    let answers =
        ["Here is ada.", "Here is the report.", "One moment.", "There you are.", "Ben takes over.", "Here is ben."];
    assert_eq!(said(&lines), answers, "{}", ran.out);
    let report = lines.iter().find(|line| line["content"] == "Here is the report.").unwrap();
    let file =
        json!({ "path": "agents/ada/report.md", "name": "Report.md", "mime_type": "text/markdown", "bytes": 10 });
    assert_eq!(report["attachments"], json!([file]));
    assert!(report["reply_to"].is_string(), "the tag is taken out and heeded");
    assert!(lines.iter().any(|line| line["type"] == "handoff" && line["owner"] == "ben"));
    assert!(!ran.out.contains("NO_REPLY"), "silence is not streamed either");
    assert_eq!(lines.iter().filter(|line| line["type"] == "turn_over").count(), 6);
    let seqs: Vec<i64> =
        lines.iter().filter(|line| line["type"] == "entry").map(|line| line["seq"].as_i64().unwrap()).collect();
    assert!(seqs.iter().copied().eq(1..=i64::try_from(seqs.len()).unwrap()), "{seqs:?}");

    let list = house.json(&["conversation", "list", "--agent", "ben"]);
    let id = list[0]["conversation_id"].as_str().unwrap().to_owned();
    assert_eq!((&list[0]["adapter"], &list[0]["owner"]), (&json!("control"), &json!("ben")));
    assert_eq!(house.json(&["conversation", "list", "--agent", "ada"]), json!([]));
    let back = house.json(&["conversation", "handoff", &id, "ada", "--reason", "a test"]);
    assert_eq!(back["owner"], "ada");
    let more = talk(&house, &["ada", "--conversation", &id], "once more\n").json_lines();
    assert_eq!(said(&more), ["Here is ada."]);
    let shown = house.json(&["conversation", "show", &id]);
    let entries = shown["entries"].as_array().unwrap();
    assert!(entries.iter().enumerate().all(|(at, entry)| entry["seq"] == json!(at + 1)), "no gap");
    assert!(entries.iter().filter(|entry| entry["direction"] == "out").all(|entry| entry["delivery"] == "delivered"));
    // For people it is text.
    assert!(house.ctl(&["conversation", "show", &id]).ok().out.contains("Here is the report."));

    // Bad input: each with its own code, nothing half done.
    let conversations = house.json(&["conversation", "list"]).as_array().unwrap().len();
    talk(&house, &["adda"], "hello\n").exits(3).says(&["did you mean `ada`?"]);
    talk(&house, &["ada", "--conversation", "0"], "x\n").exits(2);
    talk(&house, &["ben", "--conversation", &id], "x\n").exits(7).says(&["is with ada"]);
    talk(&house, &["ada"], &format!("{}\n", "x".repeat(2_001))).exits(8).says(&["2000"]);
    talk(&house, &["ada", "--attach", "nothing.md"], "x\n").exits(3);
    talk(&house, &["ada", "--attach", "../x"], "x\n").exits(2);
    talk(&house, &["adda"], "").exits(3).says(&["did you mean `ada`?"]);
    talk(&house, &["ada"], "/handoff zed\n").exits(3);
    house.ctl(&["agent", "stop", "ben"]).ok();
    talk(&house, &["ada"], "/handoff ben\n").exits(7).says(&["is stopped"]);
    talk(&house, &["ben"], "").exits(7).says(&["agent start ben"]);
    house.ctl(&["agent", "start", "ben"]).ok();
    talk(&house, &["ada"], "/attach nothing.md\n").exits(2).says(&["attached to no message"]);
    talk(&house, &["ada"], &format!("{}\n", "x".repeat(5 * 1024 * 1024))).exits(8).says(&["1048576"]);
    talk(&house, &["ada"], "/dance\n").exits(2).says(&["/handoff AGENT"]);
    let missing = "01234567-89ab-7def-8123-456789abcdef";
    house.ctl(&["conversation", "show", missing]).exits(3);
    house.ctl(&["conversation", "handoff", &id, "adda"]).exits(3).says(&["did you mean `ada`?"]);
    house.ctl(&["conversation", "handoff", &id, "ada"]).exits(7);
    house.ctl(&["conversation", "redeliver", &id, "1"]).exits(7);
    house.ctl(&["conversation", "redeliver", &id, "999"]).exits(3);
    assert_eq!(house.json(&["conversation", "list"]).as_array().unwrap().len(), conversations);
    // A handoff as the last word is told all the same.
    let given = talk(&house, &["ada", "--conversation", &id], "/handoff ben\n").json_lines();
    assert!(given.iter().any(|line| line["type"] == "handoff" && line["owner"] == "ben"), "{given:?}");
    // A turn that fails is told to who waits.
    let failed = talk(&house, &["ada"], "fall over\n");
    failed.exits(1);
    assert!(failed.out.contains("ada's turn failed"), "{}", failed.out);
    daemon.stop();
}

#[test]
fn words_are_seen_while_they_come() {
    let (house, world) = desk("");
    let daemon = house.up(&world, &[]);
    let mut talk = Talk::start(&house, &["ada"]);
    talk.say("tell me a story");
    let delta = talk.wait_for("delta", |line| line["type"] == "delta");
    assert!(delta["text"].as_str().unwrap().starts_with("Once upon a time"), "{delta}");
    let done = talk.out.all().iter().any(|line| is_out(&serde_json::from_str(line).unwrap()));
    assert!(!done, "the answer is still being made");
    let lines = talk.end();
    let whole: String =
        lines.iter().filter(|line| line["type"] == "delta").map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(said(&lines), [whole.trim()]);
    daemon.stop();
}

#[test]
fn an_answer_that_a_kill_cut_off_comes_once() {
    let (house, world) = desk("");
    let daemon = house.up(&world, &[]);
    let mut talk = Talk::start(&house, &["ada"]);
    talk.say("take your time");
    talk.wait_for("entry", |line| line["type"] == "entry");
    Deadline::seconds(30).until("a turn at work", || {
        let open = house.json(&["status"])["open_turns"].clone();
        if open == 1 { Ok(()) } else { Err(open.to_string()) }
    });
    daemon.kill();
    let daemon = house.up(&world, &[]);
    // The same client goes on where it was.
    let lines = talk.end();
    assert_eq!(said(&lines), ["Slowly said."]);
    let id = lines.iter().find(|line| line["type"] == "conversation").unwrap()["conversation_id"].clone();
    let entries = house.json(&["conversation", "show", id.as_str().unwrap()])["entries"].clone();
    let all: Vec<&str> = entries.as_array().unwrap().iter().map(|entry| entry["content"].as_str().unwrap()).collect();
    assert_eq!(all, ["take your time", "Slowly said."], "once, and nothing else");
    assert_eq!(entries[1]["delivery"], "delivered");
    daemon.stop();
}

#[test]
fn a_raw_client_says_once_and_watches() {
    let (house, world) = desk("");
    let daemon = house.up(&world, &[]);
    let socket = house.data("desk").join("ghostd.sock");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let request = SayRequest {
        request_id: "say-1".into(),
        agent_id: Some("ada".into()),
        content: "hello".into(),
        ..SayRequest::default()
    };
    let connect = || Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect_lazy();
    let id = runtime.block_on(async {
        let mut client = ConversationsClient::new(connect());
        let first = client.say(request.clone()).await.unwrap().into_inner();
        let again = client.say(request.clone()).await.unwrap().into_inner();
        assert_eq!(first, again, "the same request is done once");
        let other = SayRequest { content: "other".into(), ..request.clone() };
        assert_eq!(client.say(other).await.unwrap_err().code(), tonic::Code::FailedPrecondition);
        let both = SayRequest { request_id: "say-2".into(), conversation_id: Some("x".into()), ..request.clone() };
        assert_eq!(client.say(both).await.unwrap_err().code(), tonic::Code::InvalidArgument);
        let id = first.conversation.unwrap().conversation_id;
        let after = |after_seq| WatchConversationRequest { conversation_id: id.clone(), after_seq };
        let mut stream = client.watch(after(0)).await.unwrap().into_inner();
        let mut over = false;
        while !over {
            let message = stream.message().await.unwrap().unwrap();
            over = format!("{:?}", message.what).contains("TurnOver");
        }
        assert!(client.watch(after(999)).await.is_err(), "a cursor from the future");
        assert!(client.watch(after(-1)).await.is_err());
        id
    });
    daemon.kill();
    let daemon = house.up(&world, &[]);
    runtime.block_on(async {
        let again = ConversationsClient::new(connect()).say(request).await.unwrap().into_inner();
        assert_eq!(again.conversation.unwrap().conversation_id, id, "and so it is after a restart");
    });
    assert_eq!(house.json(&["conversation", "list"]).as_array().unwrap().len(), 1);
    daemon.stop();
}

/// One request that the receiver got.
#[derive(Clone, Debug)]
struct Got {
    headers: Vec<(String, String)>,
    body: String,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[derive(Default)]
struct Desk {
    got: Vec<Got>,
    answers: VecDeque<u16>,
}

/// The other side of a webhook: keeps what it gets and answers as it is told, 200 when it is told nothing.
struct Receiver {
    port: u16,
    state: Arc<(Mutex<Desk>, Condvar)>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state: Arc<(Mutex<Desk>, Condvar)> = Arc::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                serve(stream, &shared);
            }
        });
        Self { port, state }
    }

    fn answer(&self, statuses: &[u16]) {
        self.state.0.lock().unwrap().answers.extend(statuses);
    }

    /// Waits until so many requests have come.
    fn wait_for(&self, count: usize) -> Vec<Got> {
        let deadline = Deadline::seconds(60);
        let mut desk = self.state.0.lock().unwrap();
        while desk.got.len() < count {
            assert!(!deadline.passed(), "only {} came", desk.got.len());
            desk = self.state.1.wait_timeout(desk, deadline.left()).unwrap().0;
        }
        desk.got.clone()
    }
}

fn serve(stream: TcpStream, shared: &(Mutex<Desk>, Condvar)) {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut reader = BufReader::new(stream);
    let (mut headers, mut line) = (Vec::new(), String::new());
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) && !line.trim().is_empty() {
        if let Some((key, value)) = line.split_once(':') {
            headers.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        line.clear();
    }
    let got = Got { headers, body: String::new() };
    let length: usize = got.header("content-length").parse().unwrap_or(0);
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let status = {
        let mut desk = shared.0.lock().unwrap();
        desk.got.push(Got { body: String::from_utf8(body).unwrap(), ..got });
        desk.answers.pop_front().unwrap_or(200)
    };
    // The other side may be dead, which is what some tests want.
    let _ = reader.into_inner().write_all(
        format!(
            "HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .as_bytes(),
    );
    shared.1.notify_all();
}

fn now() -> u64 {
    // The other side of a webhook lives in real time.
    #[allow(clippy::disallowed_methods)]
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Posts to the daemon's HTTP side.
fn post(address: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nHost: hooks.example\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|_| answer.clone().into()))
}

/// Posts a signed delivery.
fn deliver(address: &str, id: &str, at: u64, body: &str) -> (u16, Value) {
    let at = at.to_string();
    let signature = sign(SECRET.as_bytes(), &at, id, body.as_bytes());
    let headers = [("X-Ghost-Delivery", id), ("X-Ghost-Timestamp", &at), ("X-Ghost-Signature", &signature)];
    post(address, "/hooks/shop", &headers, body)
}

fn http_of(daemon: &Daemon) -> String {
    let line = daemon.wait_for_line("the HTTP address", Deadline::seconds(30), |line| line.contains("REST http://"));
    let rest = line.split("REST http://").nth(1).unwrap();
    rest.split(|c: char| c.is_whitespace() || c == ',').next().unwrap().to_owned()
}

fn hooked(receiver: &Receiver) -> (House, PathBuf) {
    desk(&format!(
        "channels: {{ webhooks: {{ shop: {{ url: 'http://127.0.0.1:{}/in', secret_env: HOOK_SECRET, agent: ada }} }} }}\n",
        receiver.port
    ))
}

fn check(got: &Got) {
    let (at, id) = (got.header("x-ghost-timestamp"), got.header("x-ghost-delivery"));
    let signature = got.header("x-ghost-signature");
    assert!(verify(SECRET.as_bytes(), at, id, got.body.as_bytes(), signature), "{got:?}");
    assert_eq!(got.json()["message_id"], id);
}

#[test]
fn a_webhook_speaks_both_ways_and_takes_nothing_twice_or_unsigned() {
    let receiver = Receiver::start();
    let (house, world) = hooked(&receiver);
    let daemon = house.up(&world, &["--http", "127.0.0.1:0"]);
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

    // A replay is answered as the first time, without effect; the same id with other content is not.
    assert_eq!(deliver(&http, "d-1", now(), &body), (202, first.clone()));
    let other = body.replace("hello", "other");
    assert_eq!(deliver(&http, "d-1", now(), &other).0, 409);
    // Bad input, each with its own code.
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
    let long = json!({ "thread": "t", "from": "eve", "text": "x".repeat(2_001) }).to_string();
    assert_eq!(deliver(&http, "d-4", now(), &long).0, 413);
    assert_eq!(deliver(&http, "d-5", now(), &"x".repeat(100_000)).0, 413);
    for bad in ["", "{", "[]", "{\"thread\":\"t\"}", "{\"thread\":\"t\",\"from\":\"e\",\"text\":\"x\",\"tread\":1}"] {
        assert_eq!(deliver(&http, "d-6", now(), bad).0, 400, "{bad}");
    }
    let control = json!({ "thread": "a\nb", "from": "eve", "text": "x" }).to_string();
    assert_eq!(deliver(&http, "d-7", now(), &control).0, 400);
    assert_eq!(post(&http, "/hooks/nobody", &[], &body).0, 404);

    house.wait_until_quiet(Deadline::seconds(30));
    let conversations = house.json(&["conversation", "list"]);
    assert_eq!(conversations.as_array().unwrap().len(), 1, "nothing half done");
    let id = conversations[0]["conversation_id"].as_str().unwrap();
    assert_eq!(
        (&conversations[0]["adapter"], &conversations[0]["party"]),
        (&json!("webhook:shop"), &json!("outside:eve"))
    );
    assert_eq!(house.json(&["conversation", "show", id])["entries"].as_array().unwrap().len(), 2);
    assert_eq!(receiver.wait_for(1).len(), 1);
    // Nobody speaks for the other side from here.
    talk(&house, &["ada", "--conversation", id], "as if I were eve\n").exits(7);

    // A file goes as its content.
    let report = json!({ "thread": "order 7", "from": "eve", "text": "report please" }).to_string();
    assert_eq!(deliver(&http, "d-8", now(), &report).0, 202);
    let got = receiver.wait_for(2)[1].clone();
    check(&got);
    let file = got.json()["attachments"][0].clone();
    assert_eq!((&file["name"], &file["content_base64"]), (&json!("Report.md"), &json!("Rm9ydHktdHdvLg==")));
    assert!(!house.ctl(&["events"]).ok().out.contains(SECRET));
    daemon.stop();
}

#[test]
fn a_delivery_is_retried_under_its_id_over_a_kill_until_it_is_had_or_given_up() {
    let receiver = Receiver::start();
    let (house, world) = hooked(&receiver);
    let daemon = house.up(&world, &["--http", "127.0.0.1:0"]);
    let http = http_of(&daemon);
    receiver.answer(&[500]);
    let body = json!({ "thread": "t", "from": "eve", "text": "hello" }).to_string();
    assert_eq!(deliver(&http, "d-1", now(), &body).0, 202);
    let first = receiver.wait_for(1)[0].clone();
    daemon.kill();
    let daemon = house.up(&world, &["--http", "127.0.0.1:0"]);
    let second = receiver.wait_for(2)[1].clone();
    check(&second);
    assert_eq!(first.header("x-ghost-delivery"), second.header("x-ghost-delivery"), "the id is stable");
    assert_eq!(first.json()["text"], second.json()["text"]);
    let id = house.json(&["conversation", "list"])[0]["conversation_id"].as_str().unwrap().to_owned();
    let entry = |seq: usize| house.json(&["conversation", "show", &id])["entries"][seq - 1].clone();
    let becomes = |seq: usize, delivery: &str| {
        Deadline::seconds(60).until(delivery, || {
            let entry = entry(seq);
            if entry["delivery"] == delivery { Ok(entry) } else { Err(entry.to_string()) }
        })
    };
    becomes(2, "delivered");

    // 410 is final at once; a redirect is followed nowhere.
    let http = http_of(&daemon);
    receiver.answer(&[302, 410]);
    assert_eq!(deliver(&http, "d-2", now(), &body).0, 202);
    let failed = becomes(4, "failed");
    assert_eq!(failed["attempts"], 2);
    assert!(failed["error"].as_str().unwrap().contains("410"), "{failed}");
    assert_eq!(receiver.wait_for(4).len(), 4);
    let events = house.ctl(&["--json", "events", "--kind", "conversation.failed"]).json_lines();
    assert_eq!(events.len(), 1);
    // An operator has it tried again, under the same id.
    house.json(&["conversation", "redeliver", &id, "4"]);
    let got = receiver.wait_for(5);
    assert_eq!(got[4].header("x-ghost-delivery"), got[3].header("x-ghost-delivery"));
    becomes(4, "delivered");
    daemon.stop();
}
