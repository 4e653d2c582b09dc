//! Tests of the `Tasks` and `Budgets` services.

use ghost_proto::v1;
use ghost_proto::v1::budgets_client::BudgetsClient;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::tasks_client::TasksClient;
use ghost_proto::v1::turns_client::TurnsClient;
use ghost_proto::v1::world_client::WorldClient;
use tonic::Code;

use crate::test_daemon::{TestDaemon, new_world, refused};

fn task(request_id: &str, title: &str, priority: i32) -> v1::CreateTaskRequest {
    v1::CreateTaskRequest {
        request_id: request_id.into(),
        title: title.into(),
        owner: "ada".into(),
        priority,
        ..Default::default()
    }
}

// covers: TASK-01, TASK-04
#[tokio::test]
async fn tasks_are_created_listed_and_changed_with_a_history() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut tasks = TasksClient::new(daemon.channel.clone());
    let low = tasks.create(task("1", "low", -1)).await.unwrap().into_inner();
    assert_eq!(tasks.create(task("1", "low", -1)).await.unwrap().into_inner(), low);
    let high = tasks.create(task("2", "high", 9)).await.unwrap().into_inner();
    assert!(high.creator.starts_with("operator:uid-"));
    let page = v1::ListTasksRequest { limit: 1, ..Default::default() };
    let first = tasks.list(page.clone()).await.unwrap().into_inner();
    assert_eq!(first.tasks[0].task_id, high.task_id);
    let second = tasks.list(v1::ListTasksRequest { cursor: first.next_cursor, ..page }).await.unwrap().into_inner();
    assert_eq!((second.tasks[0].task_id.as_str(), second.next_cursor.as_str()), (low.task_id.as_str(), ""));
    let update = |request_id: &str| v1::UpdateTaskRequest {
        request_id: request_id.into(),
        task_id: low.task_id.clone(),
        ..Default::default()
    };
    let renamed = v1::UpdateTaskRequest { title: Some("new".into()), priority: Some(3), ..update("3") };
    let renamed = tasks.update(renamed).await.unwrap().into_inner();
    assert_eq!((renamed.title.as_str(), renamed.priority), ("new", 3));
    let done = v1::UpdateTaskRequest { status: Some("done".into()), result: Some("well".into()), ..update("4") };
    assert_eq!(tasks.update(done).await.unwrap().into_inner().status, "done");
    let again = v1::UpdateTaskRequest { status: Some("pending".into()), ..update("5") };
    refused(tasks.update(again).await, Code::FailedPrecondition, None);
    refused(tasks.update(update("6")).await, Code::InvalidArgument, None);
    let found = tasks.get(v1::GetTaskRequest { task_id: low.task_id.clone() }).await.unwrap().into_inner();
    let notes: Vec<&str> = found.history.iter().filter_map(|event| event.note.as_deref()).collect();
    assert_eq!((found.history.len(), notes.len()), (3, 1));
    assert!(notes[0].contains("title, priority"), "{notes:?}");
    refused(tasks.create(task("7", "two\nlines", 0)).await, Code::InvalidArgument, Some("title"));
    // An id that lost a character.
    let cut = low.task_id[..35].to_owned();
    refused(tasks.get(v1::GetTaskRequest { task_id: cut.clone() }).await, Code::InvalidArgument, Some("task_id"));
    let depends = v1::CreateTaskRequest { depends_on: vec![cut.clone()], ..task("8", "t", 0) };
    refused(tasks.create(depends).await, Code::InvalidArgument, Some("depends_on"));
    let update = v1::UpdateTaskRequest { task_id: cut, note: Some("x".into()), ..update("9") };
    refused(tasks.update(update).await, Code::InvalidArgument, Some("task_id"));
    let unknown_owner = v1::GetTaskRequest { task_id: "ffffffff-ffff-4fff-bfff-ffffffffffff".into() };
    assert!(refused(tasks.get(unknown_owner).await, Code::NotFound, None).hint.is_some());
    let unknown_owner = v1::CreateTaskRequest { owner: "adaa".into(), ..task("7", "t", 0) };
    assert!(refused(tasks.create(unknown_owner).await, Code::NotFound, None).hint.unwrap().contains("ada"));
    let bad = v1::CreateTaskRequest { depends_on: vec!["x".into()], ..task("7", "t", 0) };
    refused(tasks.create(bad).await, Code::InvalidArgument, Some("depends_on"));
    let bad = v1::ListTasksRequest { cursor: "1/x".into(), ..Default::default() };
    refused(tasks.list(bad).await, Code::InvalidArgument, Some("cursor"));
}

