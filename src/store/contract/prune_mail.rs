//! Retention of mail: it stays as long as a turn or a dead letter needs it.

use ghost_domain::{DeadLetter, DeadLetterStatus, Envelope, Kind, MailState, Turn, TurnStatus};

use super::prune::prune_all;
use super::tools::*;
use crate::Store;
use crate::tables::Family;

async fn kept(store: &Store, numbers: &'static [u64]) -> Vec<u64> {
    found!(store, numbers.iter().copied(), |r, n| r.message_get(message_id(n))?)
}

pub(super) async fn only_consumed_mail_is_pruned(store: Bench) {
    keep!(&store, |w| {
        for n in 1..=5 {
            w.message_append(&mail(n, "a"))?;
        }
        w.message_append(&mail(50, "a"))?;
        w.turn_put(&turn(1, "a", TurnStatus::Finished))?;
        w.turn_put(&turn(2, "a", TurnStatus::Open))?;
        w.message_mark(&[message_id(2)], MailState::Taken, Some(turn_id(2)), 0)?;
        w.message_mark(&[message_id(3), message_id(4)], MailState::Consumed, Some(turn_id(1)), 0)?;
        w.turn_put(&turn(49, "a", TurnStatus::Finished))?;
        w.message_mark(&[message_id(50)], MailState::Consumed, Some(turn_id(49)), 0)?;
    });
    assert_eq!(keep!(&store, |w| { w.prune(Family::Messages, at(40), 1)? }), 1);
    assert_eq!(kept(&store, &[3, 4]).await, [4], "oldest first");
    prune_all(&store, Family::Messages, 40).await;
    assert_eq!(kept(&store, &[1, 2, 3, 4, 5, 50]).await, [1, 2, 5, 50]);
    assert_eq!(reading!(&store, |r| { r.messages_of_turn(turn_id(1))? }), []);
    assert_eq!(keep!(&store, |w| { (w.inbox_depth(&id_of("a"))?, w.message_get(message_id(3))?) }), (2, None));
}

pub(super) async fn mail_of_held_letters_is_kept(store: Bench) {
    keep!(&store, |w| {
        for n in [1, 2, 3] {
            w.message_append(&mail(n, "a"))?;
        }
        w.turn_put(&turn(1, "a", TurnStatus::Dead))?;
        w.message_mark(&[message_id(1), message_id(2)], MailState::Dead, Some(turn_id(1)), 3)?;
        w.message_mark(&[message_id(3)], MailState::Consumed, Some(turn_id(1)), 0)?;
        let messages = vec![message_id(1), message_id(2)];
        w.dead_letter_put(&DeadLetter { messages, ..letter(1, "a", DeadLetterStatus::Held) })?;
    });
    prune_all(&store, Family::Messages, 1_000).await;
    assert_eq!(kept(&store, &[1, 2, 3]).await, [1, 2]);
}

pub(super) async fn mail_is_kept_until_its_turn_has_ended(store: Bench) {
    keep!(&store, |w| {
        for n in [1, 2] {
            w.message_append(&mail(n, "a"))?;
        }
        let long = Turn { ended_at: Some(at(60)), ..turn(1, "a", TurnStatus::Finished) };
        w.turn_put(&long)?;
        w.turn_put(&turn(2, "a", TurnStatus::Finished))?;
        w.message_mark(&[message_id(1)], MailState::Consumed, Some(turn_id(1)), 0)?;
        w.message_mark(&[message_id(2)], MailState::Consumed, Some(turn_id(2)), 0)?;
    });
    prune_all(&store, Family::Messages, 40).await;
    assert_eq!(kept(&store, &[1, 2]).await, [1], "old mail of a recently ended turn stays");
    prune_all(&store, Family::Turns, 100).await;
    prune_all(&store, Family::Messages, 100).await;
    assert_eq!(kept(&store, &[1, 2]).await, [] as [u64; 0], "mail of a deleted turn is pruned too");
}

