//! A secret from any input appears in no record that people read.

use super::operation_world::*;

/// A text with the secret after `before` bytes, so that a cut falls into it.
fn text_with_secret(before: usize) -> String {
    format!("{} {SECRET} and more {}", "w".repeat(before), "x".repeat(600))
}

fn hidden(record: &impl std::fmt::Debug) {
    assert!(!format!("{record:?}").contains("hunter2"), "{record:?}");
}

// covers: TOOL-24
world_test!(no_event_ledger_row_or_dead_letter_shows_a_secret_or_part_of_one, async |world| {
    world.limits(|limits| limits.crashes_max = 1);
    // Texts are truncated at 160, 200, 300, 400, 500 and 1,000 characters; the secret crosses each
    // of these positions.
    for before in [0, 150, 190, 290, 390, 490, 990, 1_990] {
        let text = text_with_secret(before);
        let new_message = NewMessage::new(&id("ada"), operator(), Kind::Message, text.clone(), Chain::root(&world.ctx));
        world.deliver(NewMessage { subject: Some(text.clone()), ..new_message }).await.unwrap();
        let turn = world.take("ada").await.turn;
        let (held, _) = world.model_start(turn.turn_id, demand(1, 16)).await.unwrap();
        let (began, said) = (turn.clone(), text.clone());
        run!(world, |w| {
            let ctx = w.ctx;
            let call_id = CallId(ctx.id());
            let arguments = json!({ "said": said, (said.clone()): [said] });
            let start = CallStart { arguments, ..call_start(call_id, "t", Effect::Outside) };
            turns::record_call_start(w, &began, &start)?;
            let refusal = Some(Refusal::new(Code::ExecFailed, said.clone()).details(json!({ "x": said })));
            let outcome = CallOutcome { content: json!({ "a": said }), refusal, ..CallOutcome::default() };
            turns::record_call_end(w, &began, call_id, "c1", "t", &outcome)?;
            let outcome = CallOutcome { content: json!(said), ..CallOutcome::default() };
            turns::record_call_end(w, &began, CallId(ctx.id()), "c2", "t", &outcome)?;
            turns::malformed(w, &began, &said)?;
            turns::model_failed(w, began.turn_id, held, "m", &said, budgets::Settlement::Released)?;
            skills::acquire(w, &began.agent_id, &said)?;
            let title: String = said.chars().take(150).collect();
            let new = NewTask { description: said.clone(), ..new_task("bob", &title, Chain::root(ctx)) };
            let task = tasks::create(w, &party("ada"), new)?;
            let change = TaskChange { note: Some(said.clone()), result: Some(said.clone()), ..TaskChange::default() };
            tasks::update(w, &party("bob"), task.task_id, change, Chain::root(ctx))
        })
        .unwrap();
        world.crash("ada", &format!("panic: {text}")).await;
        let (finished, failed) = (world.busy("cyd").await.turn_id, text.clone());
        world.finish(finished, &text).await.unwrap();
        let turn_id = world.busy("cyd").await.turn_id;
        let failed = Refusal::new(Code::BudgetExhausted, failed).details(json!({ "x": text }));
        world.end(turn_id, Ending::Failed(failed)).await;
        let why = text_with_secret(before);
        run!(world, |w| agents::failed(w, &id("cyd"), &why)).unwrap();
        hidden(&world.agent("cyd").await);
        let why = text_with_secret(before);
        run!(world, |w| agents::stop(w, &operator(), &id("cyd"), Some(&why))).unwrap();
        run!(world, |w| agents::stopped(w, &id("cyd"))).unwrap();
        hidden(&(world.agent("cyd").await.status_reason, world.turn(turn_id).await.reason));
        run!(world, |w| agents::start(w, &operator(), &id("cyd"))).unwrap();
    }
    world.events().await.iter().for_each(hidden);
    let rows = read!(world, |r| r.call_list(&LedgerFilter { limit: 1_000, ..LedgerFilter::default() })?);
    assert_eq!(rows.len(), 8 * 3);
    hidden(&rows);
    let dead = world.dead_letters().await;
    assert_eq!(dead.len(), 8);
    hidden(&dead);
    // The journal and the mail keep the raw text, because work goes on with it.
    assert!(read!(world, |r| r.messages_recent(&id("ada"), 1)?)[0].body.contains(SECRET));
});

world_test!(an_excerpt_has_a_maximum_length_and_marks_a_cut, async |world| {
    assert_eq!(world.ctx.excerpt("short", 10), "short");
    assert_eq!(world.ctx.excerpt("ééééé", 3), "ééé…");
    assert_eq!(world.ctx.excerpt(&format!("my {SECRET}"), 100), "my [redacted]");
    // So many secrets that redaction moves the end of the head near its beginning.
    let many = SECRET.repeat(1_000);
    let excerpt = world.ctx.excerpt(&many, 400);
    assert!(!excerpt.contains("hunter2") && excerpt.ends_with('…') && excerpt.chars().count() <= 401, "{excerpt}");
});
