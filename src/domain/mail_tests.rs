//! Which mail a turn takes.

use super::*;
use crate::ids::{MessageId, RootId};
use crate::party::Party;
use crate::time::Timestamp;
use proptest::prelude::*;
use uuid::Uuid;

fn mail(seq: i64, kind: Kind) -> Envelope {
    let id = |n: i64| Uuid::from_u128(n.unsigned_abs().into());
    let people = (Party::System, "a".parse().unwrap());
    Envelope {
        seq,
        conversation_id: (kind == Kind::Conversation).then(|| crate::ids::ConversationId(id(seq % 2))),
        ..Envelope::new(MessageId(id(seq)), people, (kind, String::new()), RootId(Uuid::nil()), Timestamp(0))
    }
}

/// `plan_turn` without main jobs.
fn plan_turn(pending: &[Envelope], room: Room) -> Vec<&Envelope> {
    super::plan_turn(pending, room, &BTreeSet::new())
}

/// A capacity for this many envelopes of any size.
fn room(envelopes: usize) -> Room {
    Room { envelopes, bytes: usize::MAX }
}

fn seqs(taken: &[&Envelope]) -> Vec<i64> {
    taken.iter().map(|e| e.seq).collect()
}

// covers: LOOP-06
#[test]
fn messages_merge_and_a_second_ask_waits() {
    let pending = [mail(1, Kind::Ask), mail(2, Kind::Message), mail(3, Kind::Ask), mail(4, Kind::Task)];
    assert_eq!(seqs(&plan_turn(&pending, room(16))), [1, 2, 4]);
}

#[test]
fn a_job_shares_no_turn_with_other_work() {
    let root = |n: u128| RootId(Uuid::from_u128(n));
    let of = |seq, n| Envelope { root_id: root(n), ..mail(seq, Kind::Message) };
    let quiet = Envelope { wake: false, ..of(4, 2) };
    let pending = [of(1, 1), of(2, 2), of(3, 1), quiet, of(5, 3)];
    let taken = |pending: &[Envelope], jobs: &[u128]| {
        let jobs = jobs.iter().map(|n| root(*n)).collect();
        seqs(&super::plan_turn(pending, room(16), &jobs))
    };
    assert_eq!(taken(&pending, &[1]), [1, 3, 4], "quiet mail may share any turn");
    assert_eq!(taken(&pending[1..], &[1]), [2, 4, 5]);
    assert_eq!(taken(&pending, &[2, 9]), [1, 3, 4, 5]);
    assert_eq!(taken(&pending, &[]), [1, 2, 3, 4, 5]);
}

// covers: LOOP-01
#[test]
fn quiet_mail_of_another_session_is_roused() {
    let talk = Some(ConversationId(Uuid::from_u128(7)));
    let quiet = |seq, kind| Envelope { wake: false, ..mail(seq, kind) };
    let there = |envelope| Envelope { conversation_id: talk, ..envelope };
    let pending = [
        quiet(1, Kind::Message),
        there(quiet(2, Kind::Message)),
        there(quiet(3, Kind::Cron)),
        there(mail(4, Kind::Message)),
        mail(5, Kind::Message),
    ];
    let behind = |pending: &[Envelope]| {
        let behind = left_behind(pending, &plan_turn(pending, room(16)));
        pending.iter().filter(|e| behind.contains(&e.message_id)).map(|e| e.seq).collect::<Vec<_>>()
    };
    assert_eq!(behind(&pending), [1], "the turn belongs to the conversation");
    assert_eq!(behind(&[&pending[..3], &pending[4..]].concat()), [2], "quiet mail of a job waits for a heartbeat");
    assert_eq!(behind(&[&pending[1..3], &[mail(6, Kind::Heartbeat)]].concat()), [2, 3]);
    assert_eq!(behind(&pending[..3]), [0; 0], "nothing opens a turn");
}

#[test]
fn quiet_mail_joins_a_turn_but_opens_none() {
    let mut quiet = mail(1, Kind::Chat);
    quiet.wake = false;
    assert!(plan_turn(std::slice::from_ref(&quiet), room(16)).is_empty());
    let pending = [quiet, mail(2, Kind::Message)];
    assert_eq!(seqs(&plan_turn(&pending, room(16))), [1, 2]);
}

#[test]
fn mail_of_different_conversations_does_not_share_a_turn() {
    let pending = [mail(1, Kind::Conversation), mail(2, Kind::Conversation), mail(3, Kind::Conversation)];
    assert_eq!(seqs(&plan_turn(&pending, room(16))), [1, 3]);
}

#[test]
fn a_turn_has_the_channel_of_its_reply_or_of_a_handoff() {
    let of = |kinds: &[(Kind, u128)]| {
        let mail: Vec<Envelope> = kinds
            .iter()
            .map(|(kind, id)| Envelope {
                conversation_id: Some(crate::ids::ConversationId(Uuid::from_u128(*id))),
                ..mail(1, *kind)
            })
            .collect();
        channel_of(&mail).map(|channel| (channel.conversation_id.0.as_u128(), channel.replies))
    };
    assert_eq!(of(&[(Kind::Handoff, 1), (Kind::Handoff, 2), (Kind::Conversation, 3)]), Some((3, true)));
    assert_eq!(of(&[(Kind::Handoff, 1), (Kind::Handoff, 2)]), Some((1, false)));
    assert_eq!(of(&[(Kind::Message, 1), (Kind::Ask, 2)]), None);
}

