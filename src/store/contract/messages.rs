//! Durable inboxes.

use super::tools::*;

fn ids(mail: &[Envelope]) -> Vec<u64> {
    map_rows(mail, |mail| u64::try_from(mail.message_id.0.as_u128()).unwrap())
}

fn pending(r: &mut Tx, agent: &str) -> Result<Vec<u64>> {
    Ok(ids(&r.inbox_pending(&id_of(agent), 100)?))
}

/// Appends mail to agent `a`.
async fn append(store: &Store, numbers: &[u64]) {
    let numbers = numbers.to_vec();
    keep!(store, |w| {
        for n in numbers {
            w.message_append(&mail(n, "a"))?;
        }
    });
}

/// Marks messages.
fn mark<const N: usize>(
    w: &mut Tx,
    numbers: [u64; N],
    state: MailState,
    turn: Option<u64>,
    crashes: u32,
) -> Result<()> {
    w.message_mark(&numbers.map(message_id), state, turn.map(turn_id), crashes)
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
    put!(&store, { message_append: full(), mail(2, "a"); });
    let (all, none) = reading!(&store, |r| { (r.inbox_pending(&id_of("a"), 10)?, r.message_get(message_id(3))?) });
    let [one, two] = &all[..] else { panic!("{all:?}") };
    assert!(one.seq > 0 && one.seq != 77 && two.seq > one.seq, "the store gives the order: {} {}", one.seq, two.seq);
    assert_eq!(*one, Envelope { seq: one.seq, ..full() });
    assert_eq!((two, none), (&Envelope { seq: two.seq, ..mail(2, "a") }, None));
    let one = one.clone();
    shows!(&store, |r| { r.message_get(message_id(1))? => Some(one); });
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
    shows!(&store, |r| {
        pending(r, "a")? => [9, 3, 7, 1, 5, 8];
        pending(r, "b")? => [109, 103, 107, 101, 105, 108];
        pending(r, "c")? => [0; 0];
        ids(&r.inbox_pending(&id_of("a"), 2)?) => [9, 3];
        map_rows(&r.inbox_pending(&id_of("a"), 9)?, |mail| mail.seq).is_sorted_by(|one, next| one < next) => true;
    });
}

pub(super) async fn the_depth_is_exact(store: Bench) {
    let many = |r: &mut Tx| r.inbox_depths(&[id_of("b"), id_of("nobody"), id_of("a"), id_of("b")]);
    keep!(&store, |w| {
        let mut depths = vec![w.inbox_depth(&id_of("a"))?];
        for n in 1..=4 {
            w.message_append(&mail(n, "a"))?;
            depths.push(w.inbox_depth(&id_of("a"))?);
        }
        w.message_append(&mail(5, "b"))?;
        mark(w, [1, 2], MailState::Taken, Some(1), 0)?;
        depths.push(w.inbox_depth(&id_of("a"))?);
        assert_eq!(depths, [0, 1, 2, 3, 4, 2]);
    });
    refuse!(&store, |w| {
        w.message_append(&mail(6, "a"))?;
        mark(w, [1], MailState::Pending, None, 1)?;
        assert_eq!(w.inbox_depth(&id_of("a"))?, 4);
        mark(w, [3, 4, 5], MailState::Consumed, None, 0)?;
        assert_eq!((w.inbox_depth(&id_of("a"))?, w.inbox_depth(&id_of("b"))?), (2, 0));
    });
    shows!(&store, |r| {
        (r.inbox_depth(&id_of("a"))?, r.inbox_depth(&id_of("b"))?, r.inbox_total()?) => (2, 1, 3);
        many(r)? => [1, 0, 2, 1];
    });
    keep!(&store, |w| {
        assert_eq!(many(w)?, [1, 0, 2, 1]);
        w.message_append(&mail(7, "nobody"))?;
        mark(w, [7], MailState::Consumed, None, 0)?;
        w.message_append(&mail(8, "nobody"))?;
        assert_eq!(many(w)?, [1, 1, 2, 1]);
        mark(w, [8], MailState::Consumed, None, 0)?;
    });
    keep!(&store, |w| {
        // Marked with its present state, then as pending again, twice in one command.
        mark(w, [3], MailState::Pending, None, 0)?;
        for state in [MailState::Pending, MailState::Taken, MailState::Pending] {
            mark(w, [1], state, None, 0)?;
        }
        assert_eq!((w.inbox_depth(&id_of("a"))?, w.inbox_total()?), (3, 4));
    });
    keep!(&store, |w| { mark(w, [1], MailState::Dead, None, 0)? });
    shows!(&store, |r| { (r.inbox_depth(&id_of("a"))?, r.inbox_total()?, pending(r, "a")?) => (2, 3, vec![3, 4]); });
}

