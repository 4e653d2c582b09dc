//! A reload applies completely or not at all, and only one runs at a time.

use std::sync::{Arc, Mutex};

use ghost_config::plan::Plan;
use ghost_domain::budget::BudgetLimits;
use ghost_domain::event::EventFilter;
use ghost_domain::{Agent, AgentStatus, Code, Desired, Event, EventKind, Money, ScheduleKind, Scope};
use ghost_operations::agents;
use ghost_provider::Class;

use super::helpers::{
    TestWorld, ask, fake_model, id, operator, read, reloader, say, send, settle, soon, until, while_time_passes,
};
use crate::World;
use crate::world::Reloader;

/// A `world-config.yaml` with these lines for `teams` and `agents`, and with a limit that
/// identifies it.
fn file(hops_max: u32, strategy: &str, more: &str) -> String {
    format!(
        "\
world: {{ id: test, name: Test }}
agents:
  - {{ id: ada, archetype: worker, team: desk }}
  - {{ id: ben, archetype: worker, team: desk }}
{more}teams:
  - {{ name: desk, strategy: {strategy} }}
  - {{ name: late }}
limits: {{ hops_max: {hops_max} }}
llm:
  default_provider: test
  default_model: test
  providers: {{ test: {{ kind: openai, base_url: 'http://127.0.0.1:1' }} }}
"
    )
}

/// The same file without the team `late`.
fn first() -> String {
    file(5, "one_for_one", "").replace("  - { name: late }\n", "")
}

async fn record(world: &World, agent: &str) -> Option<Agent> {
    let agent_id = id(agent);
    read!(world, |r| r.agent_get(&agent_id)?)
}

async fn events(world: &World, kind: EventKind) -> Vec<Event> {
    let filter = EventFilter { kinds: vec![kind.as_str().into()], agent_id: None, channel: None };
    read!(world, |r| r.event_list(0, &filter, 100)?).0
}

#[tokio::test]
async fn a_reload_whose_records_fail_is_undone_completely() {
    let test_world = TestWorld::new(&first());
    let next = file(7, "one_for_all", "  - { id: cyd, archetype: worker }\n");
    let (mut broken, good) = (test_world.plan(&next), test_world.plan(&next));
    // There is no such agent, so its budget is refused after the records of the agents were written.
    broken.budgets.push((Scope::Agent(id("nobody")), BudgetLimits { tokens: Some(1), money: None }));
    test_world.plan(&first());
    let later = fake_model(|_| say("of the new plan"));
    let reloader = reloader(&test_world, vec![broken, good], &later);
    let (world, model) = test_world
        .boot_to_reload(
            |request| {
                assert!(request.agent_id.as_str() != "ada", "the model falls over");
                say("of the old plan")
            },
            reloader,
        )
        .await;
    let before = world.plan();
    assert_eq!(world.reload(&operator(), false).await.unwrap_err().code, Code::NotFound);
    assert!(Arc::ptr_eq(&world.plan(), &before));
    assert_eq!(world.ctx().limits().hops_max, 5);
    assert_eq!(record(&world, "cyd").await, None);
    assert!(world.directory().card(&id("cyd")).is_none());
    assert!(events(&world, EventKind::WorldReloaded).await.is_empty());
    // The supervisors have the old rules again: ben keeps running when ada crashes.
    model.hold("ben");
    send(&world, "ben", "take your time").await;
    soon("ben's call begins", || model.asked_by("ben") == 1).await;
    send(&world, "ada", "fall over").await;
    until(&world, EventKind::AgentCrashed, "ada").await;
    settle().await;
    model.release("ben");
    // The agents have their old model again.
    assert_eq!(ask(&world, "ben", "whose are you?").await.reply.unwrap(), "of the old plan");
    assert_eq!(model.asked_by("ben"), 2, "the first call was not cut off");
    assert!(later.requests().is_empty());
    // After the file is repaired, the same reload succeeds.
    let done = world.reload(&operator(), false).await.unwrap();
    assert_eq!(done.created, [id("cyd")]);
    assert_eq!(world.ctx().limits().hops_max, 7);
    assert_eq!(ask(&world, "cyd", "whose are you?").await.reply.unwrap(), "of the new plan");
    assert_eq!(events(&world, EventKind::WorldReloaded).await.len(), 1);
}

