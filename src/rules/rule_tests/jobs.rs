//! When a main job has come to a stand, who holds it up, and what gets it going again.

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::event::EventKind;
use ghost_domain::schedule::{Change, When};
use ghost_domain::{Agent, Code, Job, Kind, Party, Refusal, RootId, ScheduleKind, TurnId};

use super::rig::{Rig, demand, id, operator, party, read, write};
use super::schedules_rig::{self, due};
use crate::agents;
use crate::chain::Chain;
use crate::jobs::{self, Stand};
use crate::mail::NewMessage;
use crate::schedules::{self, NewSchedule};
use crate::turns::{self, Ending};

const JOB: &str = "0123456789abcdef";

/// A job that ada leads, and has been told of.
async fn begun(rig: &Rig) -> Job {
    write!(rig, |w, ctx| Ok::<_, Refusal>(jobs::begin(w, &ctx, JOB, 2, &id("ada"), "do it".into()).await?.0)).unwrap()
}

async fn stand(rig: &Rig, root_id: RootId) -> Option<Stand> {
    let ctx = rig.ctx.clone();
    read!(rig, |r| jobs::stand(r, &ctx, root_id, &id("ada")).await?)
}

/// Who holds the job up, and how, of a job that stands still.
async fn idle(rig: &Rig, root_id: RootId) -> Vec<(String, String)> {
    let stand = stand(rig, root_id).await.expect("a stand");
    stand.idle.into_iter().map(|(agent_id, held)| (agent_id.to_string(), held.how)).collect()
}

fn holds(name: &str, how: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), how.to_owned())]
}

async fn stop(rig: &Rig, name: &'static str) {
    write!(rig, |w, ctx| agents::stop(w, &ctx, &operator(), &id(name), Some("by hand")).await).unwrap();
}

async fn stopped(rig: &Rig, name: &'static str) {
    stop(rig, name).await;
    write!(rig, |w, ctx| agents::stopped(w, &ctx, &id(name)).await).unwrap();
}

async fn start(rig: &Rig, name: &'static str) {
    write!(rig, |w, ctx| agents::start(w, &ctx, &operator(), &id(name)).await).unwrap();
}

/// Mail of this root.
async fn mail(rig: &Rig, to: &str, root_id: RootId) {
    let chain = Chain { root_id, hop: 1 };
    rig.deliver(NewMessage::new(&id(to), Party::System, Kind::Task, "a part of it", chain)).await.unwrap();
}

async fn fail(rig: &Rig, turn_id: TurnId) {
    let ending = Ending::Failed(Refusal::new(Code::BudgetExhausted, "spent"));
    write!(rig, |w, ctx| turns::finish(w, &ctx, turn_id, ending).await).unwrap();
}

async fn revive(rig: &Rig) -> bool {
    write!(rig, |w, ctx| jobs::revive(w, &ctx, JOB, &id("ada"), "do it".into()).await).unwrap()
}

#[tokio::test]
async fn a_job_stands_still_when_nothing_works_and_nothing_that_runs_has_mail() {
    let rig = Rig::new().await;
    let job = begun(&rig).await;
    assert_eq!(stand(&rig, job.root_id).await, None, "mail waits for its lead");
    let turn = rig.take("ada").await.turn;
    assert_eq!(stand(&rig, job.root_id).await, None, "its lead is at work");
    rig.finish(turn.turn_id, "shared out").await.unwrap();
    assert_eq!(stand(&rig, job.root_id).await, Some(Stand::default()));
    // Work of anybody's may lead to more.
    let turn = rig.busy("bob").await;
    assert_eq!(stand(&rig, job.root_id).await, None);
    fail(&rig, turn.turn_id).await;
    assert_eq!(stand(&rig, job.root_id).await, Some(Stand::default()));
}

