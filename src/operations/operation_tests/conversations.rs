use super::operation_world::*;
use crate::conversations as rules;

fn from_outside(text: &str) -> IncomingMessage {
    IncomingMessage { external_id: Some(format!("ext-{text}")), ..said(Party::Outside("eve".into()), text) }
}

fn file(name: &str) -> Attachment {
    Attachment { path: format!("output/{name}"), name: name.into(), mime_type: "text/plain".into(), bytes: 3 }
}

pub(super) async fn arrive(world: &OperationWorld, adapter: &str, thread: &str, text: &str) -> Result<Received> {
    let (party, message) = (Party::Outside("eve".into()), from_outside(text));
    let start = Start { adapter: adapter.into(), thread: Some(thread.into()), owner: id("ada"), party };
    run!(world, |w| rules::arrive(w, start, message))
}

/// The conversation that a first message begins.
async fn begun(world: &OperationWorld, adapter: &str, text: &str) -> ConversationId {
    arrive(world, adapter, "t", text).await.unwrap().conversation.conversation_id
}

async fn try_out(world: &OperationWorld, talk: ConversationId, seq: i64) -> Option<rules::OutgoingMessage> {
    run!(world, |w| rules::attempt(w, talk, seq, 0)).unwrap()
}

async fn settle(world: &OperationWorld, talk: ConversationId, seq: i64, outcome: Outcome) {
    run!(world, |w| rules::settle(w, talk, seq, outcome)).unwrap();
}

async fn entries(world: &OperationWorld, talk: ConversationId) -> Vec<ConversationEntry> {
    let all = read!(world, |r| r.conversation_entries(talk, 0, 1_000)?);
    assert!(all.iter().zip(1..).all(|(entry, seq)| entry.seq == seq), "no gap");
    all
}

async fn conversation(world: &OperationWorld, talk: ConversationId) -> Conversation {
    read!(world, |r| rules::get(r, talk)?)
}

async fn handoff(world: &OperationWorld, by: Party, conversation: ConversationId, to: &str) -> Result<Conversation> {
    let to = id(to);
    run!(world, |w| {
        let summary = Some("She wants figures.".to_owned());
        let handover = Handover { to, reason: Some("bob knows".into()), summary, chain: Chain::root(w.ctx) };
        rules::handoff(w, &by, conversation, handover)
    })
}

async fn attach(
    world: &OperationWorld,
    turn: &Turn,
    conversation: ConversationId,
    file: Attachment,
) -> Result<ConversationEntry> {
    let (agent, turn_id) = (turn.agent_id.clone(), turn.turn_id);
    run!(world, |w| rules::attach(w, &agent, turn_id, conversation, file))
}

pub(super) async fn post(
    world: &OperationWorld,
    turn: &Turn,
    conversation: ConversationId,
    text: &str,
    to: Option<&str>,
) -> Result<ConversationEntry> {
    let (agent, turn_id) = (turn.agent_id.clone(), turn.turn_id);
    let post = Post { content: text.into(), attachments: vec![], reply_to: to.map(str::to_owned) };
    run!(world, |w| rules::post(w, &agent, turn_id, conversation, post))
}

// covers: LOOP-02, MSG-11
world_test!(a_message_from_outside_is_mail_and_the_last_text_goes_out_with_the_turns_end, async |world| {
    let first = arrive(&world, CONTROL, "t", "one").await.unwrap();
    let talk = first.conversation.conversation_id;
    let second = arrive(&world, CONTROL, "t", "two").await.unwrap();
    assert_eq!(second.conversation.conversation_id, talk, "a thread is one conversation");
    assert!(world.signals().contains(&Signal::WakeFirst(id("ada"))));
    let taken = world.take("ada").await;
    assert_eq!(taken.mail.len(), 2, "parts of one conversation are taken together");
    assert!(taken.mail.iter().all(|mail| mail.kind == Kind::Conversation && mail.hop == 0));
    assert_eq!(taken.mail[0].message_id, first.entry.message_id);
    world.finish(taken.turn.turn_id, "[[reply_to_current]] Both heard.").await.unwrap();
    let all = entries(&world, talk).await;
    let reply = all.last().unwrap();
    assert_eq!((reply.direction, reply.content.as_str()), (Direction::Out, "Both heard."));
    assert_eq!((reply.reply_to.as_deref(), reply.delivery), (Some("ext-two"), Delivery::Delivered));
    assert_eq!((reply.turn_id, &reply.from), (Some(taken.turn.turn_id), &party("ada")));
    assert_eq!(conversation(&world, talk).await.last_seq, 3);
    assert_eq!(world.count(EventKind::ConversationMessage).await, 3);
    assert_eq!(world.count(EventKind::ConversationStarted).await, 1);
    let events = world.events().await;
    let at = |kind| events.iter().rposition(|event| event.kind == kind).unwrap();
    assert!(at(EventKind::ConversationMessage) < at(EventKind::TurnFinished), "first the words, then the end");
    let began = events.iter().find(|event| event.kind == EventKind::TurnStarted).unwrap();
    assert_eq!(began.payload["conversation_id"], talk.to_string());
});

