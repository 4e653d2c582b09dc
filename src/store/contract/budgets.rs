//! Budgets, reservations and usage.

use std::sync::Arc;

use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::UsageSum;
use ghost_domain::{AgentId, Budget, Money, Reservation, ReservationStatus, Scope, UsageRow};

use super::Medium;
use super::rows::{LARGE, at, budget, job, reservation, reservation_id, root_id, turn_id, usage, who};
use super::tools::{each, keep, look, open};
use crate::tables::UsageFilter;

pub(super) async fn budgets_are_listed_by_scope(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    let team = Scope::Team("news".to_owned());
    let full = Budget {
        reserved_tokens: LARGE,
        reserved_money: Money(LARGE),
        spent_tokens: LARGE,
        spent_money: Money(LARGE),
        ..budget(Scope::World, Some(LARGE), Some(LARGE))
    };
    let wanted = (Some(full.clone()), None);
    keep!(&store, |w| {
        w.budget_put(&budget(Scope::World, None, None)).await?;
        w.budget_put(&budget(Scope::Root(root_id(2)), None, Some(0))).await?;
        w.budget_put(&budget(Scope::Agent(who("a")), Some(0), None)).await?;
        w.budget_put(&budget(team, None, None)).await?;
        w.budget_put(&full).await?;
        assert_eq!(w.budget_get(&Scope::World).await?.as_ref(), Some(&full));
    });
    let got = look!(&store, |r| { (r.budget_get(&Scope::World).await?, r.budget_get(&Scope::Agent(who("b"))).await?) });
    assert_eq!(got, wanted);
    let (all, limited) = look!(&store, |r| { (r.budget_list(true).await?, r.budget_list(false).await?) });
    let scopes = |budgets: &[Budget]| each(budgets, |budget| budget.scope.to_string());
    let root = format!("root:{}", root_id(2));
    assert_eq!(scopes(&all), ["agent:a", &root, "team:news", "world"]);
    assert_eq!(scopes(&limited), ["agent:a", &root, "world"]);
}

pub(super) async fn reservations_are_held_by_turn(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    let ids = |held: &[Reservation]| {
        let mut ids = each(held, |reservation| reservation.reservation_id);
        ids.sort();
        ids
    };
    let inside = keep!(&store, |w| {
        for n in 1..=4 {
            w.reservation_put(&reservation(n, 1, ReservationStatus::Held)).await?;
        }
        w.reservation_put(&reservation(5, 2, ReservationStatus::Held)).await?;
        w.reservation_put(&reservation(1, 1, ReservationStatus::Settled)).await?;
        w.reservations_held(turn_id(1)).await?
    });
    assert_eq!(ids(&inside), [reservation_id(2), reservation_id(3), reservation_id(4)]);
    let inside = keep!(&store, |w| {
        w.reservation_put(&reservation(2, 1, ReservationStatus::Released)).await?;
        w.reservation_put(&reservation(3, 1, ReservationStatus::Forfeited)).await?;
        w.reservations_held(turn_id(1)).await?
    });
    assert_eq!(ids(&inside), [reservation_id(4)]);
    let (held, settled, none) = look!(&store, |r| {
        (
            r.reservations_held(turn_id(1)).await?,
            r.reservation_get(reservation_id(1)).await?,
            r.reservation_get(reservation_id(9)).await?,
        )
    });
    assert_eq!(held, [reservation(4, 1, ReservationStatus::Held)]);
    assert_eq!((settled, none), (Some(reservation(1, 1, ReservationStatus::Settled)), None));
}

pub(super) async fn usage_is_summed(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    keep!(&store, |w| {
        w.usage_append(&usage(1, "b", "m", 10)).await?;
        w.usage_append(&usage(2, "a", "n", 20)).await?;
        w.usage_append(&usage(3, "a", "m", LARGE)).await?;
        w.usage_append(&usage(4, "a", "m", 40)).await?;
        // Rows have no key: the same twice is two.
        w.usage_append(&usage(4, "a", "m", 40)).await?;
        w.usage_append(&UsageRow { root_id: root_id(2), ..usage(5, "b", "m", 50) }).await?;
    });
    let sum = |agent: &str, model: &str, calls: u64, input: u64| UsageSum {
        agent_id: who(agent),
        model: model.to_owned(),
        calls,
        tokens: TokenUsage { input, output: calls, cache_read: 2 * calls, cache_write: 3 * calls },
        cost: Money(7 * calls),
    };
    let sums = |agent_id: Option<AgentId>, root: Option<u64>, since: Option<u64>| {
        let filter = UsageFilter { agent_id, root_id: root.map(root_id), since: since.map(at) };
        let store = store.clone();
        async move { look!(&store, |r| { r.usage_sum(&filter).await? }) }
    };
    assert_eq!(
        sums(None, None, None).await,
        [sum("a", "m", 3, LARGE + 80), sum("a", "n", 1, 20), sum("b", "m", 2, 60)]
    );
    assert_eq!(sums(Some(who("b")), None, None).await, [sum("b", "m", 2, 60)]);
    assert_eq!(sums(None, Some(2), None).await, [sum("b", "m", 1, 50)]);
    assert_eq!(sums(None, None, Some(4)).await, [sum("a", "m", 2, 80), sum("b", "m", 1, 50)]);
    assert_eq!(sums(Some(who("c")), None, None).await, []);
}

pub(super) async fn lists_are_bounded(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    keep!(&store, |w| {
        for n in 0..1_003 {
            w.budget_put(&budget(Scope::Team(format!("{n:04}")), Some(1), None)).await?;
            w.job_put(&job(&format!("{n:04}"), n)).await?;
        }
    });
    let (budgets, jobs) = look!(&store, |r| { (r.budget_list(true).await?, r.job_list().await?) });
    assert_eq!((budgets.len(), jobs.len()), (1_000, 1_000));
    assert_eq!((budgets[0].scope.to_string(), jobs[0].job_id.as_str()), ("team:0000".to_owned(), "1002"));
}
