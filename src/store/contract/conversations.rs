//! Conversations with the outside, and waiting deliveries.

use ghost_domain::{Attachment, Conversation, ConversationEntry, Delivery, Party, Timestamp};
use serde_json::json;

use super::tools::*;
use crate::Store;

pub(super) async fn conversations_are_found_by_thread(mut store: Bench) {
    let full = || Conversation {
        adapter: "webhook:shop".to_owned(),
        thread: AWKWARD.to_owned(),
        party: Party::Outside(AWKWARD.to_owned()),
        last_seq: i64::MAX,
        ..conversation(1, "a")
    };
    keep!(&store, |w| {
        w.conversation_put(&Conversation { owner: id_of("z"), ..full() })?;
        assert_eq!(w.conversation_find("webhook:shop", AWKWARD)?.map(|found| found.owner), Some(id_of("z")));
        w.conversation_put(&full())?;
        w.conversation_put(&conversation(2, "a"))?;
        assert_eq!(w.conversation_get(conversation_id(1))?.as_ref(), Some(&full()));
        assert_eq!(w.conversation_find("webhook:shop", AWKWARD)?.as_ref(), Some(&full()));
        assert_eq!(w.conversation_find("control", AWKWARD)?, None);
    });
    shows!(&store, |r| {
        r.conversation_get(conversation_id(1))?.as_ref() => Some(&full());
        r.conversation_find("webhook:shop", AWKWARD)?.as_ref() => Some(&full());
        r.conversation_find("control", "thread 2")? => Some(conversation(2, "a"));
        r.conversation_get(conversation_id(9))? => None;
        r.conversation_find("control", "thread")? => None;
    });
    refuse!(&store, |w| {
        w.conversation_put(&conversation(3, "a"))?;
        w.conversation_put(&Conversation { owner: id_of("b"), ..conversation(2, "a") })?;
        assert_eq!(w.conversation_find("control", "thread 3")?, Some(conversation(3, "a")));
    });
    keep!(&store, |w| {
        assert_eq!(w.conversation_find("control", "thread 3")?, None);
        assert_eq!(w.conversation_find("control", "thread 2")?, Some(conversation(2, "a")));
    });
    refuse!(&store, |w| {
        w.conversation_put(&conversation(3, "a"))?;
        assert_eq!(w.conversation_count()?, 3);
    });
    assert_eq!(reading!(&store, |r| { r.conversation_count()? }), 2);
    store.reopen().await;
    assert_eq!(reading!(&store, |r| { r.conversation_find("webhook:shop", AWKWARD)? }), Some(full()));
}

pub(super) async fn conversations_are_listed_latest_first(store: Bench) {
    keep!(&store, |w| {
        for (n, owner) in [(2, "a"), (4, "b"), (1, "a"), (3, "aa")] {
            w.conversation_put(&conversation(n, owner))?;
        }
        assert_eq!(w.conversation_list(None, None, 1_000)?.len(), 4);
        w.conversation_put(&Conversation { updated_at: at(5), ..conversation(1, "a") })?;
        let inside = w.conversation_list(Some(&id_of("a")), None, 1_000)?;
        assert_eq!(map_rows(&inside, |found| found.conversation_id), [conversation_id(1), conversation_id(2)]);
    });
    shows!(&store, |r| {
        map_rows(&r.conversation_list(None, None, 1_000)?, |found| found.conversation_id)
            => [1, 4, 3, 2].map(conversation_id);
        r.conversation_list(Some(&id_of("b")), None, 1_000)? => vec![conversation(4, "b")];
        r.conversation_list(Some(&id_of("c")), None, 1_000)? => vec![];
    });
    // The owner of a conversation may change.
    keep!(&store, |w| { w.conversation_put(&conversation(4, "c"))? });
    shows!(&store, |r| {
        r.conversation_list(Some(&id_of("b")), None, 1_000)?.len() => 0;
        r.conversation_list(Some(&id_of("c")), None, 1_000)?.len() => 1;
    });
    keep!(&store, |w| {
        for n in 10..=1_010 {
            w.conversation_put(&conversation(n, "d"))?;
        }
    });
    let (all, of_d) = reading!(&store, |r| {
        (r.conversation_list(None, None, 1_000)?, r.conversation_list(Some(&id_of("d")), None, 1_000)?)
    });
    assert_eq!((all.len(), of_d.len(), of_d[999].conversation_id), (1_000, 1_000, conversation_id(11)));
}

