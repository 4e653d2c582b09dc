//! Budgets and reservations.

use super::tools::*;

/// The numbers of the roots that have an account.
fn roots(r: &mut Tx) -> Result<Vec<u64>> {
    let all = r.budget_list(&BudgetFilter::default())?.into_iter();
    Ok(all.filter_map(|b| if let Scope::Root(root) = b.scope { Some(root.0.as_u128() as u64) } else { None }).collect())
}

pub(super) async fn budgets_are_listed_by_scope(store: Bench) {
    let full = || Budget {
        reserved_tokens: LARGE,
        reserved_money: Money(LARGE),
        spent_tokens: LARGE,
        spent_money: Money(LARGE),
        unpriced_tokens: LARGE,
        ..budget(Scope::World, Some(LARGE), Some(LARGE))
    };
    put!(&store, {
        budget_put: budget(Scope::World, None, None), budget(Scope::Root(root_id(2)), None, Some(0)),
            budget(Scope::Agent(id_of("a")), Some(0), None), budget(Scope::Team("news".to_owned()), None, None), full();
    });
    let scopes = |budgets: Vec<Budget>| map_rows(&budgets, |budget| budget.scope.to_string());
    let root = format!("root:{}", root_id(2));
    shows!(&store, |r| {
        r.budget_get(&Scope::World)? => Some(full());
        r.budget_get(&Scope::Agent(id_of("b")))? => None;
        scopes(r.budget_list(&BudgetFilter::default())?) => ["agent:a", &root, "team:news", "world"];
        scopes(r.budget_list(&BudgetFilter { limited: true, ..<_>::default() })?) => ["agent:a", &root, "world"];
    });
    accounts_of_roots_are_pruned(&store).await;
}

/// Continues with four accounts of second 1, one of them of root 2. Each root from 3 on has one row
/// that keeps it alive.
async fn accounts_of_roots_are_pruned(store: &Store) {
    let of = |n: u64| Budget { updated_at: at(n), ..budget(Scope::Root(root_id(n)), Some(1), None) };
    let turn = |n, status| Turn { root_id: root_id(n), ..turn(n, "a", status) };
    let mail = |n| Envelope { root_id: root_id(n), ..mail(n, "a") };
    let letter = |status| DeadLetter { messages: vec![message_id(11)], ..letter(10, "a", status) };
    keep!(store, |w| {
        for n in 3..=14 {
            w.budget_put(&of(n))?;
        }
    });
    // The work of root 12 has ended. The account of root 13 is too young.
    put!(store, {
        budget_put: Budget { reserved_tokens: 1, ..of(3) }, Budget { reserved_money: Money(1), ..of(4) },
            Budget { updated_at: at(11), ..of(14) };
        turn_put: turn(5, TurnStatus::Open), turn(10, TurnStatus::Dead), turn(12, TurnStatus::Finished);
        message_append: mail(6), mail(7), mail(11), mail(12);
        task_put: Task { root_id: root_id(8), ..task(8, "a", TaskStatus::Done) };
        job_put: Job { root_id: root_id(9), ..job("nine", 9) },
            Job { root_id: root_id(12), finished_at: Some(at(12)), ..job("twelve", 12) };
        dead_letter_put: letter(DeadLetterStatus::Held);
        schedule_put: Schedule { root_id: root_id(14), ..schedule(14, "a", ScheduleKind::Timer, "later") };
    });
    keep!(store, |w| {
        for (n, state, turn) in [(7, MailState::Taken, 5), (11, MailState::Dead, 10), (12, MailState::Consumed, 12)] {
            w.message_mark(&[message_id(n)], state, Some(turn_id(turn)), 0)?;
        }
    });
    prunes!(store, Family::RootBudgets, |r| { roots(r)? }, {
        (1, 9) => 0, (2..=14).collect::<Vec<_>>();
        (13, 1) => 1, (3..=14).collect::<Vec<_>>();
        (13, 9) => 1, [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14];
    });
    put!(store, { dead_letter_put: letter(DeadLetterStatus::Dropped); budget_put: of(3), of(4); });
    prunes!(store, Family::RootBudgets, |r| { roots(r)? }, { (13, 9) => 4, [5, 6, 7, 8, 9, 13, 14]; });
    shows!(store, |r| { r.budget_get(&Scope::Agent(id_of("a")))?.is_some() => true; });
}

