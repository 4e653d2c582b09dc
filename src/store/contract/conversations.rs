//! Conversations with the outside, and waiting deliveries.

use super::tools::*;

pub(super) async fn conversations_are_found_by_thread(store: Bench) {
    let full = || Conversation {
        adapter: "webhook:shop".to_owned(),
        thread: AWKWARD.to_owned(),
        party: Party::Outside(AWKWARD.to_owned()),
        last_seq: i64::MAX,
        ..conversation(1, "a")
    };
    put!(&store, { conversation_put: Conversation { owner: id_of("z"), ..full() }, full(), conversation(2, "a"); });
    shows!(&store, |r| {
        r.conversation_get(conversation_id(1))? => Some(full());
        r.conversation_find("webhook:shop", AWKWARD)? => Some(full());
        r.conversation_find("control", "thread 2")? => Some(conversation(2, "a"));
        r.conversation_get(conversation_id(9))? => None;
        r.conversation_find("control", AWKWARD)? => None;
        r.conversation_find("control", "thread")? => None;
        r.conversation_count()? => 2;
    });
}

pub(super) async fn conversations_are_listed_latest_first(store: Bench) {
    put!(&store, {
        conversation_put: conversation(2, "a"), conversation(4, "b"), conversation(1, "a"), conversation(3, "aa"),
            Conversation { updated_at: at(5), ..conversation(1, "a") };
    });
    let ids = |found: Vec<Conversation>| map_rows(&found, |found| found.conversation_id);
    shows!(&store, |r| {
        ids(r.conversation_list(None, None, 1_000)?) => [1, 4, 3, 2].map(conversation_id);
        ids(r.conversation_list(Some(&id_of("a")), None, 1_000)?) => [1, 2].map(conversation_id);
        r.conversation_list(Some(&id_of("b")), None, 1_000)? => [conversation(4, "b")];
        r.conversation_list(Some(&id_of("c")), None, 1_000)? => [];
    });
    // The owner of a conversation may change.
    put!(&store, { conversation_put: conversation(4, "c"); });
    shows!(&store, |r| {
        r.conversation_list(Some(&id_of("b")), None, 1_000)?.len() => 0;
        r.conversation_list(Some(&id_of("c")), None, 1_000)?.len() => 1;
    });
    keep!(&store, |w| {
        for n in 10..=1_010 {
            w.conversation_put(&conversation(n, "d"))?;
        }
    });
    shows!(&store, |r| {
        r.conversation_list(None, None, 1_000)?.len() => 1_000;
        ids(r.conversation_list(Some(&id_of("d")), None, 1_000)?)
            => (11..=1_010).rev().map(conversation_id).collect::<Vec<_>>();
    });
}

pub(super) async fn entries_are_in_order(store: Bench) {
    let file = |name: &str| Attachment {
        path: format!("out/{name}"),
        name: AWKWARD.to_owned(),
        mime_type: "text/markdown".to_owned(),
        bytes: LARGE,
    };
    let full = move || {
        with(
            entry(1, 2, Delivery::Failed),
            json!({
                "direction": "in", "from": Party::Outside("web".to_owned()), "content": AWKWARD,
                "attachments": [file("b"), file("a")], "reply_to": AWKWARD, "external_id": "x-1", "turn_id": turn_id(3),
                "attempts": u32::MAX, "next_at": at(9), "error": AWKWARD,
            }),
        )
    };
    let (one, other) = (|seq| entry(1, seq, Delivery::None), |seq| entry(2, seq, Delivery::Draft));
    put!(&store, { conversation_entry_put: one(3), other(3), one(1), other(1), one(2), other(2), full(); });
    for (after, limit, wanted) in
        [(0, 9, &[1, 2, 3][..]), (0, 2, &[1, 2]), (1, 1, &[2]), (3, 9, &[]), (0, 0, &[]), (i64::MAX, 9, &[])]
    {
        let entries = reading!(&store, |r| { r.conversation_entries(conversation_id(1), after, limit)? });
        assert_eq!(map_rows(&entries, |entry| entry.seq), wanted, "{after} {limit}");
    }
    shows!(&store, |r| {
        r.conversation_entries(conversation_id(1), 1, 9)? => [full(), one(3)];
        r.conversation_entries(conversation_id(2), 0, 9)?.len() => 3;
    });
}

