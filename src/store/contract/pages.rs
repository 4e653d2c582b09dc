//! Pages of lists: they join without a gap or a duplicate, however small they are, and also if rows
//! are written between them.

use super::tools::*;

/// The number of row `n`. Numbers do not rise in the order of writing.
fn number(n: u64) -> u64 {
    1 + n / 29 * 29 + n * 11 % 29
}

/// The time of row `n`. Many rows have the same.
fn moment(n: u64) -> Timestamp {
    at(1 + n % 2)
}

/// The owner of row `n`.
fn owner(n: u64) -> &'static str {
    if n.is_multiple_of(3) { "b" } else { "a" }
}

fn b() -> Option<AgentId> {
    Some(id_of("b"))
}

/// Checks the pages of a list. `put` writes row `n`; the rows from `first` on are new. `list` reads
/// one page and returns the place of each row.
async fn check<K, P, L>(first: u64, put: impl Fn(u64) -> P, list: impl Fn(Option<K>, u32) -> L)
where
    K: Clone + PartialEq + std::fmt::Debug,
    P: Future<Output = ()>,
    L: Future<Output = Vec<K>>,
{
    let mut next = first;
    while next < first + 12 {
        put(next).await;
        next += 1;
    }
    for size in 1..=3 {
        let (mut read, mut after, mut passed) = (Vec::new(), None, Vec::new());
        loop {
            let page = list(after, size).await;
            assert!(page.len() <= usize::try_from(size).unwrap(), "{page:?}");
            let Some(last) = page.last().cloned() else { break };
            let before = list(None, 1_000).await;
            for _ in 0..if read.len() < 8 { 3 } else { 0 } {
                put(next).await;
                next += 1;
            }
            // New rows before the end of this page are on no later page.
            let now = list(None, 1_000).await;
            let new = now.into_iter().take_while(|place| *place != last).filter(|place| !before.contains(place));
            passed.extend(new);
            after = Some(last);
            read.extend(page);
        }
        let mut wanted = list(None, 1_000).await;
        wanted.retain(|place| !passed.contains(place));
        assert!(wanted.len() > 5, "{wanted:?}");
        assert_eq!(read, wanted, "pages of {size}");
    }
}

/// Checks the pages of a list with each of some filters.
macro_rules! check_pages {
    ($store:expr, $filters:expr; |$w:ident, $n:ident| $put:expr;
     |$r:ident, $filter:ident, $after:ident, $limit:ident| $list:expr; $place:expr) => {{
        let store = &$store;
        let mut first = 0;
        for filter in $filters {
            let put = |$n: u64| {
                let store = store.clone();
                async move { keep!(&store, |$w| { $put }) }
            };
            let list = |$after, $limit: u32| {
                let (store, $filter) = (store.clone(), filter.clone());
                async move { map_rows(&reading!(&store, |$r| { $list }), $place) }
            };
            check(first, put, list).await;
            first += 145;
        }
    }};
}

pub(super) async fn budgets_are_paged(store: Bench) {
    let scope = |n: u64| match n % 5 {
        0 | 1 => Scope::Root(root_id(number(n))),
        2 => Scope::Team(format!("t{:03}", number(n))),
        3 => Scope::Agent(id_of(&format!("n{:03}", number(n)))).daily().unwrap(),
        _ => Scope::Agent(id_of(&format!("n{:03}", number(n)))),
    };
    let of = |sort| BudgetFilter { sort: Some(sort), ..BudgetFilter::default() };
    let any = BudgetFilter::default;
    let filters = [any(), BudgetFilter { no_roots: true, ..any() }, of(ScopeSort::Root), of(ScopeSort::Day)];
    check_pages!(store, filters;
        |w, n| w.budget_put(&budget(scope(n), None, None))?;
        |r, filter, after, limit| r.budget_list(&BudgetFilter { after, limit, ..filter })?;
        |row| row.scope.clone());
}

pub(super) async fn calls_are_paged(store: Bench) {
    let (any, status) = (LedgerFilter::default, Some(CallStatus::Ok));
    let of_b = || LedgerFilter { agent_id: b(), ..any() };
    check_pages!(store, [any(), of_b(), LedgerFilter { status, ..of_b() }];
        |w, n| w.call_put(&LedgerRow { started_at: moment(n), ..call(number(n), owner(n), CallStatus::Ok) })?;
        |r, filter, after, limit| r.call_list(&LedgerFilter { after, limit, ..filter })?;
        |row| (row.started_at, row.call_id));
}

