//! Tests of access control, health checks and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use axum::http::{StatusCode, header};
use ghost_store::memory::MemoryDisk;
use ghost_store::{Ack, Backend, Nack, ReadWork, Store, StoreError, View, Work};

use super::asking::{TOKEN, ask, get, routes};
use super::figures;
use crate::http::router;
use crate::testing::TestControl;

// covers: CP-11
#[tokio::test]
async fn only_health_is_open_without_a_token() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    assert_eq!(ask(&routes, "GET", "/healthz", &[]).await.body, "ok\n");
    assert_eq!(ask(&routes, "GET", "/readyz", &[]).await.body, "ready\n");
    for path in ["/api/agents", "/api/agents/ada/tools/brief", "/api/agents/none/tools", "/api/events", "/metrics"] {
        for wrong in [&[][..], &[("authorization", "Bearer a-long-enough-tokem")], &[("authorization", TOKEN)]] {
            let answer = ask(&routes, "GET", path, wrong).await;
            assert_eq!(
                (answer.status, &answer.headers[header::WWW_AUTHENTICATE]),
                (StatusCode::UNAUTHORIZED, &"Bearer".parse().unwrap()),
                "{path} {wrong:?}"
            );
            assert!(answer.refusal().hint.unwrap().contains("Bearer"), "{path}");
        }
    }
    // Without a configured token every token is wrong.
    let none = router(test.control.clone(), None, ("127.0.0.1:8080".parse().unwrap(), false));
    assert_eq!(get(&none, "/api/agents/ada/tools").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn other_hosts_and_other_origins_are_refused() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    let token = format!("Bearer {TOKEN}");
    for path in ["/healthz", "/readyz", "/metrics", "/api/agents/ada/tools", "/api/events", "/api/tasks", "/nothing"] {
        for headers in [
            &[("host", "evil.example:8080")][..],
            &[("host", "evil.example"), ("authorization", &token)],
            &[("origin", "http://evil.example"), ("authorization", &token)],
            &[("origin", "null")],
        ] {
            let answer = ask(&routes, "GET", path, headers).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {headers:?}");
            assert!(answer.refusal().hint.is_some());
        }
    }
    let own = ask(&routes, "GET", "/healthz", &[("origin", "http://localhost:8080")]).await;
    assert_eq!((own.status, &own.headers[header::CACHE_CONTROL]), (StatusCode::OK, &"no-store".parse().unwrap()));
}

#[tokio::test]
async fn a_stopping_daemon_is_healthy_but_not_ready() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    test.closing.send_replace(true);
    assert_eq!(get(&routes, "/healthz").await.status, StatusCode::OK);
    let answer = get(&routes, "/readyz").await;
    assert_eq!(
        (answer.status, answer.refusal().code),
        (StatusCode::SERVICE_UNAVAILABLE, ghost_domain::Code::Unavailable)
    );
}