pub(super) async fn entries_of_a_turn_are_found(store: Bench) {
    let of = |n, seq, turn| ConversationEntry { turn_id: Some(turn_id(turn)), ..entry(n, seq, Delivery::Draft) };
    put!(&store, {
        conversation_entry_put: of(2, 1, 1), of(1, 5, 1), of(1, 4, 2), of(1, 2, 1), entry(1, 3, Delivery::None);
    });
    shows!(&store, |r| { r.conversation_entries_of_turn(turn_id(1))? => [of(1, 2, 1), of(1, 5, 1), of(2, 1, 1)]; });
    put!(&store, { conversation_entry_put: of(1, 5, 2), entry(2, 1, Delivery::Failed); });
    shows!(&store, |r| {
        r.conversation_entries_of_turn(turn_id(1))? => [of(1, 2, 1)];
        r.conversation_entries_of_turn(turn_id(2))? => [of(1, 4, 2), of(1, 5, 2)];
        r.conversation_entries_of_turn(turn_id(3))? => [];
    });
}

/// The conversations and sequences of due entries.
fn due(r: &mut Tx, now: u64, limit: u32) -> Result<Vec<(u128, i64)>> {
    let due = r.deliveries_due(at(now), &[], limit)?;
    Ok(map_rows(&due, |entry| (entry.conversation_id.0.as_u128(), entry.seq)))
}

pub(super) async fn deliveries_fall_due(store: Bench) {
    let waits = |n, seq, until| ConversationEntry { next_at: Some(at(until)), ..entry(n, seq, Delivery::Pending) };
    let rests = |seq, delivery| ConversationEntry { next_at: Some(at(1)), ..entry(3, seq, delivery) };
    shows!(&store, |r| { (due(r, 1_000_000, 9)?, r.delivery_next_at()?) => (vec![], None); });
    put!(&store, {
        conversation_entry_put: waits(1, 1, 30), waits(1, 2, 10), waits(3, 1, 20), waits(2, 2, 20), waits(2, 1, 20),
            rests(4, Delivery::None), rests(5, Delivery::Draft), rests(6, Delivery::Delivered),
            rests(7, Delivery::Failed);
        conversation_put: Conversation { adapter: "webhook:a".to_owned(), ..conversation(1, "a") },
            Conversation { adapter: "webhook:b".to_owned(), ..conversation(2, "a") };
    });
    let passing = |adapters: &str| map_rows(adapters.as_bytes(), |one| format!("webhook:{}", char::from(*one)));
    shows!(&store, |r| {
        r.delivery_next_at()? => Some(at(10));
        r.deliveries_due(at(10), &[], 9)? => [waits(1, 2, 10)];
        due(r, 9, 9)? => [];
        due(r, 20, 9)? => [(1, 2), (2, 1), (2, 2), (3, 1)];
        due(r, 99, 2)? => [(1, 2), (2, 1)];
        due(r, 99, 0)? => [];
        due(r, 99, 9)?.len() => 5;
        r.deliveries_due(at(99), &passing("bc"), 2)? => [waits(1, 2, 10), waits(3, 1, 20)];
        r.deliveries_due(at(99), &passing("a"), 2)? => [waits(2, 1, 20), waits(2, 2, 20)];
        r.deliveries_due(at(99), &passing("ab"), 9)? => [waits(3, 1, 20)];
    });
    put!(&store, {
        conversation_entry_put: ConversationEntry { next_at: None, ..entry(1, 2, Delivery::Delivered) },
            ConversationEntry { attempts: 1, ..waits(2, 1, 40) };
    });
    shows!(&store, |r| { r.delivery_next_at()? => Some(at(20)); });
    // An entry without a due time is due from the time it was written.
    put!(&store, { conversation_entry_put: entry(4, 15, Delivery::Pending); });
    shows!(&store, |r| {
        r.delivery_next_at()? => Some(at(15));
        due(r, 14, 9)? => [];
        due(r, 39, 9)? => [(4, 15), (2, 2), (3, 1), (1, 1)];
        due(r, 99, 9)? => [(4, 15), (2, 2), (3, 1), (1, 1), (2, 1)];
    });
}
