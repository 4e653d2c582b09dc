//! Tasks and their history.

use super::tools::*;

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
    put!(&store, { task_put: Task { depends_on: vec![task_id(9)], ..task(1, "z", TaskStatus::Pending) }, full(); });
    shows!(&store, |r| {
        r.task_get(task_id(1))? => Some(full());
        r.task_get(task_id(2))? => None;
    });
}

async fn found(store: &Store, filter: TaskFilter) -> Vec<TaskId> {
    map_rows(&reading!(store, |r| { r.task_list(&filter)? }), |task| task.task_id)
}

pub(super) async fn tasks_are_listed_by_priority(store: Bench) {
    use TaskStatus::{Cancelled, Done, InProgress, Pending};
    let created = |second, n, owner, status| Task { created_at: at(second), ..task(n, owner, status) };
    put!(&store, {
        task_put: created(8, 1, "a", Pending), Task { priority: 5, ..task(4, "a", Done) },
            Task { priority: -1, ..task(2, "b", Pending) },
            Task { parent_id: Some(task_id(4)), ..created(7, 6, "b", Pending) }, created(7, 5, "a", InProgress),
            task(3, "a", Cancelled);
    });
    let any = TaskFilter::default;
    for (filter, wanted) in [
        (any(), &[4, 3, 5, 6, 1, 2][..]),
        (TaskFilter { owner: Some(id_of("b")), ..any() }, &[6, 2]),
        (TaskFilter { status: Some(Pending), ..any() }, &[6, 1, 2]),
        (TaskFilter { parent_id: Some(task_id(4)), ..any() }, &[6]),
        (TaskFilter { limit: 2, ..any() }, &[4, 3]),
    ] {
        assert_eq!(found(&store, filter.clone()).await, map_rows(wanted, |n| task_id(*n)), "{filter:?}");
    }
    shows!(&store, |r| { r.task_count_open()? => 4; });
    put!(&store, { task_put: task(1, "a", Done); });
    shows!(&store, |r| { r.task_count_open()? => 3; });
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
    // Replacing a task replaces its dependencies.
    put!(&store, { task_put: on(4, &[1, 2]), on(3, &[1]), on(5, &[2]), on(6, &[1]), on(6, &[2]); });
    shows!(&store, |r| {
        r.task_dependants(task_id(1))? => [on(3, &[1]), on(4, &[1, 2])];
        map_rows(&r.task_dependants(task_id(2))?, |task| task.task_id) => [4, 5, 6].map(task_id);
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
    let (first, second, third) = (
        move || event(1, 1, TaskStatus::Pending),
        move || event(3, 1, TaskStatus::InProgress),
        move || event(4, 1, TaskStatus::Done),
    );
    let other = move || event(2, 2, TaskStatus::Pending);
    put!(&store, { task_event_append: first(), other(), second(); });
    put!(&store, { task_event_append: third(); });
    shows!(&store, |r| {
        r.task_events(task_id(1), 100)? => [first(), second(), third()];
        r.task_events(task_id(1), 2)? => [second(), third()];
        r.task_events(task_id(3), 100)? => [];
    });
    // Of too many rows the oldest are deleted, task by task, a few at a time.
    put!(&store, { task_event_append: other(), other(), other(); });
    for (keep, limit, gone) in [(4, 10, 0), (2, 2, 2), (2, 2, 1), (2, 2, 0)] {
        assert_eq!(keep!(&store, |w| { w.prune_task_events(keep, limit)? }), gone, "beyond {keep}, at most {limit}");
    }
    put!(&store, { task_event_append: third(); });
    shows!(&store, |r| {
        r.task_events(task_id(1), 100)? => [second(), third(), third()];
        r.task_events(task_id(2), 100)? => [other(), other()];
    });
}
