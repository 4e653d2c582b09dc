use std::time::Duration;

use ghost_domain::journal::Step;
use ghost_domain::turn::{ParkCause, WaitMode};
use ghost_domain::{AskStatus, Code, EventKind, MailState, Scope, TurnStatus};
use ghost_operations::budgets::{self, NewLimits};
use ghost_operations::{Wait, asks, dead_letters, turns};
use ghost_provider::testing::{Reply, call, say};
use ghost_provider::{ErrorKind, ProviderError};
use ghost_store::tables::TurnFilter;
use serde_json::json;

use super::agent_world::{AgentWorld, id, operator, read, write};

fn down() -> Reply {
    Reply::Fail(ProviderError::new(ErrorKind::Overloaded, "no capacity"))
}

impl AgentWorld {
    /// Lets `hours` pass while these agents work.
    async fn run_hours(&self, hours: u64, names: &[&str]) {
        self.run_seconds(hours * 3_600, names).await;
    }

    /// Lets `seconds` pass while these agents work.
    pub(super) async fn run_seconds(&self, seconds: u64, names: &[&str]) {
        let until = self.ctx().now().plus(Duration::from_secs(seconds));
        while self.ctx().now() < until {
            // An agent without work reads its inbox again every hour.
            let piece = self.ctx().now().plus(Duration::from_secs(3_600)).min(until);
            let work = futures_util::future::join_all(names.iter().map(|name| {
                let (engine, agent_id) = (self.engine.clone(), id(name));
                async move { crate::turn::work(&engine, &agent_id, &Default::default()).await }
            }));
            let due = async {
                while self.ctx().now() < piece {
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                    self.clock.advance(Duration::from_secs(2));
                }
            };
            let done = async {
                work.await;
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = done => {}
                () = due => {}
            }
        }
    }
}

// covers: LOOP-09
#[tokio::test]
async fn an_outage_parks_the_turn_and_it_resumes_where_it_was() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| if n == 0 { call("test.look", json!({ "n": 7 })) } else { down() });
    world.send("ada", "first").await;
    let turn = world.work_until_parked("ada").await;
    assert_eq!((turn.status, turn.rounds), (TurnStatus::Open, 1));
    let parked = turn.parked.unwrap();
    assert_eq!(parked.cause, ParkCause::Model { provider: "test".into(), model: "one".into() });
    assert_eq!(parked.wait_mode, WaitMode::Blocking);
    assert_eq!((world.count(EventKind::ProviderDown).await, world.count(EventKind::TurnParked).await), (1, 1));
    world.send("ada", "second").await;
    world.model.reply_with(|_, _| say("well"));
    world.work("ada").await.unwrap();
    let turns = read!(world, |r| r.turn_list(&TurnFilter { agent_id: Some(id("ada")), ..TurnFilter::default() })?);
    assert!(turns.iter().all(|turn| turn.status == TurnStatus::Finished && turn.parked.is_none()), "{turns:?}");
    assert_eq!(turns.len(), 2, "in order: the second waited for the first");
    assert_eq!(world.model.requests().len(), 2, "the answered request is not repeated");
    assert_eq!(world.count(EventKind::ProviderUp).await, 1);
    assert!(world.inbox("ada").await.is_empty());
}

#[tokio::test]
async fn no_turn_opens_on_a_model_that_is_down_and_probes_go_one_at_a_time() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| down());
    world.send("ada", "go").await;
    world.work_until_parked("ada").await;
    for name in ["bob", "cyd"] {
        world.send(name, "go").await;
    }
    world.model.reply_with(|_, _| down());
    world.run_hours(5, &["ada", "bob", "cyd"]).await;
    let requests = world.model.requests().len();
    assert!((200..=320).contains(&requests), "one call a minute at most: {requests}");
    for name in ["bob", "cyd"] {
        assert_eq!(world.inbox(name).await.len(), 1, "its mail waits");
    }
    let turns = read!(world, |r| r.turn_list(&TurnFilter::default())?);
    assert!(turns.len() <= 3 && turns.iter().all(|turn| turn.status == TurnStatus::Open), "{turns:?}");
    assert_eq!(world.count(EventKind::ProviderDown).await, 1, "one event for one outage");
    assert_eq!(world.count(EventKind::TurnFinished).await, 0);
    world.model.reply_with(|_, _| say("well"));
    world.run_hours(1, &["ada", "bob", "cyd"]).await;
    let finished = TurnFilter { status: Some(TurnStatus::Finished), ..TurnFilter::default() };
    assert_eq!(read!(world, |r| r.turn_list(&finished)?).len(), 3);
}

