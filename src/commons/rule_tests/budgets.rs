use ghost_domain::{Code, Money, Scope, TurnStatus};
use ghost_store::tables::UsageFilter;

use super::rig::{PRICE, Rig, code, demand, id, operator, read, used, write};
use crate::budgets::{self, Demand, NewLimits};
use crate::turns;

async fn limit(rig: &Rig, scope: &Scope, tokens: Option<u64>, money: Option<u64>) {
    let (scope, limits) =
        (scope.clone(), NewLimits { tokens: tokens.map(Some), money: money.map(|money| Some(Money(money))) });
    write!(rig, |w, cx| budgets::set(w, &cx, &operator(), &scope, limits).await).unwrap();
}

/// Reserved and spent tokens of an account.
async fn account(rig: &Rig, scope: &Scope) -> (u64, u64) {
    let scope = scope.clone();
    read!(rig, |r| r.budget_get(&scope).await?.map_or((0, 0), |b| (b.reserved_tokens, b.spent_tokens)))
}

#[tokio::test]
async fn a_call_is_held_in_every_scope_and_charged_what_it_took() {
    let rig = Rig::new().await;
    let turn = rig.busy("ada").await;
    let scopes = [Scope::World, Scope::Agent(id("ada")), Scope::Team("crew".into()), Scope::Root(turn.root_id)];
    for scope in &scopes[1..] {
        limit(&rig, scope, Some(1_000), None).await;
    }
    let (held, most) = rig.model_start(turn.turn_id, demand(100, 50)).await.unwrap();
    assert_eq!(most, 50);
    for scope in &scopes {
        assert_eq!(account(&rig, scope).await, (150, 0), "{scope}");
    }
    let after = rig.model_answer(turn.turn_id, held, used(90, 20)).await.unwrap();
    assert_eq!((after.rounds, after.input_tokens, after.output_tokens, after.cost), (1, 90, 20, Money(110)));
    for scope in &scopes {
        assert_eq!(account(&rig, scope).await, (0, 110), "{scope}");
    }
    let other = account(&rig, &Scope::Agent(id("bob"))).await;
    assert_eq!(other, (0, 0));
    // What the provider would not say is taken to be all that was held.
    let (held, _) = rig.model_start(turn.turn_id, demand(100, 50)).await.unwrap();
    rig.model_answer(turn.turn_id, held, None).await.unwrap();
    assert_eq!(account(&rig, &Scope::World).await, (0, 260));
}

#[tokio::test]
async fn what_is_left_shrinks_the_answer_and_then_refuses_and_a_raise_goes_on() {
    let rig = Rig::new().await;
    let turn = rig.busy("ada").await.turn_id;
    let team = Scope::Team("crew".into());
    limit(&rig, &team, Some(200), None).await;
    let (held, most) = rig.model_start(turn, demand(100, 4_096)).await.unwrap();
    assert_eq!(most, 100);
    let bob = rig.busy("bob").await.turn_id;
    let refusal = rig.model_start(bob, demand(1, 10)).await.unwrap_err();
    assert_eq!(refusal.code, Code::BudgetExhausted, "what ada holds, bob cannot have");
    assert_eq!(refusal.details.unwrap()["scope"], "team:crew");
    assert!(rig.journal(bob).await.is_empty(), "a refused call leaves nothing in the journal");
    rig.model_answer(turn, held, used(100, 100)).await.unwrap();
    assert_eq!(code(rig.model_start(turn, demand(1, 16)).await), Code::BudgetExhausted);
    limit(&rig, &team, Some(300), None).await;
    assert_eq!(rig.model_start(turn, demand(1, 16)).await.unwrap().1, 16);
    assert_eq!(rig.turn(turn).await.status, TurnStatus::Open);
}

#[tokio::test]
async fn money_needs_a_price() {
    let rig = Rig::new().await;
    let turn = rig.busy("ada").await.turn_id;
    limit(&rig, &Scope::World, None, Some(1_000)).await;
    let unknown = Demand { price: None, ..demand(10, 10) };
    assert_eq!(code(rig.model_start(turn, unknown).await), Code::BudgetExhausted);
    let (_, most) = rig.model_start(turn, demand(900, 4_096)).await.unwrap();
    assert_eq!(most, 100, "a token costs a millionth");
    assert_eq!(PRICE.input, Money(1_000_000));
}

