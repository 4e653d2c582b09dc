//! Cron jobs with a turn of their own, through `ghostctl` and plain gRPC (SCHED-05, SCHED-08): their limits and
//! model, where the last text goes, forbidden combinations of options, and repeated requests over `kill -9`.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use ghost_control::adapters::verify;
use ghost_proto::v1::schedules_client::SchedulesClient;
use ghost_proto::v1::{
    CancelScheduleRequest, EnableScheduleRequest, GetScheduleRequest, ListRunsRequest, RunScheduleRequest, Schedule,
    ScheduleRun, SetScheduleRequest,
};
use ghost_testkit::blackbox::{Daemon, Database, Deadline, TestEnvironment};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

const SECRET: &str = "a-long-secret-that-both-sides-know";

const DESK: &str = r#"about: Does its jobs.
rules:
  - name: quiet
    when: { mail: 'nothing new', round: 0 }
    do: [{ say: ANNOUNCE_SKIP }]
  - name: again
    when: { mail: 'look and look' }
    do: [{ call: workspace.list, with: { path: "." } }]
  - name: slow
    when: { mail: 'dawdle', round: 0 }
    do: [{ wait: 600s }, { say: Slowly said. }]
  - name: short
    when: { mail: 'take a moment', round: 0 }
    do: [{ wait: 2s }, { say: Told at last. }]
  - name: hire
    when: { mail: 'report in a thread', round: 0 }
    do:
      - call: util.cron
        with:
          action: add
          name: free
          schedule: { every: 720h }
          message: write the digest
          options: { deliver: webhook, to: ops/free }
  - name: digest
    when: { mail: 'write the digest', round: 0 }
    do: [{ say: Digest by the desk. }]
otherwise: [{ say: Noted. }]
"#;

const WORLD: &str = "\
world: { name: The Office }
agents:
  - { id: ada, archetype: clerk }
  - { id: ben, archetype: writer }
llm: { default_provider: scripted, default_model: desk }
";

fn services(more: &str) -> (TestEnvironment, PathBuf) {
    let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    test_env.set("HOOK_SECRET", SECRET);
    let world = test_env.world("office");
    world
        .config(&format!("{WORLD}{more}"))
        .archetype("clerk", "")
        .archetype("writer", "## LLM\nmodel: quill\n")
        .write("scripts/desk.yaml", DESK)
        .write("scripts/quill.yaml", "otherwise: [{ say: Digest by quill. }]\n");
    let path = world.path().to_owned();
    (test_env, path)
}

fn running() -> (TestEnvironment, PathBuf, Daemon) {
    let (test_env, world) = services("");
    let daemon = test_env.up(&world, &[]);
    (test_env, world, daemon)
}

/// Adds a job for ada that is never due, starts it by hand, and waits for its end.
fn run(test_env: &TestEnvironment, name: &str, message: &str, more: &[&str]) -> Value {
    let add = ["cron", "add", "ada", name, "--every", "30d", "--message", message];
    let job = test_env.json(&[&add[..], more].concat());
    test_env.json(&["cron", "run", &format!("ada/{name}")]);
    test_env.wait_until_quiet(Deadline::seconds(60));
    test_env.json(&["cron", "runs", job["schedule_id"].as_str().unwrap()])[0].clone()
}

fn posts(test_env: &TestEnvironment) -> Vec<String> {
    let history = test_env.json(&["chat", "history", "news"]);
    history.as_array().unwrap().iter().map(|post| post["content"].as_str().unwrap().to_owned()).collect()
}

