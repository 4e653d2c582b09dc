//! Retention of chat, conversations, runs of schedules, and knowledge.

use ghost_domain::{
    ChatPost, ConversationEntry, Delivery, KnowledgeEntry, MailState, Party, ScheduleKind, ScheduleRun, Timestamp,
    TurnStatus,
};

use super::prune::prune_all;
use super::tools::*;
use crate::Store;
use crate::tables::Family;

pub(super) async fn old_posts_are_pruned_and_sequences_continue(store: Bench) {
    let posts = async |store: &Store, name: &'static str| {
        map_rows(&reading!(store, |r| { r.chat_posts(&channel_name(name), 0, 0, 99)? }), |post| post.seq)
    };
    keep!(&store, |w| {
        w.chat_channel_put(&channel("a", 5))?;
        w.chat_member_put(&member("a", "m", 1))?;
        for seq in 1..=5 {
            w.chat_post_append(&post("a", seq))?;
        }
        // The clock went backwards. The sequence decides; otherwise there would be a gap.
        w.chat_post_append(&ChatPost { ts: at(3), ..post("b", 1) })?;
        w.chat_post_append(&ChatPost { ts: at(1), ..post("b", 2) })?;
    });
    assert_eq!(keep!(&store, |w| { w.prune(Family::ChatPosts, at(1), 9)? }), 0, "only what is older");
    assert_eq!(keep!(&store, |w| { w.prune(Family::ChatPosts, at(9), 0)? }), 0, "bounded");
    refuse!(&store, |w| {
        w.chat_post_append(&post("a", 6))?;
        assert_eq!(w.prune(Family::ChatPosts, at(9), 99)?, 8);
        assert_eq!(w.chat_posts(&channel_name("a"), 0, 0, 99)?, []);
    });
    assert_eq!((posts(&store, "a").await, posts(&store, "b").await), (vec![1, 2, 3, 4, 5], vec![1, 2]));
    assert_eq!(keep!(&store, |w| { w.prune(Family::ChatPosts, at(9), 3)? }), 3);
    assert_eq!((posts(&store, "a").await, posts(&store, "b").await), (vec![4, 5], vec![1, 2]), "from the start");
    prune_all(&store, Family::ChatPosts, 5).await;
    assert_eq!((posts(&store, "a").await, posts(&store, "b").await), (vec![5], vec![]));
    prune_all(&store, Family::ChatPosts, 9).await;
    keep!(&store, |w| {
        assert_eq!(w.chat_channel_get(&channel_name("a"))?, Some(channel("a", 5)));
        assert_eq!(w.chat_unread(&id_of("m"))?.len(), 1);
        assert_eq!(w.chat_posts(&channel_name("a"), 0, 0, 9)?, vec![], "the sequence never decreases");
    });
    keep!(&store, |w| { w.chat_post_append(&post("a", 6))? });
    assert_eq!(posts(&store, "a").await, [6]);
}

pub(super) async fn pruning_leaves_no_gap_in_a_channel(store: Bench) {
    let posts = async |store: &Store, name: &'static str| {
        map_rows(&reading!(store, |r| { r.chat_posts(&channel_name(name), 0, 0, 99)? }), |post| post.seq)
    };
    keep!(&store, |w| {
        for (name, times) in [("a", [9, 1, 1, 1]), ("b", [2, 1, 9, 1]), ("c", [3, 2, 1, 4])] {
            for (seq, ts) in (1..).zip(times) {
                w.chat_post_append(&ChatPost { ts: at(ts), ..post(name, seq) })?;
            }
        }
    });
    let all = async || (posts(&store, "a").await, posts(&store, "b").await, posts(&store, "c").await);
    // Old posts that stay in one channel do not reduce the limit for the others.
    assert_eq!(keep!(&store, |w| { w.prune(Family::ChatPosts, at(5), 3)? }), 3);
    assert_eq!(all().await, (vec![1, 2, 3, 4], vec![3, 4], vec![2, 3, 4]));
    assert_eq!(keep!(&store, |w| { w.prune(Family::ChatPosts, at(4), 9)? }), 2);
    assert_eq!(all().await, (vec![1, 2, 3, 4], vec![3, 4], vec![4]));
    assert_eq!(keep!(&store, |w| { w.prune(Family::ChatPosts, at(5), 9)? }), 1);
    assert_eq!(keep!(&store, |w| { w.prune(Family::ChatPosts, at(9), 9)? }), 0);
    assert_eq!(keep!(&store, |w| { w.prune(Family::ChatPosts, at(10), 9)? }), 6);
    assert_eq!(all().await, (vec![], vec![], vec![]));
}