#[tokio::test]
async fn a_turn_aside_of_another_root_is_not_at_work_and_the_job_waits_for_one_of_its_own() {
    let rig = Rig::new().await;
    rig.limits(|limits| limits.root_tokens_max = 100);
    let aside = async |turn_id: TurnId| {
        assert_eq!(rig.model_start(turn_id, demand(150, 16)).await.unwrap_err().code, Code::BudgetExhausted);
        assert!(rig.turn(turn_id).await.is_aside());
    };
    let parked = async || rig.events().await.iter().filter(|event| event.kind == EventKind::TurnParked).count();
    let job = begun(&rig).await;
    let lead = rig.take("ada").await.turn;
    rig.finish(lead.turn_id, "done").await.unwrap();
    let other = rig.busy("bob").await;
    assert_eq!(stand(&rig, job.root_id).await, None, "it may lead to more");
    aside(other.turn_id).await;
    assert_eq!(stand(&rig, job.root_id).await, Some(Stand::default()));
    // It may go on, and waits again: whoever follows the feed hears of it.
    write!(rig, |w, _cx| turns::retry(w, &operator(), other.turn_id).await).unwrap();
    assert_eq!(stand(&rig, job.root_id).await, None);
    let before = parked().await;
    aside(other.turn_id).await;
    assert_eq!((stand(&rig, job.root_id).await, parked().await), (Some(Stand::default()), before + 1));

    mail(&rig, "cyd", job.root_id).await;
    let part = rig.take("cyd").await.turn;
    aside(part.turn_id).await;
    assert_eq!(stand(&rig, job.root_id).await, None, "it goes on once there is budget for it");
    assert!(!revive(&rig).await);
    stopped(&rig, "cyd").await;
    assert_eq!(idle(&rig, job.root_id).await, holds("cyd", "is stopped and has an open turn"));
}

#[tokio::test]
async fn who_does_not_run_holds_up_what_it_has_of_the_job_and_nothing_else() {
    let rig = Rig::new().await;
    let job = begun(&rig).await;
    let lead = rig.take("ada").await.turn;
    mail(&rig, "bob", job.root_id).await;
    let part = rig.take("bob").await.turn;
    mail(&rig, "cyd", job.root_id).await;
    rig.finish(lead.turn_id, "shared out").await.unwrap();

    // One that is stopping may end its turn yet.
    stopped(&rig, "cyd").await;
    stop(&rig, "bob").await;
    assert_eq!(stand(&rig, job.root_id).await, None);
    write!(rig, |w, ctx| agents::stopped(w, &ctx, &id("bob")).await).unwrap();
    let both = [holds("bob", "is stopped and has an open turn"), holds("cyd", "is stopped and has mail that waits")];
    assert_eq!(idle(&rig, job.root_id).await, both.concat());
    assert!(!revive(&rig).await, "it goes on when they are started");

    // One that runs has work; one that was deleted has none any more.
    start(&rig, "bob").await;
    assert_eq!(stand(&rig, job.root_id).await, None);
    rig.finish(part.turn_id, "read").await.unwrap();
    assert_eq!(idle(&rig, job.root_id).await, both[1]);
    write!(rig, |w, ctx| agents::failed(w, &ctx, &id("cyd"), "past its intensity").await).unwrap();
    assert_eq!(idle(&rig, job.root_id).await, holds("cyd", "has failed and has mail that waits"));
    write!(rig, |w, ctx| agents::delete(w, &ctx, &operator(), &id("cyd")).await).unwrap();
    assert_eq!(stand(&rig, job.root_id).await, Some(Stand::default()));
}

#[tokio::test]
async fn a_job_that_failed_is_begun_again_whatever_else_waits_for_who_does_not_run() {
    let rig = Rig::new().await;
    let job = begun(&rig).await;
    let lead = rig.take("ada").await.turn;
    let other = rig.busy("bob").await;
    stopped(&rig, "bob").await;
    rig.send("cyd", "no matter of the job's").await;
    stopped(&rig, "cyd").await;
    assert!(!revive(&rig).await, "its lead is at work");
    fail(&rig, lead.turn_id).await;
    let events = rig.events().await;
    let spent = events.iter().find(|event| event.kind == EventKind::BudgetExhausted).unwrap();
    assert_eq!(spent.payload["root_id"], job.root_id.to_string(), "whose work it was");
    assert_ne!(other.root_id, job.root_id);
    assert_eq!(stand(&rig, job.root_id).await, Some(Stand::default()));
    assert!(revive(&rig).await && !revive(&rig).await);
    let inbox = rig.inbox("ada").await;
    assert_eq!((inbox.len(), inbox[0].root_id), (1, job.root_id));
    assert_eq!(inbox[0].subject.as_deref(), Some("Job 0123456789abcdef, once more"));
}

