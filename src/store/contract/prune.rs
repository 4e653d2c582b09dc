//! Retention: which rows are deleted, and which must stay regardless of their age.

use super::tools::*;

/// Prunes until nothing more is deleted. A backend may need several calls for rows that belong
/// together.
pub(super) async fn prune_all(store: &Store, family: Family, before: u64) {
    for _ in 0..20 {
        if keep!(store, |w| { w.prune(family, at(before), 100)? }) == 0 {
            return;
        }
    }
    panic!("{family:?} never comes to an end");
}

/// Writes turns, each with a step that was made when it started.
pub(super) async fn put_turns<const N: usize>(store: &Store, turns: [Turn; N]) {
    keep!(store, |w| {
        for turn in &turns {
            w.turn_put(turn)?;
            w.journal_append(turn.turn_id, &note("x"), turn.started_at)?;
        }
    });
}

/// Those of the turns 1 to 9 that are stored. Each has one step of its journal if it is, and none if not.
pub(super) fn turns_left(r: &mut Tx) -> Result<Vec<u64>> {
    let mut left = Vec::new();
    for n in 1..=9 {
        let steps = r.journal_of(turn_id(n))?.len();
        let is_stored = r.turn_get(turn_id(n))?.is_some();
        assert_eq!(steps, usize::from(is_stored), "turn {n}");
        left.extend(is_stored.then_some(n));
    }
    Ok(left)
}

pub(super) async fn pruned_turns_take_their_journals(store: Bench) {
    put_turns(&store, [1, 5, 9].map(|n| turn(n, "a", TurnStatus::Finished))).await;
    prune_all(&store, Family::Turns, 7).await;
    shows!(&store, |r| {
        turns_left(r)? => [9];
        map_rows(&r.turn_list(&TurnFilter::default())?, |turn| turn.turn_id) => [turn_id(9)];
    });
}

pub(super) async fn open_turns_and_held_letters_keep_journals(store: Bench) {
    let dead = |n| turn(n, "a", TurnStatus::Dead);
    put_turns(&store, [turn(1, "a", TurnStatus::Open), dead(2), dead(3)]).await;
    put!(&store, {
        dead_letter_put: letter(2, "a", DeadLetterStatus::Held), letter(3, "a", DeadLetterStatus::Dropped);
    });
    prune_all(&store, Family::Turns, 1_000).await;
    shows!(&store, |r| { turns_left(r)? => [1, 2]; });
}

pub(super) async fn prompts_are_kept_while_a_journal_names_them(store: Bench) {
    put!(&store, { turn_put: turn(1, "a", TurnStatus::Finished), turn(2, "a", TurnStatus::Open); });
    keep!(&store, |w| {
        for (hash, second) in [("system", 1), ("old", 1), ("open", 1), ("unnamed", 1), ("fresh", 60)] {
            w.prompt_put(hash, hash, at(second))?;
        }
        w.journal_append(turn_id(1), &briefed("system", "old"), at(1))?;
        w.journal_append(turn_id(2), &briefed("system", "open"), at(2))?;
    });
    let kept = async |store: &Store| {
        found!(store, ["system", "old", "open", "unnamed", "fresh"], |r, hash| r.prompt_get(hash)?)
    };
    prune_all(&store, Family::Turns, 50).await;
    assert_eq!(kept(&store).await, ["system", "open", "fresh"]);
    // A pruned part can be stored again.
    keep!(&store, |w| { w.prompt_put("old", "new", at(61))? });
    put!(&store, { turn_put: turn(2, "a", TurnStatus::Finished); });
    prune_all(&store, Family::Turns, 50).await;
    assert_eq!(kept(&store).await, ["old", "fresh"]);
    shows!(&store, |r| { r.prompt_get("old")?.as_deref() => Some("new"); });
}

pub(super) async fn open_asks_are_kept(store: Bench) {
    let of = |n, status| ask(n, "a", "b", status);
    put!(&store, {
        ask_put: of(1, AskStatus::Open), of(2, AskStatus::Answered), of(3, AskStatus::Failed),
            of(4, AskStatus::TimedOut), of(50, AskStatus::Answered);
    });
    prune_all(&store, Family::Asks, 40).await;
    assert_eq!(found!(&store, [1, 2, 3, 4, 50], |r, n| r.ask_get(ask_id(n))?), [1, 50]);
}

pub(super) async fn running_calls_are_kept(store: Bench) {
    put!(&store, {
        call_put: call(1, "a", CallStatus::Started), call(2, "a", CallStatus::Ok), call(3, "a", CallStatus::Failed),
            call(4, "a", CallStatus::Unknown), call(50, "a", CallStatus::Ok);
    });
    prune_all(&store, Family::Ledger, 40).await;
    shows!(&store, |r| {
        map_rows(&r.call_list(&LedgerFilter::default())?, |row| row.call_id) => [50, 1].map(call_id);
    });
}

pub(super) async fn usage_and_requests_are_pruned(store: Bench) {
    let principal = || Party::Operator("one".to_owned());
    put!(&store, {
        request_put: answer(principal(), "old", 1), answer(principal(), "new", 50);
        usage_append: usage(1, "a", "m", 10), usage(50, "a", "m", 20);
    });
    prune_all(&store, Family::Usage, 40).await;
    prune_all(&store, Family::Requests, 40).await;
    shows!(&store, |r| {
        map_rows(&r.usage_sum(&UsageFilter::default())?, |sum| (sum.calls, sum.tokens.input)) => [(1, 20)];
        r.request_get(&principal(), &"old".parse().unwrap())? => None;
        r.request_get(&principal(), &"new".parse().unwrap())? => Some(answer(principal(), "new", 50));
    });
}

