//! Calls: what a running one holds, its record, and what an operator says became of it.

use super::operation_world::*;
use crate::turns::Settled;

const TOOL: &str = "code.agent";

fn call(n: u128) -> CallId {
    CallId(Uuid::from_u128(n))
}

/// A world whose accounts count money up to ten millionths, and ada's turn.
async fn counting() -> (World, Turn) {
    let world = World::new().await;
    let turn = world.busy("ada").await;
    for scope in [Scope::World, Scope::Root(turn.root_id)] {
        world.set_limits(&scope, NewLimits { tokens: None, money: Some(Some(Money(10))) }).await.unwrap();
    }
    (world, turn)
}

async fn hold(world: &World, turn: &Turn, n: u128, most: Option<u64>) -> Result<()> {
    let mut turn = world.turn(turn.turn_id).await;
    run!(world, |w| budgets::hold(w, &mut turn, call(n), TOOL, most.map(Money)))
}

async fn end(world: &World, turn: &Turn, n: u128, cost: Option<u64>) {
    let turn = world.turn(turn.turn_id).await;
    let outcome = CallOutcome { content: json!("done"), cost: cost.map(Money), ..CallOutcome::default() };
    let provider_id = format!("c{n}");
    run!(world, |w| turns::record_call_end(w, &turn, call(n), &provider_id, TOOL, &outcome)).unwrap();
}

/// Spent and reserved money of the world and of the root, which must agree.
async fn money(world: &World, turn: &Turn) -> (u64, u64) {
    let of = async |scope| world.budget(&scope).await.map(|budget| (budget.spent_money.0, budget.reserved_money.0));
    let world_money = of(Scope::World).await;
    assert_eq!(world_money, of(Scope::Root(turn.root_id)).await);
    world_money.unwrap()
}

#[tokio::test]
async fn a_call_holds_its_most_and_is_charged_what_it_tells_or_all_of_it() {
    let (world, turn) = counting().await;
    let hold = async |n, most| hold(&world, &turn, n, most).await;
    let end = async |n, cost| end(&world, &turn, n, cost).await;
    let money = async || money(&world, &turn).await;
    assert_eq!(code(hold(1, None).await), Code::BudgetExhausted, "what it may cost is not known");
    for _ in 0..2 {
        hold(1, Some(6)).await.unwrap();
        assert_eq!(money().await, (0, 6), "one call holds once");
    }
    assert_eq!(code(hold(2, Some(5)).await), Code::BudgetExhausted, "6 + 5 would pass the limit");
    hold(2, Some(4)).await.unwrap();
    end(1, Some(1)).await;
    assert_eq!(money().await, (1, 4));
    end(2, None).await;
    assert_eq!(money().await, (5, 0), "it told nothing");
    // What did nothing is free, and what was interrupted is charged in full, once.
    hold(3, Some(5)).await.unwrap();
    let mut released = world.turn(turn.turn_id).await;
    run!(world, |w| budgets::release(w, &mut released, call(3))).unwrap();
    assert_eq!(money().await, (5, 0));
    hold(4, Some(2)).await.unwrap();
    for _ in 0..2 {
        let mut cut = world.turn(turn.turn_id).await;
        run!(world, |w| budgets::forfeit_held(w, &mut cut)).unwrap();
        assert_eq!(money().await, (7, 0));
    }
    end(4, None).await;
    assert_eq!(money().await, (7, 0), "its unknown outcome is no second charge");
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
        let new = NewApproval { provider_call_id: format!("c{n}"), plan, reason: "it asks".into(), expires: MINUTE };
        run!(world, |w| approvals::ask(w, &mut turn, new)).unwrap().approval_id
    };
    let status = async |approval_id| world.approval(approval_id).await.status;
    let (first, second) = (ask(1).await, ask(2).await);
    end(&world, &turn, 1, None).await;
    assert_eq!((status(first).await, status(second).await), (ApprovalStatus::Cancelled, ApprovalStatus::Pending));
    run!(world, |w| turns::crashed(w, &id("ada"), "a panic")).unwrap();
    assert_eq!(status(second).await, ApprovalStatus::Cancelled);
    assert!(world.turn(turn.turn_id).await.questions.is_empty());
}

/// Records a call without arguments, and its outcome.
async fn recorded(world: &World, turn: &Turn, outcome: CallOutcome) -> LedgerRow {
    let call_id = CallId(world.ctx.id());
    world.start_call(turn, &call_start(call_id, "t", Effect::Outside)).await;
    world.pass(Duration::from_millis(40));
    world.end_call(turn, call_id, outcome).await;
    world.call(call_id).await
}