// covers: SCHED-05, SCHED-08
#[test]
fn a_job_with_its_own_turn_has_its_own_limits_model_and_outlet() {
    let (test_env, _, daemon) = running();
    test_env.json(&["chat", "create", "news", "--members", "ada,ben", "--as", "ada"]);
    let to_news = ["--session", "isolated", "--deliver", "announce", "--to", "news"];
    assert_eq!(run(&test_env, "digest", "write the digest", &to_news)["status"], "done");
    assert_eq!(posts(&test_env), ["Digest by the desk."]);
    assert_eq!(run(&test_env, "quiet", "nothing new", &to_news)["status"], "done");
    let quill = [&to_news[..], &["--model", "quill", "--max-rounds", "3", "--run-timeout", "1m"]].concat();
    assert_eq!(run(&test_env, "quill", "write the digest", &quill)["status"], "done");
    assert_eq!(posts(&test_env), ["Digest by the desk.", "Digest by quill."], "ANNOUNCE_SKIP announces nothing");
    let endless = run(&test_env, "endless", "look and look", &["--max-rounds", "2"]);
    assert_eq!(endless["status"], "failed");
    assert!(endless["note"].as_str().unwrap().contains('2'), "{endless}");
    let slow = run(&test_env, "slow", "dawdle", &["--run-timeout", "1s"]);
    assert_eq!(slow["status"], "failed");
    assert!(slow["note"].as_str().unwrap().starts_with("timeout"), "{slow}");
    // The run of a job without an outlet delivers nothing and records the reason.
    let nowhere = run(&test_env, "nowhere", "write the digest", &["--session", "isolated"]);
    assert!(nowhere["note"].as_str().is_some_and(|note| !note.is_empty()), "{nowhere}");

    let jobs = test_env.json(&["cron", "list"]);
    let job = jobs.as_array().unwrap().iter().find(|job| job["name"] == "quill").unwrap();
    let expected = json!({
        "session": "isolated", "payload": "agentTurn", "wake": "now", "deliver": "announce", "to": "news",
        "timeout_seconds": 60, "max_rounds": 3, "model": "quill",
    });
    assert_eq!(job["options"], expected);
    assert!(job["next_at"].is_string() && job["last_at"].is_string(), "{job}");
    let table = test_env.ctl(&["cron", "list"]);
    for word in ["isolated", "news", "60 s", "quill", "TIMEOUT", "LAST"] {
        assert!(table.ok().out.contains(word), "no `{word}` in\n{}", table.out);
    }
    let turns = test_env.json(&["turn", "list", "--agent", "ada"]);
    assert!(turns.as_array().unwrap().iter().all(|turn| turn["source"] == "cron"), "{turns:#}");
    daemon.stop();
}