// covers: LOOP-09
#[tokio::test]
async fn a_fall_back_is_asked_at_once_while_the_first_model_is_down() {
    let world = AgentWorld::with(|plan| {
        for agent in &mut plan.agents {
            agent.model.fallback_models = vec!["two".into()];
        }
    })
    .await;
    world.model.reply_with(|request, _| if request.model == "one" { down() } else { say("second best") });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    world.send("ada", "again").await;
    world.model.reply_with(|request, _| if request.model == "one" { down() } else { say("second best") });
    world.work("ada").await.unwrap();
    let models: Vec<String> = world.model.requests().into_iter().map(|request| request.model).collect();
    assert!(models.len() <= 2 && models.last().is_some_and(|model| model == "two"), "{models:?}");
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
}

#[tokio::test]
async fn a_turn_that_fails_while_others_are_answered_becomes_a_dead_letter() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|request, _| {
        let poison = request.messages.iter().any(|message| message.visible_text().contains("poison"));
        if poison { Reply::Fail(ProviderError::new(ErrorKind::Server, "it broke")) } else { say("well") }
    });
    world.send("ada", "poison").await;
    let mut mail = 0;
    let healthy = async {
        loop {
            mail += 1;
            world.send("bob", "hello").await;
            crate::turn::work(&world.engine, &id("bob"), &Default::default()).await.unwrap();
            world.ctx().ports.clock.sleep(Duration::from_millis(250)).await;
        }
    };
    let (agent, session) = (id("ada"), Default::default());
    world
        .in_time(async {
            tokio::select! {
                biased;
                done = crate::turn::work(&world.engine, &agent, &session) => done.unwrap(),
                () = healthy => {}
            }
        })
        .await;
    assert_eq!(world.turn("ada").await.status, TurnStatus::Dead);
    assert_eq!(world.count(EventKind::DeadLetterHeld).await, 1);
    assert!(mail > 1);
}

#[tokio::test]
async fn a_turn_with_a_spent_root_is_set_aside_until_the_limit_is_raised() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| say("well"));
    let spent = world.send("ada", "too dear").await;
    let root = Scope::Root(spent.root_id);
    let limit = |tokens| NewLimits { tokens: Some(Some(tokens)), money: None };
    let scope = root.clone();
    write!(world, |w| budgets::set(w, &operator(), &scope, limit(20))).unwrap();
    world.work("ada").await.unwrap();
    let parked = world.turn("ada").await;
    assert!(parked.is_in_background(), "{parked:?}");
    world.send("ada", "something else").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished, "the agent goes on with other work");
    let turn_id = parked.turn_id;
    let taken = read!(world, |r| r.messages_of_turn(turn_id)?);
    assert_eq!(taken.len(), 1, "its mail is kept");
    write!(world, |w| budgets::set(w, &operator(), &root, limit(1_000_000))).unwrap();
    world.work("ada").await.unwrap();
    let turn = read!(world, |r| r.turn_get(turn_id)?.unwrap());
    assert_eq!((turn.status, turn.parked), (TurnStatus::Finished, None));
}

/// Takes the only slot of the provider until it is dropped.
async fn take_the_slot(world: &AgentWorld) -> ghost_provider::Slot {
    let entry = world.engine.providers().get("test").unwrap();
    entry.pool.resize(1);
    entry.pool.admit(ghost_provider::Class::Machine).await
}

