use super::operation_world::*;
use super::schedule_helpers::*;
use crate::sessions::{Author, History};
use crate::turns::BriefedLog;

const TALK: Option<ConversationId> = Some(ConversationId(Uuid::from_u128(1)));

/// A finished turn of ada's in this session, whose mail is `text`.
async fn turn(world: &OperationWorld, conversation_id: Option<ConversationId>, text: &'static str) -> Turn {
    let chain = Chain { conversation_id, ..Chain::root(&world.ctx) };
    world.deliver(NewMessage::new(&id("ada"), operator(), Kind::Message, text, chain)).await.unwrap();
    let turn_id = world.take("ada").await.turn.turn_id;
    run!(world, |w| {
        turns::brief(w, turn_id, ("a", "a"), ("b", "b"), BriefedLog::default(), (text.to_owned(), None))
    })
    .unwrap();
    world.model_call(turn_id, demand(1, 16), None).await;
    world.pass(std::time::Duration::from_secs(1));
    world.finish(turn_id, "done").await.unwrap()
}

async fn history(
    world: &OperationWorld,
    session: Option<ConversationId>,
    before: Option<&Turn>,
    turns: u32,
) -> Result<History> {
    let before = before.map(|turn| turn.turn_id);
    world.store.read(move |r| sessions::history(r, &id("ada"), session, before, turns)).await
}

fn mail_in(history: &History) -> Vec<&str> {
    history.entries.iter().filter(|entry| entry.author == Author::User).map(|entry| entry.text.as_str()).collect()
}

// covers: BI-78
world_test!(a_session_is_read_in_pages_of_its_own_turns, async |world| {
    let one = turn(&world, None, "one").await;
    turn(&world, TALK, "aside").await;
    let two = turn(&world, None, "two").await;
    let three = turn(&world, None, "three").await;
    let newest = history(&world, None, None, 2).await.unwrap();
    assert_eq!((mail_in(&newest), newest.earlier), (vec!["two", "three"], Some(two.turn_id)));
    let rest = history(&world, None, Some(&two), 2).await.unwrap();
    assert_eq!((mail_in(&rest), rest.earlier), (vec!["one"], None));
    assert_eq!(mail_in(&history(&world, TALK, None, 9).await.unwrap()), ["aside"]);
    assert_eq!(code(history(&world, TALK, Some(&one), 9).await), Code::NotFound);
    let since = three.started_at;
    let list = read!(world, |r| sessions::list(r, &id("ada"), Timestamp(0), 9).unwrap());
    assert_eq!(list.iter().map(|row| (row.conversation_id, row.turns)).collect::<Vec<_>>(), [(None, 3), (TALK, 1)]);
    assert_eq!(read!(world, |r| sessions::list(r, &id("ada"), since, 9).unwrap()).len(), 1);
});

// covers: LOOP-01
world_test!(a_reset_leaves_the_past_of_one_session_behind, async |world| {
    let reset = async |session| run!(world, |w| sessions::reset(w, &operator(), &id("ada"), session));
    assert!(!reset(None).await.unwrap(), "there is nothing to leave behind");
    turn(&world, None, "one").await;
    turn(&world, TALK, "aside").await;
    assert!(reset(None).await.unwrap());
    assert!(!reset(None).await.unwrap());
    assert_eq!(world.count(EventKind::SessionReset).await, 1);
    assert_eq!(mail_in(&history(&world, None, None, 9).await.unwrap()), [""; 0]);
    assert_eq!(mail_in(&history(&world, TALK, None, 9).await.unwrap()), ["aside"]);
    turn(&world, None, "two").await;
    assert_eq!(mail_in(&history(&world, None, None, 9).await.unwrap()), ["two"]);
});

#[test]
fn a_session_has_a_name() {
    assert_eq!(sessions::session_named(" own ").unwrap(), None);
    assert_eq!(sessions::session_named("00000000-0000-0000-0000-000000000001").unwrap(), TALK);
    assert_eq!(code(sessions::session_named("owm")), Code::InvalidArguments);
}

world_test!(a_new_agent_has_no_session_of_an_earlier_one_with_its_id, async |world| {
    turn(&world, None, "one").await;
    turn(&world, TALK, "aside").await;
    delete(&world, "ada").await;
    world.pass(std::time::Duration::from_secs(1));
    world.add_agent(new_agent(&world.ctx, "ada")).await;
    for session in [None, TALK] {
        assert_eq!(mail_in(&history(&world, session, None, 9).await.unwrap()), [""; 0]);
    }
    let list = async || read!(world, |r| sessions::list(r, &id("ada"), Timestamp(0), 9).unwrap());
    assert_eq!(list().await, []);
    turn(&world, TALK, "two").await;
    assert_eq!(mail_in(&history(&world, TALK, None, 9).await.unwrap()), ["two"]);
    assert_eq!(list().await.iter().map(|row| (row.conversation_id, row.turns)).collect::<Vec<_>>(), [(TALK, 1)]);
    timer(&world, "tea", std::time::Duration::from_secs(60)).await;
    due_after(&world, std::time::Duration::from_secs(60)).await;
    let reminder = world.inbox("ada").await.remove(0).body;
    assert!(!reminder.contains("you heard"), "{reminder}");
});