/// Lists with at most two filters.
pub(super) async fn short_lists_are_paged(store: Bench) {
    check_pages!(store, [None, b()];
        |w, n| w.conversation_put(&Conversation { updated_at: moment(n), ..conversation(number(n), owner(n)) })?;
        |r, of, after, limit| r.conversation_list(of.as_ref(), after, limit)?;
        |row| (row.updated_at, row.conversation_id));
    let held = Some(DeadLetterStatus::Held);
    check_pages!(store, [(None, None), (b(), None), (None, held), (b(), held)];
        |w, n| {
            let row = letter(number(n), owner(n), DeadLetterStatus::Held);
            w.dead_letter_put(&DeadLetter { created_at: moment(n), ..row })?
        };
        |r, of, after, limit| r.dead_letter_list(of.0.as_ref(), of.1, after, limit)?;
        |row| (row.created_at, row.dead_letter_id));
    check_pages!(store, [()];
        |w, n| w.job_put(&job(&format!("j{:03}", number(n)), 1 + n % 2))?;
        |r, _filter, after, limit| {
            let after: Option<(Timestamp, String)> = after;
            r.job_list(after.as_ref().map(|(at, job_id)| (*at, job_id.as_str())), limit)?
        };
        |row| (row.started_at, row.job_id.clone()));
    check_pages!(store, [()];
        |w, n| w.knowledge_put(&knowledge(&format!("k{:03}", number(n)), 1))?;
        |r, _filter, after, limit| r.knowledge_list(&Option::<String>::unwrap_or_default(after), limit)?;
        |row| row.entry_id.clone());
    check_pages!(store, ["", "b"];
        |w, n| w.state_put(&state(&format!("{}{:03}", owner(n), number(n)), json!(1)))?;
        |r, prefix, after, limit| r.state_list(prefix, &Option::<String>::unwrap_or_default(after), limit)?;
        |row| row.key.clone());
}

fn task_row(n: u64) -> Task {
    Task {
        priority: i32::try_from(n % 3).unwrap() - 1,
        parent_id: n.is_multiple_of(3).then(|| task_id(9_000)),
        root_id: root_id(n % 3),
        created_at: moment(n / 3),
        ..task(number(n), owner(n / 2), TaskStatus::Pending)
    }
}

pub(super) async fn tasks_are_paged(store: Bench) {
    let (any, status) = (TaskFilter::default, Some(TaskStatus::Pending));
    let filters = [
        any(),
        TaskFilter { owner: b(), ..any() },
        TaskFilter { status, ..any() },
        TaskFilter { owner: b(), status, ..any() },
        TaskFilter { parent_id: Some(task_id(9_000)), ..any() },
        TaskFilter { root_id: Some(root_id(1)), ..any() },
    ];
    check_pages!(store, filters;
        |w, n| w.task_put(&task_row(n))?;
        |r, filter, after, limit| r.task_list(&TaskFilter { after, limit, ..filter })?;
        |row| (row.priority, row.created_at, row.task_id));
}

pub(super) async fn open_tasks_are_paged(store: Bench) {
    check_pages!(store, [None, b()];
        |w, n| w.task_put(&task_row(n))?;
        |r, of, after, limit| r.tasks_open(of.as_ref(), after, limit)?;
        |row| row.task_id);
}

pub(super) async fn turns_are_paged(store: Bench) {
    let (any, status) = (TurnFilter::default, Some(TurnStatus::Failed));
    let filters = [
        any(),
        TurnFilter { agent_id: b(), ..any() },
        TurnFilter { status, ..any() },
        TurnFilter { agent_id: b(), status, ..any() },
        TurnFilter { root_id: Some(root_id(1)), ..any() },
    ];
    check_pages!(store, filters;
        |w, n| w.turn_put(&Turn { started_at: moment(n), ..turn(number(n), owner(n), TurnStatus::Failed) })?;
        |r, filter, after, limit| r.turn_list(&TurnFilter { after, limit, ..filter })?;
        |row| (row.started_at, row.turn_id));
}
