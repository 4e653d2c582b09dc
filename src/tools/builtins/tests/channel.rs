use ghost_domain::conversation::CONTROL;
use ghost_domain::{ChannelContext, Code, ConversationEntry, ConversationId, Delivery, Direction, Kind, Party};
use ghost_operations::conversations::{self, IncomingMessage, Start};
use serde_json::json;

use super::tool_world::{ToolWorld, code, id, read, with, write};
use crate::context::CallContext;

/// A conversation of ada, and her call in a turn that came from it.
async fn outside(world: &ToolWorld, replies: bool) -> (ConversationId, CallContext) {
    let party = Party::Outside("eve".into());
    let start = Start { adapter: CONTROL.into(), thread: Some("t".into()), owner: id("ada"), party: party.clone() };
    let said = IncomingMessage {
        from: party,
        content: "hello".into(),
        attachments: vec![],
        reply_to: None,
        external_id: Some("m1".into()),
    };
    let heard = write!(world, |w| conversations::arrive(w, start, said)).unwrap();
    let conversation_id = heard.conversation.conversation_id;
    let call = with(&world.ada, |caller| caller.channel = Some(ChannelContext { conversation_id, replies }));
    (conversation_id, call)
}

async fn entries(world: &ToolWorld, id: ConversationId) -> Vec<ConversationEntry> {
    read!(world, |r| r.conversation_entries(id, 0, 100)?)
}

// covers: BI-34, BI-37, CONF-04
#[tokio::test]
async fn both_names_send_into_the_conversation_of_the_turn() {
    let world = ToolWorld::new().await;
    let (conversation, call) = outside(&world, true).await;
    let sent =
        world.call_as(&call, "channel.send", None, json!({ "content": "a moment", "reply_to": "m1" })).await.unwrap();
    assert_eq!(
        (&sent.content["delivery"], &sent.content["conversation_id"]),
        (&json!("delivered"), &json!(conversation))
    );
    world.content("workspace.write", json!({ "path": "r.md", "content": "figures" })).await;
    let with_file = json!({ "content": "here", "attachments": ["agents/ada/r.md"] });
    world.call_as(&call, "syscall.channel.send", None, with_file).await.unwrap();
    let all = entries(&world, conversation).await;
    let out: Vec<&ConversationEntry> = all.iter().filter(|entry| entry.direction == Direction::Out).collect();
    assert_eq!((out[0].reply_to.as_deref(), out[0].content.as_str()), (Some("m1"), "a moment"));
    assert_eq!((out[1].attachments[0].bytes, out[1].attachments[0].mime_type.as_str()), (7, "text/markdown"));
    for (arguments, wanted) in [
        (json!({ "content": " " }), Code::InvalidArguments),
        (json!({ "content": "x", "attachments": ["agents/ada/none.md"] }), Code::NotFound),
        (json!({ "content": "x", "attachments": ["../etc/passwd"] }), Code::PathDenied),
        (json!({ "content": "x", "attachments": vec!["a"; 65] }), Code::InvalidArguments),
    ] {
        assert_eq!(code(world.call_as(&call, "syscall.channel.send", None, arguments).await), wanted);
    }
    assert_eq!(entries(&world, conversation).await.len(), all.len(), "a refusal leaves nothing");
    let nowhere = world.call("channel.send", json!({ "content": "x" })).await;
    assert_eq!(code(nowhere), Code::AccessDenied, "no argument can name a conversation");
}

// covers: BI-35
#[tokio::test]
async fn a_file_is_checked_when_it_is_attached() {
    let world = ToolWorld::new().await;
    let (conversation, call) = outside(&world, true).await;
    world.content("workspace.write", json!({ "path": "r.md", "content": "figures" })).await;
    let arguments = json!({ "path": "r.md", "name": "Report.md", "mime_type": "text/plain" });
    let attached = world.call_as(&call, "channel.file_attach", None, arguments).await.unwrap().content;
    assert_eq!((&attached["bytes"], &attached["path"]), (&json!(7), &json!("agents/ada/r.md")));
    let new_message = entries(&world, conversation).await.pop().unwrap();
    assert_eq!((new_message.delivery, new_message.attachments[0].name.as_str()), (Delivery::Draft, "Report.md"));
    for (arguments, wanted) in [
        (json!({ "path": "none.md" }), Code::NotFound),
        (json!({ "path": "../bob/x.md" }), Code::PathDenied),
        (json!({ "path": "." }), Code::PathDenied),
        (json!({ "path": "r.md", "name": "a/b" }), Code::InvalidArguments),
        (json!({ "path": "r.md", "name": "x", "mime_type": "nonsense" }), Code::InvalidArguments),
        (json!({ "path": "r.md", "name": "Report.md" }), Code::Conflict),
    ] {
        assert_eq!(code(world.call_as(&call, "channel.file_attach", None, arguments).await), wanted);
    }
    let (_, handed) = (
        conversation,
        with(&call, |caller| {
            caller.channel = Some(ChannelContext { conversation_id: conversation, replies: false });
        }),
    );
    let refusal = world.call_as(&handed, "channel.file_attach", None, json!({ "path": "r.md" })).await.unwrap_err();
    assert_eq!(refusal.code, Code::Conflict);
}

