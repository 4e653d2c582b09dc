//! Asks end at once, and in the asker's record, when their target stops, fails or is deleted.

use super::operation_world::*;

/// Opens an ask of ada to bob.
async fn waiting() -> (OperationWorld, Turn, Ask, CallId) {
    let world = OperationWorld::new().await;
    let turn = world.busy("ada").await;
    let (ask, call_id) = world.ask_by(&turn, "bob", "syscall.ask").await.unwrap();
    (world, turn, ask, call_id)
}

async fn ended(world: &OperationWorld, turn: &Turn, ask: &Ask, call_id: CallId) -> Refusal {
    let row = world.ask_row(ask.ask_id).await;
    assert_eq!(row.status, AskStatus::Failed);
    assert!(row.closed_at.is_some() && row.error.is_some());
    assert_eq!(world.count(EventKind::AskFailed).await, 1);
    let (_, content, refusal) = world.outcome(turn.turn_id, call_id).await.unwrap();
    assert_eq!(content["status"], "error");
    let ledger = world.call(call_id).await;
    assert_eq!((ledger.tool.as_str(), ledger.status), ("syscall.ask", CallStatus::Failed));
    refusal.unwrap()
}

#[tokio::test]
async fn a_stop_fails_unread_asks_at_once_and_the_others_when_the_agent_has_stopped() {
    let (world, turn, ask, call_id) = waiting().await;
    run!(world, |w| agents::stop(w, &operator(), &id("bob"), None)).unwrap();
    assert_eq!(ended(&world, &turn, &ask, call_id).await.code, Code::Unavailable);

    let (world, turn, ask, call_id) = waiting().await;
    world.take("bob").await;
    run!(world, |w| agents::stop(w, &operator(), &id("bob"), None)).unwrap();
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Open, "its turn may still finish");
    run!(world, |w| agents::stopped(w, &id("bob"))).unwrap();
    assert_eq!(ended(&world, &turn, &ask, call_id).await.code, Code::Unavailable);
}

#[tokio::test]
async fn asks_to_an_agent_that_was_stopping_fail_when_the_daemon_starts() {
    let (world, turn, ask, call_id) = waiting().await;
    world.take("bob").await;
    run!(world, |w| agents::stop(w, &operator(), &id("bob"), None)).unwrap();
    let agents = run!(world, |w| agents::claim_all(w)).unwrap();
    assert!(agents.iter().any(|agent| agent.agent_id == id("bob") && agent.status == AgentStatus::Stopped));
    assert_eq!(world.agent("bob").await.status, AgentStatus::Stopped);
    ended(&world, &turn, &ask, call_id).await;
    assert_eq!(world.count(EventKind::AgentStopped).await, 1);
}

#[tokio::test]
async fn a_failed_or_deleted_target_ends_the_ask() {
    let (world, turn, ask, call_id) = waiting().await;
    run!(world, |w| agents::failed(w, &id("bob"), "too often")).unwrap();
    ended(&world, &turn, &ask, call_id).await;

    let (world, turn, ask, call_id) = waiting().await;
    let asked = world.take("bob").await.turn;
    delete(&world, "bob").await;
    assert_eq!(world.turn(asked.turn_id).await.status, TurnStatus::Cancelled);
    ended(&world, &turn, &ask, call_id).await;
}

#[tokio::test]
async fn a_dead_letter_a_failed_turn_and_a_cancelled_turn_end_the_ask() {
    let (world, turn, ask, call_id) = waiting().await;
    world.limits(|limits| limits.crashes_max = 1);
    world.take("bob").await;
    world.crash("bob", "it fell over").await;
    assert!(ended(&world, &turn, &ask, call_id).await.message.contains("it fell over"));

    let (world, turn, ask, call_id) = waiting().await;
    let asked = world.take("bob").await.turn.turn_id;
    let why = Refusal::new(Code::BudgetExhausted, "nothing left");
    run!(world, |w| turns::finish(w, asked, Ending::Failed(why))).unwrap();
    assert_eq!(ended(&world, &turn, &ask, call_id).await.code, Code::BudgetExhausted);
    assert_eq!(world.count(EventKind::BudgetExhausted).await, 1);

    let (world, turn, ask, call_id) = waiting().await;
    let asked = world.take("bob").await.turn.turn_id;
    run!(world, |w| turns::cancel(w, &operator(), asked)).unwrap();
    assert_eq!(ended(&world, &turn, &ask, call_id).await.code, Code::Cancelled);
    let again = run!(world, |w| turns::cancel(w, &operator(), asked));
    assert_eq!(again.unwrap_err().code, Code::Conflict);
}

#[tokio::test]
async fn an_ask_fails_when_the_turn_of_its_asker_has_ended() {
    let (world, turn, ask, call_id) = waiting().await;
    run!(world, |w| turns::cancel(w, &operator(), turn.turn_id)).unwrap();
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Failed);
    assert_eq!(world.count(EventKind::AskFailed).await, 1);
    let call = world.call(call_id).await;
    let how = (call.status, call.error_code);
    assert_eq!(how, (CallStatus::Failed, Some(Code::Cancelled)), "nobody will end this call, and nothing is uncertain");
    world.finish(world.take("bob").await.turn.turn_id, "too late").await.unwrap();
    assert_eq!(world.count(EventKind::AskLate).await, 1);
    run!(world, |w| asks::expire(w, ask.ask_id)).unwrap();
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Failed);
}