// covers: MSG-12
world_test!(mail_that_was_pending_when_a_conversation_ended_gets_no_reply_in_it, async |world| {
    let talk = begun(&world, CONTROL, "one").await;
    run!(world, |w| rules::end(w, &operator(), talk, None)).unwrap();
    let taken = world.take("ada").await;
    world.finish(taken.turn.turn_id, "Heard.").await.unwrap();
    let all = entries(&world, talk).await;
    assert!(all.iter().all(|entry| entry.direction != Direction::Out), "{all:?}");
    let last = all.last().unwrap();
    assert_eq!((last.direction, last.turn_id), (Direction::Note, Some(taken.turn.turn_id)));
    // A message from outside opens it again.
    arrive(&world, CONTROL, "t", "two").await.unwrap();
    world.done("ada", "Heard.").await;
    assert_eq!(entries(&world, talk).await.last().unwrap().direction, Direction::Out);
});

// covers: HB-05
world_test!(a_silent_reply_and_a_failed_turn_differ, async |world| {
    for silent in ["%%NO_REPLY%%", " NO_REPLY ", ""] {
        let heard = arrive(&world, CONTROL, "silent", "psst").await.unwrap();
        world.done("ada", silent).await;
        let all = entries(&world, heard.conversation.conversation_id).await;
        assert!(all.iter().all(|entry| entry.direction == Direction::In), "{silent:?}");
    }
    let talk = begun(&world, "webhook:shop", "hello").await;
    let turn = world.take("ada").await.turn;
    attach(&world, &turn, talk, file("a.txt")).await.unwrap();
    world.end(turn.turn_id, Ending::Failed(Refusal::new(Code::Unavailable, format!("no model: {SECRET}")))).await;
    let all = entries(&world, talk).await;
    let note = all.last().unwrap();
    assert_eq!((note.direction, note.delivery, &note.from), (Direction::Note, Delivery::None, &Party::System));
    assert!(note.content.contains("no model") && !note.content.contains(SECRET), "{}", note.content);
    assert!(all.iter().all(|entry| entry.delivery != Delivery::Draft), "what was attached is let go");
});

// covers: BI-35
world_test!(files_are_sent_with_the_reply_and_can_be_the_whole_reply, async |world| {
    world.limits(|limits| limits.attachments_max = 2);
    let talk = begun(&world, CONTROL, "files please").await;
    let turn = world.take("ada").await.turn;
    attach(&world, &turn, talk, file("a.txt")).await.unwrap();
    assert_eq!(code(attach(&world, &turn, talk, file("a.txt")).await), Code::Conflict);
    let large = Attachment { bytes: 1 << 40, ..file("large") };
    assert_eq!(code(attach(&world, &turn, talk, large).await), Code::TooLarge);
    attach(&world, &turn, talk, file("b.txt")).await.unwrap();
    assert_eq!(code(attach(&world, &turn, talk, file("c.txt")).await), Code::TooLarge);
    world.signals();
    world.finish(turn.turn_id, "").await.unwrap();
    let reply = entries(&world, talk).await.pop().unwrap();
    assert_eq!((reply.direction, reply.content.as_str(), reply.attachments.len()), (Direction::Out, "", 2));
    // The files must still be checked.
    assert_eq!(reply.delivery, Delivery::Pending);
    assert!(world.signals().contains(&Signal::Delivery));
});

