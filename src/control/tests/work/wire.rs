//! Tests for foreign clients: compressed requests, health of each service, both versions of reflection,
//! event families with a star, page sizes, and the same code for the same error everywhere.

use ghost_proto::v1;
use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::chat_client::ChatClient;
use ghost_proto::v1::conversations_client::ConversationsClient;
use ghost_proto::v1::events_client::EventsClient;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::schedules_client::SchedulesClient;
use ghost_proto::v1::tasks_client::TasksClient;
use ghost_proto::v1::tools_client::ToolsClient;
use ghost_proto::v1::world_client::WorldClient;
use prost::Message as _;
use tonic::codec::CompressionEncoding;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::test_daemon::{TestDaemon, new_world, refused};

#[tokio::test]
async fn compressed_requests_are_accepted_and_their_decompressed_size_is_limited() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut messages = MessagesClient::new(daemon.channel.clone()).send_compressed(CompressionEncoding::Gzip);
    let send = |body: String| v1::SendRequest {
        request_id: body.len().to_string(),
        agent_id: "ben".into(),
        body,
        ..Default::default()
    };
    assert!(messages.send(send("hello ".repeat(100))).await.unwrap().into_inner().seq > 0);
    // A few kilobytes on the wire that decompress to many megabytes.
    let bomb = messages.send(send("x".repeat(64 * 1024 * 1024))).await.unwrap_err();
    assert!(!matches!(bomb.code(), tonic::Code::Ok | tonic::Code::Unavailable), "{bomb:?}");
    assert!(messages.send(send("still there".into())).await.is_ok());
}

// covers: CP-05, CP-11
#[tokio::test]
async fn each_service_reports_its_health() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut health = HealthClient::new(daemon.channel.clone());
    for service in ["", "ghost.v1.World", "ghost.v1.Agents", "ghost.v1.Conversations", "ghost.v1.Schedules"] {
        let answer = health.check(HealthCheckRequest { service: service.into() }).await.unwrap().into_inner();
        assert_eq!(answer.status().as_str_name(), "SERVING", "{service}");
    }
    let none = health.check(HealthCheckRequest { service: "ghost.v1.Nothing".into() }).await;
    refused(none, tonic::Code::NotFound, None);
}

// covers: CP-11
#[tokio::test]
async fn reflection_answers_in_both_versions() {
    use tonic_reflection::pb::{v1, v1alpha};
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let newer = v1::ServerReflectionRequest {
        message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let older = v1alpha::ServerReflectionRequest {
        message_request: Some(v1alpha::server_reflection_request::MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(daemon.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(newer)).await.unwrap().into_inner();
    let Some(v1::server_reflection_response::MessageResponse::ListServicesResponse(newer)) =
        answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list of services");
    };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(daemon.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(older)).await.unwrap().into_inner();
    let Some(v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(older)) =
        answers.message().await.unwrap().unwrap().message_response
    else {
        panic!("no list of services");
    };
    let newer: Vec<String> = newer.service.into_iter().map(|service| service.name).collect();
    let older: Vec<String> = older.service.into_iter().map(|service| service.name).collect();
    assert!(newer.iter().any(|name| name == "ghost.v1.Agents"), "{newer:?}");
    let ours = |names: &[String]| names.iter().filter(|name| name.starts_with("ghost.")).cloned().collect::<Vec<_>>();
    assert_eq!(ours(&newer), ours(&older));
}

#[tokio::test]
async fn an_event_family_may_end_with_a_star() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut events = EventsClient::new(daemon.channel.clone());
    let asked = |kind: &str| v1::SubscribeRequest { kinds: vec![kind.into()], ..Default::default() };
    let mut seen = Vec::new();
    for kind in ["agent.", "agent.*"] {
        let mut stream = events.subscribe(asked(kind)).await.unwrap().into_inner();
        let mut kinds = Vec::new();
        while let Some(message) = stream.message().await.unwrap() {
            kinds.extend(message.event.map(|event| event.kind));
        }
        seen.push(kinds);
    }
    assert!(!seen[0].is_empty() && seen[0] == seen[1], "{seen:?}");
    refused(events.subscribe(asked("*")).await, tonic::Code::InvalidArgument, Some("kinds"));
}

#[tokio::test]
async fn texts_that_are_too_long_have_one_code() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let (title, text) = ("x".repeat(201), "x".repeat(100_000));
    let task = v1::CreateTaskRequest { request_id: "1".into(), owner: "ben".into(), ..Default::default() };
    let mut tasks = TasksClient::new(daemon.channel.clone());
    let long = v1::CreateTaskRequest { title: title.clone(), ..task.clone() };
    refused(tasks.create(long).await, tonic::Code::ResourceExhausted, Some("title"));
    let long = v1::CreateTaskRequest { title: "t".into(), description: text.clone(), ..task };
    refused(tasks.create(long).await, tonic::Code::ResourceExhausted, Some("description"));
    let send = v1::SendRequest { request_id: "2".into(), agent_id: "ben".into(), ..Default::default() };
    let mut messages = MessagesClient::new(daemon.channel.clone());
    let long = v1::SendRequest { subject: Some(title.clone()), body: "b".into(), ..send.clone() };
    refused(messages.send(long).await, tonic::Code::ResourceExhausted, Some("subject"));
    refused(messages.send(v1::SendRequest { body: text, ..send }).await, tonic::Code::ResourceExhausted, Some("body"));
    let stop = v1::StopAgentRequest {
        request_id: "3".into(),
        agent_id: "ben".into(),
        reason: Some(title.repeat(2)),
        ..Default::default()
    };
    let mut agents = AgentsClient::new(daemon.channel.clone());
    refused(agents.stop(stop).await, tonic::Code::ResourceExhausted, Some("reason"));
}

