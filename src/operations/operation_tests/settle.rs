//! An operator settles calls whose outcome nobody knew.

use super::operation_world::*;
use crate::turns::Settled;

world_test!(what_an_operator_finds_out_is_in_the_ledger_and_the_agent_hears_it, async |world| {
    let turn = world.busy("ada").await;
    let call = async |refusal: Option<Code>| {
        let call_id = CallId(world.ctx.id());
        world.start_call(&turn, &call_start(call_id, "t", Effect::Outside)).await;
        let outcome = CallOutcome { refusal: refusal.map(|code| Refusal::new(code, "x")), ..CallOutcome::default() };
        world.end_call(&turn, call_id, outcome).await;
        call_id
    };
    let settle = async |call_id, settled, note: Option<&'static str>| {
        run!(world, |w| turns::settle(w, &operator(), call_id, (settled, note)))
    };
    let (paid, lost, known) =
        (call(Some(Code::OutcomeUnknown)).await, call(Some(Code::OutcomeUnknown)).await, call(None).await);
    let row = settle(paid, Settled::Happened, Some("the bank says so")).await.unwrap();
    assert_eq!((row.status, row.error_code), (CallStatus::Ok, None));
    assert!(row.result.unwrap().contains("the bank says so"));
    let row = settle(lost, Settled::DidNot, None).await.unwrap();
    assert_eq!((row.status, row.error_code), (CallStatus::Failed, Some(Code::Cancelled)));
    for over in [paid, known] {
        assert_eq!(code(settle(over, Settled::DidNot, None).await), Code::Conflict);
    }
    assert_eq!(code(settle(CallId(world.ctx.id()), Settled::DidNot, None).await), Code::NotFound);
    assert_eq!(world.call(paid).await.status, CallStatus::Ok);
    assert_eq!(world.count(EventKind::ToolSettled).await, 2);
    let told: Vec<String> = world.inbox("ada").await.into_iter().map(|mail| mail.body).collect();
    assert_eq!(told.len(), 2);
    assert!(told[0].contains(&paid.to_string()) && told[1].contains(&lost.to_string()), "{told:?}");
});
