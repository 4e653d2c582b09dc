//! Tests of the `Agents` service.

use ghost_domain::EventKind;
use ghost_proto::v1;
use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::tasks_client::TasksClient;
use ghost_proto::v1::turns_client::TurnsClient;
use tonic::Code;

use crate::test_daemon::{TestDaemon, new_world, refused, while_time_passes};

fn create(request_id: &str, agent_id: Option<&str>) -> v1::CreateAgentRequest {
    v1::CreateAgentRequest {
        request_id: request_id.into(),
        archetype: "worker".into(),
        agent_id: agent_id.map(str::to_owned),
        goal: Some("begin".into()),
        ..Default::default()
    }
}

#[tokio::test]
async fn an_agent_is_created_once_found_at_once_and_deleted_for_good() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut agents = AgentsClient::new(daemon.channel.clone());
    let first = agents.create(create("r1", None)).await.unwrap().into_inner();
    let again = agents.create(create("r1", None)).await.unwrap().into_inner();
    let id = first.agent.as_ref().unwrap().agent_id.clone();
    assert_eq!((id.as_str(), &again.agent.as_ref().unwrap().agent_id), ("worker-1", &id));
    refused(agents.create(create("r1", Some("other"))).await, Code::FailedPrecondition, None);
    refused(agents.create(create("r2", Some(&id))).await, Code::FailedPrecondition, None);
    let list = agents.list(v1::ListAgentsRequest::default()).await.unwrap().into_inner().agents;
    assert_eq!(list.iter().map(|agent| agent.agent_id.as_str()).collect::<Vec<_>>(), ["ada", "ben", "worker-1"]);
    assert!(list[2].owner.as_ref().unwrap().starts_with("operator:uid-"), "{:?}", list[2]);
    daemon.until(EventKind::TurnFinished, &id).await;
    let get = |agent_id: &str| v1::GetAgentRequest { agent_id: agent_id.into() };
    let details = agents.get(get(&id)).await.unwrap().into_inner();
    assert_eq!((details.inbox_pending, details.turn_id, details.model.as_deref()), (0, None, Some("test")));
    assert_eq!(details.access.as_deref(), Some("privileges"));
    assert!(details.tools > 0 && details.agent.unwrap().last_active_at_ms.is_some());
    let delete = v1::DeleteAgentRequest { request_id: "r3".into(), agent_id: id.clone(), reason: Some("done".into()) };
    let owned =
        v1::CreateTaskRequest { request_id: "t".into(), title: "t".into(), owner: id.clone(), ..Default::default() };
    let mut tasks = TasksClient::new(daemon.channel.clone());
    let stop = v1::StopAgentRequest { request_id: "s".into(), agent_id: id.clone(), ..Default::default() };
    agents.stop(stop).await.unwrap();
    let task = tasks.create(owned).await.unwrap().into_inner();
    let change = agents.delete(delete.clone()).await.unwrap().into_inner();
    assert_eq!(change.left, Some(v1::AgentLeft { mail_dropped: 1, tasks_left: 1, comes_back: false }));
    let gone = change.agent.unwrap();
    assert!(gone.deleted_at_ms.is_some() && gone.status_reason.unwrap().ends_with("done"));
    let again = agents.delete(delete).await.unwrap().into_inner();
    assert_eq!((again.left, again.changed), (change.left, true));
    let get_task = v1::GetTaskRequest { task_id: task.task_id };
    assert_eq!(tasks.get(get_task).await.unwrap().into_inner().task.unwrap().status, "pending");
    refused(agents.get(get(&id)).await, Code::NotFound, None);
    let list = agents.list(v1::ListAgentsRequest { deleted: true, ..Default::default() }).await.unwrap().into_inner();
    assert_eq!(list.agents.iter().filter(|agent| agent.deleted_at_ms.is_some()).count(), 1);
}