/// A reload of many agents takes several transactions. It ends with one event, and a refusal in a later one leaves no
/// agent that the plan before does not know at work.
#[tokio::test]
async fn a_reload_of_many_agents_goes_in_slices() {
    let many = |agents: usize, beats: &str| {
        let more: String =
            (0..agents).map(|n| format!("  - {{ id: crowd{n:04}, archetype: worker, autostart: false }}\n")).collect();
        file(7, "one_for_one", &more).replace("limits:", &format!("{beats}limits:"))
    };
    let beats = "heartbeat: { every: 30m }\n";
    let test_world = TestWorld::new(&first());
    let mut broken = test_world.plan(&many(1_300, ""));
    broken.budgets.push((Scope::Agent(id("nobody")), BudgetLimits { tokens: Some(1), money: None }));
    let plans = vec![
        broken,
        test_world.plan(&many(1_300, beats)),
        test_world.plan(&many(1_300, "")),
        test_world.plan(&many(3, "")),
    ];
    test_world.plan(&first());
    let model = fake_model(|_| say("well"));
    let reloader = reloader(&test_world, plans, &model);
    let (world, _) = test_world.boot_to_reload(|_| say("well"), reloader).await;
    let before = world.plan();
    assert_eq!(world.reload(&operator(), false).await.unwrap_err().code, Code::NotFound);
    assert!(Arc::ptr_eq(&world.plan(), &before));
    assert!(events(&world, EventKind::WorldReloaded).await.is_empty());
    assert_eq!(record(&world, "crowd0700").await.unwrap().desired, Desired::Stopped);
    let beating = async || read!(world, |r| r.schedule_list(None, Some(ScheduleKind::Heartbeat), None)?).len();
    let done = world.reload(&operator(), false).await.unwrap();
    assert_eq!(done.created.len(), 302, "two slices of the refused reload stay, and that of the refusal was undone");
    assert_eq!(beating().await, 1_000, "a page of them");
    world.reload(&operator(), false).await.unwrap();
    assert_eq!(beating().await, 0);
    world.reload(&operator(), false).await.unwrap();
    assert_eq!(events(&world, EventKind::WorldReloaded).await.len(), 3);
    assert_eq!(record(&world, "ada").await.unwrap().status, AgentStatus::Running);
}

/// A reload creates an agent again that an operator deleted and the file still names. A refused one must not.
#[tokio::test]
async fn a_refused_reload_brings_no_deleted_agent_back() {
    let test_world = TestWorld::new(&first());
    let mut broken = test_world.plan(&first());
    broken.budgets.push((Scope::Agent(id("nobody")), BudgetLimits { tokens: Some(1), money: None }));
    let good = test_world.plan(&first());
    let model = fake_model(|_| say("well"));
    let reloader = reloader(&test_world, vec![broken, good], &model);
    let (world, _) = test_world.boot_to_reload(|_| say("well"), reloader).await;
    world.write(move |w| agents::delete(w, &operator(), &id("ben"))).await.unwrap();
    assert_eq!(world.reload(&operator(), false).await.unwrap_err().code, Code::NotFound);
    assert!(record(&world, "ben").await.unwrap().is_deleted());
    assert_eq!(world.reload(&operator(), false).await.unwrap().created, [id("ben")]);
}

#[tokio::test]
async fn the_second_of_two_reloads_waits_for_the_first() {
    let test_world = TestWorld::new(&first());
    // The first one starts a supervisor for a new team, which takes a moment. The second one does not.
    let with = test_world.plan(&file(7, "one_for_one", "  - { id: cyd, archetype: worker, team: late }\n"));
    let without = test_world.plan(&first().replace("hops_max: 5", "hops_max: 8"));
    test_world.plan(&first());
    let model = fake_model(|_| say("well"));
    let reloader = reloader(&test_world, vec![with, without], &model);
    let (world, _) = test_world.boot_to_reload(|_| say("well"), reloader).await;
    let by = operator();
    let (one, two) = tokio::join!(world.reload(&by, false), world.reload(&by, false));
    assert_eq!(one.unwrap().created, [id("cyd")]);
    assert_eq!(two.unwrap().stopped, [id("cyd")], "what the first has made is the second's to stop");
    // Plan, limits and records come from one file.
    assert_eq!((world.plan().limits.hops_max, world.ctx().limits().hops_max), (8, 8));
    let cyd = world.wait_until_stopped(&id("cyd")).await.unwrap();
    assert_eq!((cyd.desired, cyd.status), (Desired::Stopped, AgentStatus::Stopped));
}

