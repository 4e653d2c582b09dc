use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::ProviderKind;
use ghost_domain::journal::Step;
use ghost_domain::transcript::{Block, Opaque, TokenUsage};
use ghost_domain::turn::ParkCause;
use ghost_domain::{Activity, AskStatus, Code, Money, Price, Scope, TurnStatus};
use ghost_operations::budgets::{self, NewLimits};
use ghost_provider::testing::{FakeModel, Reply, block, calls, fail, provider_plan, say};
use ghost_provider::{ErrorKind, ModelRequest, Provider, ProviderError, Providers};
use serde_json::json;

use super::agent_world::{AgentWorld, id, operator, read, write};

fn failures(steps: &[Step]) -> usize {
    steps.iter().filter(|step| matches!(step, Step::ModelFailed { .. })).count()
}

// covers: LOOP-09
#[tokio::test]
async fn transient_errors_are_retried_and_possible_costs_count() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| match n {
        0 => fail(ErrorKind::RateLimited),
        1 => fail(ErrorKind::BrokenStream),
        _ => say("at last"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("at last"));
    assert_eq!(failures(&world.steps("ada").await), 2);
    let requests = world.model.requests();
    assert!(requests.len() == 3 && requests[0].messages == requests[2].messages);
    // The broken stream is charged, the rate-limited call is not.
    let sums = read!(world, |r| r.usage_sum(&Default::default())?);
    assert_eq!(sums.iter().map(|sum| sum.calls).sum::<u64>(), 2);
    let account = read!(world, |r| r.budget_get(&ghost_domain::Scope::World)?.unwrap());
    assert_eq!(account.reserved_tokens, 0);
    assert_eq!(account.spent_tokens, sums.iter().map(|sum| sum.tokens.total()).sum::<u64>());
    assert!(world.activity.0.lock().unwrap().contains(&(id("ada"), Activity::Queued)));
}

