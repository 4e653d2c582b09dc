//! Conversations over the control plane, with `ghostctl talk` and with a foreign client.

use ghost_proto::v1::conversations_client::ConversationsClient;
use ghost_proto::v1::{SayRequest, WatchConversationRequest};
use ghost_testkit::blackbox::Deadline;
use serde_json::json;
use tonic::transport::Endpoint;

use crate::desk::{Talk, desk, is_out, talk, texts_of};

// covers: BI-35, BI-36, HB-05, MSG-11
#[test]
fn a_conversation_can_have_answers_files_silence_and_a_handoff() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    let lines = "hello\nreport please\nsay nothing\na moment\ngive me ben\nhello again\n/unknown-is-refused-below\n";
    let lines = lines.replace("/unknown-is-refused-below\n", "");
    let ran = talk(&test_env, &["ada"], &lines);
    let lines = ran.json_lines();
    let answers =
        ["Here is ada.", "Here is the report.", "One moment.", "There you are.", "Ben takes over.", "Here is ben."];
    assert_eq!(texts_of(&lines), answers, "{}", ran.out);
    let report = lines.iter().find(|line| line["content"] == "Here is the report.").unwrap();
    let file =
        json!({ "path": "agents/ada/report.md", "name": "Report.md", "mime_type": "text/markdown", "bytes": 10 });
    assert_eq!(report["attachments"], json!([file]));
    assert!(report["reply_to"].is_string(), "the tag is taken out and heeded");
    assert_eq!(report["from"], "ada", "who speaks is named as in chat");
    let asked = lines.iter().find(|line| line["content"] == "report please").unwrap();
    assert!(asked["from"].as_str().unwrap().starts_with("operator:"), "{asked}");
    assert!(lines.iter().any(|line| line["type"] == "handoff" && line["owner"] == "ben"));
    assert!(!ran.out.contains("NO_REPLY"), "silence is not streamed either");
    assert_eq!(lines.iter().filter(|line| line["type"] == "turn_over").count(), 6);
    let seqs: Vec<i64> =
        lines.iter().filter(|line| line["type"] == "entry").map(|line| line["seq"].as_i64().unwrap()).collect();
    assert!(seqs.iter().copied().eq(1..=i64::try_from(seqs.len()).unwrap()), "{seqs:?}");

    let list = test_env.json(&["conversation", "list", "--agent", "ben"]);
    let id = list[0]["conversation_id"].as_str().unwrap().to_owned();
    assert_eq!((&list[0]["adapter"], &list[0]["owner"]), (&json!("control"), &json!("ben")));
    assert_eq!(test_env.json(&["conversation", "list", "--agent", "ada"]), json!([]));
    let back = test_env.json(&["conversation", "handoff", &id, "ada", "--reason", "a test"]);
    assert_eq!(back["owner"], "ada");
    let more = talk(&test_env, &["ada", "--conversation", &id], "once more\n").json_lines();
    assert_eq!(texts_of(&more), ["Here is ada."]);
    let shown = test_env.json(&["conversation", "show", &id]);
    let entries = shown["entries"].as_array().unwrap();
    assert!(entries.iter().enumerate().all(|(at, entry)| entry["seq"] == json!(at + 1)), "no gap");
    assert!(entries.iter().filter(|entry| entry["direction"] == "out").all(|entry| entry["delivery"] == "delivered"));
    // The output for people is text.
    assert!(test_env.ctl(&["conversation", "show", &id]).ok().out.contains("Here is the report."));

    // Bad input is refused, each with its own code, and has no effect.
    let conversations = test_env.json(&["conversation", "list"]).as_array().unwrap().len();
    talk(&test_env, &["adda"], "hello\n").exits(3).says(&["`ada`"]);
    talk(&test_env, &["ada", "--conversation", "no-id"], "x\n").exits(2);
    talk(&test_env, &["ben", "--conversation", &id], "x\n").exits(7).says(&["ada"]);
    talk(&test_env, &["ada"], &format!("{}\n", "x".repeat(2_001))).exits(8).says(&["2000"]);
    talk(&test_env, &["ada", "--attach", "nothing.md"], "x\n").exits(3);
    talk(&test_env, &["ada", "--attach", "../x"], "x\n").exits(4);
    talk(&test_env, &["adda"], "").exits(3).says(&["`ada`"]);
    talk(&test_env, &["ada"], "/handoff zed\n").exits(3);
    test_env.ctl(&["agent", "stop", "ben"]).ok();
    talk(&test_env, &["ada"], "/handoff ben\n").exits(7).says(&["ben"]);
    talk(&test_env, &["ben"], "").exits(7).says(&["agent start ben"]);
    test_env.ctl(&["agent", "start", "ben"]).ok();
    talk(&test_env, &["ada"], "/attach nothing.md\n").exits(3).says(&["nothing.md"]);
    talk(&test_env, &["ada"], &format!("{}\n", "x".repeat(5 * 1024 * 1024))).exits(8).says(&["1048576"]);
    talk(&test_env, &["ada"], "/dance\n").exits(2).says(&["/handoff AGENT"]);
    let missing = "01234567-89ab-7def-8123-456789abcdef";
    test_env.ctl(&["conversation", "show", missing]).exits(3);
    test_env.ctl(&["conversation", "handoff", &id, "adda"]).exits(3).says(&["`ada`"]);
    test_env.ctl(&["conversation", "handoff", &id, "ada"]).exits(7);
    test_env.ctl(&["conversation", "redeliver", &id, "1"]).exits(7);
    test_env.ctl(&["conversation", "redeliver", &id, "999"]).exits(3);
    assert_eq!(test_env.json(&["conversation", "list"]).as_array().unwrap().len(), conversations);
    // A handoff in the last answer is shown, too.
    let given = talk(&test_env, &["ada", "--conversation", &id], "/handoff ben\n").json_lines();
    assert!(given.iter().any(|line| line["type"] == "handoff" && line["owner"] == "ben"), "{given:?}");
    // A waiting client learns that the turn failed.
    let failed = talk(&test_env, &["ada"], "fall over\n");
    failed.exits(5);
    // A later successful turn does not hide the failure.
    talk(&test_env, &["ada"], "fall over\nhello\n").exits(5);
    daemon.stop();
}

