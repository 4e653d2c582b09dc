//! Compares commands that share batches with the same random commands one by one, in a store in memory. Each command
//! must read the same in both, and both must end in the same state.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Mutex;

use super::random::Random;
use super::script::{Command, End, every_operation, script};
use super::script_shared;
use super::tools::*;
use crate::memory::MemoryStore;
use crate::row::{args, get};
use crate::sql::sql;

/// The result of a command.
#[derive(Debug, PartialEq, Eq)]
enum CommandResult {
    Kept,
    Refused,
    Panicked,
    Failed(String),
}

/// Runs a command. Returns its result and everything it read. The reads are compared even if the
/// command was undone.
async fn play(store: &Store, command: &Command) -> (CommandResult, Vec<String>) {
    play_then(store, command, |_| Ok(Vec::new())).await
}

/// Runs a command, and after its operations `last`, which adds to what it read.
async fn play_then<F>(store: &Store, command: &Command, last: F) -> (CommandResult, Vec<String>)
where
    F: FnOnce(&mut Tx) -> Result<Vec<String>> + Send + 'static,
{
    let Command { ops, end } = command.clone();
    let reads = Arc::new(Mutex::new(Vec::with_capacity(ops.len())));
    let recorded_reads = reads.clone();
    let played = write(store, move |w| {
        for op in ops {
            let seen = op.run(w)?;
            recorded_reads.lock().unwrap().push(seen);
        }
        let seen = last(w)?;
        recorded_reads.lock().unwrap().extend(seen);
        match end {
            End::Keep => Ok(()),
            End::Refuse => Err(Stop::Refused),
            End::Panic => raise_panic(),
        }
    });
    let result = match AssertUnwindSafe(played).catch_unwind().await {
        Ok(Ok(())) => CommandResult::Kept,
        Ok(Err(Stop::Refused)) => CommandResult::Refused,
        Ok(Err(Stop::Store(error))) => CommandResult::Failed(error.to_string()),
        Err(_) => CommandResult::Panicked,
    };
    let reads = std::mem::take(&mut *reads.lock().unwrap());
    (result, reads)
}

/// Runs random commands on a store, for tests that need rows of all tables.
#[cfg(test)]
pub(crate) async fn fill(store: &Store) {
    use ghost_domain::turn::WaitMode;
    use ghost_domain::{Turn, TurnStatus};
    for command in script(7, 400) {
        play(store, &command).await;
    }
    let parked = Some(super::rows::waits_for_root(WaitMode::Background));
    let turn = Turn {
        parked,
        conversation_id: Some(super::rows::conversation_id(1)),
        log_from: Some(super::rows::at(3)),
        other_roots: vec![root_id(2), root_id(3)],
        ..super::rows::turn(9, "a", TurnStatus::Open)
    };
    write(store, move |w| Ok(w.turn_put(&turn)?)).await.unwrap();
}

/// Everything that can be read from a store, one fact per line, without the numbers that a backend
/// may choose.
async fn observe(store: &Store, ops: u64) -> Vec<String> {
    reading!(store, |r| { facts(r, ops)? })
}

