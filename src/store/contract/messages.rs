//! Durable inboxes.

use crate::Tx;
use ghost_domain::turn::WaitMode;
use ghost_domain::{Envelope, HeldSkill, Kind, MailState, Party, Turn, TurnStatus};
use serde_json::json;

use super::tools::*;
use crate::tables::InboxState;
use crate::{Store, StoreError};

fn ids(mail: &[Envelope]) -> Vec<u64> {
    map_rows(mail, |mail| u64::try_from(mail.message_id.0.as_u128()).unwrap())
}

async fn pending(store: &Store, agent: &str) -> Vec<u64> {
    let agent = id_of(agent);
    ids(&reading!(store, |r| { r.inbox_pending(&agent, 100)? }))
}

// covers: MSG-08
pub(super) async fn mail_round_trips(store: Bench) {
    let full = || {
        with(
            mail(1, "a"),
            json!({
                "seq": 77, "from": Party::Outside("web".to_owned()), "kind": Kind::Conversation, "subject": AWKWARD,
                "body": AWKWARD, "attachments": ["output/a.md", AWKWARD], "ask_id": ask_id(5),
                "conversation_id": conversation_id(3), "hop": 31, "wake": false,
            }),
        )
    };
    let inside = keep!(&store, |w| {
        w.message_append(&full())?;
        w.message_append(&mail(2, "a"))?;
        (w.message_get(message_id(1))?, w.inbox_pending(&id_of("a"), 10)?)
    });
    let (one, two, none) = reading!(&store, |r| {
        (r.message_get(message_id(1))?.unwrap(), r.message_get(message_id(2))?.unwrap(), r.message_get(message_id(3))?)
    });
    assert!(one.seq > 0 && one.seq != 77 && two.seq > one.seq, "the store gives the order: {} {}", one.seq, two.seq);
    assert_eq!((inside.0, inside.1), (Some(one.clone()), vec![one.clone(), two.clone()]));
    assert_eq!(one, Envelope { seq: one.seq, ..full() });
    assert_eq!((two.clone(), none), (Envelope { seq: two.seq, ..mail(2, "a") }, None));
}

pub(super) async fn inboxes_are_in_order_of_append(store: Bench) {
    // Neither ids nor times rise, so only the order of appends explains the result.
    for batch in [[9, 3], [7, 1], [5, 8]] {
        keep!(&store, |w| {
            for n in batch {
                w.message_append(&mail(n, "a"))?;
                w.message_append(&mail(100 + n, "b"))?;
            }
        });
    }
    assert_eq!(pending(&store, "a").await, [9, 3, 7, 1, 5, 8]);
    assert_eq!(pending(&store, "b").await, [109, 103, 107, 101, 105, 108]);
    shows!(&store, |r| {
        ids(&r.inbox_pending(&id_of("a"), 2)?) => [9, 3];
        r.inbox_pending(&id_of("c"), 9)? => [];
        map_rows(&r.inbox_pending(&id_of("a"), 9)?, |mail| mail.seq).is_sorted_by(|one, next| one < next) => true;
    });
}

pub(super) async fn the_depth_is_exact(store: Bench) {
    let a = || id_of("a");
    keep!(&store, |w| {
        let mut depths = vec![w.inbox_depth(&a())?];
        for n in 1..=4 {
            w.message_append(&mail(n, "a"))?;
            depths.push(w.inbox_depth(&a())?);
        }
        w.message_append(&mail(5, "b"))?;
        w.message_mark(&[message_id(1), message_id(2)], MailState::Taken, Some(turn_id(1)), 0)?;
        depths.push(w.inbox_depth(&a())?);
        assert_eq!(depths, [0, 1, 2, 3, 4, 2]);
    });
    refuse!(&store, |w| {
        w.message_append(&mail(6, "a"))?;
        w.message_mark(&[message_id(1)], MailState::Pending, None, 1)?;
        assert_eq!(w.inbox_depth(&a())?, 4);
        w.message_mark(&[message_id(3), message_id(4), message_id(5)], MailState::Consumed, None, 0)?;
        assert_eq!((w.inbox_depth(&a())?, w.inbox_depth(&id_of("b"))?), (2, 0));
    });
    shows!(&store, |r| {
        r.inbox_depth(&a())? => 2;
        r.inbox_depth(&id_of("b"))? => 1;
        r.inbox_total()? => 3;
    });
    let many = move || [id_of("b"), id_of("nobody"), a(), id_of("b")];
    assert_eq!(reading!(&store, |r| { r.inbox_depths(&many())? }), [1, 0, 2, 1]);
    keep!(&store, |w| {
        let first = w.inbox_depths(&many())?;
        w.message_append(&mail(7, "nobody"))?;
        w.message_mark(&[message_id(7)], MailState::Consumed, None, 0)?;
        w.message_append(&mail(8, "nobody"))?;
        let second = w.inbox_depths(&many())?;
        w.message_mark(&[message_id(8)], MailState::Consumed, None, 0)?;
        assert_eq!(first, vec![1, 0, 2, 1]);
        assert_eq!(second, vec![1, 1, 2, 1]);
    });
    let inside = keep!(&store, |w| {
        let before = w.inbox_depth(&a())?;
        // Marked with its present state, then as pending again, twice in one command.
        w.message_mark(&[message_id(3)], MailState::Pending, None, 0)?;
        w.message_mark(&[message_id(1)], MailState::Pending, None, 0)?;
        w.message_mark(&[message_id(1)], MailState::Taken, None, 0)?;
        w.message_mark(&[message_id(1)], MailState::Pending, None, 0)?;
        (before, w.inbox_depth(&a())?, w.inbox_total()?)
    });
    assert_eq!(inside, (2, 3, 4));
    keep!(&store, |w| { w.message_mark(&[message_id(1)], MailState::Dead, None, 0)? });
    assert_eq!(keep!(&store, |w| { (w.inbox_depth(&a())?, w.inbox_total()?) }), (2, 3));
    assert_eq!(pending(&store, "a").await, [3, 4]);
}

