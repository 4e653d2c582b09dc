//! Retention: which rows are deleted, and which must stay regardless of their age.

use ghost_domain::{AskStatus, CallStatus, DeadLetterStatus, Party, Task, TaskEvent, TaskStatus, TurnStatus};

use super::tools::*;
use crate::Store;
use crate::tables::{Family, LedgerFilter, TaskFilter, TurnFilter, UsageFilter};

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

pub(super) async fn pruned_turns_take_their_journals(store: Bench) {
    keep!(&store, |w| {
        for n in [1, 5, 9] {
            w.turn_put(&turn(n, "a", TurnStatus::Finished))?;
            w.journal_append(turn_id(n), &note("x"), at(n))?;
        }
        w.budget_put(&budget(ghost_domain::Scope::World, None, None))?;
    });
    prune_all(&store, Family::Turns, 7).await;
    let turns = reading!(&store, |r| { r.turn_list(&TurnFilter::default())? });
    assert_eq!(map_rows(&turns, |turn| turn.turn_id), [turn_id(9)]);
    for (n, kept) in [(1, 0), (5, 0), (9, 1)] {
        assert_eq!(reading!(&store, |r| { r.journal_of(turn_id(n))? }).len(), kept, "turn {n}");
    }
    keep!(&store, |w| {
        assert_eq!(w.turn_get(turn_id(1))?, None);
        assert!(w.turn_get(turn_id(9))?.is_some(), "in a command, too");
    });
}

pub(super) async fn open_turns_and_held_letters_keep_journals(store: Bench) {
    keep!(&store, |w| {
        w.turn_put(&turn(1, "a", TurnStatus::Open))?;
        w.turn_put(&turn(2, "a", TurnStatus::Dead))?;
        w.turn_put(&turn(3, "a", TurnStatus::Dead))?;
        for n in [1, 2, 3] {
            w.journal_append(turn_id(n), &note("x"), at(n))?;
        }
        w.dead_letter_put(&letter(2, "a", DeadLetterStatus::Held))?;
        w.dead_letter_put(&letter(3, "a", DeadLetterStatus::Dropped))?;
    });
    prune_all(&store, Family::Turns, 1_000).await;
    for (n, kept) in [(1, 1), (2, 1), (3, 0)] {
        shows!(&store, |r| {
            usize::from(r.turn_get(turn_id(n))?.is_some()) => kept;
            r.journal_of(turn_id(n))?.len() => kept, "turn {n}";
        });
    }
}

pub(super) async fn prompts_are_kept_while_a_journal_names_them(store: Bench) {
    keep!(&store, |w| {
        for hash in ["system", "old", "open", "unnamed"] {
            w.prompt_put(hash, hash, at(1))?;
        }
        w.prompt_put("fresh", "fresh", at(60))?;
        w.turn_put(&turn(1, "a", TurnStatus::Finished))?;
        w.journal_append(turn_id(1), &briefed("system", "old"), at(1))?;
        w.turn_put(&turn(2, "a", TurnStatus::Open))?;
        w.journal_append(turn_id(2), &briefed("system", "open"), at(2))?;
    });
    let kept = async |store: &Store| {
        found!(store, ["system", "old", "open", "unnamed", "fresh"], |r, hash| r.prompt_get(hash)?)
    };
    prune_all(&store, Family::Turns, 50).await;
    assert_eq!(kept(&store).await, ["system", "open", "fresh"]);
    keep!(&store, |w| {
        // A pruned part can be stored again.
        w.prompt_put("old", "new", at(61))?;
        w.turn_put(&turn(2, "a", TurnStatus::Finished))?;
    });
    prune_all(&store, Family::Turns, 50).await;
    assert_eq!(kept(&store).await, ["old", "fresh"]);
    assert_eq!(reading!(&store, |r| { r.prompt_get("old")? }).as_deref(), Some("new"));
}