#[tokio::test]
async fn failed_calls_are_given_back_or_forfeited() {
    let rig = Rig::new().await;
    let turn = rig.busy("ada").await.turn_id;
    let (held, _) = rig.model_start(turn, demand(100, 50)).await.unwrap();
    write!(rig, |w, cx| turns::model_failed(w, &cx, turn, held, "m", "429", false).await).unwrap();
    assert_eq!(account(&rig, &Scope::World).await, (0, 0));
    let (held, _) = rig.model_start(turn, demand(100, 50)).await.unwrap();
    write!(rig, |w, cx| turns::model_failed(w, &cx, turn, held, "m", "broken", true).await).unwrap();
    assert_eq!(account(&rig, &Scope::World).await, (0, 150));
    // Settled once is settled: a second word about it changes nothing.
    let again = write!(rig, |w, cx| {
        let mut turn = turns::open_turn(w, turn).await?;
        budgets::settle(w, &cx, &mut turn, held, budgets::Settlement::Released).await
    });
    assert_eq!(again.unwrap(), None);
    assert_eq!(account(&rig, &Scope::World).await, (0, 150));
    // A turn that a crash resumes has lost what it held, with a usage row that says it is an estimate.
    rig.model_start(turn, demand(7, 3)).await.unwrap();
    rig.take("ada").await;
    assert_eq!(account(&rig, &Scope::World).await, (0, 160));
    let sums = read!(rig, |r| r.usage_sum(&UsageFilter::default()).await?);
    assert_eq!(sums.iter().map(|sum| sum.tokens.total()).sum::<u64>(), 160);
}

#[tokio::test]
async fn an_account_that_is_opened_late_starts_with_what_its_scope_has_spent_and_holds() {
    let rig = Rig::new().await;
    let turn = rig.busy("ada").await;
    let (held, _) = rig.model_start(turn.turn_id, demand(100, 50)).await.unwrap();
    rig.model_answer(turn.turn_id, held, used(100, 20)).await.unwrap();
    let (held, _) = rig.model_start(turn.turn_id, demand(100, 50)).await.unwrap();
    let scopes = [Scope::Root(turn.root_id), Scope::Agent(id("ada")), Scope::Team("crew".into())];
    for scope in &scopes {
        assert_eq!(account(&rig, scope).await, (0, 0), "no account where nobody set a limit");
        limit(&rig, scope, Some(1_000), None).await;
        assert_eq!(account(&rig, scope).await, (150, 120), "{scope}");
    }
    limit(&rig, &Scope::Agent(id("bob")), Some(1_000), None).await;
    assert_eq!(account(&rig, &Scope::Agent(id("bob"))).await, (0, 0), "what others spent is theirs");
    rig.model_answer(turn.turn_id, held, used(100, 30)).await.unwrap();
    for scope in &scopes {
        assert_eq!(account(&rig, scope).await, (0, 250), "{scope}");
    }
    assert_eq!(account(&rig, &Scope::World).await, (0, 250));
}

#[tokio::test]
async fn limits_are_set_on_what_exists_and_say_something() {
    let rig = Rig::new().await;
    let set = async |scope: &str, limits: NewLimits| {
        let scope: Scope = scope.parse().unwrap();
        write!(rig, |w, cx| budgets::set(w, &cx, &operator(), &scope, limits).await)
    };
    let some = NewLimits { tokens: Some(Some(5)), money: None };
    let near = set("agent:adda", some).await.unwrap_err();
    assert!(near.code == Code::NotFound && near.hint.unwrap().contains("`ada`"));
    let near = set("team:crow", some).await.unwrap_err();
    assert!(near.code == Code::NotFound && near.hint.unwrap().contains("`crew`"));
    assert_eq!(code(set("world", NewLimits::default()).await), Code::InvalidArguments);
    set("world", some).await.unwrap();
    let kept = set("world", NewLimits { tokens: None, money: Some(Some(Money(9))) }).await.unwrap();
    assert_eq!((kept.limits.tokens, kept.limits.money), (Some(5), Some(Money(9))));
    let lifted = set("world", NewLimits { tokens: Some(None), money: None }).await.unwrap();
    assert_eq!((lifted.limits.tokens, lifted.limits.money), (None, Some(Money(9))));
}