// covers: LOOP-07
#[test]
fn text_is_shown_while_it_streams() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    let mut talk = Talk::start(&test_env, &["ada"]);
    talk.say("tell me a story");
    let delta = talk.wait_for("delta", |line| line["type"] == "delta");
    assert!(delta["text"].as_str().unwrap().starts_with("Once upon a time"), "{delta}");
    let done = talk.out.all().iter().any(|line| is_out(&serde_json::from_str(line).unwrap()));
    assert!(!done, "the answer is still being made");
    let lines = talk.end();
    let whole: String =
        lines.iter().filter(|line| line["type"] == "delta").map(|line| line["text"].as_str().unwrap()).collect();
    assert_eq!(texts_of(&lines), [whole.trim()]);
    daemon.stop();
}

#[test]
fn streamed_text_that_is_reasoning_is_withdrawn() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    let first = talk(&test_env, &["ada"], "think aloud\n").json_lines();
    let place = |kind: &str| first.iter().position(|line| line["type"] == kind).unwrap();
    assert!(place("delta") < place("discard"), "{first:?}");
    assert_eq!(texts_of(&first), ["The end."], "none of it is in the answer");
    // After that, no text of that model is shown before the answer is complete.
    let second = talk(&test_env, &["ada"], "think aloud\n").json_lines();
    assert!(!second.iter().any(|line| line["type"] == "discard"), "{second:?}");
    let shown: String =
        second.iter().filter(|line| line["type"] == "delta").map(|line| line["text"].as_str().unwrap()).collect();
    assert!(!shown.contains("Once upon") && texts_of(&second) == ["The end."], "{second:?}");
    daemon.stop();
}

#[test]
fn an_answer_interrupted_by_a_kill_arrives_once() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    let mut talk = Talk::start(&test_env, &["ada"]);
    talk.say("take your time");
    talk.wait_for("entry", |line| line["type"] == "entry");
    Deadline::seconds(30).until("a turn at work", || {
        let open = test_env.json(&["status"])["open_turns"].clone();
        if open == 1 { Ok(()) } else { Err(open.to_string()) }
    });
    daemon.kill();
    let daemon = test_env.up(&world, &[]);
    // The same client continues.
    let lines = talk.end();
    assert_eq!(texts_of(&lines), ["Slowly said."]);
    let id = lines.iter().find(|line| line["type"] == "conversation").unwrap()["conversation_id"].clone();
    let entries = test_env.json(&["conversation", "show", id.as_str().unwrap()])["entries"].clone();
    let all: Vec<&str> = entries.as_array().unwrap().iter().map(|entry| entry["content"].as_str().unwrap()).collect();
    assert_eq!(all, ["take your time", "Slowly said."], "once, and nothing else");
    assert_eq!(entries[1]["delivery"], "delivered");
    daemon.stop();
}

#[test]
fn a_foreign_client_sends_once_and_watches() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    let socket = test_env.data("desk").join("ghostd.sock");
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
    let daemon = test_env.up(&world, &[]);
    runtime.block_on(async {
        let again = ConversationsClient::new(connect()).say(request).await.unwrap().into_inner();
        assert_eq!(again.conversation.unwrap().conversation_id, id, "and so it is after a restart");
    });
    assert_eq!(test_env.json(&["conversation", "list"]).as_array().unwrap().len(), 1);
    daemon.stop();
}

#[test]
fn a_client_that_waits_for_a_stopped_or_deleted_agent_is_notified_at_once() {
    let (test_env, world) = desk("");
    let daemon = test_env.up(&world, &[]);
    // No turn begins while the world is paused, so the message waits.
    test_env.ctl(&["pause"]).ok();
    for order in ["stop", "delete"] {
        let mut talk = Talk::start(&test_env, &["ada"]);
        talk.say("hello");
        talk.wait_for("the conversation", |line| line["type"] == "conversation");
        test_env.ctl(&["agent", order, "ada"]).ok();
        let over = talk.wait_for("the end", |line| line["type"] == "turn_over");
        assert_eq!((&over["status"], &over["error_code"]), (&"cancelled".into(), &"conflict".into()), "{over}");
        let (code, err) = talk.fails();
        assert_eq!(code, 7, "{err}");
        if order == "stop" {
            test_env.ctl(&["agent", "start", "ada"]).ok();
        }
    }
    daemon.stop();
}
