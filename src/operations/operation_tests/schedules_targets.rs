//! The targets of a cron job's last text: they must exist when the job is set, own threads of
//! webhooks, and webhooks that the world file removes or gives to another agent. Also blank
//! messages.

use super::operation_world::*;
use super::schedule_helpers::*;

fn job(world: &OperationWorld, target: Target) -> NewSchedule {
    NewSchedule { mode: target.into(), ..new(world, ScheduleKind::Cron, "report", every(world, HOUR)) }
}

async fn enable(world: &OperationWorld, job: &Schedule, enabled: bool) -> Result<Schedule> {
    let schedule_id = job.schedule_id;
    run!(world, |w| schedules::enable(w, &operator(), schedule_id, enabled))
}

/// A message from outside over the webhook, whose conversations belong to `owner`.
async fn arrives(world: &OperationWorld, owner: &str, thread: &str) -> Result<Received> {
    let from = Party::Outside("caller".into());
    let start =
        Start { adapter: "webhook:ops".into(), thread: Some(thread.into()), owner: id(owner), party: from.clone() };
    let said = said(from, "hello");
    run!(world, |w| conversations::arrive(w, start, said))
}

/// The note of the newest run.
async fn note(world: &OperationWorld, job: &Schedule) -> Option<String> {
    let run = runs(world, job).await.remove(0);
    assert_eq!(run.status, RunStatus::Done);
    run.note
}

fn webhook_of(world: &OperationWorld, agent: &str) {
    world.ctx.set_webhooks([("ops".to_owned(), id(agent))].into());
}

world_test!(a_target_must_exist_when_a_job_is_set_or_changed, async |world| {
    world.channel(party("ada"), new_channel("news", &["bob"])).await.unwrap();
    let talk = answered_conversation(&world, "one").await.conversation_id.to_string();
    for (to, hint) in [
        ("newz", "did you mean `news`?"),
        ("lsat", "did you mean `last`?"),
        ("quite-another-thing", "give last, the name of a chat channel or the id of a conversation"),
        ("00000000-0000-0000-0000-00000000ffff", "see `ghostctl conversation list`"),
    ] {
        let refusal = set(&world, party("ada"), job(&world, announce(to))).await.unwrap_err();
        assert_eq!((refusal.code, refusal.hint.as_deref()), (Code::NotFound, Some(hint)), "{to}");
        assert_eq!(refusal.details, Some(json!({ "field": "to" })), "{to}");
    }
    for to in ["news", "last", talk.as_str()] {
        set(&world, party("ada"), job(&world, announce(to))).await.unwrap();
    }
    assert_eq!(code(set(&world, operator(), job(&world, announce("newss"))).await), Code::NotFound);
    // A job whose target is gone can be switched off, but not on.
    let conversation = set(&world, operator(), job(&world, announce(&talk))).await.unwrap();
    world.limits(|limits| limits.conversation_days = 1);
    world.pass(Duration::from_secs(2 * 86_400));
    retention::sweep(&world.store, &world.ctx).await.unwrap();
    assert_eq!(code(set(&world, operator(), job(&world, announce(&talk))).await), Code::NotFound);
    let off = NewSchedule { enabled: false, ..job(&world, announce(&talk)) };
    let off = set(&world, operator(), off).await.unwrap();
    assert_eq!((off.schedule_id, off.enabled), (conversation.schedule_id, false));
    let refusal = enable(&world, &off, true).await.unwrap_err();
    assert_eq!((refusal.code, refusal.details), (Code::NotFound, Some(json!({ "field": "to" }))));
    assert_eq!(find(&world, &off).await.unwrap().next_at, None);
    // A working job can be switched off and on while its target exists.
    let on = set(&world, operator(), job(&world, announce("news"))).await.unwrap();
    for enabled in [false, true] {
        assert_eq!(enable(&world, &on, enabled).await.unwrap().enabled, enabled);
    }
});

world_test!(a_blank_message_gets_the_same_refusal_from_timers_and_jobs, async |world| {
    let at = When::At { at: world.ctx.now().plus(HOUR) };
    let says = |kind, message: &str| NewSchedule { message: message.into(), ..new(&world, kind, " x", at.clone()) };
    for (kind, blank) in [(ScheduleKind::Timer, " \n\t"), (ScheduleKind::Cron, " \n\t"), (ScheduleKind::Cron, "")] {
        let refusal = set(&world, operator(), says(kind, blank)).await.unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), (Code::InvalidArguments, "message is empty"), "{kind}");
    }
    let timer = set(&world, operator(), says(ScheduleKind::Timer, "")).await.unwrap();
    assert_eq!(timer.message, "x", "one that was given none reminds of its name");
});

