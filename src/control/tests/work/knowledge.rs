//! Tests of the `Knowledge` and `State` services, of `as_agent`, and of invalid requests.

use ghost_proto::v1;
use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::knowledge_client::KnowledgeClient;
use ghost_proto::v1::state_client::StateClient;
use ghost_proto::v1::tasks_client::TasksClient;
use serde_json::json;
use tonic::Code;

use crate::test_daemon::{TestDaemon, new_world, refused};

fn write(request_id: &str, entry_id: &str, content: &str) -> v1::WriteKnowledgeRequest {
    v1::WriteKnowledgeRequest {
        request_id: request_id.into(),
        entry_id: entry_id.into(),
        content: content.into(),
        ..Default::default()
    }
}

fn read(entry_id: &str, as_agent: Option<&str>) -> v1::ReadKnowledgeRequest {
    v1::ReadKnowledgeRequest { entry_id: entry_id.into(), as_agent: as_agent.map(Into::into), versions: true }
}

fn set(request_id: &str, key: &str, value: &str) -> v1::SetStateRequest {
    v1::SetStateRequest {
        request_id: request_id.into(),
        key: key.into(),
        value_json: value.into(),
        ..Default::default()
    }
}

// covers: KNOW-01
#[tokio::test]
async fn entries_are_written_read_listed_and_deleted() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut knowledge = KnowledgeClient::new(daemon.channel.clone());
    let first = v1::WriteKnowledgeRequest {
        title: "Style".into(),
        tags: vec!["house".into()],
        readers: vec!["ada".into(), "archetype:worker".into()],
        ..write("1", "style", "no hush-hush-secret")
    };
    let one = knowledge.write(first.clone()).await.unwrap().into_inner();
    assert_eq!(knowledge.write(first).await.unwrap().into_inner(), one, "the same request, the same answer");
    assert!(one.version == 1 && one.creator.starts_with("operator:uid-") && !one.content.contains("hush-hush"));
    knowledge.write(write("2", "other", "x")).await.unwrap();
    let as_ada = v1::WriteKnowledgeRequest { as_agent: Some("ada".into()), ..write("3", "adas", "x") };
    let adas = knowledge.write(as_ada).await.unwrap().into_inner();
    assert_eq!((adas.creator.as_str(), adas.readers.len()), ("agent:ada", 0));
    // The entries that an agent sees, in pages.
    let page = v1::ListKnowledgeRequest { as_agent: Some("ada".into()), limit: 1, ..Default::default() };
    let first = knowledge.list(page.clone()).await.unwrap().into_inner();
    assert_eq!((first.entries[0].entry_id.as_str(), first.next_cursor.is_empty()), ("adas", false));
    let rest = v1::ListKnowledgeRequest { cursor: first.next_cursor, ..page };
    let rest = knowledge.list(rest).await.unwrap().into_inner();
    assert_eq!((rest.entries[0].entry_id.as_str(), rest.next_cursor.as_str()), ("style", ""));
    assert!(rest.entries[0].content.is_empty());
    for (tag, query, count) in [(Some("house"), None, 1), (None, Some("STYLE"), 1), (None, None, 3)] {
        let list =
            v1::ListKnowledgeRequest { tag: tag.map(Into::into), query: query.map(Into::into), ..Default::default() };
        assert_eq!(knowledge.list(list).await.unwrap().into_inner().entries.len(), count);
    }
    refused(knowledge.read(read("other", Some("ada"))).await, Code::NotFound, None);
    let over = v1::WriteKnowledgeRequest { as_agent: Some("ada".into()), ..write("4", "style", "y") };
    refused(knowledge.write(over).await, Code::PermissionDenied, None);
    // A list is left as it is, emptied or replaced.
    let shut = v1::WriteKnowledgeRequest { clear: vec!["readers".into()], ..write("5", "style", "y") };
    let shut = knowledge.write(shut).await.unwrap().into_inner();
    assert_eq!((shut.readers.len(), shut.tags.len(), shut.title.as_str()), (0, 1, "Style"));
    refused(knowledge.read(read("style", Some("ada"))).await, Code::NotFound, None);
    let whole = knowledge.read(read("style", None)).await.unwrap().into_inner();
    assert_eq!((whole.entry.unwrap().version, whole.versions.len()), (2, 1));
    let late = v1::WriteKnowledgeRequest { expected_version: Some(1), ..write("6", "style", "z") };
    let conflict = refused(knowledge.write(late).await, Code::Aborted, None);
    assert_eq!(conflict.details, Some(json!({ "entry_id": "style", "version": 2 })));
    let delete = v1::DeleteKnowledgeRequest { request_id: "7".into(), entry_id: "style".into(), ..Default::default() };
    let gone = knowledge.delete(delete.clone()).await.unwrap().into_inner();
    assert!(gone.deleted && gone.version == 3);
    assert_eq!(knowledge.delete(delete).await.unwrap().into_inner(), gone);
    refused(knowledge.read(read("style", None)).await, Code::NotFound, None);
}

