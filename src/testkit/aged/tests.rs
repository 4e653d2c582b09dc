//! Tests of the generator with hand-written turns: the old database is complete, and its totals are right.

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::Step;
use ghost_domain::usage::UsageRow;
use ghost_domain::{
    Agent, AgentId, CallId, Envelope, EventId, LedgerRow, MessageId, RootId, Timestamp, Turn, TurnId, TurnStatus,
};
use ghost_store::sqlite::{SqliteOptions, open_store};
use ghost_store::tables::{Family, LedgerFilter, TurnFilter, UsageFilter};
use ghost_store::{Store, StoreError, Tx};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use super::age;

/// Time of the young world's first turn.
const START: i64 = 0x0199_0000 * 65_536;
const YOUNG: u32 = 40;
const OLD: u64 = 50_000;
/// Time of the old world's first turn.
const BEGIN: i64 = START - (OLD as i64 / YOUNG as i64 - 1) * super::STEP * super::UNIT_MS;

/// Deserializes a domain record as the store does, so that newer fields get their defaults.
fn noun<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A UUID of version 7 with the time of turn `n`; `sort` distinguishes the ids of one turn.
fn id(n: u32, sort: u8) -> Uuid {
    let ms = u128::try_from(at(n).0).unwrap();
    Uuid::from_u128((ms << 80) | (7 << 76) | (2 << 62) | u128::from(n) << 8 | u128::from(sort))
}

fn at(n: u32) -> Timestamp {
    Timestamp(START + i64::from(n) * 6_000)
}

fn who(n: u32) -> AgentId {
    format!("worker-{}", n % 5).parse().unwrap()
}

fn agent(n: u32) -> Agent {
    noun(json!({
        "agent_id": who(n), "incarnation": 1, "archetype": "worker", "name": "Worker", "team": null, "owner": null,
        "kind": "persistent", "desired": "running", "status": "running", "status_reason": null, "restarts": 0,
        "overrides": {}, "node": "n", "epoch": 1, "created_at": START, "updated_at": START, "last_active_at": null,
        "deleted_at": null,
    }))
}

/// Writes a turn with one message, a model call and a tool call.
fn write_turn(w: &mut Tx, n: u32) -> Result<(), StoreError> {
    let (turn_id, root_id) = (TurnId(id(n, 1)), RootId(id(n, 2)));
    let failed = n % 10 == 9;
    let turn: Turn = noun(json!({
        "turn_id": turn_id, "agent_id": who(n), "incarnation": 1, "root_id": root_id, "other_roots": [], "hop": 0,
        "source": "mail", "about": "fetch", "status": if failed { "failed" } else { "finished" }, "reason": null,
        "model": "fake", "rounds": 1, "calls": 1, "input_tokens": 90, "output_tokens": 10, "cost": 7, "unpriced_tokens": 0,
        "held": null, "text": "done", "truncated": false, "started_at": at(n), "ended_at": at(n).0 + 900, "crashes": 0,
        "boot_mark": 0, "stalled_boots": 0,
    }));
    w.turn_put(&turn)?;
    for step in [
        json!({ "step": "briefed", "system": "s", "briefing": "b", "mail": format!("mail of {turn_id}") }),
        json!({ "step": "note", "text": format!("in turn {turn_id}") }),
    ] {
        w.journal_append(turn_id, &noun::<Step>(step), at(n))?;
    }
    let mail: Envelope = noun(json!({
        "message_id": MessageId(id(n, 3)), "seq": 0, "to": who(n), "from": "operator:bench", "kind": "message",
        "subject": null, "body": "please", "attachments": [], "ask_id": null, "conversation_id": null, "root_id": root_id,
        "hop": 0, "wake": true, "created_at": at(n), "state": "consumed", "turn_id": turn_id, "crashes": 0,
    }));
    w.message_append(&mail)?;
    let call: LedgerRow = noun(json!({
        "call_id": CallId(id(n, 4)), "agent_id": who(n), "turn_id": turn_id, "tool": "syscall.files.read", "alias": null,
        "arguments": "{}", "result": "text", "status": "ok", "error_code": null, "started_at": at(n), "duration_ms": 5,
        "truncated": false,
    }));
    w.call_put(&call)?;
    let usage: UsageRow = noun(json!({
        "agent_id": who(n), "turn_id": turn_id, "root_id": root_id, "provider": "p", "model": "fake",
        "tokens": { "input": 90, "output": 10, "cache_read": 0, "cache_write": 0 }, "cost": 7, "estimated": false, "free": false,
        "duration_ms": 3, "at": at(n),
    }));
    w.usage_append(&usage)?;
    for (sort, kind) in [(5, EventKind::TurnStarted), (6, EventKind::TurnFinished)] {
        let event = NewEvent::new(kind, json!({ "turn_id": turn_id })).agent(&who(n)).correlation(turn_id);
        w.event_append(EventId(id(n, sort)), at(n), event)?;
    }
    Ok(())
}

