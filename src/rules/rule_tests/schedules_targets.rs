//! Where a cron job's last words may go: targets that must be there when it is set, threads of webhooks that are its own, and
//! webhooks that the world file takes away or gives to another agent. And messages that say nothing.

use std::time::Duration;

use ghost_domain::schedule::{Deliver, JobOptions, Payload, RunStatus, When};
use ghost_domain::{Code, Party, Schedule, ScheduleKind};
use serde_json::json;

use super::rig::{Rig, code, id, operator, party, write};
use super::schedules_rig::{due, every, heard, hour, new, own_turn, runs, set, talks, there};
use crate::conversations::{self, Heard, Said, Start};
use crate::schedules::NewSchedule;
use crate::{Result, chat, schedules};

const HOUR: Duration = Duration::from_secs(3_600);

fn job(rig: &Rig, deliver: Deliver, to: &str) -> NewSchedule {
    let options = JobOptions { payload: Payload::AgentTurn, deliver, to: to.into(), ..JobOptions::default() };
    NewSchedule { options, ..new(rig, ScheduleKind::Cron, "report", every(rig, HOUR)) }
}

async fn channel(rig: &Rig, name: &str) {
    let channel = chat::NewChannel {
        channel: name.parse().unwrap(),
        members: vec![id("ada"), id("bob")],
        gated: false,
        skip_creator: false,
        topic: None,
    };
    let by = chat::Speaker::from(party("ada"));
    write!(rig, |w, ctx| chat::create(w, &ctx, &by, channel).await).unwrap();
}

async fn enable(rig: &Rig, job: &Schedule, enabled: bool) -> Result<Schedule> {
    let schedule_id = job.schedule_id;
    write!(rig, |w, ctx| schedules::enable(w, &ctx, &operator(), schedule_id, enabled).await)
}

/// Something said over the webhook, whose threads go to `owner`.
async fn arrives(rig: &Rig, owner: &str, thread: &str) -> Result<Heard> {
    let from = Party::Outside("caller".into());
    let start =
        Start { adapter: "webhook:ops".into(), thread: Some(thread.into()), owner: id(owner), party: from.clone() };
    let said = Said { from, content: "hello".into(), attachments: Vec::new(), reply_to: None, external_id: None };
    write!(rig, |w, ctx| conversations::arrive(w, &ctx, start, said).await)
}

/// What the newest run has to say.
async fn note(rig: &Rig, job: &Schedule) -> Option<String> {
    let run = runs(rig, job).await.remove(0);
    assert_eq!(run.status, RunStatus::Done);
    run.note
}

fn webhook_of(rig: &Rig, agent: &str) {
    rig.ctx.set_webhooks([("ops".to_owned(), id(agent))].into());
}

#[tokio::test]
async fn a_target_must_be_there_when_a_job_is_set_and_when_it_is_changed() {
    let rig = Rig::new().await;
    channel(&rig, "news").await;
    let talk = heard(&rig, "one").await.conversation_id.to_string();
    for (to, hint) in [
        ("newz", "did you mean `news`?"),
        ("lsat", "did you mean `last`?"),
        ("quite-another-thing", "give last, the name of a chat channel or the id of a conversation"),
        ("00000000-0000-0000-0000-00000000ffff", "see `ghostctl conversation list`"),
    ] {
        let refusal = set(&rig, party("ada"), job(&rig, Deliver::Announce, to)).await.unwrap_err();
        assert_eq!((refusal.code, refusal.hint.as_deref()), (Code::NotFound, Some(hint)), "{to}");
        assert_eq!(refusal.details, Some(json!({ "field": "to" })), "{to}");
    }
    for to in ["news", "last", talk.as_str()] {
        set(&rig, party("ada"), job(&rig, Deliver::Announce, to)).await.unwrap();
    }
    let slip = set(&rig, operator(), job(&rig, Deliver::Announce, "newss")).await;
    assert_eq!(code(slip), Code::NotFound);
    // One whose target has gone can be switched off, and not on.
    let conversation = set(&rig, operator(), job(&rig, Deliver::Announce, &talk)).await.unwrap();
    rig.limits(|limits| limits.conversation_days = 1);
    rig.pass(Duration::from_secs(2 * 86_400));
    crate::retention::sweep(&rig.store, &rig.ctx).await.unwrap();
    assert_eq!(code(set(&rig, operator(), job(&rig, Deliver::Announce, &talk)).await), Code::NotFound);
    let off = NewSchedule { enabled: false, ..job(&rig, Deliver::Announce, &talk) };
    let off = set(&rig, operator(), off).await.unwrap();
    assert_eq!((off.schedule_id, off.enabled), (conversation.schedule_id, false));
    let refusal = enable(&rig, &off, true).await.unwrap_err();
    assert_eq!((refusal.code, refusal.details), (Code::NotFound, Some(json!({ "field": "to" }))));
    assert_eq!(there(&rig, &off).await.unwrap().next_at, None);
    // One that goes on can be switched off as well, and on when its target is there.
    let on = set(&rig, operator(), job(&rig, Deliver::Announce, "news")).await.unwrap();
    for enabled in [false, true] {
        assert_eq!(enable(&rig, &on, enabled).await.unwrap().enabled, enabled);
    }
}

