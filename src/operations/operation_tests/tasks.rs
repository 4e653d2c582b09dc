//! Tasks: what their owners and creators hear, what they wait for, what becomes of those of a deleted agent, and main
//! jobs.

use super::operation_world::*;

/// A task that ada creates and that waits for these.
async fn by_ada(world: &World, owner: &str, depends_on: &[&Task]) -> Task {
    let depends_on: Vec<TaskId> = depends_on.iter().map(|task| task.task_id).collect();
    create(world, party("ada"), owner, &depends_on, 1).await.unwrap()
}

async fn create(world: &World, by: Party, owner: &str, depends_on: &[TaskId], hop: u32) -> Result<Task> {
    let new = new_task(owner, "count\nthe sheep", Chain { hop, ..Chain::root(&world.ctx) });
    let new = NewTask { depends_on: depends_on.to_vec(), ..new };
    run!(world, |w| tasks::create(w, &by, new))
}

async fn change(world: &World, by: &str, task: &Task, change: TaskChange) -> Result<Task> {
    let (by, task_id, chain) = (party(by), task.task_id, Chain::root(&world.ctx));
    run!(world, |w| tasks::update(w, &by, task_id, change, chain))
}

pub(super) async fn set(world: &World, by: &str, task: &Task, status: TaskStatus) -> Result<Task> {
    change(world, by, task, to(status)).await
}

fn to(status: TaskStatus) -> TaskChange {
    TaskChange { status: Some(status), ..TaskChange::default() }
}

fn on(depends_on: &[&Task]) -> TaskChange {
    TaskChange { depends_on: Some(depends_on.iter().map(|task| task.task_id).collect()), ..TaskChange::default() }
}

fn reopen(note: &str) -> TaskChange {
    TaskChange { note: Some(note.into()), reopen: true, ..to(TaskStatus::Pending) }
}

async fn status(world: &World, task: &Task) -> TaskStatus {
    let task_id = task.task_id;
    read!(world, |r| r.task_get(task_id)?.unwrap().status)
}

/// The subjects of the task mail in an inbox.
async fn task_subjects(world: &World, name: &str) -> Vec<String> {
    assert!(world.inbox(name).await.iter().all(|mail| mail.kind == Kind::Task && mail.wake));
    world.subjects(name).await
}

// covers: TASK-01, TASK-03
world_test!(the_owner_is_notified_of_its_work_and_the_creator_of_changes, async |world| {
    let task = by_ada(&world, "bob", &[]).await;
    assert_eq!((task.status, task.title.as_str()), (TaskStatus::Pending, "count the sheep"));
    let subjects = task_subjects(&world, "bob").await;
    assert!(subjects.len() == 1 && subjects[0].ends_with(": count the sheep"), "{subjects:?}");
    set(&world, "bob", &task, TaskStatus::InProgress).await.unwrap();
    let done = TaskChange { result: Some("seven".into()), note: Some("easy".into()), ..to(TaskStatus::Done) };
    change(&world, "bob", &task, done).await.unwrap();
    let subjects = task_subjects(&world, "ada").await;
    assert!(subjects.len() == 2 && subjects[0].contains("in_progress") && subjects[1].contains("done"), "{subjects:?}");
    let body = world.inbox("ada").await.pop().unwrap().body;
    assert!(body.contains("note: easy") && body.contains("result: seven"), "{body}");
    let history = read!(world, |r| tasks::get_with_history(r, task.task_id)?).history;
    let statuses: Vec<TaskStatus> = history.iter().map(|event| event.status).collect();
    assert_eq!(statuses, [TaskStatus::Pending, TaskStatus::InProgress, TaskStatus::Done]);
    // If the history is long, the newest part is shown.
    let note = TaskChange { note: Some("x".repeat(400_000)), ..TaskChange::default() };
    let open = by_ada(&world, "bob", &[]).await;
    world.limits(|limits| limits.message_bytes = 1 << 20);
    for _ in 0..3 {
        change(&world, "bob", &open, note.clone()).await.unwrap();
    }
    let whole = read!(world, |r| tasks::get_with_history(r, open.task_id)?);
    assert_eq!((whole.history.len(), whole.history_truncated), (2, true));
    // Reassigned: the new owner is notified, and the task no longer belongs to the old one.
    let task = by_ada(&world, "bob", &[]).await;
    let to_cyd = TaskChange { owner: Some(id("cyd")), ..TaskChange::default() };
    let chain = Chain::root(&world.ctx);
    run!(world, |w| tasks::update(w, &operator(), task.task_id, to_cyd, chain)).unwrap();
    assert_eq!(task_subjects(&world, "cyd").await.len(), 1);
    // An agent gets no mail about work that it gives itself or about its own changes.
    let own = create(&world, party("cyd"), "cyd", &[], 1).await.unwrap();
    set(&world, "cyd", &own, TaskStatus::Done).await.unwrap();
    assert_eq!(task_subjects(&world, "cyd").await.len(), 1);
});

