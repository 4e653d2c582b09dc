//! Tests of the operations on the whole world and of repeated requests.

use std::sync::atomic::Ordering;

use ghost_domain::{Code, Refusal};
use ghost_proto::v1::{
    PauseRequest, PauseResponse, ReflectRequest, ReflectResponse, ReloadRequest, ReloadResponse, ResolveIdRequest,
    ResolveIdResponse, ResourcesRequest, ResourcesResponse, ResumeRequest, ResumeResponse, ShutdownRequest,
    ShutdownResponse, StatusRequest, WorldStatus,
};
use tonic::Status;

use crate::testing::{TestControl, refusal_of};

async fn status_of(test: &TestControl) -> WorldStatus {
    test.call("World/Status", StatusRequest {}).await.unwrap()
}

async fn pause(test: &TestControl, id: &str, reason: Option<String>) -> Result<PauseResponse, Status> {
    test.call("World/Pause", PauseRequest { request_id: id.into(), reason }).await
}

async fn resume(test: &TestControl, id: &str) -> Result<ResumeResponse, Status> {
    test.call("World/Resume", ResumeRequest { request_id: id.into() }).await
}

async fn reload(test: &TestControl, id: &str, dry_run: bool) -> Result<ReloadResponse, Status> {
    test.call("World/Reload", ReloadRequest { request_id: id.into(), dry_run }).await
}

async fn shutdown(test: &TestControl, grace_ms: u64) -> Result<ShutdownResponse, Status> {
    test.call("World/Shutdown", ShutdownRequest { request_id: "s".into(), grace_ms: Some(grace_ms) }).await
}

#[tokio::test]
async fn status_shows_the_world() {
    let test = TestControl::with("budgets: { world: { tokens: 1 } }\n").await;
    let status = status_of(&test).await;
    assert_eq!((status.world_id.as_str(), status.name.as_str(), status.node.as_str()), ("test", "Test", "here"));
    assert_eq!((status.paused, status.open_turns, status.inbox_total, status.dead_letters_held), (false, 0, 0, 0));
    let by_status: Vec<_> = status.agents_by_status.iter().map(|row| (row.name.as_str(), row.count)).collect();
    assert_eq!(by_status, [("running", 2)]);
    assert_eq!(status.agents_by_activity.iter().map(|row| row.count).sum::<u64>(), 2);
    assert_eq!(status.last_seq, test.world.store().last_seq());
    assert_eq!(status.endpoints, ["unix:/g.sock"]);
    assert!(status.job.is_none() && status.started_at_ms == 1_000_000 && status.now_at_ms >= status.started_at_ms);
    assert!(status.warnings.iter().all(|warning| !warning.contains('\n')));
}

