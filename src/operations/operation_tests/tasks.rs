use super::operation_world::*;

pub(super) async fn create(
    world: &OperationWorld,
    by: Party,
    owner: &str,
    depends_on: &[TaskId],
    hop: u32,
) -> Result<Task> {
    let new = new_task(owner, "count\nthe sheep", Chain { hop, ..Chain::root(&world.ctx) });
    let new = NewTask { depends_on: depends_on.to_vec(), ..new };
    run!(world, |w| tasks::create(w, &by, new))
}

pub(super) async fn change(world: &OperationWorld, by: Party, task: &Task, change: TaskChange) -> Result<Task> {
    let task_id = task.task_id;
    run!(world, |w| {
        let ctx = w.ctx;
        tasks::update(w, &by, task_id, change, Chain::root(ctx))
    })
}

pub(super) async fn set(world: &OperationWorld, by: &str, task: &Task, status: TaskStatus) -> Result<Task> {
    change(world, party(by), task, TaskChange { status: Some(status), ..TaskChange::default() }).await
}

pub(super) async fn status(world: &OperationWorld, task: &Task) -> TaskStatus {
    let task_id = task.task_id;
    read!(world, |r| r.task_get(task_id)?.unwrap().status)
}

/// The subjects of the task mail in an inbox.
async fn task_subjects(world: &OperationWorld, name: &str) -> Vec<String> {
    let inbox = world.inbox(name).await;
    assert!(inbox.iter().all(|mail| mail.kind == Kind::Task && mail.wake));
    inbox.into_iter().filter_map(|mail| mail.subject).collect()
}

// covers: TASK-01, TASK-03
world_test!(the_owner_is_notified_of_its_work_and_the_creator_of_changes, async |world| {
    let task = create(&world, party("ada"), "bob", &[], 1).await.unwrap();
    assert_eq!((task.status, task.title.as_str()), (TaskStatus::Pending, "count the sheep"));
    let subjects = task_subjects(&world, "bob").await;
    assert!(subjects.len() == 1 && subjects[0].ends_with(": count the sheep"), "{subjects:?}");
    set(&world, "bob", &task, TaskStatus::InProgress).await.unwrap();
    let change_of = TaskChange {
        status: Some(TaskStatus::Done),
        result: Some("seven".into()),
        note: Some("easy".into()),
        ..TaskChange::default()
    };
    change(&world, party("bob"), &task, change_of).await.unwrap();
    let subjects = task_subjects(&world, "ada").await;
    assert!(subjects.len() == 2 && subjects[0].contains("in_progress") && subjects[1].contains("done"), "{subjects:?}");
    let body = world.inbox("ada").await.pop().unwrap().body;
    assert!(body.contains("note: easy") && body.contains("result: seven"), "{body}");
    let whole = world.store.read(move |r| tasks::get_with_history(r, task.task_id)).await.unwrap();
    assert_eq!(
        whole.history.iter().map(|event| event.status).collect::<Vec<_>>(),
        [TaskStatus::Pending, TaskStatus::InProgress, TaskStatus::Done]
    );
    // If the history is long, the newest part is shown.
    let note = TaskChange { note: Some("x".repeat(400_000)), ..TaskChange::default() };
    let open = create(&world, party("ada"), "bob", &[], 1).await.unwrap();
    world.limits(|limits| limits.message_bytes = 1 << 20);
    for _ in 0..3 {
        change(&world, party("bob"), &open, note.clone()).await.unwrap();
    }
    let whole = world.store.read(move |r| tasks::get_with_history(r, open.task_id)).await.unwrap();
    assert_eq!((whole.history.len(), whole.history_truncated), (2, true));
    // Reassigned: the new owner is notified, and the task no longer belongs to the old one.
    let task = create(&world, party("ada"), "bob", &[], 1).await.unwrap();
    change(&world, operator(), &task, TaskChange { owner: Some(id("cyd")), ..TaskChange::default() }).await.unwrap();
    assert_eq!(task_subjects(&world, "cyd").await.len(), 1);
    // An agent gets no mail about work that it gives itself or about its own changes.
    let own = create(&world, party("cyd"), "cyd", &[], 1).await.unwrap();
    set(&world, "cyd", &own, TaskStatus::Done).await.unwrap();
    assert_eq!(task_subjects(&world, "cyd").await.len(), 1);
});