#[tokio::test]
async fn budgets_are_set_listed_lifted_and_usage_is_summed() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut budgets = BudgetsClient::new(daemon.channel.clone());
    let set = |request_id: &str, scope: &str, limit_tokens| v1::SetBudgetRequest {
        request_id: request_id.into(),
        scope: scope.into(),
        limit_tokens,
        ..Default::default()
    };
    let ask = v1::AskRequest { request_id: "a".into(), agent_id: "ada".into(), body: "hello".into(), timeout_ms: None };
    MessagesClient::new(daemon.channel.clone()).ask(ask).await.unwrap();
    let budget = budgets.set(set("1", "agent:ada", Some(1_000))).await.unwrap().into_inner();
    assert_eq!((budget.limit_tokens, budget.limit_micros, budget.spent_tokens), (Some(1_000), None, 15));
    assert!(budget.passed.is_empty());
    // A limit that is exceeded as soon as it is set is reported, in the answer and in the list.
    let passed = budgets.set(set("0", "agent:ada/day", Some(15))).await.unwrap().into_inner();
    assert_eq!((passed.spent_tokens, passed.passed), (15, vec!["tokens".to_owned()]));
    let days = v1::ListBudgetsRequest { sort: Some("day".into()), ..Default::default() };
    assert_eq!(budgets.list(days).await.unwrap().into_inner().budgets[0].passed, ["tokens"]);
    budgets.set(v1::SetBudgetRequest { clear_tokens: true, ..set("00", "agent:ada/day", None) }).await.unwrap();
    assert_eq!(budgets.set(set("1", "agent:ada", Some(1_000))).await.unwrap().into_inner(), budget);
    let turns =
        TurnsClient::new(daemon.channel.clone()).list(v1::ListTurnsRequest::default()).await.unwrap().into_inner();
    let root = format!("root:{}", turns.turns[0].root_id);
    let root = root.as_str();
    budgets.set(set("2", root, Some(5))).await.unwrap();
    let scopes = async |sort: Option<&str>| {
        let request = v1::ListBudgetsRequest { sort: sort.map(str::to_owned), ..Default::default() };
        let list = BudgetsClient::new(daemon.channel.clone()).list(request).await.unwrap().into_inner().budgets;
        list.into_iter().map(|budget| budget.scope).collect::<Vec<_>>()
    };
    assert_eq!(scopes(None).await, ["agent:ada", "agent:ada/day", "world"]);
    assert_eq!(scopes(Some("root")).await, [root]);
    let page = v1::ListBudgetsRequest { limit: 2, ..Default::default() };
    let first = budgets.list(page.clone()).await.unwrap().into_inner();
    let next = v1::ListBudgetsRequest { cursor: first.next_cursor, ..page };
    assert_eq!(budgets.list(next).await.unwrap().into_inner().budgets[0].scope, "world");
    let lifted = v1::SetBudgetRequest { clear_tokens: true, ..set("3", "agent:ada", None) };
    assert_eq!(budgets.set(lifted).await.unwrap().into_inner().limit_tokens, None);
    let both = v1::SetBudgetRequest { clear_tokens: true, ..set("4", "world", Some(1)) };
    refused(budgets.set(both).await, Code::InvalidArgument, Some("limit_tokens"));
    refused(budgets.set(set("4", "world", Some(u64::MAX))).await, Code::InvalidArgument, Some("limit_tokens"));
    refused(budgets.set(set("4", "galaxy", Some(1))).await, Code::InvalidArgument, Some("scope"));
    refused(budgets.set(set("4", "team:none", Some(1))).await, Code::NotFound, None);
    let near = refused(budgets.set(set("4", "agent:adda", Some(1))).await, Code::NotFound, None);
    assert!(near.hint.as_deref().unwrap().contains("`ada`"));
    for nothing in ["root:", "root:ada", "team:", "agent:A B"] {
        refused(budgets.set(set("4", nothing, Some(1))).await, Code::InvalidArgument, Some("scope"));
    }
    let sums = budgets.usage(v1::UsageRequest::default()).await.unwrap().into_inner().sums;
    assert_eq!((sums.len(), sums[0].calls, sums[0].tokens.unwrap().input), (1, 1, 10));
    let bad = v1::ListBudgetsRequest { sort: Some("galaxy".into()), ..Default::default() };
    let refusal = refused(budgets.list(bad).await, Code::InvalidArgument, Some("sort"));
    assert!(refusal.hint.unwrap().contains("world, team, agent, root, day"));
}