// covers: TASK-06
world_test!(dependencies_block_and_the_last_one_done_unblocks, async |world| {
    let (first, second) = (by_ada(&world, "ada", &[]).await, by_ada(&world, "cyd", &[]).await);
    let waits = by_ada(&world, "bob", &[&first, &second, &first]).await;
    assert_eq!((waits.status, waits.depends_on.len()), (TaskStatus::Blocked, 2));
    assert!(world.inbox("bob").await.is_empty(), "it cannot begin yet");
    for status in [TaskStatus::InProgress, TaskStatus::Done] {
        assert_eq!(code(set(&world, "bob", &waits, status).await), Code::Conflict);
    }
    set(&world, "ada", &first, TaskStatus::Done).await.unwrap();
    assert_eq!(status(&world, &waits).await, TaskStatus::Blocked);
    set(&world, "cyd", &second, TaskStatus::Done).await.unwrap();
    assert_eq!((status(&world, &waits).await, task_subjects(&world, "bob").await.len()), (TaskStatus::Pending, 1));
    let subjects = task_subjects(&world, "ada").await;
    assert!(subjects.len() == 2 && subjects[0].contains("done") && subjects[1].contains("pending"), "{subjects:?}");
    // A finished dependency blocks nothing. A new task can only depend on existing tasks, so no
    // cycle can be made.
    assert_eq!(by_ada(&world, "bob", &[&first]).await.status, TaskStatus::Pending);
    assert_eq!(code(create(&world, party("ada"), "bob", &[TaskId(Uuid::nil())], 1).await), Code::NotFound);
    // A dependency that failed unblocks nothing.
    let gone = by_ada(&world, "ada", &[]).await;
    let stuck = by_ada(&world, "cyd", &[&gone]).await;
    set(&world, "ada", &gone, TaskStatus::Failed).await.unwrap();
    assert_eq!(status(&world, &stuck).await, TaskStatus::Blocked);
    // Its owner and its creator are told, and a new list of dependencies releases it.
    assert_eq!(task_subjects(&world, "cyd").await[1..], ["Task blocked: count the sheep"]);
    assert!(task_subjects(&world, "ada").await.contains(&"Task blocked: count the sheep".to_owned()));
    let released = change(&world, "ada", &stuck, on(&[])).await.unwrap();
    assert_eq!((released.status, task_subjects(&world, "cyd").await.len()), (TaskStatus::Pending, 3));
    // A task that no longer waits hears nothing of later ends.
    let gone = by_ada(&world, "ada", &[]).await;
    by_ada(&world, "bob", &[&gone, &first]).await;
    let before = task_subjects(&world, "bob").await.len();
    set(&world, "ada", &gone, TaskStatus::Cancelled).await.unwrap();
    assert_eq!(task_subjects(&world, "bob").await.len(), before + 1, "a cancelled dependency is told, too");
});

// covers: TASK-06
world_test!(changed_dependencies_block_and_unblock, async |world| {
    let (first, second) = (by_ada(&world, "ada", &[]).await, by_ada(&world, "ada", &[]).await);
    let task = by_ada(&world, "bob", &[]).await;
    assert_eq!(world.inbox("bob").await.len(), 1);
    let blocked = change(&world, "ada", &task, on(&[&first, &second])).await.unwrap();
    assert_eq!((blocked.status, blocked.depends_on.len()), (TaskStatus::Blocked, 2));
    // One is done and the other failed; without the failed one the task can start.
    for (dependency, end) in [(&first, TaskStatus::Done), (&second, TaskStatus::Failed)] {
        set(&world, "ada", dependency, end).await.unwrap();
        assert_eq!(status(&world, &task).await, TaskStatus::Blocked);
    }
    assert_eq!(change(&world, "ada", &task, on(&[&first])).await.unwrap().status, TaskStatus::Pending);
    assert_eq!(world.inbox("bob").await.len(), 3, "its owner is told of the failed dependency, then that it can start");
    let history: Vec<_> = read!(world, |r| r.task_events(task.task_id, 100)?);
    assert!(history.last().unwrap().note.as_ref().unwrap().contains(&first.task_id.to_string()));
    // A task that someone has blocked for another reason stays blocked.
    set(&world, "ada", &task, TaskStatus::Blocked).await.unwrap();
    assert_eq!(change(&world, "ada", &task, on(&[])).await.unwrap().status, TaskStatus::Blocked);
    set(&world, "ada", &task, TaskStatus::Pending).await.unwrap();
    set(&world, "ada", &task, TaskStatus::Done).await.unwrap();
    assert_eq!(code(change(&world, "ada", &task, on(&[&first])).await), Code::Conflict, "it has ended");
});

