//! Sessions from a person's point of view: two people talk to one agent at once while the daemon is killed. Each request
//! to the model has the whole of its own conversation and nothing of the other's. A reminder that was asked for in a
//! conversation reaches it, also after a restart.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use ghost_provider::testing::{FakeAnswer, FakeCall, FakeRequest};
use ghost_testkit::blackbox::{Deadline, ModelServer, TestEnvironment, fresh_outcomes, ghostd_testing, mail_of};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Desk }
agents: [{ id: lead, archetype: clerk }, { id: helper, archetype: clerk }]
llm: { default_provider: local, default_model: m, providers: { local: { kind: openai, base_url: 'BASE' } } }
";

struct Desk {
    test_env: TestEnvironment,
    world: PathBuf,
    /// The messages of each request as JSON.
    requests: Arc<Mutex<Vec<String>>>,
    _server: ModelServer,
}

impl Desk {
    fn new(answer: impl Fn(&FakeRequest) -> FakeAnswer + Send + Sync + 'static) -> Self {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&requests);
        let server = ModelServer::start(move |request, _| {
            log.lock().unwrap().push(serde_json::to_string(&request.messages()).unwrap());
            answer(request)
        });
        let test_env = TestEnvironment::new(ghostd_testing());
        let world = test_env.world("desk");
        world.config(&WORLD.replace("BASE", &server.base_url())).archetype("clerk", "");
        let world = world.path().to_owned();
        Self { test_env, world, requests, _server: server }
    }

    /// Says one line in a conversation, or begins one. Returns its id and what the agent said.
    fn say(&self, conversation: Option<&str>, line: &str) -> (String, Vec<String>) {
        let place: Vec<&str> = conversation.iter().flat_map(|id| ["--conversation", id]).collect();
        let args = [&["--json", "--timeout", "60s", "talk", "lead"][..], &place].concat();
        let (code, out, err) = self.test_env.ctl_piped(&args, format!("{line}\n").as_bytes());
        assert_eq!(code, 0, "{err}");
        let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let entries = lines.iter().filter(|line| line["type"] == "entry");
        let id = entries.clone().find_map(|line| line["conversation_id"].as_str()).unwrap().to_owned();
        let said = entries.filter(|line| line["direction"] == "out");
        (id, said.map(|line| line["content"].as_str().unwrap().to_owned()).collect())
    }

    fn last_request(&self) -> String {
        self.requests.lock().unwrap().last().unwrap().clone()
    }
}

// covers: LOOP-01
#[test]
fn each_request_has_its_own_conversation_and_nothing_of_the_other() {
    let desk = Desk::new(|request| {
        let mail = mail_of(request).pop().unwrap().body;
        FakeAnswer::say(format!("I keep {mail}"))
    });
    let mut daemon = desk.test_env.up(&desk.world, &[]);
    let mut ids = [None, None];
    let word = |person: usize, round: usize| format!("canary-{person}-{round}-end");
    for round in 0..10 {
        if round == 3 || round == 7 {
            daemon.kill();
            daemon = desk.test_env.up(&desk.world, &[]);
        }
        for (person, known) in ids.iter_mut().enumerate() {
            let (id, said) = desk.say(known.as_deref(), &word(person, round));
            assert_eq!(said.last().unwrap(), &format!("I keep {}", word(person, round)));
            *known = Some(id);
            let request = desk.last_request();
            for earlier in 0..round {
                let count = request.matches(&word(person, earlier)).count();
                assert_eq!(count, 2, "round {round}: the words of round {earlier} and the answer to them");
            }
            assert!(!request.contains(&format!("canary-{}-", 1 - person)), "round {round}: {request}");
        }
    }
    // The agent's own work is a third session.
    desk.test_env.ctl(&["send", "lead", "what do you know?"]).ok();
    desk.test_env.wait_until_quiet(Deadline::seconds(60));
    assert!(!desk.last_request().contains("canary-"));

    // An operator sees the sessions, reads one and begins it anew.
    let sessions = desk.test_env.json(&["session", "list", "lead"]);
    let names: Vec<&str> = sessions.as_array().unwrap().iter().map(|row| row["session"].as_str().unwrap()).collect();
    let [eve, mia] = ids.each_ref().map(|id| id.as_deref().unwrap());
    assert_eq!(names, ["own", mia, eve]);
    assert_eq!(sessions[1]["turns"], 10);
    let shown = desk.test_env.json(&["session", "show", "lead", eve, "--limit", "2"]);
    let texts: Vec<&str> =
        shown["entries"].as_array().unwrap().iter().map(|row| row["text"].as_str().unwrap()).collect();
    assert!(texts[0].contains(&word(0, 8)) && texts[3] == format!("I keep {}", word(0, 9)), "{shown}");
    let before = shown["earlier_turn_id"].as_str().unwrap();
    let earlier = desk.test_env.json(&["session", "show", "lead", eve, "--limit", "50", "--before", before]);
    assert_eq!((earlier["entries"].as_array().unwrap().len(), &earlier["earlier_turn_id"]), (16, &Value::Null));
    assert_eq!(desk.test_env.json(&["session", "reset", "lead", eve]), json!({ "changed": true }));
    assert_eq!(desk.test_env.json(&["session", "reset", "lead", eve]), json!({ "changed": false }));
    desk.say(Some(eve), "hello again");
    assert!(!desk.last_request().contains("canary-"), "a session that was reset has no past");
    desk.say(Some(mia), "hello again");
    assert!(desk.last_request().contains(&word(1, 9)), "the other session keeps its own");

    // Typing errors are refused, each with its own code.
    desk.test_env.ctl(&["session", "list", "leed"]).exits(3).says(&["lead"]);
    desk.test_env.ctl(&["session", "show", "lead", "owm"]).exits(2).says(&["own"]);
    desk.test_env.ctl(&["session", "show", "lead", "own", "--before", eve]).exits(3);
    daemon.stop();
}

