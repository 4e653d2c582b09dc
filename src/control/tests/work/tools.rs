//! Tests of the `Tools` service.

use ghost_domain::EventKind;
use ghost_proto::v1;
use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::ledger_client::LedgerClient;
use ghost_proto::v1::tools_client::ToolsClient;
use tonic::Code;

use crate::test_daemon::{TestDaemon, new_world, refusal, refused, while_time_passes};

fn call(request_id: &str, tool: &str, arguments: &str) -> v1::CallToolRequest {
    v1::CallToolRequest {
        request_id: request_id.into(),
        agent_id: "ada".into(),
        tool: tool.into(),
        arguments_json: arguments.into(),
        timeout_ms: None,
    }
}

// covers: CP-03
#[tokio::test]
async fn tools_are_listed_briefed_and_called_once() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut tools = ToolsClient::new(daemon.channel.clone());
    let list = tools
        .list(v1::ListToolsRequest { agent_id: "ada".into(), ..Default::default() })
        .await
        .unwrap()
        .into_inner()
        .tools;
    let brief = tools.brief(v1::BriefToolsRequest { agent_id: "ada".into() }).await.unwrap().into_inner().text;
    assert_eq!(brief.lines().count(), list.len());
    let read = list.iter().find(|tool| tool.name == "workspace.read").unwrap();
    assert_eq!((read.label.as_str(), read.section.as_str()), ("Read a file", "fs"));
    assert!(brief.starts_with(&format!("- {}: {}", list[0].name, list[0].description)));
    let list_agents = call("1", "syscall.agent.list", "");
    let done = tools.call(list_agents.clone()).await.unwrap().into_inner();
    assert_eq!((done.status.as_str(), done.refusal_json.as_deref()), ("ok", None));
    assert!(done.result_json.contains("\"ben\"") && !done.call_id.is_empty());
    assert_eq!(tools.call(list_agents).await.unwrap().into_inner(), done);
    let refused_call = tools.call(call("2", "workspace.read", "{\"path\":\"no/such\"}")).await.unwrap().into_inner();
    assert_eq!(refused_call.status, "failed");
    assert!(refused_call.refusal_json.unwrap().contains("\"code\":\"not_found\""));
    let mut ledger = LedgerClient::new(daemon.channel.clone());
    let newest = v1::ListLedgerRequest { limit: 1, ..Default::default() };
    let page = ledger.list(newest.clone()).await.unwrap().into_inner();
    assert_eq!((page.rows[0].tool.as_str(), page.rows[0].error_code.as_deref()), ("workspace.read", Some("not_found")));
    assert!(page.rows[0].result.as_ref().unwrap().contains("no/such"), "the error, not `null`: {:?}", page.rows[0]);
    let next = v1::ListLedgerRequest { cursor: page.next_cursor, ..newest };
    let page = ledger.list(next).await.unwrap().into_inner();
    assert_eq!((page.rows[0].call_id.as_str(), page.next_cursor.as_str()), (done.call_id.as_str(), ""));
    let failed = v1::ListLedgerRequest { status: Some("failed".into()), ..Default::default() };
    assert_eq!(ledger.list(failed).await.unwrap().into_inner().rows.len(), 1);
    let bad = v1::ListLedgerRequest { since_at_ms: Some(-1), ..Default::default() };
    refused(ledger.list(bad).await, Code::InvalidArgument, Some("since_at_ms"));
}