pub(super) async fn entries_are_in_order(mut store: Bench) {
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
    keep!(&store, |w| {
        for seq in [3, 1, 2] {
            w.conversation_entry_put(&entry(1, seq, Delivery::None))?;
            w.conversation_entry_put(&entry(2, seq, Delivery::Draft))?;
        }
        assert_eq!(w.conversation_entries(conversation_id(1), 0, 9)?[1], entry(1, 2, Delivery::None));
        w.conversation_entry_put(&full())?;
        let inside = w.conversation_entries(conversation_id(1), 0, 9)?;
        assert_eq!(inside, [entry(1, 1, Delivery::None), full(), entry(1, 3, Delivery::None)]);
    });
    let seqs = async |after: i64, limit: u32| {
        let entries = reading!(&store, |r| { r.conversation_entries(conversation_id(1), after, limit)? });
        map_rows(&entries, |entry| entry.seq)
    };
    assert_eq!((seqs(0, 9).await, seqs(0, 2).await, seqs(1, 1).await), (vec![1, 2, 3], vec![1, 2], vec![2]));
    assert_eq!((seqs(3, 9).await, seqs(0, 0).await, seqs(i64::MAX, 9).await), (vec![], vec![], vec![]));
    let second = reading!(&store, |r| { r.conversation_entries(conversation_id(1), 1, 1)? });
    assert_eq!(second, std::slice::from_ref(&full()));
    refuse!(&store, |w| {
        w.conversation_entry_put(&entry(1, 2, Delivery::Pending))?;
        w.conversation_entry_put(&entry(1, 4, Delivery::Pending))?;
        assert_eq!(w.conversation_entries(conversation_id(1), 0, 9)?.len(), 4);
    });
    let second = keep!(&store, |w| { w.conversation_entries(conversation_id(1), 1, 9)? });
    assert_eq!(second, [full(), entry(1, 3, Delivery::None)]);
    store.reopen().await;
    assert_eq!(reading!(&store, |r| { r.conversation_entries(conversation_id(2), 0, 9)? }).len(), 3);
}

pub(super) async fn entries_of_a_turn_are_found(store: Bench) {
    let of = |n, seq, turn| ConversationEntry { turn_id: Some(turn_id(turn)), ..entry(n, seq, Delivery::Draft) };
    keep!(&store, |w| {
        for written in [of(2, 1, 1), of(1, 5, 1), of(1, 4, 2), of(1, 2, 1), entry(1, 3, Delivery::None)] {
            w.conversation_entry_put(&written)?;
        }
        assert_eq!(w.conversation_entries_of_turn(turn_id(1))?, [of(1, 2, 1), of(1, 5, 1), of(2, 1, 1)]);
        w.conversation_entry_put(&of(1, 5, 2))?;
        assert_eq!(w.conversation_entries_of_turn(turn_id(1))?, [of(1, 2, 1), of(2, 1, 1)]);
        w.conversation_entry_put(&entry(2, 1, Delivery::Failed))?;
    });
    shows!(&store, |r| {
        r.conversation_entries_of_turn(turn_id(1))? => vec![of(1, 2, 1)];
        r.conversation_entries_of_turn(turn_id(2))? => vec![of(1, 4, 2), of(1, 5, 2)];
        r.conversation_entries_of_turn(turn_id(3))? => vec![];
    });
}

async fn due(store: &Store, now: u64, limit: u32) -> Vec<(u128, i64)> {
    let due = reading!(store, |r| { r.deliveries_due(at(now), &[], limit)? });
    map_rows(&due, |entry| (entry.conversation_id.0.as_u128(), entry.seq))
}

