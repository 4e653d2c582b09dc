//! Retention of chat, conversations, runs of schedules, and knowledge.

use super::tools::*;

/// The sequences of the posts in the channels `a`, `b` and `c`, which are less than ten.
fn posts(r: &mut Tx) -> Result<String> {
    let mut of_all = Vec::new();
    for name in ["a", "b", "c"] {
        let posts = r.chat_posts(&channel_name(name), 0, 0, 99)?;
        of_all.push(posts.iter().map(|post| post.seq.to_string()).collect::<String>());
    }
    Ok(of_all.join(" "))
}

pub(super) async fn old_posts_are_pruned_and_sequences_continue(store: Bench) {
    put!(&store, {
        chat_channel_put: channel("a", 5);
        chat_member_put: member("a", "m", 1);
        chat_post_append: post("a", 1), post("a", 2), post("a", 3), post("a", 4), post("a", 5);
    });
    // The clock went backwards. The sequence decides; otherwise there would be a gap.
    put!(&store, { chat_post_append: ChatPost { ts: at(3), ..post("b", 1) }, ChatPost { ts: at(1), ..post("b", 2) }; });
    prunes!(&store, Family::ChatPosts, |r| { posts(r)? }, {
        (1, 9) => 0, "12345 12 ";
        (9, 0) => 0, "12345 12 ";
        (9, 3) => 3, "45 12 ";
        (5, 9) => 3, "5  ";
        (9, 9) => 1, "  ";
    });
    shows!(&store, |r| {
        r.chat_channel_get(&channel_name("a"))? => Some(channel("a", 5)), "the sequence never decreases";
        r.chat_unread(&id_of("m"))?.len() => 1;
    });
    put!(&store, { chat_post_append: post("a", 6); });
    shows!(&store, |r| { posts(r)? => "6  "; });
}

pub(super) async fn pruning_leaves_no_gap_in_a_channel(store: Bench) {
    keep!(&store, |w| {
        for (name, times) in [("a", [9, 1, 1, 1]), ("b", [2, 1, 9, 1]), ("c", [3, 2, 1, 4])] {
            for (seq, ts) in (1..).zip(times) {
                w.chat_post_append(&ChatPost { ts: at(ts), ..post(name, seq) })?;
            }
        }
    });
    // Old posts that stay in one channel do not reduce the limit for the others.
    prunes!(&store, Family::ChatPosts, |r| { posts(r)? }, {
        (5, 3) => 3, "1234 34 234";
        (4, 9) => 2, "1234 34 4";
        (5, 9) => 1, "1234 34 ";
        (9, 9) => 0, "1234 34 ";
        (10, 9) => 6, "  ";
    });
}

/// The numbers of all conversations, in order.
fn conversations(r: &mut Tx) -> Result<Vec<u128>> {
    let mut all = map_rows(&r.conversation_list(None, None, 1_000)?, |found| found.conversation_id.0.as_u128());
    all.sort_unstable();
    Ok(all)
}

pub(super) async fn conversations_in_use_are_kept(store: Bench) {
    let active = |n, second| Conversation { updated_at: at(second), ..conversation(n, "a") };
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
            w.conversation_entry_put(&ConversationEntry { turn_id: Some(turn_id(n)), ..entry(n, 1, delivery) })?;
            w.conversation_entry_put(&entry(n, 2, Delivery::None))?;
        }
        w.conversation_put(&active(7, 5))?;
    });
    prunes!(&store, Family::Conversations, |r| { conversations(r)? }, {
        (1, 9) => 0, [1, 2, 3, 4, 5, 6, 7];
        (6, 0) => 0, [1, 2, 3, 4, 5, 6, 7];
        (6, 1) => 1, [2, 3, 4, 5, 6, 7];
        (6, 99) => 3, [2, 3, 6];
    });
    shows!(&store, |r| {
        r.conversation_get(conversation_id(1))? => None;
        r.conversation_find("control", "thread 4")? => None;
        r.conversation_entries(conversation_id(4), 0, 9)? => [];
        r.conversation_entries_of_turn(turn_id(1))? => [];
        r.conversation_entries(conversation_id(2), 0, 9)?.len() => 2;
    });
    // A conversation with unconsumed mail stays.
    put!(&store, {
        message_append: mail(9_001, "a");
        conversation_put: conversation(9, "a"), active(6, 100);
        conversation_entry_put: entry(9, 1, Delivery::None);
    });
    for (state, gone) in [(MailState::Pending, 0), (MailState::Dead, 0), (MailState::Consumed, 1)] {
        keep!(&store, |w| { w.message_mark(&[message_id(9_001)], state, None, 0)? });
        assert_eq!(keep!(&store, |w| { w.prune(Family::Conversations, at(99), 99)? }), gone);
    }
    // After its delivery the entry no longer keeps the conversation. The thread name of a deleted conversation is free.
    put!(&store, {
        conversation_entry_put: entry(2, 1, Delivery::Delivered);
        conversation_put: Conversation { thread: "thread 1".to_owned(), ..conversation(8, "a") };
    });
    prunes!(&store, Family::Conversations, |r| { conversations(r)? }, { (6, 99) => 1, [3, 6, 8]; });
}

