use std::collections::BTreeSet;
use std::time::Duration;

use ghost_domain::event::EventKind;
use ghost_domain::ports::Signal;
use ghost_domain::{Approval, ApprovalPlan, ApprovalStatus, Code, Party, Turn};
use serde_json::json;

use super::operation_world::{OperationWorld, code, delete, id, operator, party, read, write};
use crate::Result;
use crate::approvals::{self, Decision, NewApproval};

const APPROVE: Decision = Decision::Approve { always: false };

fn new(n: u32) -> NewApproval {
    NewApproval {
        provider_call_id: "c1".into(),
        plan: ApprovalPlan { tool: "tool.cli".into(), arguments: json!({ "n": n }), ..ApprovalPlan::default() },
        reason: "the tier says so".into(),
        expires: Duration::from_secs(60),
    }
}

async fn request(world: &OperationWorld, turn: &Turn, n: u32) -> Result<Approval> {
    let turn = turn.clone();
    write!(world, |w, ctx| approvals::request(w, &ctx, &turn, new(n)).await)
}

async fn decide(
    world: &OperationWorld,
    by: Party,
    approvers: &[&str],
    approval: &Approval,
    decision: Decision,
) -> Result<Approval> {
    let (approval_id, approvers) = (approval.approval_id, approvers.iter().map(|name| (*name).to_owned()).collect());
    write!(world, |w, ctx| approvals::decide(w, &ctx, &by, &approvers, approval_id, decision, None).await)
}

// covers: EXEC-10, EXEC-12
#[tokio::test]
async fn only_approvers_answer_and_only_once() {
    let world = OperationWorld::new().await;
    let turn = world.busy("ada").await;
    let approval = request(&world, &turn, 1).await.unwrap();
    assert_eq!(world.count(EventKind::ApprovalRequested).await, 1);
    for by in [party("ada"), Party::Outside("operator".into()), Party::System, Party::Operator("mallory".into())] {
        assert_eq!(code(decide(&world, by, &["uid-7"], &approval, APPROVE).await), Code::PolicyDenied);
    }
    assert_eq!(code(decide(&world, party("ada"), &[], &approval, APPROVE).await), Code::PolicyDenied);
    world.signals();
    let decided = decide(&world, Party::Operator("uid-7".into()), &["uid-7"], &approval, APPROVE).await.unwrap();
    assert_eq!((decided.status, decided.decided_by), (ApprovalStatus::Approved, Some(Party::Operator("uid-7".into()))));
    assert!(world.signals().contains(&Signal::ApprovalClosed(id("ada"))));
    assert_eq!(code(decide(&world, operator(), &[], &approval, Decision::Deny).await), Code::Conflict);
    assert_eq!(world.count(EventKind::ApprovalClosed).await, 1);
}

// covers: EXEC-10
#[tokio::test]
async fn an_answer_after_the_expiry_is_refused_and_too_many_requests_are() {
    let world = OperationWorld::new().await;
    let turn = world.busy("ada").await;
    world.limits(|limits| limits.approvals_pending_max = 1);
    let approval = request(&world, &turn, 1).await.unwrap();
    assert_eq!(code(request(&world, &turn, 2).await), Code::RateLimited);
    world.pass(Duration::from_secs(60));
    assert_eq!(code(decide(&world, operator(), &[], &approval, APPROVE).await), Code::Conflict);
    let approval_id = approval.approval_id;
    write!(world, |w, ctx| approvals::expire(w, &ctx, approval_id).await).unwrap();
    let approval = read!(world, |r| r.approval_get(approval_id).await?).unwrap();
    assert_eq!(approval.status, ApprovalStatus::Expired);
    assert_eq!(approvals::refusal(&approval).unwrap().code, Code::Timeout);
}

// covers: EXEC-10
#[tokio::test]
async fn a_standing_approval_is_the_agents_own_until_it_is_revoked_or_the_agent_deleted() {
    let world = OperationWorld::new().await;
    let turn = world.busy("ada").await;
    let approval = request(&world, &turn, 1).await.unwrap();
    let always = Decision::Approve { always: true };
    decide(&world, operator(), &[], &approval, always.clone()).await.unwrap();
    assert_eq!(request(&world, &turn, 1).await.unwrap().approval_id, approval.approval_id);
    let other = world.busy("bob").await;
    assert_eq!(request(&world, &other, 1).await.unwrap().status, ApprovalStatus::Pending, "bob asks for himself");
    assert_eq!(request(&world, &turn, 2).await.unwrap().status, ApprovalStatus::Pending, "another plan asks");
    let approval_id = approval.approval_id;
    let revoke = write!(world, |w, ctx| approvals::revoke(w, &ctx, &operator(), &BTreeSet::new(), approval_id).await);
    assert!(!revoke.unwrap().always);
    let again = request(&world, &turn, 1).await.unwrap();
    assert_eq!(again.status, ApprovalStatus::Pending);
    decide(&world, operator(), &[], &again, always).await.unwrap();
    delete(&world, "ada").await;
    let digest = again.digest.clone();
    assert_eq!(read!(world, |r| r.approval_standing(&id("ada"), &digest).await?), None);
}

// covers: EXEC-10
#[tokio::test]
async fn requests_that_nobody_waits_for_are_closed_and_bounded_by_agent() {
    let world = OperationWorld::new().await;
    let (ada, bob) = (world.busy("ada").await, world.busy("bob").await);
    world.limits(|limits| limits.approvals_per_agent = 1);
    let approval = request(&world, &ada, 1).await.unwrap();
    assert_eq!(code(request(&world, &ada, 2).await), Code::RateLimited);
    assert_eq!(request(&world, &bob, 2).await.unwrap().status, ApprovalStatus::Pending);
    // The turn ends without its call.
    world.finish(ada.turn_id, "done").await.unwrap();
    assert_eq!(code(decide(&world, operator(), &[], &approval, APPROVE).await), Code::Conflict);
    write!(world, |w, ctx| approvals::expire_due(w, &ctx).await).unwrap();
    let pending = || async { read!(world, |r| r.approval_count_pending().await?) };
    assert_eq!(pending().await, 2, "they are not due");
    world.pass(Duration::from_secs(60));
    write!(world, |w, ctx| approvals::expire_due(w, &ctx).await).unwrap();
    assert_eq!(pending().await, 0);
}

// covers: EXEC-10
#[tokio::test]
async fn a_plan_that_does_not_hold_all_that_runs_is_approved_once_only() {
    let world = OperationWorld::new().await;
    let turn = world.busy("ada").await;
    let mut plan = new(1);
    plan.plan.once_only = Some("a word is known only when it runs".into());
    let approval = write!(world, |w, ctx| approvals::request(w, &ctx, &turn, plan).await).unwrap();
    let always = Decision::Approve { always: true };
    assert_eq!(code(decide(&world, operator(), &[], &approval, always).await), Code::InvalidArguments);
    assert_eq!(decide(&world, operator(), &[], &approval, APPROVE).await.unwrap().status, ApprovalStatus::Approved);
}