/// The facts that a transaction reads.
fn facts(r: &mut Tx, ops: u64) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    macro_rules! line {
        ($($value:expr),+) => { lines.push(format!("{} = {:?}", stringify!($($value),+), ($($value),+))) };
    }
    line!(r.agent_list(true)?, r.agent_count_dynamic()?);
    line!(r.meta_get("k1")?, r.meta_get("k2")?);
    line!(r.job_list(None, 1_000)?);
    line!(r.asks_open()?, r.ask_count_open()?, r.root_list(100)?);
    line!(r.approval_list(&ApprovalFilter::default(), None, 1_000)?, r.approval_count_pending()?);
    for n in 0..5 {
        line!(n, r.ask_get(ask_id(n))?);
    }
    line!(r.budget_list(&BudgetFilter::default())?, r.budget_list(&BudgetFilter { limited: true, ..<_>::default() })?);
    line!(r.usage_sum(&UsageFilter::default())?);
    line!(r.dead_letter_list(None, None, None, 1_000)?);
    line!(r.event_list(0, &EventFilter::default(), 100_000)?, r.event_bounds()?);
    line!(r.call_list(&LedgerFilter { limit: 1_000, ..LedgerFilter::default() })?);
    for name in ["a", "b", "c"] {
        let agent_id = id_of(name);
        line!(name, r.inbox_depth(&agent_id)?, r.turn_open_of(&agent_id)?);
        let ids = r.inbox_pending(&agent_id, 10_000)?.into_iter().map(|mail| mail.message_id);
        line!(name, ids.collect::<Vec<_>>());
        let ids = r.inbox_ready(&agent_id, 10_000)?.into_iter().map(|mail| mail.message_id);
        line!(name, ids.collect::<Vec<_>>());
        let recent = r.messages_recent(&agent_id, 10_000)?.into_iter().map(|mail| mail.message_id);
        line!(name, recent.collect::<Vec<_>>());
        line!(name, r.skills_held(&agent_id)?, r.session_start(&agent_id, None)?);
        line!(name, r.session_start(&agent_id, Some(conversation_id(1)))?);
        let to = r.asks_open_to(&agent_id)?.into_iter().map(|ask| ask.ask_id);
        line!(name, to.collect::<BTreeSet<_>>());
        for request in ["r1", "r2"] {
            line!(r.request_get(&Party::Agent(agent_id.clone()), &request.parse().unwrap())?);
        }
    }
    line!(r.inbox_waiting()?, r.inbox_waiting_of(root_id(1))?, r.inbox_total()?);
    for n in 1..=ops {
        if let Some(mut mail) = r.message_get(message_id(n))? {
            mail.seq = 0;
            line!(mail);
        }
    }
    line!(r.task_list(&TaskFilter { limit: 1_000, ..TaskFilter::default() })?, r.task_count_open()?);
    line!(r.turns_open()?);
    line!(r.turn_list(&TurnFilter { limit: 1_000, ..TurnFilter::default() })?);
    for n in 0..6 {
        line!(n, r.task_events(task_id(n), 100)?, r.task_dependants(task_id(n))?);
        let steps = r.journal_of(turn_id(n))?.into_iter().map(|row| (row.step, row.at));
        line!(n, steps.collect::<Vec<_>>());
        let mail = r.messages_of_turn(turn_id(n))?.into_iter().map(|mail| mail.message_id);
        line!(n, mail.collect::<Vec<_>>());
    }
    for hash in ["h1", "h2", "h3", "h4"] {
        line!(hash, r.prompt_get(hash)?);
    }
    lines.extend(script_shared::observe(r)?);
    assert_eq!(r.wrong_counts()?, []);
    Ok(lines)
}

async fn assert_same(store: &Store, model: &Store, ops: u64, context: &str) {
    let (seen, wanted) = (observe(store, ops).await, observe(model, ops).await);
    for (seen, wanted) in seen.iter().zip(&wanted) {
        assert_eq!(seen, wanted, "{context}");
    }
    assert_eq!(seen.len(), wanted.len(), "{context}");
}

/// Asserts that a command ended as planned; otherwise the comparison would compare failures.
fn assert_ended(result: &CommandResult, command: &Command, context: &str) {
    let wanted = match command.end {
        End::Keep => CommandResult::Kept,
        End::Refuse => CommandResult::Refused,
        End::Panic => CommandResult::Panicked,
    };
    assert_eq!(*result, wanted, "{context}");
}

fn ops(script: &[Command]) -> u64 {
    u64::try_from(script.iter().map(|command| command.ops.len()).sum::<usize>()).unwrap()
}

/// A command reads what it has written, as others read it after the commit; and nothing stays of a command that refuses or
/// panics, whatever it wrote or deleted. So the checks of the tables need not show either for their own rows.
pub(super) async fn commands_see_their_writes_and_leave_none_if_undone(store: Bench) {
    let fill = script(3, 120);
    for command in &fill {
        play(&store, command).await;
    }
    let mut first = ops(&fill) + 1;
    for end in [End::Refuse, End::Panic, End::Keep] {
        for prunes in [false, true] {
            let command = Command { ops: every_operation(first), end };
            let count = command.ops.len();
            first += count as u64;
            let before = observe(&store, first).await;
            let last = move |w: &mut Tx| {
                for family in Family::ALL.into_iter().filter(|_| prunes) {
                    w.prune(family, Timestamp(i64::MAX), 1_000)?;
                }
                facts(w, first)
            };
            let (result, reads) = play_then(&store, &command, last).await;
            assert_ended(&result, &command, &format!("{command:?}"));
            let inside = &reads[count..];
            assert_ne!(inside, before, "it changes something");
            let wanted = if end == End::Keep { inside } else { &before[..] };
            assert_eq!(observe(&store, first).await, wanted, "{end:?}, prunes: {prunes}");
        }
    }
}