// covers: TASK-06
world_test!(dependencies_block_and_the_last_one_done_unblocks, async |world| {
    let first = create(&world, party("ada"), "ada", &[], 1).await.unwrap();
    let second = create(&world, party("ada"), "ada", &[], 1).await.unwrap();
    let needs = [first.task_id, second.task_id, first.task_id];
    let waits = create(&world, party("ada"), "bob", &needs, 1).await.unwrap();
    assert_eq!((waits.status, waits.depends_on.len()), (TaskStatus::Blocked, 2));
    assert!(world.inbox("bob").await.is_empty(), "it cannot begin yet");
    assert_eq!(code(set(&world, "bob", &waits, TaskStatus::InProgress).await), Code::Conflict);
    assert_eq!(code(set(&world, "bob", &waits, TaskStatus::Done).await), Code::Conflict);
    set(&world, "ada", &first, TaskStatus::Done).await.unwrap();
    assert_eq!(status(&world, &waits).await, TaskStatus::Blocked);
    set(&world, "ada", &second, TaskStatus::Done).await.unwrap();
    assert_eq!(status(&world, &waits).await, TaskStatus::Pending);
    assert_eq!(task_subjects(&world, "bob").await.len(), 1);
    // A finished dependency blocks nothing. A new task can only depend on existing tasks, so no
    // cycle can be made.
    assert_eq!(create(&world, party("ada"), "bob", &[first.task_id], 1).await.unwrap().status, TaskStatus::Pending);
    assert_eq!(code(create(&world, party("ada"), "bob", &[TaskId(Uuid::nil())], 1).await), Code::NotFound);
    // A cancelled dependency unblocks nothing.
    let gone = create(&world, party("ada"), "ada", &[], 1).await.unwrap();
    let stuck = create(&world, party("ada"), "cyd", &[gone.task_id], 1).await.unwrap();
    set(&world, "ada", &gone, TaskStatus::Failed).await.unwrap();
    assert_eq!(status(&world, &stuck).await, TaskStatus::Blocked);
    // Its owner and its creator are told, and a new list of dependencies releases it.
    assert_eq!(task_subjects(&world, "cyd").await, ["Task blocked: count the sheep"]);
    assert!(task_subjects(&world, "ada").await.contains(&"Task blocked: count the sheep".to_owned()));
    let without = TaskChange { depends_on: Some(vec![]), ..TaskChange::default() };
    let released = change(&world, party("ada"), &stuck, without).await.unwrap();
    assert_eq!((released.status, task_subjects(&world, "cyd").await.len()), (TaskStatus::Pending, 2));
    // A task that no longer waits hears nothing of later ends.
    let (gone, task) = (create(&world, party("ada"), "ada", &[], 1).await.unwrap(), party("ada"));
    create(&world, task, "bob", &[gone.task_id, first.task_id], 1).await.unwrap();
    let before = task_subjects(&world, "bob").await.len();
    set(&world, "ada", &gone, TaskStatus::Cancelled).await.unwrap();
    assert_eq!(task_subjects(&world, "bob").await.len(), before + 1, "a cancelled dependency is told, too");
});

// covers: TASK-02
world_test!(an_ended_task_is_reopened_with_a_note_and_its_owner_is_notified, async |world| {
    let task = create(&world, party("ada"), "bob", &[], 1).await.unwrap();
    set(&world, "bob", &task, TaskStatus::Done).await.unwrap();
    assert_eq!(code(set(&world, "ada", &task, TaskStatus::Failed).await), Code::Conflict);
    assert_eq!(code(set(&world, "ada", &task, TaskStatus::Pending).await), Code::Conflict);
    let reopen = |note: &str| TaskChange {
        status: Some(TaskStatus::Pending),
        note: Some(note.into()),
        reopen: true,
        ..TaskChange::default()
    };
    assert_eq!(code(change(&world, party("ada"), &task, reopen(" ")).await), Code::Conflict);
    change(&world, party("ada"), &task, reopen("count again")).await.unwrap();
    assert_eq!(task_subjects(&world, "bob").await.len(), 2, "its work is to be done again");
    assert_eq!(code(change(&world, party("ada"), &task, TaskChange::default()).await), Code::InvalidArguments);
});

world_test!(a_creator_that_cannot_be_notified_does_not_stop_the_owner, async |world| {
    let task = create(&world, party("ada"), "bob", &[], 1).await.unwrap();
    world.limits(|limits| limits.inbox_max = 1);
    world.send("ada", "full").await;
    set(&world, "bob", &task, TaskStatus::Done).await.unwrap();
    assert_eq!(world.inbox("ada").await.len(), 1);
    // But a task for an owner that cannot be notified is refused.
    assert_eq!(code(create(&world, party("bob"), "ada", &[], 1).await), Code::InboxFull);
    let other = create(&world, party("ada"), "cyd", &[], 1).await.unwrap();
    delete(&world, "ada").await;
    set(&world, "cyd", &other, TaskStatus::Done).await.unwrap();
});

world_test!(open_tasks_are_limited_and_do_not_extend_a_chain_past_its_limit, async |world| {
    world.limits(|limits| limits.hops_max = 3);
    let own = create(&world, party("ada"), "ada", &[], 3).await.unwrap();
    for (owner, needs) in [("bob", vec![]), ("ada", vec![]), ("bob", vec![own.task_id])] {
        assert_eq!(code(create(&world, party("ada"), owner, &needs, 4).await), Code::HopLimit, "{owner} {needs:?}");
    }
    world.limits(|limits| limits.tasks_open_max = 1);
    assert_eq!(code(create(&world, party("ada"), "bob", &[], 1).await), Code::RateLimited);
    world.limits(|limits| limits.message_bytes = 4);
    assert_eq!(code(create(&world, party("ada"), "bob", &[], 1).await), Code::TooLarge);
});

world_test!(a_deleted_owner_does_not_stop_the_agent_that_its_task_waited_for, async |world| {
    let first = create(&world, party("ada"), "ada", &[], 1).await.unwrap();
    let orphan = create(&world, party("ada"), "bob", &[first.task_id], 1).await.unwrap();
    let other = create(&world, party("ada"), "cyd", &[first.task_id], 1).await.unwrap();
    delete(&world, "bob").await;
    set(&world, "ada", &first, TaskStatus::Done).await.unwrap();
    // The board shows it as ready, and the owners of later tasks are notified.
    assert_eq!(status(&world, &first).await, TaskStatus::Done);
    assert_eq!(status(&world, &orphan).await, TaskStatus::Pending);
    assert_eq!(status(&world, &other).await, TaskStatus::Pending);
    assert_eq!(task_subjects(&world, "cyd").await.len(), 1);
    assert!(world.inbox("bob").await.is_empty());
});