pub(super) async fn marking_moves_mail(store: Bench) {
    append(&store, &[1, 2, 3]).await;
    keep!(&store, |w| { mark(w, [3, 1, 99], MailState::Taken, Some(1), 0)? });
    let taken = reading!(&store, |r| { r.messages_of_turn(turn_id(1))? });
    assert_eq!(ids(&taken), [1, 3]);
    assert!(taken.iter().all(|mail| mail.state == MailState::Taken && mail.turn_id == Some(turn_id(1))));
    shows!(&store, |r| {
        r.messages_of_turn(turn_id(2))? => [];
        pending(r, "a")? => [2];
    });
    let back = Envelope { seq: taken[0].seq, crashes: 1, ..mail(1, "a") };
    keep!(&store, |w| { mark(w, [1], MailState::Pending, None, 1)? });
    shows!(&store, |r| {
        r.message_get(message_id(1))? => Some(back), "only state, turn and crashes may change";
        pending(r, "a")? => [1, 2], "returned mail keeps its position";
    });
    keep!(&store, |w| { mark(w, [], MailState::Dead, None, 5)? });
    shows!(&store, |r| { pending(r, "a")? => [1, 2]; });
}

pub(super) async fn crash_counts_add_up_and_are_reset(store: Bench) {
    append(&store, &[1, 2, 3]).await;
    keep!(&store, |w| {
        mark(w, [1, 2], MailState::Pending, None, 1)?;
        mark(w, [1, 1], MailState::Dead, None, 2)?;
    });
    let crashes = |r: &mut Tx| -> Result<_> {
        let count = |r: &mut Tx, n| Ok::<_, StoreError>(r.message_get(message_id(n))?.unwrap().crashes);
        Ok([count(r, 1)?, count(r, 2)?, count(r, 3)?])
    };
    shows!(&store, |r| { crashes(r)? => [3, 1, 0]; });
    keep!(&store, |w| { w.message_forgive(&[2, 3, 9].map(message_id))? });
    shows!(&store, |r| { crashes(r)? => [3, 0, 0]; });
    keep!(&store, |w| { w.message_forgive(&[message_id(1)])? });
    shows!(&store, |r| {
        crashes(r)? => [0, 0, 0];
        r.message_get(message_id(1))?.unwrap().state => MailState::Dead;
    });
}

pub(super) async fn waiting_agents_have_waking_mail(store: Bench) {
    let quiet = |n, to| Envelope { wake: false, ..mail(n, to) };
    put!(&store, { message_append: mail(1, "c"), mail(2, "a"), quiet(3, "b"), quiet(4, "a"), mail(5, "d"); });
    keep!(&store, |w| { mark(w, [5], MailState::Taken, Some(1), 0)? });
    shows!(&store, |r| {
        r.inbox_waiting()? => ["a", "c"].map(id_of);
        r.inbox_waiting_among(&["d", "c", "b", "a", "c", "nobody"].map(id_of))? => ["a", "c"].map(id_of);
        r.inbox_waiting_among(&[id_of("b")])? => [];
    });
    keep!(&store, |w| { mark(w, [2], MailState::Consumed, None, 0)? });
    shows!(&store, |r| { r.inbox_waiting()? => [id_of("c")]; });
}

pub(super) async fn agents_with_waking_mail_of_a_root_are_found(store: Bench) {
    let of = |n, to: &str, root| Envelope { root_id: root_id(root), ..mail(n, to) };
    keep!(&store, |w| {
        // After more mail than any caller would read.
        for n in 1..=1_200 {
            w.message_append(&of(n, "c", 1))?;
        }
        assert_eq!(w.inbox_waiting_of(root_id(2))?, []);
    });
    put!(&store, {
        message_append: of(1_201, "c", 2), of(1_202, "c", 2), of(1_203, "a", 2),
            Envelope { wake: false, ..of(1_204, "b", 2) }, of(1_205, "d", 2);
    });
    keep!(&store, |w| { mark(w, [1_205], MailState::Taken, Some(1), 0)? });
    shows!(&store, |r| {
        r.inbox_waiting_of(root_id(2))? => ["a", "c"].map(id_of);
        r.inbox_waiting_of(root_id(1))? => [id_of("c")];
        r.inbox_waiting_of(root_id(3))? => [];
    });
    keep!(&store, |w| {
        mark(w, [1_203], MailState::Consumed, None, 0)?;
        w.message_rouse(&[message_id(1_204)])?
    });
    shows!(&store, |r| { r.inbox_waiting_of(root_id(2))? => ["b", "c"].map(id_of); });
}

