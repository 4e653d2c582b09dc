//! Tasks that depend on one another.

use ghost_domain::{Code, Task, TaskId, TaskStatus};
use serde_json::json;

use super::rig::{Rig, code, id, party, read, write};
use crate::Result;
use crate::mail::Chain;
use crate::tasks::{self, NewTask, TaskChange};

async fn create(rig: &Rig, owner: &str, depends_on: &[TaskId]) -> Task {
    let (owner, depends_on) = (id(owner), depends_on.to_vec());
    write!(rig, |w, ctx| {
        let new = NewTask {
            title: "t".into(),
            description: String::new(),
            owner,
            priority: 0,
            depends_on,
            parent_id: None,
            due_at: None,
            chain: Chain::root(&ctx),
        };
        tasks::create(w, &ctx, &party("ada"), new).await
    })
    .unwrap()
}

async fn change(rig: &Rig, task: &Task, change: TaskChange) -> Result<Task> {
    let task_id = task.task_id;
    write!(rig, |w, ctx| tasks::update(w, &ctx, &party("ada"), task_id, change, Chain::root(&ctx)).await)
}

async fn set(rig: &Rig, task: &Task, status: TaskStatus) -> Result<Task> {
    change(rig, task, TaskChange { status: Some(status), ..TaskChange::default() }).await
}

async fn reopen(rig: &Rig, task: &Task) {
    let again = TaskChange {
        status: Some(TaskStatus::Pending),
        note: Some("more came".into()),
        reopen: true,
        ..TaskChange::default()
    };
    change(rig, task, again).await.unwrap();
}

fn on(depends_on: &[&Task]) -> TaskChange {
    TaskChange { depends_on: Some(depends_on.iter().map(|task| task.task_id).collect()), ..TaskChange::default() }
}

async fn status(rig: &Rig, task: &Task) -> TaskStatus {
    let task_id = task.task_id;
    read!(rig, |r| r.task_get(task_id).await?.unwrap().status)
}

// covers: TASK-06
#[tokio::test]
async fn changed_dependencies_block_and_unblock() {
    let rig = Rig::new().await;
    let (first, second) = (create(&rig, "ada", &[]).await, create(&rig, "ada", &[]).await);
    let task = create(&rig, "bob", &[]).await;
    assert_eq!(rig.inbox("bob").await.len(), 1);
    let blocked = change(&rig, &task, on(&[&first, &second])).await.unwrap();
    assert_eq!((blocked.status, blocked.depends_on.len()), (TaskStatus::Blocked, 2));
    set(&rig, &first, TaskStatus::Done).await.unwrap();
    assert_eq!(status(&rig, &task).await, TaskStatus::Blocked);
    // The remaining dependency was cancelled; without it the task can start.
    set(&rig, &second, TaskStatus::Failed).await.unwrap();
    assert_eq!(status(&rig, &task).await, TaskStatus::Blocked);
    let free = change(&rig, &task, on(&[&first])).await.unwrap();
    assert_eq!(free.status, TaskStatus::Pending);
    assert_eq!(rig.inbox("bob").await.len(), 2, "its owner is notified that it can start");
    let task_id = task.task_id;
    let history: Vec<_> = read!(rig, |r| r.task_events(task_id, 100).await?);
    assert!(history.last().unwrap().note.as_ref().unwrap().contains(&first.task_id.to_string()));
    // A task that someone has blocked for another reason stays blocked.
    set(&rig, &task, TaskStatus::Blocked).await.unwrap();
    assert_eq!(change(&rig, &task, on(&[])).await.unwrap().status, TaskStatus::Blocked);
    set(&rig, &task, TaskStatus::Pending).await.unwrap();
    set(&rig, &task, TaskStatus::Done).await.unwrap();
    assert_eq!(code(change(&rig, &task, on(&[&first])).await), Code::Conflict, "it has ended");
}

// covers: TASK-06
#[tokio::test]
async fn no_task_waits_for_itself() {
    let rig = Rig::new().await;
    let a = create(&rig, "ada", &[]).await;
    let b = create(&rig, "ada", &[a.task_id]).await;
    let c = create(&rig, "ada", &[b.task_id]).await;
    assert_eq!(code(change(&rig, &a, on(&[&a])).await), Code::Conflict);
    let refusal = change(&rig, &a, on(&[&c])).await.unwrap_err();
    let cycle = json!({ "cycle": [a.task_id, c.task_id, b.task_id, a.task_id] });
    assert_eq!((refusal.code, refusal.details), (Code::Conflict, Some(cycle)));
    assert_eq!(status(&rig, &a).await, TaskStatus::Pending, "nothing of it was done");
    // Two paths to the same task are no cycle.
    let d = create(&rig, "ada", &[a.task_id, b.task_id]).await;
    change(&rig, &d, on(&[&a, &b, &c])).await.unwrap();
    let nobody = TaskChange { depends_on: Some(vec![TaskId(uuid::Uuid::nil())]), ..TaskChange::default() };
    assert_eq!(code(change(&rig, &d, nobody).await), Code::NotFound);
    let many = TaskChange { depends_on: Some(vec![a.task_id; 65]), ..TaskChange::default() };
    assert_eq!(code(change(&rig, &d, many).await), Code::InvalidArguments);
}

#[tokio::test]
async fn a_reopened_task_blocks_pending_tasks_and_leaves_tasks_in_progress() {
    let rig = Rig::new().await;
    let first = create(&rig, "ada", &[]).await;
    let (ready, begun) = (create(&rig, "bob", &[first.task_id]).await, create(&rig, "cyd", &[first.task_id]).await);
    set(&rig, &first, TaskStatus::Done).await.unwrap();
    set(&rig, &begun, TaskStatus::InProgress).await.unwrap();
    reopen(&rig, &first).await;
    assert_eq!((status(&rig, &ready).await, status(&rig, &begun).await), (TaskStatus::Blocked, TaskStatus::InProgress));
    set(&rig, &first, TaskStatus::Done).await.unwrap();
    assert_eq!(status(&rig, &ready).await, TaskStatus::Pending);
    assert_eq!(rig.inbox("bob").await.len(), 2);
}

#[tokio::test]
async fn the_creator_is_notified_when_a_task_is_unblocked() {
    let rig = Rig::new().await;
    let first = create(&rig, "bob", &[]).await;
    create(&rig, "cyd", &[first.task_id]).await;
    let task_id = first.task_id;
    let done = TaskChange { status: Some(TaskStatus::Done), ..TaskChange::default() };
    write!(rig, |w, ctx| tasks::update(w, &ctx, &party("bob"), task_id, done, Chain::root(&ctx)).await).unwrap();
    let subjects: Vec<String> = rig.inbox("ada").await.into_iter().filter_map(|mail| mail.subject).collect();
    assert!(subjects.len() == 2 && subjects[0].contains("done") && subjects[1].contains("pending"), "{subjects:?}");
}
