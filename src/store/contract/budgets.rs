//! Budgets, reservations and usage.

use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::UsageSum;
use ghost_domain::{
    Agent, AgentId, Budget, DeadLetter, DeadLetterStatus, Envelope, Job, MailState, Money, Schedule, ScheduleKind,
    Scope, ScopeSort, Task, TaskStatus, Turn, TurnStatus, UsageRow,
};

use super::tools::*;
use crate::Store;
use crate::tables::{BudgetFilter, Family, UsageFilter};

pub(super) async fn budgets_are_listed_by_scope(store: Bench) {
    let team = Scope::Team("news".to_owned());
    let full = Budget {
        reserved_tokens: LARGE,
        reserved_money: Money(LARGE),
        spent_tokens: LARGE,
        spent_money: Money(LARGE),
        unpriced_tokens: LARGE,
        ..budget(Scope::World, Some(LARGE), Some(LARGE))
    };
    let wanted = (Some(full.clone()), None);
    keep!(&store, |w| {
        w.budget_put(&budget(Scope::World, None, None))?;
        w.budget_put(&budget(Scope::Root(root_id(2)), None, Some(0)))?;
        w.budget_put(&budget(Scope::Agent(id_of("a")), Some(0), None))?;
        w.budget_put(&budget(team, None, None))?;
        w.budget_put(&full)?;
        assert_eq!(w.budget_get(&Scope::World)?.as_ref(), Some(&full));
    });
    let got = reading!(&store, |r| { (r.budget_get(&Scope::World)?, r.budget_get(&Scope::Agent(id_of("b")))?) });
    assert_eq!(got, wanted);
    let (all, limited) = reading!(&store, |r| {
        let limited = BudgetFilter { limited: true, ..BudgetFilter::default() };
        (r.budget_list(&BudgetFilter::default())?, r.budget_list(&limited)?)
    });
    let scopes = |budgets: &[Budget]| map_rows(budgets, |budget| budget.scope.to_string());
    let root = format!("root:{}", root_id(2));
    assert_eq!(scopes(&all), ["agent:a", &root, "team:news", "world"]);
    assert_eq!(scopes(&limited), ["agent:a", &root, "world"]);
    accounts_of_roots_are_pruned(&store).await;
}