#[tokio::test]
async fn no_turn_opens_before_its_provider_has_a_slot_and_later_mail_joins_it() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| say("well"));
    let slot = take_the_slot(&world).await;
    world.send("ada", "first").await;
    let later = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(read!(world, |r| r.turns_open()?).is_empty(), "the mail waits in the store");
        world.send("ada", "second").await;
        drop(slot);
    };
    let (worked, ()) = tokio::join!(world.work("ada"), later);
    worked.unwrap();
    assert_eq!((world.turn("ada").await.status, world.model.requests().len()), (TurnStatus::Finished, 1));
    assert!(world.inbox("ada").await.is_empty(), "both messages were in the turn");
}

#[tokio::test]
async fn a_turn_that_goes_on_does_not_wait_for_a_slot_that_its_own_agent_holds() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| say("well"));
    let spent = world.send("ada", "too dear").await;
    let root = Scope::Root(spent.root_id);
    let limit = |tokens| NewLimits { tokens: Some(Some(tokens)), money: None };
    let scope = root.clone();
    write!(world, |w| budgets::set(w, &operator(), &scope, limit(20))).unwrap();
    world.work("ada").await.unwrap();
    let turn_id = world.turn("ada").await.turn_id;
    // The agent waits for the only slot with other mail, and meanwhile its parked turn may go on.
    let slot = take_the_slot(&world).await;
    world.send("ada", "something else").await;
    let later = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        write!(world, |w| budgets::set(w, &operator(), &root, limit(1_000_000))).unwrap();
        drop(slot);
    };
    let (worked, ()) = tokio::join!(world.work("ada"), later);
    worked.unwrap();
    let turn = read!(world, |r| r.turn_get(turn_id)?.unwrap());
    assert_eq!(turn.status, TurnStatus::Finished);
}

#[tokio::test]
async fn an_ask_that_waits_for_a_model_times_out_with_the_outage_as_reason() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| down());
    let ask = world.ask("ada").await;
    world.work_until_parked("ada").await;
    let other = world.ask("bob").await;
    world.run_hours(1, &["ada", "bob"]).await;
    for ask_id in [ask.ask_id, other.ask_id] {
        // As maintenance does while both wait.
        world.ctx().set_waiting(&id("bob"), Some(Wait::for_reason("one at test is down: overloaded")));
        write!(world, |w| asks::expire(w, ask_id)).unwrap();
        let row = world.ask_row(ask_id).await;
        assert_eq!(row.status, AskStatus::TimedOut);
        assert!(row.error.unwrap().contains("one at test is down: overloaded"));
    }
}

#[tokio::test]
async fn a_person_hears_at_once_what_must_be_repaired_and_the_mail_waits() {
    for (kind, heard) in [(ErrorKind::Unauthorized, true), (ErrorKind::UnknownModel, true), (ErrorKind::Gateway, false)]
    {
        let world = AgentWorld::new().await;
        world.model.reply_with(move |_, _| Reply::Fail(ProviderError::new(kind, "HTTP 404: no such model")));
        let first = world.ask("ada").await;
        world.work_until_parked("ada").await;
        // One that comes while its agent waits, and one to an agent whose turn never opens.
        world.ctx().set_waiting(&id("cyd"), Some(Wait { reason: "down".into(), repair: kind.repair() }));
        let (second, third) = (world.ask("bob").await, world.ask("cyd").await);
        world.run_seconds(300, &["bob"]).await;
        let expected = if heard { AskStatus::Failed } else { AskStatus::Open };
        for ask in [&first, &second, &third] {
            let row = world.ask_row(ask.ask_id).await;
            assert_eq!(
                (row.status, row.code.is_some(), row.hint.is_some()),
                (expected, heard, heard),
                "{kind}: {row:?}"
            );
        }
        for ask in [&first, &second, &third] {
            let message_id = ask.message_id;
            let mail = read!(world, |r| r.message_get(message_id)?.unwrap());
            assert!(matches!(mail.state, MailState::Taken | MailState::Pending), "{kind}: {:?}", mail.state);
        }
        world.model.reply_with(|_, _| say("well"));
        world.run_seconds(300, &["ada", "bob", "cyd"]).await;
        for ask in [first, second, third] {
            assert_eq!(
                world.ask_row(ask.ask_id).await.reply.as_deref(),
                Some("well"),
                "{kind}: the late answer is kept"
            );
        }
    }
}