// covers: SCHED-05
#[test]
fn forbidden_combinations_are_refused_with_a_code_and_a_hint() {
    let (test_env, _, daemon) = running();
    let add = ["--json", "cron", "add", "ada", "job", "--every", "1h", "--message", "x"];
    for (code, exit, more) in [
        ("payload_mismatch", 2, vec!["--session", "main", "--payload", "agentTurn"]),
        ("payload_mismatch", 2, vec!["--session", "isolated", "--payload", "systemEvent"]),
        ("payload_mismatch", 2, vec!["--session", "main", "--deliver", "announce"]),
        ("payload_mismatch", 2, vec!["--payload", "systemEvent", "--model", "quill"]),
        ("payload_mismatch", 2, vec!["--session", "isolated", "--wake", "next-heartbeat"]),
        ("payload_mismatch", 2, vec!["--session", "main", "--deliver", "none"]),
        ("payload_mismatch", 2, vec!["--deliver", "none", "--wake", "next-heartbeat"]),
        ("payload_mismatch", 2, vec!["--deliver", "none", "--to", "last"]),
        ("payload_mismatch", 2, vec!["--payload", "systemEvent", "--to", "last"]),
        ("payload_mismatch", 2, vec!["--session", "main", "--run-timeout", "1m"]),
        ("payload_mismatch", 2, vec!["--wake", "next-heartbeat", "--max-rounds", "2"]),
        ("invalid_arguments", 2, vec!["--session", "both"]),
        ("invalid_arguments", 2, vec!["--max-rounds", "16"]),
        ("invalid_arguments", 2, vec!["--run-timeout", "1h"]),
        ("invalid_arguments", 2, vec!["--to", "Not A Channel"]),
        ("not_found", 3, vec!["--model", "quil"]),
        ("not_found", 3, vec!["--deliver", "webhook", "--to", "ops"]),
        ("not_found", 3, vec!["--deliver", "announce", "--to", "newz"]),
        ("not_found", 3, vec!["--to", "00000000-0000-7000-8000-000000000000"]),
    ] {
        let ran = test_env.ctl(&[&add[..], &more].concat());
        ran.exits(exit);
        assert_eq!(ran.error()["code"], code, "{more:?}: {}", ran.err);
    }
    test_env.ctl(&[&add[1..], &["--model", "quil"]].concat()).exits(3).says(&["`quill`"]);
    test_env.json(&["chat", "create", "news", "--members", "ada,ben"]);
    test_env.ctl(&[&add[1..], &["--to", "newz"]].concat()).exits(3).says(&["newz", "`news`"]);
    for words in [["timer", "set", "--in"], ["cron", "add", "--every"]] {
        let blank = [words[0], words[1], "ada", "job", words[2], "1h", "--message", " "];
        test_env.ctl(&blank).exits(2).says(&["--message"]);
    }
    assert_eq!(test_env.json(&["cron", "list"]), json!([]), "nothing was half done");
    let quiet = test_env.json(&[&add[1..], &["--deliver", "none"]].concat());
    assert_eq!(
        (&quiet["options"]["session"], &quiet["options"]["deliver"]),
        (&json!("isolated"), &json!("none")),
        "an outlet needs a turn of its own"
    );
    test_env.json(&["cron", "cancel", "ada/job"]);

    let zone = test_env.ctl(&["cron", "add", "ada", "a", "--every", "1h", "--zone", "UTC", "--message", "x"]);
    zone.exits(2);
    assert!(zone.err.contains("--zone"), "{}", zone.err);
    for args in [
        ["timer", "set", "ada", "a", "--in", "-5m", "--message", "x"],
        ["cron", "add", "ada", "a", "--every", "-5m", "--message", "x"],
    ] {
        let ran = test_env.ctl(&args);
        ran.exits(2);
        assert!(ran.err.contains("`-5m`") && !ran.err.contains("-- -5m"), "{}", ran.err);
    }
    let empty = test_env.ctl(&["--json", "watch", "add", "ada", "all", ""]);
    empty.exits(2);
    assert_eq!(empty.error()["code"], "invalid_arguments");
    assert_eq!(test_env.json(&["watch", "add", "ada", "all", "."])["when"]["path"], "");
    let timer = test_env.json(&["timer", "set", "ada", "tea", "--at", "2030-01-02T03:04:05Z", "--message", "x"]);
    assert_eq!((&timer["when"]["at"], &timer["next_at"]), (&json!("2030-01-02T03:04:05.000Z"), &timer["when"]["at"]));
    let events = test_env.ctl(&["--json", "events", "--kind", "schedule.set"]).json_lines();
    assert_eq!(events.last().unwrap()["payload"]["when"], timer["when"]);
    let nap = test_env.json(&["timer", "set", "ada", "nap", "--in", "1h"]);
    assert_eq!(nap["message"], "nap", "a timer that was given no message reminds of its name");
    assert!(test_env.ctl(&["--utc", "timer", "list"]).ok().out.contains("2030-01-02 03:04:05Z"));
    daemon.stop();
}

/// A request that the webhook's receiver got.
struct Got {
    headers: Vec<(String, String)>,
    body: String,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// Starts a receiver of a webhook that accepts everything.
fn listen() -> (u16, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            take(stream, &sender);
        }
    });
    (port, receiver)
}

fn take(stream: TcpStream, sender: &SyncSender<Got>) {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut reader = BufReader::new(stream);
    let (mut headers, mut line) = (Vec::new(), String::new());
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) && !line.trim().is_empty() {
        if let Some((key, value)) = line.split_once(':') {
            headers.push((key.trim().to_owned(), value.trim().to_owned()));
        }
        line.clear();
    }
    let mut got = Got { headers, body: String::new() };
    let mut body = vec![0; got.header("content-length").parse().unwrap_or(0)];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    got.body = String::from_utf8(body).unwrap();
    // The daemon may have been killed, and the test may have ended.
    let _ = reader.into_inner().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let _ = sender.send(got);
}

