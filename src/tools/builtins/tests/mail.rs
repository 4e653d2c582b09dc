use ghost_domain::{Code, ConversationId, Kind, MailState, Party, Refusal, Turn};
use ghost_operations::mail::{Chain, NewMessage};
use serde_json::json;
use uuid::Uuid;

use super::tool_world::{ToolWorld, code, id, read, write};

// covers: BI-31, TOOL-04
#[tokio::test]
async fn a_message_reaches_the_inbox_with_the_caller_as_sender() {
    let world = ToolWorld::new().await;
    let sent = world.content("syscall.message.send", json!({ "to": "bob", "content": "hi", "subject": "s\ns" })).await;
    assert_eq!((&sent["sent_to"], &sent["bytes"]), (&json!("bob"), &json!(2)));
    let mail = world.inbox("bob").await;
    assert_eq!((mail[0].from.clone(), mail[0].kind), (Party::Agent(id("ada")), Kind::Message));
    assert_eq!((mail[0].subject.as_deref(), mail[0].hop), (Some("s s"), world.ada.hop + 1));
    let refusal = world.call("syscall.message.send", json!({ "to": "bop", "content": "x" })).await.unwrap_err();
    assert_eq!(refusal.code, Code::NotFound);
    assert!(refusal.hint.unwrap().contains("`bob`"));
    let refusal = world.call("syscall.message.send", json!({ "to": "Bob", "content": "x" })).await.unwrap_err();
    assert!(refusal.hint.as_deref().unwrap().contains("`bob`"));
    let blank = json!({ "to": "bob", "content": " \n" });
    assert_eq!(code(world.call("syscall.message.send", blank).await), Code::InvalidArguments);
    let large = json!({ "to": "bob", "content": "x".repeat(70_000) });
    assert_eq!(code(world.call("syscall.message.send", large).await), Code::TooLarge);
    let both = json!({ "to": "bob", "content": "x", "filename": "f", "timeout_seconds": 5 });
    assert_eq!(code(world.call("syscall.message.send", both).await), Code::InvalidArguments);
}

// covers: ACL-03, CONF-05, MSG-06
#[tokio::test]
async fn a_file_is_written_to_the_receivers_inbox_directory() {
    let world = ToolWorld::new().await;
    let arguments = json!({ "to": "bob", "content": "figures", "filename": "../to do.md" });
    let sent = world.content("syscall.message.send", arguments.clone()).await;
    assert_eq!(sent["path"], "agents/bob/inbox/.._to_do.md");
    let file = world.files.path("data/workspace/agents/bob/inbox/.._to_do.md");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "figures");
    let mail = world.inbox("bob").await;
    assert_eq!(mail[0].attachments, ["agents/bob/inbox/.._to_do.md"]);
    assert!(mail[0].body.contains("figures"));
    let other = json!({ "to": "bob", "content": "other", "filename": "../to do.md" });
    assert_eq!(code(world.call("syscall.message.send", other).await), Code::Conflict);
    assert_eq!(world.inbox("bob").await.len(), 1);
    let name =
        |length: usize| json!({ "to": "bob", "content": "x", "filename": format!("{}.md", "n".repeat(length - 3)) });
    let long = world.call("syscall.message.send", name(129)).await.unwrap_err();
    assert!(long.code == Code::TooLarge && long.message.contains("129") && long.message.contains("128"), "{long}");
    assert_eq!(world.inbox("bob").await.len(), 1);
    assert!(world.content("syscall.message.send", name(128)).await["path"].as_str().unwrap().ends_with("n.md"));
    let nobody = json!({ "to": "nobody", "content": "x", "filename": "x" });
    assert_eq!(world.call("syscall.message.send", nobody).await.unwrap_err().code, Code::NotFound);
    assert!(!world.files.path("data/workspace/agents/nobody").exists());
}

/// Changes a limit.
type Change = fn(&mut ghost_domain::Limits);

#[tokio::test]
async fn a_file_whose_mail_would_be_refused_is_not_written() {
    let bounds: [(&str, Code, Change); 5] = [
        ("world_mail_max", Code::InboxFull, |limits| limits.world_mail_max = 1),
        ("inbox_max", Code::InboxFull, |limits| limits.inbox_max = 1),
        ("root_messages_max", Code::RateLimited, |limits| limits.root_messages_max = 1),
        ("message_bytes", Code::TooLarge, |limits| limits.message_bytes = 8),
        ("hops_max", Code::HopLimit, |limits| limits.hops_max = 0),
    ];
    for (name, expected, change) in bounds {
        let world = ToolWorld::new().await;
        world.content("syscall.message.send", json!({ "to": "bob", "content": "first" })).await;
        world.limits(change);
        let send = json!({ "to": "bob", "content": "figures", "filename": "f.md" });
        assert_eq!(code(world.call("syscall.message.send", send).await), expected, "{name}");
        assert!(!world.files.path("data/workspace/agents/bob/inbox/f.md").exists(), "{name}");
    }
}

