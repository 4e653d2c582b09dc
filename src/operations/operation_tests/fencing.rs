//! A daemon that has lost an agent to another daemon cannot write for it any more.

use super::operation_world::*;

world_test!(an_older_epoch_is_refused_everywhere, async |world| {
    let turn = world.busy("ada").await;
    let turn_id = turn.turn_id;
    let (held, _) = world.model_start(turn_id, demand(10, 16)).await.unwrap();
    let before = (world.journal(turn_id).await, world.events().await.len());
    let old = world.stale();
    let failed = || Ending::Failed(Refusal::new(Code::Internal, "x"));
    let refusals = [
        code(old.try_take("ada").await),
        code(old.model_start(turn_id, demand(1, 16)).await),
        code(old.model_answer(turn_id, held, used(1, 1)).await),
        code(run!(old, |w| turns::model_failed(w, turn_id, held, "m", "x", budgets::Settlement::Forfeited))),
        code(run!(old, |w| turns::note(w, turn_id, "x"))),
        code(run!(old, |w| {
            turns::brief(w, turn_id, ("a", "a"), ("b", "b"), Default::default(), (String::new(), None))
        })),
        code(run!(old, |w| turns::working_turn(w, turn_id))),
        code(old.finish(turn_id, "mine").await),
        code(run!(old, |w| turns::finish(w, turn_id, failed()))),
        code(run!(old, |w| turns::open_for_operator(w, &id("ada")))),
        code(run!(old, |w| agents::crashed(w, &id("ada"), "x"))),
        code(run!(old, |w| agents::restarted(w, &id("ada")))),
        code(run!(old, |w| agents::stopped(w, &id("ada")))),
        code(run!(old, |w| agents::failed(w, &id("ada"), "x"))),
    ];
    assert_eq!(refusals, [Code::Conflict; 14]);
    assert_eq!((world.journal(turn_id).await, world.events().await.len()), before, "nothing was written");
    assert_eq!(world.turn(turn_id).await.status, TurnStatus::Open);
    assert_eq!(world.agent("ada").await.status, AgentStatus::Running);
    // The owner can still write.
    world.model_answer(turn_id, held, used(1, 1)).await.unwrap();
    world.finish(turn_id, "done").await.unwrap();
});

#[tokio::test]
async fn the_end_of_a_turn_completes_an_ask_of_another_owners_agent() {
    // The end of the target's turn writes the asker's record. That needs no ownership of the asker.
    let world = OperationWorld::new().await;
    let turn = world.busy("ada").await;
    let (_, call_id) = world.ask_by(&turn, "bob", "syscall.ask").await.unwrap();
    let mut ada = world.agent("ada").await;
    ada.epoch = 2;
    run!(world, |w| Ok::<_, Refusal>(w.agent_put(&ada)?)).unwrap();
    world.finish(world.take("bob").await.turn.turn_id, "seven").await.unwrap();
    assert!(world.outcome(turn.turn_id, call_id).await.is_some());
}

// covers: TOOL-09, TOOL-16
world_test!(the_records_of_a_call_are_consistent, async |world| {
    let turn = world.busy("ada").await;
    let call_id = CallId(world.ctx.id());
    let start = call_start(call_id, "t", Effect::World);
    let start_bytes = u64::try_from(start.arguments.to_string().len()).unwrap();
    world.start_call(&turn, &start).await;
    assert!(world.journal(turn.turn_id).await.is_empty(), "the store holds the effect itself");
    world.pass(std::time::Duration::from_millis(40));
    world.limits(|limits| limits.ledger_result_bytes = 5);
    let outcome = CallOutcome { content: Value::from("ééééé"), ..CallOutcome::default() };
    world.end_call(&turn, call_id, outcome).await;
    let row = world.call(call_id).await;
    let result = Some("éé\n[cut: 4 of 10 bytes shown]");
    assert_eq!((row.duration_ms, row.result.as_deref(), row.truncated), (Some(40), result, true));
    let bytes_in = start_bytes;
    assert_eq!((row.bytes_in, row.bytes_out), (Some(bytes_in), Some(10)), "sizes are those before any truncation");
    assert_eq!(row.tokens, Some((bytes_in + 10).div_ceil(3)));
    assert_eq!(world.turn(turn.turn_id).await.calls, 1);
    assert_eq!(world.journal(turn.turn_id).await.len(), 1);
});

// covers: TOOL-09, TOOL-16
world_test!(a_call_that_failed_or_charged_says_so, async |world| {
    world.limits(|limits| limits.result_view_bytes = 300);
    let turn = world.busy("ada").await;
    let of = async |outcome: CallOutcome| {
        let call_id = CallId(world.ctx.id());
        let start = call_start(call_id, "t", Effect::Outside);
        let bytes_in = u64::try_from(start.arguments.to_string().len()).unwrap();
        world.start_call(&turn, &start).await;
        world.end_call(&turn, call_id, outcome).await;
        (world.call(call_id).await, bytes_in)
    };
    let content = Value::from("x".repeat(900));
    let outcome = CallOutcome { content: content.clone(), cost: Some(Money(35_000)), ..CallOutcome::default() };
    let (row, bytes_in) = of(outcome.clone()).await;
    assert_eq!((row.status, row.error_code, row.cost), (CallStatus::Ok, None, Some(Money(35_000))));
    assert_eq!((row.bytes_out, row.tokens), (Some(900), Some((bytes_in + 300).div_ceil(3))));
    // A tool that shows more counts more.
    let (row, bytes_in) = of(CallOutcome { view_bytes: Some(600), ..outcome }).await;
    assert_eq!(row.tokens, Some((bytes_in + 600).div_ceil(3)));
    let (row, _) = of(CallOutcome { content, failed: Some(Code::ExecFailed), ..CallOutcome::default() }).await;
    assert_eq!((row.status, row.error_code, row.cost), (CallStatus::Failed, Some(Code::ExecFailed), None));
    assert!(row.result.unwrap().starts_with('x'), "the result is kept");
    let finished = world.events().await.into_iter().rfind(|event| event.kind == EventKind::ToolFinished).unwrap();
    assert_eq!(
        (&finished.payload["status"], &finished.payload["error_code"]),
        (&json!("failed"), &json!("exec_failed"))
    );
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