#[tokio::test]
async fn acting_as_an_agent_gives_no_more_access_than_the_agent_has() {
    const TOOLS: [&str; 10] = [
        "syscall.chat.create",
        "syscall.chat.send",
        "syscall.chat.invite",
        "syscall.chat.remove",
        "syscall.chat.history",
        "syscall.knowledge.list",
        "syscall.knowledge.read",
        "syscall.knowledge.write",
        "syscall.knowledge.delete",
        "syscall.state.write",
    ];
    let test_world = new_world();
    let file = test_world.files.path("world/world-config.yaml");
    let config = std::fs::read_to_string(&file).unwrap();
    let config =
        config.replace("{ id: ada, archetype: worker }", "{ id: ada, archetype: worker, privilege_groups: [all] }");
    std::fs::write(&file, format!("{config}tool_privileges: {{ all: [{}] }}\n", TOOLS.join(", "))).unwrap();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut chat = ChatClient::new(daemon.channel.clone());
    let mut knowledge = KnowledgeClient::new(daemon.channel.clone());
    let mut state = StateClient::new(daemon.channel.clone());
    for (who, may) in [("ada", true), ("ben", false)] {
        let as_agent = Some(who.to_owned());
        // The operator does the first step, so that there is something to refuse.
        let room = |agent: Option<String>, name: &str| v1::CreateChannelRequest {
            request_id: format!("c{who}{name}"),
            channel: format!("{who}-{name}"),
            members: vec!["ada".into(), "ben".into()],
            gated: true,
            as_agent: agent,
            ..Default::default()
        };
        chat.create(room(None, "room")).await.unwrap();
        let channel = format!("{who}-room");
        let post = v1::PostRequest {
            request_id: format!("p{who}"),
            channel: channel.clone(),
            content: "x".into(),
            as_agent: as_agent.clone(),
            ..Default::default()
        };
        let asked = v1::HistoryRequest { channel: channel.clone(), as_agent: as_agent.clone(), ..Default::default() };
        let call_in = v1::InviteRequest {
            request_id: format!("i{who}"),
            channel: format!("{who}-own"),
            agent_id: "ben".into(),
            as_agent: as_agent.clone(),
        };
        let leave = v1::RemoveMemberRequest {
            request_id: format!("r{who}"),
            channel,
            agent_id: who.into(),
            as_agent: as_agent.clone(),
        };
        let entry = format!("notes/{who}");
        let put = v1::WriteKnowledgeRequest { as_agent: as_agent.clone(), ..write(&format!("w{who}"), &entry, "x") };
        let list = v1::ListKnowledgeRequest { as_agent: as_agent.clone(), ..Default::default() };
        let gone = v1::DeleteKnowledgeRequest {
            request_id: format!("d{who}"),
            entry_id: entry.clone(),
            as_agent: as_agent.clone(),
            ..Default::default()
        };
        let mode = v1::SetStateRequest { as_agent: as_agent.clone(), ..set(&format!("s{who}"), "mode", "1") };
        let answers = [
            ("syscall.chat.create", chat.create(room(as_agent, "own")).await.err()),
            ("syscall.chat.send", chat.post(post).await.err()),
            ("syscall.chat.history", chat.history(asked).await.err()),
            ("syscall.chat.invite", chat.invite(call_in).await.err()),
            ("syscall.chat.remove", chat.remove(leave).await.err()),
            ("syscall.knowledge.write", knowledge.write(put).await.err()),
            ("syscall.knowledge.read", knowledge.read(read(&entry, Some(who))).await.err()),
            ("syscall.knowledge.list", knowledge.list(list).await.err()),
            ("syscall.knowledge.delete", knowledge.delete(gone).await.err()),
            ("syscall.state.write", state.set(mode).await.err()),
        ];
        for (tool, refusal) in answers {
            if may {
                assert!(refusal.is_none(), "{tool}: {refusal:?}");
                continue;
            }
            let refusal = refused::<()>(Err(refusal.unwrap()), Code::PermissionDenied, None);
            assert_eq!(refusal.details, Some(json!({ "field": "as_agent", "tool": tool })));
        }
    }
}