pub(super) async fn open_asks_are_kept(store: Bench) {
    keep!(&store, |w| {
        w.ask_put(&ask(1, "a", "b", AskStatus::Open))?;
        for (n, status) in [(2, AskStatus::Answered), (3, AskStatus::Failed), (4, AskStatus::TimedOut)] {
            w.ask_put(&ask(n, "a", "b", status))?;
        }
        w.ask_put(&ask(50, "a", "b", AskStatus::Answered))?;
    });
    prune_all(&store, Family::Asks, 40).await;
    let kept = found!(&store, [1, 2, 3, 4, 50], |r, n| r.ask_get(ask_id(n))?);
    assert_eq!(kept, [1, 50]);
}

pub(super) async fn running_calls_are_kept(store: Bench) {
    keep!(&store, |w| {
        w.call_put(&call(1, "a", CallStatus::Started))?;
        for (n, status) in [(2, CallStatus::Ok), (3, CallStatus::Failed), (4, CallStatus::Unknown)] {
            w.call_put(&call(n, "a", status))?;
        }
        w.call_put(&call(50, "a", CallStatus::Ok))?;
    });
    prune_all(&store, Family::Ledger, 40).await;
    let kept = reading!(&store, |r| { r.call_list(&LedgerFilter::default())? });
    assert_eq!(map_rows(&kept, |row| row.call_id), [call_id(50), call_id(1)]);
}

pub(super) async fn usage_and_requests_are_pruned(store: Bench) {
    let principal = Party::Operator("one".to_owned());
    let (old, new) = (answer(principal.clone(), "old", 1), answer(principal.clone(), "new", 50));
    keep!(&store, |w| {
        w.request_put(&old)?;
        w.request_put(&new)?;
        w.usage_append(&usage(1, "a", "m", 10))?;
        w.usage_append(&usage(50, "a", "m", 20))?;
    });
    prune_all(&store, Family::Usage, 40).await;
    prune_all(&store, Family::Requests, 40).await;
    let sums = reading!(&store, |r| { r.usage_sum(&UsageFilter::default())? });
    assert_eq!(map_rows(&sums, |sum| (sum.calls, sum.tokens.input)), [(1, 20)]);
    keep!(&store, |w| {
        let (old, new) = ("old".parse().unwrap(), "new".parse().unwrap());
        assert!(w.request_get(&principal, &old)?.is_none());
        assert!(w.request_get(&principal, &new)?.is_some());
    });
}

pub(super) async fn held_letters_are_kept(store: Bench) {
    keep!(&store, |w| {
        w.dead_letter_put(&letter(1, "a", DeadLetterStatus::Held))?;
        w.dead_letter_put(&letter(2, "a", DeadLetterStatus::Retried))?;
        w.dead_letter_put(&letter(3, "a", DeadLetterStatus::Dropped))?;
        w.dead_letter_put(&letter(50, "a", DeadLetterStatus::Dropped))?;
        w.agent_put(&agent("a"))?;
        // These belong to agents without a record, so nobody can retry them. One is too young.
        w.dead_letter_put(&letter(4, "forgotten", DeadLetterStatus::Held))?;
        w.dead_letter_put(&letter(51, "forgotten", DeadLetterStatus::Held))?;
        w.dead_letter_put(&letter(5, "gone", DeadLetterStatus::Held))?;
        w.agent_put(&ghost_domain::Agent { deleted_at: Some(at(2)), ..agent("gone") })?;
    });
    prune_all(&store, Family::DeadLetters, 40).await;
    let kept = reading!(&store, |r| { r.dead_letter_list(None, None, None, 1_000)? });
    assert_eq!(
        map_rows(&kept, |letter| letter.dead_letter_id),
        [letter_id(51), letter_id(50), letter_id(5), letter_id(1)]
    );
}

