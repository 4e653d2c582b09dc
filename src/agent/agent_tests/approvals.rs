//! Calls wait for an operator, over crashes, and run once or not at all.

use std::collections::BTreeSet;
use std::time::Duration;

use ghost_domain::{Approval, ApprovalStatus, CallStatus, Code, TurnStatus};
use ghost_operations::approvals::{self, Decision};
use ghost_operations::turns;
use ghost_provider::testing::{block, call, calls, say};
use ghost_store::tables::ApprovalFilter;
use serde_json::json;

use super::agent_world::{AgentWorld, id, operator, read, results, write};
use super::fakes::ASKING;
use crate::turn;

/// A world in which these tools need an approval.
async fn under_approval(tools: &[&str]) -> AgentWorld {
    let world = AgentWorld::with(|plan| {
        plan.approvals.tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        plan.approvals.expires = Duration::from_secs(600);
    })
    .await;
    world.model.reply_with(|_, n| if n == 0 { call("test.act", json!({ "n": 1 })) } else { say("well") });
    world.send("ada", "go").await;
    world
}

async fn all(world: &AgentWorld) -> Vec<Approval> {
    read!(world, |r| r.approval_list(&ApprovalFilter::default(), None, 0)?)
}

/// The only approval, as soon as it is there.
async fn requested(world: &AgentWorld) -> Approval {
    loop {
        if let Some(approval) = all(world).await.pop() {
            return approval;
        }
        tokio::task::yield_now().await;
    }
}

async fn decide(world: &AgentWorld, approval: &Approval, decision: Decision) {
    let approval_id = approval.approval_id;
    write!(world, |w| {
        let note = Some("not today".to_owned());
        approvals::decide(w, &operator(), &BTreeSet::new(), approval_id, decision, note)
    })
    .unwrap();
}

/// Works until the agent has ended its turn, while `act` answers.
async fn work_while(world: &AgentWorld, act: impl Future<Output = ()>) {
    let agent_id = id("ada");
    let work = async { turn::work(&world.engine, &agent_id, &world.session).await.unwrap() };
    world.in_time(async { tokio::join!(work, act) }).await;
}

fn ran(world: &AgentWorld) -> u32 {
    world.tool_state.count(|state| &state.outside)
}

// covers: EXEC-01, EXEC-10
#[tokio::test]
async fn an_approved_call_runs_once_and_a_denied_one_does_not() {
    for (decision, runs, code) in
        [(Decision::Approve { always: false }, 1, None), (Decision::Deny, 0, Some(Code::ApprovalDenied))]
    {
        let world = under_approval(&["test.act"]).await;
        work_while(&world, async {
            let approval = requested(&world).await;
            assert_eq!((approval.status, ran(&world)), (ApprovalStatus::Pending, 0));
            assert_eq!(approval.plan.arguments, json!({ "n": 1 }));
            decide(&world, &approval, decision).await;
        })
        .await;
        assert_eq!(ran(&world), runs);
        let rows = world.ledger().await;
        assert_eq!(rows.iter().map(|row| row.error_code).collect::<Vec<_>>(), [code]);
        let seen = results(&world.model.requests()[1]);
        if code.is_some() {
            assert!(seen[0]["error"].as_str().unwrap().contains("not today"), "{seen:?}");
        }
        assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
    }
}

// covers: EXEC-10
#[tokio::test]
async fn a_wait_survives_a_crash_before_and_after_the_answer() {
    for answered_while_down in [false, true] {
        let world = under_approval(&["test.act"]).await;
        let waiting = async { drop(requested(&world).await) };
        world.work_until("ada", waiting).await;
        write!(world, |w| turns::review_at_boot(w)).unwrap();
        let approval = requested(&world).await;
        let approve = Decision::Approve { always: false };
        if answered_while_down {
            decide(&world, &approval, approve.clone()).await;
            work_while(&world, async {}).await;
        } else {
            work_while(&world, decide(&world, &approval, approve.clone())).await;
        }
        assert_eq!((ran(&world), all(&world).await.len()), (1, 1), "asked once, run once");
        assert_eq!(world.ledger().await[0].status, CallStatus::Ok);
        assert_eq!(world.model.requests().len(), 2);
    }
}