// covers: BI-36
world_test!(a_handoff_moves_waiting_and_later_mail, async |world| {
    let talk = begun(&world, CONTROL, "one").await;
    let turn = world.take("ada").await.turn;
    arrive(&world, CONTROL, "t", "two").await.unwrap();
    assert_eq!(code(handoff(&world, party("bob"), talk, "cyd").await), Code::Conflict, "not bob's to give");
    assert_eq!(code(handoff(&world, party("ada"), talk, "ada").await), Code::Conflict);
    let hint = hint_of(
        world.with_suggestion(handoff(&world, party("ada"), talk, "bop").await.unwrap_err()).await,
        Code::NotFound,
    );
    assert!(hint.contains("`bob`"));
    world.stop("cyd").await;
    assert_eq!(code(handoff(&world, party("ada"), talk, "cyd").await), Code::Conflict, "stopped");
    assert_eq!(conversation(&world, talk).await.owner, id("ada"), "a refusal changes nothing");

    handoff(&world, party("ada"), talk, "bob").await.unwrap();
    assert!(world.inbox("ada").await.is_empty(), "what waited has moved");
    // The last text of the turn that handed it over is still sent; nothing else is.
    assert_eq!(code(post(&world, &turn, talk, "and another thing", None).await), Code::Conflict);
    world.finish(turn.turn_id, "Bob will see to it.").await.unwrap();
    arrive(&world, CONTROL, "t", "three").await.unwrap();
    let taken = world.take("bob").await;
    let kinds = |taken: &turns::Taken| taken.mail.iter().map(|mail| mail.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&taken), [Kind::Handoff], "what expects a reply joins no turn that something else opened");
    let handoff_text = &taken.mail[0].body;
    for part in ["bob knows", "She wants figures.", "outside:eve: one"] {
        assert!(handoff_text.contains(part), "{part}: {handoff_text}");
    }
    world.finish(taken.turn.turn_id, "These words go nowhere.").await.unwrap();
    let taken = world.take("bob").await;
    assert_eq!(kinds(&taken), [Kind::Conversation, Kind::Conversation]);
    world.finish(taken.turn.turn_id, "Here they are. [[reply_to_current]]").await.unwrap();
    let all = entries(&world, talk).await;
    let out: Vec<(&str, &Party)> = all
        .iter()
        .filter(|entry| entry.direction == Direction::Out)
        .map(|entry| (entry.content.as_str(), &entry.from))
        .collect();
    assert_eq!(out, [("Bob will see to it.", &party("ada")), ("Here they are.", &party("bob"))]);
    assert_eq!(all.last().unwrap().reply_to.as_deref(), Some("ext-three"));
    assert_eq!(world.count(EventKind::ConversationHandedOver).await, 1);
});

world_test!(the_conversation_of_a_deleted_owner_waits_for_an_operator, async |world| {
    let talk = begun(&world, CONTROL, "one").await;
    delete(&world, "ada").await;
    let note = entries(&world, talk).await.pop().unwrap();
    assert!(note.direction == Direction::Note && note.content.contains("ada"), "{}", note.content);
    let hint = hint_of(arrive(&world, CONTROL, "t", "two").await.unwrap_err(), Code::Conflict);
    assert!(hint.contains("ghostctl conversation handoff"));
    assert_eq!(entries(&world, talk).await.len(), 2, "nothing half done");
    handoff(&world, operator(), talk, "bob").await.unwrap();
    arrive(&world, CONTROL, "t", "three").await.unwrap();
    assert_eq!(world.inbox("bob").await.len(), 2);
});

world_test!(a_stopped_owner_is_reported_and_its_mail_waits, async |world| {
    world.stop("ada").await;
    let note = entries(&world, begun(&world, CONTROL, "hello").await).await.pop().unwrap();
    assert!(note.direction == Direction::Note && note.content.contains("ada"), "{}", note.content);
    assert_eq!(world.inbox("ada").await.len(), 1);
});