// covers: SCHED-05
#[test]
fn a_webhook_gets_a_signed_delivery_once_over_kill_9() {
    let (port, heard) = listen();
    let hook = format!("{{ url: 'http://127.0.0.1:{port}/in', secret_env: HOOK_SECRET, agent: ben }}");
    let (test_env, world) = services(&format!("channels: {{ webhooks: {{ ops: {hook} }} }}\n"));
    let daemon = test_env.up(&world, &[]);
    let job = ["cron", "add", "ada", "moment", "--every", "30d", "--message", "take a moment"];
    let job = test_env.json(&[&job[..], &["--deliver", "webhook", "--to", "ops"]].concat());
    assert_eq!(job["options"]["to"], "ops/cron:ada/moment");
    test_env.json(&["cron", "run", "ada/moment"]);
    Deadline::seconds(60).until("the turn", || match test_env.json(&["turn", "list", "--agent", "ada"]) {
        Value::Array(turns) if !turns.is_empty() => Ok(()),
        other => Err(other.to_string()),
    });
    daemon.kill();
    let daemon = test_env.up(&world, &[]);
    let got = heard.recv_timeout(Duration::from_secs(60)).unwrap();
    let (at, delivery, signature) =
        (got.header("x-ghost-timestamp"), got.header("x-ghost-delivery"), got.header("x-ghost-signature"));
    assert!(verify(SECRET.as_bytes(), at, delivery, got.body.as_bytes(), signature), "{}", got.body);
    assert!(got.body.contains("Told at last.") && got.body.contains("cron:ada/moment"), "{}", got.body);
    test_env.wait_until_quiet(Deadline::seconds(60));
    let runs = test_env.json(&["cron", "runs", "ada/moment"]);
    assert_eq!((runs.as_array().unwrap().len(), &runs[0]["status"]), (1, &json!("done")));
    test_env.json(&["cron", "run", "ada/moment"]);
    heard.recv_timeout(Duration::from_secs(60)).unwrap();
    test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(test_env.json(&["conversation", "list"]).as_array().unwrap().len(), 1, "one thread for all runs");
    daemon.stop();
    assert!(heard.try_recv().is_err(), "nothing is delivered twice");
}