/// Continues with four accounts of second 1, one of them of root 2. Each root from 3 on has one row
/// that keeps it alive.
async fn accounts_of_roots_are_pruned(store: &Store) {
    let of = |n: u64| Budget { updated_at: at(n), ..budget(Scope::Root(root_id(n)), Some(1), None) };
    keep!(store, |w| {
        for n in 3..=14 {
            w.budget_put(&of(n))?;
        }
        w.budget_put(&Budget { reserved_tokens: 1, ..of(3) })?;
        w.budget_put(&Budget { reserved_money: Money(1), ..of(4) })?;
        w.turn_put(&Turn { root_id: root_id(5), ..turn(5, "a", TurnStatus::Open) })?;
        w.message_append(&Envelope { root_id: root_id(6), ..mail(6, "a") })?;
        w.message_append(&Envelope { root_id: root_id(7), ..mail(7, "a") })?;
        w.message_mark(&[message_id(7)], MailState::Taken, Some(turn_id(5)), 0)?;
        w.task_put(&Task { root_id: root_id(8), ..task(8, "a", TaskStatus::Done) })?;
        w.job_put(&Job { root_id: root_id(9), ..job("nine", 9) })?;
        w.turn_put(&Turn { root_id: root_id(10), ..turn(10, "a", TurnStatus::Dead) })?;
        w.message_append(&Envelope { root_id: root_id(11), ..mail(11, "a") })?;
        w.message_mark(&[message_id(11)], MailState::Dead, Some(turn_id(10)), 0)?;
        let messages = vec![message_id(11)];
        w.dead_letter_put(&DeadLetter { messages, ..letter(10, "a", DeadLetterStatus::Held) })?;
        let timer = schedule(14, "a", ScheduleKind::Timer, "later");
        w.schedule_put(&Schedule { root_id: root_id(14), ..timer })?;
        w.budget_put(&Budget { updated_at: at(11), ..of(14) })?;
        // The work of root 12 has ended. The account of root 13 is too young.
        w.turn_put(&Turn { root_id: root_id(12), ..turn(12, "a", TurnStatus::Finished) })?;
        w.message_append(&Envelope { root_id: root_id(12), ..mail(12, "a") })?;
        w.message_mark(&[message_id(12)], MailState::Consumed, Some(turn_id(12)), 0)?;
        w.job_put(&Job { root_id: root_id(12), finished_at: Some(at(12)), ..job("twelve", 12) })?;
    });
    assert_eq!(keep!(store, |w| { w.prune(Family::RootBudgets, at(1), 9)? }), 0, "only what is older");
    refuse!(store, |w| {
        assert_eq!(w.prune(Family::RootBudgets, at(13), 9)?, 2);
        assert_eq!(w.budget_get(&Scope::Root(root_id(12)))?, None);
    });
    let kept = async || {
        let mut kept = Vec::new();
        for budget in reading!(store, |r| { r.budget_list(&BudgetFilter::default())? }) {
            if let Scope::Root(root) = budget.scope {
                kept.push(u64::try_from(root.0.as_u128()).unwrap());
            }
        }
        kept
    };
    assert_eq!(kept().await, (2..=14).collect::<Vec<_>>());
    assert_eq!(keep!(store, |w| { w.prune(Family::RootBudgets, at(13), 1)? }), 1);
    assert_eq!(kept().await, (3..=14).collect::<Vec<_>>(), "the oldest goes first");
    assert_eq!(keep!(store, |w| { w.prune(Family::RootBudgets, at(13), 9)? }), 1);
    assert_eq!(kept().await, [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14]);
    keep!(store, |w| {
        assert_eq!(w.budget_get(&Scope::Root(root_id(12)))?, None);
        assert!(w.budget_get(&Scope::Agent(id_of("a")))?.is_some(), "in a command, too");
    });
    keep!(store, |w| {
        w.dead_letter_put(&letter(10, "a", DeadLetterStatus::Dropped))?;
        w.budget_put(&of(3))?;
        w.budget_put(&of(4))?;
    });
    assert_eq!(keep!(store, |w| { w.prune(Family::RootBudgets, at(13), 9)? }), 4);
    assert_eq!(kept().await, [5, 6, 7, 8, 9, 13, 14]);
}

pub(super) async fn budgets_are_listed_by_sort_and_page(store: Bench) {
    let agents = |n: u64| Scope::Agent(id_of(&format!("n{n:04}")));
    keep!(&store, |w| {
        w.budget_put(&budget(Scope::World, Some(1), None))?;
        w.budget_put(&budget(Scope::World.daily().unwrap(), None, None))?;
        for n in 0..1_100 {
            w.budget_put(&budget(agents(n), (n % 2 == 0).then_some(n), None))?;
            w.budget_put(&budget(agents(n).daily().unwrap(), None, Some(n)))?;
            w.budget_put(&budget(Scope::Root(root_id(n)), None, None))?;
        }
        for name in ["days", "news"] {
            w.budget_put(&budget(Scope::Team(name.to_owned()), None, Some(0)))?;
            w.budget_put(&budget(Scope::Team(name.to_owned()).daily().unwrap(), None, None))?;
        }
    });
    // Page by page, as callers do.
    let all = async |filter: BudgetFilter| {
        let (mut found, mut after): (Vec<Budget>, Option<Scope>) = (Vec::new(), None);
        loop {
            let filter = BudgetFilter { after: after.clone(), ..filter.clone() };
            let page = reading!(&store, |r| { r.budget_list(&filter)? });
            assert!(page.len() <= 1_000);
            let Some(last) = page.last() else { break };
            after = Some(last.scope.clone());
            found.extend(page);
        }
        let texts: Vec<String> = map_rows(&found, |budget| budget.scope.to_string());
        assert!(texts.is_sorted(), "in order of the text");
        texts
    };
    let of = |sort| BudgetFilter { sort: Some(sort), ..BudgetFilter::default() };
    assert_eq!(all(BudgetFilter::default()).await.len(), 3_306);
    assert_eq!(all(BudgetFilter { no_roots: true, ..BudgetFilter::default() }).await.len(), 2_206);
    assert_eq!(all(BudgetFilter { limited: true, ..BudgetFilter::default() }).await.len(), 550 + 1_100 + 3);
    assert_eq!(all(of(ScopeSort::World)).await, ["world"]);
    assert_eq!(all(of(ScopeSort::Team)).await, ["team:days", "team:news"]);
    assert_eq!(all(of(ScopeSort::Root)).await.len(), 1_100);
    let days = all(of(ScopeSort::Day)).await;
    assert_eq!((days.len(), days[0].as_str()), (1_103, "agent:n0000/day"));
    let limited = all(BudgetFilter { limited: true, ..of(ScopeSort::Agent) }).await;
    assert_eq!((limited.len(), limited[1].as_str()), (550, "agent:n0002"));
    let after = BudgetFilter { after: Some(agents(1_098).daily().unwrap()), ..of(ScopeSort::Agent) };
    assert_eq!(reading!(&store, |r| { map_rows(&r.budget_list(&after)?, |b| b.scope.clone()) }), [agents(1_099)]);
}

