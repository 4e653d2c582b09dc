//! Transactions: all or nothing, own writes are visible, and other commands are not affected.

use futures_util::future::join_all;
use ghost_domain::{Agent, MailState, Scope, TaskStatus, TurnStatus};

use super::tools::*;
use crate::tables::{BudgetFilter, TaskFilter, TurnFilter};
use crate::{Store, StoreError};

pub(super) async fn scans_see_writes_before_them(store: Bench) {
    keep!(&store, |w| {
        for n in 1..=3 {
            w.agent_put(&agent(&format!("a{n}")))?;
            w.task_put(&task(n, "a", TaskStatus::Pending))?;
            w.turn_put(&turn(n, "a", TurnStatus::Failed))?;
            w.message_append(&mail(n, "a"))?;
            w.journal_append(turn_id(1), &note("x"), at(n))?;
            let seen = [
                w.agent_list(true)?.len(),
                w.task_list(&TaskFilter::default())?.len(),
                w.turn_list(&TurnFilter::default())?.len(),
                w.inbox_pending(&id_of("a"), 9)?.len(),
                w.messages_recent(&id_of("a"), 9)?.len(),
                w.journal_of(turn_id(1))?.len(),
            ];
            assert_eq!(seen, [usize::try_from(n).unwrap(); 6]);
        }
        // A row that a scan has returned can still be replaced.
        w.task_put(&task(2, "b", TaskStatus::Done))?;
        assert_eq!(w.task_count_open()?, 2);
        assert_eq!(w.task_list(&TaskFilter { owner: Some(id_of("b")), ..TaskFilter::default() })?.len(), 1);
    });
    assert_eq!(reading!(&store, |r| { r.task_count_open()? }), 2);
}

/// Queues commands 1 to 9 at once. Every third one refuses after its writes. With `scan` they also
/// scan tables in between.
async fn check_refusals(store: Bench, scan: bool) {
    let command = async |store: Store, n: u64| {
        write(&store, move |w| {
            w.message_append(&mail(n, "a"))?;
            w.task_put(&task(n % 3, "a", TaskStatus::Pending))?;
            if scan {
                assert!(w.inbox_pending(&id_of("a"), 99)?.iter().any(|mail| mail.message_id == message_id(n)));
                assert!(!w.task_list(&TaskFilter::default())?.is_empty());
            }
            w.message_append(&mail(100 + n, "a"))?;
            w.message_mark(&[message_id(n)], MailState::Taken, Some(turn_id(n)), 1)?;
            w.task_put(&task(10 + n, "a", TaskStatus::Done))?;
            if scan {
                assert_eq!(w.messages_of_turn(turn_id(n))?.len(), 1);
            }
            w.message_append(&mail(200 + n, "a"))?;
            if n.is_multiple_of(3) { Err(Stop::Refused) } else { Ok(()) }
        })
        .await
    };
    let outcomes = join_all((1..=9).map(|n| command(store.clone(), n))).await;
    for (outcome, n) in outcomes.iter().zip(1_u64..) {
        assert_eq!(outcome.is_err(), n.is_multiple_of(3), "{n}: {outcome:?}");
    }
    let kept = || (1..=9_u64).filter(|n| !n.is_multiple_of(3));
    let (pending, depth, tasks) = reading!(&store, |r| {
        (r.inbox_pending(&id_of("a"), 99)?, r.inbox_depth(&id_of("a"))?, r.task_list(&TaskFilter::default())?)
    });
    let mut ids = map_rows(&pending, |mail| mail.message_id);
    assert_eq!(usize::try_from(depth).unwrap(), ids.len());
    ids.sort();
    let wanted: Vec<_> = [100, 200].iter().flat_map(|base| kept().map(move |n| message_id(base + n))).collect();
    assert_eq!(ids, wanted);
    let mut ids = map_rows(&tasks, |task| task.task_id);
    ids.sort();
    let wanted: Vec<_> = [1, 2].into_iter().chain(kept().map(|n| 10 + n)).map(task_id).collect();
    assert_eq!(ids, wanted);
    for n in 1..=9 {
        assert_eq!(reading!(&store, |r| { r.messages_of_turn(turn_id(n))? }).len(), usize::from(!n.is_multiple_of(3)));
    }
}

pub(super) async fn a_refusal_undoes_its_writes_alone(store: Bench) {
    check_refusals(store, false).await;
}

pub(super) async fn a_refusal_after_scans_undoes_its_writes_alone(store: Bench) {
    check_refusals(store, true).await;
}