#[tokio::test]
async fn invalid_requests_are_refused_with_their_field() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut knowledge = KnowledgeClient::new(daemon.channel.clone());
    let base = || write("1", "e", "x");
    for (bad, field) in [
        (v1::WriteKnowledgeRequest { content: "a\0".into(), ..base() }, Some("content")),
        (v1::WriteKnowledgeRequest { content: " ".into(), ..base() }, Some("content")),
        (v1::WriteKnowledgeRequest { title: "a\nb".into(), ..base() }, Some("title")),
        (v1::WriteKnowledgeRequest { readers: vec!["role:x".into()], ..base() }, Some("readers")),
        (v1::WriteKnowledgeRequest { clear: vec!["title".into()], ..base() }, Some("clear")),
        (v1::WriteKnowledgeRequest { clear: vec!["tags".into()], tags: vec!["t".into()], ..base() }, Some("clear")),
        (v1::WriteKnowledgeRequest { as_agent: Some("../x".into()), ..base() }, Some("as_agent")),
        (v1::WriteKnowledgeRequest { entry_id: "E".into(), ..base() }, None),
        (v1::WriteKnowledgeRequest { tags: vec!["a,b".into()], ..base() }, None),
        (v1::WriteKnowledgeRequest { expected_version: Some(-1), ..base() }, None),
        (v1::WriteKnowledgeRequest { request_id: String::new(), ..base() }, None),
    ] {
        refused(knowledge.write(bad).await, Code::InvalidArgument, field);
    }
    for (near, bad) in [
        ("ada", v1::WriteKnowledgeRequest { as_agent: Some("adda".into()), ..base() }),
        ("ada", v1::WriteKnowledgeRequest { readers: vec!["adda".into()], ..base() }),
        ("worker", v1::WriteKnowledgeRequest { writers: vec!["archetype:wroker".into()], ..base() }),
    ] {
        let refusal = refused(knowledge.write(bad).await, Code::NotFound, None);
        assert!(refusal.hint.as_ref().unwrap().contains(near), "{refusal}");
    }
    refused(knowledge.write(write("1", "e", &"x".repeat(65_537))).await, Code::ResourceExhausted, Some("content"));
    let list = v1::ListKnowledgeRequest { cursor: "No Id".into(), ..Default::default() };
    refused(knowledge.list(list).await, Code::InvalidArgument, Some("cursor"));
    // Nothing was written, and the request_id is still free.
    assert!(knowledge.list(v1::ListKnowledgeRequest::default()).await.unwrap().into_inner().entries.is_empty());
    knowledge.write(base()).await.unwrap();
    refused(knowledge.write(write("1", "e", "other")).await, Code::FailedPrecondition, None);
}