#[tokio::test]
async fn lists_are_paged_and_filtered() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut agents = AgentsClient::new(daemon.channel.clone());
    for deleted in [false, true] {
        let page = v1::ListAgentsRequest { limit: 1, deleted, ..Default::default() };
        let first = agents.list(page.clone()).await.unwrap().into_inner();
        assert_eq!((first.agents[0].agent_id.as_str(), first.next_cursor.is_empty()), ("ada", false));
        let second =
            agents.list(v1::ListAgentsRequest { cursor: first.next_cursor, ..page }).await.unwrap().into_inner();
        assert_eq!((second.agents[0].agent_id.as_str(), second.next_cursor.as_str()), ("ben", ""));
    }
    let stopped = v1::ListAgentsRequest { status: Some("stopped".into()), ..Default::default() };
    assert!(agents.list(stopped).await.unwrap().into_inner().agents.is_empty());
    let bad = v1::ListAgentsRequest { status: Some("asleep".into()), ..Default::default() };
    let refusal = refused(agents.list(bad).await, Code::InvalidArgument, Some("status"));
    assert!(refusal.hint.unwrap().contains("stopped"));
    // `zzz` would be a position after the last agent, and the page would be empty.
    for cursor in ["../x", "zzz"] {
        let bad = v1::ListAgentsRequest { cursor: cursor.into(), ..Default::default() };
        refused(agents.list(bad).await, Code::InvalidArgument, Some("cursor"));
    }
    let large = v1::ListAgentsRequest { limit: 501, ..Default::default() };
    assert!(agents.list(large).await.is_ok(), "a larger limit means the largest");
}

#[tokio::test]
async fn requests_that_would_widen_access_or_mislead_are_refused() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut agents = AgentsClient::new(daemon.channel.clone());
    let good = create("r", None);
    for (request, code, field) in [
        (
            v1::CreateAgentRequest { agent_id: Some("../x".into()), ..good.clone() },
            Code::InvalidArgument,
            Some("agent_id"),
        ),
        (
            v1::CreateAgentRequest { name: Some("a\u{1b}[2J".into()), ..good.clone() },
            Code::InvalidArgument,
            Some("name"),
        ),
        (v1::CreateAgentRequest { goal: Some(" ".into()), ..good.clone() }, Code::InvalidArgument, Some("goal")),
        (
            v1::CreateAgentRequest { overrides_json: "[]".into(), ..good.clone() },
            Code::InvalidArgument,
            Some("overrides_json"),
        ),
        (
            v1::CreateAgentRequest { goal: Some("x".repeat(70_000)), ..good.clone() },
            Code::ResourceExhausted,
            Some("goal"),
        ),
        (v1::CreateAgentRequest { overrides_json: "{\"laws\":1}".into(), ..good.clone() }, Code::InvalidArgument, None),
        (v1::CreateAgentRequest { archetype: "wroker".into(), ..good.clone() }, Code::NotFound, None),
        (v1::CreateAgentRequest { request_id: "a b".into(), ..good.clone() }, Code::InvalidArgument, None),
    ] {
        let refusal = refused(agents.create(request).await, code, field);
        assert!(refusal.hint.is_some(), "{refusal:?}");
    }
    // A refused request leaves no trace, so its request_id is free.
    assert!(agents.create(good).await.unwrap().into_inner().changed);
}

