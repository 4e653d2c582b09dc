use ghost_domain::Code;
use serde_json::json;

use super::tool_world::{ToolWorld, code, with};

// covers: BI-50, BI-51, BI-52, BI-53, TASK-04
#[tokio::test]
async fn a_task_is_created_listed_read_and_changed() {
    let world = ToolWorld::new().await;
    let new = json!({
        "title": "Count", "description": "d".repeat(1_000), "owner": "bob", "priority": 3,
        "due_at": "2026-11-30T18:00:00Z",
    });
    let task = world.content("syscall.task.create", new).await;
    assert_eq!((&task["owner"], task.get("description")), (&json!("bob"), None), "the caller wrote the description");
    assert_eq!((&task["status"], &task["due_at"]), (&json!("pending"), &json!("2026-11-30T18:00:00.000Z")));
    assert!(task.get("id").is_none());
    assert_eq!(world.inbox("bob").await.len(), 1);
    world.content("syscall.task.create", json!({ "title": "Mine" })).await;
    let all = world.content("syscall.task.list", json!({})).await;
    let titles: Vec<&str> = all.as_array().unwrap().iter().map(|task| task["title"].as_str().unwrap()).collect();
    assert_eq!((titles, &all[0]["creator"]), (vec!["Count", "Mine"], &json!("agent:ada")));
    assert!(all[0]["description"].as_str().unwrap().len() < 400);
    let bobs = world.content("syscall.task.list", json!({ "owner": "bob", "status": "pending" })).await;
    assert_eq!(bobs.as_array().unwrap().len(), 1);
    let cut = world.call("syscall.task.list", json!({ "limit": 1 })).await.unwrap();
    assert!(cut.truncated && cut.content.as_array().unwrap().len() == 1);
    let bob = world.call_by("bob").await;
    let done = json!({ "task_id": task["task_id"], "status": "done", "result": "7", "note": "n" });
    assert_eq!(world.call_as(&bob, "syscall.task.update", None, done).await.unwrap().content["status"], "done");
    let full = world.content("syscall.task.get", json!({ "task_id": task["task_id"] })).await;
    assert_eq!(full["description"].as_str().unwrap().len(), 1_000);
    assert_eq!(full["history"].as_array().unwrap().len(), 2);
    assert_eq!(full["history"][1]["by"], "agent:bob");
    assert_eq!((full["notes"].as_array().unwrap().len(), &full["notes"][0]["note"]), (1, &json!("n")));
}

#[tokio::test]
async fn wrong_calls_are_refused_with_a_reason() {
    let world = ToolWorld::new().await;
    let create = |extra: serde_json::Value| {
        let mut arguments = json!({ "title": "T" });
        arguments.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        arguments
    };
    for (extra, expected) in [
        (json!({ "owner": "bop" }), Code::NotFound),
        (json!({ "due_at": "soon" }), Code::InvalidArguments),
        (json!({ "depends_on": ["x"] }), Code::InvalidArguments),
        (json!({ "parent_id": "00000000-0000-0000-0000-0000000000ff" }), Code::NotFound),
    ] {
        assert_eq!(code(world.call("syscall.task.create", create(extra)).await), expected);
    }
    assert_eq!(code(world.call("syscall.task.get", json!({ "task_id": "x" })).await), Code::InvalidArguments);
    let missing = json!({ "task_id": "00000000-0000-0000-0000-0000000000ff" });
    assert_eq!(code(world.call("syscall.task.get", missing).await), Code::NotFound);
    assert_eq!(code(world.call("syscall.task.list", json!({ "status": "finished" })).await), Code::InvalidArguments);
    assert_eq!(code(world.call("syscall.task.list", json!({ "limit": 5_000 })).await), Code::InvalidArguments);
}

// covers: CONF-22, TASK-05
#[tokio::test]
async fn without_the_privilege_only_ones_own_tasks_may_be_changed() {
    let world = ToolWorld::new().await;
    let bobs = world.content("syscall.task.create", json!({ "title": "B", "owner": "bob" })).await["task_id"].clone();
    let mine = world.content("syscall.task.create", json!({ "title": "A" })).await["task_id"].clone();
    let status = |task: &serde_json::Value| json!({ "task_id": task, "status": "in_progress" });
    assert_eq!(code(world.call("syscall.task.update", status(&bobs)).await), Code::AccessDenied);
    world.content("syscall.task.update", status(&mine)).await;
    let waits = json!({ "task_id": mine, "depends_on": [bobs] });
    assert_eq!(code(world.call("syscall.task.update", waits.clone()).await), Code::AccessDenied);
    let away = json!({ "task_id": mine, "owner": "bob" });
    assert_eq!(code(world.call("syscall.task.update", away.clone()).await), Code::AccessDenied);
    let manager = with(&world.ada, |caller| caller.manages_tasks = true);
    world.call_as(&manager, "syscall.task.update", None, status(&bobs)).await.unwrap();
    let held = world.call_as(&manager, "syscall.task.update", None, waits).await.unwrap().content;
    assert_eq!((&held["status"], &held["depends_on"]), (&json!("blocked"), &json!([bobs])));
    let round = json!({ "task_id": bobs, "depends_on": [mine] });
    assert_eq!(code(world.call_as(&manager, "syscall.task.update", None, round).await), Code::Conflict);
    let given = world.call_as(&manager, "syscall.task.update", None, away).await.unwrap();
    assert_eq!(given.content["owner"], "bob");
    let own = world.content("syscall.task.create", json!({ "title": "C" })).await["task_id"].clone();
    let denied = with(&world.ada, |caller| caller.updates_own_tasks = false);
    assert_eq!(
        code(world.call_as(&denied, "syscall.task.update", None, status(&own)).await),
        Code::AccessDenied,
        "a denial holds for the owner, too"
    );
    let mut plan = (*world.services.plan()).clone();
    plan.owner_may_update_tasks = false;
    world.services.set_plan(plan.into());
    assert_eq!(code(world.call("syscall.task.update", status(&own)).await), Code::AccessDenied);
}