/// The results of the reloads, in order.
async fn reloads(world: &World, count: usize) -> Vec<crate::Reconciled> {
    let mut done = Vec::new();
    for _ in 0..count {
        done.push(world.reload(&operator(), false).await.unwrap());
    }
    done
}

// covers: WORLD-14
#[tokio::test]
async fn an_agent_that_the_file_names_again_starts_again() {
    let with = |autostart: bool| {
        first().replace(
            "{ id: ben, archetype: worker, team: desk }",
            &format!("{{ id: ben, archetype: worker, team: desk, autostart: {autostart} }}"),
        )
    };
    let without = first().replace("  - { id: ben, archetype: worker, team: desk }\n", "");
    let test_world = TestWorld::new(&first());
    let plans =
        [&without, &with(true), &without, &with(false), &with(true), &without, &with(true), &without, &with(true)];
    let plans: Vec<Plan> = plans.iter().map(|file| test_world.plan(file)).collect();
    test_world.plan(&first());
    let model = fake_model(|_| say("well"));
    let (world, _) = test_world.boot_to_reload(|_| say("well"), reloader(&test_world, plans, &model)).await;

    let [gone, back] = reloads(&world, 2).await.try_into().unwrap();
    assert_eq!((gone.stopped, back.started), (vec![id("ben")], vec![id("ben")]));
    assert!(back.plan.contains("> agent ben: ") && !back.plan.contains("+ agent"), "{}", back.plan);
    assert_eq!(ask(&world, "ben", "are you there?").await.reply.unwrap(), "well");
    assert_eq!(record(&world, "ben").await.unwrap().status_reason, None);

    // An agent without autostart stays stopped, and later reloads do not start it.
    let [_, waits, still] = reloads(&world, 3).await.try_into().unwrap();
    assert!(waits.started.is_empty() && waits.plan.contains("~ agent ben: "), "{}", waits.plan);
    let ben = record(&world, "ben").await.unwrap();
    assert_eq!((ben.desired, ben.status_reason.is_some(), still.started), (Desired::Stopped, true, vec![]));

    // An agent that an operator stopped stays stopped, whether that was before or after it was dropped from the file.
    let [_, stays] = reloads(&world, 2).await.try_into().unwrap();
    assert!(stays.started.is_empty() && stays.plan.contains("~ agent ben: "), "{}", stays.plan);
    let ben = id("ben");
    let start = world.write(move |w| agents::start(w, &operator(), &ben));
    start.await.unwrap();
    reloads(&world, 1).await;
    world.stop_agent(&operator(), &id("ben"), Some("for good".into())).await.unwrap();
    assert!(!record(&world, "ben").await.unwrap().dropped);
    let [stays] = reloads(&world, 1).await.try_into().unwrap();
    assert!(stays.started.is_empty() && stays.plan.contains("~ agent ben: "), "{}", stays.plan);
}

#[tokio::test]
async fn a_budget_that_the_file_no_longer_names_is_removed() {
    let limited = format!("{}budgets: {{ world: {{ tokens: 5 }} }}\n", first());
    let test_world = TestWorld::new(&limited);
    let plans = vec![test_world.plan(&first())];
    test_world.plan(&limited);
    let model = fake_model(|_| say("well"));
    let (world, _) = test_world.boot_to_reload(|_| say("well"), reloader(&test_world, plans, &model)).await;
    let limits = async || read!(world, |r| r.budget_get(&Scope::World)?).map(|budget| budget.limits);
    assert_eq!(limits().await.unwrap().tokens, Some(5));
    let [done] = reloads(&world, 1).await.try_into().unwrap();
    assert!(done.plan.starts_with("~ budget world: "), "{}", done.plan);
    assert!(limits().await.unwrap().is_none());
}