// covers: BI-34, MSG-13
world_test!(separate_messages_name_the_message_that_they_answer, async |world| {
    let heard = arrive(&world, "webhook:shop", "t", "one").await.unwrap();
    let talk = heard.conversation.conversation_id;
    let turn = world.take("ada").await.turn;
    let by_id = heard.entry.message_id.to_string();
    let sent = post(&world, &turn, talk, "a moment", Some(&by_id)).await.unwrap();
    assert_eq!((sent.reply_to.as_deref(), sent.delivery), (Some("ext-one"), Delivery::Pending));
    assert_eq!(code(post(&world, &turn, talk, "x", Some("nothing")).await), Code::NotFound);
    assert_eq!(code(post(&world, &turn, talk, " ", None).await), Code::InvalidArguments);
    assert_eq!(code(post(&world, &turn, talk, &"x".repeat(70_000), None).await), Code::TooLarge);
    // A tag with an unknown id is removed and refers to nothing.
    world.finish(turn.turn_id, "[[reply_to:nothing]] Done.").await.unwrap();
    let reply = entries(&world, talk).await.pop().unwrap();
    assert_eq!((reply.content.as_str(), reply.reply_to), ("Done.", None));
});

world_test!(exceeded_limits_are_refused, async |world| {
    world.limits(|limits| (limits.conversations_max, limits.message_bytes) = (1, 100));
    arrive(&world, CONTROL, "t", "one").await.unwrap();
    let refusal = arrive(&world, CONTROL, "other", "one").await.unwrap_err();
    assert_eq!(
        (refusal.code, refusal.details.unwrap()["limit"].clone()),
        (Code::RateLimited, "conversations_max".into())
    );
    assert_eq!(code(arrive(&world, CONTROL, "t", &"x".repeat(101)).await), Code::TooLarge);
    assert_eq!(code(arrive(&world, CONTROL, "t", " \n").await), Code::InvalidArguments);
    world.limits(|limits| limits.conversations_max = 10);
    for thread in ["", "a\nb", " a"] {
        assert_eq!(code(arrive(&world, "webhook:shop", thread, "one").await), Code::InvalidArguments, "{thread:?}");
    }
    assert_eq!(code(arrive(&world, "webhook:shop", &"x".repeat(201), "one").await), Code::TooLarge);
    let talk = begun(&world, "webhook:shop", "one").await;
    let by_hand = from_outside("as if I were eve");
    let refusal = run!(world, |w| rules::say(w, talk, by_hand)).unwrap_err();
    assert_eq!(refusal.code, Code::Conflict, "nobody speaks for the outside from here");
});

world_test!(delivery_is_retried_with_growing_waits_until_it_fails, async |world| {
    world.limits(|limits| limits.delivery_attempts_max = 3);
    let talk = begun(&world, "webhook:shop", "one").await;
    world.done("ada", "Yes.").await;
    let mut waits = Vec::new();
    let mut ids = Vec::new();
    for attempt in 1..=3 {
        let now = world.ctx.now();
        let (due, next) = read!(world, |r| rules::due(r, now, &[], 10)?);
        assert_eq!((due.len(), next), (1, due[0].next_at), "attempt {attempt}");
        let seq = due[0].seq;
        let outgoing = try_out(&world, talk, seq).await.unwrap();
        assert_eq!(outgoing.entry.attempts, attempt);
        ids.push(outgoing.entry.message_id);
        // If the daemon dies here, the entry is due again later, and not earlier.
        let wait = outgoing.entry.next_at.unwrap().since(now);
        waits.push(wait);
        settle(&world, talk, seq, Outcome::Retry { error: format!("503 {SECRET}"), after: None }).await;
        world.pass(wait);
    }
    assert_eq!(waits, [1, 4, 16].map(Duration::from_secs));
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "the delivery's id is stable");
    let failed = entries(&world, talk).await.pop().unwrap();
    assert_eq!((failed.delivery, failed.attempts), (Delivery::Failed, 3));
    assert!(failed.error.as_deref().is_some_and(|error| error.starts_with("503") && !error.contains(SECRET)));
    assert_eq!(world.count(EventKind::ConversationFailed).await, 1);

    let seq = failed.seq;
    run!(world, |w| rules::redeliver(w, &operator(), talk, seq)).unwrap();
    try_out(&world, talk, seq).await.unwrap();
    settle(&world, talk, seq, Outcome::Delivered { missing: vec!["a.txt: gone".into()] }).await;
    let all = entries(&world, talk).await;
    assert_eq!(all[usize::try_from(seq).unwrap() - 1].delivery, Delivery::Delivered);
    assert!(all.last().unwrap().content.contains("a.txt: gone"));
    assert_eq!(world.count(EventKind::ConversationDelivered).await, 1);
    let again = run!(world, |w| rules::redeliver(w, &operator(), talk, seq));
    assert_eq!(code(again), Code::Conflict, "delivered once is enough");
});