/// The sequences of the entries of the conversations 1 to 5, which are less than ten.
fn entries(r: &mut Tx) -> Result<String> {
    let mut of_all = Vec::new();
    for n in 1..=5 {
        let entries = r.conversation_entries(conversation_id(n), 0, 99)?;
        of_all.push(entries.iter().map(|entry| entry.seq.to_string()).collect::<String>());
    }
    Ok(of_all.join(" "))
}

pub(super) async fn active_conversations_are_cut_from_their_start(store: Bench) {
    keep!(&store, |w| {
        for n in 1..=5 {
            w.conversation_put(&conversation(n, "a"))?;
            for seq in 1..=6 {
                w.conversation_entry_put(&entry(n, seq, Delivery::Delivered))?;
            }
        }
    });
    // In 2, the third entry waits for its delivery. In 3, an open turn wrote the second entry. In 4, the mail of the second
    // entry waits. In 5, the second entry is too young. Each stays, and all after it, so that there is no gap.
    put!(&store, {
        turn_put: turn(1, "a", TurnStatus::Open);
        message_append: mail(4_002, "a");
        conversation_entry_put: entry(2, 3, Delivery::Pending),
            ConversationEntry { turn_id: Some(turn_id(1)), ..entry(3, 2, Delivery::None) },
            ConversationEntry { at: at(9), ..entry(5, 2, Delivery::None) };
    });
    let cut = async |steps: &[(u64, u32, u32, u64, &str)]| {
        for (before, keep, limit, gone, left) in steps.iter().copied() {
            let cut = keep!(&store, |w| { (w.prune_conversation_entries(at(before), keep, limit)?, entries(w)?) });
            assert_eq!(cut, (gone, left.to_owned()), "before {before}, beyond {keep}, at most {limit}");
        }
    };
    // The last step cuts by number, regardless of their age: 1 has fewer entries, and the others cannot be cut.
    cut(&[
        (1, 6, 99, 0, "123456 123456 123456 123456 123456"),
        (5, 6, 0, 0, "123456 123456 123456 123456 123456"),
        (5, 6, 3, 3, "456 123456 123456 123456 123456"),
        (5, 6, 99, 6, "56 3456 23456 23456 23456"),
        (0, 3, 99, 2, "56 3456 23456 23456 456"),
    ])
    .await;
    let mark = async |state| keep!(&store, |w| { w.message_mark(&[message_id(4_002)], state, None, 0)? });
    put!(&store, {
        conversation_entry_put: entry(2, 3, Delivery::Delivered);
        turn_put: turn(1, "a", TurnStatus::Finished);
    });
    // A dead letter may be retried.
    mark(MailState::Dead).await;
    cut(&[(0, 1, 99, 1 + 3 + 4 + 2, "6 6 6 23456 6")]).await;
    mark(MailState::Consumed).await;
    cut(&[(0, 1, 99, 4, "6 6 6 6 6")]).await;
    shows!(&store, |r| {
        r.conversation_get(conversation_id(4))? => Some(conversation(4, "a"));
        r.conversation_entries_of_turn(turn_id(1))? => [];
    });
}

pub(super) async fn old_runs_are_pruned(store: Bench) {
    // An old slot that fired late is as old as its run.
    put!(&store, {
        schedule_put: schedule(1, "a", ScheduleKind::Cron, "x");
        schedule_run_put: run(1, 1), run(1, 2), run(1, 3), run(1, 4),
            ScheduleRun { slot_at: Timestamp(0), fired_at: at(9), ..run(2, 1) },
            ScheduleRun { message_id: None, ..run(2, 2) };
    });
    let runs = |r: &mut Tx, n| -> Result<_> { Ok(map_rows(&r.schedule_runs(schedule_id(n), 99)?, |run| run.run)) };
    prunes!(&store, Family::ScheduleRuns, |r| { (runs(r, 1)?, runs(r, 2)?) }, {
        (1, 9) => 0, (vec![4, 3, 2, 1], vec![2, 1]);
        (9, 0) => 0, (vec![4, 3, 2, 1], vec![2, 1]);
        (9, 3) => 3, (vec![4, 3], vec![1]);
        (4, 9) => 1, (vec![4], vec![1]);
    });
    shows!(&store, |r| {
        r.schedule_run_of(message_id(1_001))? => None;
        r.schedule_run_of(message_id(1_004))? => Some(run(1, 4));
        r.schedule_get(schedule_id(1))?.is_some() => true;
    });
}

pub(super) async fn deleted_knowledge_is_pruned(store: Bench) {
    let gone = |entry_id: &str, second: u64| KnowledgeEntry {
        deleted: true,
        creator: Party::Agent(id_of("a")),
        updated_at: at(second),
        ..knowledge(entry_id, 2)
    };
    put!(&store, {
        knowledge_put: gone("old", 1), gone("older", 0), gone("young", 5),
            KnowledgeEntry { deleted: false, ..gone("there", 1) },
            KnowledgeEntry { creator: Party::System, ..gone("seed", 1) };
    });
    let left = |r: &mut Tx| -> Result<_> {
        let mut left = Vec::new();
        for entry_id in ["older", "old", "young", "there", "seed"] {
            left.extend(r.knowledge_get(entry_id)?.map(|_| entry_id));
        }
        Ok(left.join(" "))
    };
    prunes!(&store, Family::Knowledge, |r| { left(r)? }, {
        (5, 0) => 0, "older old young there seed";
        (5, 1) => 1, "old young there seed";
        (5, 9) => 1, "young there seed";
    });
}
