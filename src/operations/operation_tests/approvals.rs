use super::operation_world::*;

const APPROVE: Decision = Decision::Approve { always: false };
const ALWAYS: Decision = Decision::Approve { always: true };

fn new(n: u32) -> NewApproval {
    NewApproval {
        provider_call_id: "c1".into(),
        plan: ApprovalPlan { tool: "tool.cli".into(), arguments: json!({ "n": n }), ..ApprovalPlan::default() },
        reason: "the tier says so".into(),
        expires: Duration::from_secs(60),
    }
}

async fn request(world: &World, turn: &Turn, n: u32) -> Result<Approval> {
    let turn = turn.clone();
    run!(world, |w| approvals::request(w, &turn, new(n)))
}

/// An operator with this name.
fn named(name: &str) -> Party {
    Party::Operator(name.into())
}

/// The world's list of approvers.
fn list(approvers: &[&str]) -> BTreeSet<String> {
    approvers.iter().map(|name| (*name).to_owned()).collect()
}

async fn revoke(world: &World, by: Party, approvers: &[&str], approval: &Approval) -> Result<Approval> {
    let (approval_id, approvers) = (approval.approval_id, list(approvers));
    run!(world, |w| approvals::revoke(w, &by, &approvers, approval_id))
}

/// No answer reaches this request any more.
async fn no_answer(world: &World, approval: &Approval) {
    for decision in [APPROVE, ALWAYS, Decision::Deny] {
        assert_eq!(code(answer(world, approval, decision).await), Code::Conflict);
    }
}

async fn expire_due(world: &World) {
    run!(world, |w| approvals::expire_due(w)).unwrap();
}

/// Ada may always run this plan.
async fn standing(world: &World, approval: &Approval) -> Option<Approval> {
    let digest = approval.digest.clone();
    read!(world, |r| r.approval_standing(&id("ada"), &digest)?)
}

/// An answer of the operator, in a world that lists no approvers.
async fn answer(world: &World, approval: &Approval, decision: Decision) -> Result<Approval> {
    decide(world, operator(), &[], approval, decision).await
}

/// A turn of ada with a call that waits.
async fn waiting(world: &World) -> (Turn, Approval) {
    let turn = world.busy("ada").await;
    let approval = request(world, &turn, 1).await.unwrap();
    (turn, approval)
}

async fn decide(world: &World, by: Party, approvers: &[&str], on: &Approval, decision: Decision) -> Result<Approval> {
    let (approval_id, approvers) = (on.approval_id, list(approvers));
    run!(world, |w| approvals::decide(w, &by, &approvers, approval_id, decision, None))
}

// covers: EXEC-10, EXEC-12
world_test!(only_approvers_answer_and_only_once, async |world| {
    let (_, approval) = waiting(&world).await;
    assert_eq!(world.count(EventKind::ApprovalRequested).await, 1);
    for by in [party("ada"), Party::Outside("operator".into()), Party::System, named("mallory")] {
        assert_eq!(code(decide(&world, by, &["uid-7"], &approval, APPROVE).await), Code::PolicyDenied);
    }
    assert_eq!(code(decide(&world, party("ada"), &[], &approval, APPROVE).await), Code::PolicyDenied);
    world.signals();
    let decided = decide(&world, named("uid-7"), &["uid-7"], &approval, APPROVE).await.unwrap();
    assert_eq!((decided.status, decided.decided_by), (ApprovalStatus::Approved, Some(named("uid-7"))));
    assert!(world.signals().contains(&Signal::ApprovalClosed(id("ada"))));
    assert_eq!(code(answer(&world, &approval, Decision::Deny).await), Code::Conflict);
    assert_eq!(world.count(EventKind::ApprovalClosed).await, 1);
});

// covers: EXEC-10
world_test!(a_standing_approval_is_the_agents_own_until_it_is_revoked_or_the_agent_deleted, async |world| {
    let (turn, approval) = waiting(&world).await;
    answer(&world, &approval, ALWAYS).await.unwrap();
    assert_eq!(request(&world, &turn, 1).await.unwrap().approval_id, approval.approval_id);
    let other = world.busy("bob").await;
    assert_eq!(request(&world, &other, 1).await.unwrap().status, ApprovalStatus::Pending, "bob asks for himself");
    assert_eq!(request(&world, &turn, 2).await.unwrap().status, ApprovalStatus::Pending, "another plan asks");
    assert!(!revoke(&world, operator(), &[], &approval).await.unwrap().always);
    let again = request(&world, &turn, 1).await.unwrap();
    assert_eq!(again.status, ApprovalStatus::Pending);
    answer(&world, &again, ALWAYS).await.unwrap();
    // A plan that does not hold all that runs is approved once only.
    let mut plan = new(3);
    plan.plan.once_only = Some("a word is known only when it runs".into());
    let once = run!(world, |w| approvals::request(w, &turn, plan)).unwrap();
    assert_eq!(code(answer(&world, &once, ALWAYS).await), Code::InvalidArguments);
    assert_eq!(answer(&world, &once, APPROVE).await.unwrap().status, ApprovalStatus::Approved);
    delete(&world, "ada").await;
    assert_eq!(standing(&world, &again).await, None);
});