#[tokio::test]
async fn a_message_that_says_nothing_is_refused_in_the_same_words_by_timers_and_jobs() {
    let rig = Rig::new().await;
    let at = When::At { at: rig.ctx.now().plus(HOUR) };
    let says = |kind, message: &str| NewSchedule { message: message.into(), ..new(&rig, kind, " x", at.clone()) };
    for (kind, blank) in [(ScheduleKind::Timer, " \n\t"), (ScheduleKind::Cron, " \n\t"), (ScheduleKind::Cron, "")] {
        let refusal = set(&rig, operator(), says(kind, blank)).await.unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), (Code::InvalidArguments, "message is empty"), "{kind}");
    }
    let timer = set(&rig, operator(), says(ScheduleKind::Timer, "")).await.unwrap();
    assert_eq!(timer.message, "x", "one that was given none reminds of its name");
}

#[tokio::test]
async fn the_outside_cannot_take_the_thread_of_a_job_and_answers_in_it_once_it_is_begun() {
    let rig = Rig::new().await;
    webhook_of(&rig, "bob");
    for thread in ["cron:ada/report", "cron:", "cron:nobody/x"] {
        let refusal = arrives(&rig, "bob", thread).await.unwrap_err();
        assert_eq!(
            (refusal.code, refusal.details),
            (Code::AccessDenied, Some(json!({ "field": "thread" }))),
            "{thread}"
        );
        assert!(refusal.message.contains("a cron job's own") && refusal.hint.is_some(), "{thread}");
    }
    arrives(&rig, "bob", "cronicle").await.unwrap();
    let job = own_turn(&rig, Deliver::Webhook, "ops/cron:ada/report").await;
    hour(&rig, "One.").await;
    assert_eq!(note(&rig, &job).await, None);
    // Now it is a conversation of ada's like any other.
    let heard = arrives(&rig, "bob", "cron:ada/report").await.unwrap();
    assert_eq!(heard.conversation.owner, id("ada"));
    let turn = rig.take("ada").await.turn;
    rig.finish(turn.turn_id, "Thanks.").await.unwrap();
    let said = talks(&rig).await.remove(0).1;
    assert_eq!(said.iter().map(|entry| entry.content.as_str()).collect::<Vec<_>>(), ["One.", "hello", "Thanks."]);
}

#[tokio::test]
async fn a_webhook_that_was_given_to_another_agent_is_told_in_the_run_unless_the_thread_is_the_jobs_own() {
    let rig = Rig::new().await;
    let free = own_turn(&rig, Deliver::Webhook, "ops/free").await;
    hour(&rig, "One.").await;
    assert_eq!(note(&rig, &free).await, None);
    webhook_of(&rig, "bob");
    hour(&rig, "Two.").await;
    let told = note(&rig, &free).await.unwrap();
    assert!(told.starts_with("not delivered: ") && told.contains("the threads of the webhook ops go to bob"), "{told}");
    assert_eq!(talks(&rig).await.remove(0).1.len(), 1, "nothing more was said in it");
    // Its own thread is its own whoever answers the others, and an operator names any.
    let own = own_turn(&rig, Deliver::Webhook, "ops/cron:ada/report").await;
    hour(&rig, "Three.").await;
    assert_eq!(note(&rig, &own).await, None);
    let any = set(&rig, operator(), job(&rig, Deliver::Webhook, "ops/another")).await.unwrap();
    hour(&rig, "Four.").await;
    assert_eq!(note(&rig, &any).await, None);
    // The world file has lost it.
    rig.ctx.set_webhooks(std::collections::BTreeMap::new());
    rig.pass(HOUR);
    due(&rig).await;
    let turn = rig.take("ada").await.turn;
    rig.finish(turn.turn_id, "Five.").await.unwrap();
    assert!(note(&rig, &any).await.unwrap().contains("there is no webhook `ops`"));
    assert_eq!(talks(&rig).await.len(), 3);
}

#[tokio::test]
async fn a_job_that_was_set_to_another_jobs_thread_is_told_nowhere_and_its_run_says_so() {
    let rig = Rig::new().await;
    for foreign in ["ops/cron:ada/other", "ops/cron:bob/report"] {
        let job = set(&rig, operator(), job(&rig, Deliver::Webhook, foreign)).await.unwrap();
        hour(&rig, "One.").await;
        let told = note(&rig, &job).await.unwrap();
        assert!(told.starts_with("not delivered: ") && told.contains("is not this job's own"), "{told}");
    }
    assert_eq!(talks(&rig).await.len(), 0);
    // The own thread of a job that is over with this run, and of one that was cancelled meanwhile.
    let at = When::At { at: rig.ctx.now().plus(HOUR) };
    let own = || job(&rig, Deliver::Webhook, "ops/cron:ada/report");
    let once = set(&rig, operator(), NewSchedule { when: at, ..own() }).await.unwrap();
    hour(&rig, "Two.").await;
    assert_eq!((note(&rig, &once).await, there(&rig, &once).await), (None, None));
    let cancelled = set(&rig, operator(), own()).await.unwrap();
    rig.pass(HOUR);
    due(&rig).await;
    let turn = rig.take("ada").await.turn;
    let schedule_id = cancelled.schedule_id;
    write!(rig, |w, ctx| schedules::cancel(w, &ctx, &operator(), schedule_id).await).unwrap();
    rig.finish(turn.turn_id, "Three.").await.unwrap();
    assert_eq!(note(&rig, &cancelled).await, None);
    let said = talks(&rig).await.remove(0).1;
    assert_eq!(said.iter().map(|entry| entry.content.as_str()).collect::<Vec<_>>(), ["Two.", "Three."]);
}
