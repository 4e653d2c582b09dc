//! A cron job's own turn: it has no past, later turns mention it in one line, and it has its own limits and
//! model (SCHED-05, SCHED-08).

use std::time::Duration;

use ghost_domain::Price;
use ghost_domain::schedule::{JobMode, Missed, OwnTurn, RunStatus, Target, When};
use ghost_domain::{Code, Schedule, ScheduleKind, ScheduleRun, Timestamp, TurnStatus};
use ghost_operations::mail::Chain;
use ghost_operations::schedules::{self, NewSchedule};
use ghost_provider::testing::{Reply, call, say};
use serde_json::json;

use super::agent_world::{AgentWorld, id, operator, read, write};

fn own_turn() -> OwnTurn {
    OwnTurn { target: Target::Nowhere, timeout_seconds: None, max_rounds: None, model: None }
}

/// A job of ada's that is run by hand.
async fn job(world: &AgentWorld, turn: OwnTurn) -> Schedule {
    let new = NewSchedule {
        kind: ScheduleKind::Cron,
        agent_id: id("ada"),
        name: "digest".into(),
        when: When::Every { every_ms: 86_400_000, anchor: Timestamp(0) },
        message: "write the digest".into(),
        missed: Missed::Skip,
        mode: JobMode::OwnTurn(turn),
        enabled: true,
        chain: Chain::root(world.ctx()),
        baseline: None,
    };
    write!(world, |w| schedules::set(w, &operator(), new)).unwrap()
}

async fn run(world: &AgentWorld, job: &Schedule) -> ScheduleRun {
    let schedule_id = job.schedule_id;
    write!(world, |w| {
        let chain = Chain::root(w.ctx);
        schedules::run_now(w, &operator(), schedule_id, chain)
    })
    .unwrap();
    world.work("ada").await.unwrap();
    read!(world, |r| r.schedule_runs(schedule_id, 1)?).remove(0)
}

/// The text of the model's newest request.
fn shown(world: &AgentWorld) -> String {
    let requests = world.model.requests();
    requests.last().unwrap().messages.iter().map(|message| message.visible_text()).collect::<Vec<_>>().join("\n")
}

// covers: SCHED-05
#[tokio::test]
async fn a_job_turn_recalls_nothing_and_is_recalled_as_one_line() {
    let world = AgentWorld::new().await;
    world
        .model
        .reply_with(|_, n| say(["I know the secret word: plum.", "First line.\nA long second line.", "Well."][n]));
    world.send("ada", "what is the word?").await;
    world.work("ada").await.unwrap();
    let job = job(&world, own_turn()).await;
    assert_eq!(run(&world, &job).await.status, RunStatus::Done);
    let own = shown(&world);
    assert!(own.contains("write the digest") && own.contains("a turn of its own"), "{own}");
    assert!(!own.contains("plum"), "{own}");
    world.send("ada", "and now?").await;
    world.work("ada").await.unwrap();
    let later = shown(&world);
    assert!(later.contains("I know the secret word: plum."), "{later}");
    let lines: Vec<&str> = later.lines().filter(|line| line.contains("First line.")).collect();
    assert_eq!(lines.len(), 1, "{later}");
    assert!(
        lines[0].starts_with("<job>Cron job digest") && lines[0].ends_with("First line. A long second line.</job>")
    );
}

#[tokio::test]
async fn each_job_turn_is_mentioned_once() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| say(if n == 0 { "The word is plum." } else { "Done." }));
    world.send("ada", "what is the word?").await;
    world.work("ada").await.unwrap();
    let job = job(&world, own_turn()).await;
    let session = std::sync::Arc::clone(&world.session);
    for _ in 0..4 {
        run(&world, &job).await;
    }
    // A session that stays shows the same as one that reads from the store.
    for jobs in [4, 5] {
        world.send("ada", "and now?").await;
        world.in_time(crate::turn::work(&world.engine, &id("ada"), &session)).await.unwrap();
        let later = shown(&world);
        assert!(later.contains("The word is plum."), "{later}");
        assert_eq!(later.matches("<job>").count(), jobs, "{later}");
        let schedule_id = job.schedule_id;
        write!(world, |w| {
            let chain = Chain::root(w.ctx);
            schedules::run_now(w, &operator(), schedule_id, chain)
        })
        .unwrap();
        world.in_time(crate::turn::work(&world.engine, &id("ada"), &session)).await.unwrap();
    }
}

// covers: SCHED-08
#[tokio::test]
async fn a_job_has_its_own_round_limit() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| call("test.look", json!({ "n": n })));
    let job = job(&world, OwnTurn { max_rounds: Some(2), ..own_turn() }).await;
    let ended = run(&world, &job).await;
    assert_eq!((world.model.requests().len(), ended.status), (2, RunStatus::Failed));
    assert!(ended.note.unwrap().contains('2'));
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.model.requests().len(), 2 + 15, "the next turn has the agent's own limit");
}

// covers: SCHED-08
#[tokio::test]
async fn a_jobs_timeout_interrupts_a_hanging_model_and_a_hanging_tool() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| Reply::Hang);
    let job = job(&world, OwnTurn { timeout_seconds: Some(7), ..own_turn() }).await;
    let began = world.ctx().now();
    let ended = run(&world, &job).await;
    let took = world.ctx().now().since(began);
    assert!((Duration::from_secs(7)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert_eq!((ended.status, world.model.requests().len()), (RunStatus::Failed, 1));
    assert!(ended.note.unwrap().starts_with(Code::Timeout.as_str()));
    for _ in 0..4 {
        world.model.reply_with(|_, _| Reply::Hang);
        run(&world, &job).await;
    }
    assert!(world.engine.models_down().is_empty(), "a timeout of seven seconds does not count as an outage");
    // What had arrived of the answer is kept (LOOP-03).
    world.model.reply_with(|_, _| Reply::Begin(vec!["<think>I wonder.</think>", "There are ", "at least 4"]));
    assert_eq!(run(&world, &job).await.status, RunStatus::Failed);
    let turn = world.turn("ada").await;
    assert_eq!((turn.status, turn.text.as_deref()), (TurnStatus::TimedOut, Some("There are at least 4")));
    assert!(turn.truncated);
    world.tool_state.hangs.store(true, std::sync::atomic::Ordering::SeqCst);
    world.model.reply_with(|_, n| call("test.look", json!({ "n": n })));
    let began = world.ctx().now();
    let ended = run(&world, &job).await;
    let took = world.ctx().now().since(began);
    assert!((Duration::from_secs(7)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert_eq!((ended.status, world.turn("ada").await.status), (RunStatus::Failed, TurnStatus::TimedOut));
}

// covers: SCHED-08
#[tokio::test]
async fn a_job_uses_the_model_that_it_names() {
    let world = AgentWorld::with(|plan| {
        plan.llm.prices.insert("test/two".into(), Price::default());
    })
    .await;
    let job = job(&world, OwnTurn { model: Some("two".into()), ..own_turn() }).await;
    assert_eq!(run(&world, &job).await.status, RunStatus::Done);
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let models: Vec<String> = world.model.requests().into_iter().map(|request| request.model).collect();
    assert_eq!(models, ["two", "one"]);
    // The model has been removed from the world.
    let gone = AgentWorld::new().await;
    let job = self::job(&gone, OwnTurn { model: Some("two".into()), ..own_turn() }).await;
    let ended = run(&gone, &job).await;
    assert_eq!((ended.status, gone.model.requests().len()), (RunStatus::Failed, 0));
    assert!(ended.note.unwrap().contains("`two`"));
}
