//! The plans of lists: each reads an index in its order, and sorts nothing.

use ghost_domain::{
    AgentId, ConversationId, DeadLetterId, DeadLetterStatus, LogPlace, RootId, ScopeSort, TaskId, TaskStatus,
    Timestamp, TurnId, TurnStatus,
};
use uuid::Uuid;

use super::prelude::*;
use super::tasks::{Range, open_tasks};
use super::{BudgetFilter, SessionTurns, TaskFilter, TurnFilter};
use super::{budgets, messages, talk, tasks, turns};
use crate::sqlite::tests::plans::{assert_indexed, plan};

const AT: Timestamp = Timestamp(9);

fn bob() -> AgentId {
    "bob".parse().unwrap()
}

/// Every list with every filter, and what its only step must be: how it begins and how it ends.
fn lists() -> Vec<((Statement, Args), &'static str, &'static str)> {
    let mut lists = Vec::new();
    let mut any = |query| lists.push((query, "", ""));
    any(tasks::jobs(None, 9));
    any(tasks::jobs(Some((AT, "a")), 9));
    let place = LogPlace { ended_at: AT, turn_id: TurnId(Uuid::nil()) };
    for (from, before) in [(None, None), (Some(place), None), (None, Some(place)), (Some(place), Some(place))] {
        let query = SessionTurns { agent_id: bob(), conversation_id: None, source: "mail", from, before, limit: 9 };
        any(turns::log(&query));
    }
    for agent_id in [None, Some(&bob())] {
        for after in [None, Some((AT, ConversationId(Uuid::nil())))] {
            any(talk::conversations(agent_id, after, 9));
        }
        for status in [None, Some(DeadLetterStatus::Held)] {
            for after in [None, Some((AT, DeadLetterId(Uuid::nil())))] {
                any(messages::dead_letters(agent_id, status, after, 9));
            }
        }
        for status in [None, Some(TaskStatus::Pending)] {
            for parent_id in [None, Some(TaskId(Uuid::nil()))] {
                for after in [None, Some((0, AT, TaskId(Uuid::nil())))] {
                    let owner = agent_id.cloned();
                    let filter = TaskFilter { owner, status, parent_id, after, ..TaskFilter::default() };
                    tasks::ranges(after).into_iter().for_each(|range| any(tasks::list(&filter, range, 9)));
                }
            }
        }
    }
    for sort in ScopeSort::ALL.iter().copied().map(Some).chain([None]) {
        for (limited, no_roots) in [(false, false), (true, false), (false, true)] {
            let filter = BudgetFilter { sort, limited, no_roots, ..BudgetFilter::default() };
            for range in budgets::ranges(&filter) {
                lists.push((budgets::list(&filter, *range, 9).unwrap(), "", "(scope>? AND scope<?)"));
            }
        }
    }
    let statuses = TurnStatus::ALL.iter().copied().filter(|status| *status != TurnStatus::Open);
    for agent_id in [None, Some(bob())] {
        for status in statuses.clone().map(Some).chain([None]) {
            for (before, after) in [(None, None), (Some(AT), None), (None, Some((AT, TurnId(Uuid::nil()))))] {
                let agent_id = agent_id.clone();
                let filter = TurnFilter { agent_id, status, before, after, limit: 9, ..TurnFilter::default() };
                let narrowed = filter.agent_id.is_some() || status.is_some() || before.is_some() || after.is_some();
                lists.push((turns::list(&filter), if narrowed { "SEARCH" } else { "" }, ""));
            }
        }
    }
    lists
}

#[tokio::test]
async fn lists_are_read_from_indexes_and_sort_nothing() {
    for (query, start, end) in lists() {
        let sql = format!("{:?}", query.0);
        let step = assert_indexed(query).await;
        assert!(step.starts_with(start) && step.ends_with(end), "{sql}: {step}");
    }
}

#[tokio::test]
async fn queries_begin_with_the_index_of_what_they_look_for() {
    assert_eq!(plan((tasks::JOB_OF_TASK, args!["x"])).await, ["SEARCH jobs USING INDEX jobs_task (task_id=?)"]);
    let of_root = TaskFilter { root_id: Some(RootId(Uuid::nil())), ..TaskFilter::default() };
    let found = plan(tasks::list(&of_root, Range::All, 9)).await;
    assert_eq!(found[0], "SEARCH tasks USING INDEX tasks_root (root_id=?)");
    let after = Some(TaskId(Uuid::from_u128(7)));
    for owner in [None, Some(&bob())] {
        // A page of open tasks reads no ended ones.
        assert_eq!(plan(open_tasks(owner, None, 250)).await, ["SCAN tasks USING INDEX tasks_open"]);
        assert_eq!(plan(open_tasks(owner, after, 250)).await, ["SEARCH tasks USING INDEX tasks_open (task_id>?)"]);
    }
    for status in [None, Some(TurnStatus::Open), Some(TurnStatus::Finished)] {
        let root_id = Some(RootId(Uuid::nil()));
        let filter = TurnFilter { root_id, status, agent_id: Some(bob()), ..TurnFilter::default() };
        let found = plan(turns::list(&filter)).await;
        let starts = ["SEARCH turn_roots USING PRIMARY KEY (root_id=?)", "SEARCH turns USING PRIMARY KEY (turn_id=?)"];
        assert!(found.iter().zip(starts).all(|(step, start)| step.starts_with(start)), "{found:?}");
    }
}

/// The list of sessions reads the log's index, and no other of turns.
#[tokio::test]
async fn sessions_are_read_from_the_index_of_logs() {
    let steps = plan((turns::SESSIONS, args!["a", 0, 9, 0])).await;
    let reads = steps.iter().filter(|step| step.contains(" turns ")).collect::<Vec<_>>();
    assert!(reads.len() >= 4 && reads.iter().all(|step| step.contains("turns_session (agent_id=?")), "{steps:?}");
}
