use ghost_proto::v1;
use ghost_proto::v1::budgets_client::BudgetsClient;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::tasks_client::TasksClient;
use tonic::Code;

use crate::rig::{Ground, refused};

fn task(request_id: &str, title: &str, priority: i32) -> v1::CreateTaskRequest {
    v1::CreateTaskRequest {
        request_id: request_id.into(),
        title: title.into(),
        owner: "ada".into(),
        priority,
        ..Default::default()
    }
}

#[tokio::test]
async fn tasks_are_created_listed_changed_and_kept_with_their_history() {
    let ground = Ground::new();
    let rig = ground.serve("s").await;
    let mut tasks = TasksClient::new(rig.channel.clone());
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
    assert_eq!((found.history.len(), notes.as_slice()), (3, ["changed: title, priority"].as_slice()));
    refused(tasks.create(task("7", "two\nlines", 0)).await, Code::InvalidArgument, Some("title"));
    let stranger = v1::CreateTaskRequest { owner: "adaa".into(), ..task("7", "t", 0) };
    assert!(refused(tasks.create(stranger).await, Code::NotFound, None).hint.unwrap().contains("ada"));
    let bad = v1::CreateTaskRequest { depends_on: vec!["x".into()], ..task("7", "t", 0) };
    refused(tasks.create(bad).await, Code::InvalidArgument, Some("depends_on"));
    let bad = v1::ListTasksRequest { cursor: "1/x".into(), ..Default::default() };
    refused(tasks.list(bad).await, Code::InvalidArgument, Some("cursor"));
}

#[tokio::test]
async fn budgets_are_set_listed_lifted_and_usage_is_summed() {
    let ground = Ground::new();
    let rig = ground.serve("s").await;
    let mut budgets = BudgetsClient::new(rig.channel.clone());
    let set = |request_id: &str, scope: &str, limit_tokens| v1::SetBudgetRequest {
        request_id: request_id.into(),
        scope: scope.into(),
        limit_tokens,
        ..Default::default()
    };
    let ask = v1::AskRequest { request_id: "a".into(), agent_id: "ada".into(), body: "hello".into(), timeout_ms: None };
    MessagesClient::new(rig.channel.clone()).ask(ask).await.unwrap();
    let budget = budgets.set(set("1", "agent:ada", Some(1_000))).await.unwrap().into_inner();
    assert_eq!((budget.limit_tokens, budget.limit_micros, budget.spent_tokens), (Some(1_000), None, 15));
    assert_eq!(budgets.set(set("1", "agent:ada", Some(1_000))).await.unwrap().into_inner(), budget);
    let root = "root:00000000-0000-0000-0000-00000000ffff";
    budgets.set(set("2", root, Some(5))).await.unwrap();
    let scopes = async |sort: Option<&str>| {
        let request = v1::ListBudgetsRequest { sort: sort.map(str::to_owned), ..Default::default() };
        let list = BudgetsClient::new(rig.channel.clone()).list(request).await.unwrap().into_inner().budgets;
        list.into_iter().map(|budget| budget.scope).collect::<Vec<_>>()
    };
    assert_eq!(scopes(None).await, ["agent:ada", "world"]);
    assert_eq!(scopes(Some("root")).await, [root]);
    let page = v1::ListBudgetsRequest { limit: 1, ..Default::default() };
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
    let sums = budgets.usage(v1::UsageRequest::default()).await.unwrap().into_inner().sums;
    assert_eq!((sums.len(), sums[0].calls, sums[0].tokens.unwrap().input), (1, 1, 10));
    let bad = v1::ListBudgetsRequest { sort: Some("galaxy".into()), ..Default::default() };
    refused(budgets.list(bad).await, Code::InvalidArgument, Some("sort"));
}