fn call(tool: &str, arguments: Value) -> FakeAnswer {
    let calls = vec![FakeCall { id: "c".to_owned(), tool: tool.to_owned(), arguments }];
    FakeAnswer::Model { text: String::new(), calls }
}

// covers: LOOP-01, MSG-12
#[test]
fn a_reminder_reaches_the_person_who_asked_for_it() {
    let desk = Desk::new(|request| {
        let mail = mail_of(request).pop().unwrap();
        match (mail.kind.as_str(), fresh_outcomes(request).is_empty()) {
            ("conversation", true) if mail.body.contains("remind me") => {
                call("util.timer", json!({ "name": "tea", "duration": "5s", "message": "The tea is ready." }))
            }
            ("conversation", _) => FakeAnswer::say("Gladly."),
            (_, true) => call("syscall.channel.send", json!({ "content": "Your tea is ready." })),
            _ => FakeAnswer::say("It is said."),
        }
    });
    let daemon = desk.test_env.up(&desk.world, &[]);
    let (id, _) = desk.say(None, "remind me of my tea in 5 seconds");
    let (other, _) = desk.say(None, "good morning");
    // The person has left, and the daemon dies before the reminder is due.
    daemon.kill();
    let daemon = desk.test_env.up(&desk.world, &[]);
    let texts = |id: &str| -> Vec<String> {
        let shown = desk.test_env.json(&["conversation", "show", id]);
        let entries = shown["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["content"].as_str().unwrap().to_owned()).collect()
    };
    Deadline::seconds(60).until("the reminder", || {
        let texts = texts(&id);
        if texts.iter().any(|text| text == "Your tea is ready.") { Ok(()) } else { Err(format!("{texts:?}")) }
    });
    desk.test_env.wait_until_quiet(Deadline::seconds(60));
    let said = texts(&id).iter().filter(|text| *text == "Your tea is ready.").count();
    assert_eq!((said, texts(&other).len()), (1, 2), "once, and only to the one who asked");
    // In a conversation that has ended, a reminder says nothing, and the agent learns why.
    desk.say(Some(&other), "remind me of my tea in 5 seconds");
    assert!(desk.test_env.json(&["conversation", "end", &other])["ended_at"].is_string());
    let refused = || {
        let calls = desk.test_env.json(&["ledger"]);
        calls
            .as_array()
            .unwrap()
            .iter()
            .any(|call| call["tool"] == "syscall.channel.send" && call["error_code"] == "conflict")
    };
    Deadline::seconds(60).until("the refusal", || if refused() { Ok(()) } else { Err("not yet".to_owned()) });
    assert!(!texts(&other).iter().any(|text| text == "Your tea is ready."));
    assert_eq!(desk.test_env.ctl(&["conversation", "end", &other]).code, Some(7));
    let (_, said) = desk.say(Some(&other), "are you there?");
    assert_eq!(said, ["Gladly."], "the person opens it again");
    // The reminder is part of the session.
    desk.say(Some(&id), "thank you");
    let request = desk.last_request();
    assert!(request.contains("The tea is ready.") && !request.contains("good morning"), "{request}");
    daemon.stop();
}

// covers: MSG-12
#[test]
fn the_result_of_a_delegated_task_reaches_the_person_who_asked() {
    let desk = Desk::new(|request| {
        let mail = mail_of(request).pop().unwrap();
        let is_helper = request.messages()[0].to_string().contains("You are helper");
        let done = !fresh_outcomes(request).is_empty();
        match (is_helper, mail.kind.as_str()) {
            (true, _) if !done => {
                let task_id = mail.body.split_once("task_id: ").unwrap().1.lines().next().unwrap();
                call("syscall.task.update", json!({ "task_id": task_id, "status": "done", "result": "7" }))
            }
            (false, "conversation") if !done && mail.body.contains("count") => {
                call("syscall.task.create", json!({ "title": "Count the boats", "owner": "helper" }))
            }
            (false, "task") if !done => call("syscall.channel.send", json!({ "content": "There are 7 boats." })),
            _ => FakeAnswer::say("Well."),
        }
    });
    let daemon = desk.test_env.up(&desk.world, &[]);
    let (id, _) = desk.say(None, "count the boats and tell me");
    let (other, _) = desk.say(None, "good morning");
    let said = |id: &str| {
        let shown = desk.test_env.json(&["conversation", "show", id]);
        let entries = shown["entries"].as_array().unwrap().clone();
        entries.iter().filter(|entry| entry["content"] == "There are 7 boats.").count()
    };
    Deadline::seconds(60).until("the result", || if said(&id) > 0 { Ok(()) } else { Err("not yet".to_owned()) });
    desk.test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!((said(&id), said(&other)), (1, 0));
    // The person's next request has the news of the task, and the helper's has nothing of the conversation.
    desk.say(Some(&id), "thank you");
    assert!(desk.last_request().contains("There are 7 boats."));
    let requests = desk.requests.lock().unwrap();
    assert!(requests.iter().filter(|sent| sent.contains("You are helper")).all(|sent| !sent.contains("and tell me")));
    drop(requests);
    daemon.stop();
}