#[tokio::test]
async fn a_closed_store_is_not_ready() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    test.world.store().close().await;
    assert_eq!(get(&routes, "/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_daemon_with_a_loop_that_is_down_is_not_ready_and_names_it() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    test.world.loops().fail_next("maintenance", 1);
    let advance = async |until_down: bool| {
        for _ in 0..100 {
            if test.world.loops().down().is_empty() != until_down {
                return;
            }
            test.clock.advance(std::time::Duration::from_millis(500));
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
        panic!("the state did not change");
    };
    advance(true).await;
    let answer = get(&routes, "/readyz").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let refusal = answer.refusal();
    assert_eq!(refusal.details.unwrap()["loops_down"], serde_json::json!(["maintenance"]));
    assert_eq!(get(&routes, "/healthz").await.status, StatusCode::OK);
    advance(false).await;
    assert_eq!(get(&routes, "/readyz").await.body, "ready\n");
}

/// A store that fails all writes once `lost` is set. Reads go on.
struct FailingWrites {
    inner: Store,
    lost: Arc<AtomicBool>,
}

#[async_trait]
impl Backend for FailingWrites {
    async fn submit(&self, work: Work) -> Result<(), StoreError> {
        if self.lost.load(Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        let done: Result<Ack, Failure> = self.inner.write(move |w| work(w).map_err(Failure::Refused)).await;
        match done {
            Ok(ack) => ack(Ok(())),
            Err(Failure::Refused(nack)) => nack(),
            Err(Failure::Store(error)) => return Err(error),
        }
        Ok(())
    }

    async fn query(&self, _: View, work: ReadWork) -> Result<(), StoreError> {
        let query = self.inner.read(|r| {
            work(r);
            Ok(())
        });
        query.await
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    async fn broken(&self) -> StoreError {
        self.inner.broken().await
    }
}

/// Why a command of the inner store failed.
enum Failure {
    Refused(Nack),
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

#[tokio::test]
async fn a_store_that_cannot_write_is_not_ready() {
    let (inner, lost) = (MemoryDisk::new().open(), Arc::new(AtomicBool::new(false)));
    let losing = Arc::clone(&lost);
    let store = Store::open(|_| async move { Ok(FailingWrites { inner, lost: losing }) }).await.unwrap();
    let test = TestControl::over(store, "").await;
    let routes = routes(&test);
    assert_eq!(get(&routes, "/readyz").await.body, "ready\n");
    lost.store(true, Ordering::SeqCst);
    assert_eq!(get(&routes, "/api/agents").await.status, StatusCode::OK);
    let answer = get(&routes, "/readyz").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{}", answer.body);
}

// covers: CP-11
#[tokio::test]
async fn metrics_show_the_world_in_the_format_of_prometheus() {
    let test = TestControl::with("budgets: { world: { tokens: 1000, usd: 2 } }\nmetrics: { open: true }\n").await;
    let routes = routes(&test);
    let page = ask(&routes, "GET", "/metrics", &[]).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.headers[header::CONTENT_TYPE].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    let last = test.world.store().last_seq();
    for row in [
        "ghost_agents{status=\"running\"} 2",
        "ghost_agents{status=\"failed\"} 0",
        "ghost_open_turns 0",
        "ghost_inbox_messages 0",
        "ghost_dead_letters_held 0",
        &format!("ghost_last_seq {last}"),
        &format!("ghost_events_total {last}"),
        "ghost_event_readers 0",
        "ghost_paused 0",
        "ghost_budget_tokens_limit{scope=\"world\"} 1000",
        "ghost_budget_dollars_limit{scope=\"world\"} 2",
        "ghost_budget_tokens_spent{scope=\"world\"} 0",
        "ghost_model_calls_queued{provider=\"test\"} 0",
        "ghost_model_calls_in_use{provider=\"test\"} 0",
        "ghost_uptime_seconds 0",
    ] {
        assert!(page.body.lines().any(|line| line == row), "{row} is missing in\n{}", page.body);
    }
    figures::strict(&page.body);
    for family in ["process_cpu_seconds_total", "process_open_fds", "process_start_time_seconds", "ghost_build_info"] {
        assert!(page.body.contains(&format!("# TYPE {family} ")), "{family} is missing");
    }
}

#[tokio::test]
async fn events_are_counted_by_outcome() {
    let test = TestControl::with("metrics: { open: true }\n").await;
    let routes = routes(&test);
    let counting = tokio::spawn(crate::tallies::follow(
        std::sync::Arc::clone(&test.world),
        std::sync::Arc::clone(&test.control.tallies),
    ));
    let payload = serde_json::json!({
        "turn_id": "t", "model": "big \"one\"", "tool": "workspace.read", "status": "finished", "duration_ms": 300,
        "input_tokens": 7, "output_tokens": 3, "cost_usd": 0.5,
    });
    let expected = [
        "ghost_turns_total{status=\"finished\"} 1",
        "ghost_turn_duration_seconds_count 1",
        "ghost_tool_calls_total{tool=\"workspace.read\",status=\"finished\"} 1",
        "ghost_model_calls_total{model=\"big \\\"one\\\"\",outcome=\"answered\"} 1",
        "ghost_model_tokens_total{model=\"big \\\"one\\\"\",sort=\"input\"} 7",
        "ghost_model_cost_dollars_total{model=\"big \\\"one\\\"\"} 0.5",
        "ghost_model_call_duration_seconds_bucket{model=\"big \\\"one\\\"\",le=\"0.5\"} 1",
    ];
    use ghost_domain::EventKind::{ModelFinished, ToolFinished, TurnFinished, TurnStarted};
    let advance_until_metrics = async |rows: &[&str]| {
        for _ in 0..1_000 {
            let page = ask(&routes, "GET", "/metrics", &[]).await.body;
            if rows.iter().all(|row| page.lines().any(|line| line.starts_with(row))) {
                return page;
            }
            if rows.len() == 1 {
                // This event shows whether the counting has started.
                test.emit_with(TurnFinished, serde_json::json!({ "status": "begun" })).await;
            }
            tokio::task::yield_now().await;
        }
        panic!("the counts did not come: {rows:?}");
    };
    advance_until_metrics(&["ghost_turns_total{status=\"begun\"}"]).await;
    for kind in [TurnStarted, ModelFinished, ToolFinished, TurnFinished] {
        test.emit_with(kind, payload.clone()).await;
    }
    figures::strict(&advance_until_metrics(&expected).await);
    counting.abort();
}