async fn next(store: &Store) -> Option<Timestamp> {
    reading!(store, |r| { r.delivery_next_at()? })
}

pub(super) async fn deliveries_fall_due(mut store: Bench) {
    let waits = |n, seq, until| ConversationEntry { next_at: Some(at(until)), ..entry(n, seq, Delivery::Pending) };
    assert_eq!((due(&store, 1_000_000, 9).await, next(&store).await), (vec![], None));
    keep!(&store, |w| {
        assert_eq!(w.delivery_next_at()?, None);
        w.conversation_entry_put(&waits(1, 1, 30))?;
        w.conversation_entry_put(&waits(1, 2, 10))?;
        w.conversation_entry_put(&waits(3, 1, 20))?;
        w.conversation_entry_put(&waits(2, 2, 20))?;
        w.conversation_entry_put(&waits(2, 1, 20))?;
        for (seq, delivery) in
            [(4, Delivery::None), (5, Delivery::Draft), (6, Delivery::Delivered), (7, Delivery::Failed)]
        {
            w.conversation_entry_put(&ConversationEntry { next_at: Some(at(1)), ..entry(3, seq, delivery) })?;
        }
        assert_eq!(w.delivery_next_at()?, Some(at(10)));
        assert_eq!(w.deliveries_due(at(10), &[], 9)?, [waits(1, 2, 10)]);
    });
    assert_eq!(due(&store, 9, 9).await, []);
    assert_eq!(due(&store, 20, 9).await, [(1, 2), (2, 1), (2, 2), (3, 1)]);
    assert_eq!(due(&store, 99, 2).await, [(1, 2), (2, 1)]);
    keep!(&store, |w| {
        w.conversation_put(&Conversation { adapter: "webhook:a".to_owned(), ..conversation(1, "a") })?;
        w.conversation_put(&Conversation { adapter: "webhook:b".to_owned(), ..conversation(2, "a") })?;
        let passing = ["webhook:b".to_owned(), "webhook:c".to_owned()];
        assert_eq!(w.deliveries_due(at(99), &passing, 2)?, [waits(1, 2, 10), waits(3, 1, 20)]);
    });
    reading!(&store, |r| {
        let both = ["webhook:a".to_owned(), "webhook:b".to_owned()];
        assert_eq!(r.deliveries_due(at(99), &both[..1], 2)?, vec![waits(2, 1, 20), waits(2, 2, 20)]);
        assert_eq!(r.deliveries_due(at(99), &both, 9)?, vec![waits(3, 1, 20)]);
    });
    assert_eq!((due(&store, 99, 0).await, due(&store, 99, 9).await.len()), (vec![], 5));
    keep!(&store, |w| {
        w.conversation_entry_put(&ConversationEntry { next_at: None, ..entry(1, 2, Delivery::Delivered) })?;
        w.conversation_entry_put(&ConversationEntry { attempts: 1, ..waits(2, 1, 40) })?;
        assert_eq!(w.delivery_next_at()?, Some(at(20)));
        // An entry without a due time is due from the time it was written.
        w.conversation_entry_put(&entry(4, 15, Delivery::Pending))?;
        assert_eq!(w.delivery_next_at()?, Some(at(15)));
    });
    assert_eq!(due(&store, 14, 9).await, []);
    assert_eq!(due(&store, 39, 9).await, [(4, 15), (2, 2), (3, 1), (1, 1)]);
    assert_eq!(next(&store).await, Some(at(15)));
    refuse!(&store, |w| {
        for unwanted in w.deliveries_due(at(99), &[], 9)? {
            w.conversation_entry_put(&ConversationEntry { delivery: Delivery::Failed, ..unwanted })?;
        }
        assert_eq!((w.delivery_next_at()?, w.deliveries_due(at(99), &[], 9)?), (None, vec![]));
    });
    assert_eq!(due(&store, 99, 9).await, [(4, 15), (2, 2), (3, 1), (1, 1), (2, 1)]);
    store.reopen().await;
    assert_eq!((due(&store, 99, 9).await.len(), next(&store).await), (5, Some(at(15))));
}