/// Runs one command after the other. Compares each result, and every tenth state. Reopens the store
/// from time to time.
pub(super) async fn sequences_equal_memory(mut store: Bench) {
    let script = script(1, 350);
    let model = MemoryStore::open();
    let ops = ops(&script);
    for (at, command) in script.iter().enumerate() {
        let context = format!("command {at}: {command:?}");
        let result = play(&store, command).await;
        assert_ended(&result.0, command, &context);
        assert_eq!(result, play(&model, command).await, "{context}");
        if at % 10 == 9 {
            assert_same(&store, &model, ops, &context).await;
        }
        if at % 60 == 59 {
            store.reopen().await;
        }
    }
    assert_same(&store, &model, ops, "at the end").await;
}

/// Queues several commands at once, so that a backend with group commit runs them in one batch.
pub(super) async fn batches_equal_memory(store: Bench) {
    let mut random = Random::new(7);
    let script = script(2, 600);
    let model = MemoryStore::open();
    let ops = ops(&script);
    let mut rest = script.as_slice();
    while !rest.is_empty() {
        let size = usize::try_from(1 + random.below(16)).unwrap().min(rest.len());
        let (batch, later) = rest.split_at(size);
        rest = later;
        let context = || format!("{} commands before the end, batch {batch:#?}", later.len());
        let result = join_all(batch.iter().map(|command| play(&store, command))).await;
        for (result, command) in result.iter().zip(batch) {
            assert_ended(&result.0, command, &context());
            assert_eq!(*result, play(&model, command).await, "{}: {command:?}", context());
        }
        if random.below(3) == 0 {
            assert_same(&store, &model, ops, &context()).await;
        }
    }
    assert_same(&store, &model, ops, "at the end").await;
}

impl Tx {
    /// The counts that differ from the rows that they count: name, stored value, rows. It reads whole tables.
    pub fn wrong_counts(&mut self) -> Result<Vec<(String, i64, i64)>> {
        // A macro, because the compiler joins literals only.
        macro_rules! counted_rows {
            () => {
                "SELECT 'agents_dynamic' AS name, count(*) AS value FROM agents \
                WHERE kind = 'dynamic' AND deleted_at IS NULL \
                UNION ALL SELECT 'chat_channels', count(*) FROM chat_channels \
                UNION ALL SELECT 'conversations', count(*) FROM conversations \
                UNION ALL SELECT 'knowledge', count(*) FROM knowledge WHERE deleted = 0 \
                UNION ALL SELECT 'state_keys', count(*) FROM shared_state \
                UNION ALL SELECT 'approvals_pending', count(*) FROM approvals WHERE status = 'pending' \
                UNION ALL SELECT 'asks_open', count(*) FROM asks WHERE status = 'open' \
                UNION ALL SELECT 'tasks_open', count(*) FROM tasks WHERE ended = 0 \
                UNION ALL SELECT 'schedules', count(*) FROM schedules \
                UNION ALL SELECT 'schedules/' || agent_id || '/' || kind, count(*) FROM schedules \
                GROUP BY agent_id, kind \
                UNION ALL SELECT 'dead_letters_held', count(*) FROM dead_letters WHERE status = 'held' \
                UNION ALL SELECT 'dead_letters_held/' || agent_id, count(*) FROM dead_letters WHERE status = 'held' \
                GROUP BY agent_id \
                UNION ALL SELECT 'droids_live', count(*) FROM droids WHERE ended_at IS NULL \
                UNION ALL SELECT 'droids_live/' || parent_id, count(*) FROM droids WHERE ended_at IS NULL \
                GROUP BY parent_id"
            };
        }
        let sql = sql!(
            "SELECT r.name, coalesce(c.value, 0), r.value FROM (",
            counted_rows!(),
            ") AS r LEFT JOIN counters AS c ON c.name = r.name WHERE coalesce(c.value, 0) <> r.value \
            UNION ALL SELECT c.name, c.value, 0 FROM counters AS c WHERE replace(c.name, '/', '') <> c.name \
            AND c.value <> 0 AND c.name NOT IN (SELECT r.name FROM (",
            counted_rows!(),
            ") AS r)"
        );
        self.rows(sql, args![], |row| {
            Ok((get("counters", row, 0)?, get("counters", row, 1)?, get("counters", row, 2)?))
        })
    }
}