#[tokio::test]
async fn agents_created_at_run_time_follow_the_daily_budget_of_their_archetype() {
    let test_world = TestWorld::new(&first());
    let cheap = |usd| {
        let mut plan = test_world.plan(&first());
        let mut archetype = ghost_config::plan::Archetype::clone(&plan.archetypes["worker"]);
        archetype.config.daily_money = usd;
        plan.archetypes.insert("worker".into(), Arc::new(archetype));
        plan
    };
    let plans = vec![cheap(Some(Money(70))), cheap(Some(Money(50))), cheap(None)];
    test_world.plan(&first());
    let model = fake_model(|_| say("well"));
    let (world, _) = test_world.boot_to_reload(|_| say("well"), reloader(&test_world, plans, &model)).await;
    let create = world.write(move |w| {
        for name in ["dan", "own"] {
            let new = agents::NewAgent {
                agent_id: id(name),
                archetype: "worker".into(),
                name: name.into(),
                team: None,
                kind: ghost_domain::AgentKind::Dynamic,
                desired: Desired::Running,
                overrides: serde_json::Value::Null,
                daily_money: None,
                heartbeat: None,
                owner: None,
                goal: None,
                chain: ghost_operations::mail::Chain::root(w.ctx),
            };
            agents::create(w, &operator(), new)?;
        }
        let own = ghost_operations::budgets::NewLimits { tokens: None, money: Some(Some(Money(9))) };
        ghost_operations::budgets::set(w, &operator(), &"agent:own/day".parse()?, own).map(drop)
    });
    create.await.unwrap();
    let limit = async |scope: &str| {
        let scope: Scope = scope.parse().unwrap();
        read!(world, |r| r.budget_get(&scope)?).and_then(|budget| budget.limits.money)
    };
    for wanted in [Some(Money(70)), Some(Money(50)), None] {
        reloads(&world, 1).await;
        assert_eq!((limit("agent:dan/day").await, limit("agent:own/day").await), (wanted, Some(Money(9))));
    }
    assert_eq!(limit("agent:ada/day").await, None, "what the file says of its own agents comes with the file");
}

#[tokio::test]
async fn a_reload_keeps_the_pool_of_each_provider() {
    let test_world = TestWorld::new(&first());
    let plans = vec![test_world.plan(&first())];
    let later = fake_model(|_| say("of the new plan"));
    let (world, _) = test_world.boot_to_reload(|_| say("well"), reloader(&test_world, plans, &later)).await;
    let pool = || Arc::clone(&world.engine().providers().get("test").unwrap().pool);
    let (before, _slot) = (pool(), pool().admit(Class::Machine).await);
    reloads(&world, 1).await;
    assert!(Arc::ptr_eq(&pool(), &before));
    assert_eq!(pool().in_use(), 1, "the call under way counts");
    assert_eq!(ask(&world, "ben", "whose are you?").await.reply.unwrap(), "of the new plan");
}