// covers: TASK-06
world_test!(no_task_waits_for_itself, async |world| {
    let a = by_ada(&world, "ada", &[]).await;
    let b = by_ada(&world, "ada", &[&a]).await;
    let c = by_ada(&world, "ada", &[&b]).await;
    assert_eq!(code(change(&world, "ada", &a, on(&[&a])).await), Code::Conflict);
    let cycle = detail(change(&world, "ada", &a, on(&[&c])).await, Code::Conflict, "cycle");
    assert_eq!(cycle, json!([a.task_id, c.task_id, b.task_id, a.task_id]));
    assert_eq!(status(&world, &a).await, TaskStatus::Pending, "nothing of it was done");
    // Two paths to the same task are no cycle.
    let d = by_ada(&world, "ada", &[&a, &b]).await;
    change(&world, "ada", &d, on(&[&a, &b, &c])).await.unwrap();
    let nobody = TaskChange { depends_on: Some(vec![TaskId(Uuid::nil())]), ..TaskChange::default() };
    assert_eq!(code(change(&world, "ada", &d, nobody).await), Code::NotFound);
    assert_eq!(code(change(&world, "ada", &d, on(&[&a; 65])).await), Code::InvalidArguments);
});

// covers: TASK-02
world_test!(an_ended_task_is_reopened_with_a_note_and_its_owner_is_notified, async |world| {
    let task = by_ada(&world, "bob", &[]).await;
    let (ready, begun) = (by_ada(&world, "cyd", &[&task]).await, by_ada(&world, "cyd", &[&task]).await);
    set(&world, "bob", &task, TaskStatus::Done).await.unwrap();
    set(&world, "cyd", &begun, TaskStatus::InProgress).await.unwrap();
    for refused in [to(TaskStatus::Failed), to(TaskStatus::Pending), reopen(" ")] {
        assert_eq!(code(change(&world, "ada", &task, refused).await), Code::Conflict);
    }
    change(&world, "ada", &task, reopen("count again")).await.unwrap();
    assert_eq!(task_subjects(&world, "bob").await.len(), 2, "its work is to be done again");
    assert_eq!(code(change(&world, "ada", &task, TaskChange::default()).await), Code::InvalidArguments);
    // A pending task that depends on it is blocked again, and one in progress goes on.
    let both = async || (status(&world, &ready).await, status(&world, &begun).await);
    assert_eq!(both().await, (TaskStatus::Blocked, TaskStatus::InProgress));
    set(&world, "bob", &task, TaskStatus::Done).await.unwrap();
    assert_eq!(both().await, (TaskStatus::Pending, TaskStatus::InProgress));
    assert_eq!(task_subjects(&world, "cyd").await.len(), 3, "each time that one can start");
});

world_test!(a_creator_that_cannot_be_notified_does_not_stop_the_owner, async |world| {
    let task = by_ada(&world, "bob", &[]).await;
    world.limits(|limits| limits.inbox_max = 1);
    world.send("ada", "full").await;
    set(&world, "bob", &task, TaskStatus::Done).await.unwrap();
    assert_eq!(world.inbox("ada").await.len(), 1);
    // But a task for an owner that cannot be notified is refused.
    assert_eq!(code(create(&world, party("bob"), "ada", &[], 1).await), Code::InboxFull);
    let other = by_ada(&world, "cyd", &[]).await;
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
    let first = by_ada(&world, "ada", &[]).await;
    let (orphan, other) = (by_ada(&world, "bob", &[&first]).await, by_ada(&world, "cyd", &[&first]).await);
    delete(&world, "bob").await;
    set(&world, "ada", &first, TaskStatus::Done).await.unwrap();
    // The board shows it as ready, and the owners of later tasks are notified.
    for (task, then) in [(&first, TaskStatus::Done), (&orphan, TaskStatus::Pending), (&other, TaskStatus::Pending)] {
        assert_eq!(status(&world, task).await, then);
    }
    assert_eq!(task_subjects(&world, "cyd").await.len(), 1);
    assert!(world.inbox("bob").await.is_empty());
});