// covers: LOOP-09
#[tokio::test]
async fn a_fall_back_is_asked_when_the_first_model_fails() {
    let world = AgentWorld::with(|plan| {
        for agent in &mut plan.agents {
            agent.model.fallback_models = vec!["two".into(), "test/three".into()];
        }
    })
    .await;
    world.model.reply_with(|request, _| match request.model.as_str() {
        "one" => fail(ErrorKind::Server),
        "two" => fail(ErrorKind::UnknownModel),
        _ => say("third time lucky"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let models: Vec<String> = world.model.requests().into_iter().map(|request| request.model).collect();
    assert_eq!(models, ["one", "one", "one", "two", "three"]);
    assert_eq!(world.turn("ada").await.model.as_deref(), Some("three"));
}

#[tokio::test]
async fn a_refused_key_leads_to_a_fall_back_at_another_provider() {
    let world = AgentWorld::with(|plan| {
        for agent in &mut plan.agents {
            agent.model.fallback_models = vec!["test/two".into(), "other/three".into()];
        }
        plan.llm.providers.insert("other".into(), provider_plan(ProviderKind::OpenAi, None));
    })
    .await;
    let provider = |model: &Arc<FakeModel>| Arc::clone(model) as Arc<dyn Provider>;
    let plan = provider_plan(ProviderKind::OpenAi, None);
    let mut providers = Providers::with("test", plan.clone(), provider(&world.model), world.clock.clone());
    providers.insert("other", plan, provider(&world.model));
    world.engine.set_providers(Arc::new(providers));
    world.model.reply_with(|request, _| match request.model.as_str() {
        "three" => say("with another key"),
        _ => fail(ErrorKind::Unauthorized),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let models: Vec<String> = world.model.requests().into_iter().map(|request| request.model).collect();
    assert_eq!(models, ["one", "three"], "the same key is not tried with another model");
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("with another key"));
}

#[tokio::test]
async fn a_fall_back_without_a_price_is_skipped_under_a_money_budget() {
    for priced in [vec!["test/one", "test/three"], vec!["test/one"]] {
        let world = AgentWorld::with(|plan| {
            for agent in &mut plan.agents {
                agent.model.fallback_models = vec!["two".into(), "three".into()];
            }
            let price = Price { input: Money(1), output: Money(1), ..Price::default() };
            plan.llm.prices.extend(priced.iter().map(|model| ((*model).to_owned(), price)));
        })
        .await;
        let limits = NewLimits { tokens: None, money: Some(Some(Money(1_000_000))) };
        write!(world, |w| budgets::set(w, &operator(), &Scope::World, limits)).unwrap();
        world.model.reply_with(|request, _| match request.model.as_str() {
            "one" => fail(ErrorKind::Server),
            _ => say("paid for"),
        });
        world.ask("ada").await;
        if priced.len() == 2 {
            world.work("ada").await.unwrap();
        } else {
            world.work_until_parked("ada").await;
        }
        let models: Vec<String> = world.model.requests().into_iter().map(|request| request.model).collect();
        let why_skipped = world.steps("ada").await.into_iter().find_map(|step| match step {
            Step::PassedOver { model, why } if model == "two" => Some(why),
            _ => None,
        });
        assert!(why_skipped.unwrap().contains("test/two"), "the journal says why it was skipped");
        if priced.len() == 2 {
            assert_eq!(models, ["one", "one", "one", "three"]);
            assert_eq!(world.turn("ada").await.text.as_deref(), Some("paid for"));
        } else {
            assert_eq!(models, ["one", "one", "one"]);
            let cause = world.turn("ada").await.parked.map(|parked| parked.cause);
            let one = ParkCause::Model { provider: "test".into(), model: "one".into() };
            assert_eq!(cause, Some(one), "the outage is the reason");
        }
    }
}

#[tokio::test]
async fn a_failed_answer_is_charged_as_the_provider_counted() {
    let world = AgentWorld::new().await;
    let counted = TokenUsage { input: 100, output: 5, ..TokenUsage::default() };
    world.model.reply_with(move |_, n| match n {
        0 => Reply::Fail(ProviderError::new(ErrorKind::BadAnswer, "empty").usage(Some(counted))),
        _ => fail(ErrorKind::BadRequest),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let sums = read!(world, |r| r.usage_sum(&Default::default())?);
    assert_eq!((sums[0].calls, sums[0].estimated_calls, sums[0].tokens), (1, 0, counted));
    let turn = world.turn("ada").await;
    assert_eq!((turn.input_tokens, turn.output_tokens), (100, 5));
}

#[tokio::test]
async fn a_permanent_error_fails_the_turn_and_the_agent_goes_on() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, _| fail(ErrorKind::BadRequest));
    let ask = world.ask("ada").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.model.requests().len(), 1, "a bad request is not retried");
    assert_eq!(world.turn("ada").await.status, TurnStatus::Dead);
    let row = world.ask_row(ask.ask_id).await;
    assert_eq!((row.status, row.code), (AskStatus::Failed, Some(Code::Unavailable)));
    world.model.reply_with(|_, _| say("well"));
    let ask = world.ask("ada").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.ask_row(ask.ask_id).await.status, AskStatus::Answered);
}

#[tokio::test]
async fn a_hanging_model_call_ends_at_its_time_limit() {
    let world = AgentWorld::new().await;
    world.limits(|limits| limits.model_seconds = 5);
    world.model.reply_with(|_, n| if n == 0 { Reply::Hang } else { say("well") });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    let steps = world.steps("ada").await;
    let error = steps.iter().find_map(|step| match step {
        Step::ModelFailed { error, .. } => Some(error.clone()),
        _ => None,
    });
    assert!(error.unwrap().contains("5 s"));
    assert_eq!(world.turn("ada").await.status, TurnStatus::Finished);
}

#[tokio::test]
async fn a_pause_that_the_provider_asks_for_is_waited() {
    let world = AgentWorld::new().await;
    let began = world.ctx().now();
    world.model.reply_with(|_, n| match n {
        0 => {
            let error = ProviderError::new(ErrorKind::RateLimited, "slow down");
            Reply::Fail(error.retry_after(Some(Duration::from_secs(1))))
        }
        _ => say("well"),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert!(world.ctx().now().since(began) >= Duration::from_secs(1));
    assert!(world.turn("ada").await.text.is_some());
}

#[tokio::test]
async fn a_restart_does_not_reset_the_attempts() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|_, n| if n < 2 { fail(ErrorKind::Server) } else { Reply::Hang });
    world.send("ada", "go").await;
    world.in_time(world.work_until("ada", world.model.stalled.notified())).await;
    world.model.reply_with(|_, _| fail(ErrorKind::Server));
    world.work_until_parked("ada").await;
    assert_eq!(world.model.requests().len(), 1, "the third attempt is the last one, also after a restart");
}

/// A call with opaque state of the model's provider.
fn signed(n: usize) -> Reply {
    let json = format!("{{\"signature\":\"s{n}\"}}");
    let opaque = Block::Opaque(Opaque { author: "test/one".into(), json, attached: true });
    calls(vec![opaque, block(&format!("c{n}"), "test.look", json!({ "n": n }))])
}

fn signatures(request: &ModelRequest) -> usize {
    let blocks = request.messages.iter().flat_map(|message| &message.blocks);
    blocks.filter(|block| matches!(block, Block::Opaque(_))).count()
}

#[tokio::test]
async fn stale_opaque_state_is_dropped_once_and_the_turn_goes_on() {
    let world = AgentWorld::new().await;
    world.model.reply_with(|request, n| match n {
        0 | 1 => signed(n),
        2 => Reply::Fail(ProviderError::new(ErrorKind::StaleState, "the signature is not valid")),
        3 => signed(n),
        _ if signatures(request) == 1 => say("done"),
        _ => Reply::Fail(ProviderError::new(ErrorKind::BadRequest, "what came since is missing")),
    });
    world.send("ada", "go").await;
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.text.as_deref(), Some("done"));
    let sent: Vec<usize> = world.model.requests().iter().map(signatures).collect();
    assert_eq!(sent, [0, 1, 2, 0, 1]);
    assert_eq!(world.steps("ada").await.iter().filter(|step| step.name() == "state_dropped").count(), 1);
}

#[tokio::test]
async fn a_resumed_turn_omits_dropped_state_and_a_second_stale_error_ends_it() {
    let world = AgentWorld::new().await;
    let stale = || Reply::Fail(ProviderError::new(ErrorKind::StaleState, "the signature is not valid"));
    world.model.reply_with(move |_, n| match n {
        0 => signed(n),
        1 => stale(),
        _ => Reply::Hang,
    });
    world.send("ada", "go").await;
    world.in_time(world.work_until("ada", world.model.stalled.notified())).await;
    world.model.reply_with(move |request, _| if signatures(request) == 0 { stale() } else { say("no") });
    world.work("ada").await.unwrap();
    assert_eq!(world.turn("ada").await.status, TurnStatus::Dead);
    assert_eq!(world.model.requests().len(), 1);
}
