//! Main jobs: their task, their end, and the conditions under which they start again.

use super::operation_world::*;

const JOB: &str = "0123456789abcdef";

fn new_job() -> NewJob {
    NewJob {
        job_id: JOB.into(),
        files: 2,
        lead: id("ada"),
        brief: "Report on both files.\n".into(),
        result_dir: "output/reports".into(),
    }
}

async fn begin(world: &OperationWorld) -> Job {
    run!(world, |w| jobs::begin(w, new_job())).unwrap()
}

async fn recorded(world: &OperationWorld) -> Job {
    read!(world, |r| r.job_get(JOB)?.unwrap())
}

async fn set(world: &OperationWorld, job: &Job, change: TaskChange) -> Result<Task> {
    let (task_id, chain) = (job.task_id.unwrap(), at_hop(job.root_id, 1));
    run!(world, |w| tasks::update(w, &party("ada"), task_id, change, chain))
}

fn done(result: Option<&str>) -> TaskChange {
    TaskChange { status: Some(TaskStatus::Done), result: result.map(str::to_owned), ..TaskChange::default() }
}

world_test!(a_job_is_a_task_of_its_lead_and_begins_once, async |world| {
    let job = begin(&world).await;
    assert_eq!(begin(&world).await, job);
    let inbox = world.inbox("ada").await;
    assert_eq!((inbox.len(), inbox[0].root_id), (1, job.root_id));
    assert!(inbox[0].body.contains(JOB) && inbox[0].body.contains("Report on both files."), "{}", inbox[0].body);
    let task_id = job.task_id.unwrap();
    let task = read!(world, |r| r.task_get(task_id)?.unwrap());
    assert_eq!((task.owner, task.status, task.root_id), (id("ada"), TaskStatus::Pending, job.root_id));
    assert_eq!(world.count(EventKind::JobStarted).await, 1);
});

world_test!(a_job_is_done_when_its_lead_closes_the_task_with_the_path_of_the_result, async |world| {
    let job = begin(&world).await;
    for wrong in [None, Some(""), Some("It is done."), Some("output/report.md"), Some("output/reports/../x.md")] {
        assert_eq!(set(&world, &job, done(wrong)).await.unwrap_err().code, Code::InvalidArguments, "{wrong:?}");
        assert_eq!(recorded(&world).await, job, "{wrong:?}");
    }
    set(&world, &job, done(Some("output/reports/a.md"))).await.unwrap();
    let ended = recorded(&world).await;
    assert!(ended.finished_at.is_some());
    assert_eq!(ended.result_path.as_deref(), Some("output/reports/a.md"));
    assert_eq!(world.count(EventKind::JobFinished).await, 1);
    assert_eq!(begin(&world).await, ended, "the same input does not begin it again");

    // Reopened, it runs again.
    let note = Some("a figure is wrong".to_owned());
    let reopen = TaskChange { status: Some(TaskStatus::InProgress), note, reopen: true, ..TaskChange::default() };
    set(&world, &job, reopen).await.unwrap();
    assert_eq!((recorded(&world).await.finished_at, recorded(&world).await.result_path), (None, None));
});

world_test!(a_job_ends_also_after_very_many_later_ones, async |world| {
    let job = begin(&world).await;
    let other = Job { task_id: None, root_id: RootId(Uuid::max()), started_at: world.ctx.now(), ..job.clone() };
    run!(world, |w| {
        for n in 0..1_001 {
            w.job_put(&Job { job_id: format!("f{n}"), ..other.clone() })?;
        }
        Ok::<_, Refusal>(())
    })
    .unwrap();
    set(&world, &job, done(Some("output/reports/a.md"))).await.unwrap();
    assert!(recorded(&world).await.finished_at.is_some());
    assert_eq!(read!(world, |r| jobs::all(r).unwrap().len()), 1_002);
});

#[tokio::test]
async fn a_job_whose_task_is_given_up_ends_without_a_result() {
    for status in [TaskStatus::Failed, TaskStatus::Cancelled] {
        let world = OperationWorld::new().await;
        let job = begin(&world).await;
        set(&world, &job, TaskChange { status: Some(status), ..TaskChange::default() }).await.unwrap();
        let ended = recorded(&world).await;
        assert!(ended.finished_at.is_some() && ended.result_path.is_none());
        assert_eq!(world.event(EventKind::JobFinished).await.payload["status"], status.as_str());
    }
}

world_test!(a_job_on_which_nothing_works_is_started_again_with_its_open_tasks, async |world| {
    let job = begin(&world).await;
    let lead = world.take("ada").await.turn;
    begin(&world).await;
    assert_eq!(world.inbox("ada").await.len(), 0, "its lead is at work");
    let part = NewTask { parent_id: job.task_id, ..new_task("bob", "read a.md", at_hop(job.root_id, 1)) };
    run!(world, |w| tasks::create(w, &party("ada"), part)).unwrap();
    world.finish(lead.turn_id, "shared out").await.unwrap();
    begin(&world).await;
    assert_eq!(world.inbox("ada").await.len(), 0, "mail waits for bob");
    world.end(world.take("bob").await.turn.turn_id, Ending::Failed(Refusal::new(Code::Internal, "it broke"))).await;

    begin(&world).await;
    for owner in ["ada", "bob"] {
        let inbox = world.inbox(owner).await;
        assert_eq!((inbox.len(), inbox[0].root_id), (1, job.root_id), "{owner}");
    }
    begin(&world).await;
    assert_eq!(world.inbox("ada").await.len(), 1, "once");
    let given_up = TaskChange { status: Some(TaskStatus::Cancelled), ..TaskChange::default() };
    run!(world, |w| {
        let ctx = w.ctx;
        tasks::update(w, &operator(), job.task_id.unwrap(), given_up, Chain::root(ctx))
    })
    .unwrap();
    begin(&world).await;
    assert_eq!(world.inbox("ada").await.len(), 1, "a job that has ended is not started again");
});

world_test!(a_job_of_an_older_version_gets_its_task, async |world| {
    let job = begin(&world).await;
    let old = Job { task_id: None, result_dir: String::new(), ..job.clone() };
    run!(world, |w| Ok::<_, Refusal>(w.job_put(&old)?)).unwrap();
    let again = begin(&world).await;
    assert!(again.task_id.is_some() && again.task_id != job.task_id);
    assert_eq!((again.root_id, again.started_at), (job.root_id, job.started_at));
});