// covers: EXEC-10
world_test!(requests_that_nobody_waits_for_are_closed_and_bounded_by_agent, async |world| {
    let (ada, bob) = (world.busy("ada").await, world.busy("bob").await);
    world.limits(|limits| limits.approvals_per_agent = 1);
    let approval = request(&world, &ada, 1).await.unwrap();
    assert_eq!(code(request(&world, &ada, 2).await), Code::RateLimited);
    assert_eq!(request(&world, &bob, 2).await.unwrap().status, ApprovalStatus::Pending);
    // The turn ends without its call.
    world.finish(ada.turn_id, "done").await.unwrap();
    assert_eq!(code(answer(&world, &approval, APPROVE).await), Code::Conflict);
    expire_due(&world).await;
    let pending = || async { read!(world, |r| r.approval_count_pending()?) };
    assert_eq!(pending().await, 2, "they are not due");
    world.pass(MINUTE);
    expire_due(&world).await;
    assert_eq!(pending().await, 0);
});

// covers: EXEC-10
world_test!(an_answer_never_reaches_a_later_agent_of_the_same_id, async |world| {
    let turn = world.busy("ada").await;
    let asked = request(&world, &turn, 1).await.unwrap();
    let answered = request(&world, &turn, 2).await.unwrap();
    answer(&world, &answered, ALWAYS).await.unwrap();
    delete(&world, "ada").await;
    world.add_agent(new_agent(&world.ctx, "ada")).await;
    assert_eq!(world.agent("ada").await.incarnation, 2);
    // The same calls of the newcomer, with the same ids, ask anew.
    let turn = world.busy("ada").await;
    for (n, before) in [(1, &asked), (2, &answered)] {
        let again = request(&world, &turn, n).await.unwrap();
        assert_eq!((again.status, &again.digest), (ApprovalStatus::Pending, &before.digest));
        assert_ne!(again.approval_id, before.approval_id);
    }
    // An answer to what its predecessor asked comes too late, and changes nothing.
    no_answer(&world, &asked).await;
    assert_eq!(world.approval(asked.approval_id).await.status, ApprovalStatus::Cancelled);
    assert_eq!((read!(world, |r| r.approval_count_pending()?), standing(&world, &asked).await), (2, None));
});

// covers: EXEC-10, EXEC-12
world_test!(nobody_but_an_approver_revokes_and_nobody_twice, async |world| {
    let (_, approval) = waiting(&world).await;
    let revoke = async |by: Party, approvers: &[&str]| revoke(&world, by, approvers, &approval).await;
    assert_eq!(code(revoke(operator(), &[]).await), Code::Conflict, "nothing holds for later calls yet");
    answer(&world, &approval, ALWAYS).await.unwrap();
    for by in [party("ada"), party("bob"), Party::Outside("uid-7".into()), Party::System] {
        assert_eq!(code(revoke(by, &[]).await), Code::PolicyDenied);
    }
    assert_eq!(code(revoke(named("mallory"), &["uid-7"]).await), Code::PolicyDenied);
    assert!(!revoke(named("uid-7"), &["uid-7"]).await.unwrap().always);
    assert_eq!(code(revoke(named("uid-7"), &["uid-7"]).await), Code::Conflict);
    assert_eq!(world.count(EventKind::ApprovalRevoked).await, 1);
    // A call that ran under it keeps its answer.
    assert_eq!(world.approval(approval.approval_id).await.status, ApprovalStatus::Approved);
});

// covers: EXEC-10
world_test!(two_answers_at_once_are_one_and_the_other_learns_who_was_first, async |world| {
    let turn = world.busy("ada").await;
    for (n, decisions) in [[APPROVE, Decision::Deny], [Decision::Deny, APPROVE]].into_iter().enumerate() {
        let approval = request(&world, &turn, u32::try_from(n).unwrap()).await.unwrap();
        let [one, two] = decisions;
        let first = decide(&world, named("one"), &[], &approval, one);
        let (first, second) = tokio::join!(first, decide(&world, named("two"), &[], &approval, two));
        let (won, lost) = if first.is_ok() { (first, second) } else { (second, first) };
        assert_eq!((code(lost), world.approval(approval.approval_id).await), (Code::Conflict, won.unwrap()));
    }
    assert_eq!(world.count(EventKind::ApprovalClosed).await, 2);
});

// covers: EXEC-10
world_test!(an_expiry_holds_for_every_answer_even_if_it_passes_while_the_daemon_is_down, async |world| {
    world.limits(|limits| limits.approvals_pending_max = 1);
    let (turn, approval) = waiting(&world).await;
    assert_eq!(code(request(&world, &turn, 2).await), Code::RateLimited);
    world.pass(MINUTE);
    // The daemon starts again; nobody has closed the request yet.
    run!(world, |w| turns::review_at_boot(w)).unwrap();
    no_answer(&world, &approval).await;
    // A clock that goes back opens no request that was closed.
    run!(world, |w| approvals::expire(w, approval.approval_id)).unwrap();
    world.set_back(MINUTE);
    no_answer(&world, &approval).await;
    let approval = world.approval(approval.approval_id).await;
    assert_eq!(approval.status, ApprovalStatus::Expired);
    assert_eq!(approvals::refusal(&approval).unwrap().code, Code::Timeout);
});
