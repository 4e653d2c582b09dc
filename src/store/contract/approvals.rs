//! Approvals.

use super::tools::*;

/// Approval `n` of turn `n`, requested at second `n`. A closed one was closed a second later.
pub(super) fn approval(n: u64, agent: &str, status: ApprovalStatus) -> Approval {
    let plan = ApprovalPlan { tool: "tool.cli".into(), arguments: json!({ "command": AWKWARD }), ..<_>::default() };
    row(json!({
        "approval_id": approval_id(n), "agent_id": agent, "turn_id": turn_id(n), "root_id": root_id(1),
        "provider_call_id": format!("call-{n}"), "digest": plan.digest(&id_of(agent)), "plan": plan, "reason": AWKWARD,
        "status": status, "decided_by": (status == ApprovalStatus::Approved).then(|| Party::Operator("uid-1000".into())),
        "requested_at": at(n), "expires_at": at(n + 100),
        "closed_at": (status != ApprovalStatus::Pending).then(|| at(n + 1)),
    }))
}

pub(super) async fn approvals_round_trip_and_are_listed(store: Bench) {
    let (first, second) = (|| approval(1, "a", ApprovalStatus::Approved), || approval(2, "b", ApprovalStatus::Pending));
    put!(&store, {
        approval_put: approval(1, "a", ApprovalStatus::Pending), first(), second(),
            approval(3, "b", ApprovalStatus::Denied);
    });
    let ids = |rows: Vec<Approval>| map_rows(&rows, |row| row.approval_id);
    let any = ApprovalFilter::default;
    let of_b = ApprovalFilter { agent_id: Some(id_of("b")), ..any() };
    let pending = ApprovalFilter { status: Some(ApprovalStatus::Pending), ..any() };
    shows!(&store, |r| {
        r.approval_get(approval_id(1))? => Some(first());
        r.approval_get(approval_id(2))? => Some(second());
        r.approval_get(approval_id(9))? => None;
        ids(r.approval_list(&any(), None, 0)?) => [3, 2, 1].map(approval_id);
        ids(r.approval_list(&any(), Some((at(3), approval_id(3))), 1)?) => [approval_id(2)];
        ids(r.approval_list(&of_b, None, 0)?) => [3, 2].map(approval_id);
        ids(r.approval_list(&pending, None, 0)?) => [approval_id(2)];
        r.approval_count_pending()? => 1;
        ids(r.approvals_pending_of_turn(turn_id(2))?) => [approval_id(2)];
        ids(r.approvals_pending_of_turn(turn_id(3))?) => [];
    });
}

pub(super) async fn standing_approvals_are_found(store: Bench) {
    let (standing, once) = (
        || Approval { always: true, ..approval(1, "a", ApprovalStatus::Approved) },
        || approval(2, "b", ApprovalStatus::Approved),
    );
    put!(&store, { approval_put: standing(), once(); });
    shows!(&store, |r| {
        r.approval_standing(&id_of("a"), &standing().digest)? => Some(standing());
        r.approval_standing(&id_of("b"), &standing().digest)? => None;
        r.approval_standing(&id_of("a"), "0")? => None;
        r.approval_standing(&id_of("b"), &once().digest)? => None;
        r.approval_list(&ApprovalFilter { always: true, ..<_>::default() }, None, 0)? => [standing()];
    });
}

pub(super) async fn closed_approvals_are_pruned(store: Bench) {
    put!(&store, {
        approval_put: approval(1, "a", ApprovalStatus::Pending), approval(2, "a", ApprovalStatus::Expired),
            Approval { always: true, ..approval(3, "a", ApprovalStatus::Approved) },
            approval(50, "a", ApprovalStatus::Denied);
    });
    let ids = |rows: Vec<Approval>| map_rows(&rows, |row| row.approval_id);
    prunes!(&store, Family::Approvals, |r| { ids(r.approval_list(&<_>::default(), None, 0)?) }, {
        (40, 9) => 1, [50, 3, 1].map(approval_id);
    });
}
