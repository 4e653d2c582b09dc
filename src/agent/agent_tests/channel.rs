//! Which tools of the outside channel a turn has, case by case (CONF-03).

use std::collections::BTreeSet;
use std::sync::Arc;

use ghost_config::plan::Plan;
use ghost_domain::conversation::CONTROL;
use ghost_domain::{ChannelContext, Code, ConversationId, Direction, Party};
use ghost_operations::conversations::{self, IncomingMessage, Start};
use uuid::Uuid;

use super::agent_world::{AgentWorld, id, operator, read, write};

const ALL: [&str; 6] = [
    "channel.file_attach",
    "channel.handoff",
    "channel.send",
    "message",
    "syscall.channel.handoff",
    "syscall.channel.send",
];
const BROUGHT: [&str; 2] = ["syscall.channel.handoff", "syscall.channel.send"];

/// The channel tools of ada with and without a conversation, in a world with these extra settings.
async fn tools(groups: &str, strict: bool, config: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let dir = tempfile::tempdir().unwrap();
    let world = format!(
        "world: {{ id: test }}\nagents: [{{ id: ada, archetype: worker }}]\naccess: {{ strict_channel_privileges: {strict} }}\n\
         {groups}llm: {{ default_provider: scripted }}\n"
    );
    for (path, text) in [
        ("world-config.yaml", world.as_str()),
        ("archetype/worker/soul.md", "s"),
        ("archetype/worker/goal.md", "g"),
        ("archetype/worker/config.md", config),
    ] {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let plan: Plan = ghost_config::load(dir.path(), &|_| None).unwrap_or_else(|problems| panic!("{problems}"));
    let world = AgentWorld::with(|_| {}).await;
    world.engine.services.set_plan(Arc::new(plan));
    let agent = read!(world, |r| ghost_operations::mail::agent_named(r, &id("ada"))?);
    let context = ChannelContext { conversation_id: ConversationId(Uuid::nil()), replies: true };
    let tools_of = |channel| {
        let (_, registry) = world.engine.spec_and_tools_for(&agent, channel, &[]).unwrap();
        registry.specs().iter().map(|spec| spec.name.clone()).filter(|name| ALL.contains(&name.as_str())).collect()
    };
    (tools_of(Some(context)), tools_of(None))
}

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

// covers: ACC-08, CONF-03, TEST-01
#[tokio::test]
async fn each_turn_has_the_channel_tools_of_the_matrix() {
    let seed = "tool_privileges: { communicator: [channel, message, syscall.channel.send, syscall.channel.handoff] }\n";
    let member = "## Tool Access\nprivilege_groups: communicator\n";
    let outsider = "";
    let denied = "## Tool Access\nprivilege_groups: communicator\ndeny: syscall.channel.send, channel.handoff\n";
    let minimal = "## Tool Access\nprivilege_groups: communicator\nprofile: minimal\n";
    let messaging = "## Tool Access\nprivilege_groups: communicator\nprofile: messaging\n";
    for (what, groups, strict, config, with) in [
        ("public: all of them", "", false, outsider, &ALL[..]),
        ("in a group, a member: all", seed, false, member, &ALL),
        ("in a group, not a member: what the context brings", seed, false, outsider, &BROUGHT),
        ("strict, a member: all", seed, true, member, &ALL),
        ("strict, not a member: none", seed, true, outsider, &[]),
        ("strict, but public: all", "", true, outsider, &ALL),
        (
            "denied beats the context",
            seed,
            false,
            denied,
            &["channel.file_attach", "channel.send", "message", "syscall.channel.handoff"],
        ),
        ("a profile beats the context", seed, false, minimal, &[]),
        ("a profile leaves what is in it", seed, false, messaging, &["message"]),
    ] {
        let (found, without) = tools(groups, strict, config).await;
        assert_eq!(found, names(with), "{what}");
        assert_eq!(without, names(&[]), "{what}: without a conversation there are none");
    }
}

async fn receive(world: &AgentWorld, text: &str) -> ConversationId {
    let start = Start { adapter: CONTROL.into(), thread: Some("t".into()), owner: id("ada"), party: operator() };
    let message = IncomingMessage {
        from: Party::Outside("eve".into()),
        content: text.into(),
        attachments: vec![],
        reply_to: None,
        external_id: None,
    };
    write!(world, |w| conversations::arrive(w, start, message)).unwrap().conversation.conversation_id
}

// covers: ACC-08, ARCH-11
#[tokio::test]
async fn a_turn_from_outside_lists_the_channel_tools_and_its_reply_is_sent() {
    let world = AgentWorld::new().await;
    world.send("ada", "an ordinary message").await;
    world.work("ada").await.unwrap();
    let conversation = receive(&world, "hello from outside").await;
    world.work("ada").await.unwrap();
    let requests = world.model.requests();
    let [plain, outside] = requests.as_slice() else { panic!("two turns of one call") };
    let has = |request: &ghost_provider::ModelRequest, name: &str| {
        let sent = request.tools.iter().any(|tool| tool.name == name);
        let listed = request.messages[0].visible_text().contains(&format!("- {name}("));
        assert!(!(sent && listed), "the request has the tool or the briefing has its line (ARCH-11)");
        sent || listed
    };
    assert!(ALL.iter().all(|name| has(outside, name) && !has(plain, name)));
    let note = outside.messages.last().unwrap().visible_text();
    assert!(note.contains("<channel conversation_id="));
    assert!(
        note.contains("if you have it: send, delete, react, poll, pin.") && note.contains("at most once in 5"),
        "{note}"
    );
    assert!(!plain.messages.last().unwrap().visible_text().contains("<channel"));
    let entries = read!(world, |r| r.conversation_entries(conversation, 0, 10)?);
    assert_eq!(entries.last().unwrap().direction, Direction::Out);
}

#[tokio::test]
async fn an_operator_call_has_no_channel_tools() {
    let world = AgentWorld::new().await;
    let arguments = serde_json::json!({ "content": "hi" });
    let call = crate::turn::OperatorCall {
        turn_id: ghost_domain::TurnId(world.ctx().id()),
        again: false,
        agent_id: id("ada"),
        tool: "channel.send".into(),
        arguments,
    };
    let refused = crate::turn::call_for_operator(&world.engine, call, &world.session).await;
    assert_eq!(refused.unwrap_err().code, Code::Unsupported);
}
