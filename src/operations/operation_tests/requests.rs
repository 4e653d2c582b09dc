use super::operation_world::*;

fn key(request_id: &str, method: &str, digest: &str) -> RequestKey {
    RequestKey {
        principal: operator(),
        request_id: request_id.parse().unwrap(),
        method: method.into(),
        digest: digest.into(),
    }
}

async fn send_once(world: &OperationWorld, key: RequestKey, body: &str) -> Result<Envelope> {
    let body = body.to_owned();
    requests::once(&world.store, &world.ctx, key, move |w| {
        let chain = Chain::root(w.ctx);
        mail::deliver(w, NewMessage::new(&id("ada"), operator(), Kind::Message, body, chain))
    })
    .await
}

world_test!(a_repetition_gets_the_first_answer_and_other_content_is_a_conflict, async |world| {
    let first = send_once(&world, key("r1", "send", "d1"), "hello").await.unwrap();
    assert_eq!(first, send_once(&world, key("r1", "send", "d1"), "hello").await.unwrap());
    assert_eq!(world.inbox("ada").await.len(), 1);
    assert_eq!(code(send_once(&world, key("r1", "send", "d2"), "other").await), Code::Conflict);
    assert_eq!(code(send_once(&world, key("r1", "stop", "d1"), "hello").await), Code::Conflict);
    let other = RequestKey { principal: Party::Operator("other".into()), ..key("r1", "send", "d1") };
    send_once(&world, other, "hello").await.unwrap();
    assert_eq!(world.inbox("ada").await.len(), 2, "an id is unique to its caller");
});

world_test!(a_refusal_is_not_stored_and_changes_nothing, async |world| {
    world.limits(|limits| limits.message_bytes = 3);
    assert_eq!(code(send_once(&world, key("r1", "send", "d1"), "hello").await), Code::TooLarge);
    world.limits(|limits| limits.message_bytes = 30);
    send_once(&world, key("r1", "send", "d1"), "hello").await.unwrap();
    assert_eq!(world.inbox("ada").await.len(), 1);
});

world_test!(the_sweep_deletes_finished_work_and_keeps_open_work, async |world| {
    world.limits(|limits| limits.crashes_max = 1);
    let done = world.busy("ada").await.turn_id;
    world.finish(done, "done").await.unwrap();
    let open = world.busy("ada").await.turn_id;
    let waiting = world.send("ada", "unread").await;
    let asked = world.outside_ask("cyd").await.unwrap();
    let poison = world.busy("bob").await.turn_id;
    world.crash("bob", "it fell over").await;
    send_once(&world, key("r1", "send", "d1"), "hello").await.unwrap();
    world.pass(Limits::days(31));
    let last = world.events().await.last().unwrap().seq;
    assert!(retention::sweep(&world.store, &world.ctx).await.unwrap() > 0);
    assert!(world.events().await.is_empty());
    assert!(read!(world, |r| r.turn_get(done)?).is_none());
    assert_eq!(world.turn(open).await.status, TurnStatus::Open);
    assert_eq!(world.message(waiting.message_id).await.state, MailState::Pending);
    assert_eq!(world.ask_row(asked.ask_id).await.status, AskStatus::Open);
    assert_eq!(world.dead_letters().await.len(), 1, "held");
    assert_eq!(world.turn(poison).await.status, TurnStatus::Dead, "its journal is kept for a retry");
    assert_eq!(retention::sweep(&world.store, &world.ctx).await.unwrap(), 0);
    // The sequence and the kept work go on; the stored answer is deleted.
    world.finish(open, "at last").await.unwrap();
    assert_eq!(world.events().await[0].seq, last + 1);
    send_once(&world, key("r1", "send", "d2"), "x").await.unwrap();
});
