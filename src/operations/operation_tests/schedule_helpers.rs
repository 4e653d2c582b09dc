//! Helpers for the tests of schedules.

use super::operation_world::*;

pub(super) fn new(world: &World, kind: ScheduleKind, name: &str, when: When) -> NewSchedule {
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

pub(super) async fn set(world: &World, by: Party, new: NewSchedule) -> Result<Schedule> {
    match run!(world, |w| schedules::set(w, &by, new)) {
        Err(refusal) => Err(world.with_suggestion(refusal).await),
        set => set,
    }
}

pub(super) async fn timer(world: &World, name: &str, ahead: Duration) -> Schedule {
    let when = When::At { at: world.ctx.now().plus(ahead) };
    set(world, party("ada"), new(world, ScheduleKind::Timer, name, when)).await.unwrap()
}

/// A job that goes off once.
pub(super) async fn once(world: &World, by: Party, ahead: Duration) -> Schedule {
    let when = When::At { at: world.ctx.now().plus(ahead) };
    set(world, by, new(world, ScheduleKind::Cron, "once", when)).await.unwrap()
}

/// A job of ada with this rule.
pub(super) async fn job_of_ada(world: &World, name: &str, expression: &str) -> Schedule {
    set(world, party("ada"), new(world, ScheduleKind::Cron, name, cron(expression))).await.unwrap()
}

pub(super) async fn cancel(world: &World, by: Party, schedule: &Schedule) -> Result<Schedule> {
    let schedule_id = schedule.schedule_id;
    run!(world, |w| schedules::cancel(w, &by, schedule_id))
}

pub(super) async fn enable(world: &World, schedule: &Schedule, enabled: bool) -> Result<Schedule> {
    let schedule_id = schedule.schedule_id;
    run!(world, |w| schedules::enable(w, &operator(), schedule_id, enabled))
}

/// Configures ada's heartbeat: every half hour with this target, or none.
pub(super) async fn heartbeat(world: &World, target: Option<&str>) {
    let wanted = target.map(|target| schedules::Wanted { every_ms: 1_800_000, target: target.into() });
    run!(world, |w| schedules::follow_heartbeat(w, &id("ada"), wanted.as_ref())).unwrap();
}

pub(super) fn cron(expression: &str) -> When {
    When::Cron { expression: expression.into(), zone: None }
}

/// Sets off due schedules, as a daemon that started to check at `since`.
pub(super) async fn due_since(world: &World, since: Timestamp) -> bool {
    run!(world, |w| schedules::due(w, since, &|_, _| Beat::Prompt(Some("Look.".into())))).unwrap()
}

pub(super) async fn due(world: &World) -> bool {
    due_since(world, Timestamp(0)).await
}

/// Sets off what is due after this time.
pub(super) async fn due_after(world: &World, time: Duration) -> bool {
    world.pass(time);
    due(world).await
}

pub(super) async fn runs(world: &World, schedule: &Schedule) -> Vec<ScheduleRun> {
    let schedule_id = schedule.schedule_id;
    read!(world, |r| r.schedule_runs(schedule_id, 100)?)
}

/// The operator sets a schedule off by hand.
pub(super) async fn run_now(world: &World, schedule_id: ScheduleId) -> Result<ScheduleRun> {
    let chain = Chain::root(&world.ctx);
    run!(world, |w| schedules::run_now(w, &operator(), schedule_id, chain))
}

pub(super) async fn find(world: &World, schedule: &Schedule) -> Option<Schedule> {
    let schedule_id = schedule.schedule_id;
    read!(world, |r| r.schedule_get(schedule_id)?)
}

pub(super) fn every(world: &World, interval: Duration) -> When {
    When::Every { every_ms: u64::try_from(interval.as_millis()).unwrap(), anchor: world.ctx.now() }
}

/// An hourly cron job of ada with a turn of its own.
pub(super) async fn own_turn(world: &World, target: Target) -> Schedule {
    let wanted = NewSchedule { mode: target.into(), ..new(world, ScheduleKind::Cron, "report", every(world, HOUR)) };
    set(world, party("ada"), wanted).await.unwrap()
}

/// Runs the next slot of an hourly job and ends its turn with this text.
pub(super) async fn run_next_hour(world: &World, words: &str) -> Turn {
    due_after(world, HOUR).await;
    world.done("ada", words).await
}

pub(super) async fn conversations_of_ada(world: &World) -> Vec<(Conversation, Vec<ConversationEntry>)> {
    let mut found = Vec::new();
    for conversation in read!(world, |r| r.conversation_list(Some(&id("ada")), None, 1_000)?) {
        let entries = world.entries(conversation.conversation_id).await;
        found.push((conversation, entries));
    }
    found
}

/// The texts of ada's first conversation.
pub(super) async fn texts(world: &World) -> Vec<String> {
    conversations_of_ada(world).await.remove(0).1.into_iter().map(|entry| entry.content).collect()
}

/// A conversation of ada that began outside and whose message ada has processed.
pub(super) async fn answered_conversation(world: &World, thread: &str) -> Conversation {
    let heard = arrive(world, "ada", CONTROL, thread, said(operator(), "hello")).await.unwrap();
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
