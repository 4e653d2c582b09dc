use super::operation_world::*;
use crate::conversations as rules;

fn from_outside(text: &str) -> IncomingMessage {
    IncomingMessage { external_id: Some(format!("ext-{text}")), ..said(Party::Outside("eve".into()), text) }
}

pub(super) fn file(name: &str) -> Attachment {
    Attachment { path: format!("output/{name}"), name: name.into(), mime_type: "text/plain".into(), bytes: 3 }
}

/// A message of eve in the thread `t` of an adapter, for ada.
pub(super) async fn try_hear(world: &World, adapter: &str, text: &str) -> Result<Received> {
    arrive(world, "ada", adapter, "t", from_outside(text)).await
}

pub(super) async fn hear(world: &World, adapter: &str, text: &str) -> ConversationEntry {
    try_hear(world, adapter, text).await.unwrap().entry
}

/// The conversation that a first message begins.
pub(super) async fn begun(world: &World, adapter: &str, text: &str) -> ConversationId {
    hear(world, adapter, text).await.conversation_id
}

pub(super) async fn try_out(world: &World, talk: ConversationId, seq: i64) -> Option<rules::OutgoingMessage> {
    run!(world, |w| rules::attempt(w, talk, seq, 0)).unwrap()
}

pub(super) async fn settle(world: &World, talk: ConversationId, seq: i64, outcome: Outcome) {
    run!(world, |w| rules::settle(w, talk, seq, outcome)).unwrap();
}

pub(super) async fn redeliver(world: &World, talk: ConversationId, seq: i64) -> Result<ConversationEntry> {
    run!(world, |w| rules::redeliver(w, &operator(), talk, seq))
}

async fn entries(world: &World, talk: ConversationId) -> Vec<ConversationEntry> {
    let all = world.entries(talk).await;
    assert!(all.iter().zip(1..).all(|(entry, seq)| entry.seq == seq), "no gap");
    all
}

/// The last entry is the `count`th, and a note with these words.
async fn noted(world: &World, talk: ConversationId, count: usize, words: &str) {
    let all = entries(world, talk).await;
    let note = all.last().unwrap();
    assert_eq!((all.len(), note.direction), (count, Direction::Note), "{note:?}");
    assert!(note.content.contains(words), "{note:?}");
}

async fn conversation(world: &World, talk: ConversationId) -> Conversation {
    read!(world, |r| rules::get(r, talk)?)
}

async fn handoff(world: &World, by: Party, conversation: ConversationId, to: &str) -> Result<Conversation> {
    let to = id(to);
    run!(world, |w| {
        let summary = Some("She wants figures.".to_owned());
        let handover = Handover { to, reason: Some("bob knows".into()), summary, chain: Chain::root(w.ctx) };
        rules::handoff(w, &by, conversation, handover)
    })
}

pub(super) async fn attach(world: &World, turn: &Turn, talk: ConversationId, file: Attachment) -> Result<()> {
    let (agent, turn_id) = (turn.agent_id.clone(), turn.turn_id);
    run!(world, |w| rules::attach(w, &agent, turn_id, talk, file)).map(drop)
}

pub(super) async fn post(
    world: &World,
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
    let (first, second) = (hear(&world, CONTROL, "one").await, hear(&world, CONTROL, "two").await);
    let talk = first.conversation_id;
    assert_eq!(second.conversation_id, talk, "a thread is one conversation");
    assert!(world.signals().contains(&Signal::WakeFirst(id("ada"))));
    let taken = world.take("ada").await;
    assert_eq!(ids(&taken.mail), [first.message_id, second.message_id], "parts of one conversation are taken together");
    assert!(taken.mail.iter().all(|mail| mail.kind == Kind::Conversation && mail.hop == 0));
    world.finish(taken.turn.turn_id, "[[reply_to_current]] Both heard.").await.unwrap();
    let all = entries(&world, talk).await;
    let reply = all.last().unwrap();
    assert_eq!((reply.direction, reply.content.as_str()), (Direction::Out, "Both heard."));
    assert_eq!((reply.reply_to.as_deref(), reply.delivery), (Some("ext-two"), Delivery::Delivered));
    assert_eq!((reply.turn_id, &reply.from), (Some(taken.turn.turn_id), &party("ada")));
    assert_eq!((conversation(&world, talk).await.last_seq, world.count(EventKind::ConversationMessage).await), (3, 3));
    assert_eq!(world.count(EventKind::ConversationStarted).await, 1);
    let events = world.events().await;
    let at = |kind| events.iter().rposition(|event| event.kind == kind).unwrap();
    assert!(at(EventKind::ConversationMessage) < at(EventKind::TurnFinished), "first the words, then the end");
    assert_eq!(world.told(EventKind::TurnStarted, "conversation_id").await, [talk.to_string()]);
});

