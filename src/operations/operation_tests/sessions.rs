use super::operation_world::*;
use super::schedule_helpers::*;
use crate::sessions::{Author, History};
use crate::turns::BriefedLog;

const TALK: Option<ConversationId> = Some(ConversationId(Uuid::from_u128(1)));

/// A finished turn of ada's in this session, whose mail is `text`.
async fn turn(world: &World, conversation_id: Option<ConversationId>, text: &'static str) -> Turn {
    let chain = Chain { conversation_id, ..Chain::root(&world.ctx) };
    world.deliver(NewMessage::new(&id("ada"), operator(), Kind::Message, text, chain)).await.unwrap();
    let turn_id = world.take("ada").await.turn.turn_id;
    brief(world, turn_id, text, None).await;
    world.model_call(turn_id, demand(1, 16), None).await;
    world.pass(Duration::from_secs(1));
    world.finish(turn_id, "done").await.unwrap()
}

/// Journals the prompt of ada's open turn, whose log was cut at this place.
async fn brief(world: &World, turn_id: TurnId, text: &'static str, cut: Option<LogPlace>) {
    let new_start = cut.map(|place| LogStart { place, round: 1, cut: true });
    let log = BriefedLog { new_start, ..BriefedLog::default() };
    run!(world, |w| turns::brief(w, turn_id, ("a", "a"), ("b", "b"), log, (text.to_owned(), None))).unwrap();
}

/// Leaves the past of a session of ada behind.
async fn reset(world: &World, session: Option<ConversationId>) -> bool {
    run!(world, |w| sessions::reset(w, &operator(), &id("ada"), session)).unwrap()
}

/// The conversation of each session of ada, and how many turns it has.
async fn listed(world: &World, since: Timestamp) -> Vec<(Option<ConversationId>, u64)> {
    let list = read!(world, |r| sessions::list(r, &id("ada"), since, 9)?);
    list.iter().map(|row| (row.conversation_id, row.turns)).collect()
}

async fn history(world: &World, session: Option<ConversationId>, before: Option<&Turn>, max: u32) -> Result<History> {
    let before = before.map(|turn| turn.turn_id);
    world.store.read(move |r| sessions::history(r, &id("ada"), session, before, max)).await
}

/// The mail in the last turns of a session.
async fn mail_in(world: &World, session: Option<ConversationId>) -> Vec<String> {
    user_texts(&history(world, session, None, 9).await.unwrap())
}

fn user_texts(history: &History) -> Vec<String> {
    history.entries.iter().filter(|entry| entry.author == Author::User).map(|entry| entry.text.clone()).collect()
}

// covers: BI-78
world_test!(a_session_is_read_in_pages_of_its_own_turns, async |world| {
    let one = turn(&world, None, "one").await;
    turn(&world, TALK, "aside").await;
    let two = turn(&world, None, "two").await;
    let three = turn(&world, None, "three").await;
    for (before, texts, earlier) in [(None, &["two", "three"][..], Some(two.turn_id)), (Some(&two), &["one"], None)] {
        let page = history(&world, None, before, 2).await.unwrap();
        assert_eq!(user_texts(&page), texts);
        assert_eq!(page.earlier, earlier);
    }
    assert_eq!(mail_in(&world, TALK).await, ["aside"]);
    assert_eq!(code(history(&world, TALK, Some(&one), 9).await), Code::NotFound);
    assert_eq!(listed(&world, Timestamp(0)).await, [(None, 3), (TALK, 1)]);
    assert_eq!(listed(&world, three.started_at).await.len(), 1);
});

// covers: LOOP-01
world_test!(a_reset_leaves_the_past_of_one_session_behind, async |world| {
    assert!(!reset(&world, None).await, "there is nothing to leave behind");
    turn(&world, None, "one").await;
    turn(&world, TALK, "aside").await;
    assert!(reset(&world, None).await);
    assert!(!reset(&world, None).await);
    assert_eq!(world.count(EventKind::SessionReset).await, 1);
    assert_eq!(mail_in(&world, None).await, [""; 0]);
    assert_eq!(mail_in(&world, TALK).await, ["aside"]);
    turn(&world, None, "two").await;
    assert_eq!(mail_in(&world, None).await, ["two"]);
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
    world.pass(Duration::from_secs(1));
    world.add_agent(new_agent(&world.ctx, "ada")).await;
    for session in [None, TALK] {
        assert_eq!(mail_in(&world, session).await, [""; 0]);
    }
    assert_eq!(listed(&world, Timestamp(0)).await, []);
    turn(&world, TALK, "two").await;
    assert_eq!(mail_in(&world, TALK).await, ["two"]);
    assert_eq!(listed(&world, Timestamp(0)).await, [(TALK, 1)]);
    timer(&world, "tea", MINUTE).await;
    due_after(&world, MINUTE).await;
    let reminder = world.inbox("ada").await.remove(0).body;
    assert!(!reminder.contains("you heard"), "{reminder}");
});

world_test!(no_cut_brings_back_the_history_before_a_reset, async |world| {
    let one = turn(&world, None, "one").await.log_place();
    let two = turn(&world, None, "two").await.log_place();
    let turn_id = world.busy("ada").await.turn_id;
    reset(&world, None).await;
    let start = async || read!(world, |r| r.session_start(&id("ada"), None)?.unwrap().start);
    for place in [one, two] {
        brief(&world, turn_id, "work", Some(place)).await;
        let start = start().await;
        assert!(!start.cut && start.place > two, "{start:?}");
    }
    world.end(turn_id, Ending::Cancelled("by operator:x".into())).await;
    world.pass(Duration::from_secs(1));
    turn(&world, None, "three").await;
    let four = turn(&world, None, "four").await.log_place();
    for _ in 0..2 {
        let turn_id = world.busy("ada").await.turn_id;
        brief(&world, turn_id, "work", Some(four)).await;
        world.finish(turn_id, "done").await.unwrap();
        assert_eq!(start().await.place, four);
        assert_eq!(mail_in(&world, None).await, ["three", "four"]);
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
    let news = world.inbox("ada").await;
    assert_eq!((news.len(), news[0].conversation_id), (1, TALK), "of a task that is done in another session");

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
    let at = When::At { at: world.ctx.now().plus(MINUTE) };
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
    // Only the text and the options belong to the session.
    assert_eq!((off.enabled, off.conversation_id), (false, TALK));
});

#[test]
fn a_page_of_a_history_ends_between_turns() {
    let turn = |n: u128| TurnId(Uuid::from_u128(n));
    let entries = [3, 3, 2, 2, 1].map(turn);
    for (fits, page) in [(5, (5, None)), (4, (4, Some(2))), (3, (2, Some(3))), (2, (2, Some(3))), (1, (1, Some(3)))] {
        assert_eq!(sessions::cut_page(&entries, fits, None), (page.0, page.1.map(turn)), "{fits}");
    }
}