/// A disk that does not answer blocks the reload, not the world.
#[tokio::test]
async fn files_that_cannot_be_read_do_not_block_agents() {
    let test_world = TestWorld::new(&first());
    let next = || test_world.plan(&file(7, "one_for_all", ""));
    let plans = vec![next(), next()];
    test_world.plan(&first());
    let read = reloader(&test_world, plans, &fake_model(|_| say("well")));
    let (release, held) = std::sync::mpsc::sync_channel::<()>(2);
    let held = Mutex::new(held);
    let reloader: Reloader = Box::new(move || {
        held.lock().unwrap().recv().unwrap();
        read()
    });
    let (world, _) = test_world.boot_to_reload(|_| say("well"), reloader).await;
    let stuck = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.reload(&operator(), false).await }
    });
    settle().await;
    assert_eq!(ask(&world, "ada", "how are you?").await.reply.unwrap(), "well");
    test_world.clock.advance(std::time::Duration::from_secs(20));
    let refusal = stuck.await.unwrap().unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable);
    assert!(refusal.message.contains("20 s"), "{refusal}");
    // A second reload does not read while the first one still reads.
    let refusal = world.reload(&operator(), true).await.unwrap_err();
    assert_eq!(refusal.code, Code::Unavailable, "{refusal}");
    assert_eq!(world.ctx().limits().hops_max, 5);
    release.send(()).unwrap();
    release.send(()).unwrap();
    loop {
        match world.reload(&operator(), false).await {
            Ok(_) => break,
            Err(refusal) => assert_eq!(refusal.code, Code::Unavailable, "{refusal}"),
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(world.ctx().limits().hops_max, 7);
}

#[tokio::test]
async fn turns_that_wait_for_the_root_budget_continue_when_a_reload_or_a_start_raises_it() {
    let with = |tokens: u64| first().replace("hops_max: 5", &format!("hops_max: 5, root_tokens_max: {tokens}"));
    let test_world = TestWorld::new(&with(20));
    let more = test_world.plan(&with(1_000_000));
    let less = test_world.plan(&with(20));
    let model = fake_model(|_| say("well"));
    let reloader = reloader(&test_world, vec![more, less], &model);
    let (world, _) = test_world.boot_to_reload(|_| say("well"), reloader).await;
    send(&world, "ada", "work").await;
    until(&world, EventKind::TurnParked, "ada").await;
    world.reload(&operator(), false).await.unwrap();
    until(&world, EventKind::TurnFinished, "ada").await;
    world.reload(&operator(), false).await.unwrap();
    send(&world, "ben", "work").await;
    until(&world, EventKind::TurnParked, "ben").await;
    while_time_passes(&test_world, world.shutdown("test")).await;
    drop(world);
    test_world.plan(&with(1_000_000));
    let (world, _) = test_world.boot(|_| say("well")).await;
    until(&world, EventKind::TurnFinished, "ben").await;
}

// covers: WORLD-14
#[tokio::test]
async fn the_mail_of_an_agent_that_is_renamed_in_the_middle_of_a_turn_waits_for_its_old_name() {
    let test_world = TestWorld::new(&first());
    let plans = vec![test_world.plan(&first().replace("id: ben,", "id: benno,")), test_world.plan(&first())];
    let later = fake_model(|_| say("well"));
    let (world, model) = test_world.boot_to_reload(|_| say("well"), reloader(&test_world, plans, &later)).await;
    model.hold("ben");
    send(&world, "ben", "one").await;
    soon("ben's call begins", || model.asked_by("ben") == 1).await;
    send(&world, "ben", "two").await;
    let [renamed] = reloads(&world, 1).await.try_into().unwrap();
    assert_eq!((renamed.created, renamed.stopped), (vec![id("benno")], vec![id("ben")]));
    model.release("ben");
    while_time_passes(&test_world, world.wait_until_stopped(&id("ben"))).await.unwrap();
    // The new name is another agent, with mail of its own.
    assert_eq!(ask(&world, "benno", "who are you?").await.reply.unwrap(), "well");
    assert_eq!((later.asked_by("ben"), later.asked_by("benno")), (0, 1));
    let depth = async || {
        let ben = id("ben");
        read!(world, |r| r.inbox_depth(&ben)?)
    };
    assert!(depth().await > 0);
    let [back] = reloads(&world, 1).await.try_into().unwrap();
    assert_eq!((back.started, back.stopped), (vec![id("ben")], vec![id("benno")]));
    while_time_passes(&test_world, async {
        while depth().await > 0 || later.asked_by("ben") == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(model.asked_by("ben"), 1, "what was under way was not asked again");
}

// covers: WORLD-14, WORLD-15
#[tokio::test]
async fn a_reload_during_a_shutdown_ends_and_loses_nothing() {
    let test_world = TestWorld::new(&first());
    let with = file(7, "one_for_one", "  - { id: cyd, archetype: worker, team: late }\n");
    let plans = vec![test_world.plan(&with)];
    test_world.plan(&first());
    let later = fake_model(|_| say("well"));
    let (world, model) = test_world.boot_to_reload(|_| say("well"), reloader(&test_world, plans, &later)).await;
    model.hold("ben");
    send(&world, "ben", "one").await;
    soon("ben's call begins", || model.asked_by("ben") == 1).await;
    let by = operator();
    // Applied or refused, but over, and the shutdown too.
    let both = async { tokio::join!(world.shutdown("test"), world.reload(&by, false)) };
    let (_, reloaded) = while_time_passes(&test_world, both).await;
    assert!(reloaded.is_ok_and(|done| done.created == [id("cyd")]) || record(&world, "cyd").await.is_none());
    drop(world);
    test_world.plan(&with);
    let (world, model) = test_world.boot(|_| say("well")).await;
    while_time_passes(&test_world, until(&world, EventKind::TurnFinished, "ben")).await;
    assert_eq!(ask(&world, "cyd", "are you there?").await.reply.unwrap(), "well");
    assert_eq!(model.asked_by("ben"), 1);
}