// covers: MSG-12
world_test!(mail_that_was_pending_when_a_conversation_ended_gets_no_reply_in_it, async |world| {
    let talk = begun(&world, CONTROL, "one").await;
    run!(world, |w| rules::end(w, &operator(), talk, None)).unwrap();
    let turn = world.done("ada", "Heard.").await;
    let all = entries(&world, talk).await;
    assert!(all.iter().all(|entry| entry.direction != Direction::Out), "{all:?}");
    let last = all.last().unwrap();
    assert_eq!((last.direction, last.turn_id), (Direction::Note, Some(turn.turn_id)));
    // A message from outside opens it again.
    hear(&world, CONTROL, "two").await;
    world.done("ada", "Heard.").await;
    assert_eq!(entries(&world, talk).await.last().unwrap().direction, Direction::Out);
});

// covers: HB-05
world_test!(a_silent_reply_and_a_failed_turn_differ, async |world| {
    for silent in ["%%NO_REPLY%%", " NO_REPLY ", ""] {
        let talk = begun(&world, CONTROL, "psst").await;
        world.done("ada", silent).await;
        assert!(entries(&world, talk).await.iter().all(|entry| entry.direction == Direction::In), "{silent:?}");
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
    let large = Attachment { bytes: 1 << 40, ..file("large") };
    for (file, why) in [
        (file("a.txt"), None),
        (file("a.txt"), Some(Code::Conflict)),
        (large, Some(Code::TooLarge)),
        (file("b.txt"), None),
        (file("c.txt"), Some(Code::TooLarge)),
    ] {
        assert_eq!(attach(&world, &turn, talk, file).await.err().map(|refusal| refusal.code), why);
    }
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
    hear(&world, CONTROL, "two").await;
    assert_eq!(code(handoff(&world, party("bob"), talk, "cyd").await), Code::Conflict, "not bob's to give");
    assert_eq!(code(handoff(&world, party("ada"), talk, "ada").await), Code::Conflict);
    let unknown = handoff(&world, party("ada"), talk, "bop").await;
    assert!(world.suggestion(unknown, Code::NotFound).await.contains("`bob`"));
    world.stop("cyd").await;
    assert_eq!(code(handoff(&world, party("ada"), talk, "cyd").await), Code::Conflict, "stopped");
    assert_eq!(conversation(&world, talk).await.owner, id("ada"), "a refusal changes nothing");

    handoff(&world, party("ada"), talk, "bob").await.unwrap();
    assert!(world.inbox("ada").await.is_empty(), "what waited has moved");
    // The last text of the turn that handed it over is still sent; nothing else is.
    assert_eq!(code(post(&world, &turn, talk, "and another thing", None).await), Code::Conflict);
    world.finish(turn.turn_id, "Bob will see to it.").await.unwrap();
    hear(&world, CONTROL, "three").await;
    let taken = world.take("bob").await;
    assert_eq!(kinds(&taken.mail), [Kind::Handoff], "what expects a reply joins no turn that something else opened");
    let handoff_text = &taken.mail[0].body;
    for part in ["bob knows", "She wants figures.", "outside:eve: one"] {
        assert!(handoff_text.contains(part), "{part}: {handoff_text}");
    }
    world.finish(taken.turn.turn_id, "These words go nowhere.").await.unwrap();
    let taken = world.take("bob").await;
    assert_eq!(kinds(&taken.mail), [Kind::Conversation, Kind::Conversation]);
    world.finish(taken.turn.turn_id, "Here they are. [[reply_to_current]]").await.unwrap();
    let all = entries(&world, talk).await;
    let out = all.iter().filter(|entry| entry.direction == Direction::Out);
    let out: Vec<(&str, &Party)> = out.map(|entry| (entry.content.as_str(), &entry.from)).collect();
    assert_eq!(out, [("Bob will see to it.", &party("ada")), ("Here they are.", &party("bob"))]);
    assert_eq!(all.last().unwrap().reply_to.as_deref(), Some("ext-three"));
    assert_eq!(world.count(EventKind::ConversationHandedOver).await, 1);
});

world_test!(what_happens_to_the_owner_is_noted_and_that_of_a_deleted_one_waits_for_an_operator, async |world| {
    world.limits(|limits| limits.crashes_max = 1);
    let talk = begun(&world, CONTROL, "poison").await;
    world.take("ada").await;
    world.crash("ada", "boom").await;
    noted(&world, talk, 2, "boom").await;
    // The mail of a stopped owner waits.
    world.stop("ada").await;
    hear(&world, CONTROL, "one").await;
    noted(&world, talk, 4, "ada").await;
    assert_eq!(world.inbox("ada").await.len(), 1);
    delete(&world, "ada").await;
    noted(&world, talk, 5, "ada").await;
    let hint = hint_of(try_hear(&world, CONTROL, "two").await, Code::Conflict);
    assert!(hint.contains("ghostctl conversation handoff"));
    assert_eq!(entries(&world, talk).await.len(), 5, "nothing half done");
    handoff(&world, operator(), talk, "bob").await.unwrap();
    hear(&world, CONTROL, "three").await;
    assert_eq!(world.inbox("bob").await.len(), 2);
});

// covers: BI-34, MSG-13
world_test!(separate_messages_name_the_message_that_they_answer, async |world| {
    let heard = hear(&world, "webhook:shop", "one").await;
    let talk = heard.conversation_id;
    let turn = world.take("ada").await.turn;
    let by_id = heard.message_id.to_string();
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
    hear(&world, CONTROL, "one").await;
    let said =
        async |adapter, thread: &str, text: &str| arrive(&world, "ada", adapter, thread, from_outside(text)).await;
    assert_eq!(detail(said(CONTROL, "other", "one").await, Code::RateLimited, "limit"), "conversations_max");
    world.limits(|limits| limits.conversations_max = 10);
    let (long, long_name) = ("x".repeat(101), "x".repeat(201));
    for (adapter, thread, text, why) in [
        (CONTROL, "t", long.as_str(), Code::TooLarge),
        (CONTROL, "t", " \n", Code::InvalidArguments),
        ("webhook:shop", "", "one", Code::InvalidArguments),
        ("webhook:shop", "a\nb", "one", Code::InvalidArguments),
        ("webhook:shop", " a", "one", Code::InvalidArguments),
        ("webhook:shop", long_name.as_str(), "one", Code::TooLarge),
    ] {
        assert_eq!(code(said(adapter, thread, text).await), why, "{thread:?} {text:?}");
    }
    let talk = begun(&world, "webhook:shop", "one").await;
    let by_hand = from_outside("as if I were eve");
    let refusal = run!(world, |w| rules::say(w, talk, by_hand)).unwrap_err();
    assert_eq!(refusal.code, Code::Conflict, "nobody speaks for the outside from here");
});

world_test!(delivery_is_retried_with_growing_waits_until_it_fails, async |world| {
    world.limits(|limits| limits.delivery_attempts_max = 3);
    let talk = begun(&world, "webhook:shop", "one").await;
    world.done("ada", "Yes.").await;
    let reply = entries(&world, talk).await.pop().unwrap();
    for (attempt, seconds) in [(1, 1), (2, 4), (3, 16)] {
        let now = world.ctx.now();
        let (due, next) = read!(world, |r| rules::due(r, now, &[], 10)?);
        assert_eq!((due.len(), next), (1, due[0].next_at), "attempt {attempt}");
        let outgoing = try_out(&world, talk, due[0].seq).await.unwrap().entry;
        assert_eq!(
            (outgoing.attempts, outgoing.message_id),
            (attempt, reply.message_id),
            "the delivery's id is stable"
        );
        // If the daemon dies here, the entry is due again later, and not earlier.
        assert_eq!(outgoing.next_at.unwrap().since(now), Duration::from_secs(seconds));
        settle(&world, talk, due[0].seq, Outcome::Retry { error: format!("503 {SECRET}"), after: None }).await;
        world.pass(Duration::from_secs(seconds));
    }
    let failed = entries(&world, talk).await.pop().unwrap();
    assert_eq!((failed.delivery, failed.attempts), (Delivery::Failed, 3));
    assert!(failed.error.as_deref().is_some_and(|error| error.starts_with("503") && !error.contains(SECRET)));
    assert_eq!(world.count(EventKind::ConversationFailed).await, 1);

    let seq = failed.seq;
    redeliver(&world, talk, seq).await.unwrap();
    try_out(&world, talk, seq).await.unwrap();
    settle(&world, talk, seq, Outcome::Delivered { missing: vec!["a.txt: gone".into()] }).await;
    let all = entries(&world, talk).await;
    assert_eq!(all[usize::try_from(seq).unwrap() - 1].delivery, Delivery::Delivered);
    assert!(all.last().unwrap().content.contains("a.txt: gone"));
    assert_eq!(world.count(EventKind::ConversationDelivered).await, 1);
    assert_eq!(code(redeliver(&world, talk, seq).await), Code::Conflict, "delivered once is enough");
});

world_test!(a_permanent_failure_ends_the_delivery_and_retry_after_is_respected, async |world| {
    let talk = begun(&world, "webhook:shop", "one").await;
    let turn = world.take("ada").await.turn;
    let sent = async |text| {
        let seq = post(&world, &turn, talk, text, None).await.unwrap().seq;
        try_out(&world, talk, seq).await.unwrap();
        seq
    };
    let (patient, gone) = (sent("first").await, sent("second").await);
    settle(&world, talk, patient, Outcome::Retry { error: "503".into(), after: Some(Duration::from_secs(900)) }).await;
    settle(&world, talk, gone, Outcome::Gone { error: "410".into() }).await;
    let of = async |seq: i64| entries(&world, talk).await.remove(usize::try_from(seq).unwrap() - 1);
    assert_eq!(of(patient).await.next_at, Some(world.ctx.now().plus(Duration::from_secs(900))));
    assert_eq!((of(gone).await.delivery, of(gone).await.attempts), (Delivery::Failed, 1));
    // If the daemon dies in every attempt, the delivery ends as failed.
    world.limits(|limits| limits.delivery_attempts_max = 1);
    assert_eq!((try_out(&world, talk, patient).await, of(patient).await.delivery), (None, Delivery::Failed));
});

world_test!(a_conversation_is_not_handed_back_and_an_unanswered_handoff_adds_a_note, async |world| {
    let talk = begun(&world, CONTROL, "who knows?").await;
    // The owner hands it over in its turn, and ends that with this text.
    let hands = async |from: &str, to: &str, text: &str| {
        let turn_id = world.take(from).await.turn.turn_id;
        handoff(&world, party(from), talk, to).await.unwrap();
        world.finish(turn_id, text).await.unwrap();
    };
    hands("ada", "bob", "Bob may know.").await;
    assert_eq!(code(handoff(&world, party("bob"), talk, "ada").await), Code::Conflict, "back");
    hands("bob", "cyd", "").await;
    let notes = async || {
        let all = entries(&world, talk).await;
        let system = all.into_iter().filter(|entry| entry.from == Party::System);
        system.map(|entry| entry.content).collect::<Vec<_>>()
    };
    assert!(notes().await.is_empty(), "it went on");
    for earlier in ["ada", "bob"] {
        assert_eq!(code(handoff(&world, party("cyd"), talk, earlier).await), Code::Conflict, "a ring");
    }
    world.done("cyd", "I do not know.").await;
    let told = notes().await;
    assert!(told.len() == 1 && told[0].contains("cyd"), "{told:?}");

    // After a new message from outside, it may be handed to an earlier owner. A new owner that
    // sends a message adds no note.
    hear(&world, CONTROL, "and now?").await;
    hands("cyd", "ada", "").await;
    let turn = world.take("ada").await.turn;
    post(&world, &turn, talk, "I do.", None).await.unwrap();
    world.finish(turn.turn_id, "").await.unwrap();
    assert_eq!(notes().await.len(), 1);
    // An operator may hand it to any agent.
    handoff(&world, operator(), talk, "cyd").await.unwrap();
});