#[tokio::test]
async fn asks_to_a_deleted_agent_get_the_same_code_before_and_after_its_deletion() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let ask = |request_id: &str, body: &str| v1::AskRequest {
        request_id: request_id.into(),
        agent_id: "ben".into(),
        body: body.into(),
        timeout_ms: None,
    };
    // The agent works on the first ask; the second waits behind it.
    let mut asking = Vec::new();
    for (id, body) in [("1", "please wait"), ("2", "and then")] {
        let (mut messages, asked) = (MessagesClient::new(daemon.channel.clone()), ask(id, body));
        asking.push(tokio::spawn(async move { messages.ask(asked).await.unwrap().into_inner() }));
    }
    let mut agents = AgentsClient::new(daemon.channel.clone());
    loop {
        let got = agents.get(v1::GetAgentRequest { agent_id: "ben".into() }).await.unwrap().into_inner();
        if got.turn_id.is_some() && got.inbox_pending == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    let delete = v1::DeleteAgentRequest { request_id: "3".into(), agent_id: "ben".into(), reason: None };
    agents.delete(delete).await.unwrap();
    for asked in asking {
        let answer = asked.await.unwrap();
        assert_eq!((answer.status.as_str(), answer.error_code.as_deref()), ("failed", Some("not_found")), "{answer:?}");
    }
    let late =
        refused(MessagesClient::new(daemon.channel.clone()).ask(ask("4", "late")).await, tonic::Code::NotFound, None);
    assert_eq!(late.code, ghost_domain::Code::NotFound);
}

/// Reads a list to its end. Returns the row names of each page.
async fn pages(mut fetch: impl AsyncFnMut(String) -> (Vec<String>, String)) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let (rows, next) = fetch(cursor).await;
        assert!(!rows.is_empty(), "no page is empty");
        pages.push(rows);
        if next.is_empty() {
            return pages;
        }
        cursor = next;
    }
}

#[tokio::test]
async fn pages_are_limited_in_bytes_and_complete_together() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut tasks = TasksClient::new(daemon.channel.clone());
    for n in 0..40 {
        let task = v1::CreateTaskRequest {
            request_id: n.to_string(),
            title: n.to_string(),
            description: "x".repeat(60_000),
            owner: "ben".into(),
            ..Default::default()
        };
        tasks.create(task).await.unwrap();
    }
    let read = pages(async |cursor| {
        // A limit above the maximum is lowered to the maximum, not refused.
        let page = tasks.list(v1::ListTasksRequest { limit: 10_000, cursor, ..Default::default() }).await.unwrap();
        let page = page.into_inner();
        assert!(page.encoded_len() < 1_100_000, "{} bytes", page.encoded_len());
        (page.tasks.into_iter().map(|task| task.title).collect(), page.next_cursor)
    })
    .await;
    let all: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    assert_eq!((read.len(), read.concat()), (3, all));
}