async fn task(world: &World, by: Party, title: &str, depends_on: &[TaskId]) -> Task {
    let new = new_task("bob", title, at_hop(RootId(Uuid::from_u128(7)), 1));
    let new = NewTask { depends_on: depends_on.to_vec(), ..new };
    run!(world, |w| tasks::create(w, &by, new)).unwrap()
}

world_test!(the_creators_of_a_deleted_agents_tasks_are_notified_and_a_later_agent_gets_them, async |world| {
    let first = task(&world, party("ada"), "count", &[]).await;
    let second = task(&world, party("ada"), "sum up", &[first.task_id]).await;
    let own = task(&world, operator(), "rest", &[]).await;
    let letter = world.send("bob", "are you there?").await;
    delete(&world, "bob").await;

    // They are still open, and the report says why they make no progress.
    for (task, status) in [(&first, TaskStatus::Pending), (&second, TaskStatus::Blocked), (&own, TaskStatus::Pending)] {
        let task_id = task.task_id;
        let (now, history) = read!(world, |r| (r.task_get(task_id)?.unwrap(), r.task_events(task_id, 9)?));
        assert_eq!((now.status, now.owner), (status, id("bob")));
        assert!(history.last().unwrap().note.as_ref().unwrap().contains("bob"));
    }
    let mail = world.inbox("ada").await;
    assert_eq!(mail.len(), 1, "one letter for one chain of work");
    assert_eq!((mail[0].kind, &mail[0].from, mail[0].root_id), (Kind::Task, &Party::System, first.root_id));
    let subject = mail[0].subject.as_deref().unwrap();
    assert!(subject.contains("bob") && subject.contains('2'), "{subject}");
    for task in [&first, &second] {
        assert!(mail[0].body.contains(&task.task_id.to_string()), "{}", mail[0].body);
    }
    let end = world.event(EventKind::AgentDeleted).await;
    assert_eq!((&end.payload["tasks_left"], &end.payload["mail_dropped"]), (&3.into(), &3.into()));
    assert!(end.payload["messages"].to_string().contains(&letter.message_id.to_string()), "{}", end.payload);
    assert!(end.payload["tasks"].to_string().contains(&own.task_id.to_string()), "{}", end.payload);
    // A job that goes on reminds the others of theirs.
    assert_eq!(remind(&world, first.root_id).await, 0);

    // The new agent with the id gets the tasks that are ready.
    let named = NewAgent { kind: AgentKind::Persistent, ..new_agent(&world.ctx, "bob") };
    create_by(&world, Party::System, named).await.unwrap();
    let subjects = world.subjects("bob").await;
    assert!(subjects.len() == 2 && subjects[0].ends_with(": count") && subjects[1].ends_with(": rest"), "{subjects:?}");
});

/// Reminds the owners of the tasks of this root.
async fn remind(world: &World, root_id: RootId) -> usize {
    run!(world, |w| tasks::remind(w, root_id)).unwrap()
}

/// `count` tasks of bob, created by ada in one chain of work.
async fn many(world: &World, count: i32) -> Task {
    let first = task(world, party("ada"), "one of many", &[]).await;
    let model = first.clone();
    done!(world, |w| {
        for n in 1..count {
            let task_id = TaskId(w.ctx.id());
            // Newer tasks have a higher priority.
            w.task_put(&Task { task_id, title: format!("number {n}"), priority: n, ..model.clone() })?;
        }
    });
    first
}