#[tokio::test]
async fn a_lead_has_said_no_more_when_its_last_turn_over_the_job_finished() {
    let rig = Rig::new().await;
    let root_id = begun(&rig).await.root_id;
    let said = async || read!(rig, |r| jobs::said_no_more(r, root_id, &id("ada")).await?);
    assert!(!said().await);
    let turn = rig.take("ada").await.turn;
    assert!(!said().await);
    fail(&rig, turn.turn_id).await;
    assert!(!said().await);
    assert!(revive(&rig).await);
    let turn = rig.take("ada").await.turn;
    rig.finish(turn.turn_id, "done").await.unwrap();
    assert!(said().await);
    // Turns over something else say nothing about it.
    let turn = rig.busy("ada").await;
    assert!(said().await);
    fail(&rig, turn.turn_id).await;
    assert!(said().await);
}

#[tokio::test]
async fn a_lead_that_failed_is_told_again_whatever_of_the_job_waits_for_others_and_not_for_itself() {
    let rig = Rig::new().await;
    let root_id = begun(&rig).await.root_id;
    let lead = rig.take("ada").await.turn;
    stopped(&rig, "cyd").await;
    mail(&rig, "cyd", root_id).await;
    fail(&rig, lead.turn_id).await;
    let cyd = holds("cyd", "is stopped and has mail that waits");
    assert_eq!(idle(&rig, root_id).await, cyd);
    assert!(revive(&rig).await, "it waits for nobody");
    let lead = rig.take("ada").await.turn;
    rig.finish(lead.turn_id, "cyd does it").await.unwrap();
    assert_eq!(idle(&rig, root_id).await, cyd);
    assert!(!revive(&rig).await, "it waits for cyd");

    // What waits for the lead itself is there once.
    write!(rig, |w, ctx| agents::delete(w, &ctx, &operator(), &id("cyd")).await).unwrap();
    stopped(&rig, "ada").await;
    assert_eq!(stand(&rig, root_id).await, Some(Stand { lead: Some("is stopped"), ..Stand::default() }));
    assert!(revive(&rig).await && !revive(&rig).await);
    assert_eq!(idle(&rig, root_id).await, holds("ada", "is stopped and has mail that waits"));
    assert_eq!(rig.inbox("ada").await.len(), 1);
}