world_test!(the_outside_cannot_begin_the_thread_of_a_job_but_can_answer_in_it, async |world| {
    webhook_of(&world, "bob");
    for thread in ["cron:ada/report", "cron:", "cron:nobody/x"] {
        let refusal = arrives(&world, "bob", thread).await.unwrap_err();
        assert_eq!(
            (refusal.code, refusal.details),
            (Code::AccessDenied, Some(json!({ "field": "thread" }))),
            "{thread}"
        );
        assert!(refusal.message.contains("belongs to a cron job") && refusal.hint.is_some(), "{thread}");
    }
    arrives(&world, "bob", "cronicle").await.unwrap();
    let job = own_turn(&world, ops("cron:ada/report")).await;
    run_next_hour(&world, "One.").await;
    assert_eq!(note(&world, &job).await, None);
    // Now it is an ordinary conversation of ada.
    assert_eq!(arrives(&world, "bob", "cron:ada/report").await.unwrap().conversation.owner, id("ada"));
    world.done("ada", "Thanks.").await;
    let entries = conversations_of_ada(&world).await.remove(0).1;
    assert_eq!(entries.iter().map(|entry| entry.content.as_str()).collect::<Vec<_>>(), ["One.", "hello", "Thanks."]);
});

world_test!(a_webhook_given_to_another_agent_fails_the_delivery_unless_the_thread_is_the_jobs_own, async |world| {
    let free = own_turn(&world, ops("free")).await;
    run_next_hour(&world, "One.").await;
    assert_eq!(note(&world, &free).await, None);
    webhook_of(&world, "bob");
    run_next_hour(&world, "Two.").await;
    let note_text = note(&world, &free).await.unwrap();
    assert!(note_text.starts_with("not delivered: ") && note_text.contains("access_denied"), "{note_text}");
    assert_eq!(conversations_of_ada(&world).await.remove(0).1.len(), 1, "no further message is in it");
    // A job may always use its own thread, and an operator may use any thread.
    let own = own_turn(&world, ops("cron:ada/report")).await;
    run_next_hour(&world, "Three.").await;
    assert_eq!(note(&world, &own).await, None);
    let any = set(&world, operator(), job(&world, ops("another"))).await.unwrap();
    run_next_hour(&world, "Four.").await;
    assert_eq!(note(&world, &any).await, None);
    // The world file no longer has the webhook.
    world.ctx.set_webhooks(std::collections::BTreeMap::new());
    due_after(&world, HOUR).await;
    world.done("ada", "Five.").await;
    assert!(note(&world, &any).await.unwrap().contains("there is no webhook `ops`"));
    assert_eq!(conversations_of_ada(&world).await.len(), 3);
});

world_test!(a_job_set_to_another_jobs_thread_is_not_delivered_and_its_run_has_a_note, async |world| {
    for foreign in ["cron:ada/other", "cron:bob/report"] {
        let job = set(&world, operator(), job(&world, ops(foreign))).await.unwrap();
        run_next_hour(&world, "One.").await;
        let note_text = note(&world, &job).await.unwrap();
        assert!(note_text.starts_with("not delivered: ") && note_text.contains("is not this job's own"), "{note_text}");
    }
    assert_eq!(conversations_of_ada(&world).await.len(), 0);
    // The own thread of a job that ends with this run, and of a job that was cancelled meanwhile.
    let at = When::At { at: world.ctx.now().plus(HOUR) };
    let own = || job(&world, ops("cron:ada/report"));
    let once = set(&world, operator(), NewSchedule { when: at, ..own() }).await.unwrap();
    run_next_hour(&world, "Two.").await;
    assert_eq!((note(&world, &once).await, find(&world, &once).await), (None, None));
    let cancelled = set(&world, operator(), own()).await.unwrap();
    due_after(&world, HOUR).await;
    let turn = world.take("ada").await.turn;
    run!(world, |w| schedules::cancel(w, &operator(), cancelled.schedule_id)).unwrap();
    world.finish(turn.turn_id, "Three.").await.unwrap();
    assert_eq!(note(&world, &cancelled).await, None);
    let entries = conversations_of_ada(&world).await.remove(0).1;
    assert_eq!(entries.iter().map(|entry| entry.content.as_str()).collect::<Vec<_>>(), ["Two.", "Three."]);
});
