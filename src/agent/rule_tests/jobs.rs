//! A cron job's own turn (SCHED-05, SCHED-08): what it recalls, what is recalled of it, and its bounds and model.

use std::time::Duration;

use ghost_domain::Price;
use ghost_domain::schedule::{Deliver, JobOptions, Missed, Payload, RunStatus, When};
use ghost_domain::{Code, Schedule, ScheduleKind, ScheduleRun, Timestamp, TurnStatus};
use ghost_rules::mail::Chain;
use ghost_rules::schedules::{self, NewSchedule};
use serde_json::json;

use super::fakes::{Reply, call, say};
use super::rig::{Rig, id, operator, read, write};

fn own_turn() -> JobOptions {
    JobOptions { payload: Payload::AgentTurn, deliver: Deliver::None, ..JobOptions::default() }
}

/// A job of ada's that is set off by hand.
async fn job(rig: &Rig, options: JobOptions) -> Schedule {
    let new = NewSchedule {
        kind: ScheduleKind::Cron,
        agent_id: id("ada"),
        name: "digest".into(),
        when: When::Every { every_ms: 86_400_000, anchor: Timestamp(0) },
        message: "write the digest".into(),
        missed: Missed::Skip,
        options,
        enabled: true,
        chain: Chain::root(rig.ctx()),
        baseline: None,
    };
    write!(rig, |w, ctx| schedules::set(w, &ctx, &operator(), new).await).unwrap()
}

async fn run(rig: &Rig, job: &Schedule) -> ScheduleRun {
    let schedule_id = job.schedule_id;
    write!(rig, |w, ctx| {
        let chain = Chain::root(&ctx);
        schedules::run_now(w, &ctx, &operator(), schedule_id, chain).await
    })
    .unwrap();
    rig.work("ada").await.unwrap();
    read!(rig, |r| r.schedule_runs(schedule_id, 1).await?).remove(0)
}

/// Everything that the model was shown with its newest request.
fn shown(rig: &Rig) -> String {
    let asked = rig.model.asked();
    asked.last().unwrap().messages.iter().map(|message| message.visible_text()).collect::<Vec<_>>().join("\n")
}

// covers: SCHED-05
#[tokio::test]
async fn it_recalls_nothing_and_one_line_is_recalled_of_it() {
    let rig = Rig::new().await;
    rig.model.does(|_, n| say(["I know the secret word: plum.", "First line.\nA long second line.", "Well."][n]));
    rig.send("ada", "what is the word?").await;
    rig.work("ada").await.unwrap();
    let job = job(&rig, own_turn()).await;
    assert_eq!(run(&rig, &job).await.status, RunStatus::Done);
    let own = shown(&rig);
    assert!(own.contains("write the digest") && own.contains("a turn of its own"), "{own}");
    assert!(!own.contains("plum") && !own.contains("<recent>"), "{own}");
    rig.send("ada", "and now?").await;
    rig.work("ada").await.unwrap();
    let later = shown(&rig);
    assert!(later.contains("plum") && later.contains("<said>I know"), "{later}");
    let lines: Vec<&str> = later.lines().filter(|line| line.contains("First line.")).collect();
    assert_eq!(lines.len(), 1, "{later}");
    assert!(
        lines[0].starts_with("<job>Cron job digest") && lines[0].ends_with("First line. A long second line.</job>")
    );
}

#[tokio::test]
async fn jobs_do_not_push_out_what_was_said() {
    let rig = Rig::with(|plan| plan.limits.history_turns = 2).await;
    rig.model.does(|_, n| say(if n == 0 { "The word is plum." } else { "Done." }));
    rig.send("ada", "what is the word?").await;
    rig.work("ada").await.unwrap();
    let job = job(&rig, own_turn()).await;
    let session = std::sync::Arc::clone(&rig.session);
    for _ in 0..4 {
        run(&rig, &job).await;
    }
    // An actor that stays awake remembers as one does that reads.
    for _ in 0..2 {
        rig.send("ada", "and now?").await;
        rig.in_time(crate::turn::work(&rig.engine, &id("ada"), &session)).await.unwrap();
        let later = shown(&rig);
        assert!(later.contains("The word is plum."), "{later}");
        assert_eq!(later.matches("<job>").count(), 2, "{later}");
        let schedule_id = job.schedule_id;
        write!(rig, |w, ctx| {
            let chain = Chain::root(&ctx);
            schedules::run_now(w, &ctx, &operator(), schedule_id, chain).await
        })
        .unwrap();
        rig.in_time(crate::turn::work(&rig.engine, &id("ada"), &session)).await.unwrap();
    }
}

// covers: SCHED-08
#[tokio::test]
async fn its_rounds_are_its_own() {
    let rig = Rig::new().await;
    rig.model.does(|_, n| call("test.look", json!({ "n": n })));
    let job = job(&rig, JobOptions { max_rounds: Some(2), ..own_turn() }).await;
    let ended = run(&rig, &job).await;
    assert_eq!((rig.model.asked().len(), ended.status), (2, RunStatus::Failed));
    assert!(ended.note.unwrap().contains("2 model calls"));
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    assert_eq!(rig.model.asked().len(), 2 + 15, "the next turn has the agent's own");
}

// covers: SCHED-08
#[tokio::test]
async fn its_time_cuts_off_a_model_that_does_not_answer_and_a_tool_that_hangs() {
    let rig = Rig::new().await;
    rig.model.does(|_, _| Reply::Hang);
    let job = job(&rig, JobOptions { timeout_seconds: Some(7), ..own_turn() }).await;
    let began = rig.ctx().now();
    let ended = run(&rig, &job).await;
    let took = rig.ctx().now().since(began);
    assert!((Duration::from_secs(7)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert_eq!((ended.status, rig.model.asked().len()), (RunStatus::Failed, 1));
    assert!(ended.note.unwrap().starts_with(Code::Timeout.as_str()));
    for _ in 0..4 {
        rig.model.does(|_, _| Reply::Hang);
        run(&rig, &job).await;
    }
    assert!(
        rig.engine.models_down().is_empty(),
        "seven seconds of one job say nothing of a model that others wait for"
    );
    rig.probe.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    rig.model.does(|_, n| call("test.look", json!({ "n": n })));
    let began = rig.ctx().now();
    let ended = run(&rig, &job).await;
    let took = rig.ctx().now().since(began);
    assert!((Duration::from_secs(7)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert_eq!((ended.status, rig.turn("ada").await.status), (RunStatus::Failed, TurnStatus::Failed));
}

// covers: SCHED-08
#[tokio::test]
async fn it_thinks_with_the_model_that_it_names() {
    let rig = Rig::with(|plan| {
        plan.llm.prices.insert("test/two".into(), Price::default());
    })
    .await;
    let job = job(&rig, JobOptions { model: Some("two".into()), ..own_turn() }).await;
    assert_eq!(run(&rig, &job).await.status, RunStatus::Done);
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    let models: Vec<String> = rig.model.asked().into_iter().map(|request| request.model).collect();
    assert_eq!(models, ["two", "one"]);
    // The world has lost it meanwhile.
    let gone = Rig::new().await;
    let job = self::job(&gone, JobOptions { model: Some("two".into()), ..own_turn() }).await;
    let ended = run(&gone, &job).await;
    assert_eq!((ended.status, gone.model.asked().len()), (RunStatus::Failed, 0));
    assert!(ended.note.unwrap().contains("no model `two`"));
}