#[test]
fn crashed_mail_and_heartbeats_run_alone() {
    let mut bad = mail(1, Kind::Message);
    bad.crashes = 1;
    let pending = [bad, mail(2, Kind::Message)];
    assert_eq!(seqs(&plan_turn(&pending, room(16))), [1]);
    let pending = [mail(1, Kind::Heartbeat), mail(2, Kind::Message)];
    assert_eq!(seqs(&plan_turn(&pending, room(16))), [2]);
    let pending = [mail(1, Kind::Heartbeat)];
    assert_eq!(seqs(&plan_turn(&pending, room(16))), [1]);
    let pending = [mail(1, Kind::CronTurn), mail(2, Kind::Message), mail(3, Kind::CronTurn)];
    assert_eq!(seqs(&plan_turn(&pending, room(16))), [1]);
    let pending = [mail(1, Kind::Message), mail(2, Kind::CronTurn)];
    assert_eq!(seqs(&plan_turn(&pending, room(16))), [1]);
}

// covers: SCHED-06
#[test]
fn quiet_mail_of_schedules_goes_with_the_next_heartbeat() {
    let quiet = |seq, kind| Envelope { wake: false, ..mail(seq, kind) };
    let pending = [quiet(1, Kind::Cron), quiet(2, Kind::Message), mail(3, Kind::Heartbeat), quiet(4, Kind::Cron)];
    assert_eq!(seqs(&plan_turn(&pending, room(16))), [1, 3, 4]);
    assert_eq!(seqs(&plan_turn(&pending, room(2))), [1, 3]);
    assert_eq!(seqs(&plan_turn(&pending, room(1))), [3]);
    let crashed = [quiet(1, Kind::Cron), Envelope { crashes: 1, ..mail(2, Kind::Heartbeat) }];
    assert_eq!(seqs(&plan_turn(&crashed, room(16))), [2]);
}

fn long(seq: i64, bytes: usize) -> Envelope {
    Envelope { body: "x".repeat(bytes - ENVELOPE_BYTES), ..mail(seq, Kind::Message) }
}

#[test]
fn a_turn_takes_no_more_bytes_than_its_room() {
    let room = Room { envelopes: 16, bytes: 1_000 };
    let pending = [long(1, 400), long(2, 600), long(3, 300), long(4, 300)];
    assert_eq!(seqs(&plan_turn(&pending, room)), [1, 2], "the others wait in order, even if one of them would fit");
    assert_eq!(seqs(&plan_turn(&pending[1..], room)), [2, 3]);
    // A message that is larger than the capacity has a turn of its own.
    let pending = [long(1, 300), long(2, 5_000), long(3, 300)];
    assert_eq!(seqs(&plan_turn(&pending, room)), [1]);
    assert_eq!(seqs(&plan_turn(&pending[1..], room)), [2]);
    // Quiet mail that is larger than the capacity shares a turn with the first waking mail.
    let pending = [Envelope { wake: false, ..long(1, 5_000) }, long(2, 300), long(3, 300)];
    assert_eq!(seqs(&plan_turn(&pending, room)), [1, 2]);
    let quiet = |seq| Envelope { wake: false, kind: Kind::Cron, ..long(seq, 400) };
    let pending = [quiet(1), quiet(2), mail(3, Kind::Heartbeat)];
    assert_eq!(seqs(&plan_turn(&pending, room)), [1, 2, 3]);
    assert_eq!(seqs(&plan_turn(&pending, Room { bytes: 800, ..room })), [1, 3]);
}

proptest! {
    #[test]
    fn the_plan_follows_its_rules(
        kinds in prop::collection::vec((0usize..Kind::ALL.len(), any::<bool>(), 0u32..2, 0usize..500), 0..40),
        max in 1usize..10,
        bytes in 1usize..3_000,
    ) {
        let pending: Vec<Envelope> = kinds.iter().enumerate().map(|(i, (kind, wake, crashes, body))| {
            let mut e = mail(i as i64 + 1, Kind::ALL[*kind]);
            e.wake = *wake;
            e.crashes = *crashes;
            e.body = "x".repeat(*body);
            e
        }).collect();
        let taken = plan_turn(&pending, Room { envelopes: max, bytes });
        let sizes: Vec<usize> = taken.iter().map(|e| bytes_of(e)).collect();
        let largest = sizes.iter().copied().max().unwrap_or(0);
        let rest = sizes.iter().sum::<usize>() - largest;
        prop_assert!(rest + largest <= bytes || sizes.len() == 1 || (sizes.len() == 2 && largest > bytes), "{:?}", sizes);
        prop_assert_eq!(taken.is_empty(), !pending.iter().any(|e| e.wake));
        prop_assert!(taken.len() <= max);
        prop_assert!(taken.windows(2).all(|pair| pair[0].seq < pair[1].seq));
        prop_assert!(taken.is_empty() || taken.iter().any(|e| e.wake));
        prop_assert!(taken.iter().filter(|e| e.kind == Kind::Ask).count() <= 1);
        let owed: std::collections::BTreeSet<_> = taken.iter().filter(|e| e.kind.expects_reply())
            .map(|e| (e.kind, e.conversation_id)).collect();
        prop_assert!(owed.len() <= 1);
        prop_assert!(taken.len() == 1 || taken.iter().all(|e| e.crashes == 0 && e.kind != Kind::CronTurn));
        let beats = taken.iter().any(|e| e.kind == Kind::Heartbeat);
        prop_assert!(!beats || taken.iter().all(|e| e.kind == Kind::Heartbeat || waits_for_heartbeat(e)));
        prop_assert!(taken.iter().filter(|e| e.kind == Kind::Heartbeat).count() <= 1);
    }
}