pub(super) async fn marking_moves_mail(store: Bench) {
    keep!(&store, |w| {
        for n in [1, 2, 3] {
            w.message_append(&mail(n, "a"))?;
        }
        let ids = [message_id(3), message_id(1), message_id(99)];
        w.message_mark(&ids, MailState::Taken, Some(turn_id(1)), 0)?;
        let taken = w.messages_of_turn(turn_id(1))?;
        assert_eq!(map_rows(&taken, |mail| mail.state), [MailState::Taken; 2], "its own writes");
    });
    let (of_turn, of_other) =
        reading!(&store, |r| { (r.messages_of_turn(turn_id(1))?, r.messages_of_turn(turn_id(2))?) });
    assert_eq!((ids(&of_turn), ids(&of_other)), (vec![1, 3], vec![]));
    assert!(of_turn.iter().all(|mail| mail.state == MailState::Taken && mail.turn_id == Some(turn_id(1))));
    assert_eq!(pending(&store, "a").await, [2]);

    let seq = of_turn[0].seq;
    keep!(&store, |w| { w.message_mark(&[message_id(1)], MailState::Pending, None, 1)? });
    let back = reading!(&store, |r| { r.message_get(message_id(1))?.unwrap() });
    assert_eq!(back, Envelope { seq, crashes: 1, ..mail(1, "a") }, "only state, turn and crashes may change");
    assert_eq!(pending(&store, "a").await, [1, 2], "returned mail keeps its position");
    keep!(&store, |w| { w.message_mark(&[], MailState::Dead, None, 5)? });
    assert_eq!(pending(&store, "a").await, [1, 2]);
}

pub(super) async fn crash_counts_add_up_and_are_reset(store: Bench) {
    keep!(&store, |w| {
        for n in [1, 2, 3] {
            w.message_append(&mail(n, "a"))?;
        }
        w.message_mark(&[message_id(1), message_id(2)], MailState::Pending, None, 1)?;
        w.message_mark(&[message_id(1), message_id(1)], MailState::Dead, None, 2)?;
    });
    let crashes = async |store: &Store| {
        reading!(store, |r| {
            let mut crashes = Vec::new();
            for n in [1, 2, 3] {
                crashes.push(r.message_get(message_id(n))?.unwrap().crashes);
            }
            crashes
        })
    };
    assert_eq!(crashes(&store).await, [3, 1, 0]);
    refuse!(&store, |w| { w.message_forgive(&[message_id(1)])? });
    keep!(&store, |w| { w.message_forgive(&[message_id(2), message_id(3), message_id(9)])? });
    assert_eq!(crashes(&store).await, [3, 0, 0]);
    keep!(&store, |w| { w.message_forgive(&[message_id(1)])? });
    let forgiven = reading!(&store, |r| { r.message_get(message_id(1))?.unwrap() });
    assert_eq!((forgiven.crashes, forgiven.state), (0, MailState::Dead));
}