macro_rules! look {
    ($store:expr, |$r:ident| $body:expr) => {
        $store.read::<_, StoreError, _>(move |$r| Ok($body)).await.unwrap()
    };
}

async fn calls(store: &Store, filter: UsageFilter) -> u64 {
    look!(store, |r| r.usage_sum(&filter)?.iter().map(|sum| sum.calls).sum())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_database_is_complete_and_its_totals_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let (young, old) = (dir.path().join("young.db"), dir.path().join("old.db"));
    let store = open_store(&young, SqliteOptions::default()).await.unwrap();
    let write = store.write::<_, StoreError, _>(|w| {
        for n in 0..5 {
            w.agent_put(&agent(n))?;
        }
        w.prompt_put("s", "system", at(0))?;
        w.prompt_put("b", "briefing", at(0))?;
        for n in 0..YOUNG {
            write_turn(w, n)?;
        }
        Ok(())
    });
    write.await.unwrap();
    store.close().await;

    let aged = age(&young, &old, OLD).unwrap();
    assert_eq!((aged.young_turns, aged.turns), (u64::from(YOUNG), OLD));
    assert!(aged.bytes > aged.young_bytes);
    let store = open_store(&old, SqliteOptions::default()).await.unwrap();
    // Every copy spent the same.
    assert_eq!(calls(&store, UsageFilter::default()).await, OLD);
    assert_eq!(calls(&store, UsageFilter { agent_id: Some(who(3)), ..UsageFilter::default() }).await, OLD / 5);
    assert_eq!(calls(&store, UsageFilter { since: Some(at(0)), ..UsageFilter::default() }).await, u64::from(YOUNG));
    assert_eq!(look!(store, |r| r.event_bounds()?), (1, i64::try_from(OLD).unwrap() * 2));
    // A turn of long ago differs from its copies by its id, in its columns, its record and its steps.
    let before = Some(Timestamp(BEGIN + i64::from(YOUNG) * 6_000));
    let failed = TurnFilter { agent_id: Some(who(9)), status: Some(TurnStatus::Failed), ..TurnFilter::default() };
    let (first, newest) = (TurnFilter { before, ..failed.clone() }, TurnFilter { limit: 1_000, ..failed });
    let (first, newest) = look!(store, |r| (r.turn_list(&first)?, r.turn_list(&newest)?));
    assert_eq!((first.len(), newest.len()), (4, 1_000));
    assert!(newest.windows(2).all(|pair| pair[0].started_at > pair[1].started_at));
    let oldest = first.last().unwrap().clone();
    assert_eq!(oldest.started_at, Timestamp(BEGIN + 9 * 6_000));
    let (turn_id, started_at, root_id) = (oldest.turn_id, oldest.started_at, oldest.root_id);
    assert_eq!(look!(store, |r| r.turn_get(turn_id)?), Some(oldest));
    let (steps, mail, rows) = look!(store, |r| {
        let ledger = LedgerFilter { turn_id: Some(turn_id), ..LedgerFilter::default() };
        (r.journal_of(turn_id)?, r.messages_of_turn(turn_id)?, r.call_list(&ledger)?)
    });
    assert_eq!((steps.len(), mail.len(), rows.len()), (2, 1, 1));
    assert_eq!(steps[1].step, Step::Note { text: format!("in turn {turn_id}") });
    assert_eq!((mail[0].root_id, rows[0].started_at, rows[0].turn_id), (root_id, started_at, turn_id));
    assert_eq!(calls(&store, UsageFilter { root_id: Some(root_id), ..UsageFilter::default() }).await, 1);
    // Pruning subtracts from the totals, and new events get numbers after the last one.
    let middle = Timestamp(started_at.0 + (START - started_at.0) / 2);
    let mut gone = 0;
    loop {
        let slice = store.write::<_, StoreError, _>(move |w| w.prune(Family::Usage, middle, 500)).await.unwrap();
        gone += slice;
        if slice == 0 {
            break;
        }
    }
    assert!(gone > OLD / 3 && gone < OLD, "{gone}");
    assert_eq!(calls(&store, UsageFilter::default()).await, OLD - gone);
    store.write::<_, StoreError, _>(|w| write_turn(w, YOUNG)).await.unwrap();
    assert_eq!(calls(&store, UsageFilter::default()).await, OLD - gone + 1);
    assert_eq!(look!(store, |r| r.event_bounds()?), (1, i64::try_from(OLD).unwrap() * 2 + 2));
    store.close().await;
}

#[tokio::test]
async fn a_database_without_turns_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (young, old) = (dir.path().join("young.db"), dir.path().join("old.db"));
    open_store(&young, SqliteOptions::default()).await.unwrap().close().await;
    assert!(age(&young, &old, 10).is_err());
}