// covers: CP-04, WORLD-15
#[tokio::test]
async fn stopping_is_idempotent_and_the_end_of_the_grace_period_interrupts_a_turn() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut agents = AgentsClient::new(daemon.channel.clone());
    let stop = |request_id: &str, agent: &str, grace_ms| v1::StopAgentRequest {
        request_id: request_id.into(),
        agent_id: agent.into(),
        grace_ms,
        ..Default::default()
    };
    let stopped = agents.stop(stop("1", "ben", None)).await.unwrap().into_inner();
    assert!(stopped.changed && stopped.agent.unwrap().status == "stopped");
    assert!(!agents.stop(stop("2", "ben", None)).await.unwrap().into_inner().changed);
    let get = v1::GetAgentRequest { agent_id: "ben".into() };
    assert_eq!(agents.get(get.clone()).await.unwrap().into_inner().agent.unwrap().desired, "stopped");
    let start = v1::StartAgentRequest { request_id: "3".into(), agent_id: "ben".into() };
    assert!(agents.start(start).await.unwrap().into_inner().changed);
    assert_eq!(agents.get(get).await.unwrap().into_inner().agent.unwrap().status, "running");
    let mail = v1::SendRequest {
        request_id: "4".into(),
        agent_id: "ada".into(),
        body: "please wait".into(),
        ..Default::default()
    };
    MessagesClient::new(daemon.channel.clone()).send(mail).await.unwrap();
    daemon.until(EventKind::ModelStarted, "ada").await;
    let done =
        while_time_passes(&test_world.clock, agents.stop(stop("5", "ada", Some(1_000)))).await.unwrap().into_inner();
    assert_eq!(done.agent.unwrap().status, "stopped");
    let turns = v1::ListTurnsRequest { agent_id: Some("ada".into()), ..Default::default() };
    let turns = TurnsClient::new(daemon.channel.clone()).list(turns).await.unwrap().into_inner().turns;
    // The interrupted turn stays open and continues when the agent is started again.
    assert_eq!((turns.len(), turns[0].status.as_str()), (1, "open"));
}

// covers: ARCH-15, MEM-17
#[tokio::test]
async fn the_prompt_and_the_memory_are_shown() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut agents = AgentsClient::new(daemon.channel.clone());
    let prompt = agents.prompt(v1::AgentPromptRequest { agent_id: "ada".into() }).await.unwrap().into_inner();
    assert!(prompt.system.contains("Be exact.") && prompt.briefing.contains("Work."));
    assert_eq!((prompt.system_hash.len(), prompt.briefing_hash.len()), (64, 64));
    let bytes = |part: &str| {
        let sections: Vec<_> = prompt.sections.iter().filter(|section| section.part == part).collect();
        assert!(sections.iter().all(|section| section.estimated_tokens == section.bytes.div_ceil(3)), "{sections:?}");
        // Two line ends separate one section from the next.
        sections.iter().map(|section| section.bytes as usize + 2).sum::<usize>().saturating_sub(2)
    };
    assert_eq!((bytes("system"), bytes("briefing")), (prompt.system.len(), prompt.briefing.len()));
    let tools = prompt.sections.last().unwrap();
    assert_eq!((tools.part.as_str(), tools.name.as_str()), ("request", "tools"));
    assert!(tools.bytes > 100 && tools.bytes as usize <= prompt.tools_json.len(), "{tools:?}");
    assert!(serde_json::from_str::<Vec<serde_json::Value>>(&prompt.tools_json).unwrap().len() > 1);
    let inspect = |path: Option<&str>, limit| v1::InspectAgentRequest {
        agent_id: "ada".into(),
        path: path.map(str::to_owned),
        limit,
    };
    assert!(agents.inspect(inspect(None, 0)).await.unwrap().into_inner().files.is_empty());
    let memory = test_world.files.path("data").join("agents/ada/memory");
    std::fs::create_dir_all(memory.join("deep")).unwrap();
    std::fs::write(memory.join("deep/notes.md"), "grüße").unwrap();
    std::fs::write(test_world.files.path("data").join("token"), "secret").unwrap();
    std::os::unix::fs::symlink(test_world.files.path("data").join("token"), memory.join("link")).unwrap();
    let files = agents.inspect(inspect(None, 0)).await.unwrap().into_inner().files;
    assert_eq!(
        files.iter().map(|file| (file.path.as_str(), file.size_bytes)).collect::<Vec<_>>(),
        [("deep/notes.md", 7)]
    );
    let read = agents.inspect(inspect(Some("deep/notes.md"), 3)).await.unwrap().into_inner();
    assert!(read.truncated && "grüße".starts_with(read.content.as_deref().unwrap().trim_end_matches('\u{fffd}')));
    refused(agents.inspect(inspect(Some("link"), 0)).await, Code::NotFound, None);
    refused(agents.inspect(inspect(Some("../../../token"), 0)).await, Code::InvalidArgument, Some("path"));
}