pub(super) async fn waiting_agents_have_waking_mail(store: Bench) {
    keep!(&store, |w| {
        w.message_append(&mail(1, "c"))?;
        w.message_append(&mail(2, "a"))?;
        w.message_append(&Envelope { wake: false, ..mail(3, "b") })?;
        w.message_append(&Envelope { wake: false, ..mail(4, "a") })?;
        w.message_append(&mail(5, "d"))?;
        w.message_mark(&[message_id(5)], MailState::Taken, Some(turn_id(1)), 0)?;
        assert_eq!(w.inbox_waiting()?, [id_of("a"), id_of("c")]);
    });
    assert_eq!(reading!(&store, |r| { r.inbox_waiting()? }), [id_of("a"), id_of("c")]);
    let among = [id_of("d"), id_of("c"), id_of("b"), id_of("a"), id_of("c"), id_of("nobody")];
    assert_eq!(reading!(&store, |r| { r.inbox_waiting_among(&among)? }), [id_of("a"), id_of("c")]);
    assert_eq!(reading!(&store, |r| { r.inbox_waiting_among(&[id_of("b")])? }), []);
    keep!(&store, |w| { w.message_mark(&[message_id(2)], MailState::Consumed, None, 0)? });
    assert_eq!(reading!(&store, |r| { r.inbox_waiting()? }), [id_of("c")]);
}

pub(super) async fn agents_with_waking_mail_of_a_root_are_found(store: Bench) {
    let of = |n, to: &str, root| Envelope { root_id: root_id(root), ..mail(n, to) };
    keep!(&store, |w| {
        // After more mail than any caller would read.
        for n in 1..=1_200 {
            w.message_append(&of(n, "c", 1))?;
        }
        assert_eq!(w.inbox_waiting_of(root_id(2))?, []);
        w.message_append(&of(1_201, "c", 2))?;
        w.message_append(&of(1_202, "c", 2))?;
        w.message_append(&of(1_203, "a", 2))?;
        w.message_append(&Envelope { wake: false, ..of(1_204, "b", 2) })?;
        w.message_append(&of(1_205, "d", 2))?;
        w.message_mark(&[message_id(1_205)], MailState::Taken, Some(turn_id(1)), 0)?;
        assert_eq!(w.inbox_waiting_of(root_id(2))?, [id_of("a"), id_of("c")], "its own writes");
    });
    reading!(&store, |r| {
        let of_each = (r.inbox_waiting_of(root_id(2))?, r.inbox_waiting_of(root_id(1))?);
        assert_eq!(of_each, (vec![id_of("a"), id_of("c")], vec![id_of("c")]));
        assert_eq!(r.inbox_waiting_of(root_id(3))?, vec![]);
    });
    keep!(&store, |w| {
        w.message_mark(&[message_id(1_203)], MailState::Consumed, None, 0)?;
        w.message_rouse(&[message_id(1_204)])?
    });
    assert_eq!(reading!(&store, |r| { r.inbox_waiting_of(root_id(2))? }), [id_of("b"), id_of("c")]);
}

pub(super) async fn mail_of_a_root_with_a_spent_budget_is_not_ready(store: Bench) {
    let of = |n, to: &str, root| Envelope { root_id: root_id(root), ..mail(n, to) };
    let parked = |wait_mode| Turn { parked: Some(waits_for_root(wait_mode)), ..turn(1, "a", TurnStatus::Open) };
    let ready = |r: &mut Tx| {
        let a = id_of("a");
        let looked = r.inbox_state(&a, 9)?.mail;
        let found = r.inbox_ready(&a, 9)?;
        assert_eq!(looked, found);
        let among = r.inbox_waiting_among(&[id_of("b"), a])?;
        assert_eq!(among, r.inbox_waiting()?);
        Ok::<_, StoreError>((ids(&found), among, r.inbox_waiting_of(root_id(1))?))
    };
    let held = || (vec![2, 4], vec![id_of("a"), id_of("b")], vec![id_of("b")]);
    keep!(&store, |w| {
        for n in [1, 3] {
            w.message_append(&of(n, "a", 1))?;
        }
        for n in [2, 4] {
            w.message_append(&of(n, "a", 2))?;
        }
        w.message_append(&of(5, "b", 1))?;
        w.turn_put(&parked(WaitMode::Background))?;
        assert_eq!(w.inbox_ready(&id_of("a"), 1)?.len(), 1, "the limit counts only ready mail");
        assert_eq!(w.inbox_pending(&id_of("a"), 9)?.len(), 4);
        assert_eq!(ready(&mut *w)?, held(), "its own writes");
    });
    assert_eq!(reading!(&store, |r| { ready(r)? }), held());
    keep!(&store, |w| { w.message_mark(&[message_id(2), message_id(4)], MailState::Consumed, None, 0)? });
    assert_eq!(reading!(&store, |r| { ready(r)? }), (vec![], vec![id_of("b")], vec![id_of("b")]));
    keep!(&store, |w| { w.turn_put(&parked(WaitMode::Ready))? });
    assert_eq!(reading!(&store, |r| { ready(r)? }).0, [0; 0], "the turn goes first");
    let all = || (vec![1, 3], vec![id_of("a"), id_of("b")], vec![id_of("a"), id_of("b")]);
    keep!(&store, |w| {
        w.turn_put(&parked(WaitMode::Blocking))?;
        assert_eq!(ready(&mut *w)?, all());
        w.turn_put(&parked(WaitMode::Background))?;
        w.turn_put(&Turn {
            parked: Some(waits_for_root(WaitMode::Background)),
            ..turn(1, "a", TurnStatus::Cancelled)
        })?;
        assert_eq!(ready(&mut *w)?, all());
    });
    assert_eq!(reading!(&store, |r| { ready(r)? }), all());
}