/// Five agents: two are alive, one of them with the id of a deleted one; one has no record any
/// more.
pub(super) async fn accounts_of_deleted_agents_are_pruned(store: Bench) {
    fn scope(name: &str) -> Scope {
        Scope::Agent(id_of(name))
    }
    fn account(name: &str, n: u64, limit: Option<u64>) -> Budget {
        Budget { updated_at: at(n), ..budget(scope(name), limit, None) }
    }
    fn daily(budget: Budget) -> Budget {
        Budget { scope: budget.scope.daily().unwrap(), ..budget }
    }
    keep!(&store, |w| {
        w.agent_put(&agent("lives"))?;
        for gone in ["gone", "bound", "holds"] {
            w.agent_put(&Agent { deleted_at: Some(at(2)), ..agent(gone) })?;
        }
        for name in ["lives", "gone", "bound", "holds", "unheard-of"] {
            let limit = (name == "bound").then_some(5);
            let (tokens, money) = if name == "holds" { (1, Money(0)) } else { (0, Money(0)) };
            let account = Budget { reserved_tokens: tokens, reserved_money: money, ..account(name, 3, limit) };
            w.budget_put(&account)?;
            w.budget_put(&Budget { reserved_money: Money(tokens), reserved_tokens: 0, ..daily(account) })?;
        }
        w.budget_put(&daily(account("gone", 8, None)))?;
        w.budget_put(&account("unheard-of", 1, Some(5)))?;
        w.budget_put(&Budget { updated_at: at(1), ..budget(Scope::World, None, None) })?;
        w.budget_put(&Budget { updated_at: at(1), ..budget(Scope::Team("gone".to_owned()), None, None) })?;
        w.budget_put(&Budget { updated_at: at(1), ..budget(Scope::Root(root_id(1)), None, None) })?;
    });
    let left = async || {
        let all = reading!(&store, |r| { r.budget_list(&BudgetFilter::default())? });
        let agents = all.iter().filter_map(|budget| budget.scope.to_string().strip_prefix("agent:").map(str::to_owned));
        let agents: Vec<String> = agents.collect();
        assert_eq!(all.len(), agents.len() + 3, "those of the world, of teams and of roots stay");
        agents.join(" ")
    };
    let kept = "bound bound/day gone/day holds holds/day lives lives/day";
    for (before, limit, gone) in [(1, 9, 0), (4, 0, 0), (4, 1, 1)] {
        assert_eq!(keep!(&store, |w| { w.prune(Family::AgentBudgets, at(before), limit)? }), gone);
    }
    assert_eq!(left().await, "bound bound/day gone gone/day holds holds/day lives lives/day unheard-of/day");
    refuse!(&store, |w| { assert_eq!(w.prune(Family::AgentBudgets, at(4), 9)?, 2) });
    assert_eq!(keep!(&store, |w| { w.prune(Family::AgentBudgets, at(4), 9)? }), 2);
    assert_eq!(left().await, kept);
    assert_eq!(keep!(&store, |w| { w.budget_get(&scope("gone"))? }), None, "in a command, too");
    // An account with a limit stays as long as the tombstone.
    keep!(&store, |w| {
        w.agent_put(&Agent { incarnation: 2, ..agent("gone") })?;
        w.agent_put(&Agent { deleted_at: Some(at(1)), ..agent("bound") })?;
        assert_eq!(w.prune(Family::Agents, at(2), 9)?, 1);
        assert_eq!(w.prune(Family::AgentBudgets, at(100), 9)?, 2);
    });
    assert_eq!(left().await, "gone/day holds holds/day lives lives/day");
}