// covers: BI-30, MSG-04
#[tokio::test]
async fn an_ask_opens_and_one_that_cannot_be_answered_is_refused() {
    let world = ToolWorld::new().await;
    let ask = world.content("syscall.ask", json!({ "agent_id": "bob", "message": "why?", "context": "c" })).await;
    assert_eq!((&ask["target"], &ask["status"]), (&json!("bob"), &json!("open")));
    let mail = world.inbox("bob").await;
    assert_eq!((mail[0].kind, mail[0].body.as_str()), (Kind::Ask, "why?\n\nContext:\nc"));
    assert_eq!(code(world.call("syscall.ask", json!({ "agent_id": "ada", "message": "x" })).await), Code::Conflict);
    let bob = world.call_by("bob").await;
    let back = json!({ "agent_id": "ada", "message": "x" });
    assert_eq!(code(world.call_as(&bob, "syscall.ask", None, back).await), Code::Conflict);
    let never = json!({ "agent_id": "bob", "message": "x", "timeout_seconds": 0 });
    assert_eq!(code(world.call("syscall.ask", never).await), Code::InvalidArguments);
    let waits = json!({ "to": "bob", "content": "x", "timeout_seconds": 5 });
    assert_eq!(world.content("syscall.message.send", waits).await["status"], "open");
    world.content("syscall.agent.stop", json!({ "agent_id": "bob" })).await;
    assert_eq!(code(world.call("syscall.ask", json!({ "agent_id": "bob", "message": "x" })).await), Code::Conflict);
}

// covers: BI-32, MSG-05
#[tokio::test]
async fn a_broadcast_reaches_all_but_the_sender_and_the_excluded() {
    let world = ToolWorld::new().await;
    let all = world.content("syscall.broadcast", json!({ "message": "hear" })).await;
    assert_eq!(all, json!({ "delivered": 1, "skipped": [] }));
    let none = world.content("syscall.broadcast", json!({ "message": "hear", "exclude": ["bob"] })).await;
    assert_eq!(none["delivered"], 0);
    let none = world.content("syscall.broadcast", json!({ "message": "hear", "archetype": "painter" })).await;
    assert!(none["note"].is_string());
    let unknown = json!({ "message": "hear", "exclude": ["bop"] });
    assert_eq!(code(world.call("syscall.broadcast", unknown).await), Code::NotFound);
    assert!(world.inbox("ada").await.is_empty());
}

// covers: BI-33
#[tokio::test]
async fn reading_the_inbox_adds_its_mail_to_the_turn() {
    let world = ToolWorld::new().await;
    world.mail_to_ada(Kind::Message, "one").await;
    world.mail_to_ada(Kind::Conversation, "outside").await;
    world.mail_to_ada(Kind::Task, "two").await;
    let read = world.content("syscall.inbox.read", json!({})).await;
    let bodies: Vec<&str> = read["messages"].as_array().unwrap().iter().map(|m| m["body"].as_str().unwrap()).collect();
    assert_eq!((bodies, &read["remaining"]), (vec!["one", "two"], &json!(1)));
    let turn_id = world.ada.turn_id;
    let (mail, journal) = read!(world, |r| (r.messages_of_turn(turn_id)?, r.journal_of(turn_id)?));
    assert_eq!(mail.iter().filter(|mail| mail.state == MailState::Taken).count(), 3);
    assert_eq!(journal.iter().filter(|row| row.step.name() == "mail_joined").count(), 1);
    let again = world.content("syscall.inbox.read", json!({})).await;
    assert_eq!(again["messages"], json!([]));
    let shown = world.content("syscall.inbox.read", json!({ "unread_only": false })).await;
    assert_eq!(shown["messages"].as_array().unwrap().len(), 4);
    assert_eq!(code(world.call("syscall.inbox.read", json!({ "limit": 0 })).await), Code::InvalidArguments);
}

#[tokio::test]
async fn only_mail_that_the_result_can_show_is_taken() {
    let world = ToolWorld::new().await;
    for _ in 0..4 {
        world.mail_to_ada(Kind::Message, &"x".repeat(40_000)).await;
    }
    let read = world.call("syscall.inbox.read", json!({})).await.unwrap();
    assert_eq!(read.content["messages"].as_array().unwrap().len(), 2);
    assert_eq!(read.content["remaining"], 2);
    assert!(!read.truncated);
}

// covers: BI-33, LOOP-01
#[tokio::test]
async fn the_mail_of_busier_sessions_does_not_hide_that_of_this_one() {
    let world = ToolWorld::new().await;
    let talk = Some(ConversationId(Uuid::from_u128(1)));
    world.mail_to_ada(Kind::Message, "own").await;
    for n in 0..30 {
        let chain = Chain { conversation_id: talk, ..Chain::root(&world.ctx) };
        let mail = NewMessage::new(&id("ada"), Party::System, Kind::Message, format!("aside {n}"), chain);
        world.deliver(mail).await.unwrap();
    }
    let again = json!({ "unread_only": false });
    let shown = world.content("syscall.inbox.read", again.clone()).await;
    let bodies: Vec<&str> = shown["messages"].as_array().unwrap().iter().map(|m| m["body"].as_str().unwrap()).collect();
    assert_eq!((bodies, &shown["remaining"]), (vec!["own", "begin"], &json!(1)));
    let read = world.content("syscall.inbox.read", json!({})).await;
    assert_eq!((read["messages"].as_array().unwrap().len(), &read["remaining"]), (1, &json!(0)));
    // An operator's turn belongs to no session.
    let turn_id = world.ada.turn_id;
    write!(world, |w| {
        let turn = w.turn_get(turn_id)?.unwrap();
        w.turn_put(&Turn { source: "operator".into(), ..turn })?;
        Ok::<_, Refusal>(())
    })
    .unwrap();
    let shown = world.content("syscall.inbox.read", again).await;
    assert_eq!((shown["messages"].as_array().unwrap().len(), &shown["remaining"]), (20, &json!(30)));
}