#[tokio::test]
async fn an_agent_that_asks_waits_on_while_a_model_must_be_repaired() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|request, _| {
        if request.agent_id == id("ada") {
            return call("syscall.ask", json!({ "agent_id": "bob", "question": "how many?" }));
        }
        Reply::Fail(ProviderError::new(ErrorKind::Unauthorized, "HTTP 401"))
    });
    world.send("ada", "go").await;
    world.run_seconds(300, &["ada", "bob"]).await;
    let asks = world.asks().await;
    assert!(asks.is_empty() || asks.iter().all(|ask| ask.asker.party.agent().is_some()), "{asks:?}");
    let failed = world.count(EventKind::AskFailed).await;
    assert_eq!(failed, 0, "only people can repair a model");
}

#[tokio::test]
async fn a_dead_letter_that_is_retried_begins_its_attempts_anew() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| Reply::Fail(ProviderError::new(ErrorKind::BadAnswer, "no JSON")));
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!((world.turn("ada").await.status, world.model.requests().len()), (TurnStatus::Dead, 3));
    let letter = read!(world, |r| r.dead_letter_list(None, None, None, 9)?).remove(0);
    write!(world, |w| dead_letters::retry(w, &operator(), letter.dead_letter_id, false)).unwrap();
    world.model.reply_with(|_, n| {
        if n == 0 { Reply::Fail(ProviderError::new(ErrorKind::BadAnswer, "no JSON")) } else { say("well") }
    });
    world.work("ada").await.unwrap();
    let turn = world.turn("ada").await;
    assert_eq!((turn.turn_id, turn.status), (letter.turn_id, TurnStatus::Finished));
}

#[tokio::test]
async fn a_parked_turn_can_be_retried_at_once() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| down());
    world.send("ada", "go").await;
    let turn = world.work_until_parked("ada").await;
    let turn_id = turn.turn_id;
    world.run_hours(1, &["ada"]).await;
    world.model.reply_with(|_, _| say("well"));
    // The next probe is a minute away; a retry request makes the actor try now.
    let session = std::sync::Arc::default();
    let agent_id = id("ada");
    let mut work = Box::pin(crate::turn::work(&world.engine, &agent_id, &session));
    for _ in 0..1_000 {
        assert!(futures_util::future::poll_immediate(&mut work).await.is_none());
        tokio::task::yield_now().await;
    }
    write!(world, |w| turns::retry(w, &operator(), turn_id)).unwrap();
    session.retry();
    world.in_time(work).await.unwrap();
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
    let again = write!(world, |w| turns::retry(w, &operator(), turn_id));
    assert_eq!(again.unwrap_err().code, Code::Conflict);
}

#[tokio::test]
async fn failed_attempts_park_the_turn_within_its_time_and_do_not_use_that_time() {
    let world = AgentWorld::with(|plan| plan.limits.turn_seconds = 60).await;
    world.model.reply_with(|_, _| Reply::Hang);
    world.send("ada", "go").await;
    let began = world.ctx().now();
    world.work_until_parked("ada").await;
    assert!(world.ctx().now().since(began) < Duration::from_secs(75), "three attempts of 300 s would be 900 s");
    world.model.reply_with(|_, _| say("well"));
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
    assert!(world.steps("ada").await.iter().any(|step| matches!(step, Step::Parked { .. })));
}