pub(super) async fn only_turns_of_cron_jobs_are_pruned_with_their_mail(store: Bench) {
    let cron = |n: u64, status| Turn { source: "cron".to_owned(), ..turn(n, "a", status) };
    keep!(&store, |w| {
        // Turns 1 to 3 have ended. Turn 4 has a held dead letter, 5 is open, 6 is not a cron job's,
        // 7 is too young, 8 failed.
        for (n, status) in [
            (1, TurnStatus::Finished),
            (2, TurnStatus::Finished),
            (3, TurnStatus::Cancelled),
            (4, TurnStatus::Dead),
            (5, TurnStatus::Open),
            (7, TurnStatus::Finished),
            (8, TurnStatus::Failed),
        ] {
            w.turn_put(&cron(n, status))?;
        }
        w.turn_put(&Turn { ended_at: Some(at(90)), ..cron(7, TurnStatus::Finished) })?;
        w.turn_put(&turn(6, "a", TurnStatus::Finished))?;
        w.dead_letter_put(&letter(4, "a", DeadLetterStatus::Held))?;
        for n in 1..=8 {
            let kind = if n == 6 { Kind::Cron } else { Kind::CronTurn };
            w.message_append(&Envelope { kind, ..mail(n, "a") })?;
            w.journal_append(turn_id(n), &note("x"), at(n))?;
            let state = match n {
                4 => MailState::Dead,
                5 => MailState::Taken,
                _ => MailState::Consumed,
            };
            w.message_mark(&[message_id(n)], state, Some(turn_id(n)), 0)?;
        }
        // A message of another kind that such a turn took stays.
        w.message_append(&mail(9, "a"))?;
        w.message_mark(&[message_id(9)], MailState::Consumed, Some(turn_id(1)), 0)?;
    });
    assert_eq!(keep!(&store, |w| { w.prune(Family::CronTurns, at(2), 99)? }), 0, "only what is older");
    assert_eq!(keep!(&store, |w| { w.prune(Family::CronTurns, at(50), 1)? }), 1, "a turn is one row");
    assert_eq!(kept(&store, &[1, 2, 9]).await, [2, 9], "oldest first");
    prune_all(&store, Family::CronTurns, 50).await;
    assert_eq!(kept(&store, &[1, 2, 3, 4, 5, 6, 7, 8, 9]).await, [4, 5, 6, 7, 9]);
    for n in 1..=8 {
        let (turn, steps) = reading!(&store, |r| { (r.turn_get(turn_id(n))?, r.journal_of(turn_id(n))?) });
        let there = matches!(n, 4..=7);
        assert_eq!((turn.is_some(), steps.len()), (there, usize::from(there)), "turn {n}");
    }
    keep!(&store, |w| {
        w.message_append(&mail(10, "a"))?;
        w.journal_append(turn_id(5), &note("y"), at(99))?;
        assert_eq!(w.message_get(message_id(10))?.unwrap().seq, 10, "sequences continue");
    });
}

pub(super) async fn a_turn_with_waiting_mail_is_kept(store: Bench) {
    // Turns 1 and 3 are cron jobs' own turns. All dead letters were retried. The mail of 1 and 2
    // continues its turn; that of 3 and 4 starts afresh.
    keep!(&store, |w| {
        for n in 1..=4 {
            let source = if n % 2 == 1 { "cron" } else { "mail" };
            w.turn_put(&Turn { source: source.to_owned(), ..turn(n, "a", TurnStatus::Dead) })?;
            w.journal_append(turn_id(n), &note("x"), at(n))?;
            w.message_append(&mail(n, "a"))?;
            w.message_mark(&[message_id(n)], MailState::Dead, Some(turn_id(n)), 0)?;
            w.dead_letter_put(&letter(n, "a", DeadLetterStatus::Retried))?;
            w.message_mark(&[message_id(n)], MailState::Pending, (n < 3).then(|| turn_id(n)), 0)?;
        }
    });
    for left in [[1, 2].as_slice(), &[]] {
        prune_all(&store, Family::CronTurns, 90).await;
        prune_all(&store, Family::Turns, 90).await;
        for n in 1..=4 {
            let (turn, steps) = reading!(&store, |r| { (r.turn_get(turn_id(n))?, r.journal_of(turn_id(n))?) });
            let there = left.contains(&n);
            assert_eq!((turn.is_some(), steps.len()), (there, usize::from(there)), "turn {n}");
        }
        // From here on no mail waits for these turns.
        keep!(&store, |w| {
            let messages = [message_id(1), message_id(2)];
            w.message_mark(&messages, MailState::Taken, Some(turn_id(9)), 0)?;
        });
    }
}