pub(super) async fn mail_of_a_root_with_a_spent_budget_is_not_ready(store: Bench) {
    let of = |n, to: &str, root| Envelope { root_id: root_id(root), ..mail(n, to) };
    let parked = |wait_mode| Turn { parked: Some(waits_for_root(wait_mode)), ..turn(1, "a", TurnStatus::Open) };
    // The ready mail of `a`, the agents with ready mail, and those with such mail of root 1.
    let ready = |r: &mut Tx| -> Result<_> {
        let found = r.inbox_ready(&id_of("a"), 9)?;
        assert_eq!(r.inbox_state(&id_of("a"), 9)?.mail, found);
        let among = r.inbox_waiting_among(&[id_of("b"), id_of("a")])?;
        assert_eq!(among, r.inbox_waiting()?);
        let names = |ids: Vec<AgentId>| ids.iter().map(AgentId::as_str).collect::<String>();
        Ok((ids(&found), names(among), names(r.inbox_waiting_of(root_id(1))?)))
    };
    let stands = |mail: &[u64], all: &str, of_root: &str| (mail.to_vec(), all.to_owned(), of_root.to_owned());
    put!(&store, {
        message_append: of(1, "a", 1), of(3, "a", 1), of(2, "a", 2), of(4, "a", 2), of(5, "b", 1);
        turn_put: parked(WaitMode::Background);
    });
    shows!(&store, |r| {
        r.inbox_ready(&id_of("a"), 1)?.len() => 1, "the limit counts only ready mail";
        r.inbox_pending(&id_of("a"), 9)?.len() => 4;
        ready(r)? => stands(&[2, 4], "ab", "b");
    });
    keep!(&store, |w| { mark(w, [2, 4], MailState::Consumed, None, 0)? });
    shows!(&store, |r| { ready(r)? => stands(&[], "b", "b"); });
    put!(&store, { turn_put: parked(WaitMode::Ready); });
    shows!(&store, |r| { ready(r)?.0 => [0; 0], "the turn goes first"; });
    put!(&store, { turn_put: parked(WaitMode::Blocking); });
    shows!(&store, |r| { ready(r)? => stands(&[1, 3], "ab", "ab"); });
    let ended = Turn { status: TurnStatus::Cancelled, ended_at: Some(at(2)), ..parked(WaitMode::Background) };
    put!(&store, { turn_put: parked(WaitMode::Background), ended; });
    shows!(&store, |r| { ready(r)? => stands(&[1, 3], "ab", "ab"); });
}

pub(super) async fn quiet_mail_is_made_to_wake(store: Bench) {
    let quiet = |n, to| Envelope { wake: false, ..mail(n, to) };
    put!(&store, { message_append: quiet(1, "a"), quiet(2, "a"), quiet(3, "b"); });
    shows!(&store, |r| { r.inbox_waiting()? => []; });
    keep!(&store, |w| {
        w.message_rouse(&[1, 3, 9].map(message_id))?;
        mark(w, [1], MailState::Pending, Some(1), 1)?;
    });
    shows!(&store, |r| {
        r.inbox_waiting()? => ["a", "b"].map(id_of);
        map_rows(&r.inbox_pending(&id_of("a"), 9)?, |mail| (mail.wake, mail.crashes, mail.turn_id))
            => [(true, 1, Some(turn_id(1))), (false, 0, None)];
    });
}

pub(super) async fn inbox_state_equals_the_single_queries(store: Bench) {
    let skill = || HeldSkill { active: true, acquired_at: at(3), ..held("a", "moderator") };
    put!(&store, {
        skill_put: skill();
        chat_channel_put: channel("news", 2);
        chat_member_put: member("news", "a", 1);
    });
    shows!(&store, |r| {
        r.inbox_state(&id_of("a"), 9)? => InboxState::default(), "nothing else is read without mail";
    });
    append(&store, &[1, 2, 3]).await;
    let state = |r: &mut Tx, agent, limit| -> Result<_> {
        let InboxState { mail, unread, skills } = r.inbox_state(&id_of(agent), limit)?;
        Ok((ids(&mail), unread, skills))
    };
    shows!(&store, |r| { state(r, "a", 2)? => (vec![1, 2], true, vec![skill()]); });
    put!(&store, { chat_member_put: member("news", "a", 2); message_append: mail(4, "b"); });
    shows!(&store, |r| {
        state(r, "a", 9)? => (vec![1, 2, 3], false, vec![skill()]);
        state(r, "b", 9)? => (vec![4], false, vec![]);
    });
}

pub(super) async fn recent_mail_is_newest_first(store: Bench) {
    append(&store, &[4, 2, 3, 1]).await;
    put!(&store, { message_append: mail(5, "b"); });
    keep!(&store, |w| { mark(w, [2], MailState::Consumed, Some(1), 0)? });
    shows!(&store, |r| {
        ids(&r.messages_recent(&id_of("a"), 3)?) => [1, 3, 2];
        ids(&r.messages_recent(&id_of("a"), 9)?) => [1, 3, 2, 4];
    });
}

pub(super) async fn the_order_continues_after_reopening(mut store: Bench) {
    for n in 1..=2 {
        keep!(&store, |w| {
            w.message_append(&mail(n, "a"))?;
            w.journal_append(turn_id(1), &note("x"), at(n))?;
            assert_eq!(u64::from(w.inbox_depth(&id_of("a"))?), n);
        });
        store.reopen().await;
    }
    let (mail, journal) = reading!(&store, |r| { (r.inbox_pending(&id_of("a"), 9)?, r.journal_of(turn_id(1))?) });
    assert_eq!(ids(&mail), [1, 2]);
    assert!(mail[0].seq < mail[1].seq && journal[0].seq < journal[1].seq);
}
