use std::time::Duration;

use ghost_domain::transcript::Role;
use ghost_domain::{Code, TurnStatus};
use serde_json::json;

use super::fakes::{block, call, calls, say};
use super::rig::{Rig, id, results};
use crate::turn;

#[tokio::test]
async fn a_turn_that_turns_in_circles_is_warned_blocked_and_ended() {
    let rig = Rig::new().await;
    rig.limits(|limits| {
        limits.loop_warn = 2;
        limits.loop_block = 3;
        limits.loop_stop = 5;
    });
    rig.model.does(|_, _| call("test.look", json!({ "n": 1 })));
    let ask = rig.ask("ada").await;
    rig.work("ada").await.unwrap();
    assert_eq!(rig.probe.of(|probe| &probe.reads), 3, "blocked after the third");
    let turn = rig.turn("ada").await;
    assert_eq!(turn.status, TurnStatus::Failed);
    assert!(turn.reason.unwrap().starts_with(Code::LoopGuard.as_str()));
    assert!(rig.ask_row(ask.ask_id).await.error.is_some());
    let asked = rig.model.asked();
    let warned = |request: &ghost_provider::ModelRequest| {
        request.messages.iter().any(|m| m.role == Role::User && m.visible_text().contains("try another way"))
    };
    assert!(!warned(&asked[1]) && warned(&asked[2]));
    assert_eq!(results(&asked[4])[3]["code"], "loop_guard");
    assert_eq!(asked.len(), 5);
}

#[tokio::test]
async fn rounds_are_bounded() {
    let rig = Rig::with(|plan| {
        for agent in &mut plan.agents {
            agent.limits.turn_rounds_max = Some(3);
        }
    })
    .await;
    rig.model.does(|_, n| call("test.look", json!({ "n": n })));
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    assert_eq!(rig.model.asked().len(), 3);
    assert!(rig.turn("ada").await.reason.unwrap().contains("turn_rounds_max"));
}

#[tokio::test]
async fn waiting_for_an_answer_is_no_work_of_the_turns() {
    let rig = Rig::with(|plan| plan.limits.turn_seconds = 10).await;
    rig.model.does(|request, n| match (request.agent_id.as_str(), n) {
        ("ada", 0) => calls(vec![
            block("a", "test.look", json!({ "n": 1 })),
            block("b", "syscall.ask", json!({ "agent_id": "bob", "message": "?", "timeout_seconds": 100 })),
        ]),
        _ => say("well"),
    });
    rig.send("ada", "go").await;
    let began = rig.cx().now();
    rig.work("ada").await.unwrap();
    assert!(rig.cx().now().since(began) >= Duration::from_secs(100), "nobody answered");
    assert_eq!(results(&rig.model.asked()[1])[1]["status"], "timeout");
    assert_eq!(rig.turn("ada").await.status, TurnStatus::Finished);
}

#[tokio::test]
async fn working_too_long_ends_the_turn() {
    let rig = Rig::with(|plan| plan.limits.turn_seconds = 10).await;
    rig.probe.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    rig.model.does(|_, n| call("test.look", json!({ "n": n })));
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    assert!(rig.turn("ada").await.reason.unwrap().contains("turn_seconds"));
    assert_eq!(rig.model.asked().len(), 1, "thirty seconds in one call");
}

#[tokio::test]
async fn a_turn_that_was_cancelled_lets_go_quietly() {
    let rig = Rig::new().await;
    rig.probe.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    rig.model.does(|_, n| if n == 0 { call("test.act", json!({ "n": 1 })) } else { say("next") });
    rig.send("ada", "go").await;
    let agent_id = id("ada");
    let cancel = async {
        rig.probe.entered.notified().await;
        let turn_id = rig.turn("ada").await.turn_id;
        super::rig::write!(rig, |w, cx| {
            ghost_commons::turns::cancel(w, &cx, &super::rig::operator(), turn_id).await
        })
        .unwrap();
        rig.send("ada", "again").await;
    };
    let (worked, ()) =
        rig.in_time(async { tokio::join!(turn::work(&rig.engine, &agent_id, &rig.bench), cancel) }).await;
    worked.unwrap();
    // The mail that came meanwhile brought a wake-up of its own.
    rig.work("ada").await.unwrap();
    assert_eq!(rig.turn("ada").await.text.as_deref(), Some("next"), "the agent goes on with its next mail");
    let rows = rig.ledger().await;
    assert_eq!((rows.len(), rows[0].error_code), (1, Some(Code::OutcomeUnknown)));
}