#[tokio::test]
async fn the_entries_of_a_conversation_are_limited_in_bytes() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut conversations = ConversationsClient::new(daemon.channel.clone());
    let mut request =
        v1::SayRequest { agent_id: Some("ben".into()), content: "x".repeat(60_000), ..Default::default() };
    for n in 0..20 {
        request.request_id = n.to_string();
        let answer = conversations.say(request.clone()).await.unwrap().into_inner();
        request.conversation_id = answer.conversation.map(|conversation| conversation.conversation_id);
        request.agent_id = None;
    }
    let conversation_id = request.conversation_id.unwrap();
    let (mut seen, mut parts) = (Vec::new(), 0);
    loop {
        let get = v1::GetConversationRequest {
            conversation_id: conversation_id.clone(),
            after_seq: seen.last().copied(),
            limit: u32::MAX,
        };
        let part = conversations.get(get).await.unwrap().into_inner();
        assert!(part.encoded_len() < 1_100_000, "{} bytes", part.encoded_len());
        seen.extend(part.entries.iter().map(|entry| entry.seq));
        parts += 1;
        if !part.more {
            break;
        }
    }
    let whole: Vec<i64> = (1..=i64::try_from(seen.len()).unwrap()).collect();
    assert!(parts >= 2 && seen == whole && seen.len() >= 20, "{parts} parts, {seen:?}");
}

#[tokio::test]
async fn channels_schedules_conversations_and_tools_come_in_pages() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut chat = ChatClient::new(daemon.channel.clone());
    let mut schedules = SchedulesClient::new(daemon.channel.clone());
    let mut conversations = ConversationsClient::new(daemon.channel.clone());
    // Answers would change the order of conversations while they are listed.
    let pause = v1::PauseRequest { request_id: "p".into(), reason: None };
    WorldClient::new(daemon.channel.clone()).pause(pause).await.unwrap();
    for name in ["a", "b", "c"] {
        let channel = v1::CreateChannelRequest {
            request_id: format!("c{name}"),
            channel: name.into(),
            members: vec!["ben".into()],
            ..Default::default()
        };
        chat.create(channel).await.unwrap();
        let timer = v1::SetScheduleRequest {
            request_id: format!("s{name}"),
            kind: "timer".into(),
            agent_id: "ben".into(),
            name: name.into(),
            after_ms: Some(3_600_000),
            ..Default::default()
        };
        schedules.set(timer).await.unwrap();
        let say = v1::SayRequest {
            request_id: format!("v{name}"),
            agent_id: Some("ben".into()),
            content: name.into(),
            ..Default::default()
        };
        conversations.say(say).await.unwrap();
    }
    let read = pages(async |cursor| {
        let list = v1::ListChannelsRequest { limit: 2, cursor, ..Default::default() };
        let page = chat.list(list).await.unwrap().into_inner();
        (page.channels.into_iter().map(|row| row.channel).collect(), page.next_cursor)
    })
    .await;
    assert_eq!(read, [vec!["a", "b"], vec!["c"]]);
    let read = pages(async |cursor| {
        let list = v1::ListSchedulesRequest { limit: 2, cursor, ..Default::default() };
        let page = schedules.list(list).await.unwrap().into_inner();
        (page.schedules.into_iter().map(|row| row.name).collect(), page.next_cursor)
    })
    .await;
    assert_eq!(read, [vec!["a", "b"], vec!["c"]]);
    let mut read = pages(async |cursor| {
        let list = v1::ListConversationsRequest { limit: 2, cursor, ..Default::default() };
        let page = conversations.list(list).await.unwrap().into_inner();
        (page.conversations.into_iter().map(|row| row.conversation_id).collect(), page.next_cursor)
    })
    .await
    .concat();
    assert_eq!(read.len(), 3);
    read.sort();
    read.dedup();
    assert_eq!(read.len(), 3, "none is repeated");
    let mut tools = ToolsClient::new(daemon.channel.clone());
    let whole = v1::ListToolsRequest { agent_id: "ben".into(), ..Default::default() };
    let whole: Vec<String> =
        tools.list(whole).await.unwrap().into_inner().tools.into_iter().map(|row| row.name).collect();
    let read = pages(async |cursor| {
        let list = v1::ListToolsRequest { agent_id: "ben".into(), limit: 1, cursor, include_absent: false };
        let page = tools.list(list).await.unwrap().into_inner();
        (page.tools.into_iter().map(|row| row.name).collect(), page.next_cursor)
    })
    .await;
    assert_eq!((read.len(), read.concat()), (whole.len(), whole));
    // A cursor of another list is refused.
    let first = chat.list(v1::ListChannelsRequest { limit: 1, ..Default::default() }).await.unwrap().into_inner();
    let list = v1::ListSchedulesRequest { cursor: first.next_cursor, ..Default::default() };
    refused(schedules.list(list).await, tonic::Code::InvalidArgument, Some("cursor"));
}