pub(super) async fn held_letters_are_kept(store: Bench) {
    use DeadLetterStatus::{Dropped, Held, Retried};
    // The letters 4, 5 and 51 belong to agents without a record or with a tombstone, so nobody can retry them. One is too
    // young.
    put!(&store, {
        agent_put: agent("a"), Agent { deleted_at: Some(at(2)), ..agent("gone") };
        dead_letter_put: letter(1, "a", Held), letter(2, "a", Retried), letter(3, "a", Dropped),
            letter(50, "a", Dropped), letter(4, "forgotten", Held), letter(51, "forgotten", Held),
            letter(5, "gone", Held);
    });
    prune_all(&store, Family::DeadLetters, 40).await;
    shows!(&store, |r| {
        map_rows(&r.dead_letter_list(None, None, None, 1_000)?, |letter| letter.dead_letter_id)
            => [51, 50, 5, 1].map(letter_id);
    });
}

/// The ids of all tasks, in order.
fn tasks_left(r: &mut Tx) -> Result<Vec<TaskId>> {
    let mut ids = map_rows(&r.task_list(&TaskFilter::default())?, |task| task.task_id);
    ids.sort();
    Ok(ids)
}

pub(super) async fn needed_tasks_are_kept(store: Bench) {
    let on = |n, needs: u64, status| Task { depends_on: vec![task_id(needs)], ..task(n, "a", status) };
    let event = |n| {
        let (by, status, owner) = (Party::System, TaskStatus::Done, id_of("a"));
        TaskEvent { task_id: task_id(n), by, at: at(n), status, owner, note: None }
    };
    put!(&store, {
        task_put: task(1, "a", TaskStatus::Done), on(2, 1, TaskStatus::Blocked), task(3, "a", TaskStatus::Failed),
            on(4, 3, TaskStatus::Cancelled), task(5, "a", TaskStatus::InProgress), task(50, "a", TaskStatus::Done);
        task_event_append: event(1), event(3);
    });
    prune_all(&store, Family::Tasks, 40).await;
    shows!(&store, |r| {
        tasks_left(r)? => [1, 2, 5, 50].map(task_id);
        (r.task_events(task_id(1), 100)?.len(), r.task_events(task_id(3), 100)?.len()) => (1, 0);
        r.task_dependants(task_id(3))? => [];
    });
    put!(&store, { task_put: on(2, 1, TaskStatus::Done); });
    prune_all(&store, Family::Tasks, 40).await;
    shows!(&store, |r| { tasks_left(r)? => [5, 50].map(task_id); });
}

pub(super) async fn a_prune_is_bounded(store: Bench) {
    keep!(&store, |w| {
        // Not in order of age, to check "oldest first".
        for n in [4, 2, 5, 1, 3] {
            w.task_put(&task(n, "a", TaskStatus::Done))?;
            w.dead_letter_put(&letter(n, "a", DeadLetterStatus::Dropped))?;
            w.call_put(&call(n, "a", CallStatus::Ok))?;
            w.turn_put(&turn(n, "a", TurnStatus::Finished))?;
            w.ask_put(&ask(n, "a", "b", AskStatus::Answered))?;
        }
    });
    for family in [Family::Tasks, Family::DeadLetters, Family::Ledger, Family::Turns, Family::Asks] {
        prunes!(&store, family, |r| { r.prune_rows(family)? }, { (40, 0) => 0, 5; (40, 2) => 2, 3; });
    }
    for family in Family::ALL {
        reading!(&store, |r| { r.prune_rows(family)? });
    }
    shows!(&store, |r| {
        tasks_left(r)? => [3, 4, 5].map(task_id);
        map_rows(&r.dead_letter_list(None, None, None, 9)?, |row| row.dead_letter_id) => [5, 4, 3].map(letter_id);
        map_rows(&r.call_list(&LedgerFilter::default())?, |call| call.call_id) => [5, 4, 3].map(call_id);
        map_rows(&r.turn_list(&TurnFilter::default())?, |turn| turn.turn_id) => [5, 4, 3].map(turn_id);
    });
    assert_eq!(found!(&store, 1..=5, |r, n| r.ask_get(ask_id(n))?), [3, 4, 5]);
}

pub(super) async fn a_refused_prune_deletes_nothing(store: Bench) {
    let done = |n| task(n, "a", TaskStatus::Done);
    put!(&store, { task_put: done(1); });
    put_turns(&store, [turn(1, "a", TurnStatus::Finished)]).await;
    refuse!(&store, |w| {
        // Rows of the same command are pruned like any others.
        w.task_put(&done(2))?;
        assert_eq!(w.prune(Family::Tasks, at(40), 9)?, 2);
        assert_eq!(w.prune(Family::Turns, at(40), 9)?, 1);
        assert_eq!((tasks_left(w)?, turns_left(w)?), (vec![], vec![]));
        w.task_put(&done(3))?;
    });
    shows!(&store, |r| {
        (tasks_left(r)?, turns_left(r)?) => (vec![task_id(1)], vec![1]);
        r.task_get(task_id(1))? => Some(done(1));
        r.turn_get(turn_id(1))? => Some(turn(1, "a", TurnStatus::Finished));
    });
}
