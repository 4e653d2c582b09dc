//! Chooses the pending mail that one turn takes (`docs/design.md`, "Which mail shares a turn").
//! Pure functions.

use std::collections::BTreeSet;

use crate::conversation::ChannelContext;
use crate::envelope::{Envelope, Kind};
use crate::ids::{ConversationId, MessageId, RootId};

/// Bytes that an envelope needs in a prompt besides its own text (an estimate).
const ENVELOPE_BYTES: usize = 200;

/// The capacity of one turn for mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Maximum envelopes; at least 1.
    pub envelopes: usize,
    /// Maximum bytes of all envelopes together. A single envelope may be larger.
    pub bytes: usize,
}

/// Bytes that an envelope needs in a turn.
#[must_use]
pub fn bytes_of(envelope: &Envelope) -> usize {
    let named = envelope.attachments.iter().map(String::len).sum::<usize>();
    ENVELOPE_BYTES + envelope.subject.as_ref().map_or(0, String::len) + envelope.body.len() + named
}

/// Chooses the mail of the next turn from `pending`, which is in inbox order. Empty if no mail
/// wakes the agent.
///
/// - The first waking envelope decides the turn. A turn has at most one envelope that expects a
///   reply; several messages of one conversation count as one.
/// - A heartbeat runs only if no other mail wakes the agent. It takes only quiet mail of cron jobs,
///   which waits for it.
/// - The mail of a cron job with a turn of its own runs alone.
/// - Mail that a turn crashed on, or that an operator retried, runs alone. So a poisoned message
///   does not affect other messages.
/// - All mail of a turn belongs to one session.
/// - `jobs` are the roots of main jobs. Waking mail of such a root does not share a turn with
///   waking mail of another root: a turn is charged to one root, and the cost of a job must be
///   known.
/// - The turn takes no more than `room`, its capacity; the rest waits in order. The deciding
///   envelope is always taken. If the oldest envelope alone is larger than the capacity, it is
///   taken too.
#[must_use]
pub fn plan_turn<'m>(pending: &'m [Envelope], room: Room, jobs: &BTreeSet<RootId>) -> Vec<&'m Envelope> {
    let max = room.envelopes;
    let waking = |e: &&Envelope| e.wake;
    let Some(first) =
        pending.iter().filter(waking).find(|e| e.kind != Kind::Heartbeat).or_else(|| pending.iter().find(waking))
    else {
        return Vec::new();
    };
    if runs_alone(first) {
        let waited = |e: &&Envelope| {
            first.kind == Kind::Heartbeat
                && is_fresh(first)
                && waits_for_heartbeat(e)
                && session_of(e) == session_of(first)
        };
        let mut used = bytes_of(first);
        let fits = |envelope: &&Envelope| {
            used += bytes_of(envelope);
            used <= room.bytes
        };
        let waiting = pending.iter().filter(waited).take(max.saturating_sub(1));
        let mut taken: Vec<&Envelope> = waiting.take_while(fits).collect();
        taken.push(first);
        taken.sort_by_key(|envelope| envelope.seq);
        return taken;
    }
    let mut replies_to = first.kind.expects_reply().then_some(first);
    let mut taken = Vec::new();
    // Capacity is reserved for the deciding envelope.
    let (mut used, mut full) = (bytes_of(first), false);
    for envelope in pending {
        if taken.len() + 1 > max.max(1) {
            break;
        }
        if envelope.message_id == first.message_id {
            taken.push(envelope);
            continue;
        }
        let first_is_in = taken.iter().any(|e: &&Envelope| e.message_id == first.message_id);
        if !first_is_in && taken.len() + 2 > max.max(1) {
            continue;
        }
        if session_of(envelope) != session_of(first) {
            continue;
        }
        let other = envelope.root_id != first.root_id;
        if other && envelope.wake && (jobs.contains(&envelope.root_id) || jobs.contains(&first.root_id)) {
            continue;
        }
        if full || runs_alone(envelope) || !(envelope.kind.merges() || joins(envelope, replies_to)) {
            continue;
        }
        let bytes = bytes_of(envelope);
        let too_large_ever = taken.is_empty() && bytes > room.bytes;
        if used + bytes > room.bytes && !too_large_ever {
            full = true;
            continue;
        }
        used += bytes;
        if !envelope.kind.merges() {
            replies_to = replies_to.or(Some(envelope));
        }
        taken.push(envelope);
    }
    taken
}

/// The conversation that a turn with this mail belongs to: the conversation that gets its reply,
/// otherwise the first conversation that this mail handed over. `mail` is the mail that opened the
/// turn, without mail that joined later.
pub fn channel_of<'m>(mail: impl IntoIterator<Item = &'m Envelope>) -> Option<ChannelContext> {
    let mut handed = None;
    for envelope in mail {
        let named = |replies| Some(ChannelContext { conversation_id: envelope.conversation_id?, replies });
        match envelope.kind {
            Kind::Conversation => return named(true),
            Kind::Handoff if handed.is_none() => handed = named(false),
            _ => {}
        }
    }
    handed
}

/// The session that an envelope belongs to: the conversation that started its chain; `None` is the agent's own
/// work. Chat belongs to the agent's own work: a digest holds the posts of all chains.
#[must_use]
pub fn session_of(envelope: &Envelope) -> Option<ConversationId> {
    envelope.conversation_id.filter(|_| envelope.kind != Kind::Chat)
}

/// Whether an envelope must have a turn of its own. Pending mail that has a turn id was in a turn
/// that did not end normally.
#[must_use]
pub fn runs_alone(envelope: &Envelope) -> bool {
    !is_fresh(envelope) || matches!(envelope.kind, Kind::Heartbeat | Kind::CronTurn)
}

/// Whether no turn has taken the envelope before.
fn is_fresh(envelope: &Envelope) -> bool {
    envelope.crashes == 0 && envelope.turn_id.is_none()
}

/// The quiet mail that stays behind when an agent takes `taken` from `pending`, and that no turn of another session would
/// ever take along. It must be roused, or it would wait for waking mail of its own session, perhaps for ever. Mail that
/// waits for a heartbeat waits on, unless `taken` is a heartbeat.
#[must_use]
pub fn left_behind(pending: &[Envelope], taken: &[&Envelope]) -> Vec<MessageId> {
    let Some(first) = taken.first() else { return Vec::new() };
    let beats = taken.iter().any(|envelope| envelope.kind == Kind::Heartbeat && is_fresh(envelope));
    let quiet = pending.iter().filter(|envelope| !envelope.wake && session_of(envelope) != session_of(first));
    let released = quiet.filter(|envelope| beats || !waits_for_heartbeat(envelope));
    released.map(|envelope| envelope.message_id).collect()
}

/// Whether this is quiet mail of a cron job, which the next heartbeat takes too.
#[must_use]
pub fn waits_for_heartbeat(envelope: &Envelope) -> bool {
    envelope.kind == Kind::Cron && !envelope.wake && is_fresh(envelope)
}

/// Whether an envelope that expects a reply may join a turn whose reply goes to `replies_to`.
fn joins(envelope: &Envelope, replies_to: Option<&Envelope>) -> bool {
    match replies_to {
        // The turn has one last text, so all its replies must go to the same conversation.
        Some(first) => {
            envelope.kind == Kind::Conversation
                && first.kind == Kind::Conversation
                && envelope.conversation_id == first.conversation_id
        }
        // An ask never joins a turn of other mail: the text would answer more than the question.
        None => false,
    }
}

#[cfg(test)]
mod tests {
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
}