#[tokio::test]
async fn a_root_gets_a_budget_only_if_a_record_carries_it() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut budgets = BudgetsClient::new(daemon.channel.clone());
    let set = |request_id: &str, root: &str| v1::SetBudgetRequest {
        request_id: request_id.into(),
        scope: format!("root:{root}"),
        limit_tokens: Some(5),
        ..Default::default()
    };
    let nowhere = "ffffffff-ffff-ffff-ffff-ffffffffffff";
    let refusal = refused(budgets.set(set("1", nowhere)).await, Code::NotFound, None);
    assert!(refusal.message.contains(nowhere) && refusal.hint.is_some(), "{refusal}");
    // A root is known if a pending message, a task or an ended turn carries it.
    WorldClient::new(daemon.channel.clone())
        .pause(v1::PauseRequest { request_id: "p".into(), reason: None })
        .await
        .unwrap();
    let mail =
        v1::SendRequest { request_id: "2".into(), agent_id: "ben".into(), body: "hello".into(), ..Default::default() };
    let mut messages = MessagesClient::new(daemon.channel.clone());
    let waiting = messages.send(mail).await.unwrap().into_inner().root_id;
    let first = budgets.set(set("4", &waiting)).await.unwrap().into_inner();
    let task = TasksClient::new(daemon.channel.clone()).create(task("5", "t", 0)).await.unwrap().into_inner();
    budgets.set(set("6", &task.root_id)).await.unwrap();
    WorldClient::new(daemon.channel.clone()).resume(v1::ResumeRequest { request_id: "r".into() }).await.unwrap();
    assert_eq!(budgets.set(set("4", &waiting)).await.unwrap().into_inner(), first);
}

#[tokio::test]
async fn paging_reaches_every_task() {
    let test_world = new_world();
    let daemon = TestDaemon::serve(&test_world, "s").await;
    let mut tasks = TasksClient::new(daemon.channel.clone());
    let one = tasks.create(task("1", "one", 0)).await.unwrap().into_inner();
    let task_id = one.task_id.parse().unwrap();
    let copies = daemon.world.store().write(move |w| {
        let one = w.task_get(task_id)?.unwrap();
        for n in 0..1_000_u128 {
            let copy = ghost_domain::Task {
                task_id: ghost_domain::TaskId(uuid::Uuid::from_u128(n + (1 << 64))),
                owner: "ben".parse().unwrap(),
                status: ghost_domain::TaskStatus::Done,
                ..one.clone()
            };
            w.task_put(&copy)?;
        }
        Ok::<_, ghost_store::StoreError>(())
    });
    copies.await.unwrap();
    let mut request = v1::ListTasksRequest { limit: 400, ..Default::default() };
    let mut rows = 0;
    loop {
        let page = tasks.list(request.clone()).await.unwrap().into_inner();
        rows += page.tasks.len();
        if page.next_cursor.is_empty() {
            break;
        }
        request.cursor = page.next_cursor;
    }
    assert_eq!(rows, 1_001);
    let ada = v1::ListTasksRequest { owner: Some("ada".into()), ..Default::default() };
    let ada = tasks.list(ada).await.unwrap().into_inner();
    assert_eq!(ada.tasks.len(), 1);
}