pub(super) async fn budgets_are_listed_by_sort_and_page(store: Bench) {
    let agents = |n: u64| Scope::Agent(id_of(&format!("n{n:04}")));
    keep!(&store, |w| {
        w.budget_put(&budget(Scope::World, Some(1), None))?;
        w.budget_put(&budget(Scope::World.daily().unwrap(), None, None))?;
        for n in 0..110 {
            w.budget_put(&budget(agents(n), (n % 2 == 0).then_some(n), None))?;
            w.budget_put(&budget(agents(n).daily().unwrap(), None, Some(n)))?;
            w.budget_put(&budget(Scope::Root(root_id(n)), None, None))?;
        }
        for name in ["days", "news"] {
            w.budget_put(&budget(Scope::Team(name.to_owned()), None, Some(0)))?;
            w.budget_put(&budget(Scope::Team(name.to_owned()).daily().unwrap(), None, None))?;
        }
    });
    let any = || BudgetFilter { limit: 1_000, ..BudgetFilter::default() };
    let of = |sort| BudgetFilter { sort: Some(sort), ..any() };
    let all = async |filter: BudgetFilter| {
        let texts = map_rows(&reading!(&store, |r| { r.budget_list(&filter)? }), |budget| budget.scope.to_string());
        assert!(texts.is_sorted(), "in order of the text");
        texts
    };
    assert_eq!(all(any()).await.len(), 336);
    assert_eq!(all(BudgetFilter { no_roots: true, ..any() }).await.len(), 226);
    assert_eq!(all(BudgetFilter { limited: true, ..any() }).await.len(), 55 + 110 + 3);
    assert_eq!(all(of(ScopeSort::World)).await, ["world"]);
    assert_eq!(all(of(ScopeSort::Team)).await, ["team:days", "team:news"]);
    assert_eq!(all(of(ScopeSort::Root)).await.len(), 110);
    let days = all(of(ScopeSort::Day)).await;
    assert_eq!((days.len(), days[0].as_str()), (113, "agent:n0000/day"));
    let limited = all(BudgetFilter { limited: true, ..of(ScopeSort::Agent) }).await;
    assert_eq!((limited.len(), limited[1].as_str()), (55, "agent:n0002"));
    let after = Some(agents(108).daily().unwrap());
    assert_eq!(all(BudgetFilter { after, ..of(ScopeSort::Agent) }).await, ["agent:n0109"]);
}

/// Five agents: two are alive, one of them with the id of a deleted one; one has no record any
/// more.
pub(super) async fn accounts_of_deleted_agents_are_pruned(store: Bench) {
    let account =
        |name: &str, n: u64, limit| Budget { updated_at: at(n), ..budget(Scope::Agent(id_of(name)), limit, None) };
    let daily = |budget: Budget| Budget { scope: budget.scope.daily().unwrap(), ..budget };
    let old = |scope| Budget { updated_at: at(1), ..budget(scope, None, None) };
    let gone = |name: &str, second| Agent { deleted_at: Some(at(second)), ..agent(name) };
    put!(&store, {
        agent_put: agent("lives"), gone("gone", 2), gone("bound", 2), gone("holds", 2);
        budget_put: old(Scope::World), old(Scope::Team("gone".to_owned())), old(Scope::Root(root_id(1)));
    });
    keep!(&store, |w| {
        for name in ["lives", "gone", "bound", "holds", "unheard-of"] {
            let held = u64::from(name == "holds");
            let account = account(name, 3, (name == "bound").then_some(5));
            w.budget_put(&Budget { reserved_tokens: held, ..account.clone() })?;
            w.budget_put(&Budget { reserved_money: Money(held), ..daily(account) })?;
        }
    });
    put!(&store, { budget_put: daily(account("gone", 8, None)), account("unheard-of", 1, Some(5)); });
    // Those of the world, of teams and of roots stay.
    let left = |all: Vec<Budget>| {
        let all = map_rows(&all, |budget| budget.scope.to_string().replace("agent:", "")).join(" ");
        all.strip_suffix(&format!(" root:{} team:gone world", root_id(1))).expect("they stay").to_owned()
    };
    prunes!(&store, Family::AgentBudgets, |r| { left(r.budget_list(&<_>::default())?) }, {
        (1, 9) => 0, "bound bound/day gone gone/day holds holds/day lives lives/day unheard-of unheard-of/day";
        (4, 0) => 0, "bound bound/day gone gone/day holds holds/day lives lives/day unheard-of unheard-of/day";
        (4, 1) => 1, "bound bound/day gone gone/day holds holds/day lives lives/day unheard-of/day";
        (4, 9) => 2, "bound bound/day gone/day holds holds/day lives lives/day";
    });
    // An account with a limit stays as long as the tombstone.
    put!(&store, { agent_put: Agent { incarnation: 2, ..agent("gone") }, gone("bound", 1); });
    assert_eq!(keep!(&store, |w| { w.prune(Family::Agents, at(2), 9)? }), 1);
    prunes!(&store, Family::AgentBudgets, |r| { left(r.budget_list(&<_>::default())?) }, {
        (100, 9) => 2, "gone/day holds holds/day lives lives/day";
    });
}

pub(super) async fn lists_are_bounded(store: Bench) {
    keep!(&store, |w| {
        for n in 0..1_003 {
            w.budget_put(&budget(Scope::Team(format!("{n:04}")), Some(1), None))?;
            w.job_put(&job(&format!("{n:04}"), n))?;
        }
    });
    let all = BudgetFilter { limit: 2_000, ..BudgetFilter::default() };
    let (budgets, jobs) = reading!(&store, |r| { (r.budget_list(&all)?, r.job_list(None, 2_000)?) });
    assert_eq!((budgets.len(), budgets[0].scope.to_string().as_str()), (1_000, "team:0000"));
    assert_eq!((jobs.len(), jobs[0].job_id.as_str()), (1_000, "1002"));
}