#[tokio::test]
async fn status_names_the_loop_that_is_down() {
    let test = TestControl::new().await;
    test.world.loops().fail_next("maintenance", 1);
    let down = async || {
        let status = status_of(&test).await;
        status.loops_down.into_iter().map(|down| (down.name, down.failures, down.error)).collect::<Vec<_>>()
    };
    let advance_until = async |is_down: bool| {
        for _ in 0..100 {
            if test.world.loops().down().is_empty() != is_down {
                return;
            }
            test.clock.advance(std::time::Duration::from_millis(500));
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
        panic!("the state did not change");
    };
    assert_eq!(down().await, []);
    advance_until(true).await;
    let listed = down().await;
    assert!(
        matches!(&listed[..], [(name, 1, error)] if name == "maintenance" && error.contains("panic")),
        "{listed:?}"
    );
    advance_until(false).await;
    assert_eq!(down().await, []);
}

#[tokio::test]
async fn status_lists_budgets_near_their_limit() {
    let test = TestControl::new().await;
    let write = test.world.write(move |w| {
        for (scope, deleted) in [("agent:ada", false), ("agent:ben/day", true)] {
            let scope: ghost_domain::Scope = scope.parse()?;
            if let Some(agent_id) = scope.agent().filter(|_| deleted) {
                ghost_operations::agents::delete(w, &ghost_domain::Party::System, agent_id)?;
            }
            let limits = ghost_domain::BudgetLimits { tokens: Some(10), money: None };
            let now = w.ctx.now();
            w.budget_put(&ghost_domain::Budget { limits, spent_tokens: 9, ..ghost_domain::Budget::open(scope, now) })?;
        }
        Ok::<_, Refusal>(())
    });
    write.await.unwrap();
    let status = status_of(&test).await;
    let near: Vec<_> = status.budgets_near_bound.iter().map(|budget| budget.scope.as_str()).collect();
    assert_eq!(near, ["agent:ada"]);
}

#[tokio::test]
async fn a_repeated_pause_has_the_same_answer_and_no_second_effect() {
    let test = TestControl::new().await;
    let first = pause(&test, "p1", None).await.unwrap();
    assert!(first.paused && first.changed && test.world.directory().is_paused());
    assert!(!pause(&test, "p2", None).await.unwrap().changed);
    assert!(resume(&test, "r1").await.unwrap().changed);
    let seq = test.world.store().last_seq();
    assert_eq!(pause(&test, "p1", None).await.unwrap(), first);
    assert!(!test.world.directory().is_paused(), "a repetition does not pause again");
    assert_eq!(test.world.store().last_seq(), seq);
    for status in [
        pause(&test, "p1", Some("tea".into())).await.map(drop).unwrap_err(),
        resume(&test, "p1").await.map(drop).unwrap_err(),
    ] {
        assert_eq!((status.code(), refusal_of(&status).code), (tonic::Code::FailedPrecondition, Code::Conflict));
    }
    assert!(!test.world.directory().is_paused());
}

#[tokio::test]
async fn bad_requests_change_nothing() {
    let test = TestControl::new().await;
    for id in ["", "ä", "a\nb", &"x".repeat(129)] {
        let status = pause(&test, id, None).await.map(drop).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{id}");
    }
    for reason in ["a\u{7}b".to_owned(), "x".repeat(1_001)] {
        let status = pause(&test, "p", Some(reason)).await.map(drop).unwrap_err();
        assert_eq!(refusal_of(&status).details.unwrap()["field"], "reason");
    }
    let status = shutdown(&test, u64::MAX).await.map(drop).unwrap_err();
    assert_eq!(refusal_of(&status).details.unwrap()["field"], "grace_ms");
    assert!(!test.world.directory().is_paused());
    assert_eq!(test.shutdowns.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_repeated_shutdown_starts_once() {
    let test = TestControl::new().await;
    for _ in 0..3 {
        assert!(shutdown(&test, 1_500).await.unwrap().accepted);
    }
    assert_eq!(test.shutdowns.load(Ordering::SeqCst), 1);
    assert_eq!(test.world.ctx().limits().stop_grace_seconds, 2);
}

#[tokio::test]
async fn a_reload_shows_its_plan_applies_it_once_and_reports_problems() {
    let test = TestControl::new().await;
    test.rewrite("limits: { hops_max: 7 }\n");
    let listed = reload(&test, "x", true).await.unwrap();
    assert!(!listed.applied && test.world.ctx().limits().hops_max == 32);
    let rows: Vec<_> = listed.changes.iter().map(|row| (row.action.as_str(), row.subject.as_str())).collect();
    assert_eq!(rows, [("update", "world"), ("keep", "world")]);
    assert_eq!(listed.changes[0].detail, "limits");
    let done = reload(&test, "y", false).await.unwrap();
    assert_eq!((done.applied, &done.changes), (true, &listed.changes));
    assert_eq!(test.world.ctx().limits().hops_max, 7);

    test.rewrite("");
    let seq = test.world.store().last_seq();
    assert_eq!(reload(&test, "y", false).await.unwrap(), done);
    assert_eq!((test.world.ctx().limits().hops_max, test.world.store().last_seq()), (7, seq));

    let problem =
        serde_json::json!({ "severity": "error", "file": "w.yaml", "line": 3, "field": "a", "message": "no" });
    let refusal =
        Refusal::new(Code::InvalidArguments, "problems").details(serde_json::json!({ "problems": [problem] }));
    *test.reload.lock().unwrap() = Some(refusal);
    let refused = reload(&test, "z", false).await.unwrap();
    assert_eq!((refused.applied, refused.problems.len(), refused.problems[0].line), (false, 1, 3));
    // After the files are corrected, the same request may be sent again.
    *test.reload.lock().unwrap() = None;
    assert!(reload(&test, "z", false).await.unwrap().applied);
    *test.reload.lock().unwrap() = Some(Refusal::new(Code::Conflict, "another world"));
    let status = reload(&test, "w", false).await.map(drop).unwrap_err();
    assert_eq!(refusal_of(&status).code, Code::Conflict);
}

// covers: CP-12
#[tokio::test]
async fn reflect_and_resources_show_the_current_state() {
    let test = TestControl::new().await;
    let seen: ReflectResponse = test.call("World/Reflect", ReflectRequest {}).await.unwrap();
    let ids: Vec<_> = seen.agents.iter().map(|agent| agent.agent_id.as_str()).collect();
    assert_eq!((ids, seen.cost_micros, seen.world_id.as_str()), (vec!["ada", "ben"], 0, "test"));
    assert!(seen.agents.iter().all(|agent| agent.activity.is_some()) && seen.token_usage.is_some());
    let used: ResourcesResponse = test.call("World/Resources", ResourcesRequest {}).await.unwrap();
    assert!(used.process_rss_bytes > 0 && used.host_cpus > 0 && used.disk_total_bytes > 0 && used.tasks > 0);
}

#[tokio::test]
async fn an_id_is_found_by_its_prefix_and_ambiguous_ones_are_listed() {
    let test = TestControl::new().await;
    let ids = [0x0197_d2a0_1111_u128 << 80, 0x0197_d2a0_1122_u128 << 80].map(uuid::Uuid::from_u128);
    let write = test.world.write(move |w| {
        for id in ids {
            let (people, at) = (("ada".parse()?, ghost_domain::Party::System), w.ctx.now());
            let task_id = ghost_domain::TaskId(id);
            w.task_put(&ghost_domain::Task::new(task_id, "t".into(), people, ghost_domain::RootId(id), at))?;
        }
        Ok::<_, Refusal>(())
    });
    write.await.unwrap();
    let resolve = async |kind: &str, prefix: &str| {
        let request = ResolveIdRequest { kind: kind.into(), prefix: prefix.into() };
        test.call("World/ResolveId", request).await.map(|found: ResolveIdResponse| found.full_id)
    };
    let [first, second] = ids.map(|id| id.to_string());
    assert_eq!(resolve("task", "0197d2a0-111").await.unwrap(), first);
    assert_eq!(resolve("task", "0197D2A01122").await.unwrap(), second);
    let ambiguous = refusal_of(&resolve("task", "0197").await.unwrap_err());
    assert_eq!(ambiguous.code, Code::InvalidArguments);
    let hint = ambiguous.hint.unwrap();
    assert!(hint.contains(&first) && hint.contains(&second), "{hint}");
    for (kind, prefix, code) in [
        ("task", "0198", Code::NotFound),
        ("turn", "0197", Code::NotFound),
        ("task", "", Code::InvalidArguments),
        ("task", "chora", Code::InvalidArguments),
        ("event", "0197", Code::InvalidArguments),
    ] {
        assert_eq!(refusal_of(&resolve(kind, prefix).await.unwrap_err()).code, code, "{kind} {prefix}");
    }
}

/// The answers of earlier versions are in the database, in the form that the messages have as JSON.
#[test]
fn stored_answers_of_earlier_versions_are_read() {
    let reload = r#"{"changes":[{"action":"add","subject":"agent:a","detail":"d"}],"problems":[{"severity":"warning","file":"f","line":1,"message":"m"}],"applied":true}"#;
    let read: ghost_proto::v1::ReloadResponse = serde_json::from_str(reload).unwrap();
    assert!(read.applied && read.changes.len() == 1 && read.problems[0].line == 1);
    let trust =
        r#"{"toolbox":"t","tools":[{"name":"t.x","state":"trusted","reason":null,"hash":"h","description":null}]}"#;
    let read: ghost_proto::v1::ToolboxCheck = serde_json::from_str(trust).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), trust);
}