#[tokio::test]
async fn the_id_of_an_agent_in_the_world_file_is_reserved() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let delete = v1::DeleteAgentRequest { request_id: "d".into(), agent_id: "ben".into(), reason: None };
    let gone = AgentsClient::new(daemon.channel.clone()).delete(delete).await.unwrap().into_inner();
    assert!(gone.left.unwrap().comes_back, "the world file names it");
    let mut tools = ToolsClient::new(daemon.channel.clone());
    let mut create = async |request_id: &str, arguments: &str| {
        let made = tools.call(call(request_id, "syscall.agent.create", arguments)).await.unwrap().into_inner();
        (made.status, made.refusal_json.unwrap_or_default())
    };
    let (status, refusal) = create("1", r#"{"archetype":"worker","agent_id":"ben"}"#).await;
    assert!(status == "failed" && refusal.contains("`ben`"), "{status}: {refusal}");
    assert_eq!(create("2", r#"{"archetype":"worker","agent_id":"dan"}"#).await.0, "ok");
}

#[tokio::test]
async fn invalid_calls_are_refused() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut tools = ToolsClient::new(daemon.channel.clone());
    let refusal = refused(tools.call(call("1", "workspace.raed", "{}")).await, Code::NotFound, None);
    assert!(refusal.hint.unwrap().contains("workspace.read"));
    refused(tools.call(call("2", "workspace.read", "{")).await, Code::InvalidArgument, Some("arguments_json"));
    refused(tools.call(call("2", "workspace.read", "7")).await, Code::InvalidArgument, Some("arguments_json"));
    for (id, arguments) in [("4", r#"{"path":"a.md","path":"b.md"}"#), ("5", r#"{"path":{"x":1,"x":2}}"#)] {
        let refusal = refused(
            tools.call(call(id, "workspace.read", arguments)).await,
            Code::InvalidArgument,
            Some("arguments_json"),
        );
        assert!(refusal.message.contains("twice") && refusal.hint.is_some(), "{refusal}");
    }
    let unknown_agent = v1::CallToolRequest { agent_id: "adb".into(), ..call("3", "workspace.read", "{}") };
    refused(tools.call(unknown_agent).await, Code::NotFound, None);
    refused(
        tools.list(v1::ListToolsRequest { agent_id: "A".into(), ..Default::default() }).await,
        Code::InvalidArgument,
        Some("agent_id"),
    );
}

#[tokio::test]
async fn a_call_that_outlives_its_caller_or_its_daemon_reports_it() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "one").await;
    let mut tools = ToolsClient::new(daemon.channel.clone());
    let never_ending = v1::CallToolRequest { timeout_ms: Some(1_000), ..call("1", "test.hold", "{}") };
    let timed_out = while_time_passes(&test_world.clock, tools.call(never_ending.clone())).await;
    assert!(refused(timed_out, Code::DeadlineExceeded, None).hint.unwrap().contains("request_id"));
    // A repetition waits for the same call, which ends at its own deadline.
    let ended = while_time_passes(&test_world.clock, async {
        loop {
            match tools.call(never_ending.clone()).await {
                Err(status) if refusal(&status).code == ghost_domain::Code::Timeout => {}
                ended => return ended,
            }
        }
    })
    .await
    .unwrap()
    .into_inner();
    assert_eq!(ended.status, "failed");
    let started = call("2", "test.hold", "{}");
    let mut caller = tools.clone();
    let calling = tokio::spawn({
        let started = started.clone();
        async move { caller.call(started).await }
    });
    wait_until_two_started(&daemon).await;
    // Another daemon takes over the disk during the call.
    let second = TestDaemon::serve(&test_world, "two").await;
    let mut tools = ToolsClient::new(second.channel.clone());
    refused(tools.call(started).await, Code::Unknown, None);
    calling.abort();
}

/// Waits until two tool calls have started. The clock does not advance.
async fn wait_until_two_started(daemon: &crate::test_daemon::TestDaemon) {
    let filter = ghost_domain::event::EventFilter {
        kinds: vec![EventKind::ToolStarted.as_str().into()],
        agent_id: Some("ada".parse().unwrap()),
        channel: None,
    };
    let mut feed =
        ghost_operations::feed::Subscription::open(daemon.world.store(), Some(0), filter, true).await.unwrap();
    for _ in 0..2 {
        feed.next().await.unwrap().unwrap();
    }
}