// covers: BI-36, CONF-04
#[tokio::test]
async fn both_names_hand_the_conversation_over() {
    for tool in ["channel.handoff", "syscall.channel.handoff"] {
        let world = ToolWorld::new().await;
        let (conversation, call) = outside(&world, true).await;
        assert_eq!(code(world.call_as(&call, tool, None, json!({ "agent_id": "bop" })).await), Code::NotFound);
        assert_eq!(code(world.call_as(&call, tool, None, json!({ "agent_id": "ada" })).await), Code::Conflict);
        let arguments = json!({ "agent_id": "bob", "reason": "he knows", "summary": "open: the price" });
        let done = world.call_as(&call, tool, None, arguments).await.unwrap().content;
        assert_eq!(done, json!({ "conversation_id": conversation, "new_owner": "bob" }));
        let mail = world.inbox("bob").await;
        assert_eq!((mail[0].kind, mail[0].from.clone()), (Kind::Handoff, Party::Agent(id("ada"))));
        assert_eq!(mail[0].hop, world.ada.hop + 1, "a handoff is a step of its chain");
        assert!(mail[0].body.contains("open: the price"));
    }
}

// covers: BI-38
#[tokio::test]
async fn every_action_of_message_works() {
    let world = ToolWorld::new().await;
    let (conversation, call) = outside(&world, true).await;
    let act = async |arguments| world.call_as(&call, "message", None, arguments).await;
    let sent = act(json!({ "action": "send", "message": "oops", "to": "t" })).await.unwrap().content;
    let own = sent["message_id"].clone();
    let reacted = act(json!({ "action": "react", "emoji": "👍" })).await.unwrap().content;
    let expected = json!({ "kind": "react", "message_id": "m1", "seq": 1, "emoji": "👍", "remove": false });
    assert_eq!((&reacted["action"], &reacted["delivery"]), (&expected, &json!("delivered")));
    act(json!({ "action": "pin", "message_id": "m1" })).await.unwrap();
    act(json!({ "action": "poll", "message": "When?", "options": ["now", "later"] })).await.unwrap();
    act(json!({ "action": "delete", "message_id": own })).await.unwrap();
    let all = entries(&world, conversation).await;
    let kinds: Vec<_> = all.iter().filter_map(|entry| entry.action.as_ref()).map(|action| action.kind()).collect();
    assert_eq!(kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(), ["react", "pin", "poll", "delete"]);
    assert!(all[1].deleted && all[1].content.is_empty(), "what was taken back is gone");
    for (arguments, wanted) in [
        (json!({ "action": "thread", "message": "over here" }), Code::Unsupported),
        (json!({ "action": "react", "emoji": "🎉" }), Code::RateLimited),
        (json!({ "action": "react", "emoji": "a b" }), Code::InvalidArguments),
        (json!({ "action": "react" }), Code::InvalidArguments),
        (json!({ "action": "delete", "message_id": own }), Code::Conflict),
        (json!({ "action": "delete", "message_id": "m1" }), Code::AccessDenied),
        (json!({ "action": "delete", "message_id": reacted["message_id"] }), Code::NotFound),
        (json!({ "action": "pin", "message_id": "m2" }), Code::NotFound),
        (json!({ "action": "poll", "message": "When?", "options": ["now"] }), Code::InvalidArguments),
        (json!({ "action": "send" }), Code::InvalidArguments),
        (json!({ "action": "send", "message": "x", "emoji": "👍" }), Code::InvalidArguments),
        (json!({ "action": "send", "message": "x", "to": "elsewhere" }), Code::AccessDenied),
        (json!({ "action": "dance" }), Code::InvalidArguments),
    ] {
        assert_eq!(code(act(arguments.clone()).await), wanted, "{arguments}");
    }
    let refusal = act(json!({ "action": "thread", "message": "x" })).await.unwrap_err();
    assert_eq!(refusal.details.unwrap()["supported"], json!(["send", "delete", "react", "poll", "pin"]));
    assert_eq!(entries(&world, conversation).await.len(), all.len(), "a refusal leaves nothing");
    act(json!({ "action": "react", "emoji": "👍", "remove": true })).await.unwrap();
    let nowhere = world.call("message", json!({ "action": "send", "message": "x" })).await;
    assert_eq!(code(nowhere), Code::AccessDenied);
}