#[test]
fn a_job_delivers_nothing_when_its_webhook_belongs_to_another_agent() {
    let (port, heard) = listen();
    let hooked = |agent: &str| {
        let hook = format!("{{ url: 'http://127.0.0.1:{port}/in', secret_env: HOOK_SECRET, agent: {agent} }}");
        format!("channels: {{ webhooks: {{ ops: {hook} }} }}\n")
    };
    let (test_env, world) = services(&hooked("ada"));
    let daemon = test_env.up(&world, &[]);
    let run = || {
        test_env.json(&["cron", "run", "ada/free"]);
        test_env.wait_until_quiet(Deadline::seconds(60));
        test_env.json(&["cron", "runs", "ada/free"])[0].clone()
    };
    test_env.ctl(&["send", "ada", "report in a thread"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(run()["note"], Value::Null);
    assert!(heard.recv_timeout(Duration::from_secs(60)).unwrap().body.contains("Digest by the desk."));
    let config = std::fs::read_to_string(world.join("world-config.yaml")).unwrap();
    std::fs::write(world.join("world-config.yaml"), config.replace(&hooked("ada"), &hooked("ben"))).unwrap();
    test_env.ctl(&["reload"]).ok();
    let check_run = |run: &Value| {
        assert_eq!(run["status"], "done", "{run}");
        let note = run["note"].as_str().unwrap_or_default();
        assert!(note.contains("ben"), "{run}");
    };
    check_run(&run());
    // A daemon that starts with this file refuses the delivery, too.
    daemon.kill();
    let daemon = test_env.up(&world, &[]);
    check_run(&run());
    // A disabled job cannot be enabled without a webhook.
    test_env.json(&["cron", "disable", "ada/free"]);
    std::fs::write(world.join("world-config.yaml"), config.replace(&hooked("ada"), "")).unwrap();
    test_env.ctl(&["reload"]).ok();
    test_env.ctl(&["cron", "enable", "ada/free"]).exits(3).says(&["`ops`"]);
    assert_eq!(test_env.json(&["cron", "list"])[0]["enabled"], false);
    daemon.stop();
    assert!(heard.try_recv().is_err());
}

fn schedules(test_env: &TestEnvironment) -> SchedulesClient<Channel> {
    let socket = test_env.data("office").join("ghostd.sock");
    SchedulesClient::new(Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect_lazy())
}

/// A timer, a watch, a job with one time, and a job with a turn of its own.
fn sets() -> [SetScheduleRequest; 4] {
    let set = |request_id: &str, kind: &str| SetScheduleRequest {
        request_id: request_id.into(),
        kind: kind.into(),
        agent_id: "ada".into(),
        name: request_id.into(),
        message: "x".into(),
        ..SetScheduleRequest::default()
    };
    [
        SetScheduleRequest { after_ms: Some(86_400_000), ..set("set-timer", "timer") },
        SetScheduleRequest { path: Some("shared/box".into()), ..set("set-watch", "watch") },
        SetScheduleRequest { at_ms: Some(1_893_456_000_000), ..set("set-once", "cron") },
        SetScheduleRequest {
            every_ms: Some(86_400_000),
            payload: Some("agentTurn".into()),
            deliver: Some("none".into()),
            max_rounds: Some(2),
            ..set("set-job", "cron")
        },
    ]
}

/// Calls every mutation of the service, each with a request id of its own. The first ones create the schedules for the
/// others.
async fn mutate(test_env: &TestEnvironment) -> (Vec<Schedule>, Vec<ScheduleRun>) {
    let mut client = schedules(test_env);
    let mut schedules = Vec::new();
    for request in sets() {
        schedules.push(client.set(request).await.unwrap().into_inner());
    }
    let ids: Vec<String> = schedules.iter().map(|schedule: &Schedule| schedule.schedule_id.clone()).collect();
    for (request_id, enabled) in [("off", false), ("on", true), ("off-again", false)] {
        let request = EnableScheduleRequest { request_id: request_id.into(), schedule_id: ids[3].clone(), enabled };
        schedules.push(client.enable(request).await.unwrap().into_inner());
    }
    let run = RunScheduleRequest { request_id: "run".into(), schedule_id: ids[3].clone() };
    let runs = vec![client.run(run).await.unwrap().into_inner()];
    for (request_id, schedule_id) in [("cancel-timer", &ids[0]), ("cancel-watch", &ids[1])] {
        let request = CancelScheduleRequest { request_id: request_id.into(), schedule_id: schedule_id.clone() };
        schedules.push(client.cancel(request).await.unwrap().into_inner());
    }
    (schedules, runs)
}

#[test]
fn a_repeated_mutation_gets_the_first_answer_and_has_one_effect_over_kill_9() {
    let (test_env, world) = services("");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut daemon = test_env.up(&world, &[]);
    let watched = test_env.data("office").join("workspace/shared/box");
    std::fs::create_dir_all(&watched).unwrap();
    let first = runtime.block_on(mutate(&test_env));
    let id = |n: usize| first.0[n].schedule_id.clone();
    // Even if the watch is gone by then, a repeated request gets the first answer.
    std::fs::remove_dir(&watched).unwrap();
    for _ in 0..2 {
        assert_eq!(runtime.block_on(mutate(&test_env)), first);
        daemon.kill();
        daemon = test_env.up(&world, &[]);
        assert_eq!(runtime.block_on(mutate(&test_env)), first);
    }
    runtime.block_on(async {
        let mut client = schedules(&test_env);
        let job = client.get(GetScheduleRequest { schedule_id: id(3) }).await.unwrap().into_inner();
        assert_eq!((job.enabled, job.runs), (false, 1));
        let runs = ListRunsRequest { schedule_id: id(3), limit: 0 };
        assert_eq!(client.runs(runs).await.unwrap().into_inner().runs.len(), 1);
        let gone = client.get(GetScheduleRequest { schedule_id: id(0) }).await.unwrap_err();
        assert_eq!(gone.code(), tonic::Code::NotFound);
        // The same request id with other content is refused.
        let other = CancelScheduleRequest { request_id: "run".into(), schedule_id: id(3) };
        assert_eq!(client.cancel(other).await.unwrap_err().code(), tonic::Code::FailedPrecondition);
    });
    test_env.wait_until_quiet(Deadline::seconds(60));
    let count = |kind: &str| test_env.ctl(&["--json", "events", "--kind", kind]).json_lines().len();
    assert_eq!((count("schedule.set"), count("schedule.cancelled"), count("schedule.fired")), (7, 2, 1));
    daemon.stop();
    let data = Database::open(&test_env.data("office"));
    assert_eq!(data.number("SELECT count(*) FROM schedules"), 2);
    assert_eq!(data.number("SELECT count(*) FROM messages WHERE kind = 'cron_turn'"), 1);
}
