//! A cron job's own turn: the earlier turns that it recalls, how it is recalled, and its limits and
//! model (SCHED-05, SCHED-08).

use std::time::Duration;

use ghost_domain::Price;
use ghost_domain::schedule::{JobMode, Missed, OwnTurn, RunStatus, Target, When};
use ghost_domain::{Code, Schedule, ScheduleKind, ScheduleRun, Timestamp, TurnStatus};
use ghost_rules::mail::Chain;
use ghost_rules::schedules::{self, NewSchedule};
use serde_json::json;

use super::fakes::{Reply, call, say};
use super::rig::{Rig, id, operator, read, write};

fn own_turn() -> OwnTurn {
    OwnTurn { target: Target::Nowhere, timeout_seconds: None, max_rounds: None, model: None }
}

/// A job of ada's that is run by hand.
async fn job(rig: &Rig, turn: OwnTurn) -> Schedule {
    let new = NewSchedule {
        kind: ScheduleKind::Cron,
        agent_id: id("ada"),
        name: "digest".into(),
        when: When::Every { every_ms: 86_400_000, anchor: Timestamp(0) },
        message: "write the digest".into(),
        missed: Missed::Skip,
        mode: JobMode::OwnTurn(turn),
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

/// The text of the model's newest request.
fn shown(rig: &Rig) -> String {
    let requests = rig.model.requests();
    requests.last().unwrap().messages.iter().map(|message| message.visible_text()).collect::<Vec<_>>().join("\n")
}

// covers: SCHED-05
#[tokio::test]
async fn a_job_turn_recalls_nothing_and_is_recalled_as_one_line() {
    let rig = Rig::new().await;
    rig.model.reply_with(|_, n| say(["I know the secret word: plum.", "First line.\nA long second line.", "Well."][n]));
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
async fn job_turns_do_not_displace_other_turns() {
    let rig = Rig::with(|plan| plan.limits.history_turns = 2).await;
    rig.model.reply_with(|_, n| say(if n == 0 { "The word is plum." } else { "Done." }));
    rig.send("ada", "what is the word?").await;
    rig.work("ada").await.unwrap();
    let job = job(&rig, own_turn()).await;
    let session = std::sync::Arc::clone(&rig.session);
    for _ in 0..4 {
        run(&rig, &job).await;
    }
    // A session that stays recalls the same as one that reads from the store.
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
async fn a_job_has_its_own_round_limit() {
    let rig = Rig::new().await;
    rig.model.reply_with(|_, n| call("test.look", json!({ "n": n })));
    let job = job(&rig, OwnTurn { max_rounds: Some(2), ..own_turn() }).await;
    let ended = run(&rig, &job).await;
    assert_eq!((rig.model.requests().len(), ended.status), (2, RunStatus::Failed));
    assert!(ended.note.unwrap().contains('2'));
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    assert_eq!(rig.model.requests().len(), 2 + 15, "the next turn has the agent's own limit");
}

// covers: SCHED-08
#[tokio::test]
async fn a_jobs_timeout_interrupts_a_hanging_model_and_a_hanging_tool() {
    let rig = Rig::new().await;
    rig.model.reply_with(|_, _| Reply::Hang);
    let job = job(&rig, OwnTurn { timeout_seconds: Some(7), ..own_turn() }).await;
    let began = rig.ctx().now();
    let ended = run(&rig, &job).await;
    let took = rig.ctx().now().since(began);
    assert!((Duration::from_secs(7)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert_eq!((ended.status, rig.model.requests().len()), (RunStatus::Failed, 1));
    assert!(ended.note.unwrap().starts_with(Code::Timeout.as_str()));
    for _ in 0..4 {
        rig.model.reply_with(|_, _| Reply::Hang);
        run(&rig, &job).await;
    }
    assert!(rig.engine.models_down().is_empty(), "a timeout of seven seconds does not count as an outage");
    rig.tool_state.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    rig.model.reply_with(|_, n| call("test.look", json!({ "n": n })));
    let began = rig.ctx().now();
    let ended = run(&rig, &job).await;
    let took = rig.ctx().now().since(began);
    assert!((Duration::from_secs(7)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert_eq!((ended.status, rig.turn("ada").await.status), (RunStatus::Failed, TurnStatus::Failed));
}

// covers: SCHED-08
#[tokio::test]
async fn a_job_uses_the_model_that_it_names() {
    let rig = Rig::with(|plan| {
        plan.llm.prices.insert("test/two".into(), Price::default());
    })
    .await;
    let job = job(&rig, OwnTurn { model: Some("two".into()), ..own_turn() }).await;
    assert_eq!(run(&rig, &job).await.status, RunStatus::Done);
    rig.send("ada", "go").await;
    rig.work("ada").await.unwrap();
    let models: Vec<String> = rig.model.requests().into_iter().map(|request| request.model).collect();
    assert_eq!(models, ["two", "one"]);
    // The model has been removed from the world.
    let gone = Rig::new().await;
    let job = self::job(&gone, OwnTurn { model: Some("two".into()), ..own_turn() }).await;
    let ended = run(&gone, &job).await;
    assert_eq!((ended.status, gone.model.requests().len()), (RunStatus::Failed, 0));
    assert!(ended.note.unwrap().contains("`two`"));
}
