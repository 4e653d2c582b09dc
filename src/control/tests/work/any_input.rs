//! Property tests: the daemon answers any request with a message, or with a refusal that has a reason.

use ghost_proto::v1;
use ghost_proto::v1::agents_client::AgentsClient;
use ghost_proto::v1::budgets_client::BudgetsClient;
use ghost_proto::v1::knowledge_client::KnowledgeClient;
use ghost_proto::v1::ledger_client::LedgerClient;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::state_client::StateClient;
use ghost_proto::v1::tasks_client::TasksClient;
use ghost_proto::v1::tools_client::ToolsClient;
use ghost_proto::v1::turns_client::TurnsClient;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tonic::{Code, Response, Status};

use crate::test_daemon::{TestDaemon, new_world, refusal};

/// Random text, and text that is nearly valid.
fn texts() -> impl Strategy<Value = Vec<String>> {
    let word = prop_oneof![
        any::<String>(),
        "[a-z0-9./-]{0,12}",
        Just("ada".to_owned()),
        Just("worker".to_owned()),
        Just("open".to_owned()),
        Just("00000000-0000-0000-0000-000000000001".to_owned()),
        Just("{}".to_owned()),
        Just("9.0000000000000000000000000000000f".to_owned()),
        Just("workspace.read".to_owned()),
        Just("world".to_owned()),
    ];
    proptest::collection::vec(word, 6)
}

fn check<T>(what: &str, answer: Result<Response<T>, Status>) -> Result<(), TestCaseError> {
    if let Err(status) = answer {
        let refusal = refusal(&status);
        prop_assert!(!matches!(status.code(), Code::Internal | Code::Unknown), "{what}: {refusal}");
        prop_assert!(!refusal.message.is_empty(), "{}", what);
    }
    Ok(())
}

async fn knowledge_and_state(daemon: &TestDaemon, t: &[String], n: i64) -> Result<(), TestCaseError> {
    let (a, b, c, d, e, f) = (&t[0], &t[1], &t[2], &t[3], &t[4], &t[5]);
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)] // any number will do
    let limit = n as u32;
    let some = |text: &String| Some(text.clone()).filter(|_| n % 3 == 0);
    let mut knowledge = KnowledgeClient::new(daemon.channel.clone());
    let write = v1::WriteKnowledgeRequest {
        request_id: a.clone(),
        entry_id: b.clone(),
        title: c.clone(),
        content: d.clone(),
        tags: vec![e.clone()],
        readers: vec![f.clone()],
        writers: Vec::new(),
        expected_version: Some(n).filter(|n| n % 2 == 0),
        as_agent: some(e),
        clear: vec!["writers".into()],
    };
    check("write knowledge", knowledge.write(write).await)?;
    let list = v1::ListKnowledgeRequest { tag: some(a), as_agent: some(b), limit, cursor: c.clone(), query: some(d) };
    check("list knowledge", knowledge.list(list).await)?;
    let read = v1::ReadKnowledgeRequest { entry_id: a.clone(), as_agent: some(b), versions: n % 2 == 0 };
    check("read knowledge", knowledge.read(read).await)?;
    let delete = v1::DeleteKnowledgeRequest {
        request_id: c.clone(),
        entry_id: b.clone(),
        expected_version: Some(n).filter(|n| n % 2 == 0),
        as_agent: some(d),
    };
    check("delete knowledge", knowledge.delete(delete).await)?;
    let mut state = StateClient::new(daemon.channel.clone());
    let set = v1::SetStateRequest {
        request_id: a.clone(),
        key: b.clone(),
        value_json: c.clone(),
        expected_version: Some(n).filter(|n| n % 2 == 0),
        as_agent: some(d),
    };
    check("set state", state.set(set).await)?;
    check("get state", state.get(v1::GetStateRequest { key: b.clone() }).await)?;
    check("list state", state.list(v1::ListStateRequest { prefix: a.clone(), limit, cursor: b.clone() }).await)
}