world_test!(a_permanent_failure_ends_the_delivery_and_retry_after_is_respected, async |world| {
    let talk = begun(&world, "webhook:shop", "one").await;
    let turn = world.take("ada").await.turn;
    let patient = post(&world, &turn, talk, "first", None).await.unwrap().seq;
    let gone = post(&world, &turn, talk, "second", None).await.unwrap().seq;
    for seq in [patient, gone] {
        try_out(&world, talk, seq).await.unwrap();
    }
    settle(&world, talk, patient, Outcome::Retry { error: "503".into(), after: Some(Duration::from_secs(900)) }).await;
    settle(&world, talk, gone, Outcome::Gone { error: "410".into() }).await;
    let all = entries(&world, talk).await;
    let of = |seq: i64| &all[usize::try_from(seq).unwrap() - 1];
    assert_eq!(of(patient).next_at, Some(world.ctx.now().plus(Duration::from_secs(900))));
    assert_eq!((of(gone).delivery, of(gone).attempts), (Delivery::Failed, 1));
    // If the daemon dies in every attempt, the delivery ends as failed.
    world.limits(|limits| limits.delivery_attempts_max = 1);
    assert_eq!(try_out(&world, talk, patient).await, None);
    assert_eq!(entries(&world, talk).await[usize::try_from(patient).unwrap() - 1].delivery, Delivery::Failed);
});

world_test!(a_dead_letter_adds_a_note_to_its_conversation, async |world| {
    world.limits(|limits| limits.crashes_max = 1);
    let talk = begun(&world, CONTROL, "poison").await;
    world.take("ada").await;
    world.crash("ada", "boom").await;
    let note = entries(&world, talk).await.pop().unwrap();
    assert!(note.direction == Direction::Note && note.content.contains("boom"), "{}", note.content);
});

world_test!(a_conversation_is_not_handed_back_and_an_unanswered_handoff_adds_a_note, async |world| {
    let heard = arrive(&world, CONTROL, "ring", "who knows?").await.unwrap();
    let talk = heard.conversation.conversation_id;
    let turn = world.take("ada").await.turn;
    handoff(&world, party("ada"), talk, "bob").await.unwrap();
    world.finish(turn.turn_id, "Bob may know.").await.unwrap();
    let turn = world.take("bob").await.turn;
    assert_eq!(code(handoff(&world, party("bob"), talk, "ada").await), Code::Conflict, "back");
    handoff(&world, party("bob"), talk, "cyd").await.unwrap();
    world.finish(turn.turn_id, "").await.unwrap();
    let notes = async || {
        let all = entries(&world, talk).await;
        let system = all.into_iter().filter(|entry| entry.from == Party::System);
        system.map(|entry| entry.content).collect::<Vec<_>>()
    };
    assert!(notes().await.is_empty(), "it went on");
    let turn = world.take("cyd").await.turn;
    for earlier in ["ada", "bob"] {
        assert_eq!(code(handoff(&world, party("cyd"), talk, earlier).await), Code::Conflict, "a ring");
    }
    world.finish(turn.turn_id, "I do not know.").await.unwrap();
    let told = notes().await;
    assert!(told.len() == 1 && told[0].contains("cyd"), "{told:?}");

    // After a new message from outside, it may be handed to an earlier owner. A new owner that
    // sends a message adds no note.
    arrive(&world, CONTROL, "ring", "and now?").await.unwrap();
    let turn = world.take("cyd").await.turn;
    handoff(&world, party("cyd"), talk, "ada").await.unwrap();
    world.finish(turn.turn_id, "").await.unwrap();
    let turn = world.take("ada").await.turn;
    post(&world, &turn, talk, "I do.", None).await.unwrap();
    world.finish(turn.turn_id, "").await.unwrap();
    assert_eq!(notes().await.len(), 1);
    // An operator may hand it to any agent.
    handoff(&world, operator(), talk, "cyd").await.unwrap();
});