pub(super) async fn quiet_mail_is_made_to_wake(store: Bench) {
    keep!(&store, |w| {
        for n in [1, 2] {
            w.message_append(&Envelope { wake: false, ..mail(n, "a") })?;
        }
    });
    refuse!(&store, |w| { w.message_rouse(&[message_id(1)])? });
    assert_eq!(reading!(&store, |r| { r.inbox_waiting()? }), []);
    keep!(&store, |w| {
        w.message_append(&Envelope { wake: false, ..mail(3, "b") })?;
        w.message_rouse(&[message_id(1), message_id(3), message_id(9)])?;
        w.message_mark(&[message_id(1)], MailState::Pending, Some(turn_id(1)), 1)?;
        assert!(w.message_get(message_id(1))?.unwrap().wake);
    });
    assert_eq!(reading!(&store, |r| { r.inbox_waiting()? }), [id_of("a"), id_of("b")]);
    let inbox = reading!(&store, |r| { r.inbox_pending(&id_of("a"), 9)? });
    let stand: Vec<_> = inbox.iter().map(|mail| (mail.wake, mail.crashes, mail.turn_id)).collect();
    assert_eq!(stand, [(true, 1, Some(turn_id(1))), (false, 0, None)]);
}

pub(super) async fn inbox_state_equals_the_single_queries(store: Bench) {
    let skill = || HeldSkill { agent_id: id_of("a"), skill: "moderator".into(), active: true, acquired_at: at(3) };
    keep!(&store, |w| {
        w.skill_put(&skill())?;
        w.chat_channel_put(&channel("news", 2))?;
        w.chat_member_put(&member("news", "a", 1))?;
        assert_eq!(w.inbox_state(&id_of("a"), 9)?, InboxState::default(), "nothing else is read without mail");
        for n in 1..=3 {
            w.message_append(&mail(n, "a"))?;
        }
        let state = w.inbox_state(&id_of("a"), 2)?;
        assert_eq!((ids(&state.mail), state.unread, state.skills), (vec![1, 2], true, vec![skill()]));
    });
    let state = reading!(&store, |r| { r.inbox_state(&id_of("a"), 2)? });
    assert_eq!((ids(&state.mail), state.unread, state.skills), (vec![1, 2], true, vec![skill()]));
    keep!(&store, |w| {
        w.chat_member_put(&member("news", "a", 2))?;
        w.message_append(&mail(4, "b"))?;
    });
    let (a, b) = reading!(&store, |r| { (r.inbox_state(&id_of("a"), 9)?, r.inbox_state(&id_of("b"), 9)?) });
    assert_eq!((ids(&a.mail), a.unread), (vec![1, 2, 3], false));
    assert_eq!((ids(&b.mail), b.unread, b.skills), (vec![4], false, Vec::new()));
}

pub(super) async fn recent_mail_is_newest_first(store: Bench) {
    keep!(&store, |w| {
        for n in [4, 2, 3, 1] {
            w.message_append(&mail(n, "a"))?;
        }
        w.message_append(&mail(5, "b"))?;
        w.message_mark(&[message_id(2)], MailState::Consumed, Some(turn_id(1)), 0)?;
        assert_eq!(ids(&w.messages_recent(&id_of("a"), 3)?), [1, 3, 2]);
    });
    assert_eq!(ids(&reading!(&store, |r| { r.messages_recent(&id_of("a"), 3)? })), [1, 3, 2]);
    assert_eq!(ids(&reading!(&store, |r| { r.messages_recent(&id_of("a"), 9)? })), [1, 3, 2, 4]);
}

pub(super) async fn the_order_continues_after_reopening(mut store: Bench) {
    keep!(&store, |w| {
        w.message_append(&mail(1, "a"))?;
        w.journal_append(turn_id(1), &super::rows::note("one"), super::rows::at(1))?;
    });
    store.reopen().await;
    keep!(&store, |w| {
        assert_eq!(w.inbox_depth(&id_of("a"))?, 1);
        w.message_append(&mail(2, "a"))?;
        w.journal_append(turn_id(1), &super::rows::note("two"), super::rows::at(2))?;
        assert_eq!(w.inbox_depth(&id_of("a"))?, 2);
    });
    let (mail, journal) = reading!(&store, |r| { (r.inbox_pending(&id_of("a"), 9)?, r.journal_of(turn_id(1))?) });
    assert_eq!(ids(&mail), [1, 2]);
    assert!(mail[0].seq < mail[1].seq && journal[0].seq < journal[1].seq);
}
