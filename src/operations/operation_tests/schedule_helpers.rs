//! Helpers for the tests of schedules.

use super::operation_world::*;

pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn new(world: &OperationWorld, kind: ScheduleKind, name: &str, when: When) -> NewSchedule {
    NewSchedule {
        kind,
        agent_id: id("ada"),
        name: name.into(),
        when,
        message: "look at the mail".into(),
        missed: Missed::Skip,
        mode: JobMode::default(),
        enabled: true,
        chain: Chain { root_id: RootId(world.ctx.id()), hop: 3, conversation_id: None },
        baseline: None,
    }
}

pub(super) async fn set(world: &OperationWorld, by: Party, new: NewSchedule) -> Result<Schedule> {
    match run!(world, |w| schedules::set(w, &by, new)) {
        Err(refusal) => Err(world.with_suggestion(refusal).await),
        set => set,
    }
}

pub(super) async fn timer(world: &OperationWorld, name: &str, ahead: Duration) -> Schedule {
    let when = When::At { at: world.ctx.now().plus(ahead) };
    set(world, party("ada"), new(world, ScheduleKind::Timer, name, when)).await.unwrap()
}

pub(super) fn cron(expression: &str) -> When {
    When::Cron { expression: expression.into(), zone: None }
}

/// Sets off due schedules, as a daemon that started to check at `since`.
pub(super) async fn due_since(world: &OperationWorld, since: Timestamp) -> bool {
    run!(world, |w| schedules::due(w, since, &|_, _| Beat::Prompt(Some("Look.".into())))).unwrap()
}

pub(super) async fn due(world: &OperationWorld) -> bool {
    due_since(world, Timestamp(0)).await
}

/// Sets off what is due after this time.
pub(super) async fn due_after(world: &OperationWorld, time: Duration) -> bool {
    world.pass(time);
    due(world).await
}

pub(super) async fn runs(world: &OperationWorld, schedule: &Schedule) -> Vec<ScheduleRun> {
    let schedule_id = schedule.schedule_id;
    read!(world, |r| r.schedule_runs(schedule_id, 100)?)
}

/// The operator sets a schedule off by hand.
pub(super) async fn run_now(world: &OperationWorld, schedule_id: ScheduleId) -> Result<ScheduleRun> {
    run!(world, |w| {
        let ctx = w.ctx;
        schedules::run_now(w, &operator(), schedule_id, Chain::root(ctx))
    })
}

pub(super) async fn find(world: &OperationWorld, schedule: &Schedule) -> Option<Schedule> {
    let schedule_id = schedule.schedule_id;
    read!(world, |r| r.schedule_get(schedule_id)?)
}

pub(super) fn every(world: &OperationWorld, interval: Duration) -> When {
    When::Every { every_ms: u64::try_from(interval.as_millis()).unwrap(), anchor: world.ctx.now() }
}

/// An hourly cron job of ada with a turn of its own.
pub(super) async fn own_turn(world: &OperationWorld, target: Target) -> Schedule {
    let wanted = NewSchedule { mode: target.into(), ..new(world, ScheduleKind::Cron, "report", every(world, HOUR)) };
    set(world, party("ada"), wanted).await.unwrap()
}

/// Runs the next slot of an hourly job and ends its turn with this text.
pub(super) async fn run_next_hour(world: &OperationWorld, words: &str) -> Turn {
    due_after(world, HOUR).await;
    world.finish(world.take("ada").await.turn.turn_id, words).await.unwrap()
}

pub(super) async fn conversations_of_ada(world: &OperationWorld) -> Vec<(Conversation, Vec<ConversationEntry>)> {
    let all = read!(world, |r| r.conversation_list(Some(&id("ada")), None, 1_000)?);
    let mut found = Vec::new();
    for conversation in all {
        let conversation_id = conversation.conversation_id;
        found.push((conversation, read!(world, |r| r.conversation_entries(conversation_id, 0, 100)?)));
    }
    found
}

/// A conversation of ada that began outside and whose message ada has processed.
pub(super) async fn answered_conversation(world: &OperationWorld, thread: &str) -> Conversation {
    let (adapter, thread) = (CONTROL.to_owned(), Some(thread.to_owned()));
    let (start, said) = (Start { adapter, thread, owner: id("ada"), party: operator() }, said(operator(), "hello"));
    let heard = run!(world, |w| conversations::arrive(w, start, said)).unwrap();
    world.done("ada", "NO_REPLY").await;
    heard.conversation
}

/// The target that `announce` gives this text.
pub(super) fn announce(to: &str) -> Target {
    Target::of_alerts(to).unwrap()
}

/// A thread of the webhook `ops`.
pub(super) fn ops(thread: &str) -> Target {
    Target::Webhook { webhook: "ops".into(), thread: thread.into() }
}
