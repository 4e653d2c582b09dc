use ghost_domain::{AskStatus, Code, DeadLetter, DeadLetterStatus, EventKind, MailState, TurnStatus};

use super::rig::{Rig, code, id, new_agent, operator, read, write};
use crate::{agents, dead_letters};

/// A dead letter of ada's.
async fn dead(rig: &Rig) -> DeadLetter {
    rig.limits(|limits| limits.crashes_max = 1);
    rig.take("ada").await;
    rig.crash("ada", "it fell over").await;
    let mut held = read!(rig, |r| r.dead_letter_list(None, Some(DeadLetterStatus::Held)).await?);
    held.remove(0)
}

async fn retry(rig: &Rig, dead: &DeadLetter, fresh: bool) -> crate::Result<DeadLetter> {
    let dead_letter_id = dead.dead_letter_id;
    write!(rig, |w, cx| dead_letters::retry(w, &cx, &operator(), dead_letter_id, fresh).await)
}

#[tokio::test]
async fn a_retry_goes_on_with_the_same_turn_and_its_answer_is_late() {
    let rig = Rig::new().await;
    let ask = rig.outside_ask("ada").await.unwrap();
    let dead = dead(&rig).await;
    assert_eq!(rig.ask_row(ask.ask_id).await.status, AskStatus::Failed);
    let retried = retry(&rig, &dead, false).await.unwrap();
    assert_eq!(retried.status, DeadLetterStatus::Retried);
    assert_eq!(code(retry(&rig, &dead, false).await), Code::Conflict, "once");
    rig.send("ada", "rides in a turn of its own").await;
    let taken = rig.take("ada").await;
    assert!(taken.resumed && taken.turn.turn_id == dead.turn_id && taken.mail.len() == 1);
    assert_eq!((taken.turn.crashes, taken.turn.reason, taken.mail[0].crashes), (0, None, 0));
    rig.finish(dead.turn_id, "after all").await.unwrap();
    let row = rig.ask_row(ask.ask_id).await;
    assert_eq!((row.status, row.reply.as_deref()), (AskStatus::Failed, Some("after all")));
    assert_eq!(rig.count(EventKind::AskLate).await, 1);
    // It may crash again as often as any other mail before it is set aside anew.
    assert_eq!(rig.count(EventKind::DeadLetterRetried).await, 1);
}

#[tokio::test]
async fn a_fresh_retry_opens_a_new_turn() {
    let rig = Rig::new().await;
    rig.send("ada", "work").await;
    let dead = dead(&rig).await;
    retry(&rig, &dead, true).await.unwrap();
    let taken = rig.take("ada").await;
    assert!(!taken.resumed && taken.turn.turn_id != dead.turn_id && taken.earlier.is_empty());
    assert_eq!(rig.turn(dead.turn_id).await.status, TurnStatus::Dead);
}

#[tokio::test]
async fn a_dropped_dead_letter_is_consumed_and_stays_readable() {
    let rig = Rig::new().await;
    let sent = rig.send("ada", "work").await;
    let dead = dead(&rig).await;
    let dead_letter_id = dead.dead_letter_id;
    let dropped = write!(rig, |w, cx| dead_letters::discard(w, &cx, &operator(), dead_letter_id).await).unwrap();
    assert_eq!(dropped.status, DeadLetterStatus::Dropped);
    assert_eq!(rig.message(sent.message_id).await.state, MailState::Consumed);
    assert!(rig.try_take("ada").await.unwrap().is_none());
    assert_eq!(code(retry(&rig, &dead, false).await), Code::Conflict);
}

#[tokio::test]
async fn a_successor_is_not_given_its_predecessors_dead_letters() {
    let rig = Rig::new().await;
    rig.send("ada", "work").await;
    let dead = dead(&rig).await;
    write!(rig, |w, cx| agents::delete(w, &cx, &operator(), &id("ada")).await).unwrap();
    assert_eq!(code(retry(&rig, &dead, false).await), Code::NotFound);
    write!(rig, |w, cx| agents::create(w, &cx, &operator(), new_agent(&cx, "ada")).await).unwrap();
    assert_eq!(code(retry(&rig, &dead, true).await), Code::Conflict);
    assert!(rig.try_take("ada").await.unwrap().is_none());
}