pub(super) async fn needed_tasks_are_kept(store: Bench) {
    let on = |n, needs: u64, status| Task { depends_on: vec![task_id(needs)], ..task(n, "a", status) };
    keep!(&store, |w| {
        w.task_put(&task(1, "a", TaskStatus::Done))?;
        w.task_put(&on(2, 1, TaskStatus::Blocked))?;
        w.task_put(&task(3, "a", TaskStatus::Failed))?;
        w.task_put(&on(4, 3, TaskStatus::Cancelled))?;
        w.task_put(&task(5, "a", TaskStatus::InProgress))?;
        w.task_put(&task(50, "a", TaskStatus::Done))?;
        for n in [1, 3] {
            let status = TaskStatus::Done;
            let event =
                TaskEvent { task_id: task_id(n), by: Party::System, at: at(n), status, owner: id_of("a"), note: None };
            w.task_event_append(&event)?;
        }
    });
    let kept = async |store: &Store| {
        let mut ids = map_rows(&reading!(store, |r| { r.task_list(&TaskFilter::default())? }), |task| task.task_id);
        ids.sort();
        ids
    };
    prune_all(&store, Family::Tasks, 40).await;
    assert_eq!(kept(&store).await, [task_id(1), task_id(2), task_id(5), task_id(50)]);
    let history =
        reading!(&store, |r| { (r.task_events(task_id(1), 100)?.len(), r.task_events(task_id(3), 100)?.len()) });
    assert_eq!(history, (1, 0));
    assert_eq!(reading!(&store, |r| { r.task_dependants(task_id(3))? }), []);
    keep!(&store, |w| { w.task_put(&on(2, 1, TaskStatus::Done))? });
    prune_all(&store, Family::Tasks, 40).await;
    assert_eq!(kept(&store).await, [task_id(5), task_id(50)]);
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
        assert_eq!(keep!(&store, |w| { w.prune(family, at(40), 0)? }), 0, "{family:?}");
        assert_eq!(keep!(&store, |w| { w.prune(family, at(40), 2)? }), 2, "{family:?}");
    }
    for family in [Family::Tasks, Family::DeadLetters, Family::Ledger, Family::Turns, Family::Asks] {
        assert_eq!(keep!(&store, |w| { w.prune_rows(family)? }), 3, "{family:?}");
    }
    for family in Family::ALL {
        keep!(&store, |w| { w.prune_rows(family)? });
    }
    shows!(&store, |r| {
        map_rows(&r.task_list(&TaskFilter::default())?, |task| task.task_id) => [3, 4, 5].map(task_id);
        map_rows(&r.dead_letter_list(None, None, None, 9)?, |row| row.dead_letter_id) => [5, 4, 3].map(letter_id);
        map_rows(&r.call_list(&LedgerFilter::default())?, |call| call.call_id) => [5, 4, 3].map(call_id);
        map_rows(&r.turn_list(&TurnFilter::default())?, |turn| turn.turn_id) => [5, 4, 3].map(turn_id);
    });
    assert_eq!(found!(&store, 1..=5, |r, n| r.ask_get(ask_id(n))?), [3, 4, 5]);
}

pub(super) async fn a_refused_prune_deletes_nothing(store: Bench) {
    keep!(&store, |w| {
        w.task_put(&task(1, "a", TaskStatus::Done))?;
        w.turn_put(&turn(1, "a", TurnStatus::Finished))?;
        w.journal_append(turn_id(1), &note("x"), at(1))?;
    });
    refuse!(&store, |w| {
        // Rows of the same command are pruned like any others.
        w.task_put(&task(2, "a", TaskStatus::Done))?;
        assert_eq!(w.prune(Family::Tasks, at(40), 9)?, 2);
        assert_eq!(w.prune(Family::Turns, at(40), 9)?, 1);
        assert_eq!((w.task_get(task_id(1))?, w.task_get(task_id(2))?), (None, None));
        w.task_put(&task(3, "a", TaskStatus::Done))?;
    });
    keep!(&store, |w| {
        assert_eq!(w.task_get(task_id(1))?, Some(task(1, "a", TaskStatus::Done)));
        assert_eq!(w.turn_get(turn_id(1))?, Some(turn(1, "a", TurnStatus::Finished)));
    });
    shows!(&store, |r| {
        map_rows(&r.task_list(&TaskFilter::default())?, |task| task.task_id) => vec![task_id(1)];
        r.journal_of(turn_id(1))?.len() => 1;
    });
}