world_test!(a_cut_from_before_a_reset_does_not_undo_it, async |world| {
    let one = turn(&world, None, "one").await.log_place();
    let two = turn(&world, None, "two").await.log_place();
    world.send("ada", "three").await;
    let turn_id = world.take("ada").await.turn.turn_id;
    run!(world, |w| sessions::reset(w, &operator(), &id("ada"), None)).unwrap();
    for place in [one, two] {
        brief_with_cut(&world, turn_id, place).await;
        let start = read!(world, |r| r.session_start(&id("ada"), None)?.unwrap().start);
        assert!(!start.cut && start.place > two, "{start:?}");
    }
});

/// Journals the prompt of ada's open turn, whose log was cut at `place`.
async fn brief_with_cut(world: &OperationWorld, turn_id: TurnId, place: LogPlace) {
    run!(world, |w| {
        let log = BriefedLog { new_start: Some(LogStart { place, round: 1, cut: true }), ..BriefedLog::default() };
        turns::brief(w, turn_id, ("a", "a"), ("b", "b"), log, ("three".to_owned(), None))
    })
    .unwrap();
}

world_test!(a_cut_after_a_reset_does_not_bring_back_the_history_before_it, async |world| {
    turn(&world, None, "one").await;
    run!(world, |w| sessions::reset(w, &operator(), &id("ada"), None)).unwrap();
    world.pass(std::time::Duration::from_secs(1));
    turn(&world, None, "two").await;
    let three = turn(&world, None, "three").await.log_place();
    for _ in 0..2 {
        world.send("ada", "four").await;
        let turn_id = world.take("ada").await.turn.turn_id;
        brief_with_cut(&world, turn_id, three).await;
        world.finish(turn_id, "done").await.unwrap();
        assert_eq!(read!(world, |r| r.session_start(&id("ada"), None)?.unwrap().start.place), three);
        assert_eq!(mail_in(&history(&world, None, None, 9).await.unwrap()), ["two", "three"]);
    }
});

// covers: MSG-12
world_test!(a_task_and_a_schedule_stay_in_their_session_whoever_changes_them, async |world| {
    let task = run!(world, |w| {
        let chain = Chain { conversation_id: TALK, ..Chain::root(w.ctx) };
        tasks::create(w, &party("ada"), new_task("bob", "count", chain))
    })
    .unwrap();
    super::tasks::set(&world, "bob", &task, TaskStatus::Done).await.unwrap();
    let sessions: Vec<_> = world.inbox("ada").await.into_iter().map(|mail| mail.conversation_id).collect();
    assert_eq!(sessions, [TALK], "the news of a task that is done in another session");

    let wanted = |conversation_id| NewSchedule {
        chain: Chain { conversation_id, ..Chain::root(&world.ctx) },
        ..new(&world, ScheduleKind::Cron, "tea", cron("0 9 * * *"))
    };
    let job = set(&world, party("ada"), wanted(TALK)).await.unwrap();
    let again = set(&world, operator(), wanted(None)).await.unwrap();
    assert_eq!((again.schedule_id, again.conversation_id), (job.schedule_id, TALK));
    run_now(&world, job.schedule_id).await.unwrap();
    assert_eq!(world.inbox("ada").await.last().unwrap().conversation_id, TALK);
});

// covers: MSG-12
world_test!(no_session_puts_its_words_into_a_schedule_of_another, async |world| {
    let at = When::At { at: world.ctx.now().plus(std::time::Duration::from_secs(60)) };
    let wanted = |kind, conversation_id, message: &str| {
        let when = if kind == ScheduleKind::Timer { at.clone() } else { cron("0 9 * * *") };
        let chain = Chain { conversation_id, ..Chain::root(&world.ctx) };
        NewSchedule { chain, message: message.to_owned(), ..new(&world, kind, "tea", when) }
    };
    let other = Some(ConversationId(Uuid::from_u128(2)));
    for kind in [ScheduleKind::Timer, ScheduleKind::Cron] {
        let first = set(&world, party("ada"), wanted(kind, TALK, "for one")).await.unwrap();
        for session in [other, None] {
            let refused = set(&world, party("ada"), wanted(kind, session, "for another")).await;
            assert_eq!(code(refused), Code::Conflict, "{kind} {session:?}");
        }
        assert_eq!(super::schedule_helpers::find(&world, &first).await, Some(first.clone()));
        let again = set(&world, party("ada"), wanted(kind, TALK, "for one, later")).await.unwrap();
        assert_eq!(again.schedule_id, first.schedule_id);
    }
    let mut off = wanted(ScheduleKind::Cron, other, "for one, later");
    off.enabled = false;
    let off = set(&world, party("ada"), off).await.unwrap();
    assert_eq!(
        (off.enabled, off.conversation_id),
        (false, TALK),
        "only the text and the options belong to the session"
    );
});

#[test]
fn a_page_of_a_history_ends_between_turns() {
    let turn = |n: u128| TurnId(Uuid::from_u128(n));
    let entries = [3, 3, 2, 2, 1].map(turn);
    for (fits, page) in [(5, (5, None)), (4, (4, Some(2))), (3, (2, Some(3))), (2, (2, Some(3))), (1, (1, Some(3)))] {
        assert_eq!(sessions::cut_page(&entries, fits, None), (page.0, page.1.map(turn)), "{fits}");
    }
}