// covers: EXEC-01, SBX-11
#[tokio::test]
async fn a_call_waits_if_what_its_files_hold_asks_for_it() {
    let world = under_approval(&[]).await;
    world.model.reply_with(|_, n| if n == 0 { call("test.act", json!({ "n": ASKING })) } else { say("well") });
    work_while(&world, async {
        let approval = requested(&world).await;
        assert_eq!((approval.status, ran(&world), &*approval.reason), (ApprovalStatus::Pending, 0, "its files say so"));
        decide(&world, &approval, Decision::Approve { always: false }).await;
    })
    .await;
    assert_eq!(ran(&world), 1);
    world.send("ada", "again").await;
    world.model.reply_with(|_, n| if n == 0 { call("test.act", json!({ "n": 1 })) } else { say("well") });
    world.work("ada").await.unwrap();
    assert_eq!(all(&world).await.len(), 1);
}

// covers: EXEC-10, TEST-14
#[tokio::test]
async fn nobody_answers_and_the_request_expires() {
    let world = under_approval(&["test.act"]).await;
    world.work("ada").await.unwrap();
    let approval = all(&world).await.remove(0);
    assert_eq!((approval.status, ran(&world)), (ApprovalStatus::Expired, 0));
    assert_eq!(world.ledger().await[0].error_code, Some(Code::Timeout));
}

// covers: EXEC-10
#[tokio::test]
async fn an_approval_for_good_lets_the_same_plan_run_and_asks_for_another() {
    let world = under_approval(&["test.act"]).await;
    let always = Decision::Approve { always: true };
    work_while(&world, async { decide(&world, &requested(&world).await, always).await }).await;
    for (n, asked) in [(1, 1), (2, 2)] {
        world.model.reply_with(move |request, _| match results(request).len() {
            0 => call("test.act", json!({ "n": n })),
            _ => say("well"),
        });
        write!(world, |w| ghost_operations::sessions::reset(w, &operator(), &id("ada"), None)).unwrap();
        world.engine.forget_logs();
        world.send("ada", "again").await;
        world.work("ada").await.unwrap();
        assert_eq!(all(&world).await.len(), asked, "{n}");
    }
    assert_eq!(ran(&world), 2, "the second plan expired");
}

// covers: EXEC-10
#[tokio::test]
async fn calls_of_every_kind_wait_and_others_of_the_answer_go_on() {
    let world = under_approval(&["test.file", "test.change", "test.look"]).await;
    world.model.reply_with(|_, n| match n {
        0 => calls(vec![
            block("a", "test.look", json!({ "n": 1 })),
            block("b", "test.act", json!({ "n": 2 })),
            block("c", "test.file", json!({ "n": 3 })),
            block("d", "test.change", json!({ "n": 4 })),
        ]),
        _ => say("well"),
    });
    work_while(&world, async {
        for (n, tool) in ["test.look", "test.file", "test.change"].into_iter().enumerate() {
            while all(&world).await.len() <= n {
                tokio::task::yield_now().await;
            }
            let approval = all(&world).await.into_iter().find(|row| row.status == ApprovalStatus::Pending).unwrap();
            assert_eq!(approval.plan.tool, tool);
            decide(&world, &approval, if n == 1 { Decision::Deny } else { Decision::Approve { always: false } }).await;
        }
    })
    .await;
    let codes: Vec<Option<Code>> = world.ledger().await.iter().map(|row| row.error_code).collect();
    assert_eq!((codes.iter().flatten().count(), ran(&world)), (1, 1));
    assert!(!world.file(super::fakes::FILE).exists(), "the denied write did not happen");
}

// covers: EXEC-10
#[tokio::test]
async fn a_cancelled_turn_closes_its_requests() {
    let world = under_approval(&["test.act"]).await;
    let waiting = async { drop(requested(&world).await) };
    world.work_until("ada", waiting).await;
    let turn_id = world.turn("ada").await.turn_id;
    let ending = turns::Ending::Cancelled("enough".into());
    write!(world, |w| turns::finish(w, turn_id, ending)).unwrap();
    let approval = all(&world).await.remove(0);
    assert_eq!(approval.status, ApprovalStatus::Cancelled);
    let (approval_id, approve) = (approval.approval_id, Decision::Approve { always: false });
    let late = write!(world, |w| { approvals::decide(w, &operator(), &BTreeSet::new(), approval_id, approve, None) });
    assert_eq!(late.unwrap_err().code, Code::Conflict);
    assert_eq!(ran(&world), 0);
}