// covers: TOOL-09, TOOL-16
world_test!(the_records_of_a_call_are_consistent, async |world| {
    let turn = world.busy("ada").await;
    world.limits(|limits| limits.ledger_result_bytes = 5);
    let outcome = CallOutcome { content: Value::from("ééééé"), ..CallOutcome::default() };
    let row = recorded(&world, &turn, outcome).await;
    let result = Some("éé\n[cut: 4 of 10 bytes shown]");
    assert_eq!((row.duration_ms, row.result.as_deref(), row.truncated), (Some(40), result, true));
    // Sizes are those before any truncation.
    assert_eq!((row.bytes_in, row.bytes_out, row.tokens), (Some(2), Some(10), Some(4)));
    assert_eq!(world.turn(turn.turn_id).await.calls, 1);
    assert_eq!(world.journal(turn.turn_id).await.len(), 2, "its start and its end");
    // If the store holds the effect itself, the start is in no journal.
    world.start_call(&turn, &call_start(CallId(world.ctx.id()), "t", Effect::World)).await;
    assert_eq!(world.journal(turn.turn_id).await.len(), 2);
});

// covers: TOOL-09, TOOL-16
world_test!(a_call_that_failed_or_charged_says_so, async |world| {
    world.limits(|limits| limits.result_view_bytes = 300);
    let turn = world.busy("ada").await;
    let content = Value::from("x".repeat(900));
    let outcome = CallOutcome { content: content.clone(), cost: Some(Money(35_000)), ..CallOutcome::default() };
    let row = recorded(&world, &turn, outcome.clone()).await;
    assert_eq!((row.status, row.error_code, row.cost), (CallStatus::Ok, None, Some(Money(35_000))));
    assert_eq!((row.bytes_out, row.tokens), (Some(900), Some((2 + 300_u64).div_ceil(3))));
    // A tool that shows more counts more.
    let row = recorded(&world, &turn, CallOutcome { view_bytes: Some(600), ..outcome }).await;
    assert_eq!(row.tokens, Some((2 + 600_u64).div_ceil(3)));
    let outcome = CallOutcome { content, failed: Some(Code::ExecFailed), ..CallOutcome::default() };
    let row = recorded(&world, &turn, outcome).await;
    assert_eq!((row.status, row.error_code, row.cost), (CallStatus::Failed, Some(Code::ExecFailed), None));
    assert!(row.result.unwrap().starts_with('x'), "the result is kept");
    let finished = world.payloads(EventKind::ToolFinished).await.pop().unwrap();
    assert_eq!([&finished["status"], &finished["error_code"]], ["failed", "exec_failed"]);
});

// covers: TOOL-14
world_test!(cut_arguments_stay_json_and_are_marked, async |world| {
    world.limits(|limits| limits.ledger_result_bytes = 600);
    let turn = world.busy("ada").await;
    for (text, cut) in [("x".repeat(300), false), ("é".repeat(3_000), true)] {
        let call_id = CallId(world.ctx.id());
        let arguments = json!({ "path": "notes/a.md", "content": text });
        let start = turns::CallStart { arguments: arguments.clone(), ..call_start(call_id, "t", Effect::World) };
        world.start_call(&turn, &start).await;
        world.end_call(&turn, call_id, CallOutcome { content: Value::from("short"), ..CallOutcome::default() }).await;
        let row = world.call(call_id).await;
        let kept: Value = serde_json::from_str(&row.arguments).unwrap();
        assert_eq!((row.truncated, kept == arguments, &kept["path"]), (cut, !cut, &json!("notes/a.md")));
        assert_eq!(kept["content"].as_str().unwrap().contains("bytes shown]"), cut);
        assert!(row.arguments.len() <= 600, "{}", row.arguments.len());
    }
});

world_test!(what_an_operator_finds_out_is_in_the_ledger_and_the_agent_hears_it, async |world| {
    let turn = world.busy("ada").await;
    let call = async |refusal: Option<Code>| {
        let outcome = CallOutcome { refusal: refusal.map(|code| Refusal::new(code, "x")), ..CallOutcome::default() };
        recorded(&world, &turn, outcome).await.call_id
    };
    let settle = async |call_id, settled, note: Option<&'static str>| {
        run!(world, |w| turns::settle(w, &operator(), call_id, (settled, note)))
    };
    let unknown = Some(Code::OutcomeUnknown);
    let (paid, lost, known) = (call(unknown).await, call(unknown).await, call(None).await);
    let row = settle(paid, Settled::Happened, Some("the bank says so")).await.unwrap();
    assert_eq!((row.status, row.error_code), (CallStatus::Ok, None));
    assert!(row.result.unwrap().contains("the bank says so"));
    let row = settle(lost, Settled::DidNot, None).await.unwrap();
    assert_eq!((row.status, row.error_code), (CallStatus::Failed, Some(Code::Cancelled)));
    for (call, why) in [(paid, Code::Conflict), (known, Code::Conflict), (CallId(world.ctx.id()), Code::NotFound)] {
        assert_eq!(code(settle(call, Settled::DidNot, None).await), why);
    }
    assert_eq!((world.call(paid).await.status, world.count(EventKind::ToolSettled).await), (CallStatus::Ok, 2));
    let told: Vec<String> = world.inbox("ada").await.into_iter().map(|mail| mail.body).collect();
    assert_eq!(told.len(), 2);
    assert!(told[0].contains(&paid.to_string()) && told[1].contains(&lost.to_string()), "{told:?}");
});