pub(super) async fn usage_is_summed(store: Bench) {
    keep!(&store, |w| {
        w.usage_append(&UsageRow { provider: "other".to_owned(), ..usage(1, "b", "m", 10) })?;
        w.usage_append(&usage(2, "a", "n", 20))?;
        w.usage_append(&usage(3, "a", "m", LARGE))?;
        w.usage_append(&usage(4, "a", "m", 40))?;
        // Usage rows have no key, so equal rows are counted twice.
        w.usage_append(&usage(4, "a", "m", 40))?;
        w.usage_append(&UsageRow { root_id: root_id(2), ..usage(5, "b", "m", 50) })?;
        let estimated = |cost| UsageRow { cost, estimated: true, ..usage(6, "d", "m", 50) };
        w.usage_append(&estimated(Some(Money(9))))?;
        w.usage_append(&estimated(None))?;
        w.usage_append(&UsageRow { cost: None, ..usage(6, "d", "m", 70) })?;
        // A call without a cost still counts against a budget.
        w.usage_append(&UsageRow { cost: Some(Money(0)), ..usage(6, "d", "m", 90) })?;
        w.usage_append(&UsageRow { cost: Some(Money(0)), free: true, ..usage(6, "d", "m", 30) })?;
    });
    let unlike = UsageSum {
        calls: 5,
        tokens: TokenUsage { input: 290, output: 5, cache_read: 10, cache_write: 15 },
        cost: Money(9),
        estimated_calls: 2,
        estimated_cost: Money(9),
        unpriced_tokens: 122,
        free_tokens: 31,
        ..UsageSum::new(&id_of("d"), "m")
    };
    let sum = |agent: &str, model: &str, calls: u64, input: u64| {
        let tokens = TokenUsage { input, output: calls, cache_read: 2 * calls, cache_write: 3 * calls };
        UsageSum { calls, tokens, cost: Money(7 * calls), ..UsageSum::new(&id_of(agent), model) }
    };
    let sums = |agent_id: Option<AgentId>, root: Option<u64>, since: Option<u64>| {
        let filter =
            UsageFilter { agent_id, root_id: root.map(root_id), since: since.map(at), ..UsageFilter::default() };
        let store = store.clone();
        async move { reading!(&store, |r| { r.usage_sum(&filter)? }) }
    };
    assert_eq!(
        sums(None, None, None).await,
        [sum("a", "m", 3, LARGE + 80), sum("a", "n", 1, 20), sum("b", "m", 2, 60), unlike.clone()]
    );
    assert_eq!(sums(Some(id_of("d")), None, None).await, std::slice::from_ref(&unlike));
    assert_eq!(sums(Some(id_of("b")), None, None).await, [sum("b", "m", 2, 60)]);
    assert_eq!(sums(None, Some(2), None).await, [sum("b", "m", 1, 50)]);
    assert_eq!(sums(None, None, Some(4)).await, [sum("a", "m", 2, 80), sum("b", "m", 1, 50), unlike]);
    assert_eq!(sums(Some(id_of("c")), None, None).await, []);
    let other = UsageFilter { provider: Some("other".to_owned()), ..UsageFilter::default() };
    assert_eq!(reading!(&store, |r| { r.usage_sum(&other)? }), [sum("b", "m", 1, 10)]);
    let from_four_to_five = UsageFilter { since: Some(at(4)), before: Some(at(5)), ..UsageFilter::default() };
    assert_eq!(reading!(&store, |r| { r.usage_sum(&from_four_to_five)? }), [sum("a", "m", 2, 80)]);
}

pub(super) async fn lists_are_bounded(store: Bench) {
    keep!(&store, |w| {
        for n in 0..1_003 {
            w.budget_put(&budget(Scope::Team(format!("{n:04}")), Some(1), None))?;
            w.job_put(&job(&format!("{n:04}"), n))?;
        }
    });
    let (budgets, jobs) = reading!(&store, |r| {
        (r.budget_list(&BudgetFilter { limit: 2_000, ..BudgetFilter::default() })?, r.job_list(None, 2_000)?)
    });
    assert_eq!((budgets.len(), jobs.len()), (1_000, 1_000));
    assert_eq!((budgets[0].scope.to_string(), jobs[0].job_id.as_str()), ("team:0000".to_owned(), "1002"));
}