// covers: STATE-01, STATE-02
#[tokio::test]
async fn state_is_set_compared_listed_and_deleted() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut state = StateClient::new(daemon.channel.clone());
    let fresh = v1::SetStateRequest { expected_version: Some(0), ..set("1", "plan.a", "{\"n\": 1}") };
    let first = state.set(fresh.clone()).await.unwrap().into_inner();
    assert_eq!((first.version, first.value_json.as_str()), (1, "{\"n\": 1}"));
    let digits = state.set(set("d", "digits", " 12345678901234567890.123\n")).await.unwrap().into_inner();
    assert_eq!(digits.value_json, "12345678901234567890.123", "as it was written");
    assert_eq!(state.set(fresh).await.unwrap().into_inner(), first);
    let late = v1::SetStateRequest { expected_version: Some(0), ..set("2", "plan.a", "2") };
    let conflict = refused(state.set(late).await, Code::Aborted, None);
    assert_eq!(conflict.details, Some(json!({ "key": "plan.a", "version": 1 })));
    let as_ada = v1::SetStateRequest { as_agent: Some("ada".into()), ..set("3", "plan.b", "\"hush-hush-secret\"") };
    let entry = state.set(as_ada).await.unwrap().into_inner();
    assert!(entry.writer == "agent:ada" && !entry.value_json.contains("hush-hush"), "{entry:?}");
    state.set(set("4", "system.mode", "true")).await.unwrap();
    let system = v1::SetStateRequest { as_agent: Some("ada".into()), ..set("5", "system.mode", "false") };
    refused(state.set(system).await, Code::PermissionDenied, None);
    for (value, field) in
        [("", "value_json"), ("{", "value_json"), ("{\"a\":1,\"a\":2}", "value_json"), ("calm", "value_json")]
    {
        refused(state.set(set("6", "k", value)).await, Code::InvalidArgument, Some(field));
    }
    refused(state.set(set("6", "a..b", "1")).await, Code::InvalidArgument, None);
    let large = format!("\"{}\"", "x".repeat(65_535));
    refused(state.set(set("6", "k", &large)).await, Code::ResourceExhausted, None);
    refused(state.set(set("6", "k", &"x".repeat(200_000))).await, Code::ResourceExhausted, Some("value_json"));
    let got = state.get(v1::GetStateRequest { key: "plan.a".into() }).await.unwrap().into_inner();
    assert_eq!(got, first);
    let page = v1::ListStateRequest { prefix: "plan.".into(), limit: 1, ..Default::default() };
    let one = state.list(page.clone()).await.unwrap().into_inner();
    let two = state.list(v1::ListStateRequest { cursor: one.next_cursor.clone(), ..page }).await.unwrap().into_inner();
    assert_eq!(
        (one.entries[0].key.as_str(), two.entries[0].key.as_str(), two.next_cursor.as_str()),
        ("plan.a", "plan.b", "")
    );
    refused(
        state.list(v1::ListStateRequest { cursor: "a b".into(), ..Default::default() }).await,
        Code::InvalidArgument,
        Some("cursor"),
    );
    let gone = state.set(set("7", "plan.a", "null")).await.unwrap().into_inner();
    assert_eq!((gone.version, gone.value_json.as_str()), (2, "null"));
    let missing = refused(state.get(v1::GetStateRequest { key: "plan.a".into() }).await, Code::NotFound, None);
    assert!(missing.hint.as_deref().unwrap().contains("`plan.b`"));
    // A page of long values ends early and has a cursor.
    for n in 0..20 {
        let long = format!("\"{}\"", "y".repeat(60_000));
        state.set(set(&format!("long-{n}"), &format!("long.k{n:02}"), &long)).await.unwrap();
    }
    let (mut keys, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let list = v1::ListStateRequest { prefix: "long.".into(), limit: 100, cursor };
        let page = state.list(list).await.unwrap().into_inner();
        keys.extend(page.entries.into_iter().map(|entry| entry.key));
        pages += 1;
        cursor = page.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    assert!(pages == 2 && keys == (0..20).map(|n| format!("long.k{n:02}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn dependencies_of_a_task_are_changed_and_cycles_refused() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut tasks = TasksClient::new(daemon.channel.clone());
    let mut ids = Vec::new();
    for n in ["1", "2"] {
        let new =
            v1::CreateTaskRequest { request_id: n.into(), title: n.into(), owner: "ada".into(), ..Default::default() };
        ids.push(tasks.create(new).await.unwrap().into_inner().task_id);
    }
    let on = |request_id: &str, task: &str, others: &[&String]| v1::UpdateTaskRequest {
        request_id: request_id.into(),
        task_id: task.into(),
        depends_on: Some(v1::TaskIds { task_ids: others.iter().map(|id| (*id).clone()).collect() }),
        ..Default::default()
    };
    let blocked = tasks.update(on("3", &ids[0], &[&ids[1]])).await.unwrap().into_inner();
    assert_eq!((blocked.status.as_str(), blocked.depends_on.as_slice()), ("blocked", &ids[1..]));
    let round = refused(tasks.update(on("4", &ids[1], &[&ids[0]])).await, Code::FailedPrecondition, None);
    assert_eq!(round.details.unwrap()["cycle"].as_array().unwrap().len(), 3);
    let free = tasks.update(on("5", &ids[0], &[])).await.unwrap().into_inner();
    assert_eq!((free.status.as_str(), free.depends_on.len()), ("pending", 0));
    refused(tasks.update(on("6", &ids[0], &[&"x".to_owned()])).await, Code::InvalidArgument, Some("depends_on"));
}
