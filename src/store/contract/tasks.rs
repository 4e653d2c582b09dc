//! Tasks and their history.

use ghost_domain::{Party, Task, TaskEvent, TaskId, TaskStatus};
use serde_json::json;

use super::tools::*;
use crate::Store;
use crate::tables::TaskFilter;

pub(super) async fn tasks_round_trip(store: Bench) {
    let full = || {
        with(
            task(1, "a", TaskStatus::Blocked),
            json!({
                "title": AWKWARD, "description": AWKWARD, "creator": Party::Agent(id_of("b")), "priority": i32::MIN,
                "depends_on": [task_id(4), task_id(2), task_id(3)], "parent_id": task_id(5), "due_at": at(9), "result": AWKWARD,
            }),
        )
    };
    keep!(&store, |w| {
        w.task_put(&Task { depends_on: vec![task_id(9)], ..task(1, "z", TaskStatus::Pending) })?;
        w.task_put(&full())?;
        assert_eq!(w.task_get(task_id(1))?.as_ref(), Some(&full()));
    });
    assert_eq!(reading!(&store, |r| { r.task_get(task_id(1))? }), Some(full()));
    assert_eq!(reading!(&store, |r| { r.task_get(task_id(2))? }), None);
}

async fn found(store: &Store, filter: TaskFilter) -> Vec<TaskId> {
    map_rows(&reading!(store, |r| { r.task_list(&filter)? }), |task| task.task_id)
}

pub(super) async fn tasks_are_listed_by_priority(store: Bench) {
    let inside = keep!(&store, |w| {
        w.task_put(&Task { created_at: at(8), ..task(1, "a", TaskStatus::Pending) })?;
        w.task_put(&Task { priority: 5, ..task(4, "a", TaskStatus::Done) })?;
        w.task_put(&Task { priority: -1, ..task(2, "b", TaskStatus::Pending) })?;
        w.task_put(&Task { created_at: at(7), parent_id: Some(task_id(4)), ..task(6, "b", TaskStatus::Pending) })?;
        w.task_put(&Task { created_at: at(7), ..task(5, "a", TaskStatus::InProgress) })?;
        w.task_put(&task(3, "a", TaskStatus::Cancelled))?;
        (w.task_list(&TaskFilter::default())?, w.task_count_open()?)
    });
    let any = TaskFilter::default;
    assert_eq!((map_rows(&inside.0, |task| task.task_id), inside.1), ([4, 3, 5, 6, 1, 2].map(task_id).to_vec(), 4));
    assert_eq!(found(&store, any()).await, [4, 3, 5, 6, 1, 2].map(task_id));
    assert_eq!(found(&store, TaskFilter { owner: Some(id_of("b")), ..any() }).await, [6, 2].map(task_id));
    assert_eq!(found(&store, TaskFilter { status: Some(TaskStatus::Pending), ..any() }).await, [6, 1, 2].map(task_id));
    assert_eq!(found(&store, TaskFilter { parent_id: Some(task_id(4)), ..any() }).await, [task_id(6)]);
    assert_eq!(found(&store, TaskFilter { limit: 2, ..any() }).await, [4, 3].map(task_id));
    assert_eq!(reading!(&store, |r| { r.task_count_open()? }), 4);
    keep!(&store, |w| { w.task_put(&task(1, "a", TaskStatus::Done))? });
    assert_eq!(reading!(&store, |r| { r.task_count_open()? }), 3);

    keep!(&store, |w| {
        for n in 7..=1_007 {
            w.task_put(&task(n, "c", TaskStatus::Pending))?;
        }
    });
    assert_eq!(found(&store, any()).await.len(), 100);
    assert_eq!(found(&store, TaskFilter { limit: 2_000, ..any() }).await.len(), 1_000);

    shows!(&store, |r| {
        r.tasks_open(None, None, 2_000)?.len() => 1_000;
        map_rows(&r.tasks_open(Some(&id_of("b")), None, 10)?, |task| task.task_id) => [2, 6].map(task_id);
        map_rows(&r.tasks_open(None, Some(task_id(5)), 2)?, |task| task.task_id) => [6, 7].map(task_id);
        r.tasks_open(Some(&id_of("c")), None, 0)?.len() => 100;
    });
}

pub(super) async fn dependants_are_found(store: Bench) {
    let on = |n, depends_on: &[u64]| Task {
        depends_on: map_rows(depends_on, |n| task_id(*n)),
        ..task(n, "a", TaskStatus::Blocked)
    };
    keep!(&store, |w| {
        w.task_put(&on(4, &[1, 2]))?;
        w.task_put(&on(3, &[1]))?;
        w.task_put(&on(5, &[2]))?;
        w.task_put(&on(6, &[1]))?;
        // Replacing a task replaces its dependencies.
        w.task_put(&on(6, &[2]))?;
        assert_eq!(map_rows(&w.task_dependants(task_id(1))?, |task| task.task_id), [task_id(3), task_id(4)]);
    });
    shows!(&store, |r| {
        r.task_dependants(task_id(1))? => [on(3, &[1]), on(4, &[1, 2])];
        map_rows(&r.task_dependants(task_id(2))?, |task| task.task_id) => [task_id(4), task_id(5), task_id(6)];
        r.task_dependants(task_id(6))? => [];
    });
}

// covers: TASK-04
pub(super) async fn history_is_in_order(store: Bench) {
    let event = |n: u64, task: u64, status| TaskEvent {
        task_id: task_id(task),
        by: Party::Agent(id_of("a")),
        // All have the same time, so the order of appends decides.
        at: at(1),
        status,
        owner: id_of("b"),
        note: (n > 1).then(|| format!("{n} {AWKWARD}")),
    };
    keep!(&store, |w| {
        w.task_event_append(&event(1, 1, TaskStatus::Pending))?;
        w.task_event_append(&event(2, 2, TaskStatus::Pending))?;
        w.task_event_append(&event(3, 1, TaskStatus::InProgress))?;
        assert_eq!(w.task_events(task_id(1), 100)?.len(), 2);
    });
    keep!(&store, |w| {
        w.task_event_append(&event(4, 1, TaskStatus::Done))?;
        assert_eq!(w.task_events(task_id(1), 100)?.len(), 3);
    });
    let (one, none) = reading!(&store, |r| { (r.task_events(task_id(1), 100)?, r.task_events(task_id(3), 100)?) });
    let wanted = [event(1, 1, TaskStatus::Pending), event(3, 1, TaskStatus::InProgress), event(4, 1, TaskStatus::Done)];
    assert_eq!((one, none), (wanted.to_vec(), vec![]));
    assert_eq!(reading!(&store, |r| { r.task_events(task_id(1), 2)? }), wanted[1..]);

    // Of too many rows the oldest are deleted, task by task, a few at a time.
    keep!(&store, |w| {
        for _ in 0..3 {
            w.task_event_append(&event(2, 2, TaskStatus::Pending))?;
        }
        assert_eq!(w.prune_task_events(4, 10)?, 0);
        assert_eq!((w.prune_task_events(2, 2)?, w.prune_task_events(2, 2)?), (2, 1));
        assert_eq!(w.prune_task_events(2, 2)?, 0);
        w.task_event_append(&event(4, 1, TaskStatus::Done))?;
    });
    shows!(&store, |r| {
        r.task_events(task_id(1), 100)? => [wanted[1].clone(), wanted[2].clone(), wanted[2].clone()];
        r.task_events(task_id(2), 100)? => [event(2, 2, TaskStatus::Pending), event(2, 2, TaskStatus::Pending)];
    });
}