pub(super) async fn conversations_in_use_are_kept(store: Bench) {
    let kept = async |store: &Store| {
        let mut kept = map_rows(&reading!(store, |r| { r.conversation_list(None, None, 1_000)? }), |found| {
            found.conversation_id.0.as_u128()
        });
        kept.sort_unstable();
        kept
    };
    keep!(&store, |w| {
        // Conversation 6 is the newest and 1 the oldest. Conversation 7 has no entry.
        for (n, delivery) in [
            (6, Delivery::None),
            (1, Delivery::Delivered),
            (2, Delivery::Pending),
            (3, Delivery::Draft),
            (4, Delivery::Failed),
            (5, Delivery::None),
        ] {
            w.conversation_put(&conversation(n, "a"))?;
            let of_turn = ghost_domain::ConversationEntry { turn_id: Some(turn_id(n)), ..entry(n, 1, delivery) };
            w.conversation_entry_put(&of_turn)?;
            w.conversation_entry_put(&entry(n, 2, Delivery::None))?;
        }
        w.conversation_put(&ghost_domain::Conversation { updated_at: at(5), ..conversation(7, "a") })?;
    });
    assert_eq!(keep!(&store, |w| { w.prune(Family::Conversations, at(1), 9)? }), 0, "only what is older");
    assert_eq!(keep!(&store, |w| { w.prune(Family::Conversations, at(6), 0)? }), 0, "bounded");
    refuse!(&store, |w| {
        assert_eq!(w.prune(Family::Conversations, at(6), 99)?, 4);
        assert_eq!(w.conversation_find("control", "thread 1")?, None);
        assert_eq!(w.conversation_entries(conversation_id(1), 0, 9)?, []);
    });
    assert_eq!(kept(&store).await, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(keep!(&store, |w| { w.conversation_entries(conversation_id(1), 0, 9)? }).len(), 2);
    assert_eq!(keep!(&store, |w| { w.prune(Family::Conversations, at(6), 1)? }), 1, "a conversation is one row");
    assert_eq!(kept(&store).await, [2, 3, 4, 5, 6, 7], "oldest first");
    assert_eq!(keep!(&store, |w| { w.prune(Family::Conversations, at(6), 99)? }), 3);
    assert_eq!(kept(&store).await, [2, 3, 6]);
    keep!(&store, |w| {
        assert_eq!(w.conversation_get(conversation_id(1))?, None);
        assert_eq!(w.conversation_find("control", "thread 4")?, None);
        assert_eq!(w.conversation_entries(conversation_id(4), 0, 9)?, vec![]);
        assert_eq!(w.conversation_entries_of_turn(turn_id(1))?, vec![]);
    });
    assert_eq!(reading!(&store, |r| { r.conversation_entries(conversation_id(2), 0, 9)? }).len(), 2);
    // A conversation with unconsumed mail stays.
    let waits = async |state| {
        keep!(&store, |w| {
            w.message_mark(&[message_id(9_001)], state, None, 0)?;
            w.prune(Family::Conversations, at(99), 99)?
        })
    };
    keep!(&store, |w| {
        w.message_append(&mail(9_001, "a"))?;
        w.conversation_put(&conversation(9, "a"))?;
        w.conversation_entry_put(&entry(9, 1, Delivery::None))?;
        w.conversation_put(&ghost_domain::Conversation { updated_at: at(100), ..conversation(6, "a") })?;
    });
    assert_eq!((waits(MailState::Pending).await, waits(MailState::Dead).await), (0, 0));
    assert_eq!(waits(MailState::Consumed).await, 1);
    // After its delivery the entry no longer keeps the conversation.
    keep!(&store, |w| { w.conversation_entry_put(&entry(2, 1, Delivery::Delivered))? });
    assert_eq!(keep!(&store, |w| { w.prune(Family::Conversations, at(6), 99)? }), 1);
    // The thread name of a deleted conversation is free.
    let again = ghost_domain::Conversation { thread: "thread 1".to_owned(), ..conversation(8, "a") };
    keep!(&store, |w| { w.conversation_put(&again)? });
    assert_eq!(kept(&store).await, [3, 6, 8]);
}

pub(super) async fn active_conversations_are_cut_from_their_start(store: Bench) {
    let left = async |store: &Store, n: u64| {
        map_rows(&reading!(store, |r| { r.conversation_entries(conversation_id(n), 0, 99)? }), |entry| entry.seq)
    };
    keep!(&store, |w| {
        for n in 1..=5 {
            w.conversation_put(&conversation(n, "a"))?;
            for seq in 1..=6 {
                let delivery = if n == 2 && seq == 3 { Delivery::Pending } else { Delivery::Delivered };
                w.conversation_entry_put(&entry(n, seq, delivery))?;
            }
        }
        // In 3, an open turn wrote the second entry. In 4, the mail of the second entry waits. In
        // 5, the second entry is too young.
        w.turn_put(&turn(1, "a", TurnStatus::Open))?;
        w.conversation_entry_put(&ConversationEntry { turn_id: Some(turn_id(1)), ..entry(3, 2, Delivery::None) })?;
        w.message_append(&mail(4_002, "a"))?;
        w.conversation_entry_put(&ConversationEntry { at: at(9), ..entry(5, 2, Delivery::None) })?;
    });
    let cut = async |before: u64, keep: u32, limit: u32| {
        keep!(&store, |w| { w.prune_conversation_entries(at(before), keep, limit)? })
    };
    assert_eq!(cut(1, 6, 99).await, 0, "only what is older, and beyond the count");
    assert_eq!(cut(5, 6, 0).await, 0, "bounded");
    refuse!(&store, |w| {
        assert_eq!(w.prune_conversation_entries(at(9), 99, 99)?, 11);
        assert_eq!(w.conversation_entries(conversation_id(1), 0, 99)?, []);
    });
    assert_eq!(cut(5, 6, 3).await, 3);
    assert_eq!((left(&store, 1).await, left(&store, 2).await), (vec![4, 5, 6], vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(cut(5, 6, 99).await, 6);
    assert_eq!(left(&store, 1).await, [5, 6]);
    assert_eq!(left(&store, 2).await, [3, 4, 5, 6], "an entry that waits for delivery stays, and all after it");
    assert_eq!(left(&store, 3).await, [2, 3, 4, 5, 6], "an entry of an open turn stays, and all after it");
    assert_eq!(left(&store, 4).await, [2, 3, 4, 5, 6], "an entry with unconsumed mail stays, and all after it");
    assert_eq!(left(&store, 5).await, [2, 3, 4, 5, 6], "no gap");
    // By number, regardless of their age.
    assert_eq!(cut(0, 3, 99).await, 2, "only conversation 5: 1 has fewer entries, and the others cannot be cut");
    assert_eq!(left(&store, 5).await, [4, 5, 6]);
    keep!(&store, |w| {
        w.conversation_entry_put(&entry(2, 3, Delivery::Delivered))?;
        w.turn_put(&turn(1, "a", TurnStatus::Finished))?;
        w.message_mark(&[message_id(4_002)], MailState::Dead, None, 0)?;
    });
    assert_eq!(cut(0, 1, 99).await, 1 + 3 + 4 + 2, "a dead letter may be retried");
    assert_eq!((left(&store, 2).await, left(&store, 4).await), (vec![6], vec![2, 3, 4, 5, 6]));
    keep!(&store, |w| { w.message_mark(&[message_id(4_002)], MailState::Consumed, None, 0)? });
    assert_eq!(cut(0, 1, 99).await, 4);
    let place =
        keep!(&store, |w| { (w.conversation_get(conversation_id(4))?, w.conversation_entries_of_turn(turn_id(1))?) });
    assert_eq!(place, (Some(conversation(4, "a")), vec![]), "the conversation itself stays");
}

pub(super) async fn old_runs_are_pruned(store: Bench) {
    let runs = async |store: &Store, n: u64| {
        map_rows(&reading!(store, |r| { r.schedule_runs(schedule_id(n), 99)? }), |run| run.run)
    };
    keep!(&store, |w| {
        w.schedule_put(&schedule(1, "a", ScheduleKind::Cron, "x"))?;
        for number in 1..=4 {
            w.schedule_run_put(&run(1, number))?;
        }
        // An old slot that fired late is as old as its run.
        w.schedule_run_put(&ScheduleRun { slot_at: Timestamp(0), fired_at: at(9), ..run(2, 1) })?;
        w.schedule_run_put(&ScheduleRun { message_id: None, ..run(2, 2) })?;
    });
    assert_eq!(keep!(&store, |w| { w.prune(Family::ScheduleRuns, at(1), 9)? }), 0, "only what is older");
    assert_eq!(keep!(&store, |w| { w.prune(Family::ScheduleRuns, at(9), 0)? }), 0, "bounded");
    refuse!(&store, |w| {
        assert_eq!(w.prune(Family::ScheduleRuns, at(10), 99)?, 6);
        assert_eq!(w.schedule_run_of(message_id(1_001))?, None);
    });
    assert_eq!((runs(&store, 1).await, runs(&store, 2).await), (vec![4, 3, 2, 1], vec![2, 1]));
    assert_eq!(keep!(&store, |w| { w.prune(Family::ScheduleRuns, at(9), 3)? }), 3);
    assert_eq!((runs(&store, 1).await, runs(&store, 2).await), (vec![4, 3], vec![1]), "oldest first");
    prune_all(&store, Family::ScheduleRuns, 4).await;
    keep!(&store, |w| {
        assert_eq!(w.schedule_run_of(message_id(1_001))?, None);
        assert_eq!(w.schedule_run_of(message_id(1_004))?, Some(run(1, 4)));
        assert!(w.schedule_get(schedule_id(1))?.is_some());
    });
    assert_eq!((runs(&store, 1).await, runs(&store, 2).await), (vec![4], vec![1]));
}

pub(super) async fn deleted_knowledge_is_pruned(store: Bench) {
    let gone = |entry_id: &str, second: u64| KnowledgeEntry {
        deleted: true,
        creator: Party::Agent(id_of("a")),
        updated_at: at(second),
        ..knowledge(entry_id, 2)
    };
    keep!(&store, |w| {
        w.knowledge_put(&gone("old", 1))?;
        w.knowledge_put(&gone("older", 0))?;
        w.knowledge_put(&gone("young", 5))?;
        w.knowledge_put(&KnowledgeEntry { deleted: false, ..gone("there", 1) })?;
        w.knowledge_put(&KnowledgeEntry { creator: Party::System, ..gone("seed", 1) })?;
    });
    assert_eq!(keep!(&store, |w| { w.prune(Family::Knowledge, at(5), 0)? }), 0, "bounded");
    refuse!(&store, |w| { assert_eq!(w.prune(Family::Knowledge, at(5), 9)?, 2) });
    assert_eq!(keep!(&store, |w| { w.prune(Family::Knowledge, at(5), 1)? }), 1);
    let left = async |entry_id: &'static str| reading!(&store, |r| { r.knowledge_get(entry_id)?.is_some() });
    assert_eq!((left("older").await, left("old").await), (false, true), "oldest first");
    prune_all(&store, Family::Knowledge, 5).await;
    let all = (left("old").await, left("young").await, left("there").await, left("seed").await);
    assert_eq!(all, (false, true, true, true));
}
