//! Retention of mail: it stays as long as a turn or a dead letter needs it.

use super::prune::{prune_all, put_turns, turns_left};
use super::tools::*;

/// The messages from 1 to 50 that are stored.
fn kept(r: &mut Tx) -> Result<Vec<u64>> {
    let mut kept = Vec::new();
    for n in 1..=50 {
        kept.extend(r.message_get(message_id(n))?.map(|_| n));
    }
    Ok(kept)
}

/// Appends a message for each number and marks it as mail of a turn.
async fn put_mail(store: &Store, mail: Vec<(Envelope, MailState, Option<u64>)>) {
    keep!(store, |w| {
        for (envelope, state, of_turn) in &mail {
            w.message_append(envelope)?;
            w.message_mark(&[envelope.message_id], *state, of_turn.map(turn_id), 0)?;
        }
    });
}

pub(super) async fn only_consumed_mail_is_pruned(store: Bench) {
    use MailState::{Consumed, Pending, Taken};
    put!(&store, {
        turn_put: turn(1, "a", TurnStatus::Finished), turn(2, "a", TurnStatus::Open),
            turn(49, "a", TurnStatus::Finished);
    });
    let states = [(1, Pending, None), (2, Taken, Some(2)), (3, Consumed, Some(1)), (4, Consumed, Some(1))];
    let later = [(5, Pending, None), (50, Consumed, Some(49))];
    let all = states.into_iter().chain(later).map(|(n, state, of_turn)| (mail(n, "a"), state, of_turn));
    put_mail(&store, all.collect()).await;
    prunes!(&store, Family::Messages, |r| { kept(r)? }, {
        (40, 1) => 1, [1, 2, 4, 5, 50];
        (40, 9) => 1, [1, 2, 5, 50];
        (40, 9) => 0, [1, 2, 5, 50];
    });
    shows!(&store, |r| { (r.messages_of_turn(turn_id(1))?, r.inbox_depth(&id_of("a"))?) => (vec![], 2); });
}

pub(super) async fn mail_of_held_letters_is_kept(store: Bench) {
    let states = [(1, MailState::Dead), (2, MailState::Dead), (3, MailState::Consumed)];
    put_mail(&store, states.map(|(n, state)| (mail(n, "a"), state, Some(1))).to_vec()).await;
    let messages = vec![message_id(1), message_id(2)];
    put!(&store, {
        turn_put: turn(1, "a", TurnStatus::Dead);
        dead_letter_put: DeadLetter { messages, ..letter(1, "a", DeadLetterStatus::Held) };
    });
    prune_all(&store, Family::Messages, 1_000).await;
    shows!(&store, |r| { kept(r)? => [1, 2]; });
}

pub(super) async fn mail_is_kept_until_its_turn_has_ended(store: Bench) {
    let long = Turn { ended_at: Some(at(60)), ..turn(1, "a", TurnStatus::Finished) };
    put!(&store, { turn_put: long, turn(2, "a", TurnStatus::Finished); });
    put_mail(&store, [1, 2].map(|n| (mail(n, "a"), MailState::Consumed, Some(n))).to_vec()).await;
    prune_all(&store, Family::Messages, 40).await;
    shows!(&store, |r| { kept(r)? => [1], "old mail of a recently ended turn stays"; });
    prune_all(&store, Family::Turns, 100).await;
    prune_all(&store, Family::Messages, 100).await;
    shows!(&store, |r| { kept(r)? => [0; 0], "mail of a deleted turn is pruned too"; });
}

pub(super) async fn only_turns_of_cron_jobs_are_pruned_with_their_mail(store: Bench) {
    use TurnStatus::{Cancelled, Dead, Failed, Finished, Open};
    let cron = |n: u64, status| Turn { source: "cron".to_owned(), ..turn(n, "a", status) };
    // Turns 1 to 3 have ended. Turn 4 has a held dead letter, 5 is open, 6 is not a cron job's, 7 is too young, 8 failed.
    let young = Turn { ended_at: Some(at(90)), ..cron(7, Finished) };
    let first = [cron(1, Finished), cron(2, Finished), cron(3, Cancelled), cron(4, Dead)];
    put_turns(&store, first).await;
    put_turns(&store, [cron(5, Open), turn(6, "a", Finished), young, cron(8, Failed)]).await;
    put!(&store, { dead_letter_put: letter(4, "a", DeadLetterStatus::Held); });
    let of_turn = |n| {
        let kind = if n == 6 { Kind::Cron } else { Kind::CronTurn };
        let state = match n {
            4 => MailState::Dead,
            5 => MailState::Taken,
            _ => MailState::Consumed,
        };
        (Envelope { kind, ..mail(n, "a") }, state, Some(n))
    };
    // A message of another kind that such a turn took stays.
    let other = (mail(9, "a"), MailState::Consumed, Some(1));
    put_mail(&store, (1..=8).map(of_turn).chain([other]).collect()).await;
    prunes!(&store, Family::CronTurns, |r| { kept(r)? }, {
        (2, 99) => 0, [1, 2, 3, 4, 5, 6, 7, 8, 9];
        (50, 1) => 1, [2, 3, 4, 5, 6, 7, 8, 9];
    });
    prune_all(&store, Family::CronTurns, 50).await;
    shows!(&store, |r| { (kept(r)?, turns_left(r)?) => (vec![4, 5, 6, 7, 9], vec![4, 5, 6, 7]); });
    put!(&store, { message_append: mail(10, "a"); });
    shows!(&store, |r| { r.message_get(message_id(10))?.unwrap().seq => 10, "sequences continue"; });
    keep!(&store, |w| { w.journal_append(turn_id(5), &note("y"), at(99))? });
}

pub(super) async fn a_turn_with_waiting_mail_is_kept(store: Bench) {
    // Turns 1 and 3 are cron jobs' own turns. All dead letters were retried. The mail of 1 and 2
    // continues its turn; that of 3 and 4 starts afresh.
    let source = |n| if n % 2 == 1 { "cron".to_owned() } else { "mail".to_owned() };
    put_turns(&store, [1, 2, 3, 4].map(|n| Turn { source: source(n), ..turn(n, "a", TurnStatus::Dead) })).await;
    put_mail(&store, (1..=4).map(|n| (mail(n, "a"), MailState::Dead, Some(n))).collect()).await;
    keep!(&store, |w| {
        for n in 1..=4 {
            w.dead_letter_put(&letter(n, "a", DeadLetterStatus::Retried))?;
            w.message_mark(&[message_id(n)], MailState::Pending, (n < 3).then(|| turn_id(n)), 0)?;
        }
    });
    for left in [vec![1, 2], vec![]] {
        prune_all(&store, Family::CronTurns, 90).await;
        prune_all(&store, Family::Turns, 90).await;
        shows!(&store, |r| { turns_left(r)? => left; });
        // From here on no mail waits for these turns.
        keep!(&store, |w| { w.message_mark(&[1, 2].map(message_id), MailState::Taken, Some(turn_id(9)), 0)? });
    }
}