async fn everything(daemon: &TestDaemon, t: &[String], n: i64) -> Result<(), TestCaseError> {
    let (a, b, c, d, e, f) = (&t[0], &t[1], &t[2], &t[3], &t[4], &t[5]);
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)] // any number will do
    let (limit, unsigned) = (n as u32, n as u64);
    let mut agents = AgentsClient::new(daemon.channel.clone());
    let some = |text: &String| Some(text.clone());
    let list =
        v1::ListAgentsRequest { status: some(a), archetype: some(b), deleted: n % 2 == 0, limit, cursor: c.clone() };
    check("list agents", agents.list(list).await)?;
    check("get agent", agents.get(v1::GetAgentRequest { agent_id: a.clone() }).await)?;
    let create = v1::CreateAgentRequest {
        request_id: a.clone(),
        archetype: b.clone(),
        agent_id: some(c),
        name: some(d),
        goal: some(e),
        overrides_json: f.clone(),
    };
    check("create agent", agents.create(create).await)?;
    check("start agent", agents.start(v1::StartAgentRequest { request_id: b.clone(), agent_id: a.clone() }).await)?;
    check("prompt", agents.prompt(v1::AgentPromptRequest { agent_id: b.clone() }).await)?;
    check("inspect", agents.inspect(v1::InspectAgentRequest { agent_id: a.clone(), path: some(b), limit }).await)?;
    knowledge_and_state(daemon, t, n).await?;
    let mut turns = TurnsClient::new(daemon.channel.clone());
    let list = v1::ListTurnsRequest { agent_id: some(a), status: some(b), root_id: some(c), limit, cursor: d.clone() };
    check("list turns", turns.list(list).await)?;
    check("list turns", turns.list(v1::ListTurnsRequest { cursor: d.clone(), ..Default::default() }).await)?;
    check("get turn", turns.get(v1::GetTurnRequest { turn_id: a.clone(), limit, after_seq: n }).await)?;
    let cancel = v1::CancelTurnRequest { request_id: a.clone(), turn_id: b.clone(), reason: some(c) };
    check("cancel turn", turns.cancel(cancel).await)?;
    let mut messages = MessagesClient::new(daemon.channel.clone());
    let send = v1::SendRequest {
        request_id: a.clone(),
        agent_id: b.clone(),
        body: c.clone(),
        subject: some(d),
        attachments: vec![e.clone(), f.clone()],
    };
    check("send", messages.send(send).await)?;
    let list = v1::ListDeadRequest { agent_id: some(a), status: some(b), limit, cursor: c.clone() };
    check("list dead", messages.list_dead(list).await)?;
    check("get dead", messages.get_dead(v1::GetDeadRequest { dead_letter_id: a.clone() }).await)?;
    let mut tasks = TasksClient::new(daemon.channel.clone());
    let create = v1::CreateTaskRequest {
        request_id: a.clone(),
        title: b.clone(),
        description: c.clone(),
        owner: d.clone(),
        priority: i32::MIN,
        depends_on: vec![e.clone()],
        parent_id: some(f),
        due_at_ms: Some(n),
    };
    check("create task", tasks.create(create).await)?;
    let list = v1::ListTasksRequest { owner: None, status: None, limit, cursor: format!("{n}/{a}") };
    check("list tasks", tasks.list(list).await)?;
    let update =
        v1::UpdateTaskRequest { request_id: a.clone(), task_id: b.clone(), title: some(c), ..Default::default() };
    check("update task", tasks.update(update).await)?;
    let mut budgets = BudgetsClient::new(daemon.channel.clone());
    let set = v1::SetBudgetRequest {
        request_id: a.clone(),
        scope: b.clone(),
        limit_tokens: None,
        limit_micros: Some(unsigned | 1 << 40),
        ..Default::default()
    };
    check("set budget", budgets.set(set).await)?;
    check("budgets", budgets.list(v1::ListBudgetsRequest { sort: None, limit, cursor: a.clone() }).await)?;
    check(
        "usage",
        budgets.usage(v1::UsageRequest { agent_id: some(a), since_at_ms: Some(n), limit, cursor: b.clone() }).await,
    )?;
    let list =
        v1::ListLedgerRequest { tool: some(a), since_at_ms: Some(n), limit, cursor: b.clone(), ..Default::default() };
    check("ledger", LedgerClient::new(daemon.channel.clone()).list(list).await)?;
    let mut tools = ToolsClient::new(daemon.channel.clone());
    check(
        "tools",
        tools.list(v1::ListToolsRequest { agent_id: a.clone(), limit, cursor: b.clone(), include_absent: true }).await,
    )?;
    let call = v1::CallToolRequest {
        request_id: a.clone(),
        agent_id: b.clone(),
        tool: c.clone(),
        arguments_json: d.clone(),
        timeout_ms: Some(unsigned),
    };
    check("call", tools.call(call).await)
}

#[test]
fn no_request_breaks_the_daemon() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let test_world = new_world();
    let daemon = runtime.block_on(TestDaemon::serve(&test_world, "s"));
    let mut runner = TestRunner::new(Config { cases: 64, failure_persistence: None, ..Config::default() });
    runner.run(&(texts(), any::<i64>()), |(texts, n)| runtime.block_on(everything(&daemon, &texts, n))).unwrap();
}
