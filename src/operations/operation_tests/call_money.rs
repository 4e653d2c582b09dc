//! What a running call holds: money in every account of its turn, and questions to an operator.

use super::operation_world::*;

const TOOL: &str = "code.agent";

fn call(n: u128) -> CallId {
    CallId(Uuid::from_u128(n))
}

/// A world whose accounts count money up to ten millionths, and ada's turn.
async fn counting() -> (OperationWorld, Turn) {
    let world = OperationWorld::new().await;
    let turn = world.busy("ada").await;
    for scope in [Scope::World, Scope::Root(turn.root_id)] {
        world.set_limits(&scope, super::operation_world::money(10)).await.unwrap();
    }
    (world, turn)
}

async fn hold(world: &OperationWorld, turn: &Turn, n: u128, most: Option<u64>) -> Result<()> {
    let mut turn = world.turn(turn.turn_id).await;
    run!(world, |w| budgets::hold(w, &mut turn, call(n), TOOL, most.map(Money)))
}

async fn end(world: &OperationWorld, turn: &Turn, n: u128, cost: Option<u64>) {
    let turn = world.turn(turn.turn_id).await;
    let outcome = CallOutcome { content: json!("done"), cost: cost.map(Money), ..CallOutcome::default() };
    let provider_id = format!("c{n}");
    run!(world, |w| turns::record_call_end(w, &turn, call(n), &provider_id, TOOL, &outcome)).unwrap();
}

/// Spent and reserved money of the world and of the root, which must agree.
async fn money(world: &OperationWorld, turn: &Turn) -> (u64, u64) {
    let of = async |scope| world.budget(&scope).await.map(|budget| (budget.spent_money.0, budget.reserved_money.0));
    let world_money = of(Scope::World).await;
    assert_eq!(world_money, of(Scope::Root(turn.root_id)).await);
    world_money.unwrap()
}

#[tokio::test]
async fn a_call_holds_its_most_and_is_charged_what_it_tells_or_all_of_it() {
    let (world, turn) = counting().await;
    assert_eq!(code(hold(&world, &turn, 1, None).await), Code::BudgetExhausted, "what it may cost is not known");
    hold(&world, &turn, 1, Some(6)).await.unwrap();
    hold(&world, &turn, 1, Some(6)).await.unwrap();
    assert_eq!(money(&world, &turn).await, (0, 6), "one call holds once");
    assert_eq!(code(hold(&world, &turn, 2, Some(5)).await), Code::BudgetExhausted, "6 + 5 would pass the limit");
    hold(&world, &turn, 2, Some(4)).await.unwrap();
    end(&world, &turn, 1, Some(1)).await;
    assert_eq!(money(&world, &turn).await, (1, 4));
    end(&world, &turn, 2, None).await;
    assert_eq!(money(&world, &turn).await, (5, 0), "it told nothing");
    // What did nothing is free, and what was interrupted is charged in full, once.
    hold(&world, &turn, 3, Some(5)).await.unwrap();
    let mut released = world.turn(turn.turn_id).await;
    run!(world, |w| budgets::release(w, &mut released, call(3))).unwrap();
    assert_eq!(money(&world, &turn).await, (5, 0));
    hold(&world, &turn, 4, Some(2)).await.unwrap();
    for _ in 0..2 {
        let mut cut = world.turn(turn.turn_id).await;
        run!(world, |w| budgets::forfeit_held(w, &mut cut)).unwrap();
        assert_eq!(money(&world, &turn).await, (7, 0));
    }
    end(&world, &turn, 4, None).await;
    assert_eq!(money(&world, &turn).await, (7, 0), "its unknown outcome is no second charge");
    let sums = read!(world, |r| budgets::usage(r, &UsageFilter::default())?);
    assert_eq!(sums.iter().map(|sum| sum.cost.0).sum::<u64>(), 7, "the usage agrees with the accounts");
    assert_eq!(world.turn(turn.turn_id).await.cost, Money(7));
}

#[tokio::test]
async fn a_question_ends_with_its_call_and_when_its_agent_crashes() {
    let (world, turn) = counting().await;
    let ask = async |n: u32| {
        let mut turn = world.turn(turn.turn_id).await;
        let plan = ApprovalPlan { tool: TOOL.into(), arguments: json!({ "asks": n }), ..ApprovalPlan::default() };
        let expires = Duration::from_secs(60);
        let new = NewApproval { provider_call_id: format!("c{n}"), plan, reason: "it asks".into(), expires };
        run!(world, |w| approvals::ask(w, &mut turn, new)).unwrap().approval_id
    };
    let status = async |approval_id| read!(world, |r| r.approval_get(approval_id)?.unwrap()).status;
    let (first, second) = (ask(1).await, ask(2).await);
    end(&world, &turn, 1, None).await;
    assert_eq!((status(first).await, status(second).await), (ApprovalStatus::Cancelled, ApprovalStatus::Pending));
    run!(world, |w| turns::crashed(w, &id("ada"), "a panic")).unwrap();
    assert_eq!(status(second).await, ApprovalStatus::Cancelled);
    assert!(world.turn(turn.turn_id).await.questions.is_empty());
}