#[tokio::test]
async fn a_lead_that_is_gone_is_told_nothing_and_one_that_cannot_be_started_is_named_with_why() {
    let rig = Rig::new().await;
    let root_id = begun(&rig).await.root_id;
    rig.take("ada").await;
    stopped(&rig, "ada").await;
    let why = Refusal::new(Code::Conflict, "the world file does not name `ada`").hint("name it, or delete it");
    rig.ctx.set_fitness(Arc::new(
        move |agent: &Agent| if agent.agent_id == id("ada") { Err(why.clone()) } else { Ok(()) },
    ));
    let held = stand(&rig, root_id).await.unwrap().idle.remove(&id("ada")).unwrap();
    assert_eq!(held.how, "is stopped and has an open turn");
    assert_eq!(held.unfit.as_deref(), Some("the world file does not name `ada` (name it, or delete it)"));

    write!(rig, |w, ctx| agents::delete(w, &ctx, &operator(), &id("ada")).await).unwrap();
    assert_eq!(stand(&rig, root_id).await, Some(Stand { lead: Some("is deleted"), ..Stand::default() }));
    let refused = write!(rig, |w, ctx| jobs::revive(w, &ctx, JOB, &id("ada"), "do it".into()).await);
    assert_eq!(refused.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn mail_of_the_job_is_found_behind_however_much_other_mail() {
    let rig = Rig::new().await;
    rig.limits(|limits| limits.inbox_max = 2_000);
    let job = begun(&rig).await;
    let lead = rig.take("ada").await.turn;
    for _ in 0..1_001 {
        rig.deliver(NewMessage::new(&id("bob"), Party::System, Kind::Message, "hello", Chain::root(&rig.ctx)))
            .await
            .unwrap();
    }
    mail(&rig, "bob", job.root_id).await;
    stopped(&rig, "bob").await;
    rig.finish(lead.turn_id, "bob does it").await.unwrap();
    assert_eq!(idle(&rig, job.root_id).await, holds("bob", "is stopped and has mail that waits"));
}

#[tokio::test]
async fn timers_and_watches_of_a_job_that_are_on_are_due() {
    let rig = Rig::new().await;
    let root_id = begun(&rig).await.root_id;
    let names = async || -> Vec<String> {
        read!(rig, |r| jobs::due(r, root_id).await?).into_iter().map(|schedule| schedule.name).collect()
    };
    let chain = Chain { root_id, hop: 1 };
    let set = async |kind, name: &str, when, chain, enabled| {
        let new = NewSchedule { chain, enabled, ..schedules_rig::new(&rig, kind, name, when) };
        schedules_rig::set(&rig, party("ada"), new).await.unwrap()
    };
    let at = When::At { at: rig.ctx.now().plus(Duration::from_secs(20)) };
    let changes = vec![Change::Created];
    let change = When::Change { path: "output".into(), recursive: true, changes, debounce_ms: 500 };
    set(ScheduleKind::Timer, "another", at.clone(), Chain::root(&rig.ctx), true).await;
    set(ScheduleKind::Watch, "off", change.clone(), chain, false).await;
    set(ScheduleKind::Cron, "hourly", schedules_rig::cron("0 * * * *"), chain, true).await;
    assert_eq!(names().await, [""; 0]);
    set(ScheduleKind::Timer, "soon", at, chain, true).await;
    set(ScheduleKind::Watch, "new", change, chain, true).await;
    assert_eq!(names().await, ["soon", "new"]);
    rig.pass(Duration::from_secs(20));
    due(&rig).await;
    assert_eq!(names().await, ["new"], "it has gone off");
}

#[tokio::test]
async fn a_job_that_waits_for_its_own_timer_or_watch_is_not_begun_again_unless_something_failed_since() {
    for kind in [ScheduleKind::Timer, ScheduleKind::Watch] {
        let rig = Rig::new().await;
        let root_id = begun(&rig).await.root_id;
        let when = match kind {
            ScheduleKind::Timer => When::At { at: rig.ctx.now().plus(Duration::from_secs(60)) },
            _ => When::Change {
                path: "output".into(),
                recursive: true,
                changes: vec![Change::Created],
                debounce_ms: 500,
            },
        };
        let mut turn = rig.take("ada").await.turn;
        let chain = Chain { root_id, hop: 1 };
        let new = NewSchedule { chain, ..schedules_rig::new(&rig, kind, "later", when) };
        let later = schedules_rig::set(&rig, party("ada"), new).await.unwrap().schedule_id;
        fail(&rig, turn.turn_id).await;
        assert!(revive(&rig).await, "a lead that failed waits for nothing");
        turn = rig.take("ada").await.turn;
        rig.finish(turn.turn_id, "later").await.unwrap();
        // It knew of the failure.
        rig.pass(Duration::from_secs(1));
        mail(&rig, "ada", root_id).await;
        turn = rig.take("ada").await.turn;
        mail(&rig, "bob", root_id).await;
        let part = rig.take("bob").await.turn;
        rig.finish(turn.turn_id, "later, when bob is done").await.unwrap();
        rig.finish(part.turn_id, "read").await.unwrap();
        assert_eq!(stand(&rig, root_id).await, Some(Stand::default()));
        assert!(!revive(&rig).await, "it waits for its {kind}");

        // What failed over something else is no matter of the job's.
        let other = rig.busy("bob").await;
        fail(&rig, other.turn_id).await;
        assert!(!revive(&rig).await);
        mail(&rig, "bob", root_id).await;
        let part = rig.take("bob").await.turn;
        fail(&rig, part.turn_id).await;
        assert!(revive(&rig).await, "what it waits for may never come");
        rig.pass(Duration::from_secs(1));
        turn = rig.take("ada").await.turn;
        rig.finish(turn.turn_id, "later").await.unwrap();
        assert!(!revive(&rig).await, "once for each failure");
        write!(rig, |w, ctx| schedules::cancel(w, &ctx, &party("ada"), later).await).unwrap();
        assert!(revive(&rig).await, "nothing is due");
    }
}