pub(super) async fn a_refusal_restores_replaced_rows(store: Bench) {
    keep!(&store, |w| {
        w.agent_put(&agent("a"))?;
        w.budget_put(&budget(Scope::World, Some(5), None))?;
        w.turn_put(&turn(1, "a", TurnStatus::Open))?;
        w.prompt_put("h", "text", at(1))?;
    });
    for scan in [false, true] {
        refuse!(&store, |w| {
            w.agent_put(&Agent { name: "changed".to_owned(), deleted_at: Some(at(2)), ..agent("a") })?;
            w.agent_put(&Agent { name: "changed again".to_owned(), ..agent("a") })?;
            w.budget_put(&budget(Scope::World, None, None))?;
            w.turn_put(&turn(1, "a", TurnStatus::Finished))?;
            w.prompt_put("g", "other", at(1))?;
            w.meta_put("m", "x")?;
            if scan {
                assert_eq!(w.turns_open()?, []);
                assert_eq!(w.budget_list(&BudgetFilter { limited: true, ..BudgetFilter::default() })?, []);
            }
            assert_eq!(w.turn_open_of(&id_of("a"))?, None);
            w.turn_put(&turn(2, "a", TurnStatus::Open))?;
        });
        // Read inside a command (from the writer's memory) and outside (from storage).
        let inside = keep!(&store, |w| {
            (w.agent_get(&id_of("a"))?, w.budget_get(&Scope::World)?, w.turn_open_of(&id_of("a"))?)
        });
        let outside = reading!(&store, |r| {
            assert_eq!((r.prompt_get("g")?, r.meta_get("m")?), (None, None));
            assert_eq!(r.turns_open()?.len(), 1);
            (r.agent_get(&id_of("a"))?, r.budget_get(&Scope::World)?, r.turn_open_of(&id_of("a"))?)
        });
        let wanted =
            (Some(agent("a")), Some(budget(Scope::World, Some(5), None)), Some(turn(1, "a", TurnStatus::Open)));
        assert_eq!((&inside, &outside), (&wanted, &wanted), "scan: {scan}");
    }
}

pub(super) async fn a_panic_is_undone_and_continues_in_the_caller(store: Bench) {
    for scan in [false, true] {
        let command = write::<(), _>(&store, move |w| {
            w.agent_put(&agent("a"))?;
            if scan {
                assert_eq!(w.agent_list(true)?.len(), 1);
            }
            w.agent_put(&agent("b"))?;
            raise_panic()
        });
        let payload = catch_panic(command).await;
        assert_eq!(payload.downcast_ref::<String>().map(String::as_str), Some("blown up"));
        assert_eq!(reading!(&store, |r| { r.agent_list(true)? }), []);
    }
    keep!(&store, |w| {
        assert_eq!(w.agent_get(&id_of("a"))?, None);
        w.agent_put(&agent("c"))?;
    });
    assert_eq!(reading!(&store, |r| { r.agent_list(true)? }), [agent("c")]);
}

pub(super) async fn failed_queries_do_not_use_up_the_readers(store: Bench) {
    keep!(&store, |w| { w.agent_put(&agent("a"))? });
    // More often than the number of readers in a pool.
    for _ in 0..20 {
        let refused: Outcome<()> = read(&store, |r| {
            r.agent_list(true)?;
            Err(Stop::Refused)
        })
        .await;
        assert!(matches!(refused, Err(Stop::Refused)));
        let mine = store.clone();
        let panicked = tokio::spawn(async move { read::<(), _>(&mine, |_| raise_panic()).await });
        assert!(!matches!(panicked.await, Ok(Ok(()))));
    }
    assert_eq!(reading!(&store, |r| { r.agent_list(true)? }), [agent("a")]);
    keep!(&store, |w| { w.agent_put(&agent("b"))? });
}

pub(super) async fn answers_are_returned(store: Bench) {
    assert_eq!(keep!(&store, |_w| { "nothing written".to_owned() }), "nothing written");
    let answers = join_all((0..100_u64).map(|n| {
        let store = store.clone();
        async move {
            keep!(&store, |w| {
                w.message_append(&mail(n, "a"))?;
                n
            })
        }
    }))
    .await;
    assert_eq!(answers, (0..100).collect::<Vec<_>>());
    assert_eq!(reading!(&store, |r| { r.inbox_depth(&id_of("a"))? }), 100);
}

pub(super) async fn a_closed_store_returns_closed(mut store: Bench) {
    keep!(&store, |w| { w.agent_put(&agent("a"))? });
    store.close().await;
    store.close().await;
    let refused: Outcome<()> = write(&store, |w| Ok(w.agent_put(&agent("b"))?)).await;
    assert!(matches!(refused, Err(Stop::Store(StoreError::Closed))), "{refused:?}");
    let refused = read(&store, |r| Ok(r.agent_list(true)?)).await;
    assert!(matches!(refused, Err(Stop::Store(StoreError::Closed))), "{refused:?}");
    store.reopen().await;
    assert_eq!(reading!(&store, |r| { r.agent_list(true)? }), [agent("a")]);
}

pub(super) async fn acknowledged_commands_survive_reopening(mut store: Bench) {
    for n in 1..=5 {
        keep!(&store, |w| {
            assert_eq!(u64::from(w.inbox_depth(&id_of("a"))?), n - 1);
            w.message_append(&mail(n, "a"))?;
        });
        refuse!(&store, |w| { w.message_append(&mail(100 + n, "a"))? });
        let ids = map_rows(&reading!(&store, |r| { r.inbox_pending(&id_of("a"), 99)? }), |mail| mail.message_id);
        assert_eq!(ids, (1..=n).map(message_id).collect::<Vec<_>>());
        store.reopen().await;
    }
}
