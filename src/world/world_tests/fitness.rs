//! An agent that cannot run under the world's files fails before it takes more mail, and continues when the files
//! are repaired.

use std::sync::Arc;

use ghost_config::plan::Plan;
use ghost_domain::{Agent, AgentStatus, Code, Envelope, EventKind, Turn, TurnStatus};
use ghost_store::tables::TurnFilter;

use super::helpers::{
    TestWorld, fake_model, id, operator, read, reloader, say, send, settle, soon, until, while_time_passes, write,
};
use crate::World;

const FILE: &str = "\
world: { id: test, name: Test }
agents:
  - { id: ada, archetype: worker }
  - { id: ben, archetype: quiet }
llm:
  default_provider: test
  default_model: test
  providers: { test: { kind: openai, base_url: 'http://127.0.0.1:1' } }
";

const GOOD: &str = "## LLM\nprovider: test\nmodel: test\n";
const REFUSED: &str = "## Toolbox\nsource: toolbox/nowhere/toolbox.yaml\n- a\n";

/// A world in which ben's archetype can be broken, and two plans: one with the good archetype, one with the broken one.
fn setup() -> (TestWorld, Plan, Plan) {
    let test_world = TestWorld::new(FILE);
    for file in ["soul.md", "goal.md"] {
        test_world.files.write(&format!("archetype/quiet/{file}"), "Be quiet.");
    }
    test_world.files.write("archetype/quiet/config.md", REFUSED);
    let broken = test_world.plan(FILE);
    test_world.files.write("archetype/quiet/config.md", GOOD);
    let good = test_world.plan(FILE);
    (test_world, good, broken)
}

async fn ben(world: &World) -> Agent {
    read!(world, |r| r.agent_get(&id("ben"))?).unwrap()
}

async fn waiting(world: &World) -> Vec<Envelope> {
    read!(world, |r| r.inbox_pending(&id("ben"), 10)?)
}

async fn turns(world: &World) -> Vec<Turn> {
    let filter = TurnFilter { agent_id: Some(id("ben")), ..TurnFilter::default() };
    read!(world, |r| r.turn_list(&filter)?)
}

fn failed_with_a_reason(agent: &Agent) {
    assert_eq!((agent.status, agent.cannot_run), (AgentStatus::Failed, true));
    let reason = agent.status_reason.as_deref().unwrap();
    assert!(reason.contains("toolbox/nowhere/toolbox.yaml") && reason.contains("reload"), "{reason}");
}

#[tokio::test]
async fn a_running_turn_may_finish_and_then_no_mail_is_taken_until_the_files_are_repaired() {
    let (test_world, good, broken) = setup();
    let later = fake_model(|_| say("of the new files"));
    let again = test_world.plan(FILE);
    drop(good);
    let reloader = reloader(&test_world, vec![broken.clone(), broken, again], &later);
    let (world, model) = test_world.boot_to_reload(|_| say("of the old files"), reloader).await;
    model.hold("ben");
    send(&world, "ben", "one").await;
    soon("ben's call begins", || model.asked_by("ben") == 1).await;
    send(&world, "ben", "two").await;

    // A dry run reports the change but does not make it.
    let dry = world.reload(&operator(), true).await.unwrap();
    assert!(dry.plan.contains("! agent ben: "), "{}", dry.plan);
    assert!(!ben(&world).await.cannot_run);
    let done = world.reload(&operator(), false).await.unwrap();
    assert_eq!(done.plan, dry.plan);
    settle().await;
    assert_eq!(ben(&world).await.status, AgentStatus::Running, "it finishes its turn");
    model.release("ben");
    until(&world, EventKind::AgentFailed, "ben").await;
    settle().await;
    failed_with_a_reason(&ben(&world).await);
    assert_eq!(turns(&world).await.iter().map(|turn| turn.status).collect::<Vec<_>>(), [TurnStatus::Finished]);
    send(&world, "ben", "three").await;
    settle().await;
    assert_eq!(waiting(&world).await.len(), 2);

    // A start is refused with the remedy.
    let refusal = write!(world, |w| ghost_operations::agents::start(w, &operator(), &id("ben"))).unwrap_err();
    assert_eq!(refusal.code, Code::Conflict);
    assert!(refusal.message.contains("toolbox/nowhere") && refusal.hint.unwrap().contains("reload"));
    assert_eq!(waiting(&world).await.len(), 2);

    let repaired = world.reload(&operator(), false).await.unwrap();
    assert!(repaired.plan.contains("> agent ben: "), "{}", repaired.plan);
    soon("ben works", || later.asked_by("ben") == 1).await;
    settle().await;
    assert!(waiting(&world).await.is_empty());
    let all = turns(&world).await;
    assert!(all.len() == 2 && all.iter().all(|turn| turn.status == TurnStatus::Finished), "{all:?}");
    let ben = ben(&world).await;
    assert_eq!((ben.status, ben.cannot_run, ben.status_reason), (AgentStatus::Running, false, None));
}