world_test!(all_tasks_of_a_deleted_agent_are_reported_however_many, async |world| {
    let first = many(&world, 1_500).await;
    assert_eq!(delete(&world, "bob").await.left.tasks_left, 1_500);
    assert_eq!(world.event(EventKind::AgentDeleted).await.payload["tasks_left"], 1_500);
    let unsaid = read!(world, |r| {
        let (mut unsaid, mut after) = (0, None);
        loop {
            let page = r.tasks_open(None, after, 500)?;
            let Some(last) = page.last() else { break unsaid };
            after = Some(last.task_id);
            for task in &page {
                let history = r.task_events(task.task_id, 9)?;
                let note = history.last().and_then(|event| event.note.clone());
                unsaid += u32::from(!note.is_some_and(|note| note.contains("bob")));
            }
        }
    });
    assert_eq!(unsaid, 0);
    let mail = world.inbox("ada").await;
    assert_eq!(mail.len(), 1);
    let says = |text: &str, parts: &[&str]| parts.iter().all(|part| text.contains(part));
    assert!(says(mail[0].subject.as_deref().unwrap(), &["bob", "1500"]));
    assert!(says(&mail[0].body, &["title: number 1499\n", "\n1480 more "]), "{}", mail[0].body);

    // The later agent gets the first tasks in full and the rest in a list.
    world.add_agent(new_agent(&world.ctx, "bob")).await;
    let mail = world.inbox("bob").await;
    let last = mail.last().unwrap();
    assert!(mail.len() == 201 && says(mail[0].subject.as_deref().unwrap(), &["number 1499"]));
    assert!(says(last.subject.as_deref().unwrap(), &["1300 "]));
    assert!(says(&last.body, &["title: number 1299\n", "\n1280 more "]), "{}", last.body);
    assert_eq!((last.kind, last.root_id), (Kind::Task, first.root_id));

    // The same happens when a job is continued.
    assert_eq!(remind(&world, first.root_id).await, 1_500);
    let mail = world.inbox("bob").await.split_off(201);
    let last = mail.last().unwrap();
    assert!(mail.len() == 201 && says(mail[0].subject.as_deref().unwrap(), &["number 1499"]));
    assert!(says(last.subject.as_deref().unwrap(), &["1300 "]) && last.root_id == first.root_id);
    assert!(says(&last.body, &["title: number 1299\n"]), "{}", last.body);
});

world_test!(many_reminded_owners_share_the_tasks_that_are_sent_in_full, async |world| {
    let first = many(&world, 300).await;
    let one = task(&world, party("bob"), "small", &[]).await;
    let root_id = first.root_id;
    done!(world, |w| {
        for n in 0..300 {
            let task_id = TaskId(w.ctx.id());
            w.task_put(&Task { task_id, owner: id("cyd"), title: format!("number {n}"), ..first.clone() })?;
        }
        w.task_put(&Task { owner: id("ada"), ..one })?
    });
    let known = (world.inbox("ada").await.len(), world.inbox("bob").await.len());
    assert_eq!((remind(&world, root_id).await, world.inbox("bob").await.len()), (601, known.1 + 67));
    let told = world.subjects("ada").await.split_off(known.0);
    assert!(told.len() == 1 && told[0].ends_with(": small"), "{told:?}");
    let reminded = world.subjects("cyd").await;
    assert!(reminded.len() == 67 && reminded[66].contains("234 "), "{reminded:?}");
});

world_test!(a_deleted_creator_or_a_full_inbox_does_not_prevent_a_deletion, async |world| {
    task(&world, party("ada"), "count", &[]).await;
    task(&world, party("bob"), "note", &[]).await;
    delete(&world, "ada").await;
    delete(&world, "bob").await;
    assert!(world.inbox("cyd").await.is_empty());
});

/// The job of this input.
fn job_id(input: char) -> String {
    input.to_string().repeat(16)
}

pub(super) async fn begin(world: &World, input: char) -> Job {
    let (job_id, lead, brief) = (job_id(input), id("ada"), "Report on both files.\n".into());
    let new = NewJob { job_id, files: 2, lead, brief, result_dir: "output/reports".into() };
    run!(world, |w| jobs::begin(w, new)).unwrap()
}

async fn recorded(world: &World) -> Job {
    read!(world, |r| r.job_get(&job_id('a'))?.unwrap())
}

async fn by_lead(world: &World, job: &Job, change: TaskChange) -> Result<Task> {
    let (task_id, chain) = (job.task_id.unwrap(), at_hop(job.root_id, 1));
    run!(world, |w| tasks::update(w, &party("ada"), task_id, change, chain))
}

/// A change that closes the task of a job.
fn done(result: Option<&str>) -> TaskChange {
    TaskChange { result: result.map(str::to_owned), ..to(TaskStatus::Done) }
}

