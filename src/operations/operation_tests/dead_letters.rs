use super::operation_world::*;

/// Creates a dead letter of ada.
async fn dead(world: &OperationWorld) -> DeadLetter {
    world.limits(|limits| limits.crashes_max = 1);
    world.take("ada").await;
    world.crash("ada", "it fell over").await;
    world.dead_letters().await.remove(0)
}

async fn retry(world: &OperationWorld, dead: &DeadLetter, fresh: bool) -> Result<DeadLetter> {
    let dead_letter_id = dead.dead_letter_id;
    run!(world, |w| dead_letters::retry(w, &operator(), dead_letter_id, fresh))
}

world_test!(a_retry_goes_on_with_the_same_turn_and_its_answer_is_late, async |world| {
    let ask = world.outside_ask("ada").await.unwrap();
    let dead = dead(&world).await;
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Failed);
    assert_eq!(retry(&world, &dead, false).await.unwrap().status, DeadLetterStatus::Retried);
    assert_eq!(code(retry(&world, &dead, false).await), Code::Conflict, "once");
    world.send("ada", "rides in a turn of its own").await;
    let taken = world.take("ada").await;
    assert!(taken.resumed && taken.turn.turn_id == dead.turn_id && taken.mail.len() == 1);
    assert_eq!((taken.turn.crashes, taken.turn.reason, taken.mail[0].crashes), (0, None, 0));
    world.finish(dead.turn_id, "after all").await.unwrap();
    let row = world.ask_row(ask.ask_id).await;
    assert_eq!((row.status, row.reply.as_deref()), (AskStatus::Failed, Some("after all")));
    assert_eq!(world.count(EventKind::AskLate).await, 1);
    // It may crash again as often as other mail before it becomes a dead letter again.
    assert_eq!(world.count(EventKind::DeadLetterRetried).await, 1);
});

world_test!(a_fresh_retry_opens_a_new_turn, async |world| {
    world.send("ada", "work").await;
    let dead = dead(&world).await;
    retry(&world, &dead, true).await.unwrap();
    let taken = world.take("ada").await;
    assert!(!taken.resumed && taken.turn.turn_id != dead.turn_id && taken.earlier.is_empty());
    assert_eq!(world.turn(dead.turn_id).await.status, TurnStatus::Dead);
});

world_test!(a_dropped_dead_letter_is_consumed_and_stays_readable, async |world| {
    let sent = world.send("ada", "work").await;
    let dead = dead(&world).await;
    let dropped = run!(world, |w| dead_letters::discard(w, &operator(), dead.dead_letter_id)).unwrap();
    assert_eq!(dropped.status, DeadLetterStatus::Dropped);
    assert_eq!(world.message(sent.message_id).await.state, MailState::Consumed);
    assert!(world.try_take("ada").await.unwrap().is_none());
    assert_eq!(code(retry(&world, &dead, false).await), Code::Conflict);
});

world_test!(a_later_agent_does_not_get_dead_letters_of_an_earlier_one, async |world| {
    world.send("ada", "work").await;
    let dead = dead(&world).await;
    delete(&world, "ada").await;
    assert_eq!(code(retry(&world, &dead, false).await), Code::NotFound);
    world.add_agent(new_agent(&world.ctx, "ada")).await;
    assert_eq!(code(retry(&world, &dead, true).await), Code::Conflict);
    assert!(world.try_take("ada").await.unwrap().is_none());
});

/// A message from outside to ada in a conversation.
async fn message_from_outside(world: &OperationWorld, text: &str) -> ConversationId {
    let (adapter, thread) = (CONTROL.to_owned(), Some("t".to_owned()));
    let start = conversations::Start { adapter, thread, owner: id("ada"), party: operator() };
    let said = said(operator(), text);
    run!(world, |w| conversations::arrive(w, start, said)).unwrap().conversation.conversation_id
}

async fn attach(world: &OperationWorld, turn: &Turn, conversation_id: ConversationId, name: &str) {
    let file = Attachment { path: name.into(), name: name.into(), mime_type: "text/plain".into(), bytes: 3 };
    let turn_id = turn.turn_id;
    run!(world, |w| conversations::attach(w, &id("ada"), turn_id, conversation_id, file)).unwrap();
}

world_test!(files_of_a_dead_turn_are_sent_with_its_own_reply, async |world| {
    world.limits(|limits| limits.crashes_max = 1);
    let conversation_id = message_from_outside(&world, "the first").await;
    let first = world.take("ada").await.turn;
    attach(&world, &first, conversation_id, "first.txt").await;
    world.crash("ada", "it fell over").await;
    let dead = world.dead_letters().await.remove(0);
    message_from_outside(&world, "the second").await;
    let second = world.take("ada").await.turn;
    attach(&world, &second, conversation_id, "second.txt").await;
    retry(&world, &dead, false).await.unwrap();
    world.finish(second.turn_id, "To the second.").await.unwrap();
    assert_eq!(world.take("ada").await.turn.turn_id, first.turn_id);
    world.finish(first.turn_id, "To the first.").await.unwrap();
    let entries = read!(world, |r| r.conversation_entries(conversation_id, 0, 100)?);
    let replies = entries.iter().filter(|entry| entry.direction == Direction::Out);
    let sent: Vec<(&str, Vec<&str>)> = replies
        .map(|entry| (entry.content.as_str(), entry.attachments.iter().map(|file| file.name.as_str()).collect()))
        .collect();
    assert_eq!(sent, [("To the second.", vec!["second.txt"]), ("To the first.", vec!["first.txt"])]);
});