#[tokio::test]
async fn a_turn_longer_than_the_grace_period_stays_open_and_resumes() {
    let (test_world, good, broken) = setup();
    let model = fake_model(|_| say("well"));
    let reloader = reloader(&test_world, vec![broken, good], &model);
    let (world, first) = test_world.boot_to_reload(|_| say("never"), reloader).await;
    first.hold("ben");
    send(&world, "ben", "one").await;
    soon("ben's call begins", || first.asked_by("ben") == 1).await;
    world.reload(&operator(), false).await.unwrap();
    while_time_passes(&test_world, until(&world, EventKind::AgentFailed, "ben")).await;
    settle().await;
    failed_with_a_reason(&ben(&world).await);
    assert_eq!(turns(&world).await[0].status, TurnStatus::Open);
    world.reload(&operator(), false).await.unwrap();
    soon("ben works", || model.asked_by("ben") == 1).await;
    settle().await;
    let all = turns(&world).await;
    assert_eq!((all.len(), all[0].status), (1, TurnStatus::Finished));
}

#[tokio::test]
async fn an_agent_checks_the_plan_before_it_takes_its_mail() {
    let (test_world, good, broken) = setup();
    let model = fake_model(|_| say("well"));
    let reloader = reloader(&test_world, vec![good], &model);
    let (world, first) = test_world.boot_to_reload(|_| say("well"), reloader).await;
    // The agent is awake and has finished a turn.
    send(&world, "ben", "one").await;
    soon("ben works", || first.asked_by("ben") == 1).await;
    settle().await;
    // The plan changes before the records do, as in the middle of a reload.
    let broken = Arc::new(broken);
    let plan = Arc::clone(&broken);
    world.ctx().set_fitness(Arc::new(move |agent| plan.may_run(agent)));
    world.engine().services.set_plan(broken);
    send(&world, "ben", "two").await;
    until(&world, EventKind::AgentFailed, "ben").await;
    settle().await;
    failed_with_a_reason(&ben(&world).await);
    assert_eq!((waiting(&world).await.len(), turns(&world).await.len()), (1, 1));
    world.reload(&operator(), false).await.unwrap();
    soon("ben works", || model.asked_by("ben") == 1).await;
    settle().await;
    assert!(waiting(&world).await.is_empty());
}

#[tokio::test]
async fn a_boot_fails_an_agent_that_cannot_run_and_a_later_boot_repairs_it() {
    let (test_world, good, _) = setup();
    test_world.files.write("archetype/quiet/config.md", REFUSED);
    let (world, model) = test_world.boot(|_| say("well")).await;
    failed_with_a_reason(&ben(&world).await);
    send(&world, "ben", "one").await;
    settle().await;
    assert_eq!((waiting(&world).await.len(), model.asked_by("ben")), (1, 0));
    world.shutdown("test").await;
    test_world.files.write("archetype/quiet/config.md", GOOD);
    drop(good);
    let (world, model) = test_world.boot(|_| say("well")).await;
    soon("ben works", || model.asked_by("ben") == 1).await;
    settle().await;
    assert!(waiting(&world).await.is_empty());
    // An agent that was stopped in the meantime stays stopped.
    assert!(!ben(&world).await.cannot_run);
}