world_test!(a_job_is_a_task_of_its_lead_and_begins_once, async |world| {
    let job = begin(&world, 'a').await;
    assert_eq!(begin(&world, 'a').await, job);
    let inbox = world.inbox("ada").await;
    assert_eq!((inbox.len(), inbox[0].root_id), (1, job.root_id));
    let body = &inbox[0].body;
    assert!(body.contains(&job.job_id) && body.contains("Report on both files."), "{body}");
    let task_id = job.task_id.unwrap();
    let task = read!(world, |r| r.task_get(task_id)?.unwrap());
    assert_eq!((task.owner, task.status, task.root_id), (id("ada"), TaskStatus::Pending, job.root_id));
    assert_eq!(world.count(EventKind::JobStarted).await, 1);
    // A job of an older version gets its task.
    let old = Job { task_id: None, result_dir: String::new(), ..job.clone() };
    done!(world, |w| w.job_put(&old)?);
    let again = begin(&world, 'a').await;
    assert!(again.task_id.is_some() && again.task_id != job.task_id);
    assert_eq!((again.root_id, again.started_at), (job.root_id, job.started_at));
});

world_test!(a_job_is_done_when_its_lead_closes_the_task_with_the_path_of_the_result, async |world| {
    let job = begin(&world, 'a').await;
    for wrong in [None, Some(""), Some("It is done."), Some("output/report.md"), Some("output/reports/../x.md")] {
        assert_eq!(by_lead(&world, &job, done(wrong)).await.unwrap_err().code, Code::InvalidArguments, "{wrong:?}");
        assert_eq!(recorded(&world).await, job, "{wrong:?}");
    }
    by_lead(&world, &job, done(Some("output/reports/a.md"))).await.unwrap();
    let ended = recorded(&world).await;
    assert!(ended.finished_at.is_some());
    assert_eq!(ended.result_path.as_deref(), Some("output/reports/a.md"));
    assert_eq!(world.count(EventKind::JobFinished).await, 1);
    assert_eq!(begin(&world, 'a').await, ended, "the same input does not begin it again");

    // Reopened, it runs again.
    let note = Some("a figure is wrong".to_owned());
    let reopen = TaskChange { note, reopen: true, ..to(TaskStatus::InProgress) };
    by_lead(&world, &job, reopen).await.unwrap();
    assert_eq!((recorded(&world).await.finished_at, recorded(&world).await.result_path), (None, None));
});

world_test!(a_job_ends_also_after_very_many_later_ones_and_without_a_result_if_it_is_given_up, async |world| {
    let job = begin(&world, 'a').await;
    let other = Job { task_id: None, root_id: RootId(Uuid::max()), started_at: world.ctx.now(), ..job.clone() };
    done!(world, |w| {
        for n in 0..1_001 {
            w.job_put(&Job { job_id: format!("f{n}"), ..other.clone() })?;
        }
    });
    by_lead(&world, &job, done(Some("output/reports/a.md"))).await.unwrap();
    assert!(recorded(&world).await.finished_at.is_some());
    assert_eq!(read!(world, |r| jobs::all(r).unwrap().len()), 1_002);
    for (status, input) in [(TaskStatus::Failed, 'b'), (TaskStatus::Cancelled, 'c')] {
        let job = begin(&world, input).await;
        by_lead(&world, &job, to(status)).await.unwrap();
        let ended = read!(world, |r| r.job_get(&job_id(input))?.unwrap());
        assert!(ended.finished_at.is_some() && ended.result_path.is_none());
        assert_eq!(world.told(EventKind::JobFinished, "status").await.pop().unwrap(), status.as_str());
    }
});

world_test!(a_job_on_which_nothing_works_is_started_again_with_its_open_tasks, async |world| {
    let job = begin(&world, 'a').await;
    let lead = world.take("ada").await.turn;
    begin(&world, 'a').await;
    assert_eq!(world.inbox("ada").await.len(), 0, "its lead is at work");
    let part = NewTask { parent_id: job.task_id, ..new_task("bob", "read a.md", at_hop(job.root_id, 1)) };
    run!(world, |w| tasks::create(w, &party("ada"), part)).unwrap();
    world.finish(lead.turn_id, "shared out").await.unwrap();
    begin(&world, 'a').await;
    assert_eq!(world.inbox("ada").await.len(), 0, "mail waits for bob");
    world.end(world.take("bob").await.turn.turn_id, Ending::Failed(Refusal::new(Code::Internal, "it broke"))).await;

    begin(&world, 'a').await;
    for owner in ["ada", "bob"] {
        let inbox = world.inbox(owner).await;
        assert_eq!((inbox.len(), inbox[0].root_id), (1, job.root_id), "{owner}");
    }
    begin(&world, 'a').await;
    assert_eq!(world.inbox("ada").await.len(), 1, "once");
    by_lead(&world, &job, to(TaskStatus::Cancelled)).await.unwrap();
    begin(&world, 'a').await;
    assert_eq!(world.inbox("ada").await.len(), 1, "a job that has ended is not started again");
});
